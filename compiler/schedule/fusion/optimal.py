"""The cheapest partition into stretches of an order, by dynamic programming, and then merges.

A stretch of an order in which the parts can run is convex, and stretches never wait for each other.
So the cheapest way to cut an order into groups is a shortest path over its places. Groups that no
stretch is, because something unrelated lies between, are found afterwards by merging neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Annotated

from compiler.passes import Count, within
from compiler.schedule.fusion.dependence import members, union
from compiler.schedule.fusion.greedy import Branch, BranchX, Line
from compiler.schedule.fusion.partition import PartitionCosts, PartitionStrategy, Unfused
from compiler.schedule.fusion.reorder import by_need, chained, least_memory_order, reordered
from simmodel.arch.base import Registry


@dataclass(frozen=True)
class Optimal(PartitionStrategy):
    """The cheapest of all cuts of an order into groups of at most `max_layers` layers.

        a b c d e   ->   {a b} {c d e}      cost(a b) + cost(c d e) is the least of 16 sums

    What a group costs is what it adds to the one before it, with which it overlaps. Exact for its
    order up to `lengths` layers, but for `patience`, and for what the best way to a place costs
    whoever goes on from there. Longer groups are made of whole
    groups of that cut: two, four, eight and so on that follow each other, up to everything.
    """

    lengths: Count = 24
    """Layers up to which groups of every length are tried."""
    patience: Count = 4
    """A stretch is given up after this many layers in a row with which it does not fit, or which
    are cheaper on their own."""
    orders: Annotated[int, within(1, 3)] = 2
    """Orders that are cut, at most 3: branch after branch, least live bytes, the model's own."""
    rounds: Annotated[int, within(0, 32)] = 2
    """How often the result is cut anew, in an order in which its groups are neighbours in other
    ways."""
    merge: bool = True
    """Whether neighbours are merged afterwards."""

    def groups(self, costs: PartitionCosts) -> list[int]:
        """The cheapest partition of all orders, merged, and cut again in orders that keep it."""
        total = partial(_total, costs)
        best = min((self._cut_order(costs, order) for order in self._orders(costs)), key=total)
        for turn in range(self.rounds):
            order = reordered(
                costs.net, costs.net.sequence(best) or (), REORDERED[turn % len(REORDERED)]
            )
            best = min(best, self._cut_order(costs, order), key=total)
        return best

    def _cut_order(self, costs: PartitionCosts, order: Sequence[int]) -> list[int]:
        path = _Path(costs, order)
        for start in range(len(order)):
            self._extend(path, start, range(start + 1, min(start + self.lengths, len(order)) + 1))
        # Then stretches of whole groups, of whatever length, that make the best cut better: not
        # from all places, else a long network takes the square of its length.
        places = path.places()
        for first, start in enumerate(places):
            counts = _doubled(len(places) - 1 - first)
            ends = (places[first + n] for n in counts if not first % max(1, n // ALIGNED))
            self._extend(path, start, ends)
        groups = path.groups()
        if not self.merge:
            return groups
        # What neighbours overlap is lost where they become one group.
        return min(groups, self._merge_neighbours(costs, groups), key=partial(_total, costs))

    def _orders(self, costs: PartitionCosts) -> list[tuple[int, ...]]:
        found = [chained(costs.net)]
        if self.orders > 1:
            found.append(least_memory_order(costs.net).positions)
        if self.orders > 2:
            found.append(tuple(range(len(costs.net.parts))))
        return list(dict.fromkeys(found))

    def _extend(self, path: _Path, start: int, ends: Iterable[int]) -> None:
        """Take every stretch from `start` to one of `ends`, ascending, that may be part of the best
        cut."""
        failures = 0
        for end in ends:
            if end - start > self.max_layers or not path.possible(start, end):
                return
            failures = 0 if path.take(start, end) else failures + 1
            if failures > self.patience:
                return

    def _merge_neighbours(self, costs: PartitionCosts, groups: list[int]) -> list[int]:
        """`groups` with neighbours merged, the best pair first, while that pays."""
        while True:
            gains = [
                (apart - costs.below(one | two, apart), one, two)
                for one, two in self._pairs(costs, groups)
                for apart in [costs.of(one) + costs.of(two)]
            ]
            gain, one, two = max(gains, default=(0.0, 0, 0))
            if gain <= 0:
                return groups
            groups = [*(group for group in groups if group not in (one, two)), one | two]

    def _pairs(self, costs: PartitionCosts, groups: list[int]) -> list[tuple[int, int]]:
        """Groups of which one reads what the other makes, and that may be one group."""
        net, most = costs.net, min(self.lengths, self.max_layers)
        steps = net.sequence(groups) or ()
        ties, places = net.steps(steps), {group: place for place, group in enumerate(groups)}
        found = []
        for number, step in enumerate(steps):
            for reader in members(ties.after[number]):
                one, two = sorted((step, steps[reader]), key=lambda each: places.get(each, -1))
                joined = one | two
                if one not in places or joined.bit_count() > most or not net.legal(joined):
                    continue
                # None of the others waits for one of them while the other waits for it.
                if not ties.convex(1 << number | 1 << reader):
                    continue
                if costs.least(joined) < costs.of(one) + costs.of(two):
                    found.append((one, two))
        return sorted(found, key=lambda pair: (places[pair[0]], places[pair[1]]))


REORDERED = (by_need, partial(chained, late=True), chained)
"""Orders of groups in which these are cut anew, one in each round."""
ALIGNED = 8
"""A stretch of n whole groups begins at a multiple of n / ALIGNED groups."""


def _doubled(most: int) -> list[int]:
    """1, 2, 4 and so on, and `most`."""
    return sorted({1 << power for power in range(most.bit_length())} | {most} - {0})


def _total(costs: PartitionCosts, groups: Sequence[int]) -> float:
    """Cycles of `groups` one after another; the host's are the same in all orders."""
    return costs.added(mask & costs.net.layers for mask in costs.net.sequence(groups) or ())


class _Path:
    """The cheapest known way to each place of an order."""

    def __init__(self, costs: PartitionCosts, order: Sequence[int]) -> None:
        self.costs, self.order = costs, order
        masks = [(1 << position) & costs.net.layers for position in order]
        self.is_layer = list(map(bool, masks))
        alone = (
            costs.behind(mask, before) if mask else 0.0 for before, mask in pairwise((0, *masks))
        )
        self.alone = list(accumulate(alone, initial=0.0))
        """Cost of all before each place, each layer in a group of its own."""
        self.best = [0.0] + [math.inf] * len(order)
        self.start = [0] * (len(order) + 1)
        """Where the last stretch of the best way begins."""

    def mask(self, start: int, end: int) -> int:
        return union(1 << position for position in self.order[start:end])

    def possible(self, start: int, end: int) -> bool:
        """Whether start .. end may be one step of the way, and with it anything shorter."""
        return end == start + 1 or self.costs.net.legal(self.mask(start, end))

    def last(self, place: int) -> int:
        """The group with which the best way comes to a place; 0: none, or the host."""
        return self.mask(self.start[place], place) & self.costs.net.layers

    def take(self, start: int, end: int) -> bool:
        """Go from `start` to `end` in one step if that is cheaper than any known way."""
        mask = self.mask(start, end)
        if end == start + 1:
            cost = self.costs.behind(mask, self.last(start)) if self.is_layer[start] else 0.0
        else:
            # A cost with which `end` can surely be reached.
            known = min(self.best[end], self.best[start] + self.alone[end] - self.alone[start])
            if self.best[start] + self.costs.least(mask) >= known:
                return False
            before = self.last(start)
            # What overlaps with the group before may be as much as that one's rest.
            limit = known - self.best[start] + self.costs.rest(before)
            if self.costs.below(mask, limit) >= limit:
                return False
            cost = self.costs.behind(mask, before)
            if self.best[start] + cost >= known:
                return False
        if self.best[start] + cost < self.best[end]:
            self.best[end] = self.best[start] + cost
            self.start[end] = start
        return True

    def places(self) -> list[int]:
        """Where the steps of the best way begin and end."""
        found = [len(self.order)]
        while found[-1]:
            found.append(self.start[found[-1]])
        return found[::-1]

    def groups(self) -> list[int]:
        """The layers of each step of the best way."""
        steps = pairwise(self.places())
        return [self.mask(start, end) for start, end in steps if self.is_layer[start]]


STRATEGIES: dict[str, type[PartitionStrategy]] = Registry(
    "strategy",
    {"none": Unfused, "line": Line, "branch": Branch, "branchx": BranchX, "optimal": Optimal},
)
"""The ways to partition a network, from no fusion to the cheapest; every field has a default."""
