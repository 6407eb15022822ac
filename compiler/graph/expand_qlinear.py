"""Operators on quantized tensors, rewritten as the float operator between its conversions.

One form for both ways of writing a quantized model: `integer-operators` then has only the
DequantizeLinear / QuantizeLinear form to recognise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.rewrite import (
    MICROSOFT,
    Array,
    AttrValue,
    Rewriter,
    const,
    float_attr,
    input_of,
    int_attr,
    required,
    static_shape,
)


@dataclass(frozen=True)
class ExpandQlinear(GraphPass):
    """QLinearConv, QLinearMatMul and ONNX Runtime's QLinear* and QGemm in the QDQ form.

       y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz)
    =>
       a = DequantizeLinear(x, xs, xz)
       k = DequantizeLinear <axis=0> (w, ws, wz)
       c = Conv(a, k)
       y = QuantizeLinear(c, ys, yz)
    """

    leaves_none_of: ClassVar[frozenset[str]] = frozenset({"QLinearConv", "QLinearMatMul"})

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one quantized operator."""
        expand = EXPANSIONS.get((node.domain, node.op_type))
        if expand is None:
            return False
        make = Rewriter(node)
        make.replace(expand(node, make))
        return True


Expansion = Callable[[ir.Node, Rewriter], ir.Value]


def _parameter(make: Rewriter, value: ir.Value | None) -> ir.Value | None:
    """A scale or zero point, as a scalar where it is one number."""
    numbers = const(value)
    if value is None or numbers is None or numbers.size != 1 or not numbers.ndim:
        return value
    return make.constant(numbers.reshape(()))


def _dequantize(node: ir.Node, make: Rewriter, at: int, axis: int = 0) -> ir.Value:
    """Inputs `at`, `at` + 1 and `at` + 2 of `node`: integers, scale, zero point."""
    scale, zero = (_parameter(make, input_of(node, at + i)) for i in (1, 2))
    return make.op("DequantizeLinear", [required(node, at), scale, zero], {"axis": axis})


def _quantize(node: ir.Node, make: Rewriter, value: ir.Value, at: int) -> ir.Value:
    """`value` quantized by inputs `at` (scale) and `at` + 1 (zero point) of `node`."""
    scale, zero = (_parameter(make, input_of(node, at + i)) for i in (0, 1))
    if zero is None:
        zero = make.like(np.zeros(()), node.outputs[0])
    return make.op("QuantizeLinear", [value, scale, zero])


def _bias(node: ir.Node, make: Rewriter, at: int, scales: tuple[int, int]) -> ir.Value | None:
    """The int32 bias at input `at`, dequantized by the product of the two scales."""
    bias = input_of(node, at)
    if bias is None:
        return None
    x_scale, w_scale = (const(input_of(node, index)) for index in scales)
    if x_scale is None or w_scale is None:
        raise ValueError(f"{node.name}: scales are not constant")
    product: Array = (x_scale.reshape(-1) * w_scale.reshape(-1)).astype(np.float32)
    scale = make.constant(product.reshape(()) if product.size == 1 else product)
    return make.op("DequantizeLinear", [bias, scale], {"axis": 0})


def _attributes(node: ir.Node, *dropped: str) -> dict[str, AttrValue]:
    return {name: attr.value for name, attr in node.attributes.items() if name not in dropped}


def _conv(node: ir.Node, make: Rewriter) -> ir.Value:
    bias = _bias(node, make, 8, (1, 4))
    inputs = [_dequantize(node, make, 0), _dequantize(node, make, 3), bias]
    made = make.op("Conv", inputs if bias else inputs[:2], _attributes(node))
    return _quantize(node, make, made, 6)


def _matmul(node: ir.Node, make: Rewriter) -> ir.Value:
    columns = len(static_shape(required(node, 3))) - 1
    made = make.op("MatMul", [_dequantize(node, make, 0), _dequantize(node, make, 3, columns)])
    return _quantize(node, make, made, 6)


def _gemm(node: ir.Node, make: Rewriter) -> ir.Value:
    axis = 0 if int_attr(node, "transB", 0) else 1
    bias = _bias(node, make, 6, (1, 4))
    alpha = float_attr(node, "alpha", 1.0)
    inputs = [_dequantize(node, make, 0), _dequantize(node, make, 3, axis)]
    attributes = _attributes(node, "alpha")
    if alpha == 1.0:
        made = make.op("Gemm", [*inputs, bias] if bias else inputs, attributes)
    else:
        product = make.op("Gemm", inputs, attributes)
        scaled = make.op("Add", [product, bias]) if bias else product
        made = make.op("Mul", [scaled, make.like(np.float32(alpha), scaled)])
    return made if input_of(node, 7) is None else _quantize(node, make, made, 7)


def _binary(op_type: str) -> Expansion:
    def expand(node: ir.Node, make: Rewriter) -> ir.Value:
        made = make.op(op_type, [_dequantize(node, make, 0), _dequantize(node, make, 3)])
        return _quantize(node, make, made, 6)

    return expand


def _unary(op_type: str, *dropped: str) -> Expansion:
    def expand(node: ir.Node, make: Rewriter) -> ir.Value:
        made = make.op(op_type, [_dequantize(node, make, 0)], _attributes(node, *dropped))
        return _quantize(node, make, made, 3)

    return expand


def _pool(op_type: str) -> Expansion:
    """Pooling, with the channels moved to their place if they come last."""

    def expand(node: ir.Node, make: Rewriter) -> ir.Value:
        data = _dequantize(node, make, 0)
        rank = len(static_shape(data))
        last = int_attr(node, "channels_last", 0)
        if last:
            data = make.op("Transpose", [data], {"perm": [0, rank - 1, *range(1, rank - 1)]})
        made = make.op(op_type, [data], _attributes(node, "channels_last"))
        if last:
            made = make.op("Transpose", [made], {"perm": [0, *range(2, rank), 1]})
        return _quantize(node, make, made, 3)

    return expand


def _softmax(node: ir.Node, make: Rewriter) -> ir.Value:
    """Softmax; before opset 13 it ran over all dimensions from `axis` on, flattened."""
    data = _dequantize(node, make, 0)
    shape = static_shape(data)
    old = int_attr(node, "opset", 13) < 13
    axis = int_attr(node, "axis", 1 if old else -1) % len(shape)
    if old and axis != len(shape) - 1:
        head = int(np.prod(shape[:axis]))
        rows = make.op("Reshape", [data, make.axes([head, int(np.prod(shape[axis:]))])])
        made = make.op("Reshape", [make.op("Softmax", [rows], {"axis": -1}), make.axes(shape)])
    else:
        made = make.op("Softmax", [data], {"axis": axis})
    return _quantize(node, make, made, 3)


def _concat(node: ir.Node, make: Rewriter) -> ir.Value:
    parts = [_dequantize(node, make, at) for at in range(2, len(node.inputs), 3)]
    made = make.op("Concat", parts, {"axis": int_attr(node, "axis", 1)})
    return _quantize(node, make, made, 0)


EXPANSIONS: dict[tuple[str, str], Expansion] = {
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    (MICROSOFT, "QGemm"): _gemm,
    (MICROSOFT, "QLinearAdd"): _binary("Add"),
    (MICROSOFT, "QLinearMul"): _binary("Mul"),
    (MICROSOFT, "QLinearConcat"): _concat,
    (MICROSOFT, "QLinearSigmoid"): _unary("Sigmoid"),
    (MICROSOFT, "QLinearLeakyRelu"): _unary("LeakyRelu"),
    (MICROSOFT, "QLinearSoftmax"): _softmax,
    (MICROSOFT, "QLinearAveragePool"): _pool("AveragePool"),
    (MICROSOFT, "QLinearGlobalAveragePool"): _pool("GlobalAveragePool"),
}
