"""What a network needs at least, from shapes alone, before anything of that size is made.

The one idea: every value of a network lies in DRAM at some time, so one that is larger than DRAM is
an answer already; whoever would compute it first needs as much memory on this computer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import shape_inference

from archgen.models.load import SourceModel
from archgen.zoo.shapes import without_data
from compiler.api import DoesNotFit
from simmodel.arch.dtype import size_of
from simmodel.arch.record import Arch


def check_sizes(source: SourceModel, arch: Arch, dtype: str) -> None:
    """Raises DoesNotFit where the inputs of `source` together, or any value that it computes, are
    more than DRAM, before any of them is made: floats as `dtype`, everything else as it is."""
    room = arch.memories.dram.size
    graph = source.proto.graph
    data = {tensor.name for tensor in graph.initializer}
    inputs = {f"input {v.name}": _bytes(v, dtype) for v in graph.input if v.name not in data}
    _refuse_over(room, inputs, source.name)
    makers = {name: node.op_type for node in graph.node for name in node.output}
    for value in _computed(source.proto):
        if value.name in makers:
            made = {f"{makers[value.name]} {value.name}": _bytes(value, dtype)}
            _refuse_over(room, made, source.name)


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


def _refuse_over(room: int, sizes: Mapping[str, int], name: str) -> None:
    demand = sum(sizes.values())
    if demand > room:
        levers = ("a smaller batch or input", f"memories.dram.size of at least {demand} B")
        raise DoesNotFit(demand, room, "B", tuple(sizes.items()), levers, f"{name}: DRAM")


def _bytes(value: onnx.ValueInfoProto, dtype: str) -> int:
    """Bytes of a value whose type and shape are known."""
    kind = value.type.tensor_type
    item = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    size = min(item.itemsize, size_of(dtype)) if item.kind == "f" else item.itemsize
    count: int = math.prod(dim.dim_value for dim in kind.shape.dim)
    return count * size
