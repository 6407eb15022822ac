"""Straight chains: layers are appended to a group while that does not make it dearer."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.fuse.dependence import Dependences, members, union
from compiler.fuse.partition import Costs, PartitionStrategy, pays


@dataclass(frozen=True)
class Line(PartitionStrategy):
    """Layers in a row, each reading of the group's tensors only what the layer before it made.

        a -> b -> c -> add        {a b c} {add}   add would read two tensors of the group
        a ------------> add

    Others may read what is made inside: it goes to memory then, as well as to the next layer.
    """

    def groups(self, costs: Costs) -> list[int]:
        """Chains from the first layer on, each as long as it pays."""
        left, found = costs.net.layers, list[int]()
        while left:
            group = last = left & -left
            while group.bit_count() < self.max_layers:
                last = self._next(costs, found, group, last, left)
                if not last:
                    break
                group |= last
            found.append(group)
            left &= ~group
        return found

    def _next(self, costs: Costs, found: list[int], group: int, last: int, left: int) -> int:
        """The layer that continues `group` behind `last`, 0 where none pays."""
        following = (1 << i for i in members(_behind(costs.net, group, last) & left & ~group))
        return next((layer for layer in following if pays(costs, found, group, layer)), 0)


def _behind(net: Dependences, group: int, last: int) -> int:
    """Parts that need `last` and nothing else of `group`."""
    after = net.after[last.bit_length() - 1]
    return union(1 << i for i in members(after) if net.before[i] & group == last)
