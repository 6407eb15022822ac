"""Windows as simpler ones: three dimensions as two, norms as means, computed weights as products.

The one idea: what slides along the depth slides apart from what slides along rows and columns. The
largest of a box is the largest of rows of planes, its mean the mean of means, for each place counts
what it counts along its own axis. A convolution over the depth has a plane's channels and those of
the planes behind it side by side; a transposed one adds up planes that overlap. Depth is part of
the channels of a pool and of the batch of a convolution, so that rows and columns stay as they are.

Computed weights are laid out by nobody, so their convolution is a product of matrices:

    y[o, p] = sum c, t: w[o, c, t] * x[c, p + t]        columns of x times w of [o, c * t]

A position of the kernel sees a shifted, strided part of the input, which is a view. These parts
side by side are the columns. Where each channel has a kernel of its own, there are no columns: the
parts, each times its weights, are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from operator import add
from typing import Any, ClassVar, NamedTuple

import numpy as np
import onnx_ir as ir

from compiler.frontend.canonicalize.symbolic_axes import open_of
from compiler.frontend.operators.body import Body, Declined, Tensor
from compiler.frontend.operators.composites import every
from compiler.frontend.operators.definitions import Decompose, Table, defines
from compiler.frontend.rewrite import (
    ARCHGEN,
    const,
    int_attr,
    ints_attr,
    is_op,
    scalar,
    static_shape,
)

WINDOWS: Table = {}
"""Pools and convolutions of three dimensions, and LpPool."""
KERNELS: Table = {}
"""Convolutions with computed weights."""
DEPTH_LAST = (0, 2, 1, 3, 4)
"""Depth and channels change places."""
LARGEST = 128
"""Positions of a computed kernel, at most; with more the operator is left as it is."""


@dataclass(frozen=True)
class DecomposeWindows(Decompose):
    """Windows of three dimensions, and LpPool.

       y = MaxPool <kernel_shape=[2, 3, 3]> (x)            # x of [1, 4, 6, 9, 9]
    =>
       a = Reshape(x, [1, 24, 9, 9]); b = MaxPool <kernel_shape=[3, 3]> (a)
       c = Reshape(b, [1, 4, 6, 49]); d = MaxPool <kernel_shape=[2, 1]> (c)
       y = Reshape(d, [1, 4, 5, 7, 7])
    """

    table: ClassVar[Table] = WINDOWS


class WindowSide(NamedTuple):
    """What slides along one dimension, and the padding before and behind."""

    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    behind: int = 0


@dataclass(frozen=True)
class WindowAttributes:
    """The sides of a window operator, whose attributes are all written out; other attributes."""

    sides: tuple[WindowSide, ...]
    more: dict[str, int]

    @classmethod
    def of(cls, node: ir.Node) -> WindowAttributes:
        kernel, strides, dilations, pads = (
            ints_attr(node, name) or [] for name in ("kernel_shape", "strides", "dilations", "pads")
        )
        rank, kept = len(kernel), ("ceil_mode", "count_include_pad", "group")
        sides = map(WindowSide, kernel, strides, dilations, pads[:rank], pads[rank:])
        return cls(tuple(sides), {n: int_attr(node, n, 0) for n in kept if n in node.attributes})

    def along(self, *axes: int) -> WindowAttributes:
        """The part of `axes`; of one, with a second in which nothing slides."""
        sides = [self.sides[axis] for axis in axes]
        return WindowAttributes((*sides, *[WindowSide()] * (2 - len(sides))), self.more)

    @property
    def attributes(self) -> dict[str, Any]:
        kernel, strides, dilations, before, behind = zip(*self.sides, strict=True)
        return {
            "kernel_shape": kernel, "strides": strides, "dilations": dilations,
            "pads": (*before, *behind), **self.more,
        }  # fmt: skip


def _deep_window(b: Body, x: Tensor) -> WindowAttributes:
    """The window of a node of three dimensions; Declined for another one, or where nothing slides
    along the first and it is open: what it would be merged with could not be told from it."""
    window = WindowAttributes.of(b.node)
    if len(window.sides) != 3:
        raise Declined("its planes are images already")
    still = window.sides[0]._replace(dilation=1) == WindowSide()
    if 2 in open_of(x.ir) and still and b.node.op_type != "ConvTranspose":
        raise Declined("its depth is known only when it runs")
    return window


def _check_weights(w: Tensor) -> None:
    """Raise Declined unless these are a constant, or integers that stand for one."""
    maker = w.ir.producer()
    integers = maker.inputs[0] if maker is not None and is_op(maker, "DequantizeLinear") else None
    if const(integers or w.ir) is None:
        raise Declined("its weights are computed")


@defines(WINDOWS, "MaxPool", "AveragePool")
def deep_pool(b: Body, x: Tensor, **window: Any) -> Tensor:
    """A pool of three dimensions."""
    return _pooled(b, b.node.op_type, x, _deep_window(b, x))


def _pooled(b: Body, op_type: str, x: Tensor, window: WindowAttributes) -> Tensor:
    """A pool of any number of dimensions: of three, planes first, then along the depth."""
    if len(window.sides) < 3:
        return b.one(op_type, x, **window.attributes)
    batch, channels, depth, *plane = x.shape
    planes = b.reshape(x, (batch, channels * depth, *plane))
    pooled = b.one(op_type, planes, **window.along(1, 2).attributes)
    small = pooled.shape[2:]
    columns = b.reshape(pooled, (batch, channels, depth, prod(small)))
    through = b.one(op_type, columns, **window.along(0).attributes)
    return b.reshape(through, (batch, channels, through.shape[2], *small))


@defines(WINDOWS, "LpPool")
def norm(b: Body, x: Tensor, *, p: int = 2, **window: Any) -> Tensor:
    """(sum of |x| ** p) ** (1 / p): the mean of powers, with zeros around, times their number."""
    made = WindowAttributes.of(b.node)
    made.more["count_include_pad"] = 1
    sizes = x * x if p == 2 else b.one("Abs", x)
    if p > 2:
        sizes = b.one("Pow", sizes, b.constant(p, x.dtype))
    total = _pooled(b, "AveragePool", sizes, made) * prod(side.kernel for side in made.sides)
    if p == 2:
        return b.one("Sqrt", total)
    return total if p == 1 else b.one("Pow", total, b.constant(1 / p, x.dtype))


def _padded(b: Body, x: Tensor, axis: int, by: tuple[int, int], fill: float) -> Tensor:
    """`x` with borders of `fill` along `axis`; negative: without so many of its own."""
    rank = len(x.shape)
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = by
    return b.one("Pad", x, pads, fill, mode="constant") if any(by) else x


@defines(WINDOWS, "Conv")
def deep_conv(b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None, **given: Any) -> Tensor:
    """Planes beside those behind them, as more channels of a convolution of planes."""
    window = _deep_window(b, x)
    _check_weights(w)
    side, groups = window.sides[0], window.more["group"]
    depth = static_shape(b.node.outputs[0])[2]
    batch, channels, _, high, wide = x.shape
    across, taps = channels // groups, side.kernel
    planes = _padded(b, b.transpose(x, *DEPTH_LAST), 1, (side.before, side.behind), 0)
    behind = [every(b, planes, 1, tap * side.dilation, depth, side.stride) for tap in range(taps)]
    shape = (batch, depth, groups, across, high * wide)
    joined = b.concat([b.reshape(one, shape) for one in behind], 3)
    images = b.reshape(joined, (batch * depth, groups * taps * across, high, wide))
    kernel = b.reshape(b.transpose(w, *DEPTH_LAST), (w.shape[0], taps * across, *w.shape[3:]))
    result = b.one("Conv", images, kernel, bias, **window.along(1, 2).attributes)
    return _deep(b, result, batch, depth)


def _deep(b: Body, planes: Tensor, batch: int, depth: int) -> Tensor:
    """[batch * depth, channels, ...] as [batch, channels, depth, ...]."""
    return b.transpose(b.reshape(planes, (batch, depth, *planes.shape[1:])), *DEPTH_LAST)


@defines(WINDOWS, "ConvTranspose")
def deep_conv_transpose(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None,
    *, output_padding: Sequence[int] = (0, 0, 0), **given: Any,
) -> Tensor:  # fmt: skip
    """Each plane makes one for each position of the kernel; they are added up where they meet."""
    window = _deep_window(b, x)
    _check_weights(w)
    batch, channels, depth, high, wide = x.shape
    _, made, deep, rows, columns = static_shape(b.node.outputs[0])
    side = window.sides[0]
    taps, step = side.kernel, side.stride
    images = b.reshape(b.transpose(x, *DEPTH_LAST), (batch * depth, channels, high, wide))
    kernel = b.reshape(w, (channels, made // window.more["group"] * taps, *w.shape[3:]))
    attributes = {**window.along(1, 2).attributes, "output_padding": output_padding[1:]}
    planes = b.one("ConvTranspose", images, kernel, **attributes)
    split = b.reshape(planes, (batch, depth, made, taps, rows * columns))
    parts = []
    for tap in range(taps):
        first = tap * side.dilation - side.before
        if first + (depth - 1) * step < 0 or first >= deep:
            continue
        part = every(b, split, 3, tap, 1, 1)
        part = b.reshape(part, (batch, depth, 1, made, rows * columns))
        part = _padded(b, part, 2, (0, step - 1), 0)
        part = b.reshape(part, (batch, depth * step, made, rows * columns))
        parts.append(_padded(b, part, 1, (first, deep - first - depth * step), 0))
    total = b.reshape(reduce(add, parts), (batch * deep, made, rows, columns))
    result = _deep(b, total, batch, deep)
    return result if bias is None else result + b.reshape(bias, (made, 1, 1, 1))


@defines(WINDOWS, "Resize")
def whole_enlargement(
    b: Body, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None,
    sizes: Tensor | None = None, *, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", **given: Any,
) -> Tensor:  # fmt: skip
    """Integers enlarged twice or four times by interpolation: a transposed convolution of each
    channel, whose weights are whole in parts of 4 or 8, around which the edge goes on."""
    maker = x.ir.producer()
    if maker is None or not is_op(maker, "DequantizeLinear") or not _has_one_scale(maker):
        raise Declined("its input is no 8-bit integers of one scale")
    usual = coordinate_transformation_mode in ("half_pixel", "pytorch_half_pixel")
    if mode != "linear" or not usual or given.get("exclude_outside"):
        raise Declined("it does not weigh the nearest pixels by their distance")
    before, after = x.shape, static_shape(b.node.outputs[0])
    factors = [made / extent for made, extent in zip(after, before, strict=True)]
    if len(before) != 4 or factors[:2] != [1, 1] or not {*factors[2:]} <= {1, 2, 4}:
        raise Declined("it does not enlarge images twice or four times")
    steps = [int(factor) for factor in factors[2:]]
    along = [_WHOLE_WEIGHTS[step] for step in steps]
    weights = np.multiply.outer(*along)
    kernel = b.one(
        "DequantizeLinear",
        b.constant(np.broadcast_to(weights, (before[1], 1, *weights.shape)), np.int8),
        b.constant(prod(steps) / weights.sum(), x.dtype),
    )
    edges = [int(step > 1) for step in steps]
    padded = b.one("Pad", x, [0, 0, *edges, 0, 0, *edges], mode="edge")
    crop = [3 * step // 2 if step > 1 else 0 for step in steps]
    return b.one(
        "ConvTranspose", padded, kernel, group=before[1], kernel_shape=weights.shape,
        strides=steps, pads=[*crop, *crop], dilations=[1, 1], output_padding=[0, 0],
    )  # fmt: skip


_WHOLE_WEIGHTS = {1: [1], 2: [1, 3, 3, 1], 4: [1, 3, 5, 7, 7, 5, 3, 1]}
"""What each place of a row takes of a pixel, in parts of twice the enlargement (of 1: whole)."""


def _has_one_scale(dequantize: ir.Node) -> bool:
    integers, scale = dequantize.inputs[0], dequantize.inputs[1]
    assert integers is not None
    narrow = integers.dtype in (ir.DataType.INT8, ir.DataType.UINT8)
    return narrow and scalar(scale) is not None


# Weights that are computed.


def _check_computed(x: Tensor, w: Tensor) -> None:
    """Raise Declined unless the weights are computed, and of few positions."""
    if w.value is not None:
        raise Declined("its weights are constants")
    if prod(w.shape[2:]) > LARGEST or 0 in (*x.shape, *w.shape):
        raise Declined(f"its computed kernel has more than {LARGEST} positions, or it is empty")


@defines(KERNELS, "Conv")
def computed_conv(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None, **given: Any
) -> Tensor:
    """Columns of what they see times the weights, group by group; of one channel each, the numbers
    of its kernel times what they see, added up."""
    _check_computed(x, w)
    shape = static_shape(b.node.outputs[0])
    if w.shape[:2] == (x.shape[1], 1):
        parts = _parts(b, x, 0)
        weights = b.reshape(w, (x.shape[1], len(parts)))
        terms = [part * every(b, weights, 1, at, 1, 1) for at, part in enumerate(parts)]
        made = b.reshape(reduce(add, terms), shape)
    else:
        left, right = _im2col(b, x, w, 0)
        made = b.reshape(b.transpose(left @ right, 0, 1, 3, 2), shape)
    return made if bias is None else made + b.reshape(bias, (-1, *(1,) * (len(shape) - 2)))


@defines(KERNELS, "QConv", domain=ARCHGEN)
def computed_integers(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None,
    *, group: int, w_zero: Sequence[int], w_scale: Sequence[float], **given: Any,
) -> Tensor:  # fmt: skip
    """Bytes times bytes, of which the border holds the zero point."""
    _check_computed(x, w)
    if group > 1 and len(w_zero) + len(w_scale) > 2:
        raise Declined("its groups have scales of their own")
    shape = static_shape(b.node.outputs[0])
    attributes = {
        "a_zero": given["x_zero"], "a_scale": given["x_scale"],
        "b_zero": w_zero, "b_scale": w_scale,
        **{name: value for name, value in given.items() if name.startswith(("y_", "clip_"))},
    }  # fmt: skip
    kind = b.node.outputs[0].dtype or ir.DataType.INT32
    out = (kind, (shape[0], group, prod(shape[2:]), shape[1] // group))
    operands = _im2col(b, x, w, given["x_zero"])
    made = b.op("QMatMul", *operands, bias, domain=ARCHGEN, out=out, **attributes)
    return b.reshape(b.transpose(made, 0, 1, 3, 2), shape)


def _parts(b: Body, around: Tensor, fill: float) -> list[Tensor]:
    """What each position of the kernel sees: [batch, channels, places], `fill` around the input."""
    sides, extents = WindowAttributes.of(b.node).sides, static_shape(b.node.outputs[0])[2:]
    for axis, side in enumerate(sides):
        around = _padded(b, around, 2 + axis, (side.before, side.behind), fill)
    found = []
    for tap in product(*(range(side.kernel) for side in sides)):
        part = around
        for axis, (at, side, extent) in enumerate(zip(tap, sides, extents, strict=True), 2):
            if (part.shape[axis], side.stride) != (extent, 1):
                part = every(b, part, axis, at * side.dilation, extent, side.stride)
        found.append(b.reshape(part, (*around.shape[:2], prod(extents))))
    return found


def _im2col(b: Body, x: Tensor, w: Tensor, fill: float) -> tuple[Tensor, Tensor]:
    """What each place sees, [batch, groups, places, numbers], and the weights of these numbers,
    [groups, numbers, channels]; with one group, the latter as a matrix."""
    made, across, *kernel = w.shape
    groups, numbers = WindowAttributes.of(b.node).more["group"], across * prod(kernel)
    parts, batch = _parts(b, x, fill), x.shape[0]
    places = parts[0].shape[2]
    joined = b.concat([b.reshape(part, (batch, groups, across, 1, places)) for part in parts], 3)
    rows = b.reshape(joined, (batch, groups, numbers, places))
    left = b.transpose(rows, 0, 1, 3, 2)
    if groups == 1:
        return left, b.transpose(b.reshape(w, (made, numbers)), 1, 0)
    return left, b.transpose(b.reshape(w, (groups, made // groups, numbers)), 0, 2, 1)
