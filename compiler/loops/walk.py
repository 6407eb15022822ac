"""Loops as the operands of an instruction walk them, and their text.

    64 x 8 x 8   dst 1 512 64   a 64 8 1

says that 64 times 8 times 8 positions are walked, that neighbours along the first loop lie 1 byte
apart in `dst` and 64 in `a`. An operand that stands still along a loop has 0 there. Loops count
from zero: where they begin is in the operands' addresses.
"""

from __future__ import annotations

from typing import NamedTuple


class Axis(NamedTuple):
    """One loop."""

    extent: int
    steps: tuple[int, ...]
    """Bytes from one position to the next, of what is written and of each operand read."""
    grain: int = 1
    """It may only be cut at multiples of it: elements that share a byte stay together."""
    short: bool = False
    """Whether it may turn less often when it runs: no loop around it follows on."""


Loops = tuple[Axis, ...]
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
        Axis(size, tuple(column[number] for column in columns))
        for number, size in enumerate(sizes)
        if size > 1 or columns[0]
    )
