"""Groups and what they are expected to cost: who changes groups asks here if it is worth it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from compiler.cost.overlap import HOST_CALL, in_turn
from compiler.schedule.residency.buffer import LiveRange
from compiler.schedule_ir.group import Group
from compiler.target.group_facts import Facts
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.record import Arch

Part = Group | HostNode
Place = tuple[Sequence[tuple[int, LiveRange]], Mapping[int, Group]]
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

    @property
    def staging(self) -> int:
        """Bytes of each shared memory for loads on their way from core to core."""

    def price(self, group: Group) -> float:
        """Expected cycles, or another score to be kept low."""

    def cost_below(self, group: Group, limit: float) -> float:
        """The price if that is below `limit`, else something that is not, which is cheaper."""

    def overlap_ends(self, group: Group) -> tuple[float, float]:
        """Cycles at the start of a group that fits, and at its end, in which it may overlap with
        its neighbours: see `Estimate.lead` and `Estimate.rest`."""

    def lower_bound(self, group: Group) -> float:
        """At most the price, and cheap."""


def added(
    parts: Iterable[Part], prices: Prices, rest: float = 0.0, limit: float = math.inf
) -> float:
    """Expected cycles of groups one after another, each with what it adds to the one before.

    Args:
        parts: the groups; calls of the host count nothing, and nothing overlaps with them.
        prices: of groups.
        rest: cycles at the end of the part before in which the first may begin.
        limit: from this on infinity is answered, since a price is the dearest question there is.
    """
    total = 0.0
    for part in parts:
        step = HOST_CALL
        if isinstance(part, Group):
            most = limit - total + rest
            price = prices.cost_below(part, most)
            if price >= most:
                return math.inf
            step = (price, *prices.overlap_ends(part))
        total, rest = total + sum(in_turn([step], rest)), step[-1]
    return total


@dataclass
class PlacementState:
    """The parts of a network, whose groups are changed where they get quicker for what lies in a
    memory."""

    parts: list[Part]
    prices: Prices
    placed: list[tuple[int, LiveRange]] = field(default_factory=list)
    """What lies there, by address."""

    def group(self, position: int) -> Group:
        """The part at `position`, which is a group."""
        part = self.parts[position]
        assert isinstance(part, Group)
        return part

    def try_place(self, *places: Place) -> bool:
        """Settle at the best of `places`, which change the same groups, if these are expected to be
        quicker together than those that are there; whether they are."""
        if not places:
            return False
        best = self.best(places, self._added_cycles({}, places[0][1]))
        if best is not None:
            self.commit(best)
        return best is not None

    def best(self, places: Iterable[Place], limit: float = math.inf) -> Place | None:
        """Of `places`, the one with which what is around it is expected to be quickest, if that is
        below `limit`."""
        best = None
        for place in places:
            total = self._added_cycles(place[1], place[1], limit)
            if total < limit:
                limit, best = total, place
        return best

    def _added_cycles(
        self, changed: Mapping[int, Group], around: Collection[int], limit: float = math.inf
    ) -> float:
        """What the parts at `around`, some of them `changed`, and the one behind them add to what
        is before them, if that is below `limit`."""
        first, last = min(around), min(max(around) + 1, len(self.parts) - 1)
        parts = [changed.get(n, self.parts[n]) for n in range(first, last + 1)]
        return added(parts, self.prices, self._rest(first - 1), limit)

    def _rest(self, position: int) -> float:
        """Cycles at the end of a part in which the one behind it may begin."""
        part = self.parts[position] if position >= 0 else None
        if not isinstance(part, Group) or math.isinf(self.prices.price(part)):
            return 0.0
        return self.prices.overlap_ends(part)[1]

    def commit(self, place: Place) -> None:
        """Let something lie there."""
        spans, changed = place
        self.placed += spans
        for position, group in changed.items():
            self.parts[position] = group
