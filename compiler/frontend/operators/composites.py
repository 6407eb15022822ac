"""Operators that are a few reductions and element-wise steps, written as those.

Every node made from one composite carries its name in `metadata_props["composite"]`, so that
fusion can keep them together. Statistics are computed in float32 where the operator says so
(`stash_type`), with a Cast on either side. Dividing a whole tensor by a reduced one is written as
Reciprocal of the small one and Mul.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.frontend.operators.body import Body, Declined, Tensor
from compiler.frontend.operators.definitions import Table, defines
from compiler.frontend.rewrite import static_shape

COMPOSITES: Table = {}
"""Normalizations, Softmax, global pools, variadic operators, and those that are a Reshape."""


def _statistics(b: Body, x: Tensor, stash_type: int) -> Tensor:
    """`x` in the type in which statistics are computed."""
    return b.cast(x, ir.DataType(stash_type).numpy())


def _standardize(
    b: Body, x: Tensor, axes: Iterable[int], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + epsilon) over `axes`; the mean; 1 / sqrt(...)."""
    axes = list(axes)
    mean = b.reduce("Mean", x, axes)
    centered = x - mean
    variance = b.reduce("Mean", centered * centered, axes)
    inverse = b.one("Reciprocal", b.Sqrt(variance + epsilon))
    return centered * inverse, mean, inverse


def _tail_axes(x: Tensor, axis: int) -> list[int]:
    rank = len(x.shape)
    return [*range(axis % rank, rank)]


@defines(COMPOSITES, "LayerNormalization")
def layer_norm(
    b: Body, x: Tensor, scale: Tensor, bias: Tensor | None = None,
    *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The result, the means, the inverses of the standard deviations."""
    wide = _statistics(b, x, stash_type)
    normal, mean, inverse = _standardize(b, wide, _tail_axes(x, axis), epsilon)
    y = b.cast(normal, x.dtype) * scale
    return y if bias is None else y + bias, mean, inverse


@defines(COMPOSITES, "RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(
    b: Body, x: Tensor, scale: Tensor,
    *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> Tensor:  # fmt: skip
    """x / sqrt(mean of squares + epsilon), scaled."""
    wide = _statistics(b, x, stash_type)
    squares = b.reduce("Mean", wide * wide, _tail_axes(x, axis))
    return b.cast(wide * b.Reciprocal(b.Sqrt(squares + epsilon)), x.dtype) * scale


def _per_channel(b: Body, value: Tensor, rank: int) -> Tensor:
    """A vector over channels, shaped to broadcast against [N, C, ...]."""
    shape = (-1, *(1,) * (rank - 2))
    if value.value is not None:
        return b.constant(value.value.reshape(shape), value.dtype)
    return b.reshape(value, shape)


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
    rows = b.reshape(_statistics(b, x, stash_type), (x.shape[0], num_groups, -1))
    normal, _, _ = _standardize(b, rows, [2], epsilon)
    restored = b.cast(b.reshape(normal, x.shape), x.dtype)
    scale, bias = (_per_channel(b, value, len(x.shape)) for value in (scale, bias))
    return restored * scale + bias


@defines(COMPOSITES, "LpNormalization")
def lp_norm(b: Body, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """x over its norm along one axis; a vector of zeros stays one."""
    norm = b.reduce("L1" if p == 1 else "L2", x, [axis])
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


@defines(COMPOSITES, "GlobalAveragePool", "GlobalMaxPool", grouped=False)
def global_pool(b: Body, x: Tensor) -> Tensor:
    """A reduction over all spatial axes."""
    how = "Max" if b.node.op_type == "GlobalMaxPool" else "Mean"
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
    del axes, given
    return b.reshape(x, static_shape(b.node.outputs[0]))
