"""Which of several costs are the best: less of everything is better.

The one idea: costs are tuples of equal length with the signs already turned, so nothing here knows
what they mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Costs = Sequence[Sequence[float]]


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether `one` is nowhere worse than `other`, and somewhere better."""
    no_worse = all(a <= b for a, b in zip(one, other, strict=True))
    return no_worse and any(a < b for a, b in zip(one, other, strict=True))


def front(costs: Costs) -> list[int]:
    """Indices of the costs that no other dominates, in their order; of equal ones all."""
    if not costs:
        return []
    points, places = np.unique(np.asarray(costs, dtype=float), axis=0, return_inverse=True)
    best, kept = np.empty_like(points), np.zeros(len(points), dtype=bool)
    count = 0
    for place, own in enumerate(points):  # in rising order: what dominates comes before
        if not (best[:count] <= own).all(axis=1).any():
            best[count], kept[place] = own, True
            count += 1
    return np.flatnonzero(kept[places.ravel()]).tolist()


def ranks(costs: Costs) -> list[int]:
    """For each cost its front: 0 for those that nothing dominates, 1 for the front of the rest."""
    found = [0] * len(costs)
    left, rank = list(range(len(costs))), 0
    while left:
        best = {left[i] for i in front([costs[i] for i in left])}
        for index in best:
            found[index] = rank
        left = [index for index in left if index not in best]
        rank += 1
    return found


def spread(costs: Costs) -> list[float]:
    """How lonely each cost is among the others: the distance between its neighbours in every
    direction, as a share of the whole; infinite at the ends."""
    found = [0.0] * len(costs)
    for axis in range(len(costs[0]) if costs else 0):
        order = sorted(range(len(costs)), key=lambda index: costs[index][axis])
        width = costs[order[-1]][axis] - costs[order[0]][axis]
        found[order[0]] = found[order[-1]] = math.inf
        for before, index, after in zip(order, order[1:], order[2:], strict=False):
            gap = costs[after][axis] - costs[before][axis]
            found[index] += gap / width if width else 0.0
    return found


# Which few of many points are worth a closer look: the fastest, then those that cover the front.

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
    taken += [(index, FRONT) for index in _farthest_first(costs, order[0], plateaus(costs, close))]
    return [*taken, *_next_fronts(costs, [index for index, _ in taken], count)][:count]


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


def _farthest_first(costs: Costs, first: int, others: Sequence[int]) -> list[int]:
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


def _next_fronts(costs: Costs, taken: Sequence[int], count: int) -> list[Taken]:
    """The rest, front behind front, the fastest first, until there are `count` with those taken."""
    left = [index for index in range(len(costs)) if index not in set(taken)]
    found: list[Taken] = []
    while left and len(taken) + len(found) < count:
        best = {left[place] for place in front([costs[index] for index in left])}
        found += [(index, NEXT) for index in sorted(best, key=lambda index: tuple(costs[index]))]
        left = [index for index in left if index not in best]
    return found


# How much is enough: where a curve has given nearly all that it gives.

CLOSE = 0.05
"""As much worse than the best as counts as nearly as good."""


def knee(values: Sequence[float], more: bool = False, close: float = CLOSE) -> int | None:
    """Index of the knee of a curve whose `values` belong to ascending amounts of something, of a
    delay to ever shorter ones.

    Args:
        values: positive; of less than three nothing can be said.
        more: whether more of them is better.
        close: the share by which larger amounts may still be better.
    """
    if len(values) < 3 or min(values) <= 0:
        return None
    for index, value in enumerate(values):
        rest = values[index:]
        enough = value >= (1 - close) * max(rest) if more else value * (1 - close) <= min(rest)
        if enough:
            return index if index < len(values) - 1 else None
    return None
