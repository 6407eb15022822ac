"""From an ONNX model with bound input extents to a graph whose every value has a static shape.

The one idea: the graph is walked once, in topological order. Each node is brought to its modern
form (`graph/upgrade.py`), evaluated if its inputs are constants (`graph/fold.py`), and otherwise
given its output shapes (`graph/infer.py`). Because everything before it is already static, chains
of Shape, Gather, Concat and Reshape vanish in that one pass.

Documented choices: "axes" and the like are constant inputs, as in opset 21; weights stay views of
the proto's bytes; DequantizeLinear of a constant is kept for the integer operators to see; nodes
with subgraphs whose condition is unknown stay, for the host to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import (
    InlinePass,
    RemoveInitializersFromInputsPass,
    ShapeInferencePass,
)

from compiler.errors import CompilerError, Undecided, UnsupportedModel, at_node, on, operator_name
from compiler.frontend.canonicalize.fold_constants import FOLD_LIMIT, Bytes, FoldedValue, folded
from compiler.frontend.checks import (
    deciders,
    other_ports,
    other_values,
    refuse_undefined,
    refuse_unknown_operators,
)
from compiler.frontend.control_flow import (
    forget_shapes,
    has_body,
    infer_body,
    resolve_sequence,
    unfold,
    why_open,
)
from compiler.frontend.host_tail import set_tail_apart
from compiler.frontend.operators.attention import DecomposeAttention
from compiler.frontend.operators.body import Body, Unfolding
from compiler.frontend.operators.definitions import Expressed, expand, infer_expressed
from compiler.frontend.operators.functions import definition_of, inline
from compiler.frontend.operators.upgrade import OLDEST_OPSET, TARGET_OPSET, upgrade
from compiler.frontend.rewrite import (
    ARCHGEN,
    MICROSOFT,
    ORIGIN,
    TERMS,
    Array,
    const,
    fresh_name,
    is_op,
    remove_dead,
    replace_value,
    required,
)
from compiler.frontend.shapes import infer_node, schema_of
from compiler.passes import Count, run_pass


@dataclass(frozen=True)
class Load:
    """The graph of a model's file: static, folded, inlined, of one form per operator."""

    limit: Bytes = FOLD_LIMIT
    """As of `fold_constants`, while shapes are inferred."""
    unroll: Count = 16_384
    """Operators into which the scans and loops of a network may unfold, as recurrent layers do; one
    for which too few are left is the host's. A thousand take a few seconds to compile."""

    def apply(self, proto: onnx.ModelProto, name: str) -> ir.Model:
        """As `load`."""
        return load(proto, name, self)


def load(proto: onnx.ModelProto, name: str, options: Load | None = None) -> ir.Model:
    """The graph of `proto`, called `name`: static, folded, inlined, of one form per operator.

    Every extent of every graph input must be a number. Nodes with constant inputs that make more
    than `options.limit` bytes stay. Raises UnsupportedModel with the full list
    of values whose shape stays unknown, or with the operator that contradicts its definition.
    """
    refuse_unknown_operators(proto, name)
    _refuse(name, other_ports(proto.graph))
    try:
        model = ir.from_proto(proto)
    except ir.serde.SerdeError as error:
        said = f"{error.__cause__ or error}"
        raise UnsupportedModel(f"{name}: the file is damaged: {said}; export it again") from error
    version = model.opset_imports.get("", model.opset_imports.get("ai.onnx", TARGET_OPSET))
    graph = model.graph
    graph.name = name
    _rename_apart(graph)
    _refuse_old(model, version)
    RemoveInitializersFromInputsPass()(model)
    _inline_functions(model)
    graph.opset_imports[""] = max(version, TARGET_OPSET)
    graph.opset_imports[ARCHGEN] = 1
    graph.sort()
    _name_nodes(graph)
    _forget_shapes(graph)
    options = options or Load()
    _load_nodes(model, version, options, Unfolding(options.unroll))
    remove_dead(graph)
    _refuse(name, other_values(graph))
    _refuse_unknown_shapes(graph, set_tail_apart(model, load))
    return model


def _rename_apart(graph: ir.Graph) -> None:
    """Let constants of the subgraphs of `graph` be renamed without those of the file, in which
    others still look for them."""
    for body in graph.subgraphs():
        for value in body.initializers.values():
            tensor = value.const_value
            assert tensor is not None
            value.const_value = ir.LazyTensor(
                partial(_itself, tensor),
                tensor.dtype,
                ir.Shape(tensor.shape.numpy()),
                name=value.name,
            )


def _itself(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return tensor


def _refuse(name: str, reasons: list[str]) -> None:
    """Raise UnsupportedModel where there are reasons to."""
    if reasons:
        raise UnsupportedModel(f"{name}: " + "; ".join(dict.fromkeys(reasons)))


def _refuse_old(model: ir.Model, version: int) -> None:
    """Raise UnsupportedModel for operators of an operator set before the oldest one whose forms are
    known, if they have another form there."""
    if version >= OLDEST_OPSET:
        return
    changed = sorted({node.op_type for node in model.graph.all_nodes() if _changed(node, version)})
    if changed:
        raise UnsupportedModel(
            f"{model.graph.name}: opset {version} is older than {OLDEST_OPSET}, since which "
            f"{', '.join(changed)} is another operator; export it with a newer one"
        )


def _changed(node: ir.Node, version: int) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    old, known = (schema_of(node.op_type, "", v) for v in (version, OLDEST_OPSET))
    return old is None or known is None or old.since_version != known.since_version


def _inline_functions(model: ir.Model) -> None:
    """Put the bodies of the model's own functions where they are called."""
    if not model.functions:
        return
    try:
        InlinePass()(model)
    except (ValueError, ir.passes.PassError) as error:
        said = error.__cause__ or error
        raise UnsupportedModel(
            f"{model.graph.name}: its functions cannot be inlined: {said}; export it without them"
        ) from error


def _name_nodes(graph: ir.Graph) -> None:
    """Give each node a name of its own and start its provenance with it."""
    taken: set[str] = set()
    for index, node in enumerate(graph.all_nodes()):
        name = (node.name or "").replace("+", "_")
        if not name or name in taken:
            name = f"{name or node.op_type}_{index}"
        taken.add(name)
        node.name = name
        node.metadata_props.clear()
        node.metadata_props[ORIGIN] = name


def _forget_shapes(graph: ir.Graph) -> None:
    """Drop annotations made for other input extents; a subgraph keeps its own."""
    for node in graph:
        forget_shapes(node)


def _load_nodes(model: ir.Model, version: int, options: Load, unfolding: Unfolding) -> None:
    graph = model.graph
    for node in graph:
        place = _at(node)
        try:
            with on(place):
                _take_node(model, node, version, options, unfolding)
        except ValueError as error:
            raise Undecided(f"{graph.name}: {place}: {error}", deciders([node])) from error


def _at(node: ir.Node) -> str:
    """Which node a message is about."""
    return at_node(
        node.metadata_props.get(ORIGIN, node.name), operator_name(node.op_type, node.domain)
    )


def _take_node(
    model: ir.Model, node: ir.Node, version: int, options: Load, unfolding: Unfolding
) -> None:
    graph = model.graph
    if is_op(node, "Constant"):
        _replace_by_constants(node, (FoldedValue(_constant_array(node)),))
        return
    if is_op(node, "Identity"):
        _drop_identity(node)
        return
    if is_op(node, "If") and const(node.inputs[0]) is not None:
        _inline_branch(node)
        return
    version = node.version or version
    if inline(node, version):
        return
    definition = definition_of(node)
    if isinstance(definition, Expressed):
        if infer_expressed(node, definition):
            return
    elif definition is not None and expand(node, definition, Body(node, unfolding)):
        return
    upgrade(node, version)
    if node.graph is None:
        return
    refuse_undefined(node)
    if resolve_sequence(node):
        return
    if has_body(node):
        if unfold(node, version, unfolding):
            return
        node.version = version
        if not infer_body(node, {**graph.opset_imports, "": version}):
            ShapeInferencePass(check_type=False, strict_mode=False)(model)
        return
    if not all(map(_is_static, node.outputs)):  # as they are where a definition made the node
        infer_node(node, graph.opset_imports)
    values = folded(node, graph.opset_imports, limit=options.limit)
    if values is not None:
        _replace_by_constants(node, values)


def _constant_array(node: ir.Node) -> Array:
    name, attr = next(iter(node.attributes.items()))
    if name == "value":
        return attr.as_tensor().numpy()
    if name not in ("value_float", "value_floats", "value_int", "value_ints"):
        raise ValueError(f"Constant {node.name}: {name} is not supported")
    dtype = ir.DataType.FLOAT if "float" in name else ir.DataType.INT64
    return ir.tensor(attr.value, dtype=dtype).numpy()


def _replace_by_constants(node: ir.Node, values: tuple[FoldedValue, ...]) -> None:
    """Let initializers named after the outputs of `node` take its place."""
    graph = node.graph
    if graph is None:
        raise ValueError(f"{node.name} is in no graph")
    for output, value in zip(node.outputs, values, strict=False):
        if not output.uses() and not output.is_graph_output():
            continue
        name = output.name or fresh_name(graph, str(node.name))
        replacement = ir.val(name, const_value=_tensor(output, value.values))
        replacement.meta[TERMS] = value.terms
        output.replace_all_uses_with(replacement, replace_graph_outputs=True)
        output.name = None
        graph.register_initializer(replacement)
    graph.remove(node, safe=True)


def _tensor(output: ir.Value, array: Array) -> ir.TensorProtocol:
    """`array` as a tensor; the output's type decides where numpy has no type of its own (int4)."""
    if is_op(output.producer(), "Constant"):
        node = output.producer()
        attr = None if node is None else node.attributes.get("value")
        if attr is not None:
            return attr.as_tensor()
    return ir.tensor(array)


def _drop_identity(node: ir.Node) -> None:
    source, output = required(node, 0), node.outputs[0]
    if output.is_graph_output() and (source.is_graph_input() or source.is_graph_output()):
        output.dtype, output.shape = _typed(source)
        return
    replace_value(output, source, node, node.metadata_props)
    if node.graph is not None:
        node.graph.remove(node, safe=True)


def _typed(value: ir.Value) -> tuple[ir.DataType, ir.Shape | None]:
    if value.dtype is None:
        raise ValueError(f"type of {value.name} is unknown")
    return value.dtype, value.shape


def _inline_branch(node: ir.Node) -> None:
    """Move the branch that a constant condition selects into the graph, behind its If node.

    The walk goes on with the nodes that were moved, because they come after the current one.
    """
    graph, condition = node.graph, const(node.inputs[0])
    if graph is None or condition is None:
        raise ValueError(f"{node.name}: the condition is not a constant")
    branch = node.attributes["then_branch" if bool(condition.any()) else "else_branch"].as_graph()
    results = list(branch.outputs)
    branch.outputs.clear()
    for value in list(branch.initializers.values()):
        del branch.initializers[str(value.name)]
        value.name = fresh_name(graph, str(value.name))
        graph.register_initializer(value)
    moved = list(branch)
    branch.remove(moved)
    for inner in moved:
        forget_shapes(inner)
        for value in inner.outputs:
            value.name = fresh_name(graph, str(value.name))
    graph.insert_after(node, moved)
    for output, result in zip(node.outputs, results, strict=True):
        replace_value(output, result, node, node.metadata_props)
    graph.remove(node, safe=True)


def _refuse_unknown_shapes(graph: ir.Graph, why_no_tail: str | None) -> None:
    """Raise Undecided for values without a static shape, naming where that begins, and why it is
    not left to the host."""
    inputs = [value for value in graph.inputs if not _is_static(value)]
    unknown = [value for node in graph for value in node.outputs if not _is_static(value)]
    if not inputs and not unknown:
        return
    causes = [f"graph input {value.name!r} {value.shape}" for value in inputs]
    first: dict[ir.Node, None] = {}
    for value in unknown:
        node = value.producer()
        if node is not None and all(v is None or _is_static(v) for v in node.inputs):
            causes.append(f"{_at(node)}: {value.name!r} {_open(value)}")
            first[node] = None
    ways = [*(["bind free dimensions (--dim name=size)"] if inputs else []), _REMEDY]
    raise Undecided(
        f"{graph.name}: {len(inputs) + len(unknown)} values have no static shape, because of: "
        + "; ".join([*causes, *filter(None, [why_no_tail])])
        + f"; {', or '.join(ways)}",
        deciders(first),
    )


_REMEDY = "export sizes that depend on data as constants"


def _open(value: ir.Value) -> str:
    """What is known of a shape that is not known, and why it is not."""
    why = why_open(value)
    shown = f"{value.shape}" if value.shape is not None else "has no shape at all"
    return shown.replace("None", "?") + (f": {why}" if why else "")


def _is_static(value: ir.Value) -> bool:
    return not value.name or (value.shape is not None and value.shape.is_static())


# A model without the operators that hide products: attentions and recurrent layers, written out.

HIDING = {
    *((MICROSOFT, name) for name in ("Attention", "GroupQueryAttention", "MultiHeadAttention")),
    *((MICROSOFT, name) for name in ("FusedConv", "NhwcConv", "NhwcFusedConv")),
    *(("", name) for name in ("Attention", "GRU", "LSTM", "LinearAttention", "RNN")),
}
"""Domain and type of operators with products inside."""


def hides_products(proto: onnx.ModelProto) -> bool:
    """Whether the main graph has operators with products inside."""
    return any((node.domain, node.op_type) in HIDING for node in proto.graph.node)


def in_standard_operators(
    proto: onnx.ModelProto, name: str, options: Load | None = None
) -> onnx.ModelProto | None:
    """`proto`, whose inputs have fixed shapes, without operators that hide products, as far as the
    compiler, with these options, has a body for them; None where it cannot read the model, or only
    with operators that nobody else has."""
    try:
        model = run_pass(DecomposeAttention(), load(proto, name, options)).ir
    except CompilerError:
        return None
    if any(node.domain == ARCHGEN for node in model.graph):
        return None
    del model.graph.opset_imports[ARCHGEN]
    made = ir.to_proto(model)
    made.metadata_props.extend(proto.metadata_props)
    return made
