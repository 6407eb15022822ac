"""Data movement: views where strides express it, else one copying nest.

Concatenation is the reverse of a view: its inputs get addresses inside one buffer after all nests
are known (`compiler.tensor_ir.join`), so their producers write there directly.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.lowering.node import Lowering, Node, NoNest
from compiler.tensor_ir.build import plain, reshaped
from compiler.tensor_ir.nest import Access, Affine, Array, Storage, Tensor, at, row_major


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
    """A box of the input, possibly with steps; for negative steps one copy per position."""
    x = node.tensor(0)
    rank = len(x.shape)
    starts, ends = node.constant(1), node.constant(2)
    axes = node.constant(3) if node.has(3) else np.arange(len(starts))
    steps = node.constant(4) if node.has(4) else np.ones(len(starts), np.int64)
    offset, strides, shape = x.storage.offset, list(x.storage.strides), list(x.shape)
    backwards: dict[int, range] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = int(axis) % rank
        positions = range(*slice(int(start), int(end), int(step)).indices(x.shape[place]))
        if step < 0 and len(positions) > 1:
            backwards[place] = positions
            continue
        offset += positions.start * strides[place]
        strides[place] *= abs(int(step))
        shape[place] = len(positions)
    storage = Storage(x.storage.buffer, offset, tuple(strides))
    name = f"{node.out}.forwards" if backwards else node.out
    x = node.build.view(name, tuple(shape), storage, x)
    node.build.composite = node.build.composite or (node.out if len(backwards) > 1 else None)
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
    """Constant positions along an axis: a view where they are evenly spaced, else copies."""
    x, indices = node.tensor(0), node.constant(1)
    axis = int(node.attribute("axis", 0)) % len(x.shape)
    flat = indices.reshape(-1).astype(np.int64) % x.shape[axis]
    if flat.size == 0:
        raise NoNest("Gather of nothing")
    taken = take(node, x, axis, flat, node.out if indices.ndim == 1 else f"{node.out}.flat")
    if indices.ndim != 1:
        inner = row_major(indices.shape)
        stride = taken.storage.strides[axis]
        before, after = taken.storage.strides[:axis], taken.storage.strides[axis + 1 :]
        strides = (*before, *(n * stride for n in inner), *after)
        node.build.view(node.out, node.shape(), replace(taken.storage, strides=strides), taken)


def take(node: Node, x: Tensor, axis: int, positions: Array, name: str) -> Tensor:
    """`x` at `positions` along `axis`, called `name`: a view or one copy per evenly spaced run.

    Raises NoNest where there are more runs than `LoweringLimits` allow.
    """
    runs = _runs([int(p) for p in positions])
    if len(runs) == 1:
        return _run_of(node, x, axis, runs[0], name)
    if len(runs) > node.limits.runs:
        raise NoNest(f"{node.op} of positions in {len(runs)} separate runs")
    shape = (*x.shape[:axis], len(positions), *x.shape[axis + 1 :])
    out = node.build.create(name, shape, x.dtype, order_like(x))
    start = 0
    for number, run in enumerate(runs):
        source = _run_of(node, x, axis, run, f"{name}.from{number}")
        offset = start * out.storage.strides[axis]
        storage = replace(out.storage, offset=offset)
        target = node.build.view(f"{name}.to{number}", source.shape, storage, out)
        access = node.build.access(source, source.shape)
        node.build.add(plain(target.name, source.shape, "move", (access,)))
        start += run[2]
    return out


def _runs(positions: list[int]) -> list[tuple[int, int, int]]:
    """(first, step, count) of evenly spaced runs that follow each other."""
    runs: list[tuple[int, int, int]] = []
    for position in positions:
        first, step, count = runs[-1] if runs else (0, 0, 0)
        if count == 1 and position > first:
            runs[-1] = (first, position - first, 2)
        elif count > 1 and position == first + step * count:
            runs[-1] = (first, step, count + 1)
        else:
            runs.append((position, 1, 1))
    return runs


def _run_of(node: Node, x: Tensor, axis: int, run: tuple[int, int, int], name: str) -> Tensor:
    first, step, count = run
    strides = list(x.storage.strides)
    offset = x.storage.offset + first * strides[axis]
    strides[axis] *= step
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return node.build.view(name, shape, Storage(x.storage.buffer, offset, tuple(strides)), x)


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
    """A border around the input: of one value, or of the input's own positions."""
    x, shape = node.tensor(0), node.shape()
    rank = len(shape)
    amounts = [int(n) for n in node.constant(1)]
    axes = [int(a) % rank for a in node.constant(3)] if node.has(3) else list(range(rank))
    half = len(amounts) // 2
    before = dict(zip(axes, amounts[:half], strict=True))
    after = dict(zip(axes, amounts[half:], strict=True))
    mode = str(node.attribute("mode", "constant"))
    if mode != "constant":
        _pad_by_positions(node, x, [(before.get(a, 0), after.get(a, 0)) for a in range(rank)], mode)
        return
    value = float(node.constant(2).reshape(())) if node.has(2) else 0.0
    x = _cropped(node, x, [(-before.get(a, 0), -after.get(a, 0)) for a in range(rank)])
    index = tuple(at(axis, 1, -max(0, before.get(axis, 0))) for axis in range(rank))
    out = node.build.create(node.out, shape, node.dtype(), order_like(x))
    node.build.add(plain(out.name, shape, "move", (Access(x.name, index, value),)))


def _cropped(node: Node, x: Tensor, less: list[tuple[int, int]]) -> Tensor:
    """A view of `x` without its first and last elements of each axis; negative: all of them."""
    if max(max(pair) for pair in less) <= 0:
        return x
    firsts, lasts = zip(*((max(0, a), max(0, b)) for a, b in less), strict=True)
    shape = tuple(n - a - b for n, a, b in zip(x.shape, firsts, lasts, strict=True))
    if min(shape) < 1:
        raise NoNest("Pad that leaves nothing of its input")
    offset = sum(a * stride for a, stride in zip(firsts, x.storage.strides, strict=True))
    storage = replace(x.storage, offset=x.storage.offset + offset)
    return node.build.view(f"{node.out}.cropped", shape, storage, x)


def _pad_by_positions(node: Node, x: Tensor, pads: list[tuple[int, int]], mode: str) -> None:
    if min(min(pair) for pair in pads) < 0:
        raise NoNest(f"Pad by {mode} with negative amounts")
    changed = [axis for axis, pair in enumerate(pads) if any(pair)]
    node.build.composite = node.build.composite or node.out
    for axis in changed:
        positions = np.pad(np.arange(x.shape[axis]), pads[axis], mode=mode)  # type: ignore[call-overload]
        name = node.out if axis == changed[-1] else f"{node.out}.axis{axis}"
        x = take(node, x, axis, positions, name)
    if not changed:
        node.build.view(node.out, x.shape, x.storage, x)


def order_like(x: Tensor) -> tuple[int, ...]:
    """Axes of `x` as they lie in memory, slowest first."""
    return tuple(int(a) for a in np.argsort([-s for s in x.storage.strides], kind="stable"))


def repeated(
    node: Node, x: Tensor, name: str, factors: tuple[int, ...], tiled: bool = False
) -> None:
    """`x` with each element (`tiled`: each whole axis) repeated `factors` times."""
    shape = tuple(n * f for n, f in zip(x.shape, factors, strict=True))
    out = node.build.create(name, shape, x.dtype, order_like(x))
    split_shape: list[int] = []
    strides: list[int] = []
    index: list[Affine] = []
    for axis, (extent, factor) in enumerate(zip(x.shape, factors, strict=True)):
        stride = out.storage.strides[axis]
        own, other = (
            (extent, stride * (1 if tiled else factor)),
            (factor, stride * (extent if tiled else 1)),
        )
        index.append(at(len(split_shape) + (tiled and factor > 1)))
        for n, s in (other, own) if tiled else (own, other):
            if factor > 1 or (n, s) == own:
                split_shape.append(n)
                strides.append(s)
    storage = replace(out.storage, strides=tuple(strides))
    view = node.build.view(f"{name}.split", tuple(split_shape), storage, out)
    node.build.add(plain(view.name, view.shape, "move", (Access(x.name, tuple(index)),)))


def tile(node: Node) -> None:
    """The whole input again and again along each axis."""
    x = node.tensor(0)
    factors = tuple(int(n) for n in node.constant(1))
    if x.elements == 0 or 0 in factors:
        raise NoNest("Tile of nothing")
    repeated(node, x, node.out, factors, tiled=True)


def depth_to_space(node: Node) -> None:
    """Channels become pixels: one copy between two views with split axes."""
    x, b = node.tensor(0), int(node.attribute("blocksize"))
    n, c, h, w = x.shape
    deep = c // (b * b)
    out = node.build.create(node.out, node.shape(), x.dtype, (0, 2, 3, 1))
    shape = (n, deep, h, b, w, b)
    _copied(node, x, _deep(node, x, deep, b), out, _wide(out, b), shape)


def space_to_depth(node: Node) -> None:
    """Pixels of a block become channels: the copy of depth_to_space, the other way."""
    x, b = node.tensor(0), int(node.attribute("blocksize"))
    n, c, h, w = x.shape
    out = node.build.create(node.out, node.shape(), x.dtype, (0, 2, 3, 1))
    shape = (n, c, h // b, b, w // b, b)
    _copied(node, x, _wide(x, b), out, _deep(node, out, c, b), shape)


def _deep(node: Node, t: Tensor, channels: int, b: int) -> tuple[int, ...]:
    """Strides (n, c, h, row, w, column) of `t`, whose channels hold blocks of b x b pixels."""
    sn, sc, sh, sw = t.storage.strides
    if node.attribute("mode", "DCR") == "DCR":
        return (sn, sc, sh, sc * b * channels, sw, sc * channels)
    return (sn, sc * b * b, sh, sc * b, sw, sc)


def _wide(t: Tensor, b: int) -> tuple[int, ...]:
    """Strides (n, c, h, row, w, column) of `t`, whose rows and columns hold the blocks."""
    sn, sc, sh, sw = t.storage.strides
    return (sn, sc, sh * b, sh, sw * b, sw)


def _copied(
    node: Node,
    x: Tensor,
    read: tuple[int, ...],
    out: Tensor,
    written: tuple[int, ...],
    shape: tuple[int, ...],
) -> None:
    """Copy `x`, seen in `shape` by strides `read`, to `out`, seen by strides `written`."""
    build = node.build
    source = build.view(f"{node.out}.read", shape, replace(x.storage, strides=read), x)
    target = build.view(f"{node.out}.written", shape, replace(out.storage, strides=written), out)
    build.add(plain(target.name, shape, "move", (build.access(source, shape),)))


def trilu(node: Node) -> None:
    """The upper or lower triangle, zeros elsewhere: a choice by a constant mask."""
    x = node.tensor(0)
    k = int(node.constant(1).reshape(())) if node.has(1) else 0
    full = np.ones(x.shape[-2:], np.bool_)
    mask = np.triu(full, k) if node.attribute("upper", 1) else np.tril(full, k)
    kept = node.build.constant(f"{node.out}.mask", mask)
    zero = node.build.constant(f"{node.out}.zero", np.zeros(1, np.float32), x.dtype)
    node.build.elementwise(node.out, x.shape, "select", [kept, x, zero], node.dtype())


TABLE: dict[str, Lowering] = {
    "Reshape": reshape, "Flatten": reshape, "Squeeze": reshape, "Unsqueeze": reshape,
    "Identity": reshape, "Transpose": transpose, "Slice": slicing,
    "Split": split, "Expand": expand, "Gather": gather, "Concat": concat, "Pad": pad,
    "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth, "Tile": tile, "Trilu": trilu,
}  # fmt: skip
