"""Fission: one operator as a chain of instructions, each over the whole tile.

    y = sum over i=3 of mul(x[n + i], w[i]) + b      on an engine without windows
    mul(x, w) at 0
    fma(x, w, <) at 1
    fma(x, w, <) at 2
    add(<, b)

`<` is the previous instruction's result: real values in the widest type, which only the last
instruction clips and encodes. Cost model, plan (for intermediate buffers) and emission use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import product
from typing import Literal, NamedTuple

from compiler.tensor_ir.nest import Nest
from simmodel.isa.functions import JOINS


class SplitInstruction(NamedTuple):
    """One instruction of a chain, or several alike that walk all loops together."""

    function: str
    reads: tuple[int | None, ...]
    """Indices into the nest's accesses; None: the previous instruction's result, for the first one
    the partial sums."""
    kind: Literal["each", "reduce", "window"] = "each"
    """Element by element, over the loops of the reduction, or sliding along them."""
    at: tuple[int, ...] | None = None
    """Its position of the reduction loops; None: it walks them, or there are none."""
    parameters: tuple[float, ...] = ()


def fission(
    nest: Nest, *, own: bool = True, taps: Sequence[int] = (), windows: bool = False,
    pieces: bool = False, chained: bool = False, started: bool = False,
) -> list[SplitInstruction]:  # fmt: skip
    """The chain of instructions of `nest`.

    Args:
        own: whether its own function is to be computed; else its sums are there, to be finished.
        taps: extents of the loops of a reduction that slides; empty: it does not.
        windows: whether one instruction slides.
        pieces: whether a reduction is made of several results that may not lie in the nest's.
        chained: whether one instruction adds the bias and multiplies.
        started: whether the sums have the bias.
    """
    links = list(_function(nest, taps, windows=windows)) if own else []
    late = [("add", None if started else nest.bias), ("mul", nest.multiplier)]
    wanted = [(function, nest.reads.index(access)) for function, access in late if access]
    if not wanted and (pieces or not own):
        links.append(SplitInstruction("move", (None,)))
    if chained and len(wanted) == 2:
        (first, bias), (second, multiplier) = wanted
        return [*links, SplitInstruction(f"{first}_{second}", (None, bias, multiplier))]
    return [*links, *(SplitInstruction(function, (None, access)) for function, access in wanted)]


def _function(nest: Nest, taps: Sequence[int], *, windows: bool) -> Iterable[SplitInstruction]:
    """What the nest does with its operands."""
    operands = tuple(range(len(nest.operands)))
    if nest.reduce is None:
        yield SplitInstruction(nest.function, operands, parameters=nest.parameters)
        return
    if not taps or windows:
        yield SplitInstruction(
            nest.reduce, operands if taps else operands[:1], "window" if taps else "reduce"
        )
        return
    first, more = ("mul", "fma") if len(operands) > 1 else ("move", JOINS[nest.reduce])
    for number, position in enumerate(product(*map(range, taps))):
        reads = (*operands, None) if number else operands
        yield SplitInstruction(more if number else first, reads, at=position)


# A loop over pieces, cut where a condition changes: runs of pieces that are alike.


class PieceRun(NamedTuple):
    """`count` pieces from number `first` on, each of `size` positions, from `start` on."""

    first: int
    times: int
    start: int
    size: int
    holds: Hashable = None
    """Value of the condition for each of them."""


Condition = Callable[[int, int, int], Hashable]
"""Function of a piece's number, first position and size."""


def runs(extent: int, size: int, holds: Condition | None = None, low: int = 0) -> list[PieceRun]:
    """Pieces of `size` of the positions low .. low + extent, the last one maybe smaller, in runs of
    those that have their size and what `holds` in common."""
    if holds is None:
        whole, rest = divmod(extent, size)
        found = [PieceRun(0, whole, low, size)] if whole else []
        return [*found, PieceRun(whole, 1, low + whole * size, rest)] if rest else found
    found = []
    for number, start in enumerate(range(low, low + extent, size)):
        here = min(size, low + extent - start)
        said = holds(number, start, here)
        if found and (found[-1].size, found[-1].holds) == (here, said):
            found[-1] = found[-1]._replace(times=found[-1].times + 1)
        else:
            found.append(PieceRun(number, 1, start, here, said))
    return found


def behind(extent: int, size: int, holds: Condition | None = None) -> list[PieceRun]:
    """`runs` of the positions 0 .. extent with the first piece last, numbered in that order: of an
    open number of positions that piece always exists."""
    first = min(size, extent)
    found, count = runs(extent - first, size, holds, first), -(-extent // size)
    said = None if holds is None else holds(count - 1, 0, first)
    return [*found, PieceRun(count - 1, 1, 0, first, said)]


def ends(count: int, *, first: bool, last: bool) -> Condition:
    """Whether a piece is the first of `count`, and whether the last, as far as that matters."""
    return lambda number, start, size: (first and number == 0, last and number == count - 1)


class Reach(NamedTuple):
    """Positions that an operand is read at along a loop: factor * position + constant + 0 ..
    window."""

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


# Loops with the byte strides of an instruction's operands; starts are in the operands' addresses.


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


Groups = tuple[tuple[int, ...], ...]
"""Loops merged into one, each by its indices, innermost first; slowest group first."""


def ordered(axes: Sequence[StridedLoop], lead: int) -> list[int]:
    """Loops with several iterations, in the order in which operand `lead` walks them, slowest
    first."""
    found = [n for n, axis in enumerate(axes) if axis.extent > 1]
    return sorted(found, key=lambda n: (-abs(axes[n].steps[lead]), n))


def groups(axes: Sequence[StridedLoop], order: Sequence[int]) -> Groups:
    """Which of `axes`, nested in this order, slowest first, all operands walk as one loop."""
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


def collapse(axes: Sequence[StridedLoop], lead: int = 0) -> Loops:
    """`axes` in the order of operand `lead`, what all walk as one as one."""
    made = []
    for group in groups(axes, ordered(axes, lead)):
        first, last = axes[group[0]], axes[group[-1]]
        extent = math.prod(axes[number].extent for number in group)
        made.append(StridedLoop(extent, first.steps, first.grain, last.short))
    return tuple(made)
