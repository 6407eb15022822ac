"""Operators of ONNX Runtime's own domain, said in ONNX's, and those on quantized tensors.

    y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz)
 =>
    a = DequantizeLinear(x, xs, xz); k = DequantizeLinear <axis=0> (w, ws, wz)
    c = Conv(a, k); y = QuantizeLinear(c, ys, yz)

One form for both ways of writing a quantized model: `integer-operators` then has only the
DequantizeLinear / QuantizeLinear form to recognise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from operator import add
from typing import Any

import ml_dtypes
import numpy as np

from compiler.frontend.operators.body import Body, Contradicted, Declined, Tensor
from compiler.frontend.operators.definitions import Table, defines
from compiler.frontend.operators.recurrent import activations_of
from compiler.frontend.rewrite import ARCHGEN, MICROSOFT, Array, AttrValue
from simmodel.arch.dtype import unpack

FUSED: Table = {}
_fused = partial(defines, FUSED, domain=MICROSOFT)
SIGNED = {4: ml_dtypes.int4, 8: np.int8}
UNSIGNED = {4: ml_dtypes.uint4, 8: np.uint8}

Results = tuple[Tensor | None, ...]


@_fused("Gelu", "BiasGelu", "FastGelu")
def gelu(b: Body, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """x * Phi(x) of x + bias, of which the fast one is approximated by tanh."""
    how = "tanh" if b.node.op_type == "FastGelu" else "none"
    return b.one("Gelu", x if bias is None else x + bias, approximate=how)


@_fused("QuickGelu")
def quick_gelu(b: Body, x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return x * b.one("Sigmoid", x * alpha)


@defines(FUSED, "Swish")
def swish(b: Body, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x * sigmoid(alpha * x), of ONNX."""
    return b.one("Silu", x, domain=ARCHGEN) if alpha == 1 else quick_gelu(b, x, alpha=alpha)


def channels_first(
    b: Body, op_type: str, x: Tensor, *more: Tensor | None, **window: AttrValue
) -> Tensor:
    """A window operator on images whose channels are their last axis."""
    rank = len(x.shape)
    made = b.one(op_type, b.transpose(x, 0, rank - 1, *range(1, rank - 1)), *more, **window)
    return b.transpose(made, 0, *range(2, rank), 1)


@_fused("FusedConv", "NhwcConv", "NhwcFusedConv")
def fused_conv(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None, other: Tensor | None = None,
    *, activation: str = "", activation_params: Sequence[float] = (), **window: AttrValue,
) -> Tensor:  # fmt: skip
    """A convolution, what is added to it, and an activation; channels may be the last axis of the
    image, not of the weights."""
    if b.node.op_type == "FusedConv":
        y = b.one("Conv", x, w, bias, **window)
    else:
        y = channels_first(b, "Conv", x, w, bias, **window)
    return _activated(b, y if other is None else y + other, activation, activation_params)


def _activated(b: Body, y: Tensor, activation: str, parameters: Sequence[float]) -> Tensor:
    if not activation:
        return y
    if activation == "Clip":
        return b.one("Clip", y, *parameters)
    if activation not in ("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"):
        raise Declined(f"a product with the activation {activation!r}")
    (function,) = activations_of(b, [activation], parameters[:1], parameters[1:2])
    return function(y)


@_fused("FusedGemm")
def fused_gemm(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None,
    *, activation: str = "", **said: AttrValue,
) -> Tensor:  # fmt: skip
    """A Gemm and an activation."""
    given = [said.pop(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    y = b.one("Gemm", x, w, bias, **said)
    return _activated(b, y, activation, [float(n) for n in given if isinstance(n, float)])


@_fused("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(
    b: Body, x: Tensor, skip: Tensor, gamma: Tensor, *more: Tensor | None, epsilon: float = 1e-12
) -> Results:
    """A sum, and it normalized, by the mean of squares where simplified; its mean and deviation are
    left out. Further inputs: what is added to the result, of the simplified one not, and a bias."""
    op_type = b.node.op_type.removeprefix("Skip")
    beta, bias = (*([None] if "Simplified" in op_type else []), *more, None, None)[:2]
    total = _added(x, skip, bias)
    made = b.one(op_type, total, gamma, *filter(None, [beta]), axis=-1, epsilon=epsilon)
    return made, None, None, total


@_fused("EmbedLayerNormalization")
def embeddings(
    b: Body, *given: Tensor | None, epsilon: float = 1e-12, mask_index_type: int = 1
) -> Results:
    """Rows of words, places and segments, added up and normalized; how many tokens are masked."""
    ids, segments, words, rows, table, gamma, beta, mask, places = (*given, *[None] * 9)[:9]
    if ids is None or words is None or rows is None:
        raise Contradicted("its tokens and tables have to be given")
    batch, tokens = ids.shape
    if places is None:
        places = b.constant(np.arange(tokens)[None].repeat(batch, 0), ids.dtype)
    pairs = [(words, ids), (rows, places)]
    if table is not None and segments is not None:
        pairs.append((table, segments))
    total = _added(*(b.one("Gather", each, index, axis=0) for each, index in pairs))
    made = b.one("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    if mask is None:
        counted = b.constant(np.zeros(batch), np.int32)
    else:
        counted = b.one("ReduceSum", mask, [1], keepdims=0)
    return made, counted if mask_index_type == 1 else None, total


def _added(first: Tensor, *values: Tensor | None) -> Tensor:
    return reduce(add, (value for value in values if value is not None), first)


@_fused("FusedMatMul")
def fused_matmul(
    b: Body, left: Tensor, right: Tensor, *, alpha: float = 1.0, **turned: int
) -> Tensor:
    """A product of transposed operands times a factor."""
    if turned.get("transBatchA") or turned.get("transBatchB"):
        raise Declined("the batch of an operand is transposed")

    def operand(x: Tensor, name: str) -> Tensor:
        rank = len(x.shape)
        swap = turned.get(name) and rank > 1
        return b.transpose(x, *range(rank - 2), rank - 1, rank - 2) if swap else x

    made = operand(left, "transA") @ operand(right, "transB")
    return made if alpha == 1 else made * alpha


@_fused("MatMulIntegerToFloat")
def matmul_integer_to_float(
    b: Body, x: Tensor, w: Tensor, x_scale: Tensor, w_scale: Tensor, x_zero: Tensor | None = None,
    w_zero: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A product of integers, as real numbers."""
    whole = b.one("MatMulInteger", x, w, x_zero, w_zero)
    made = b.cast(whole, x_scale.dtype) * (x_scale * w_scale)
    return made if bias is None else made + bias


@_fused("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    b: Body, x: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A product with integers, in the steps that the left side spans."""
    whole, scale, zero = b.op("DynamicQuantizeLinear", x, outputs=3)
    made: Tensor = matmul_integer_to_float(b, whole, w, scale, w_scale, zero, w_zero, bias)
    return made


@_fused("MatMulNBits")
def matmul_n_bits(
    b: Body, x: Tensor, weights: Tensor, scales: Tensor, points: Tensor | None = None,
    order: Tensor | None = None, bias: Tensor | None = None,
    *, bits: int = 4, block_size: int, **sizes: int,
) -> Tensor:  # fmt: skip
    """A product with packed weights: they lie transposed, block after block along the reduction,
    elements of four bits two to a byte, the first in the lower half. DequantizeLinear keeps them
    narrow for machines that hold them so in memory."""
    deep, wide = sizes.get("K", 0), sizes.get("N", 0)
    packed, factors = weights.value, scales.value
    zeros = None if points is None else points.value
    if packed is None or factors is None or (points is not None and zeros is None):
        raise Declined("its weights are computed")
    if order is not None or bits not in SIGNED or (zeros is not None and zeros.dtype != np.uint8):
        raise Declined("its weights come in another order, or of other bits than 4 or 8")
    blocks = -(-deep // block_size)

    def elements(raw: Array, count: int) -> Array:
        rows = raw.reshape(wide, -1)
        return (rows[:, :count] if bits == 8 else unpack(rows, "uint4", count)).T

    numbers = elements(packed, blocks * block_size)
    zeros = None if zeros is None else elements(zeros, blocks)
    factors = factors.reshape(wide, blocks).T
    made = x @ _dequantized(b, numbers, factors, zeros, (deep, block_size, bits))
    return made if bias is None else made + bias


def _dequantized(
    b: Body, values: Array, scales: Array, zeros: Array | None, sizes: tuple[int, int, int]
) -> Tensor:
    """Weights behind their DequantizeLinear; as they are where the last block is not full."""
    deep, block, bits = sizes
    middle = 1 << (bits - 1)
    if deep % block:
        points = np.asarray(middle if zeros is None else zeros.repeat(block, 0), np.float32)
        real = (values - points) * scales.repeat(block, 0).astype(np.float32)
        return b.constant(real[:deep], scales.dtype)
    if zeros is None:
        inputs = [b.constant(values.astype(np.int16) - middle, SIGNED[bits])]
    else:
        inputs = [b.constant(each, UNSIGNED[bits]) for each in (values, zeros)]
    inputs.insert(1, b.constant(scales, scales.dtype))
    return b.one("DequantizeLinear", *inputs, axis=0, block_size=block)


# Operators on quantized tensors: the operator on real numbers between its conversions.

Given = tuple[Tensor | None, ...]


@defines(FUSED, "QLinearConv")
def qlinear_conv(b: Body, *given: Tensor | None, **window: Any) -> Tensor:
    """A convolution, with a bias in the scale of its products."""
    bias = [] if len(given) < 9 else [_bias(b, given, 8)]
    made = b.one("Conv", _real(b, given, 0), _real(b, given, 3), *bias, **window)
    return _coded(b, made, given, 6)


@defines(FUSED, "QLinearMatMul")
def qlinear_matmul(b: Body, *given: Tensor | None) -> Tensor:
    """A product, of weights with a scale for each column."""
    columns = len(_input(given, 3).shape) - 1
    return _coded(b, _real(b, given, 0) @ _real(b, given, 3, columns), given, 6)


@_fused("QGemm")
def qlinear_gemm(b: Body, *given: Tensor | None, alpha: float = 1.0, **turned: Any) -> Tensor:
    """A product with its bias, quantized where a scale of the result is given."""
    operands = [_real(b, given, 0), _real(b, given, 3, 0 if turned.get("transB") else 1)]
    bias = [] if len(given) < 7 or given[6] is None else [_bias(b, given, 6)]
    if alpha == 1.0:
        made = b.one("Gemm", *operands, *bias, **turned)
    else:
        made = b.one("Gemm", *operands, **turned)
        made = (made + bias[0] if bias else made) * alpha
    return made if len(given) < 8 else _coded(b, made, given, 7)


@_fused("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu")
def elementwise(b: Body, *given: Tensor | None, **attributes: Any) -> Tensor:
    """A function of one tensor or of two."""
    end = 6 if b.node.op_type in ("QLinearAdd", "QLinearMul") else 3
    operands = [_real(b, given, at) for at in range(0, end, 3)]
    return _coded(b, b.one(_plain(b), *operands, **attributes), given, end)


@_fused("QLinearAveragePool", "QLinearGlobalAveragePool")
def pool(b: Body, *given: Tensor | None, channels_last: int = 0, **window: Any) -> Tensor:
    """A mean over windows, or over all."""
    pooled = channels_first if channels_last else type(b).one
    return _coded(b, pooled(b, _plain(b), _real(b, given, 0), **window), given, 3)


@_fused("QLinearSoftmax")
def softmax(b: Body, *given: Tensor | None, axis: int | None = None, opset: int = 13) -> Tensor:
    """Before opset 13 it ran over all dimensions from `axis` on, flattened."""
    x, old = _real(b, given, 0), opset < 13
    axis = (axis if axis is not None else 1 if old else -1) % len(x.shape)
    if not old or axis == len(x.shape) - 1:
        return _coded(b, b.one("Softmax", x, axis=axis), given, 3)
    rows = b.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    return _coded(b, b.reshape(b.one("Softmax", rows, axis=-1), x.shape), given, 3)


@_fused("QLinearConcat")
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
