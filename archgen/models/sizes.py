"""What a network needs at least, from shapes alone, before anything of that size is made.

The one idea: every value of a network lies in DRAM at some time, so one that is larger than DRAM is
an answer already; whoever would compute it first needs as much memory on this computer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import shape_inference

from archgen.lint.rules import Kind
from archgen.models.errors import ModelError
from archgen.models.load import SourceModel, without_weights
from archgen.zoo.shapes import all_graphs, without_data
from compiler.api import DoesNotFit
from simmodel.arch.dtype import size_of
from simmodel.arch.record import Arch


def check_sizes(source: SourceModel, arch: Arch, dtype: str) -> None:
    """Raises DoesNotFit where the inputs of `source` together, or any value that it computes, are
    more than DRAM, before any of them is made: floats as `dtype`, everything else as it is."""
    room = arch.memories.dram.size
    given = dict(_input_sizes(source.proto, dtype))
    _refuse_over(room, tuple((f"input {name}", size) for name, size in given.items()), source.name)
    makers = {name: node for node in source.proto.graph.node for name in node.output}
    for value in _computed(source.proto):
        size = _value_bytes(value, dtype)
        if size > room and value.name in makers:
            _refuse_over(room, ((f"{makers[value.name].op_type} {value.name}", size),), source.name)


def _computed(proto: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """Values of the main graph whose type and shape follow from what is constant."""
    try:
        graph = shape_inference.infer_shapes(without_data(proto), data_prop=True).graph
    except shape_inference.InferenceError:
        return  # whoever loads the model says what is wrong with it
    for value in (*graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            yield value


def _refuse_over(room: int, terms: tuple[tuple[str, int], ...], name: str) -> None:
    demand = sum(size for _, size in terms)
    if demand > room:
        levers = ("a smaller batch or input", f"memories.dram.size of at least {demand} B")
        raise DoesNotFit(demand, room, "B", terms, levers, f"{name}: DRAM")


def _input_sizes(proto: onnx.ModelProto, dtype: str) -> Iterator[tuple[str, int]]:
    """Bytes of each input."""
    data = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name not in data:
            yield value.name, _value_bytes(value, dtype)


def _value_bytes(value: onnx.ValueInfoProto, dtype: str) -> int:
    """Bytes of a value whose type and shape are known."""
    kind = value.type.tensor_type
    item = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    size = min(item.itemsize, size_of(dtype)) if item.kind == "f" else item.itemsize
    count: int = math.prod(dim.dim_value for dim in kind.shape.dim)
    return count * size


# Which kinds of layers a network has that not every machine runs well.

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
    nodes = [node for each in all_graphs(graph) for node in each.node]
    shapes: dict[str, Sequence[int]] = {each.name: each.dims for each in graph.initializer}
    for node in nodes:
        if node.op_type == "DequantizeLinear" and node.input[0] in shapes:
            shapes[node.output[0]] = shapes[node.input[0]]
    return {"depthwise"} if any(_is_depthwise(node, shapes) for node in nodes) else set()


def _is_depthwise(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether each channel has a kernel of its own."""
    if node.op_type not in _WEIGHTS:
        return False
    shape = shapes.get(node.input[_WEIGHTS[node.op_type]], ())
    groups = next((each.i for each in node.attribute if each.name == "group"), 1)
    return groups > 1 and list(shape[:2]) == [groups, 1]
