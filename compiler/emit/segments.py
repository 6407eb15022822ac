"""Segments: runs of tiles of one loop that are alike, so that one hardware loop covers them.

Tiles differ at the borders: the first may need padding in front, the last may be smaller or hang
over the end, and under a reduction the first starts the sums and the last finishes them. Everything
between is one segment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from compiler.layer import Layer
from compiler.nest.ir import Access
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
    count = -(-extent // loop.size)
    accesses = [
        (access, layer.tensors[access.tensor].shape)
        for access in layer.head.reads
        if access.pad is not None and access.tensor not in held
    ]
    found: list[Segment] = []
    previous: object = None
    for number in range(count):
        start = low + number * loop.size
        size = min(loop.size, low + extent - start)
        ends = (number == 0, number == count - 1) if loop.reduction else (True, True)
        kind = (size, tuple(_borders(accesses, layer, loop.dim, start, size)), ends)
        if found and kind == previous:
            last = found[-1]
            found[-1] = Segment(
                last.first, last.count + 1, last.start, last.step, size, last.opens, last.closes
            )
            continue
        found.append(Segment(number, 1, start, loop.size, size, *ends))
        previous = kind
    return found


def _borders(
    accesses: Iterable[tuple[Access, tuple[int, ...]]],
    layer: Layer,
    dim: int,
    start: int,
    size: int,
) -> Iterable[tuple[int, int]]:
    """How far each padded access reaches out of its tensor on both sides."""
    for access, shape in accesses:
        for affine, extent in zip(access.index, shape, strict=True):
            factor = affine.coefficient(dim)
            if not factor:
                continue
            window = sum(
                abs(c) * (layer.head.dims[d].extent - 1) for d, c in affine.terms if d != dim
            )
            low = affine.constant + factor * start
            high = low + factor * (size - 1) + window
            yield max(0, -low), max(0, high - extent + 1)
