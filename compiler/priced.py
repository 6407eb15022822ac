"""Groups and what they are expected to cost: who changes groups asks here if it is worth it."""

from __future__ import annotations

from collections.abc import Mapping
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

    def offer(self, place: Place | None) -> None:
        """Settle there, where there is a place, if the groups that change are expected to be
        quicker together than those that are there."""
        if place is None:
            return
        _, changed = place
        old = sum(self.prices.price(self.group(position)) for position in changed)
        new = 0.0
        for group in changed.values():  # one at a time: a price is the dearest question there is
            price = self.prices.below(group, old - new)
            if price >= old - new:
                return
            new += price
        self.settle(place)

    def settle(self, place: Place) -> None:
        """Let something lie there."""
        span, changed = place
        self.placed.append(span)
        for position, group in changed.items():
            self.parts[position] = group
