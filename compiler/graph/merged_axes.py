"""Reshapes that merge axes of which several are open, as what they merge.

    [batch, seq, 12] -> [batch*seq, 3, 4]        is [batch, seq, 3, 4] -> [(batch, seq), 3, 4]

The one idea: a buffer is laid out for the most that there can be of each axis, so an axis that is
made of several is one only where the slowest of them alone is open. Any other one is no sum of
multiples of lengths, or has gaps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import NamedTuple


class Piece(NamedTuple):
    """An axis before it is merged with others."""

    extent: int
    open: bool


Pieces = tuple[Piece, ...]
"""What one axis is made of, slowest first."""


def pieces_of(shape: Sequence[int], open_axes: Collection[int]) -> Pieces:
    """The axes of a value, each as a piece."""
    return tuple(Piece(extent, axis in open_axes) for axis, extent in enumerate(shape))


def extents(axes: Iterable[Pieces]) -> tuple[int, ...]:
    """The shape of a value whose axes are not merged."""
    return tuple(piece.extent for piece in chain.from_iterable(axes))


def has_gaps(pieces: Pieces) -> bool:
    """Whether a buffer has no single axis for `pieces`: one is open behind another one."""
    several = False
    for piece in pieces:
        if piece.open and several:
            return True
        several |= piece.open or piece.extent > 1
    return False


def merged(source: Pieces, target: Pieces) -> tuple[Pieces, ...] | None:
    """What each axis of a Reshape is made of; axes that have gaps of several pieces, others of
    themselves alone. None: what becomes of open axes cannot be told."""
    if not all(piece.extent for piece in (*source, *target)):
        return None
    found: list[Pieces] = []
    for before, behind in _stretches(source, target):
        apart = _runs(before, behind) if has_gaps(before) else []
        if apart is None:
            return None
        found += apart if any(map(has_gaps, apart)) else [(piece,) for piece in behind]
    return tuple(found)


def _stretches(source: Pieces, target: Pieces) -> Iterator[tuple[Pieces, Pieces]]:
    """The least stretches of axes that have as many elements in the source as in the target."""
    i = j = 0
    while i < len(source) or j < len(target):
        first, start = i, j
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while (ours := _size(source[first:i])) != (theirs := _size(target[start:j])):
            i, j = (i + 1, j) if ours < theirs else (i, j + 1)
        yield source[first:i], target[start:j]


def _size(pieces: Pieces) -> int:
    return prod(piece.extent for piece in pieces)


def _runs(source: Pieces, target: Pieces) -> list[Pieces] | None:
    """What each axis of one stretch is made of, where a fixed axis may be cut in two."""
    left = list(source)
    runs: list[Pieces] = []
    for axis in reversed(target):
        wanted, run = axis.extent, [axis] if axis.extent == 1 else []
        while wanted > 1:
            piece = left.pop()
            if wanted % piece.extent == 0:
                wanted //= piece.extent
            elif piece.extent % wanted == 0 and not piece.open:
                left.append(Piece(piece.extent // wanted, False))
                piece, wanted = Piece(wanted, False), 1
            else:
                return None
            run.insert(0, piece)
        runs.insert(0, tuple(run))
    return [(*left, *runs[0]), *runs[1:]] if runs else None
