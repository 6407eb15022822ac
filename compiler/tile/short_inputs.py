"""What a split over cores costs short inputs, in a program for a range of lengths.

    batch 1..8, of 8 cores each takes a sample     at 1 seven of them have nothing to do
    batch 1..8, of 8 cores each takes rows         at 1 all of them have an eighth of a sample

The one idea: a program is made for the most that there can be, and keeps its split at all lengths;
so a split that leaves cores idle at most of these must be worth it where the program is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.nest.bounds import Box
from compiler.nest.ir import Tensor
from compiler.schedule import Schedule


def charge(result: Tensor, parts: Sequence[Box], most: float) -> float:
    """Times its cycles that a schedule counts for whose cores take `parts` of `result`: more than
    1 where cores are idle at lengths below the most, on average over all of these, and never above
    1 + `most`."""
    cost = 1.0
    for axis, count in enumerate(result.counts):
        if count is not None:
            among = len({part[axis][0] for part in parts})
            cost *= _rounded_up(result.shape[axis], among)
    return min(cost, 1 + most)


def charge_of(schedule: Schedule, most: float) -> float:
    """The same of the split of a schedule."""
    group = schedule.group
    return charge(group.tensors[group.results[-1]], schedule.parts, most)


def _rounded_up(most: int, among: int) -> float:
    """Positions that cores seem to have, each as many as the first, over those that there are."""
    whole, rest = divmod(most, among)
    seeming = among * (among * whole * (whole + 1) // 2 + rest * (whole + 1))
    return seeming / math.comb(most + 1, 2)
