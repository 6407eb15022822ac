"""Windows as simpler ones: three dimensions as two, norms as means.

The one idea: what slides along the depth slides apart from what slides along rows and columns. The
largest of a box is the largest of rows of planes, its mean the mean of means, for each place counts
what it counts along its own axis. A convolution over the depth has a plane's channels and those of
the planes behind it side by side, a transposed one those of the planes that meet in one of its
result. Depth is part of the channels of a pool and of the batch of a convolution, so that rows and
columns stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from compiler.frontend.canonicalize.symbolic_axes import open_of
from compiler.frontend.operators.body import Body, Declined, Tensor
from compiler.frontend.operators.definitions import Decompose, Table, defines
from compiler.frontend.quantization.move_quantize import BYTES, dequantized
from compiler.frontend.rewrite import Array, const, ints_attr, is_const, is_op, static_shape

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


Window = Mapping[str, Any]
"""Attributes of a window by name."""


def _check_deep(x: Tensor, window: Window) -> None:
    """Raise Declined unless a window has three dimensions, or where nothing slides along the first
    and it is open: what it would be merged with could not be told from it."""
    kernel, strides, _, pads = (window.get(name) or [] for name in _SIDES)
    if len(kernel) != 3:
        raise Declined("its planes are images already")
    if 2 in open_of(x.ir) and (kernel[0], strides[0], pads[0], pads[3]) == (1, 1, 0, 0):
        raise Declined("its depth is known only when it runs")


def _along(window: Window, *axes: int, **more: int) -> dict[str, Any]:
    """A window along `axes` of it; of the depth alone, with a second dimension in which nothing
    slides."""
    *sides, pads = (window.get(name) or [] for name in _SIDES)
    rank = len(sides[0])
    beside = rank - len(axes) == 2
    found = {
        name: [*(each[axis] for axis in axes), *[1] * beside]
        for name, each in zip(_SIDES, sides, strict=False)
    }
    found["pads"] = [
        pad for end in (0, rank) for pad in (*(pads[end + axis] for axis in axes), *[0] * beside)
    ]
    kept = {n: window[n] for n in ("ceil_mode", "count_include_pad", "group") if n in window}
    return {**found, **kept, **more}


@defines(WINDOWS, "MaxPool", "AveragePool")
def deep_pool(b: Body, x: Tensor, **window: Any) -> Tensor:
    """A pool of three dimensions."""
    _check_deep(x, window)
    return _pooled(b, b.node.op_type, x, window)


def _pooled(b: Body, op_type: str, x: Tensor, window: Window, **more: int) -> Tensor:
    """A pool of any number of dimensions: of three, planes first, then along the depth."""
    if len(x.shape) < 5:
        return b.one(op_type, x, **_along(window, *range(len(x.shape) - 2), **more))
    batch, channels, depth, *plane = x.shape
    planes = b.reshape(x, (batch, channels * depth, *plane))
    pooled = b.one(op_type, planes, **_along(window, 1, 2, **more))
    small = pooled.shape[2:]
    columns = b.reshape(pooled, (batch, channels, depth, prod(small)))
    through = b.one(op_type, columns, **_along(window, 0, **more))
    return b.reshape(through, (batch, channels, through.shape[2], *small))


@defines(WINDOWS, "LpPool")
def norm(b: Body, x: Tensor, *, p: int = 2, **window: Any) -> Tensor:
    """(sum of |x| ** p) ** (1 / p): the mean of powers, with zeros around, times their number."""
    sizes = x * x if p == 2 else b.one("Abs", x)
    if p > 2:
        sizes = b.one("Pow", sizes, b.constant(p, x.dtype))
    means = _pooled(b, "AveragePool", sizes, window, count_include_pad=1)
    total = means * prod(window["kernel_shape"])
    if p == 2:
        return b.one("Sqrt", total)
    return total if p == 1 else b.one("Pow", total, b.constant(1 / p, x.dtype))


def _check_weights(w: Tensor) -> None:
    """Raise Declined unless these are a constant, or integers that stand for one."""
    maker = w.ir.producer()
    integers = maker.inputs[0] if maker is not None and is_op(maker, "DequantizeLinear") else None
    if not is_const(integers or w.ir):
        raise Declined("its weights are computed")


@defines(WINDOWS, "Conv")
def deep_conv(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None, *, group: int = 1, **window: Any
) -> Tensor:
    """Planes beside those behind them, as more channels of a convolution of planes."""
    _check_deep(x, window)
    _check_weights(w)
    depth = static_shape(b.node.outputs[0])[2]
    batch, channels, _, *plane = x.shape
    across, taps = channels // group, window["kernel_shape"][0]
    planes = b.pad(b.transpose(x, *DEPTH_LAST), 1, *window["pads"][::3])
    shape = (batch, depth, group, across, prod(plane))
    step, stride = window["dilations"][0], window["strides"][0]
    reach = (depth - 1) * stride + 1
    firsts = range(0, taps * step, step)
    shifted = [b.slice(planes, 1, first, first + reach, stride) for first in firsts]
    joined = b.concat([b.reshape(each, shape) for each in shifted], 3)
    images = b.reshape(joined, (batch * depth, group * taps * across, *plane))
    kernel = b.reshape(b.transpose(w, *DEPTH_LAST), (w.shape[0], taps * across, *w.shape[3:]))
    made = b.one("Conv", images, kernel, bias, **_along(window, 1, 2, group=group))
    return b.transpose(b.reshape(made, (batch, depth, *made.shape[1:])), *DEPTH_LAST)


@defines(WINDOWS, "ConvTranspose")
def deep_conv_transpose(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None,
    *, output_padding: Sequence[int] = (0, 0, 0), **window: Any,
) -> Tensor:  # fmt: skip
    """Planes of the result a stride apart read the same positions of the kernel: they are one
    transposed convolution of images that have the planes which meet there as channels."""
    _check_deep(x, window)
    _check_weights(w)
    batch, _, depth, *plane = x.shape
    _, made, deep, *after = static_shape(b.node.outputs[0])
    step, count = window["strides"][0], -(-deep // window["strides"][0])
    planes = b.transpose(x, *DEPTH_LAST)
    attributes = _along(window, 1, 2) | {"output_padding": output_padding[1:]}
    group, (taps, *flat) = attributes.get("group", 1), window["kernel_shape"]
    across = w.shape[0] // group
    split = b.reshape(w, (group, across, made // group, taps, prod(flat)))
    kernels = b.split(b.transpose(split, 0, 3, 1, 2, 4), [1] * taps, 1)
    phases = []
    for phase in range(step):
        met = []
        for tap, kernel in enumerate(kernels):
            place = phase + window["pads"][0] - tap * window["dilations"][0]
            first, between = divmod(place, step)
            if not between and -count < first < depth:
                part = b.pad(planes, 1, -first, first + count - depth)
                part = b.reshape(part, (batch, count, group, across, prod(plane)))
                met.append((part, kernel))
        if met:
            wide = (group * len(met) * across, made // group, *flat)
            images = b.concat([part for part, _ in met], 3)
            images = b.reshape(images, (batch * count, wide[0], *plane))
            weights = b.reshape(b.concat([kernel for _, kernel in met], 1), wide)
            images = b.one("ConvTranspose", images, weights, bias, **attributes)
        else:
            level = b.constant(np.zeros(made), x.dtype) if bias is None else bias
            images = b.one("Expand", b.reshape(level, (made, 1, 1)), [batch * count, made, *after])
        phases.append(b.reshape(images, (batch, count, 1, made, prod(after))))
    total = b.reshape(b.concat(phases, 2), (batch, count * step, made, *after))
    return b.transpose(b.slice(total, 1, 0, deep), *DEPTH_LAST)


@defines(WINDOWS, "Resize")
def whole_enlargement(
    b: Body, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None,
    sizes: Tensor | None = None, *, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", **given: Any,
) -> Tensor:  # fmt: skip
    """Integers enlarged by interpolation to a whole multiple: a transposed convolution of each
    channel, whose weights are whole in parts of a step, around which the edge goes on."""
    found = dequantized(x.ir)
    if found is None or not found[1].per_tensor or found[1].dtype not in BYTES:
        raise Declined("its input is no 8-bit integers of one scale")
    usual = given.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    if mode != "linear" or not usual or given.get("exclude_outside") or given.get("antialias"):
        raise Declined("it does not weigh the nearest pixels by their distance")
    before, after = x.shape, static_shape(b.node.outputs[0])
    if len(before) != 4 or before[:2] != after[:2]:
        raise Declined("it does not enlarge images")
    exact = scales is None or _are_quotients(b.node, const(scales.ir), before, after)
    rule = coordinate_transformation_mode
    rows = [_spread(rule, exact, *ends) for ends in zip(before[2:], after[2:], strict=True)]
    weights = np.multiply.outer(*(row.weights for row in rows))
    if weights.max() > np.iinfo(np.int8).max:
        raise Declined("its weights are no 8-bit integers")
    steps = [row.step for row in rows]
    kernel = b.one(
        "DequantizeLinear",
        b.constant(np.broadcast_to(weights, (before[1], 1, *weights.shape)), np.int8),
        b.constant(prod(steps) / weights.sum(), x.dtype),
    )
    edges = [row.edges[end] for end in (0, 1) for row in rows]
    padded = b.one("Pad", x, [0, 0, *edges[:2], 0, 0, *edges[2:]], mode="edge")
    return b.one(
        "ConvTranspose", padded, kernel, group=before[1], kernel_shape=weights.shape,
        strides=steps, pads=[row.crop[end] for end in (0, 1) for row in rows],
        dilations=[1, 1], output_padding=[0, 0],
    )  # fmt: skip


@dataclass(frozen=True)
class _Spread:
    """What a pixel gives to the places around it along an axis: whole `weights`, `step` places
    further for the next pixel; `edges` is how often the first and the last pixel are repeated,
    `crop` how many places at either end are none of the result's."""

    step: int
    weights: Array
    edges: tuple[int, int]
    crop: tuple[int, int]


def _spread(rule: str, exact: bool, given: int, made: int) -> _Spread:
    """Enlargement of `given` pixels to `made` places; `exact`: by the quotient of the two.

    A weight falls by one part a place on both sides of its pixel, in parts of a step; where pixels
    lie between two places, by two parts, in parts of two steps.
    """
    if given == made and (exact or rule == "align_corners"):
        return _Spread(1, np.ones(1, int), (0, 0), (0, 0))
    corners, centred = rule == "align_corners", rule in ("half_pixel", "pytorch_half_pixel")
    if not (corners or centred or rule == "asymmetric") or not (exact or corners):
        raise Declined("it does not weigh the nearest pixels by their distance")
    step, rest = divmod(made - corners, max(given - corners, 1))
    if rest or made < given or given <= corners:
        raise Declined("it does not enlarge by a whole number")
    between = centred and step % 2 == 0
    ramp = np.arange(1, 2 * step, 2) if between else np.arange(1, step + 1)
    weights = np.concatenate([ramp, ramp[::-1] if between else ramp[-2::-1]])
    edges = (int(centred), int(not corners))
    first = step * edges[0] + (len(weights) - 1 - (step - 1) * centred) // 2
    reach = (given + sum(edges) - 1) * step + len(weights)
    return _Spread(step, weights, edges, (first, reach - first - made))


def _are_quotients(
    node: ir.Node, scales: Array | None, before: Sequence[int], after: Sequence[int]
) -> bool:
    """Whether the scales of a Resize are those of its extents."""
    axes = ints_attr(node, "axes") or range(len(before))
    wanted = [after[axis] / before[axis] for axis in axes]
    return scales is not None and (
        not scales.size or np.array_equal(scales, np.array(wanted, np.float32))
    )
