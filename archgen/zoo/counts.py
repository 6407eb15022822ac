"""Multiply-accumulates and parameters of any ONNX model, by shape arithmetic alone.

The one idea: shapes of operands say it all, so a model of any size, even one whose weights have no
data, is counted in a moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import onnx
from onnx import TensorProto

from archgen.zoo.shapes import Shape, known_shapes, without_data

_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}


@dataclass(frozen=True)
class Counts:
    """``macs``: multiply-accumulates of matrix operators; ``parameters``: trained values."""

    macs: int
    parameters: int


def count(model: onnx.ModelProto) -> Counts:
    """Counts ``model``, whose input shapes should be fixed.

    MACs are those of convolutions, matrix products and recurrent layers, with padding counted and
    activations and normalizations not. Parameters are weights, biases and tables, without running
    statistics, scalars and quantization scales. A matrix operator whose shape cannot be inferred
    counts no MACs.
    """
    shapes = known_shapes(model)
    light = without_data(model)
    macs = sum(_node_macs(node, shapes) for node in light.graph.node)
    return Counts(macs, _parameters(light.graph))


# Multiply-accumulates of one node, by kind of operator.


def _node_macs(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> int:
    if node.op_type not in _MACS:
        return 0
    weights = node.input[3 if "QLinear" in node.op_type else 1]
    names = (node.input[0], weights, node.output[0] or node.output[-1])
    if not shapes.keys() >= {*names}:
        return 0
    return _MACS[node.op_type](*(shapes[name] for name in names))


def _conv_macs(x: Shape, weight: Shape, output: Shape) -> int:
    return math.prod(output) * math.prod(weight[1:])


def _matmul_macs(left: Shape, right: Shape, output: Shape) -> int:
    return math.prod(output) * left[-1]


def _recurrent_macs(x: Shape, weight: Shape, output: Shape) -> int:
    directions, rows, features = weight
    return x[0] * x[1] * directions * rows * (features + output[-1])


# Operator -> formula of the shapes of data, weights and result.
_MACS: dict[str, Callable[[Shape, Shape, Shape], int]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), _conv_macs),
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _matmul_macs),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent_macs),
    "ConvTranspose": lambda x, weight, _: math.prod(x) * math.prod(weight[1:]),
    "Gemm": lambda *sides: math.isqrt(math.prod(map(math.prod, sides))),
}


# Parameters. Integer data is trained only where an operator of a quantized model reads it.

_QUANTIZED_OPERANDS = {
    "DequantizeLinear": (0,), "QLinearConv": (3, 8), "QLinearMatMul": (3,), "ConvInteger": (1,),
    "MatMulInteger": (1,),
}  # fmt: skip
_UNTRAINED_OPERANDS = {
    "BatchNormalization": (3, 4),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "Resize"), (1, 2)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), (1, 2, 4, 5, 6, 7)),
}


def _parameters(graph: onnx.GraphProto) -> int:
    tensors = {tensor.name: tensor for tensor in _constant_tensors(graph)}
    trained = {
        name
        for node in graph.node
        for position, name in enumerate(node.input)
        if name in tensors and _is_trained(node.op_type, position, tensors[name])
    }
    return sum(math.prod(tensors[name].dims) for name in trained)


def _is_trained(kind: str, position: int, tensor: TensorProto) -> bool:
    if tensor.data_type not in _FLOATS:
        return position in _QUANTIZED_OPERANDS.get(kind, ())
    return len(tensor.dims) > 0 and position not in _UNTRAINED_OPERANDS.get(kind, ())


def _constant_tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = node.attribute[0].t
            yield TensorProto(name=node.output[0], dims=tensor.dims, data_type=tensor.data_type)
