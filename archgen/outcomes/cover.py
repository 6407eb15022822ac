"""Which few of many points are worth a closer look: the fastest, then those that cover the front.

The one idea: times are known less well than other costs. Of a plateau, points of the front whose
times are as good as equal, the cheapest speaks for all; between plateaus those are taken first that
are farthest from what is taken already, by factors, so that few points reach over the whole front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from archgen.outcomes.fronts import Costs, front

FASTEST, FRONT, NEXT = "fastest", "front", "next"
"""Why a point is taken: its time, its place on the front, or that the front was used up."""
Taken = tuple[int, str]
"""An index, and why."""
_LEAST = 1e-12
"""What costs nothing has a logarithm all the same."""


def covering(costs: Costs, count: int, close: float) -> list[Taken]:
    """Indices of `count` of the costs, the most telling first, each with why.

    Args:
        costs: a time, then what is known exactly, none below 0. Of equal ones the first counts.
        count: how many are taken, where there are as many.
        close: the share by which times may differ that are as good as equal.
    """
    if not costs or count < 1:
        return []
    order = sorted(range(len(costs)), key=lambda index: tuple(costs[index]))
    taken = [(order[0], FASTEST)]
    taken += [(index, FRONT) for index in _apart(costs, order[0], plateaus(costs, close))]
    return [*taken, *_next(costs, [index for index, _ in taken], count)][:count]


def plateaus(costs: Costs, close: float) -> list[int]:
    """Indices of the cheapest of each plateau of the front, in the order of times: a plateau begins
    with the fastest that is in none, and ends where times are longer than its own by `close`."""
    order = sorted(front(costs), key=lambda index: tuple(costs[index]))
    found: list[list[int]] = []
    for index in order:
        if not found or costs[index][0] > costs[found[-1][0]][0] * (1 + close):
            found.append([])
        found[-1].append(index)
    return [own[place] for own in found for place in _cheapest([costs[index][1:] for index in own])]


def _cheapest(costs: Costs) -> list[int]:
    """Indices of the front of `costs`, of equal ones of the first."""
    firsts = {tuple(costs[place]): place for place in reversed(front(costs))}
    return sorted(firsts.values())


def _apart(costs: Costs, first: int, others: Sequence[int]) -> list[int]:
    """`others` in the order in which each is the farthest from all before it and from `first`."""
    left = {index: _factor(costs[index], costs[first]) for index in others if index != first}
    found = []
    while left:
        index = max(left, key=lambda index: left[index])
        found.append(index)
        left = {
            other: min(far, _factor(costs[other], costs[index]))
            for other, far in left.items()
            if other != index
        }
    return found


def _factor(one: Sequence[float], other: Sequence[float]) -> float:
    """How far two costs are from each other: the distance of their logarithms."""
    return math.dist(*([math.log(max(each, _LEAST)) for each in costs] for costs in (one, other)))


def _next(costs: Costs, taken: Sequence[int], count: int) -> list[Taken]:
    """The rest, front behind front, the fastest first, until there are `count` with those taken."""
    left = [index for index in range(len(costs)) if index not in set(taken)]
    found: list[Taken] = []
    while left and len(taken) + len(found) < count:
        best = {left[place] for place in front([costs[index] for index in left])}
        found += [(index, NEXT) for index in sorted(best, key=lambda index: tuple(costs[index]))]
        left = [index for index in left if index not in best]
    return found
