"""Tile sizes, loop order and the split over cores, by the cost model.

Sums of products have a search over rows, columns, reduction and both loop orders, done for all
candidates at once with numpy. Other groups walk their result in slabs that fit, as large as
overlapping load, work and store leaves sensible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from compiler.cost.multicast import MulticastRoute
from compiler.errors import DoesNotFit
from compiler.geometry.clusters import keeps_apart
from compiler.passes import Count, Factor
from compiler.schedule.tiling.candidates import search
from compiler.schedule.tiling.choose_group import Breadth, GroupSearch
from compiler.schedule.tiling.elementwise_tiling import elementwise_tilings
from compiler.schedule.tiling.objective import COLUMNS, SCORES, Objective, charge
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Schedule, Tiled, single
from compiler.tensor_ir.bounds import Box
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class ChooseTiles:
    """Choose loops and cores for each group.

    before:
        {conv 56x56x64 -> 56x56x64; add}
    after:
        for rows in steps of 14: for columns in steps of 32: {conv; add}   on 2 cores by rows
    """

    cores: Count | None = None
    """Most cores to use; default all."""
    rolling: bool | None = None
    """Whether groups keep what neighbouring tiles share, or compute it again; default: by cost."""
    objective: Objective = "latency"
    """What schedules are compared by; see `objective`."""
    breadth: Breadth = field(default_factory=Breadth)
    """How many schedules of groups are tried."""

    whole: bool = True
    """Whether constants of groups without loops may be loaded as a whole."""
    held_up: Factor = 0.5
    """Weight of loads that hold up those of the next layer, where pieces are chosen."""
    short_inputs: Factor = 0.05
    """In programs for a range of lengths: share by which a group may take longer at the upper edge,
    so that at shorter lengths all its cores have something to do."""

    def together(self, arch: Arch, slots: int, way: MulticastRoute | None) -> GroupSearch:
        """The search for groups of several layers; worth keeping over many groups. Loads reach
        several cores by `way`."""
        cores = min(self.cores or arch.core_count, arch.core_count)
        return GroupSearch(
            arch, slots, cores, self.rolling, breadth=self.breadth, objective=self.objective,
            whole=self.whole, held_up=self.held_up, short_inputs=self.short_inputs, way=way,
        )  # fmt: skip

    def alone(
        self, group: Group, arch: Arch, slots: int, way: MulticastRoute | None,
        planned: Callable[[Schedule, Arch], object],
    ) -> Schedule:  # fmt: skip
        """The cheapest schedule of one layer for which `planned` finds room; DoesNotFit with the
        smallest sum otherwise."""
        score = SCORES[self.objective]
        found = self.candidates(group, arch, slots, way)
        (layer,) = group.layers

        def weighed(tiled: Tiled) -> float:
            cost = charge(layer.result, tiled.parts, self.short_inputs)
            return score(tiled.estimate) * cost

        candidates = sorted(found, key=weighed)
        refusal: DoesNotFit | None = None
        tries = self.breadth.tries
        smallest = sorted(candidates[tries:], key=_tile_volume)
        for tiled in (*candidates[:tries], *smallest[:tries]):
            schedule = single(tiled, group)
            try:
                planned(schedule, arch)
            except DoesNotFit as why:
                refusal = why if refusal is None or why.demand < refusal.demand else refusal
                continue
            return schedule
        if refusal is None:
            raise DoesNotFit(demand=1, bound=0, unit="tile", terms=(), levers=(), where=group.name)
        raise refusal

    def candidates(
        self, group: Group, arch: Arch, slots: int, way: MulticastRoute | None
    ) -> Iterator[Tiled]:
        """Loops and splits for a group of one layer, in no order; not all of them may fit."""
        (layer,) = group.layers
        cores = min(self.cores or arch.core_count, arch.core_count)

        def allowed(parts: tuple[Box, ...]) -> bool:
            return keeps_apart(group, parts, arch)

        if layer.product:
            columns, kept = COLUMNS[self.objective], self.breadth.kept
            yield from search(layer, arch, cores, slots, columns, group.shared, allowed, kept, way)
            return
        most = self.breadth.tiles
        yield from elementwise_tilings(layer, arch, cores, slots, group.shared, allowed, most, way)


def _tile_volume(tiled: Tiled) -> int:
    volume = 1
    sizes = {loop.dim: loop.size for loop in tiled.loops}
    for dim, (_, extent) in enumerate(tiled.parts[0]):
        volume *= sizes.get(dim, extent)
    return volume
