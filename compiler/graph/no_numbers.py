"""Values that are no tensors of numbers: text, sequences, optional values, maps, sparse tensors.

The one idea: no memory of a machine holds them and no call of the host can hand them over, so a
model that takes, gives or keeps one is refused before anything is made of it. Sequences that a
network only passes through are gone by then (`graph/sequences.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir
from onnx import TensorProto

from compiler.errors import at_node, operator_name
from compiler.graph.rewrite import ORIGIN

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
    nodes = [(_shown(node, index), node) for index, node in _nodes(graph)]
    readers = {name: shown for shown, node in reversed(nodes) for name in node.input}
    makers = {name: shown for shown, node in nodes for name in node.output}
    given = {tensor.name for tensor in graph.initializer}
    taken = [value for value in graph.input if value.name not in given]
    lines = [
        f"{who.get(value.name, 'the model')} {does} {value.name!r}, {kind}"
        for values, does, who in ((taken, "takes", readers), (graph.output, "gives", makers))
        for value in values
        if (kind := _kind(value.type))
    ]
    return [*lines, REMEDY] if lines else []


def other_values(graph: ir.Graph) -> list[str]:
    """Nodes of `graph` that make such values."""
    lines = [
        f"{_placed(node)} makes {value.name!r}, {kind}"
        for node in graph
        for value in node.outputs
        if (kind := _kind_of(value))
    ]
    return [*lines, REMEDY] if lines else []


def _shown(node: onnx.NodeProto, index: int) -> str:
    label = node.name or f"{node.op_type}_{index}"
    return at_node(label, operator_name(node.op_type, node.domain))


def _placed(node: ir.Node) -> str:
    name = node.metadata_props.get(ORIGIN, node.name)
    return at_node(name, operator_name(node.op_type, node.domain))


def _kind(given: onnx.TypeProto) -> str:
    """What a value is that is no tensor of numbers; empty where it is one, or nothing is said."""
    if given.HasField("tensor_type"):
        return "text" if given.tensor_type.elem_type == TensorProto.STRING else ""
    return _KINDS.get(given.WhichOneof("value") or "", "")


def _kind_of(value: ir.Value) -> str:
    if isinstance(value.type, ir.SequenceType):
        return "a sequence"
    if isinstance(value.type, ir.OptionalType):
        return "an optional value"
    return "text" if value.dtype == ir.DataType.STRING else ""


def _nodes(graph: onnx.GraphProto) -> Iterator[tuple[int, onnx.NodeProto]]:
    """Nodes of `graph` with their positions, also inside of subgraphs."""
    for index, node in enumerate(graph.node):
        yield index, node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes(body)
