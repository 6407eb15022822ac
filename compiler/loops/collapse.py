"""Neighbouring loops that every operand walks as one become one loop.

before:
    4 x 8 x 16   dst 128 16 1   a 128 16 1   b 16 0 1
after:
    4 x 8 x 16   dst 128 16 1   a 128 16 1   b 16 0 1      b stands still in the middle
    32 x 16      dst 16 1       a 16 1                     without b

An engine goes along the operand that leads it, the fastest dimension innermost, whatever order its
dimensions are named in (`simmodel.region.walk`); so loops are brought into that order first.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.loops.walk import Axis, Loops

Groups = tuple[tuple[int, ...], ...]
"""Loops that are one, each by its positions, the innermost of them first; slowest group first."""


def ordered(axes: Sequence[Axis], lead: int) -> list[int]:
    """Positions of the loops that turn more than once, as operand `lead` walks them, slowest
    first."""
    found = [n for n, axis in enumerate(axes) if axis.extent > 1]
    return sorted(found, key=lambda n: (-abs(axes[n].steps[lead]), n))


def groups(axes: Sequence[Axis], order: Sequence[int]) -> Groups:
    """Which of `axes`, nested in this order, slowest first, are one loop to every operand."""
    made: list[list[int]] = []
    size = 1
    for number in reversed(order):
        axis = axes[number]
        if made:
            inner = axes[made[-1][0]]
            on = not axes[made[-1][-1]].short
            if on and all(s == size * t for s, t in zip(axis.steps, inner.steps, strict=True)):
                made[-1].append(number)
                size *= axis.extent
                continue
        made.append([number])
        size = axis.extent
    return tuple(tuple(group) for group in reversed(made))


def joined(axes: Sequence[Axis], found: Groups) -> Loops:
    """One loop for each group."""
    made = []
    for group in found:
        extent = 1
        for number in group:
            extent *= axes[number].extent
        first, last = axes[group[0]], axes[group[-1]]
        made.append(Axis(extent, first.steps, first.grain, last.short))
    return tuple(made)


def collapse(axes: Sequence[Axis], lead: int = 0) -> Loops:
    """`axes` in the order of operand `lead`, what all walk as one as one."""
    return joined(axes, groups(axes, ordered(axes, lead)))
