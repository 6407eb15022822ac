"""Ways to split results: axes that tiles and cores may cut, grids along one or two of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from compiler.group import Group
from compiler.nest.bounds import Box


def cut_axes(shape: tuple[int, ...]) -> list[int]:
    """Axes of a result that tiles and cores mostly cut: batch, rows; tokens; never channels."""
    if len(shape) >= 4:
        axes = [0, 2]
    elif len(shape) == 3:
        axes = [0, 1]
    else:
        axes = [0]
    return [axis for axis in axes if axis < len(shape) and shape[axis] > 1]


def shared_axes(group: Group) -> list[int]:
    """Axes along which tiles and cores may cut all results of `group`; the columns of images last,
    where no product has its channels there."""
    shapes = [group.tensors[name].shape for name in group.results]
    last = shapes[-1]
    axes = cut_axes(last)
    column = len(last) - 1
    if len(last) > 2 and column not in axes and _slides(group, column):
        axes.append(column)
    return [a for a in axes if all(a < len(shape) and shape[a] == last[a] for shape in shapes)]


def _slides(group: Group, axis: int) -> bool:
    """Whether the group has products, and all of them move along their images with `axis`."""
    heads = [layer.head for layer in group.layers if layer.head.macs]
    return bool(heads) and all(a.operands[0].uses(axis) for a in heads if axis < a.rank)


def worth_cutting(group: Group) -> list[int]:
    """Those of `shared_axes` that a search looks at: columns where images are wider than high,
    as what neighbours share is then smaller."""
    last = group.tensors[group.results[-1]].shape
    usual = cut_axes(last)
    return [a for a in shared_axes(group) if a in usual or last[a] > last[a - 1]]


def grids(
    extents: Sequence[int], splittable: Sequence[int], cores: int
) -> Iterator[dict[int, int]]:
    """Dimension -> number of parts, for all grids of at most `cores` parts worth trying.

    Whole chips first: grids that leave cores idle are offered only when the extents force it.
    """
    found: dict[tuple[tuple[int, int], ...], int] = {}
    for first in splittable:
        for parts in _counts(extents[first], cores):
            found[((first, parts),)] = parts
            for second in splittable:
                if second <= first or parts == 1:
                    continue
                other = min(cores // parts, extents[second])
                if other > 1:
                    found[((first, parts), (second, other))] = parts * other
    best = max(found.values(), default=1)
    yield {}
    for grid, count in found.items():
        if count > 1 and count * 2 > best:
            yield dict(grid)


def _counts(extent: int, cores: int) -> list[int]:
    powers = {1 << shift for shift in range(cores.bit_length())} | {cores}
    return sorted(n for n in powers | {min(cores, extent)} if n <= extent and n <= cores)


def anything(parts: tuple[Box, ...]) -> bool:
    """The rule that allows any parts."""
    del parts
    return True


def boxes(extents: Sequence[int], grid: dict[int, int], grain: dict[int, int]) -> tuple[Box, ...]:
    """The box of each part; cuts along a dimension fall on multiples of its `grain`."""
    axes: list[list[tuple[int, int]]] = []
    for dim, extent in enumerate(extents):
        axes.append(_cut(extent, grid.get(dim, 1), grain.get(dim, 1)))
    parts: list[Box] = [()]
    for axis in axes:
        parts = [(*part, piece) for part in parts for piece in axis]
    return tuple(parts)


def _cut(extent: int, parts: int, grain: int) -> list[tuple[int, int]]:
    units = -(-extent // grain)
    parts = min(parts, units)
    cuts = []
    for part in range(parts):
        low, high = units * part // parts * grain, units * (part + 1) // parts * grain
        cuts.append((low, min(high, extent) - low))
    return cuts


def telling(parts: Sequence[Box]) -> tuple[int, ...]:
    """Numbers of the parts that stand for all: the first, and of the others the largest nearest the
    middle."""
    if len(parts) < 3:
        return (max(range(len(parts)), key=lambda p: _volume(parts[p])),)
    middle = len(parts) // 2
    inside = max(range(1, len(parts)), key=lambda p: (_volume(parts[p]), -abs(p - middle)))
    return 0, inside


def _volume(box: Box) -> int:
    return math.prod(size for _, size in box)
