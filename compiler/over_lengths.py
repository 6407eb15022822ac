"""Which of several programs for a range of lengths is best over the range.

    at 8, 4, 1 samples     2.54, 2.14, 2.02 million cycles     quickest at the upper edge
                           2.59, 1.74, 1.31                    2 % more there, less in all

The one idea: all are made for the upper edge, where one may take a little longer than the quickest
if that makes it quicker at lengths below, of which a few stand for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from simmodel.lengths import settled
from simmodel.program import Program

T = TypeVar("T")


def over_lengths(
    tried: Sequence[T], edge: Callable[[T], float], program: Callable[[T], Program],
    cycles: Callable[[Program], float], allowed: float,
) -> T:  # fmt: skip
    """The one of `tried` that takes fewest cycles over some lengths of its range.

    Args:
        tried: what was made for one range, or for one length: then the edge alone counts.
        edge: cycles at the upper edge, which are known.
        program: what is run.
        cycles: of a program without registers.
        allowed: share by which it may take longer at the edge than the quickest.
    """
    least = min(map(edge, tried))
    near = [each for each in tried if edge(each) <= (1 + allowed) * least]
    if len(near) == 1 or not program(near[0]).registers:
        return min(near, key=edge)

    def total(each: T) -> float:
        made = program(each)
        return edge(each) + sum(cycles(settled(made, lengths)) for lengths in _below(made))

    return min(near, key=total)


def _below(program: Program) -> Iterator[Mapping[str, int]]:
    """Half of all lengths, and the least of them."""
    own = [register for register in program.registers if not register.terms]
    yield {each.name: max(each.low, each.high // 2) for each in own}
    yield {each.name: each.low for each in own}
