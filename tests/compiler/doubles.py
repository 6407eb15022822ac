"""Doubles of decisions: any partition that is legal, and any schedule that fits.

What the compiler prefers hides what it would do wrong elsewhere; these prefer nothing.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from compiler.driver import CompileOptions
from compiler.fuse.group import Group
from compiler.fuse.partition import Costs, PartitionStrategy, runnable
from compiler.plan.make_plan import MakePlan
from compiler.stages import Stages
from compiler.tile.choose_group import GroupSearch
from compiler.tile.choose_tiles import ChooseTiles
from compiler.tile.ir import Schedule
from simmodel.arch import Arch


@dataclass(frozen=True)
class Eager(PartitionStrategy):
    """Neighbours in one group wherever that is legal and any schedule is found."""

    seed: int = 0
    chance: float = 0.9
    """Of taking a neighbour in."""

    def groups(self, costs: Costs) -> list[int]:
        """Groups grown from the first layer on."""
        rng = random.Random(self.seed)
        net = costs.net
        groups = [1 << i for i in range(len(net.parts)) if net.layers >> i & 1]
        for _ in range(2):
            for one in list(groups):
                for two in list(groups):
                    if one not in groups or two not in groups or one == two:
                        continue
                    joined = one | two
                    if rng.random() > self.chance or joined.bit_count() > self.max_layers:
                        continue
                    others = [g for g in groups if g not in (one, two)]
                    if not (net.legal(joined) and net.convex(joined)):
                        continue
                    if runnable(net, (*others, joined)) and costs.of(joined) < math.inf:
                        groups = [*others, joined]
                        one = joined
        return groups


@dataclass(frozen=True)
class AnyTiles(ChooseTiles):
    """Any schedule that fits, not the quickest."""

    seed: int = 0

    def together(self, arch: Arch, slots: int) -> GroupSearch:
        """A search whose answers come in any order."""
        cores = min(self.cores or arch.core_count, arch.core_count)
        return _AnySearch(arch, slots, cores, self.rolling, seed=self.seed)


@dataclass
class _AnySearch(GroupSearch):
    seed: int = 0

    def schedules(self, group: Group) -> list[Schedule]:
        found = super().schedules(group)
        rng = random.Random(f"{self.seed} {group.name}")
        return sorted(found, key=lambda s: rng.random() - 0.5 * len(s.loops))


def anything(seed: int, *, rolling: bool | None, slots: int = 2, cores: int | None = None,
             dtype: str | None = None, partition: PartitionStrategy | None = None,
             ) -> CompileOptions:  # fmt: skip
    """Options of a compiler that prefers nothing."""
    stages = Stages(
        partition=partition or Eager(seed=seed),
        tile=AnyTiles(cores=cores, rolling=rolling, seed=seed),
        plan=MakePlan(slots=slots),
    )
    return CompileOptions(dtype=dtype, stages=stages)
