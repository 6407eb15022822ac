"""Bisection: everything between host nodes is one group until it fits and is not dearer."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.fuse.chained import chained
from compiler.fuse.dependence import Dependences, union
from compiler.fuse.partition import Costs, PartitionStrategy


@dataclass(frozen=True)
class BranchX(PartitionStrategy):
    """From the whole network down: a group that fits no tile, or is dearer than its layers, is cut.

        a b c d e f  ->  {a b c} {d e f}  ->  {a b c} {d} {e f}

    The cut is where the fewest bytes pass, among the places near the middle.
    """

    def groups(self, costs: Costs) -> list[int]:
        """Stretches of an order that runs down one branch after the other."""
        found: list[int] = []
        stretch: list[int] = []
        for position in chained(costs.net):
            if costs.net.layers >> position & 1:
                stretch.append(position)
                continue
            found += self._cut(costs, stretch)
            stretch = []
        return [*found, *self._cut(costs, stretch)]

    def _cut(self, costs: Costs, stretch: list[int]) -> list[int]:
        """`stretch` as one group, or the groups of its two halves."""
        mask = union(1 << position for position in stretch)
        if len(stretch) <= 1:
            return [mask] if stretch else []
        if len(stretch) <= self.max_layers and costs.of(mask) <= costs.apart(mask):
            return [mask]
        middle = _narrowest(costs.net, stretch)
        return [*self._cut(costs, stretch[:middle]), *self._cut(costs, stretch[middle:])]


def _narrowest(net: Dependences, stretch: list[int]) -> int:
    """The cut in the middle half of `stretch` that the fewest bytes cross."""
    quarter = (len(stretch) + 3) // 4
    places = range(quarter, len(stretch) - quarter + 1)
    return min(places, key=lambda at: (_crossing(net, stretch, at), abs(2 * at - len(stretch))))


def _crossing(net: Dependences, stretch: list[int], at: int) -> int:
    """Bytes made in the stretch before `at` that are read in it later."""
    later = union(1 << position for position in stretch[at:])
    return sum(
        size for position in stretch[:at] for size, readers in net.made(position) if readers & later
    )
