"""From groups to plans with addresses, and the feedback when something does not fit.

A partition asks what groups cost; the answers are schedules, kept until the partition has chosen.
What then fits no memory after all is tried with smaller tiles, with fewer layers, and nest by nest,
in that order: each step costs more than the one before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.alloc.on_chip import Place
from compiler.bind.facts import Facts, Unholdable
from compiler.errors import CompilerError, DoesNotFit
from compiler.fuse.outline import Outline
from compiler.geometry.walk import Memory, Unwalkable
from compiler.group import Group
from compiler.plan.ir import Plan
from compiler.schedule import Schedule
from compiler.stages import Stages
from compiler.tile.choose_group import GroupSearch
from simmodel.arch import Arch

Fit = tuple[Plan, dict[str, Place]]


@dataclass
class Fitter:
    """Schedules, plans and places groups on one machine."""

    arch: Arch
    stages: Stages

    def __post_init__(self) -> None:
        plan = self.stages.plan
        self.search: GroupSearch = self.stages.tile.together(self.arch, plan.slots)
        self.search.memory = Memory(plan.walking)  # tiles are walked as they will be planned
        self._known: dict[Outline, list[Schedule]] = {}

    @property
    def facts(self) -> Facts:
        """What is true of groups whatever their tiles."""
        return self.search.facts

    def price(self, group: Group) -> float:
        """The score of a group's best schedule; infinity where it fits no tile."""
        try:
            found = self._alike(group)
        except DoesNotFit:
            return math.inf
        return self.search.score(found[0].estimate) if found else math.inf

    def bound(self, group: Group) -> float:
        """At most the price of a group: no schedule does less work, or moves fewer bytes."""
        return self.search.score(self.search.bounds.least(group, self.search.cores))

    def schedules(self, group: Group) -> list[Schedule]:
        """Schedules of a group, the cheapest first; raises DoesNotFit for a layer alone."""
        return [schedule.of(group) for schedule in self._alike(group)]

    def estimated(self, schedule: Schedule) -> Schedule:
        """`schedule` with the estimate that the search has of it, or would have.

        Raises:
            Unwalkable, Unholdable: the group cannot be cut like this.
        """
        for other in self._alike(schedule.group):
            if schedule.same(other):
                return other.of(schedule.group)
        return replace(schedule, estimate=self.search.estimate(schedule))

    def _alike(self, group: Group) -> list[Schedule]:
        """Schedules of the first group that was asked for of all that are like `group`."""
        outline = self.search.outlines.of(group)
        if outline not in self._known:
            alone = len(group.layers) == 1 and not group.kept
            plan = self.stages.plan
            self._known[outline] = (
                [self.stages.tile.alone(group, self.arch, plan.slots, plan.apply)]
                if alone
                else self.search.schedules(group)
            )
        return self._known[outline]

    def fits(self, group: Group, before: Fit | None) -> list[Fit]:
        """The group planned and placed, in as few pieces as it fits in, behind the group `before`;
        DoesNotFit where even a single operator does not."""
        refusal: CompilerError | None = None
        try:
            for schedule in self.schedules(group)[: self.stages.plan.attempts]:
                if refusal is not None and self._dearer(schedule, group):
                    break
                try:
                    return [self._fit(schedule, before)]
                except (DoesNotFit, Unwalkable, Unholdable) as why:
                    refusal = why
        except DoesNotFit as why:
            refusal = why
        found = self.halves(group, before)
        if not found:
            raise refusal or self._unscheduled(group)
        return found

    def _unscheduled(self, group: Group) -> CompilerError:
        """Why a layer has no schedule: by itself, or beside what is kept."""
        try:
            self.schedules(replace(group, kept={}, reserved=0))
        except DoesNotFit as why:
            return why
        return self.search.refusal(group)

    def _dearer(self, schedule: Schedule, group: Group) -> bool:
        """Whether a schedule costs more than the pieces of its group."""
        pieces = list(_pieces(group))
        if len(group.layers) < 2:
            return False
        apart = sum(self.price(piece) for piece in pieces)
        return self.search.score(schedule.estimate) > apart

    def halves(self, group: Group, before: Fit | None) -> list[Fit]:
        """The pieces of a group planned and placed; nothing where it is a single nest."""
        found: list[Fit] = []
        for piece in _pieces(group):
            found += self.fits(piece, found[-1] if found else before)
        return found

    def _fit(self, schedule: Schedule, before: Fit | None) -> Fit:
        plan = self.stages.plan.apply(schedule, self.arch)
        return plan, self.stages.alloc.apply(plan, self.arch, before)


def _pieces(group: Group) -> Iterator[Group]:
    """Two halves of a group, or the nests of a layer; nothing where there is one nest only."""
    if len(group.layers) == 1:
        (layer,) = group.layers
        if len(layer.nests) > 1:
            for nest in layer.nests:
                part = replace(layer, nests=(nest,))
                yield Group((part,), (part.result.name,), group.kept, group.reserved, group.shared)
        return
    middle = len(group.layers) // 2
    halves = group.layers[:middle], group.layers[middle:]
    read = {name for layer in halves[1] for name in layer.inputs}
    first = tuple(
        layer.result.name
        for layer in halves[0]
        if layer.result.name in read or layer.result.name in group.results
    )
    rest = tuple(n for n in group.results if n not in first)
    yield Group(halves[0], first, group.kept, group.reserved, group.shared)
    yield Group(halves[1], rest, group.kept, group.reserved, group.shared)
