"""What is wrong with a file that parses as an ONNX model and cannot be one.

The one idea: everything behind takes names for text and types for known ones; a file where they
are not is turned away here, with the place that is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto

_TYPES = set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}


def damage(proto: onnx.ModelProto) -> str | None:
    """The first damage that is found, in words; None: there is none."""
    return next(_damages(proto), None)


def _damages(proto: onnx.ModelProto) -> Iterator[str]:
    yield from _graph_damages(proto.graph)
    for function in proto.functions:
        for index, node in enumerate(function.node):
            yield from _node_damages(node, f"node {index} of function {function.name!r}")
    for value in proto.graph.input:
        kind = value.type.tensor_type
        if value.type.HasField("tensor_type") and kind.elem_type not in _TYPES:
            known = "no element type" if not kind.elem_type else "an unknown element type"
            yield f"input {value.name!r} has {known} ({kind.elem_type})"


def _graph_damages(graph: onnx.GraphProto) -> Iterator[str]:
    for index, node in enumerate(graph.node):
        yield from _node_damages(node, f"node {index}")
    for what, values in (("input", graph.input), ("output", graph.output)):
        for index, value in enumerate(values):
            yield from _not_text(f"{what} {index}", name=value.name)
    for index, tensor in enumerate(graph.initializer):
        yield from _not_text(f"initializer {index}", name=tensor.name)
        if tensor.data_type not in _TYPES:
            yield f"initializer {tensor.name!r} has an unknown element type ({tensor.data_type})"
        if any(extent < 0 for extent in tensor.dims):
            yield f"initializer {tensor.name!r} has a negative extent ({list(tensor.dims)})"


def _node_damages(node: onnx.NodeProto, where: str) -> Iterator[str]:
    texts = {"name": node.name, "operator type": node.op_type, "domain": node.domain}
    texts |= {f"input {index}": name for index, name in enumerate(node.input)}
    texts |= {f"output {index}": name for index, name in enumerate(node.output)}
    yield from _not_text(where, **texts)
    for attribute in node.attribute:
        yield from _not_text(where, attribute=attribute.name)
        for inner in (attribute.g, *attribute.graphs):
            yield from _graph_damages(inner)


def _not_text(where: str, **texts: object) -> Iterator[str]:
    """protobuf gives bytes for what should be text and is not."""
    for what, text in texts.items():
        if not isinstance(text, str):
            yield f"{where}: its {what} is not text ({text!r})"
