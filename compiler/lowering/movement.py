"""Data movement: views where strides express it, else one copying nest.

Concatenation is the reverse of a view: its inputs get addresses inside one buffer after all nests
are known (`compiler.tensor_ir.join`), so their producers write there directly.
"""

from __future__ import annotations

from functools import partial
from math import prod
from operator import itemgetter, methodcaller

import numpy as np
from numpy.lib.stride_tricks import as_strided

from compiler.lowering.node import Lowering, Node, NoNest
from compiler.tensor_ir.build import along, plain, reshaped
from compiler.tensor_ir.nest import Access, Affine, Array, Tensor, at


def reshape(node: Node) -> None:
    """The same elements in another shape."""
    x, shape = node.tensor(0), node.shape()

    def change(seen: Array) -> Array:
        made = reshaped(*shape)(seen)
        steps = zip(shape, made.strides, strict=True)
        return as_strided(made, shape, [seen.itemsize if n == 1 else step for n, step in steps])

    try:
        node.build.view(node.out, x, change)
    except ValueError:
        dense = node.build.create(f"{node.out}.dense", x.shape, x.dtype)
        node.build.view(node.out, node.build.copied(dense, x), reshaped(*shape))


def transpose(node: Node) -> None:
    """Axes in another order."""
    node.build.view(node.out, node.tensor(0), methodcaller("transpose", node.attribute("perm")))


def slicing(node: Node) -> None:
    """A box of the input, possibly with steps; for negative steps one copy per position."""
    x = node.tensor(0)
    cut = [slice(None)] * len(x.shape)
    backwards: dict[int, range] = {}
    columns = (node.constant(position).tolist() for position in range(1, 5))
    for start, end, place, step in zip(*columns, strict=True):
        positions = range(*slice(start, end, step).indices(x.shape[place]))
        if step < 0 and len(positions) > 1:
            backwards[place] = positions
            continue
        size = abs(step)
        cut[place] = slice(positions.start, positions.start + len(positions) * size, size)
    name = f"{node.out}.forwards" if backwards else node.out
    x = node.build.view(name, x, itemgetter(tuple(cut)))
    if len(backwards) > 1:
        node.compose()
    for left, (place, positions) in zip(
        reversed(range(len(backwards))), backwards.items(), strict=True
    ):
        name = f"{node.out}.axis{place}" if left else node.out
        x = take(node, x, place, np.array(positions), name)


def split(node: Node) -> None:
    """Boxes of the input, one after another along an axis."""
    x = node.tensor(0)
    axis = int(node.attribute("axis", 0)) % len(x.shape)
    start = 0
    for position, output in enumerate(node.node.outputs):
        count = node.shape(position)[axis]
        node.build.view(str(output.name), x, along(axis, start, count))
        start += count


def expand(node: Node) -> None:
    """Repetition along axes of extent 1."""
    node.build.view(node.out, node.tensor(0), partial(np.broadcast_to, shape=node.shape()))


def gather(node: Node) -> None:
    """Constant positions along an axis: a view where they are evenly spaced, else copies."""
    x, indices = node.tensor(0), node.constant(1)
    axis = int(node.attribute("axis", 0)) % len(x.shape)
    flat = indices.reshape(-1).astype(np.int64) % x.shape[axis]
    if flat.size == 0:
        raise NoNest("Gather of nothing")
    taken = take(node, x, axis, flat, node.out if indices.ndim == 1 else f"{node.out}.flat")
    if indices.ndim != 1:
        node.build.view(node.out, taken, reshaped(*node.shape()))


def take(node: Node, x: Tensor, axis: int, positions: Array, name: str) -> Tensor:
    """`x` at `positions` along `axis`, called `name`: a view or one copy per evenly spaced run, of
    neighbours or of every second, third or further result, whichever makes the fewest; a long row
    turned round is blocks turned round, and each block.

    Raises NoNest where there are more runs than `LoweringLimits` allow.
    """
    limit = min(len(positions), node.limits.runs)
    ways = ([_runs([int(p) for p in positions[k::step]]) for k in range(step)]
            for step in range(1, limit + 1))  # fmt: skip
    phases = min(ways, key=lambda way: sum(map(len, way)), default=[])
    count = sum(map(len, phases))
    if count == 1:
        return node.build.view(name, x, along(axis, *phases[0][0]))
    if count > node.limits.runs:
        rows, block = np.arange(len(positions)), _block(len(positions))
        if block == 1 or positions[0] <= positions[1] or np.diff(positions, 2).any():
            raise NoNest(f"{node.op} of positions in {count} separate runs")
        first = rows // block * block
        inside = first + np.minimum(block, len(rows) - first) - 1 - rows % block
        turned = take(node, x, axis, positions[inside], f"{name}.blocks")
        return take(node, turned, axis, inside, name)
    shape = (*x.shape[:axis], len(positions), *x.shape[axis + 1 :])
    out = node.build.create(name, shape, x.dtype, order_like(x))
    number = 0
    for start, runs in enumerate(phases):
        for run in runs:
            source = node.build.view(f"{name}.from{number}", x, along(axis, *run))
            place = along(axis, start, run[1], len(phases))
            node.build.copied(node.build.view(f"{name}.to{number}", out, place), source)
            start += run[1] * len(phases)
            number += 1
    return out


def _block(extent: int) -> int:
    """Length of the blocks by which a row is turned round in the fewest runs: blocks, places of
    one, and places of what is left."""
    return min(range(1, extent + 1), key=lambda n: -(-extent // n) + n + extent % n)


def _runs(positions: list[int]) -> list[tuple[int, int, int]]:
    """(first, count, step) of evenly spaced runs that follow each other."""
    runs: list[tuple[int, int, int]] = []
    for position in positions:
        first, count, step = runs[-1] if runs else (0, 0, 0)
        if count == 1 and position > first:
            runs[-1] = (first, 2, position - first)
        elif count > 1 and position == first + step * count:
            runs[-1] = (first, count + 1, step)
        else:
            runs.append((position, 1, 1))
    return runs


_SHORT = 8
"""Elements that are too few in a row to be written to memory."""


def concat(node: Node) -> None:
    """Inputs side by side along an axis: one copy each, into a slice of the result, which is laid
    out as most of it is unless a slice would be a few elements here and there."""
    shape = node.shape()
    axis = int(node.attribute("axis")) % len(shape)
    parts = [node.tensor(position, node.dtype()) for position in range(len(node.node.inputs))]
    order = order_like(max(parts, key=lambda t: (t.data is None, t.elements)))
    thinnest = min((part.shape[axis] for part in parts if part.elements), default=0)
    if thinnest * prod(shape[a] for a in order[order.index(axis) + 1 :]) < _SHORT:
        order = tuple(range(len(shape)))
    out = node.build.create(node.out, shape, node.dtype(), order)
    start = 0
    for position, part in enumerate(parts):
        if part.elements:
            place = along(axis, start, part.shape[axis])
            node.build.copied(node.build.view(f"{node.out}.part{position}", out, place), part)
        start += part.shape[axis]


def pad(node: Node) -> None:
    """A border around the input: of one value, or of the input's own positions."""
    x, shape = node.tensor(0), node.shape()
    amounts = np.zeros((len(shape), 2), np.int64)
    amounts[node.constant(3) if node.has(3) else ...] = node.constant(1).reshape(2, -1).T
    pads = [(int(before), int(after)) for before, after in amounts]
    mode = str(node.attribute("mode", "constant"))
    if mode != "constant":
        _pad_by_positions(node, x, pads, mode)
        return
    value = float(node.constant(2).reshape(())) if node.has(2) else 0.0
    index = tuple(at(axis, 1, -before) for axis, (before, _) in enumerate(pads))
    out = node.build.create(node.out, shape, node.dtype(), order_like(x))
    node.build.add(plain(out.name, shape, "move", (Access(x.name, index, value),)))


def _pad_by_positions(node: Node, x: Tensor, pads: list[tuple[int, int]], mode: str) -> None:
    changed = [axis for axis, pair in enumerate(pads) if any(pair)]
    node.compose()
    for axis in changed:
        # What negative amounts take away is no part of what is repeated or mirrored.
        before, behind = pads[axis]
        kept = np.arange(max(0, -before), x.shape[axis] + min(0, behind))
        if not kept.size:
            raise NoNest(f"Pad by {mode} of nothing")
        around = max(0, before), max(0, behind)
        positions = np.pad(kept, around, mode=mode)  # type: ignore[call-overload]
        name = node.out if axis == changed[-1] else f"{node.out}.axis{axis}"
        x = take(node, x, axis, positions, name)
    if not changed:
        node.build.view(node.out, x, itemgetter(...))


def order_like(x: Tensor) -> tuple[int, ...]:
    """Axes of `x` as they lie in memory, slowest first."""
    return tuple(int(a) for a in np.argsort([-s for s in x.storage.strides], kind="stable"))


def repeated(
    node: Node, x: Tensor, name: str, factors: tuple[int, ...], tiled: bool = False
) -> None:
    """`x` with each element (`tiled`: each whole axis) repeated `factors` times."""
    shape = tuple(n * f for n, f in zip(x.shape, factors, strict=True))
    out = node.build.create(name, shape, x.dtype, order_like(x))
    sizes: list[int] = []
    index: list[Affine] = []
    for extent, factor in zip(x.shape, factors, strict=True):
        index.append(at(len(sizes) + (tiled and factor > 1)))
        both = (factor, extent) if tiled else (extent, factor)
        sizes += both if factor > 1 or extent == 1 else (extent,)
    view = node.build.view(f"{name}.split", out, reshaped(*sizes))
    node.build.add(plain(view.name, view.shape, "move", (Access(x.name, tuple(index)),)))


def tile(node: Node) -> None:
    """The whole input again and again along each axis."""
    x = node.tensor(0)
    factors = tuple(int(n) for n in node.constant(1))
    if x.elements == 0 or 0 in factors:
        raise NoNest("Tile of nothing")
    repeated(node, x, node.out, factors, tiled=True)


def blocks(node: Node) -> None:
    """Channels become pixels of blocks, or the other way: one copy between two views with split
    axes."""
    x, b, deepens = node.tensor(0), int(node.attribute("blocksize")), node.op == "SpaceToDepth"
    out = node.build.create(node.out, node.shape(), x.dtype, (0, 2, 3, 1))
    deep, wide = (out, x) if deepens else (x, out)
    n, c, h, w = wide.shape
    dcr = node.attribute("mode", "DCR") == "DCR"

    def split_channels(deep: Array) -> Array:
        if dcr:
            return reshaped(n, b, b, c, h // b, w // b)(deep).transpose(0, 3, 4, 1, 5, 2)
        return reshaped(n, c, b, b, h // b, w // b)(deep).transpose(0, 1, 4, 2, 5, 3)

    changes = {deep.name: split_channels, wide.name: reshaped(n, c, h // b, b, w // b, b)}
    source = node.build.view(f"{node.out}.read", x, changes[x.name])
    node.build.copied(node.build.view(f"{node.out}.written", out, changes[out.name]), source)


def trilu(node: Node) -> None:
    """The upper or lower triangle, zeros elsewhere: a choice by a constant mask."""
    x = node.tensor(0)
    k = int(node.constant(1).reshape(())) if node.has(1) else 0
    full = np.ones(x.shape[-2:], np.bool_)
    mask = np.triu(full, k) if node.attribute("upper", 1) else np.tril(full, k)
    kept, zero = node.number("mask", mask), node.number("zero", np.zeros(1, np.float32), x.dtype)
    node.step("", "select", kept, x, zero)


TABLE: dict[str, Lowering] = {
    "Reshape": reshape, "Identity": reshape, "Transpose": transpose, "Slice": slicing,
    "Split": split, "Expand": expand, "Gather": gather, "Concat": concat, "Pad": pad,
    "DepthToSpace": blocks, "SpaceToDepth": blocks, "Tile": tile, "Trilu": trilu,
}  # fmt: skip
