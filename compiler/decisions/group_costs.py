"""Groups on one machine: their schedules, what these are expected to cost, and their addresses.

A partition asks what groups cost; the answers are schedules, kept until the partition has chosen.
What then finds no place is the business of `compiler.decisions.fallback`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from compiler.codegen.relocate import EmittedGroups
from compiler.cost.overlap import copy_rate, path
from compiler.errors import DoesNotFit
from compiler.options import Stages
from compiler.plan.make_plan import Plan
from compiler.schedule.residency.buffer import Place
from compiler.schedule.tiling.bounds import in_one_piece
from compiler.schedule.tiling.layer_mapping import ParetoFront
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate, Schedule
from compiler.target.tracking import TrackedCache
from compiler.tensor_ir.nest import HostNode, NestGraph
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property

Fit = tuple[Plan, dict[str, Place]]
Stretch = tuple[str, ...]
"""Results of the layers of a group, which is all of it but what lies on chip."""
_ROUNDING = 1e-6
"""By how much more than a limit a price is looked for: equal layers ask again, with limits that are
off by roundings of what is before them."""


def stretch(group: Group) -> Stretch:
    """What names a group wherever what lies on chip beside it."""
    return tuple([layer.result.name for layer in group.layers])


@dataclass
class GroupCosts:
    """Schedules, plans and places groups on one machine."""

    arch: Arch
    stages: Stages
    fronts: TrackedCache[ParetoFront] | None = None
    """Shares of layers on any machines."""
    barred: set[Stretch] = field(default_factory=set)
    """Groups that found no place, whatever lies on chip beside them."""

    def __post_init__(self) -> None:
        self.way = self.stages.share.multicast_route(self.arch)
        self.search = self.stages.tile.together(self.arch, self.stages.plan.slots, self.way)
        self.search.fronts = self.fronts
        self.cores, self.facts = self.search.cores, self.search.facts
        self.emitted = EmittedGroups()
        self._known: dict[int, list[Schedule]] = {}
        self._scores: dict[int, float] = {}
        self._best: dict[int, Estimate] = {}
        self._bounds: dict[int, float] = {}
        """At most the scores of groups whose schedules are known not to be better."""
        self.on_chip: dict[Hashable, list[tuple[Any, list[list[Any]]]]] = {}
        """By passes, groups of networks, and these with what lies on chip between them."""
        self._hiding = list[GroupCosts]()
        self._plans: dict[Hashable, tuple[Sequence[str], Plan]] = {}
        """Of groups that are alike the first, with its tensors."""

    @cached_property
    def single(self) -> GroupCosts | None:
        """The same with one slot for each buffer; None: that is itself."""
        plan = self.stages.plan
        if plan.slots == 1:
            return None
        return self.with_stages(replace(self.stages, plan=replace(plan, slots=1)))

    def with_stages(self, stages: Stages) -> GroupCosts:
        """Those of other passes, which share what does not depend on any that is another."""
        if stages == self.stages:
            return self
        other = GroupCosts(self.arch, stages, self.fronts)
        same = other.search.asks == self.search.asks and stages.tile == self.stages.tile
        if other.search.measures == self.search.measures:
            other.search = self.search.trying(stages.tile)
            other.cores, other.facts = other.search.cores, self.facts
        other.facts.walks = self.facts.walks  # which depend on no option
        if stages.plan == self.stages.plan:
            other._plans = self._plans
            if same:  # so do groups take as long
                other._known, other._best = self._known, self._best
                other._scores, other._bounds = self._scores, self._bounds
                other.on_chip, other._hiding = self.on_chip, self._hiding
        other.emitted, other.barred = self.emitted, self.barred
        return other

    def with_slots(self, slots: int | None) -> GroupCosts:
        """The one whose buffers have so many slots, where that is one of the two."""
        return self.single if slots == 1 and self.single is not None else self

    def on_cores(self, count: int) -> GroupCosts:
        """Those of groups that have so many cores at most."""
        return self.with_stages(replace(self.stages, tile=replace(self.stages.tile, cores=count)))

    def hiding(
        self, graph: NestGraph, parts: Sequence[Layer | HostNode], share: float
    ) -> GroupCosts:
        """Those of tiles where by default this `share` of what is behind a group's last load does
        not count, as neighbours hide it: where constants take longest to arrive."""
        tile = self.stages.tile
        if tile.hidden is not None or tile.objective != "latency":
            return self
        if not self.cores_keep_up(graph, parts, self.cores):
            return self
        stages = replace(self.stages, tile=replace(tile, hidden=share))
        self._hiding[:] = [(self._hiding or [self])[0].with_stages(stages)]
        return self._hiding[0]

    def barring(self) -> GroupCosts:
        """The same with barred groups of its own, none so far."""
        other = copy(self)
        other.barred = set()
        return other

    def cores_keep_up(
        self, graph: NestGraph, parts: Sequence[Layer | HostNode], cores: int
    ) -> bool:
        """Whether so many cores compute in less time than constants take to arrive."""
        found = [part for part in parts if isinstance(part, Layer)]
        slots = self.search.slots
        numbers = [self.search.outlines.layer(layer).number for layer in found]
        first = dict(zip(numbers[::-1], found[::-1], strict=True))  # equal layers are asked once
        cycles = {n: in_one_piece(layer, self.arch, slots)[0] for n, layer in first.items()}
        computing = sum(map(cycles.__getitem__, numbers))
        tensors = (graph.tensors[name] for layer in found for name in layer.inputs)
        constant = {t.storage.buffer: t.stored for t in tensors if t.data is not None}
        arch, far = self.arch, self.arch.constants
        engine = path(arch, far, arch.matrix.weights if arch.matrix.present else "local")
        rate = min(arch.far_rates[far], self.cores * copy_rate(arch, engine, far))
        return computing / cores < sum(constant.values()) / rate

    @property
    def staging(self) -> int:
        """Bytes of each shared memory for loads on their way from core to core."""
        return 0 if self.way is None else self.way.room

    def price(self, group: Group) -> float:
        """The score of a group's best schedule; infinity where it fits no tile."""
        return self.cost_below(group, math.inf)

    def cost_below(self, group: Group, limit: float) -> float:
        """The price of a group if that is below `limit`, else something that is not: what cannot
        be better than `limit` is not looked at."""
        if self.barred and stretch(group) in self.barred:
            return math.inf
        outline = self.search.outlines.of(group)
        if outline in self._scores:
            return self._scores[outline]
        if self._bounds.get(outline, -math.inf) >= limit:
            return self._bounds[outline]
        limit += _ROUNDING * abs(limit)
        try:
            found = self._estimate(group, outline, limit)
        except DoesNotFit:
            found, limit = None, math.inf
        if found is None:
            known = self._scores if math.isinf(limit) else self._bounds
            known[outline] = limit
            return limit
        self._best[outline] = found
        self._scores[outline] = self.search.score(found)
        return self._scores[outline]

    def _estimate(self, group: Group, outline: int, limit: float) -> Estimate | None:
        """Of the best schedule of a group; None where there is none whose score is below `limit`.

        Raises DoesNotFit for a layer alone.
        """
        if outline in self._known or group.alone:
            try:
                found = self._schedules_by_outline(group)
            except DoesNotFit:
                if self.single is None or len(group.layers[0].nests) > 1:
                    raise
                found = self.single.schedules(group)
            return found[0].estimate if found else None
        return self.search.below(group, limit)

    def overlap_ends(self, group: Group) -> tuple[float, float]:
        """By how much a group that fits may overlap with its neighbours; cycles alone do so, no
        other score."""
        if self.stages.tile.objective != "latency":
            return 0.0, 0.0
        self.price(group)
        best = self._best[self.search.outlines.of(group)]
        return best.lead, best.rest

    def lower_bound(self, group: Group) -> float:
        """At most the price of a group: no schedule does less work, or moves fewer bytes."""
        return self.search.score(self.search.bounds.least(group, self.search.cores))

    def least_added(self, group: Group) -> float:
        """At most what a group adds to whatever is before it: see `Prices`."""
        latency, search = self.stages.tile.objective == "latency", self.search
        found = self._best.get(search.outlines.of(group)) if latency else None
        if found is not None:
            return found.total - found.lead
        least = search.bounds.least(group, search.cores)
        return max(least.matrix, least.vector) if latency else search.score(least)

    def outline(self, group: Group) -> tuple[Hashable, Sequence[str]]:
        """What groups have in common that cost the same, and the tensors that it numbers."""
        return self.search.outlines.numbered(group)

    def schedules(self, group: Group) -> list[Schedule]:
        """Schedules of a group, the cheapest first; raises DoesNotFit for a layer alone."""
        return [schedule.of(group) for schedule in self._schedules_by_outline(group)]

    def every(self, group: Group) -> list[Schedule]:
        """All schedules of a group that the search has, the best first; of a layer alone not all
        may fit."""
        if not group.alone:
            return self.schedules(group)
        return sorted(self.search.candidates(group), key=lambda s: s.estimate.total)

    def estimated(self, schedule: Schedule) -> Schedule:
        """`schedule` with the estimate that the search has of it, or would have; raises Unwalkable
        or Unholdable where the group cannot be cut like this."""
        for other in self._schedules_by_outline(schedule.group):
            if schedule.same(other):
                return other.of(schedule.group)
        return replace(schedule, estimate=self.search.estimate(schedule))

    def _schedules_by_outline(self, group: Group) -> list[Schedule]:
        """Schedules of the first group that was asked for of all that are like `group`."""
        outline = self.search.outlines.of(group)
        if outline not in self._known:
            search, plan = self.search, self.stages.plan.apply
            self._known[outline] = (
                [search.alone(group, plan)] if group.alone else search.schedules(group)
            )
        return self._known[outline]

    def place(self, schedule: Schedule, before: Fit | None) -> Fit:
        """A schedule planned and placed, behind the group `before`.

        Raises DoesNotFit, Unwalkable, Unholdable where it finds no place.
        """
        plan = self._plan(schedule)
        return plan, self.stages.alloc.apply(plan, self.arch, before)

    def _plan(self, schedule: Schedule) -> Plan:
        """The plan of a schedule; equal layers are planned once."""
        outline, names, _ = self.emitted.alike.with_names(schedule.group)
        layers = [(tiled.loops, tiled.parts, tiled.resident) for tiled in schedule.layers]
        key = outline, schedule.parts, schedule.loops, tuple(layers)
        if key in self._plans:
            first, plan = self._plans[key]
            return plan.of(schedule, dict(zip(first, names, strict=True)))
        plan = self.stages.plan.apply(schedule, self.arch)
        self._plans[key] = names, plan
        return plan
