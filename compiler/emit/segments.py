"""Segments: runs of tiles of one loop that are alike, so that one hardware loop covers them.

Tiles differ at the borders: the first may need padding in front, the last may be smaller or hang
over the end, and under a reduction the first starts the sums and the last finishes them. Everything
between is one segment. Where a loop is cut at such conditions: `compiler.loops.runs`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from compiler.layer import Layer
from compiler.loops.runs import Reach, ends, runs
from compiler.schedule import TileLoop


@dataclass(frozen=True)
class Segment:
    """`count` tiles from number `first` on, each of `size` positions from `start` on."""

    first: int
    count: int
    start: int
    step: int
    size: int
    opens: bool
    """Contains the first tile of a reduction."""
    closes: bool
    """Contains the last tile of a reduction."""


def segments(
    layer: Layer, loop: TileLoop, low: int, extent: int, held: Collection[str] = ()
) -> list[Segment]:
    """Segments of `loop` over positions low .. low + extent; borders of `held` tensors are there
    already."""
    reaches = list(_reaches(layer, loop.dim, held))
    count = -(-extent // loop.size)
    alone = ends(count, first=loop.reduction, last=loop.reduction)

    def holds(number: int, start: int, size: int) -> object:
        return alone(number, start, size), tuple(reach.out(start, size) for reach in reaches)

    return [
        Segment(
            run.first, run.times, run.start, loop.size, run.size,
            opens=not loop.reduction or run.first == 0,
            closes=not loop.reduction or run.first + run.times == count,
        )
        for run in runs(extent, loop.size, holds, low)
    ]  # fmt: skip


def _reaches(layer: Layer, dim: int, held: Collection[str]) -> Iterator[Reach]:
    """How padded accesses read their tensors along loop `dim`."""
    for access in layer.head.reads:
        if access.pad is None or access.tensor in held:
            continue
        shape = layer.tensors[access.tensor].shape
        for affine, extent in zip(access.index, shape, strict=True):
            factor = affine.coefficient(dim)
            if factor:
                others = ((d, c) for d, c in affine.terms if d != dim)
                window = sum(abs(c) * (layer.head.dims[d].extent - 1) for d, c in others)
                yield Reach(factor, affine.constant, window, extent)
