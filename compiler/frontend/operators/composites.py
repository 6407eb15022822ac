"""Operators that are a few reductions, comparisons and element-wise steps, written as those.

Every node made from one composite carries its name in `metadata_props["composite"]`, so that
fusion can keep them together. Statistics are computed in float32 where the operator says so
(`stash_type`), with a Cast on either side. Dividing a whole tensor by a reduced one is written as
Reciprocal of the small one and Mul.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.frontend.operators.body import Body, Declined, Tensor
from compiler.frontend.operators.definitions import Table, defines
from compiler.frontend.rewrite import TERMS, Array, static_shape
from simmodel.arch.dtype import NAMES

COMPOSITES: Table = {}


def _standardize(
    b: Body, x: Tensor, axes: Sequence[int], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + epsilon) over `axes`; the mean; 1 / sqrt(...)."""
    mean = b.reduce("Mean", x, axes)
    centered = x - mean
    variance = b.reduce("Mean", centered * centered, axes)
    inverse = b.one("Reciprocal", b.Sqrt(variance + epsilon))
    return centered * inverse, mean, inverse


@defines(COMPOSITES, "LayerNormalization")
def layer_norm(
    b: Body, x: Tensor, scale: Tensor, bias: Tensor | None = None,
    *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The result, the means, the inverses of the standard deviations."""
    wide, axes = b.cast(x, ir.DataType(stash_type).numpy()), range(len(x.shape))[axis:]
    normal, mean, inverse = _standardize(b, wide, axes, epsilon)
    y = b.cast(normal, x.dtype) * scale
    return y if bias is None else y + bias, mean, inverse


@defines(COMPOSITES, "RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(
    b: Body, x: Tensor, scale: Tensor,
    *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> Tensor:  # fmt: skip
    """x / sqrt(mean of squares + epsilon), scaled."""
    wide = b.cast(x, ir.DataType(stash_type).numpy())
    squares = b.reduce("Mean", wide * wide, range(len(x.shape))[axis:])
    return b.cast(wide * b.Reciprocal(b.Sqrt(squares + epsilon)), x.dtype) * scale


def _per_channel(b: Body, value: Tensor, rank: int) -> Tensor:
    """A vector over channels, shaped to broadcast against [N, C, ...]."""
    return b.reshape(value, (value.shape[0], *(1,) * (rank - 2)))


@defines(COMPOSITES, "InstanceNormalization")
def instance_norm(
    b: Body, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    """Each channel of each image standardized."""
    rank = len(x.shape)
    normal, _, _ = _standardize(b, x, range(2, rank), epsilon)
    scale, bias = (_per_channel(b, value, rank) for value in (scale, bias))
    return normal * scale + bias


@defines(COMPOSITES, "GroupNormalization")
def group_norm(
    b: Body, x: Tensor, scale: Tensor, bias: Tensor,
    *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1,
) -> Tensor:  # fmt: skip
    """Each group of channels standardized."""
    wide = b.cast(x, ir.DataType(stash_type).numpy())
    rows = b.reshape(wide, (x.shape[0], num_groups, -1))
    normal, _, _ = _standardize(b, rows, [2], epsilon)
    restored = b.cast(b.reshape(normal, x.shape), x.dtype)
    scale, bias = (_per_channel(b, value, len(x.shape)) for value in (scale, bias))
    return restored * scale + bias


@defines(COMPOSITES, "LpNormalization")
def lp_norm(b: Body, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """x over its norm along one axis; a vector of zeros stays one."""
    sizes = b.one("Abs", x) if p == 1 else _square(b, x)
    norm = b.reduce("Sum", sizes, [axis])
    norm = norm if p == 1 else b.one("Sqrt", norm)
    return x / (norm + (1 - b.one("Sign", norm)))


@defines(COMPOSITES, "Softmax")
def softmax(b: Body, x: Tensor, *, axis: int = -1) -> Tensor:
    """exp(x - max) over its sum."""
    powers = b.one("Exp", x - b.reduce("Max", x, [axis]))
    return powers * b.one("Reciprocal", b.reduce("Sum", powers, [axis]))


@defines(COMPOSITES, "LogSoftmax")
def log_softmax(b: Body, x: Tensor, *, axis: int = -1) -> Tensor:
    """x - max minus the logarithm of the sum of its powers."""
    shifted = x - b.reduce("Max", x, [axis])
    return shifted - b.one("Log", b.reduce("Sum", b.Exp(shifted), [axis]))


_AROUND_SUM = {
    "ReduceL1": ("Abs", ""), "ReduceL2": ("square", "Sqrt"), "ReduceLogSum": ("", "Log"),
    "ReduceLogSumExp": ("Exp", "Log"), "ReduceSumSquare": ("square", ""),
}  # fmt: skip
"""What is added up, and what is made of the sum."""


def _square(b: Body, x: Tensor) -> Tensor:
    return b.one("Pow", x, b.constant(2, x.dtype))


@defines(COMPOSITES, *_AROUND_SUM)
def composed_sum(
    b: Body, x: Tensor, axes: Tensor | None = None,
    *, keepdims: int = 1, noop_with_empty_axes: int = 0,
) -> Tensor:  # fmt: skip
    """A sum of a function of each element, and a function of that; the largest exponent is taken
    out first."""
    over = np.array(()) if axes is None else axes.value
    if over is None or (not len(over) and noop_with_empty_axes):
        raise Declined("its axes are computed, or none")
    before, after = _AROUND_SUM[b.node.op_type]
    if 0 in x.shape or (after and x.dtype.kind in "iu"):
        raise Declined(f"{b.node.op_type} of {prod(x.shape)} elements of {NAMES[x.dtype]}")
    chosen = [int(axis) for axis in over] or range(len(x.shape))
    top = b.reduce("Max", x, chosen) if before == "Exp" else None
    x = x if top is None else x - top
    if before:
        x = _square(b, x) if before == "square" else b.one(before, x)
    made = b.reduce("Sum", x, chosen)
    made = b.one(after, made) if after else made
    made = made if top is None else made + top
    return made if keepdims else b.reshape(made, static_shape(b.node.outputs[0]))


@defines(COMPOSITES, "LRN")
def local_response(
    b: Body, x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """x / (bias + alpha / size * sum of squares over nearby channels) ** beta."""
    squares = _square(b, x * (alpha / size) ** 0.5)
    shifts = (n for n in range(-((size - 1) // 2), size // 2 + 1) if n)
    near = (b.pad(squares, 1, n, -n) for n in shifts if abs(n) < x.shape[1])
    sums = reduce(lambda x, y: x + y, near, squares) + bias
    return x * b.one("Pow", sums, b.constant(-beta, x.dtype))


@defines(COMPOSITES, "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", grouped=False)
def global_pool(b: Body, x: Tensor, *, p: int = 2) -> Tensor:
    """A reduction over all spatial axes."""
    if p > 2:
        raise Declined(f"its norm is of order {p}")
    how = {"GlobalMaxPool": "Max", "GlobalLpPool": f"L{p}"}.get(b.node.op_type, "Mean")
    return b.reduce(how, x, range(2, len(x.shape)))


@defines(COMPOSITES, "Max", "Min", "Sum", "Mean", grouped=False)
def chain(b: Body, *operands: Tensor) -> Tensor:
    """A variadic operator as binary ones from left to right."""
    op_type, count = b.node.op_type, len(operands)
    if op_type in ("Max", "Min"):
        if count == 2:
            raise Declined("it has two operands already")
        return reduce(lambda x, y: b.one(op_type, x, y), operands)
    total = reduce(lambda x, y: x + y, operands)
    return total if op_type == "Sum" or count == 1 else total * (1 / count)


@defines(COMPOSITES, "DynamicQuantizeLinear")
def dynamic_quantize(b: Body, x: Tensor) -> tuple[Tensor, ...]:
    """The integers, their scale (1 where all is zero), their zero point."""
    axes = range(len(x.shape))
    low = b.one("Min", b.reduce("Min", x, axes, keepdims=0), 0.0)
    high = b.one("Max", b.reduce("Max", x, axes, keepdims=0), 0.0)
    width = high - low
    nothing = 1.0 - b.one("Sign", width)
    scale = b.one("Max", width / 255.0, nothing)
    byte = b.cast(b.Clip(b.Round(0.0 - low / scale), 0.0, 255.0), np.uint8)
    return b.one("QuantizeLinear", x, scale, byte), scale, byte


@defines(COMPOSITES, "Flatten", "Squeeze", "Unsqueeze", grouped=False)
def reshape(b: Body, x: Tensor, axes: Tensor | None = None, **given: Any) -> Tensor:
    """A Reshape to a constant shape."""
    return b.reshape(x, static_shape(b.node.outputs[0]))


def _waves(rows: int, bins: int, length: int) -> Array:
    """[sample, its part, frequency, part]: what the real and the imaginary part of each sample add
    to those of each frequency."""
    turns = np.outer(np.arange(rows), np.arange(bins)) % length / length
    wave = np.exp(-2j * np.pi * turns)
    made: Array = np.stack([wave, 1j * wave], 1)
    return np.stack([made.real, made.imag], -1)


def _of_angles(b: Body, waves: Array, dtype: np.dtype[Any], most: float) -> Tensor:
    """The constant `waves` of up to `most` turns, which others compute from angles in float32."""
    made = b.constant(waves, dtype)
    made.ir.meta[TERMS] = 2 * np.pi * (1 + most)
    return made


@defines(COMPOSITES, "DFT")
def dft(
    b: Body, x: Tensor, dft_length: Tensor | None = None, axis: Tensor | None = None,
    *, inverse: int = 0, onesided: int = 0,
) -> Tensor:  # fmt: skip
    """A product with waves."""
    size = 0 if dft_length is None else dft_length.value
    where = -2 if axis is None else axis.value
    if size is None or where is None or inverse:
        raise Declined("its length or axis is computed, or it transforms back")
    rank = len(x.shape)
    place = int(where) % rank
    others = [each for each in range(rank - 1) if each != place]
    length = int(size) or x.shape[place]
    bins, rows = length // 2 + 1 if onesided else length, min(length, x.shape[place])
    waves = _waves(rows, bins, length)[:, : x.shape[-1]]
    lead = [x.shape[other] for other in others]
    turned = b.transpose(b.slice(x, place, 0, rows), *others, place, rank - 1)
    weights = _of_angles(b, waves.reshape(-1, 2 * bins), x.dtype, rows * bins / length)
    flat = b.reshape(turned, (*lead, -1)) @ weights
    back = np.argsort([*others, place, rank - 1])
    return b.transpose(b.reshape(flat, (*lead, bins, 2)), *map(int, back))


@defines(COMPOSITES, "STFT")
def stft(
    b: Body, signal: Tensor, frame_step: Tensor, window: Tensor | None = None,
    frame_length: Tensor | None = None, *, onesided: int = 1,
) -> Tensor:  # fmt: skip
    """A convolution with waves under the window."""
    step, under, length = (
        None if each is None else each.value for each in (frame_step, window, frame_length)
    )
    if step is None or (under is None and (window is not None or length is None)):
        raise Declined("its steps or its window are computed")
    n = int((np.array(1) if under is None else under).size if length is None else length)
    bins, parts = n // 2 + 1 if onesided else n, (*signal.shape, 1)[2]
    waves = _waves(n, bins, n)[:, :parts] * (1 if under is None else under[:, None, None, None])
    shaped = waves.transpose(2, 3, 1, 0).reshape(2 * bins, parts, n)
    kernel = _of_angles(b, shaped, signal.dtype, bins)
    x = b.transpose(b.reshape(signal, (signal.shape[0], -1, parts)), 0, 2, 1)
    made = b.transpose(b.one("Conv", x, kernel, strides=[int(step)]), 0, 2, 1)
    return b.reshape(made, (signal.shape[0], -1, bins, 2))
