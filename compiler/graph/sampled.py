"""DeformConv and RoiAlign: samples between elements, as products with computed weights.

    weight of element h at the place y = max(0, 1 - |y - h|)

The one idea: that tent is bilinear interpolation, with nothing around the image. Regions have rows
and columns of samples, so their weights stay apart: rows times image times columns. Places of a
deformed window are anywhere: their weights are those of the rows times those of the columns, which
is worth it for small images alone, as with GridSample (`decompose_samples`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from compiler.graph.body import Body, Contradicted, Declined, Tensor
from compiler.graph.operators import rewrite_of

LARGEST = 1 << 20
"""Weights of a DeformConv that are computed, at most."""


def _tents(b: Body, places: Tensor, extent: int, axis: int) -> Tensor:
    """What each of `extent` elements, along the new `axis`, weighs at `places`."""
    apart = b.one("Unsqueeze", places, [axis])
    shape = [1] * len(apart.shape)
    shape[axis] = extent
    elements = b.constant(np.arange(extent).reshape(shape), places.dtype)
    return b.one("Relu", 1.0 - b.one("Abs", apart - elements))


@rewrite_of("", "DeformConv")
def deform_conv(
    b: Body,
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    group: int = 1,
    offset_group: int = 1,
    kernel_shape: Sequence[int] = (),
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
) -> Tensor:
    """Of [batch, channels, rows, columns]; windows whose places move by offsets, two of each."""
    del kernel_shape  # that of the weights
    if len(x.shape) != 4:
        raise Declined(f"a deformed window in {len(x.shape) - 2} dimensions")
    batch, channels, *extents = x.shape
    made, across, *kernel = w.shape
    outputs, taps = offset.shape[2:], prod(kernel)
    points = taps * prod(outputs)
    if channels % offset_group or channels != across * group:
        raise Contradicted(f"{channels} channels, {group} groups, {offset_group} of offsets")
    if batch * offset_group * prod(extents) * points > LARGEST:
        raise Declined(f"more than {LARGEST} weights of samples")
    moves = b.reshape(offset, (batch, offset_group, taps, 2, prod(outputs)))
    weights: list[Tensor] = []
    for axis, moved in enumerate(b.split(moves, [1, 1], 3)):
        steps = np.arange(kernel[axis]) * dilations[axis] - pads[axis]
        starts = np.arange(outputs[axis]) * strides[axis]
        shape = [[kernel[0], 1, outputs[0], 1], [1, kernel[1], 1, outputs[1]]][axis]
        still = np.broadcast_to(np.add.outer(steps, starts).reshape(shape), (*kernel, *outputs))
        places = b.reshape(moved, (batch, offset_group, points)) + still.reshape(1, 1, points)
        weights.append(_tents(b, places, extents[axis], 2))
    rows, columns = weights
    both = b.one("Unsqueeze", rows, [3]) * b.one("Unsqueeze", columns, [2])
    if mask is not None:
        both = both * b.reshape(mask, (batch, offset_group, 1, 1, points))
    flat = b.reshape(both, (batch, offset_group, prod(extents), points))
    images = b.reshape(x, (batch, offset_group, channels // offset_group, prod(extents)))
    seen = b.reshape(images @ flat, (batch, group, across * taps, prod(outputs)))
    y = b.reshape(w, (group, made // group, across * taps)) @ seen
    result = b.reshape(y, (batch, made, *outputs))
    return result if bias is None else result + b.reshape(bias, (made, 1, 1))


@rewrite_of("", "RoiAlign")
def roi_align(
    b: Body,
    x: Tensor,
    rois: Tensor,
    batch: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Of [batch, channels, rows, columns] and regions [count, (x1, y1, x2, y2)]."""
    if sampling_ratio < 1:
        raise Declined("how many samples a region has depends on its size (sampling_ratio=0)")
    half = coordinate_transformation_mode == "half_pixel"
    corners = b.split(rois * spatial_scale - (0.5 if half else 0.0), [1, 1, 1, 1], 1)
    places = []
    for first, last, bins in ((corners[1], corners[3], output_height),
                              (corners[0], corners[2], output_width)):  # fmt: skip
        size = last - first
        step = (size if half else b.one("Max", size, 1.0)) / float(bins)
        inner = (np.arange(sampling_ratio) + 0.5) / sampling_ratio
        steps = np.add.outer(np.arange(bins), inner).reshape(1, -1)
        places.append(first + step * b.constant(steps, rois.dtype))
    images = x if x.shape[0] == 1 else b.one("Gather", x, batch, axis=0)
    sizes = (output_height, output_width)
    if mode == "avg":
        return _average(b, images, places, sizes, sampling_ratio)
    if mode == "max":
        return _largest(b, images, places, sizes, sampling_ratio)
    raise Contradicted(f"mode {mode!r}, expected avg or max")


def _inside(b: Body, places: Tensor, extent: int) -> tuple[Tensor, Tensor]:
    """Places brought into the image; 1 where they are no more than one element outside, else 0."""
    low, high = b.one("GreaterOrEqual", places, -1.0), b.one("LessOrEqual", places, float(extent))
    near = b.one("Cast", b.one("And", low, high), to=places.dtype)
    return b.one("Clip", places, 0.0, extent - 1.0), near


def _average(
    b: Body, images: Tensor, places: Sequence[Tensor], sizes: Sequence[int], each: int
) -> Tensor:
    """Means of `each` by `each` samples."""
    weights = []
    for at, bins, extent in zip(places, sizes, images.shape[2:], strict=True):
        kept, near = _inside(b, at, extent)
        tents = _tents(b, kept, extent, 2) * b.one("Unsqueeze", near, [2])
        apart = b.reshape(tents, (at.shape[0], 1, bins, each, extent))
        weights.append(b.one("ReduceMean", apart, [3], keepdims=0))
    rows, columns = weights
    return rows @ images @ b.one("Transpose", columns, perm=[0, 1, 3, 2])


def _largest(
    b: Body, images: Tensor, places: Sequence[Tensor], sizes: Sequence[int], each: int
) -> Tensor:
    """The largest of what the four elements around each sample give it."""
    parts: list[list[Tensor]] = []
    for at, extent in zip(places, images.shape[2:], strict=True):
        kept, near = _inside(b, at, extent)
        floor = b.one("Floor", kept)
        away = kept - floor
        elements = b.constant(np.arange(extent).reshape(1, 1, extent), at.dtype)
        parts.append([])
        for place, share in ((floor, 1.0 - away), (floor + 1.0, away)):
            weight = b.one("Unsqueeze", share * near, [2])
            hit = b.one("Equal", b.one("Unsqueeze", place, [2]), elements)
            chosen = b.one("Where", hit, weight, np.zeros((), at.dtype))
            parts[-1].append(b.one("Unsqueeze", chosen, [1]))
    turned = [b.one("Transpose", columns, perm=[0, 1, 3, 2]) for columns in parts[1]]
    given = [rows @ images @ columns for rows in parts[0] for columns in turned]
    top = b.one("Max", *given)
    count, channels = top.shape[:2]
    apart = b.reshape(top, (count, channels, sizes[0], each, sizes[1], each))
    return b.one("ReduceMax", apart, [3, 5], keepdims=0)


TABLE = (deform_conv, roi_align)
