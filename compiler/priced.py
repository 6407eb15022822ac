"""Groups and what they are expected to cost: who changes groups asks here if it is worth it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from compiler.bind.facts import Facts
from compiler.group import Group
from compiler.hold.spans import Span
from compiler.nest.ir import HostNode
from simmodel.arch import Arch

Part = Group | HostNode
Place = tuple[tuple[int, Span], Mapping[int, Group]]
"""Where something can lie in a memory between groups, and the groups by position that it changes.
"""


class Prices(Protocol):
    """What is asked about groups."""

    @property
    def arch(self) -> Arch:
        """The machine."""

    @property
    def cores(self) -> int:
        """Cores that may take part."""

    @property
    def facts(self) -> Facts:
        """What is true of groups whatever their tiles."""

    def price(self, group: Group) -> float:
        """Expected cycles, or another score to be kept low."""

    def below(self, group: Group, limit: float) -> float:
        """The price if that is below `limit`, else something that is not, which is cheaper."""

    def ends(self, group: Group) -> tuple[float, float]:
        """Cycles at the start of a group that fits, and at its end, in which it may overlap with
        its neighbours: see `Estimate.lead` and `Estimate.rest`."""

    def bound(self, group: Group) -> float:
        """At most the price, and cheap."""


@dataclass
class PricedParts:
    """The parts of a network, whose groups are changed where they get quicker for what lies in a
    memory."""

    parts: list[Part]
    prices: Prices
    placed: list[tuple[int, Span]] = field(default_factory=list)
    """What lies there, by address."""

    def group(self, position: int) -> Group:
        """The part at `position`, which is a group."""
        part = self.parts[position]
        assert isinstance(part, Group)
        return part

    def offer(self, *places: Place) -> None:
        """Settle at the best of `places`, which change the same groups, if these are expected to be
        quicker together than those that are there."""
        if not places:
            return
        changed = places[0][1]
        old = sum(self.prices.price(self.group(position)) for position in changed)
        best = self.best(places, old)
        if best is not None:
            self.settle(best)

    def best(self, places: Iterable[Place], limit: float = math.inf) -> Place | None:
        """Of `places`, the one whose groups are expected to be quickest, if that is below
        `limit`."""
        best = None
        for place in places:
            total = self._below(place, limit)
            if total < limit:
                limit, best = total, place
        return best

    def _below(self, place: Place, limit: float) -> float:
        """The price of the groups that change if that is below `limit`, else infinity."""
        new = 0.0
        for group in place[1].values():  # one at a time: a price is the dearest question there is
            price = self.prices.below(group, limit - new)
            if price >= limit - new:
                return math.inf
            new += price
        return new

    def settle(self, place: Place) -> None:
        """Let something lie there."""
        span, changed = place
        self.placed.append(span)
        for position, group in changed.items():
            self.parts[position] = group
