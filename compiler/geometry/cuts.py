"""Ways to split a result over the cores: grids along one or two of its dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.nest.bounds import Box


def cut_axes(shape: tuple[int, ...]) -> list[int]:
    """Axes of a result that tiles and cores may cut: batch, rows; tokens; never channels."""
    if len(shape) >= 4:
        axes = [0, 2]
    elif len(shape) == 3:
        axes = [0, 1]
    else:
        axes = [0]
    return [axis for axis in axes if axis < len(shape) and shape[axis] > 1]


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
