"""Networks in 16-bit floats as networks in float32: the same graph with wider numbers.

The one idea: every 16-bit number has an equal float32, so constants, types of values and the types
that operators are told to produce are widened in place, in subgraphs and functions too. Results are
at least as precise as before; inputs and outputs become float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

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


def widened_but_for_casts(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` without operators on 16-bit floats: as ``widened`` has it, but what the main graph
    casts to such a type is rounded to it, and float32 again."""
    copy = widened(proto)
    nodes: list[onnx.NodeProto] = []
    for before, node in zip(proto.graph.node, copy.graph.node, strict=True):
        nodes.append(node)
        kind = next((a.i for a in before.attribute if a.name == "to"), 0)
        if node.op_type == "Cast" and kind in _HALF:
            rounded = f"{node.output[0]}.rounded"
            nodes.append(helper.make_node("Cast", [rounded], node.output, to=TensorProto.FLOAT))
            node.output[0] = rounded
            node.attribute[0].i = kind
    made = onnx.ModelProto()
    made.CopyFrom(copy)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def has_bfloat16(proto: onnx.ModelProto) -> bool:
    """Whether anything in ``proto`` says or holds a bfloat16."""
    return any(_kind(part) == TensorProto.BFLOAT16 for part in _halves(proto))


def _kind(part: _Part) -> int:
    """The element type that ``part`` says or has."""
    if isinstance(part, onnx.TypeProto.Tensor):
        return int(part.elem_type)
    return int(part.i if isinstance(part, onnx.AttributeProto) else part.data_type)


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
