"""Groups with branches: a group takes in what reads it, and what that needs, while it pays."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.fuse.dependence import members, union
from compiler.fuse.partition import Costs, PartitionStrategy, pays


@dataclass(frozen=True)
class Branch(PartitionStrategy):
    """Layers that hang together, of any shape without a way out and back in.

        a -> b -> c -> add        {a b c d add}: with add, the whole other branch comes in
        a -> d -------> add

    What is made inside may have several readers.
    """

    def groups(self, costs: Costs) -> list[int]:
        """Groups from the first layer on, each as large as it pays."""
        left, found = costs.net.layers, list[int]()
        while left:
            group = self._grown(costs, found, left & -left, left)
            found.append(group)
            left &= ~group
        return found

    def _grown(self, costs: Costs, found: list[int], group: int, left: int) -> int:
        """`group` with reader after reader, first come first."""
        while True:
            added = self._next(costs, found, group, left)
            if not added:
                return group
            group |= added

    def _next(self, costs: Costs, found: list[int], group: int, left: int) -> int:
        """The next reader, with all that lies between, that pays; 0 where none does."""
        net = costs.net
        near = union(net.after[i] for i in members(group)) & left & ~group
        for reader in members(near):
            added = net.hull(group | 1 << reader) & ~group
            room = (group | added).bit_count() <= self.max_layers
            if room and not added & ~left and pays(costs, found, group, added):
                return added
        return 0
