"""Networks in 16-bit floats as networks in float32: the same graph with wider numbers.

The one idea: every 16-bit number has an equal float32, so constants, types of values and the types
that operators are told to produce are widened in place, in subgraphs and functions too. Results are
at least as precise as before; inputs and outputs become float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes that hold an element type."""


def widened(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` without 16-bit floats: a copy, or itself where it has none."""
    if not any(True for _ in _halves(proto)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for part in list(_halves(copy)):
        _widen(part)
    return copy


_Part = onnx.TensorProto | onnx.TypeProto.Tensor | onnx.AttributeProto


def _widen(part: _Part) -> None:
    if isinstance(part, onnx.TypeProto.Tensor):
        part.elem_type = TensorProto.FLOAT
    elif isinstance(part, onnx.AttributeProto):
        part.i = TensorProto.FLOAT
    else:
        numbers = numpy_helper.to_array(part).astype(np.float32)
        part.CopyFrom(numpy_helper.from_array(numbers, part.name))


def _halves(proto: onnx.ModelProto) -> Iterator[_Part]:
    """Everything in ``proto`` that says or holds a 16-bit float."""
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[_Part]:
    yield from (tensor for tensor in graph.initializer if tensor.data_type in _HALF)
    for values in (graph.input, graph.output, graph.value_info):
        types = (value.type.tensor_type for value in values)
        yield from (kind for kind in types if kind.elem_type in _HALF)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[_Part]:
    for node in nodes:
        for attribute in node.attribute:
            yield from _of_attribute(attribute)


def _of_attribute(attribute: onnx.AttributeProto) -> Iterator[_Part]:
    if attribute.type == AttributeProto.INT:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _HALF:
            yield attribute
    elif attribute.type == AttributeProto.TENSOR:
        if attribute.t.data_type in _HALF:
            yield attribute.t
    elif attribute.type == AttributeProto.GRAPH:
        yield from _of_graph(attribute.g)
