"""Data movement: views where strides can say it, one copying nest where they cannot.

Concatenation is a view from the other side: its inputs are given places inside one buffer after
all nests are known (`compiler.nest.join`), so their producers write there directly.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from compiler.nest.build import plain, reshaped
from compiler.nest.ir import Access, Affine, Storage, Tensor, at, row_major
from compiler.ops.node import Lowering, Node, NoNest


def reshape(node: Node) -> None:
    """The same elements in another shape."""
    x, shape = node.tensor(0), node.shape()
    strides = reshaped(x.shape, x.storage.strides, shape)
    if strides is None:
        x = _materialized(node, x, f"{node.out}.dense")
        strides = row_major(shape)
    storage = Storage(x.storage.buffer, x.storage.offset, strides)
    node.build.view(node.out, shape, storage, x)


def _materialized(node: Node, x: Tensor, name: str) -> Tensor:
    """A dense row-major copy of `x`."""
    out = node.build.create(name, x.shape, x.dtype)
    node.build.add(plain(name, x.shape, "move", (node.build.access(x, x.shape),)))
    return out


def transpose(node: Node) -> None:
    """Axes in another order."""
    x = node.tensor(0)
    rank = len(x.shape)
    order = [int(a) for a in node.attribute("perm", tuple(reversed(range(rank))))]
    strides = tuple(x.storage.strides[axis] for axis in order)
    node.build.view(node.out, node.shape(), replace(x.storage, strides=strides), x)


def slicing(node: Node) -> None:
    """A box of the input, possibly with steps."""
    x = node.tensor(0)
    rank = len(x.shape)
    starts, ends = node.constant(1), node.constant(2)
    axes = node.constant(3) if node.has(3) else np.arange(len(starts))
    steps = node.constant(4) if node.has(4) else np.ones(len(starts), np.int64)
    offset, strides = x.storage.offset, list(x.storage.strides)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = int(axis) % rank
        first = slice(int(start), int(end), int(step)).indices(x.shape[place])[0]
        offset += first * strides[place]
        strides[place] *= int(step)
    if min(steps, default=1) < 0:
        raise NoNest("Slice with a negative step")
    storage = Storage(x.storage.buffer, offset, tuple(strides))
    node.build.view(node.out, node.shape(), storage, x)


def split(node: Node) -> None:
    """Boxes of the input, one after another along an axis."""
    x = node.tensor(0)
    axis = int(node.attribute("axis", 0)) % len(x.shape)
    start = 0
    for position, output in enumerate(node.node.outputs):
        shape = node.shape(position)
        offset = x.storage.offset + start * x.storage.strides[axis]
        storage = replace(x.storage, offset=offset)
        node.build.view(str(output.name), shape, storage, x)
        start += shape[axis]


def expand(node: Node) -> None:
    """Repetition along axes of extent 1."""
    x, shape = node.tensor(0), node.shape()
    skip = len(shape) - len(x.shape)
    strides = [0] * len(shape)
    for axis, extent in enumerate(x.shape):
        strides[skip + axis] = 0 if extent == 1 else x.storage.strides[axis]
    node.build.view(node.out, shape, replace(x.storage, strides=tuple(strides)), x)


def gather(node: Node) -> None:
    """Constant positions along an axis, evenly spaced: a slice."""
    x, indices = node.tensor(0), node.constant(1)
    axis = int(node.attribute("axis", 0)) % len(x.shape)
    flat = indices.reshape(-1).astype(np.int64) % x.shape[axis]
    steps = np.unique(np.diff(flat))
    if len(steps) > 1 or (len(steps) and steps[0] < 1):
        raise NoNest("Gather of positions that are not evenly spaced")
    step = int(steps[0]) if len(steps) else 1
    stride = x.storage.strides[axis]
    offset = x.storage.offset + int(flat[0]) * stride
    inner = [stride * step] if indices.ndim else []
    if indices.ndim > 1:
        raise NoNest("Gather with a matrix of positions")
    strides = (*x.storage.strides[:axis], *inner, *x.storage.strides[axis + 1 :])
    node.build.view(node.out, node.shape(), Storage(x.storage.buffer, offset, strides), x)


def concat(node: Node) -> None:
    """Inputs side by side along an axis: one copy each, into a slice of the result."""
    shape = node.shape()
    axis = int(node.attribute("axis")) % len(shape)
    parts = [node.tensor(position, node.dtype()) for position in range(len(node.node.inputs))]
    like = max(parts, key=lambda t: (t.data is None, t.elements))
    order = tuple(np.argsort([-s for s in like.storage.strides], kind="stable"))
    out = node.build.create(node.out, shape, node.dtype(), order)
    start = 0
    for position, part in enumerate(parts):
        if part.elements:
            offset = start * out.storage.strides[axis]
            storage = Storage(out.storage.buffer, offset, out.storage.strides)
            name = f"{node.out}.part{position}"
            node.build.view(name, part.shape, storage, out)
            access = node.build.access(part, part.shape)
            node.build.add(plain(name, part.shape, "move", (access,)))
        start += part.shape[axis]


def pad(node: Node) -> None:
    """A border of one value around the input."""
    if node.attribute("mode", "constant") != "constant":
        raise NoNest(f"Pad by {node.attribute('mode')}")
    x, shape = node.tensor(0), node.shape()
    rank = len(shape)
    amounts = [int(n) for n in node.constant(1)]
    axes = range(rank)
    if node.has(3):
        axes = [int(a) % rank for a in node.constant(3)]  # type: ignore[assignment]
    before = dict(zip(axes, amounts, strict=False))
    value = float(node.constant(2).reshape(())) if node.has(2) else 0.0
    index = tuple(at(axis, 1, -before.get(axis, 0)) for axis in range(rank))
    out = node.build.create(node.out, shape, node.dtype(), _order(x))
    node.build.add(plain(out.name, shape, "move", (Access(x.name, index, value),)))


def _order(x: Tensor) -> tuple[int, ...]:
    return tuple(int(a) for a in np.argsort([-s for s in x.storage.strides], kind="stable"))


def resize(node: Node) -> None:
    """Nearest-neighbour enlargement by whole factors."""
    x, shape = node.tensor(0), node.shape()
    factors = tuple(n // m for n, m in zip(shape, x.shape, strict=True))
    whole = all(n == m * f for n, m, f in zip(shape, x.shape, factors, strict=True))
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    # Which source each output takes agrees with plain repetition for these two conventions only.
    plain_repeat = (mode, rounding) == ("asymmetric", "floor") or mode == "half_pixel"
    if node.attribute("mode", "nearest") != "nearest" or not whole or not plain_repeat:
        raise NoNest("Resize other than nearest by whole factors")
    out = node.build.create(node.out, shape, node.dtype(), _order(x))
    split_shape: list[int] = []
    strides: list[int] = []
    index: list[Affine] = []
    for axis, factor in enumerate(factors):
        stride = out.storage.strides[axis]
        index.append(at(len(split_shape)))
        split_shape.append(x.shape[axis])
        strides.append(stride * factor)
        if factor > 1:
            split_shape.append(factor)
            strides.append(stride)
    storage = replace(out.storage, strides=tuple(strides))
    name = f"{node.out}.split"
    node.build.view(name, tuple(split_shape), storage, out)
    node.build.add(plain(name, tuple(split_shape), "move", (Access(x.name, tuple(index)),)))


def depth_to_space(node: Node) -> None:
    """Channels become pixels: a view with split and permuted axes, then a dense copy."""
    x = node.tensor(0)
    n, c, h, w = x.shape
    b = int(node.attribute("blocksize"))
    deep = c // (b * b)
    first = (b, b, deep) if node.attribute("mode", "DCR") == "DCR" else (deep, b, b)
    order = (0, 3, 4, 1, 5, 2) if node.attribute("mode", "DCR") == "DCR" else (0, 1, 4, 2, 5, 3)
    strides = reshaped(x.shape, x.storage.strides, (n, *first, h, w))
    if strides is None:
        raise NoNest("DepthToSpace of such a layout")
    shape = (n, *first, h, w)
    moved = tuple(shape[a] for a in order)
    storage = replace(x.storage, strides=tuple(strides[a] for a in order))
    view = node.build.view(f"{node.out}.view", moved, storage, x)
    dense_copy = _materialized(node, view, f"{node.out}.dense")
    final = Storage(dense_copy.storage.buffer, 0, row_major(node.shape()))
    node.build.view(node.out, node.shape(), final, dense_copy)
    assert math.prod(moved) == math.prod(node.shape())


TABLE: dict[str, Lowering] = {
    "Reshape": reshape, "Flatten": reshape, "Squeeze": reshape, "Unsqueeze": reshape,
    "Identity": reshape, "Dropout": reshape, "Transpose": transpose, "Slice": slicing,
    "Split": split, "Expand": expand, "Gather": gather, "Concat": concat, "Pad": pad,
    "Resize": resize, "DepthToSpace": depth_to_space,
}  # fmt: skip
