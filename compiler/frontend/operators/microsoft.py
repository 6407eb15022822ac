"""Operators of ONNX Runtime's own domain, said in ONNX's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import add

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


@_fused("Gelu")
def gelu(b: Body, x: Tensor) -> Tensor:
    """x * Phi(x)."""
    return b.one("Gelu", x, approximate="none")


@_fused("BiasGelu")
def bias_gelu(b: Body, x: Tensor, bias: Tensor) -> Tensor:
    """Gelu of x + bias."""
    return gelu(b, x + bias)


@_fused("FastGelu")
def fast_gelu(b: Body, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu of x + bias, approximated by tanh."""
    return b.one("Gelu", x if bias is None else x + bias, approximate="tanh")


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
    if other is not None:
        y = y + other
    if not activation:
        return y
    if activation == "Clip":
        return b.one("Clip", y, *activation_params)
    if activation not in ("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"):
        raise Declined(f"a convolution with the activation {activation!r}")
    (function,) = activations_of(b, [activation], activation_params[:1], activation_params[1:2])
    return function(y)


@_fused("SkipLayerNormalization")
def skip_norm(
    b: Body, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None,
    bias: Tensor | None = None, *, epsilon: float = 1e-12,
) -> Results:  # fmt: skip
    """A sum, and it normalized; its mean and deviation are left out."""
    total = _added(x, skip, bias)
    made = b.one("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    return made, None, None, total


@_fused("SkipSimplifiedLayerNormalization")
def skip_simplified(
    b: Body, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None,
    *, epsilon: float = 1e-12,
) -> Results:  # fmt: skip
    """The same by the mean of squares."""
    total = _added(x, skip, bias)
    made = b.one("SimplifiedLayerNormalization", total, gamma, axis=-1, epsilon=epsilon)
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
