"""Operators that nobody could give a meaning, or that are none of an accelerator's: found before
anything is made of a model.

Known is what ONNX defines, what the model's own functions define, what this compiler or a
user has a rule for, and what ONNX Runtime, which the host runs, has a schema of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto

from compiler.errors import UnsupportedModel, at_node, operator_name
from compiler.frontend.control_flow import reads
from compiler.frontend.operators.functions import DEFINED
from compiler.frontend.reference_types import (
    nodes_within,
    operators_of_runtime,
    outside,
    type_proto,
)
from compiler.frontend.rewrite import (
    ARCHGEN,
    const,
    input_of,
    is_const,
    is_op,
    is_static,
    label_of,
    static_shape,
)
from compiler.frontend.shapes import RULES

_REMEDY = "export it as standard operators or register it (docs/extending.md)"
_SHOWN = 8
"""Nodes that are refused for one and the same reason, and named."""


def refuse_unknown_operators(proto: onnx.ModelProto, name: str) -> None:
    """Raise UnsupportedModel for all nodes of `proto`, called `name`, that cannot be compiled
    whatever the machine."""
    own = {(function.domain, function.name) for function in proto.functions}
    bodies = [function.node for function in proto.functions]
    found = dict.fromkeys(
        each for nodes in (proto.graph.node, *bodies) for each in _refused(nodes, own)
    )
    if found:
        raise UnsupportedModel(f"{name}: " + "; ".join(_grouped(found)))


def _grouped(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """`node 'a' (ai.onnx.Relu), node 'b' (ai.onnx.Relu): why`, each reason once."""
    places: dict[str, list[str]] = {}
    for place, why in found:
        places.setdefault(why, []).append(place)
    for why, refused in places.items():
        more = len(refused) - _SHOWN
        shown = [*refused[:_SHOWN], *([f"{more} more nodes"] if more > 0 else [])]
        yield f"{', '.join(shown)}: {why}"


def _refused(
    nodes: Iterable[onnx.NodeProto], own: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Nodes that are refused, as messages name them, and why."""
    for index, node in nodes_within(nodes):
        known = (node.domain, node.op_type) in own
        why = None if known else _reason(node.op_type, node.domain)
        if why is not None:
            yield _node_label(node, index), why


def _reason(op_type: str, given: str) -> str | None:
    """Why an operator cannot be compiled, and what would help; None: it may be."""
    domain = "" if given == "ai.onnx" else given
    if operator_name(op_type, domain) in DEFINED:
        return None
    refused = outside(op_type, domain)
    if refused is not None or domain == ARCHGEN or is_known(op_type, domain):
        return refused
    if domain not in operators_of_runtime() and not domain.startswith("ai.onnx"):
        return f"the domain is unknown here and to ONNX Runtime; {_REMEDY}"
    return f"neither this compiler nor ONNX Runtime has this operator; {_REMEDY}"


def is_known(op_type: str, domain: str = "") -> bool:
    """Whether ONNX, this compiler or ONNX Runtime defines an operator; `domain` is empty for
    ONNX's own."""
    if onnx.defs.has(op_type, domain) or op_type in RULES.get(domain, {}):
        return True
    return op_type in operators_of_runtime().get(domain, ())


def refuse_undefined(node: ir.Node) -> None:
    """Raises ValueError where a constant parameter of `node` makes it undefined."""
    if is_op(node, "QuantizeLinear", "DequantizeLinear"):
        _refuse_scales(node)
    if is_op(node, "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"):
        _refuse_places(node)
    for position, which in ((1, "lower"), (2, "upper")) if is_op(node, "Clip") else ():
        bound = const(input_of(node, position))
        if bound is not None and np.isnan(bound.astype(np.float64)).any():
            raise ValueError(
                f"its {which} bound is NaN, which limits nothing; give it a number, or leave it out"
            )


def _refuse_scales(node: ir.Node) -> None:
    """One scale for all is positive; of scales by channel, those of empty channels may be 0."""
    found = const(input_of(node, 1))
    if found is None:
        return
    scales = found.astype(np.float64).ravel()
    wrong = ~np.isfinite(scales)
    if scales.size == 1 and not is_const(input_of(node, 0)):
        wrong |= scales <= 0
    if wrong.any():
        raise ValueError(
            f"its scale is {scales[wrong][0]:.3g}, expected a positive number; quantize the model "
            "again"
        )


def _refuse_places(node: ir.Node) -> None:
    """Constant places lie within the extents that they count along."""
    data, found = input_of(node, 0), const(input_of(node, 1))
    if found is None or data is None or not is_static(data) or not found.size:
        return
    shape = static_shape(data)
    if node.op_type.endswith("ND"):
        first = node.attributes.get_int("batch_dims", 0)
        columns = np.moveaxis(found, -1, 0)
        pairs = [*zip(shape[first:], columns, strict=False)]
    else:
        axis = node.attributes.get_int("axis", 0)
        pairs = [(shape[axis], found)] if -len(shape) <= axis < len(shape) else []
    for extent, places in pairs:
        wrong = places[(places < -extent) | (places >= extent)]
        if wrong.size:
            raise ValueError(
                f"its constant place {wrong[0]} is outside the {extent} that there are"
            )


# Values that are no tensors of numbers: text, sequences, optional values, maps, sparse tensors.

REMEDY = "machines compute with tensors of numbers; leave the rest to what prepares and reads data"
_KINDS = {
    "sequence_type": "a sequence",
    "optional_type": "an optional value",
    "map_type": "a map",
    "sparse_tensor_type": "a sparse tensor",
    "opaque_type": "of a type of its own",
}


def other_ports(graph: onnx.GraphProto) -> list[str]:
    """What is wrong with inputs and outputs of `graph`, with who reads or makes each."""
    nodes = [(_node_label(node, index), node) for index, node in nodes_within(graph.node)]
    readers = {name: shown for shown, node in reversed(nodes) for name in node.input}
    makers = {name: shown for shown, node in nodes for name in node.output}
    given = {tensor.name for tensor in graph.initializer}
    taken = [value for value in graph.input if value.name not in given]
    lines = [
        f"{who.get(value.name, 'the model')} {does} {value.name!r}, {kind}"
        for values, does, who in ((taken, "takes", readers), (graph.output, "gives", makers))
        for value in values
        if (kind := _non_tensor_kind(value.type))
    ]
    return [*lines, REMEDY] if lines else []


def other_values(graph: ir.Graph) -> list[str]:
    """Nodes of `graph` that make such values."""
    lines = [
        f"{label_of(node)} makes {value.name!r}, {kind}"
        for node in graph
        for value in node.outputs
        if (kind := _non_tensor_kind(type_proto(value)))
    ]
    return [*lines, REMEDY] if lines else []


def _node_label(node: onnx.NodeProto, index: int) -> str:
    label = node.name or f"{node.op_type}_{index}"
    return at_node(label, operator_name(node.op_type, node.domain))


def _non_tensor_kind(given: onnx.TypeProto | None) -> str:
    """What a value is that is no tensor of numbers; empty where it is one, or nothing is said."""
    if given is None:
        return ""
    if given.HasField("tensor_type"):
        return "text" if given.tensor_type.elem_type == TensorProto.STRING else ""
    return _KINDS.get(given.WhichOneof("value") or "", "")


def deciders(nodes: Iterable[ir.Node]) -> tuple[tuple[str, ...], ...]:
    """Names of graph inputs from which `nodes` are fed: of their parameters, then of all that they
    read. Groups without a name are left out."""
    asked = list(nodes)
    parameters = _source_names(value for node in asked for value in node.inputs[1:])
    all_of_them = _source_names(value for node in asked for value in reads(node))
    return tuple(group for group in (parameters, all_of_them) if group)


def _source_names(values: Iterable[ir.Value | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(v.name) for value in values for v in _sources(value)))


def _sources(value: ir.Value | None) -> Iterator[ir.Value]:
    """Graph inputs that `value` is computed from."""
    waiting = [value]
    passed: set[ir.Value | None] = {None}
    while waiting:
        found = waiting.pop()
        if found is None or found in passed:
            continue
        passed.add(found)
        if found.is_graph_input():
            yield found
        node = found.producer()
        waiting += [] if node is None else reads(node)
