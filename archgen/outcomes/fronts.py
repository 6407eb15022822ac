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
