"""A loop over pieces, cut where a condition changes: runs of pieces that are alike.

    28 in pieces of 8, each read with 3 positions from one before it on, of 28
    1 x 8 at 0     reaches out by 1 before it
    2 x 8 at 8
    1 x 4 at 24    a smaller one, reaches out by 1 behind

Within a run no condition needs to be asked: what depends on it (a border, the start or the end of a
sum, the size of the last piece) is the same for all, so it stands before the loop. Each run is a
loop of its own, which counts from zero; where it starts is in the addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple


class Run(NamedTuple):
    """As many pieces from number `first` on, each of `size` positions, from `start` on."""

    first: int
    times: int
    start: int
    size: int
    holds: Hashable = None
    """What the condition says of each of them."""


Condition = Callable[[int, int, int], Hashable]
"""Of a piece's number, its first position and its size."""


def runs(extent: int, size: int, holds: Condition | None = None, low: int = 0) -> list[Run]:
    """Pieces of `size` of the positions low .. low + extent, the last one maybe smaller, in runs.

    Args:
        extent: positions.
        size: of a piece.
        holds: what pieces of one run have in common; None: nothing but their size.
        low: first position.
    """
    if holds is None:
        whole, rest = divmod(extent, size)
        found = [Run(0, whole, low, size)] if whole else []
        return [*found, Run(whole, 1, low + whole * size, rest)] if rest else found
    found = []
    for number, start in enumerate(range(low, low + extent, size)):
        here = min(size, low + extent - start)
        said = holds(number, start, here)
        if found and (found[-1].size, found[-1].holds) == (here, said):
            found[-1] = found[-1]._replace(times=found[-1].times + 1)
        else:
            found.append(Run(number, 1, start, here, said))
    return found


def behind(extent: int, size: int, holds: Condition | None = None) -> list[Run]:
    """`runs` of the positions 0 .. extent with the first piece at the end, numbered in that order:
    of an open number of positions it is the only one that is there in any case."""
    first = min(size, extent)
    found, count = runs(extent - first, size, holds, first), -(-extent // size)
    said = None if holds is None else holds(count - 1, 0, first)
    return [*found, Run(count - 1, 1, 0, first, said)]


def ends(count: int, *, first: bool, last: bool) -> Condition:
    """Whether a piece is the first of `count`, and whether the last, as far as that matters."""
    return lambda number, start, size: (first and number == 0, last and number == count - 1)


class Reach(NamedTuple):
    """How an operand is read along a loop: at factor * position + constant + 0 .. window."""

    factor: int
    constant: int
    window: int
    extent: int
    """Positions that the operand has."""

    def out(self, start: int, size: int) -> tuple[int, int]:
        """How far positions start .. start + size reach out of it, before and behind."""
        low = self.constant + self.factor * start
        high = low + self.factor * (size - 1) + self.window
        return max(0, -low), max(0, high - self.extent + 1)


def printed(found: list[Run]) -> str:
    """Runs as lines of text."""
    lines = (f"{run.times} x {run.size} at {run.start}" for run in found)
    said = ("" if run.holds is None else f"  {run.holds}" for run in found)
    return "\n".join(f"{line}{more}" for line, more in zip(lines, said, strict=True))
