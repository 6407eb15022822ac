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
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


def pareto_front(costs: Costs) -> list[int]:
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


def pareto_ranks(costs: Costs) -> list[int]:
    """For each cost its front: 0 for those that nothing dominates, 1 for the front of the rest."""
    found = [0] * len(costs)
    left, rank = list(range(len(costs))), 0
    while left:
        best = {left[place] for place in pareto_front([costs[index] for index in left])}
        for index in best:
            found[index] = rank
        left, rank = [index for index in left if index not in best], rank + 1
    return found


def crowding_distances(costs: Costs) -> list[float]:
    """How lonely each cost is among the others: the distance between its neighbours in every
    direction, as a share of the whole; infinite at the ends."""
    found = np.zeros(len(costs))
    for values in np.asarray(costs, dtype=float).T:
        order = np.argsort(values, kind="stable")
        own = values[order]
        width = own[-1] - own[0]
        found[order[1:-1]] += (own[2:] - own[:-2]) / width if width else 0.0
        found[order[[0, -1]]] = math.inf
    return found.tolist()


# Which few of many points are worth a closer look: the fastest, then those that cover the front.

FASTEST, FRONT, NEXT = "fastest", "front", "next"
"""Why a point is taken: its time, its place on the front, or that the front was used up."""
_LEAST = 1e-12
"""What costs nothing has a logarithm all the same."""


def representatives(costs: Costs, count: int, close: float) -> list[tuple[int, str]]:
    """Indices of at most `count` of the costs, the most telling first, each with why: a time, then
    what is known exactly, none below 0; of equal ones the first counts. `close` is the share by
    which times may differ that are as good as equal."""
    if not costs or count < 1:
        return []
    first = min(range(len(costs)), key=lambda index: tuple(costs[index]))
    along = _farthest_first(costs, first, plateaus(costs, close))
    rest = [index for index in range(len(costs)) if index not in {first, *along}]
    order = dict(zip(rest, pareto_ranks([costs[index] for index in rest]), strict=True))
    rest.sort(key=lambda index: (order[index], *costs[index]))
    return [(first, FASTEST), *((i, FRONT) for i in along), *((i, NEXT) for i in rest)][:count]


def plateaus(costs: Costs, close: float) -> list[int]:
    """Indices of the cheapest of each plateau of the front, in the order of times: a plateau begins
    with the fastest that is in none, and ends where times are longer than its own by `close`."""
    found: list[list[int]] = []
    for index in sorted(pareto_front(costs), key=lambda index: tuple(costs[index])):
        if not found or costs[index][0] > costs[found[-1][0]][0] * (1 + close):
            found.append([])
        found[-1].append(index)
    cheapest = []
    for own in found:
        others = [costs[index][1:] for index in own]
        firsts = {tuple(others[place]): place for place in reversed(pareto_front(others))}
        cheapest += [own[place] for place in sorted(firsts.values())]
    return cheapest


def _farthest_first(costs: Costs, first: int, others: Sequence[int]) -> list[int]:
    """`others` in the order in which each is the farthest from all before it and from `first`, by
    the distance of logarithms."""
    places = np.log(np.maximum(np.asarray(costs, dtype=float), _LEAST))
    left = {index: math.inf for index in others if index != first}
    found = [first]
    while left:
        for index in left:
            left[index] = min(left[index], math.dist(places[index], places[found[-1]]))
        found.append(max(left, key=lambda index: left[index]))
        del left[found[-1]]
    return found[1:]


# How much is enough: where a curve has given nearly all that it gives.

CLOSE = 0.05
"""As much worse than the best as counts as nearly as good."""


def knee(values: Sequence[float], more: bool = False) -> int | None:
    """Index of the knee of a curve of positive `values` that belong to ascending amounts (of a
    delay: to ever shorter ones); None of less than three. `more`: more of them is better."""
    if len(values) < 3 or min(values) <= 0:
        return None
    for index, value in enumerate(values[:-1]):
        rest = values[index:]
        if value >= (1 - CLOSE) * max(rest) if more else value * (1 - CLOSE) <= min(rest):
            return index
    return None
