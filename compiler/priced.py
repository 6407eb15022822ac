"""Groups and what they are expected to cost: who changes groups asks here if it is worth it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from compiler.bind.facts import Facts
from compiler.group import Group
from compiler.nest.ir import HostNode
from simmodel.arch import Arch

Part = Group | HostNode


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

    def bound(self, group: Group) -> float:
        """At most the price, and cheap."""


@dataclass
class PricedParts:
    """The parts of a network, whose groups are changed where they get quicker."""

    parts: list[Part]
    prices: Prices

    def group(self, position: int) -> Group:
        """The part at `position`, which is a group."""
        part = self.parts[position]
        assert isinstance(part, Group)
        return part

    def take(self, changed: Mapping[int, Group]) -> bool:
        """Put groups in their positions if together they are expected to be quicker than those
        that are there."""
        old = sum(self.prices.price(self.group(position)) for position in changed)
        new = 0.0
        for group in changed.values():
            new += self.prices.price(group)
            if new >= old:
                return False
        for position, group in changed.items():
            self.parts[position] = group
        return True
