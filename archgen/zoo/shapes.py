"""Shapes of every value of an ONNX model, also where exporters compute them in the graph.

The one idea: shape inference stops at a Reshape or Slice whose operand is computed from another
tensor's shape. So operands that follow from shapes alone are computed, and inference runs again,
until nothing more becomes known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, inliner, numpy_helper, shape_inference

from compiler import api

Shape = tuple[int, ...]

# Values up to this many elements are computed: shapes, axes, indices, small masks.
SMALL = 1024


def known_shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """Shape by name of every value of the main graph whose shape can be told."""
    light = without_data(model)
    use_stand_ins(light.graph)
    graph = light.graph
    while True:
        shapes = fixed_shapes(shape_inference.infer_shapes(light, data_prop=True).graph)
        values = {
            node.output[0]: np.array(shapes[node.input[0]], np.int64)
            for node in graph.node
            if node.op_type == "Shape" and node.input[0] in shapes and not node.attribute
        }
        values |= api.constant_values(light, _operands_to_compute(graph, shapes), lambda name: None)
        if not values or all(name in shapes for n in graph.node for name in n.output if name):
            return shapes
        rest = [node for node in graph.node if values.keys().isdisjoint(node.output)]
        graph.ClearField("node")
        graph.node.extend(rest)
        graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in values.items())


def _operands_to_compute(graph: onnx.GraphProto, shapes: Mapping[str, Shape]) -> list[str]:
    """What nodes whose results have no known shape read of what follows from constants."""
    constants = {"", *(tensor.name for tensor in graph.initializer)}
    computed: set[str] = set()
    for node in graph.node:
        if constants.issuperset(node.input) and not any(bodies(node)):
            constants.update(node.output)
            computed.update(node.output if len(node.output) == 1 else ())
    open_nodes = (n for n in graph.node if any(name and name not in shapes for name in n.output))
    read = dict.fromkeys(name for node in open_nodes for name in node.input if name in computed)
    return [name for name in read if math.prod(shapes.get(name, ())) <= SMALL]


def fixed_shapes(graph: onnx.GraphProto) -> dict[str, Shape]:
    """Shape by name of the values that `graph` gives one without free extents."""
    shapes: dict[str, Shape] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        dims = info.type.tensor_type.shape.dim
        if info.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes.setdefault(info.name, tuple(dim.dim_value for dim in dims))
    return shapes


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of an attribute of `node`, or `default`."""
    for entry in node.attribute:
        if entry.name == name:
            return helper.get_attribute_value(entry)
    return default


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Subgraphs that a node holds."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else attribute.graphs


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """`graph` and those inside of its nodes."""
    yield graph
    for node in graph.node:
        for inner in bodies(node):
            yield from all_graphs(inner)


def names_read(graph: onnx.GraphProto) -> set[str]:
    """Values that nodes read, also inside of subgraphs, and the outputs."""
    found: set[str] = set()
    for each in all_graphs(graph):
        found.update(value.name for value in each.output)
        found.update(name for node in each.node for name in node.input)
    return found


def copied(proto: onnx.ModelProto, **fields: Iterable[Any]) -> onnx.ModelProto:
    """A copy of `proto`, whose graph has other values in these fields."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for name, values in fields.items():
        copy.graph.ClearField(name)
        getattr(copy.graph, name).extend(values)
    return copy


def without_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``model`` with everything but the initializers of its main graph."""
    copy = onnx.ModelProto()
    for source, target in ((model, copy), (model.graph, copy.graph)):
        for field, value in source.ListFields():
            if field.name in ("graph", "initializer"):
                continue
            if isinstance(value, str | int | bytes):
                setattr(target, field.name, value)
            else:
                getattr(target, field.name).MergeFrom(value)
    return copy


def without_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose larger initializers have a shape and no data, and local functions inlined."""
    light = without_initializers(model)
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= SMALL:
            light.graph.initializer.append(tensor)
        else:
            light.graph.initializer.add(
                name=tensor.name, dims=tensor.dims, data_type=tensor.data_type
            )
    return inliner.inline_local_functions(light) if light.functions else light


# Quantized operators outside the standard -> the standard one of equal shapes, and its operands.
_STAND_INS = {
    "QLinearAdd": ("Add", slice(0, 4, 3)),
    "QLinearMul": ("Mul", slice(0, 4, 3)),
    "QLinearConcat": ("Concat", slice(2, None, 3)),
    "QLinearAveragePool": ("AveragePool", slice(0, 1)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", slice(0, 1)),
    "QLinearLeakyRelu": ("Identity", slice(0, 1)),
    "QLinearSigmoid": ("Identity", slice(0, 1)),
    "QLinearSoftmax": ("Identity", slice(0, 1)),
}


def use_stand_ins(graph: onnx.GraphProto) -> None:
    """Puts the standard operator of equal shapes in the place of quantized ones outside of it."""
    for node in graph.node:
        if node.domain == "com.microsoft" and node.op_type in _STAND_INS:
            kind, operands = _STAND_INS[node.op_type]
            inputs = list(node.input)[operands]
            node.op_type, node.domain = kind, ""
            del node.input[:]
            node.input.extend(inputs)


def port_of(name: str, array: NDArray[Any]) -> onnx.ValueInfoProto:
    """An input that takes `array`."""
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def has_data(tensor: TensorProto) -> bool:
    """Whether `tensor` is small and has its values in it."""
    size = math.prod(tensor.dims)
    if size > SMALL or tensor.data_location == TensorProto.EXTERNAL:
        return False
    return size == 0 or any(getattr(tensor, field) for field in _DATA_FIELDS)


_DATA_FIELDS = (
    *("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data"),
    "string_data",
)


REDUCED = {"Conv": 1, "MatMul": -2, "Gemm": 0}
"""Axis of the weights along which operators reduce."""


def weights_in_blocks(graph: onnx.GraphProto, size: int) -> Iterator[tuple[onnx.TensorProto, int]]:
    """Constant weights of products and convolutions, and the axis along which these reduce, where
    it is whole blocks of `size`."""
    known = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        axis = REDUCED.get(node.op_type)
        tensor = None if axis is None else known.pop(node.input[1], None)
        if axis is not None and tensor is not None and len(tensor.dims) > 1:
            axis = 1 if node.op_type == "Gemm" and attribute(node, "transB", 0) else axis
            if tensor.dims[axis] % size == 0:
                yield tensor, axis
