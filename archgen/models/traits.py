"""Which kinds of layers a network has that not every machine runs well.

The one idea: operators and shapes of weights decide, so a network is opened without what its
weights are, and nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx

from archgen.lint.rules import Kind
from archgen.models.errors import ModelError
from archgen.models.load import without_weights

_WEIGHTS = {"Conv": 1, "ConvInteger": 1, "FusedConv": 1, "NhwcConv": 1, "QLinearConv": 3}
"""Convolutions, and which of their inputs the weights are."""


def kinds_of(
    spec: str, batches: Sequence[int], dims: Mapping[str, int], roles: Mapping[str, str]
) -> set[Kind]:
    """The kinds of layers in the network that `spec` names; none where it cannot be opened."""
    try:
        graph = without_weights(spec, next(iter(batches), None), dims, roles).graph
    except ModelError:  # which is said elsewhere
        return set()
    nodes = list(_nodes(graph))
    shapes: dict[str, Sequence[int]] = {each.name: each.dims for each in graph.initializer}
    for node in nodes:
        if node.op_type == "DequantizeLinear" and node.input[0] in shapes:
            shapes[node.output[0]] = shapes[node.input[0]]
    return {"depthwise"} if any(_depthwise(node, shapes) for node in nodes) else set()


def _depthwise(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether each channel has a kernel of its own."""
    if node.op_type not in _WEIGHTS:
        return False
    shape = shapes.get(node.input[_WEIGHTS[node.op_type]], ())
    groups = next((each.i for each in node.attribute if each.name == "group"), 1)
    return groups > 1 and list(shape[:2]) == [groups, 1]


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Its nodes and those of bodies."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)
