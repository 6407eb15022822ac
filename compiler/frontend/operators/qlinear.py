"""Operators on quantized tensors: the operator on real numbers between its conversions.

    y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz)
 =>
    a = DequantizeLinear(x, xs, xz); k = DequantizeLinear <axis=0> (w, ws, wz)
    c = Conv(a, k); y = QuantizeLinear(c, ys, yz)

One form for both ways of writing a quantized model: `integer-operators` then has only the
DequantizeLinear / QuantizeLinear form to recognise.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from compiler.frontend.operators.body import Body, Contradicted, Declined, Tensor
from compiler.frontend.operators.definitions import Table, defines
from compiler.frontend.operators.microsoft import channels_first
from compiler.frontend.rewrite import MICROSOFT

QUANTIZED: Table = {}
_quantized = partial(defines, QUANTIZED, domain=MICROSOFT)
Given = tuple[Tensor | None, ...]


@defines(QUANTIZED, "QLinearConv")
def conv(b: Body, *given: Tensor | None, **window: Any) -> Tensor:
    """A convolution, with a bias in the scale of its products."""
    bias = [] if len(given) < 9 else [_bias(b, given, 8)]
    made = b.one("Conv", _real(b, given, 0), _real(b, given, 3), *bias, **window)
    return _coded(b, made, given, 6)


@defines(QUANTIZED, "QLinearMatMul")
def matmul(b: Body, *given: Tensor | None) -> Tensor:
    """A product, of weights with a scale for each column."""
    columns = len(_input(given, 3).shape) - 1
    return _coded(b, _real(b, given, 0) @ _real(b, given, 3, columns), given, 6)


@_quantized("QGemm")
def gemm(b: Body, *given: Tensor | None, alpha: float = 1.0, **turned: Any) -> Tensor:
    """A product with its bias, quantized where a scale of the result is given."""
    operands = [_real(b, given, 0), _real(b, given, 3, 0 if turned.get("transB") else 1)]
    bias = [] if len(given) < 7 or given[6] is None else [_bias(b, given, 6)]
    if alpha == 1.0:
        made = b.one("Gemm", *operands, *bias, **turned)
    else:
        made = b.one("Gemm", *operands, **turned)
        made = (made + bias[0] if bias else made) * alpha
    return made if len(given) < 8 else _coded(b, made, given, 7)


@_quantized("QLinearAdd", "QLinearMul")
def binary(b: Body, *given: Tensor | None) -> Tensor:
    """A function of two tensors."""
    return _coded(b, b.one(_plain(b), _real(b, given, 0), _real(b, given, 3)), given, 6)


@_quantized("QLinearSigmoid", "QLinearLeakyRelu")
def unary(b: Body, *given: Tensor | None, **attributes: Any) -> Tensor:
    """A function of one tensor."""
    return _coded(b, b.one(_plain(b), _real(b, given, 0), **attributes), given, 3)


@_quantized("QLinearAveragePool", "QLinearGlobalAveragePool")
def pool(b: Body, *given: Tensor | None, channels_last: int = 0, **window: Any) -> Tensor:
    """A mean over windows, or over all."""
    pooled = channels_first if channels_last else type(b).one
    return _coded(b, pooled(b, _plain(b), _real(b, given, 0), **window), given, 3)


@_quantized("QLinearSoftmax")
def softmax(b: Body, *given: Tensor | None, axis: int | None = None, opset: int = 13) -> Tensor:
    """Before opset 13 it ran over all dimensions from `axis` on, flattened."""
    x, old = _real(b, given, 0), opset < 13
    axis = (axis if axis is not None else 1 if old else -1) % len(x.shape)
    if not old or axis == len(x.shape) - 1:
        return _coded(b, b.one("Softmax", x, axis=axis), given, 3)
    rows = b.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    return _coded(b, b.reshape(b.one("Softmax", rows, axis=-1), x.shape), given, 3)


@_quantized("QLinearConcat")
def concat(b: Body, *given: Tensor | None, axis: int = 1) -> Tensor:
    """The scale of the result comes first, then each part with its own."""
    parts = [_real(b, given, at) for at in range(2, len(given), 3)]
    return _coded(b, b.one("Concat", *parts, axis=axis), given, 0)


def _plain(b: Body) -> str:
    """The operator on real numbers."""
    return b.node.op_type.removeprefix("QLinear")


def _input(given: Given, at: int) -> Tensor:
    """Input `at`; raises Contradicted where it is left out."""
    found = given[at] if at < len(given) else None
    if found is None:
        raise Contradicted(f"input {at} is missing, which has to be given")
    return found


def _parameter(b: Body, value: Tensor | None) -> Tensor | None:
    """A scale or zero point, as a scalar where it is one number."""
    if value is None or value.value is None or value.value.size != 1 or not value.shape:
        return value
    return b.constant(value.value.reshape(()), value.dtype)


def _real(b: Body, given: Given, at: int, axis: int = 0) -> Tensor:
    """The integers of input `at`, behind which stand their scale and zero point."""
    x, scale = _input(given, at), _parameter(b, _input(given, at + 1))
    return b.one("DequantizeLinear", x, scale, _parameter(b, (*given, None)[at + 2]), axis=axis)


def _coded(b: Body, value: Tensor, given: Given, at: int) -> Tensor:
    """`value` quantized by inputs `at` (scale) and `at` + 1 (zero point)."""
    scale, zero = _parameter(b, _input(given, at)), _parameter(b, (*given, None)[at + 1])
    if zero is None:
        zero = b.constant(np.zeros(()), _input(given, 0).dtype)
    return b.one("QuantizeLinear", value, scale, zero)


def _bias(b: Body, given: Given, at: int) -> Tensor:
    """The int32 bias at input `at`, dequantized by the product of the scales of the operands."""
    scales = [_input(given, index).value for index in (1, 4)]
    if scales[0] is None or scales[1] is None:
        raise Declined("its scales are computed")
    product = (scales[0].reshape(-1) * scales[1].reshape(-1)).astype(np.float32)
    scale = b.constant(product.reshape(()) if product.size == 1 else product)
    return b.one("DequantizeLinear", _input(given, at), scale, axis=0)
