"""From an ONNX model with bound input extents to a graph whose every value has a static shape.

The one idea: the graph is walked once, in topological order. Each node is brought to its modern
form (`upgrade`), evaluated if its inputs are constants (`folded`), and otherwise given its output
shapes (`infer_node`). Because everything before it is already static, chains
of Shape, Gather, Concat and Reshape vanish in that one pass.

Documented choices: "axes" and the like are constant inputs, as in opset 21; weights stay views of
the proto's bytes; DequantizeLinear of a constant is kept for the integer operators to see; nodes
with subgraphs whose condition is unknown stay, for the host to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveInitializersFromInputsPass, ShapeInferencePass

from compiler.errors import CompilerError, Undecided, UnsupportedModel, on
from compiler.frontend.canonicalize.fold_constants import FOLD_LIMIT, Bytes, constant_tensor, folded
from compiler.frontend.checks import (
    deciders,
    other_ports,
    other_values,
    refuse_undefined,
    refuse_unknown_operators,
)
from compiler.frontend.control_flow import (
    forget_shapes,
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
    has_body,
    is_op,
    is_static,
    label_of,
    lazy,
    remove_dead,
    replace_outputs,
    required,
    tensor_of,
)
from compiler.frontend.shapes import infer_node, schema_of
from compiler.frontend.stored_tensors import is_outside, key_of, numbers_in, pieces_in
from compiler.passes import Count, run_pass
from simmodel.arch.lazy_array import LazyArray

NUMBERS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
"""Fields of a tensor of a file, one of which holds its elements."""


@dataclass(frozen=True)
class Load:
    """The graph of a model's file: static, folded, inlined, of one form per operator."""

    limit: Bytes = FOLD_LIMIT
    """As of `fold_constants`, while shapes are inferred."""
    unroll: Count = 16_384
    """Operators into which the scans and loops of a network may unfold, as recurrent layers do; one
    for which too few are left is the host's. A thousand take a few seconds to compile."""

    def apply(self, proto: onnx.ModelProto, name: str) -> ir.Model:
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
    for value, port in zip(graph.inputs, proto.graph.input, strict=True):
        # What is an output too has the shape that it was declared with last.
        value.shape = ir.serde.deserialize_type_proto_for_shape(port.type)
    for tensor in filter(is_outside, proto.graph.initializer):
        kind = ir.DataType(tensor.data_type).numpy()
        pieces = partial(pieces_in, tensor) if tensor.dims else None
        made = partial(numbers_in, tensor)
        numbers = LazyArray(tuple(tensor.dims), kind, made, pieces, key_of(tensor))
        graph.initializers[tensor.name].const_value = tensor_of(numbers, tensor.name)
    _rename_apart(graph)
    _refuse_old(model, version)
    RemoveInitializersFromInputsPass()(model)
    _inline_functions(model)
    graph.opset_imports[""] = max(version, TARGET_OPSET)
    graph.opset_imports[ARCHGEN] = 1
    graph.sort()
    _name_nodes(graph)
    for node in graph:
        forget_shapes(node)  # they may be of other extents
    options = options or Load()
    unfolding = Unfolding(options.unroll)
    for node in graph:
        place = label_of(node)
        try:
            with on(place):
                _take_node(model, node, node.version or version, options, unfolding)
        except ValueError as error:
            raise Undecided(f"{name}: {place}: {error}", deciders([node])) from error
    remove_dead(graph)
    _refuse(name, other_values(graph))
    _refuse_unknown_shapes(graph, set_tail_apart(model, load))
    return model


def _rename_apart(graph: ir.Graph) -> None:
    """Let constants of the subgraphs of `graph` be renamed without those of the file, in which
    others still look for them."""
    for body in graph.subgraphs():
        for value in body.initializers.values():
            assert value.const_value is not None
            value.const_value = tensor_of(lazy(value.const_value), value.name)


def _refuse(name: str, reasons: list[str]) -> None:
    """Raise UnsupportedModel where there are reasons to."""
    if reasons:
        raise UnsupportedModel(f"{name}: " + "; ".join(dict.fromkeys(reasons)))


def _refuse_old(model: ir.Model, version: int) -> None:
    """Raise UnsupportedModel for operators of an operator set before the oldest one whose forms are
    known, if they have another form there."""
    changed = set[str]()
    for node in model.graph.all_nodes() if version < OLDEST_OPSET else ():
        forms = (schema_of(node.op_type, "", each) for each in (version, OLDEST_OPSET))
        since = {None if form is None else form.since_version for form in forms}
        if node.domain in ("", "ai.onnx") and (len(since) > 1 or None in since):
            changed.add(node.op_type)
    if changed:
        raise UnsupportedModel(
            f"{model.graph.name}: opset {version} is older than {OLDEST_OPSET}, since which "
            f"{', '.join(sorted(changed))} is another operator; export it with a newer one"
        )


def _inline_functions(model: ir.Model) -> None:
    """Put the bodies of the model's own functions where they are called, but for those that this
    compiler knows."""
    try:
        InlinePass(lambda function: function.domain != ARCHGEN)(model)
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


def _take_node(
    model: ir.Model, node: ir.Node, version: int, options: Load, unfolding: Unfolding
) -> None:
    graph = model.graph
    if is_op(node, "Constant"):
        _replace_by_constants(node, [(constant_tensor(node), 0.0)])
        return
    if is_op(node, "Identity"):
        _drop_identity(node)
        return
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
    if not all(map(is_static, node.outputs)):  # as they are where a definition made the node
        infer_node(node, graph.opset_imports)
    values = folded(node, graph.opset_imports, limit=options.limit)
    if values is not None:
        _replace_by_constants(node, [(tensor_of(each.values), each.terms) for each in values])


def _replace_by_constants(
    node: ir.Node, values: Sequence[tuple[ir.TensorProtocol, Array | float]]
) -> None:
    """Let initializers named after the outputs of `node`, numbers and their terms, take its
    place."""
    graph = node.graph
    assert graph is not None
    for output, (tensor, terms) in zip(node.outputs, values, strict=False):
        if not output.uses() and not output.is_graph_output():
            continue
        replacement = ir.val(output.name or fresh_name(graph, str(node.name)), const_value=tensor)
        replacement.meta[TERMS] = terms
        output.replace_all_uses_with(replacement, replace_graph_outputs=True)
        output.name = None
        graph.register_initializer(replacement)
    graph.remove(node, safe=True)


def _drop_identity(node: ir.Node) -> None:
    source, output = required(node, 0), node.outputs[0]
    if not (output.is_graph_output() and (source.is_graph_input() or source.is_graph_output())):
        replace_outputs(node, [source])
        return
    if source.dtype is None:
        raise ValueError(f"type of {source.name} is unknown")
    output.dtype, output.shape = source.dtype, source.shape


def _refuse_unknown_shapes(graph: ir.Graph, why_no_tail: str | None) -> None:
    """Raise Undecided for values without a static shape, naming where that begins, and why it is
    not left to the host."""
    inputs = [value for value in graph.inputs if not is_static(value)]
    unknown = [value for node in graph for value in node.outputs if not is_static(value)]
    if not inputs and not unknown:
        return
    causes = [f"graph input {value.name!r} {value.shape}" for value in inputs]
    first: dict[ir.Node, None] = {}
    for value in unknown:
        node = value.producer()
        if node is not None and all(v is None or is_static(v) for v in node.inputs):
            known = "has no shape at all" if value.shape is None else f"{value.shape}"
            said = ": ".join(filter(None, [known.replace("None", "?"), why_open(value)]))
            causes.append(f"{label_of(node)}: {value.name!r} {said}")
            first[node] = None
    ways = ["export sizes that depend on data as constants"]
    if inputs:
        ways.insert(0, "bind free dimensions (--dim name=size)")
    raise Undecided(
        f"{graph.name}: {len(inputs) + len(unknown)} values have no static shape, because of: "
        + "; ".join([*causes, *filter(None, [why_no_tail])])
        + f"; {', or '.join(ways)}",
        deciders(first),
    )


# A model without the operators that hide products: attentions and recurrent layers, written out.

HIDING = {
    *((MICROSOFT, name) for name in ("Attention", "GroupQueryAttention", "MultiHeadAttention")),
    *((MICROSOFT, name) for name in ("FusedConv", "NhwcConv", "NhwcFusedConv")),
    *((MICROSOFT, name) for name in ("FusedGemm", "FusedMatMul", "MatMulNBits")),
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


# Values of a network that follow from its constants and shapes alone: what such a value depends on
# is a small network of its own, which folds to a constant.

Data = Callable[[str], onnx.TensorProto | None]
"""An initializer with its numbers, by name."""
Compute = Callable[[onnx.ModelProto], Array | None]
"""The output of a small network, which depends on no number of an input; None where nobody can
compute it."""


def constant_values(
    proto: onnx.ModelProto, names: Collection[str], data: Data, compute: Compute | None = None
) -> dict[str, Array]:
    """Values with these `names`, without those that are no constants.

    Args:
        proto: a network of fixed input shapes, whose initializers need no numbers.
        names: of its values, also of initializers.
        data: for initializers without numbers.
        compute: says them to the last bit, where that is not what the compiler folds.
    """
    makers = {output: node for node in proto.graph.node for output in node.output}
    found: dict[str, Array] = {}
    for name in names:
        part = _needed_subgraph(proto, name, makers, data)
        values = None if part is None else _evaluate_model(part, name, compute)
        if values is not None:
            found[name] = values
    return found


def _evaluate_model(part: onnx.ModelProto, name: str, compute: Compute | None) -> Array | None:
    if not part.graph.node:
        held = {tensor.name: tensor for tensor in part.graph.initializer}
        return numbers_in(held[name]) if name in held else None
    try:
        values = const(load(part, name).graph.outputs[0])
    except CompilerError:
        return None
    return values if values is None or compute is None else compute(part)


def _needed_subgraph(
    proto: onnx.ModelProto, name: str, makers: dict[str, onnx.NodeProto], data: Data
) -> onnx.ModelProto | None:
    """The network of just what a value depends on; None where a number is unknown."""
    needed, waiting = set[str](), [name]
    while waiting:
        given = waiting.pop()
        if given not in needed:
            needed.add(given)
            waiting += makers[given].input if given in makers else ()
    made = onnx.ModelProto(ir_version=proto.ir_version)
    made.opset_import.extend(proto.opset_import)
    made.functions.extend(proto.functions)
    graph = made.graph
    graph.name = name
    graph.node.extend(n for n in proto.graph.node if not needed.isdisjoint(n.output))
    graph.input.extend(value for value in proto.graph.input if value.name in needed)
    graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    for tensor in (each for each in proto.graph.initializer if each.name in needed):
        stored = not math.prod(tensor.dims) or any(getattr(tensor, field) for field in NUMBERS)
        full = tensor if stored else data(tensor.name)
        if full is None:
            return None
        graph.initializer.append(full)
    return made
