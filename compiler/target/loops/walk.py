"""Loops with the byte strides of an instruction's operands, and their text.

    64 x 8 x 8   dst 1 512 64   a 64 8 1

Three loops of 64, 8 and 8 iterations; neighbours along the first are 1 byte apart in `dst` and 64
in `a`. A stride of 0: the operand does not move along that loop. Loops count from zero; starts are
in the operands' addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class StridedLoop(NamedTuple):
    """One loop."""

    extent: int
    steps: tuple[int, ...]
    """Bytes from one position to the next, of what is written and of each operand read."""
    grain: int = 1
    """It may only be cut at multiples of it: elements that share a byte stay together."""
    short: bool = False
    """Whether it may turn less often when it runs: no loop around it follows on."""


Loops = tuple[StridedLoop, ...]
"""Slowest first, in the order of the operand that leads the walk."""


def printed(loops: Loops, names: tuple[str, ...]) -> str:
    """Text of `loops`; `names` are of the operands, what is written first."""
    extents = " x ".join(str(axis.extent) for axis in loops) or "1"
    sides = (
        " ".join([name, *(str(axis.steps[number]) for axis in loops)])
        for number, name in enumerate(names)
    )
    return "   ".join([extents, *sides])


def parsed(text: str) -> Loops:
    """The loops that `text` says."""
    extents, *sides = text.strip().split("   ")
    columns = [list(map(int, side.split()[1:])) for side in sides]
    sizes = [int(each) for each in extents.split(" x ")]
    return tuple(
        StridedLoop(size, tuple(column[number] for column in columns))
        for number, size in enumerate(sizes)
        if size > 1 or columns[0]
    )


# A row that is longer than an instruction's longest is cut: where, for an engine to choose from.


def cuts(extent: int, longest: int, grain: int, *, spare: bool) -> Iterator[int]:
    """Sizes of the pieces into which a row of `extent` may be cut.

    Args:
        extent: of the row.
        longest: elements along the innermost dimension of an instruction.
        grain: pieces begin at multiples of it.
        spare: whether the engine has a dimension left, to walk a piece as several rows.
    """
    if extent <= longest:
        yield extent
        return
    most = longest // grain * grain
    if spare:
        yield extent
        yield extent // most * most
    yield most
    even = -(-extent // most)
    if extent % even == 0 and extent // even % grain == 0:
        yield extent // even
