"""Windows as simpler ones: three dimensions as two, norms as means.

The one idea: what slides along the depth slides apart from what slides along rows and columns. The
largest of a box is the largest of rows of planes, its mean the mean of means, for each place counts
what it counts along its own axis. A convolution over the depth has a plane's channels and those of
the planes behind it side by side. Depth is part of the channels of a pool and of the batch of a
convolution, so that rows and columns stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from compiler.frontend.canonicalize.symbolic_axes import open_of
from compiler.frontend.operators.body import Body, Declined, Tensor
from compiler.frontend.operators.definitions import Decompose, Table, defines
from compiler.frontend.rewrite import const, int_attr, ints_attr, is_op, static_shape

WINDOWS: Table = {}
"""Pools and convolutions of three dimensions, and LpPool."""
DEPTH_LAST = (0, 2, 1, 3, 4)
"""Depth and channels change places."""
_SIDES = ("kernel_shape", "strides", "dilations", "pads")


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


def _check_deep(b: Body, x: Tensor) -> None:
    """Raise Declined unless a window has three dimensions, or where nothing slides along the first
    and it is open: what it would be merged with could not be told from it."""
    kernel, strides, _, pads = _attributes(b)
    if len(kernel) != 3:
        raise Declined("its planes are images already")
    if 2 in open_of(x.ir) and (kernel[0], strides[0], pads[0], pads[3]) == (1, 1, 0, 0):
        raise Declined("its depth is known only when it runs")


def _window(b: Body, *axes: int, **more: int) -> dict[str, Any]:
    """Attributes of the node's window along `axes`; of the depth alone, with a second dimension in
    which nothing slides."""
    *sides, pads = _attributes(b)
    rank = len(sides[0])
    beside = rank - len(axes) == 2
    found = {
        name: [*(each[axis] for axis in axes), *[1] * beside]
        for name, each in zip(_SIDES, sides, strict=False)
    }
    found["pads"] = [
        pad for end in (0, rank) for pad in (*(pads[end + axis] for axis in axes), *[0] * beside)
    ]
    kept = (n for n in ("ceil_mode", "count_include_pad", "group") if n in b.node.attributes)
    return {**found, **{name: int_attr(b.node, name, 0) for name in kept}, **more}


def _attributes(b: Body) -> list[list[int]]:
    return [ints_attr(b.node, name) or [] for name in _SIDES]


@defines(WINDOWS, "MaxPool", "AveragePool")
def deep_pool(b: Body, x: Tensor, **window: Any) -> Tensor:
    """A pool of three dimensions."""
    _check_deep(b, x)
    return _pooled(b, b.node.op_type, x)


def _pooled(b: Body, op_type: str, x: Tensor, **more: int) -> Tensor:
    """A pool of any number of dimensions: of three, planes first, then along the depth."""
    if len(x.shape) < 5:
        return b.one(op_type, x, **_window(b, *range(len(x.shape) - 2), **more))
    batch, channels, depth, *plane = x.shape
    planes = b.reshape(x, (batch, channels * depth, *plane))
    pooled = b.one(op_type, planes, **_window(b, 1, 2, **more))
    small = pooled.shape[2:]
    columns = b.reshape(pooled, (batch, channels, depth, prod(small)))
    through = b.one(op_type, columns, **_window(b, 0, **more))
    return b.reshape(through, (batch, channels, through.shape[2], *small))


@defines(WINDOWS, "LpPool")
def norm(b: Body, x: Tensor, *, p: int = 2, **window: Any) -> Tensor:
    """(sum of |x| ** p) ** (1 / p): the mean of powers, with zeros around, times their number."""
    sizes = x * x if p == 2 else b.one("Abs", x)
    if p > 2:
        sizes = b.one("Pow", sizes, b.constant(p, x.dtype))
    means = _pooled(b, "AveragePool", sizes, count_include_pad=1)
    total = means * prod(window["kernel_shape"])
    if p == 2:
        return b.one("Sqrt", total)
    return total if p == 1 else b.one("Pow", total, b.constant(1 / p, x.dtype))


@defines(WINDOWS, "Conv")
def deep_conv(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None, *, group: int = 1, **window: Any
) -> Tensor:
    """Planes beside those behind them, as more channels of a convolution of planes."""
    _check_deep(b, x)
    maker = w.ir.producer()
    integers = maker.inputs[0] if maker is not None and is_op(maker, "DequantizeLinear") else None
    if const(integers or w.ir) is None:
        raise Declined("its weights are computed")
    depth = static_shape(b.node.outputs[0])[2]
    batch, channels, _, *plane = x.shape
    across, taps = channels // group, window["kernel_shape"][0]
    planes = b.transpose(x, *DEPTH_LAST)
    before, behind = window["pads"][::3]
    if before or behind:
        pads = [0, before, 0, 0, 0, 0, behind, 0, 0, 0]
        planes = b.one("Pad", planes, pads, 0.0, mode="constant")
    shape = (batch, depth, group, across, prod(plane))
    step, stride = window["dilations"][0], window["strides"][0]
    reach = (depth - 1) * stride + 1
    firsts = range(0, taps * step, step)
    shifted = [b.slice(planes, 1, first, first + reach, stride) for first in firsts]
    joined = b.concat([b.reshape(each, shape) for each in shifted], 3)
    images = b.reshape(joined, (batch * depth, group * taps * across, *plane))
    kernel = b.reshape(b.transpose(w, *DEPTH_LAST), (w.shape[0], taps * across, *w.shape[3:]))
    made = b.one("Conv", images, kernel, bias, **_window(b, 1, 2))
    return b.transpose(b.reshape(made, (batch, depth, *made.shape[1:])), *DEPTH_LAST)
