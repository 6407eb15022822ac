"""Groups that grow: each takes in what reads it, a layer or a branch, while it pays."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from compiler.schedule.fusion.dependence import Dependences, members, union
from compiler.schedule.fusion.partition import PartitionCosts, PartitionStrategy, pays
from compiler.schedule.fusion.reorder import chained


@dataclass(frozen=True)
class _Growing(PartitionStrategy):
    """Groups from the first layer on, each as large as it pays."""

    def groups(self, costs: PartitionCosts) -> list[int]:
        """One group after the other, each with all that is added to it, piece by piece."""
        left, found = costs.net.layers, list[int]()
        while left:
            group = added = left & -left
            while added:
                added = self.addition(costs, found, group, added, left)
                group |= added
            found.append(group)
            left &= ~group
        return found

    @abstractmethod
    def addition(
        self, costs: PartitionCosts, found: list[int], group: int, last: int, left: int
    ) -> int:
        """The layers of those `left` that join `group`, which took `last` before, behind the groups
        that are `found`; 0 where none does."""


@dataclass(frozen=True)
class Branch(_Growing):
    """Layers that hang together, of any shape without a way out and back in.

        a -> b -> c -> add        {a b c d add}: with add, the whole other branch comes in
        a -> d -------> add

    What is made inside may have several readers.
    """

    def addition(
        self, costs: PartitionCosts, found: list[int], group: int, last: int, left: int
    ) -> int:
        """The next reader, first come first, with all that lies between, that pays."""
        net = costs.net
        near = union(net.after[i] for i in members(group)) & left & ~group
        for reader in members(near):
            added = net.hull(group | 1 << reader) & ~group
            room = (group | added).bit_count() <= self.max_layers
            if room and not added & ~left and pays(costs, found, group, added):
                return added
        return 0


@dataclass(frozen=True)
class Line(_Growing):
    """Layers in a row, each reading of the group's tensors only what the layer before it made.

        a -> b -> c -> add        {a b c} {add}   add would read two tensors of the group
        a ------------> add

    Others may read what is made inside: it goes to memory then, as well as to the next layer.
    """

    def addition(
        self, costs: PartitionCosts, found: list[int], group: int, last: int, left: int
    ) -> int:
        """The layer that continues `group` behind `last` and pays."""
        net = costs.net
        after = members(net.after[last.bit_length() - 1] & left & ~group)
        # Those that need nothing else of the group.
        following = (1 << i for i in after if net.before[i] & group == last)
        room = group.bit_count() < self.max_layers
        return next((one for one in following if room and pays(costs, found, group, one)), 0)


# Bisection: everything between host nodes is one group until it fits and is not dearer.


@dataclass(frozen=True)
class BranchX(PartitionStrategy):
    """From the whole network down: a group that fits no tile, or is dearer than its layers, is cut.

        a b c d e f  ->  {a b c} {d e f}  ->  {a b c} {d} {e f}

    The cut is where the fewest bytes pass, among the places near the middle.
    """

    def groups(self, costs: PartitionCosts) -> list[int]:
        """Stretches of an order that runs down one branch after the other."""
        found: list[int] = []
        stretch: list[int] = []
        for position in chained(costs.net):
            if costs.net.layers >> position & 1:
                stretch.append(position)
                continue
            found += self._bisect(costs, stretch)
            stretch = []
        return [*found, *self._bisect(costs, stretch)]

    def _bisect(self, costs: PartitionCosts, stretch: list[int]) -> list[int]:
        """`stretch` as one group, or the groups of its two halves."""
        mask = union(1 << position for position in stretch)
        if len(stretch) <= 1:
            return [mask] if stretch else []
        if len(stretch) <= self.max_layers and costs.of(mask) <= costs.separate_cost(mask):
            return [mask]
        middle = _narrowest(costs.net, stretch)
        return [*self._bisect(costs, stretch[:middle]), *self._bisect(costs, stretch[middle:])]


def _narrowest(net: Dependences, stretch: list[int]) -> int:
    """The cut in the middle half of `stretch` that the fewest bytes cross."""
    quarter = (len(stretch) + 3) // 4
    places = range(quarter, len(stretch) - quarter + 1)
    return min(places, key=lambda at: (_crossing(net, stretch, at), abs(2 * at - len(stretch))))


def _crossing(net: Dependences, stretch: list[int], at: int) -> int:
    """Bytes made in the stretch before `at` that are read in it later."""
    later = union(1 << position for position in stretch[at:])
    return sum(
        size
        for position in stretch[:at]
        for size, readers in net.results[position]
        if readers & later
    )
