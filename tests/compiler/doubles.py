"""Doubles of decisions: any partition that is legal, and any schedule that fits.

What the compiler prefers hides what it would do wrong elsewhere; these prefer nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from machines import machine

from compiler.context import CompileOptions
from compiler.cost.multicast import MulticastRoute
from compiler.options import Stages
from compiler.plan.make_plan import MakePlan
from compiler.schedule.fusion.dependence import members
from compiler.schedule.fusion.partition import Outlines, PartitionCosts, PartitionStrategy
from compiler.schedule.residency.activations import KeepTensors
from compiler.schedule.residency.shared_memory import ChooseHomes
from compiler.schedule.residency.table import OptimisticPrices, Part, Prices
from compiler.schedule.residency.weights import PinConstants
from compiler.schedule.tiling.choose_tiles import ChooseTiles, GroupSearch
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Schedule
from compiler.target.group_facts import Facts
from compiler.tensor_ir.nest import NestGraph
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class Eager(PartitionStrategy):
    """Neighbours in one group wherever that is legal and any schedule is found."""

    seed: int = 0
    chance: float = 0.95
    """Of merging another pair."""

    def groups(self, costs: PartitionCosts) -> list[int]:
        """Pairs of neighbours merged in any order."""
        rng = random.Random(self.seed)
        net = costs.net
        groups = [1 << i for i in range(len(net.parts)) if net.layers >> i & 1]
        for _ in range(3 * len(groups)):
            pairs = [(a, b) for a in groups for b in groups if a < b and self._fits(costs, a, b)]
            if not pairs or rng.random() > self.chance:
                break
            one, two = rng.choice(pairs)
            joined = [*(g for g in groups if g not in (one, two)), one | two]
            if net.sequence(joined) is not None and costs.of(one | two) < math.inf:
                groups = joined
        return groups

    def _fits(self, costs: PartitionCosts, one: int, two: int) -> bool:
        joined, net = one | two, costs.net
        near = any(net.after[i] & two or net.before[i] & two for i in members(one))
        few = joined.bit_count() <= self.max_layers
        return near and few and net.legal(joined) and net.convex(joined)


@dataclass(frozen=True)
class AnyTiles(ChooseTiles):
    """Any schedule that fits, not the quickest."""

    seed: int = 0

    def together(self, arch: Arch, slots: int, way: MulticastRoute | None) -> GroupSearch:
        """A search whose answers come in any order."""
        return _AnySearch(self, arch, slots, way)


class _AnySearch(GroupSearch):
    def schedules(self, group: Group) -> list[Schedule]:
        found = super().schedules(group)
        assert isinstance(self.tiles, AnyTiles)
        rng = random.Random(f"{self.tiles.seed} {group.name}")
        return sorted(found, key=lambda s: rng.random() - 0.5 * len(s.loops))


@dataclass(frozen=True)
class Everywhere(ChooseHomes):
    """Shared memory for all that has room there, quicker or not."""

    def apply(self, parts: Sequence[Part], graph: NestGraph, prices: Prices) -> tuple[Part, ...]:
        """`parts` with as much in shared memory as fits."""
        return super().apply(parts, graph, _Bargain(prices))


@dataclass(frozen=True)
class Clinging(KeepTensors):
    """All stays on chip that has room there, quicker or not; how cores keep it is as `taste` has
    it, which stands for all that may make one way quicker than another."""

    taste: int = 0

    def apply(self, parts: Sequence[Part], graph: NestGraph, prices: Prices) -> tuple[Part, ...]:
        """`parts` with as much on chip as fits."""
        return super().apply(parts, graph, _Bargain(prices, taste=self.taste))


@dataclass(frozen=True)
class Pinning(PinConstants):
    """Whatever several layers read stays where there is room, quicker or not."""

    share: float = 1.0

    def apply(self, parts: Sequence[Part], graph: NestGraph, prices: Prices) -> tuple[Part, ...]:
        """`parts` with as many constants on chip as fit."""
        return super().apply(parts, graph, _Bargain(prices))


_OUTLINES = Outlines()


class _WithoutOverlap:
    """Prices that are exact, of groups between which nothing overlaps."""

    def cost_below(self, group: Group, limit: float) -> float:
        del limit
        return self.price(group)  # type: ignore[attr-defined, no-any-return]

    def least_added(self, group: Group) -> float:
        return self.price(group)  # type: ignore[attr-defined, no-any-return]

    def overlap_ends(self, group: Group) -> tuple[float, float]:
        del group
        return 0.0, 0.0

    def outline(self, group: Group) -> tuple[Hashable, Sequence[str]]:
        return _OUTLINES.with_names(group)[:2]


@dataclass
class _Bargain(_WithoutOverlap, OptimisticPrices):
    """Prices that fall with every tensor in shared memory, or on chip."""

    hoped: Callable[[Group], Group] = lambda group: group
    taste: int = 0

    def price(self, group: Group) -> float:
        if math.isinf(self.real.price(group)):
            return math.inf
        ways = (
            crc32(repr((self.taste, k.cut, k.passed)).encode()) for k in group.residents.values()
        )
        liked = (
            sum(way % 64 for way in ways) / 64 / (1 + len(group.residents)) if self.taste else 0.0
        )
        return -len(group.shared) - len(group.residents) - len(group.pinned) - liked


def anything(seed: int, *, rolling: bool | None, slots: int = 2, cores: int | None = None,
             dtype: str | None = None, partition: PartitionStrategy | None = None,
             ) -> CompileOptions:  # fmt: skip
    """Options of a compiler that prefers nothing."""
    stages = Stages(
        partition=partition or Eager(seed=seed),
        pin=Pinning() if seed % 5 else PinConstants(),
        keep=Clinging() if seed % 3 else KeepTensors(),
        homes=Everywhere() if seed % 4 else ChooseHomes(),
        tile=AnyTiles(cores=cores, rolling=rolling, seed=seed),
        plan=MakePlan(slots=slots),
    )
    return CompileOptions(dtype=dtype, stages=stages)


@dataclass
class Moved(_WithoutOverlap):
    """Prices: a group costs the bytes that it moves to and from memory off chip."""

    arch: Arch
    facts: Facts = field(init=False)
    cores: int = field(init=False)
    staging: int = 0

    def __post_init__(self) -> None:
        self.facts = Facts(self.arch)
        self.cores = self.arch.core_count

    def price(self, group: Group) -> float:
        names = {*group.inputs, *group.results} - group.residents.keys() - group.shared.keys()
        sizes = ((group.tensors[name].elements, group.tensors[name].dtype) for name in names)
        return sum(elements * size_of(dtype) for elements, dtype in sizes)

    def lower_bound(self, group: Group) -> float:
        return 0.0


class Priced(Moved):
    """Prices of a function, and at most those."""

    def __init__(
        self, price: Callable[[Group], float], bound: Callable[[Group], float] = lambda group: 0.0
    ) -> None:
        super().__init__(machine())
        self._price, self._bound = price, bound

    def price(self, group: Group) -> float:
        return self._price(group)

    def lower_bound(self, group: Group) -> float:
        return self._bound(group)
