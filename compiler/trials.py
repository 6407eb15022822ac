"""Other schedules of a group, each run by a judge as a small program of that group alone.

The estimates rank schedules of one kind well; between kinds they may err by more than is at stake,
because whether a transfer hides behind work depends on bursts, queues and banks. So the best
schedules of every other kind are run:

    structure   another split over the cores, loops along other dimensions, halos computed again
    placement   without regard to conflicts in banks, or with it
    constants   loaded in pieces as they are needed, or as a whole
    slots       one more, or one less, of what is streamed

Groups that are alike are tried once, and those alone whose time is far above what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.alloc.on_chip import Place, PlaceBuffers
from compiler.bind.facts import Unholdable
from compiler.effort import LEVELS
from compiler.emit.nodes import instructions
from compiler.emit.program import Placed, ProgramEmitter, Step
from compiler.errors import DoesNotFit
from compiler.fit import Fit, Fitter
from compiler.fuse.outline import Outline
from compiler.geometry.walk import Unwalkable
from compiler.group import Group
from compiler.judge_groups import ESTIMATED, JudgeGroups, Trial
from compiler.nest.ir import NestGraph
from compiler.plan.ir import Plan
from compiler.plan.make_plan import MakePlan
from compiler.schedule import Schedule, single
from compiler.stages import Stages
from compiler.tile.short_inputs import charge_of
from compiler.wording import sizes_text
from simmodel.program import Program


@dataclass(frozen=True)
class Way:
    """A schedule of a group, and how it is planned and placed."""

    what: str
    """In which it differs from what the estimates prefer."""
    schedule: Schedule
    plan: MakePlan
    alloc: PlaceBuffers


@dataclass
class Trials:
    """The groups of one network on one machine."""

    graph: NestGraph
    fitter: Fitter
    run: Callable[[Program], int]
    """Cycles of a program."""
    options: JudgeGroups

    def __post_init__(self) -> None:
        self.made: dict[Outline, tuple[Trial, ...]] = {}
        """What was tried of the groups of one outline."""
        self._best: dict[Outline, Way | None] = {}
        self._spent = 0
        """Instructions in programs so far."""
        self._alone: int | None = None
        """Cycles of the only step, where there is one only: the run of the program says it."""
        self._others: dict[str, Fitter] = {}

    def better(self, steps: Sequence[Step], added: Mapping[int, int]) -> tuple[Step, ...]:
        """`steps` with the schedules that are quickest by themselves.

        Args:
            steps: of a program.
            added: by the number of each step, the cycles that it adds to the program's run.
        """
        self._alone = sum(added.values()) if len(steps) == 1 else None
        firsts = self._firsts(steps)
        for outline in self._worth(steps, added):
            if self._spent <= self.options.instructions:
                self._best[outline] = self._tried(*firsts[outline])
        found: list[Step] = []
        before: Fit | None = None
        for step in steps:
            if isinstance(step, Placed):
                step = self._again(step, self._best.get(self._outline(step)), before)
                before = step.plan, step.places
            found.append(step)
        return tuple(found)

    def _firsts(self, steps: Sequence[Step]) -> dict[Outline, tuple[Placed, Fit | None]]:
        """The first group of each outline, and the one before it."""
        found: dict[Outline, tuple[Placed, Fit | None]] = {}
        before: Fit | None = None
        for step in steps:
            if isinstance(step, Placed):
                found.setdefault(self._outline(step), (step, before))
                before = step.plan, step.places
        return found

    def of(self, steps: Sequence[Step]) -> dict[int, tuple[Trial, ...]]:
        """By step, what was tried of its group, or of one like it; the first is `ESTIMATED`."""
        outlines = {n: self._outline(s) for n, s in enumerate(steps) if isinstance(s, Placed)}
        return {n: self.made[found] for n, found in outlines.items() if found in self.made}

    def _outline(self, step: Placed) -> Outline:
        return self.fitter.search.outlines.of(step.plan.schedule.group)

    def _worth(self, steps: Sequence[Step], added: Mapping[int, int]) -> list[Outline]:
        """Groups that take so much longer than they must that others are worth their trial, those
        with most to gain first."""
        search = self.fitter.search
        stake: dict[Outline, float] = {}
        for number, step in enumerate(steps):
            if isinstance(step, Placed):
                least = search.bounds.least(step.plan.schedule.group, search.cores).total
                outline = self._outline(step)
                stake[outline] = stake.get(outline, 0.0) + max(0.0, added.get(number, 0) - least)
        enough = self.options.worth * sum(added.values())
        found = (outline for outline, cycles in stake.items() if cycles > enough)
        return sorted(found, key=stake.__getitem__, reverse=True)

    def _again(self, step: Placed, way: Way | None, before: Fit | None) -> Placed:
        """A step in a way that was found for a group like its own."""
        if way is None:
            return step
        fit = self._fit(way, step.plan.schedule.group, before)
        return step if fit is None else Placed(*fit)

    def _tried(self, step: Placed, before: Fit | None) -> Way | None:
        """The quickest way for the group of `step`; None where that is its own."""
        group, made = step.plan.schedule.group, step.plan.schedule
        cycles = self._cycles(step) if self._alone is None else self._alone
        trials = [Trial(ESTIMATED, made.estimate.total, cycles)]
        short = self.fitter.search.short_inputs
        least = cycles * charge_of(made, short)
        best: Way | None = None
        seen = {_identity(step.plan, step.places)}
        for way in self._ways(group, made):
            if len(trials) > self.options.candidates or self._spent > self.options.instructions:
                break
            fit = self._fit(way, group, before)
            if fit is None or _identity(*fit) in seen:
                continue
            seen.add(_identity(*fit))
            try:
                cycles = self._cycles(Placed(*fit))
            except DoesNotFit:  # too few tokens
                continue
            trials.append(Trial(way.what, way.schedule.estimate.total, cycles))
            weighed = cycles * charge_of(way.schedule, short)
            if weighed < least:
                least, best = weighed, way
        self.made[self._outline(step)] = tuple(trials)
        return best

    def _cycles(self, step: Placed) -> int:
        """Simulated, of a program of this step alone."""
        alone = replace(self.graph, steps=(), inputs=(), outputs=())
        stages = self.fitter.stages
        emitter = ProgramEmitter(
            alone, self.fitter.arch, (step,), stages.order, stages.share, stages.split
        )
        program = emitter.program()
        self._spent += sum(1 for core in program.cores for _ in instructions(core))
        return self.run(program)

    def _fit(self, way: Way, group: Group, before: Fit | None) -> Fit | None:
        """The group planned and placed; None where it does not fit so."""
        arch = self.fitter.arch
        try:
            plan = way.plan.apply(way.schedule.of(group), arch)
            return plan, way.alloc.apply(plan, arch, before)
        except (DoesNotFit, Unwalkable, Unholdable):
            return None

    def _ways(self, group: Group, made: Schedule) -> Iterator[Way]:
        """Other ways that may be as good: the best of each kind by estimate, then the next of each
        kind, and so on."""
        kinds = (
            self._structures(group, made), self._placements(made), self._constants(group),
            self._slots(group, 1), self._slots(group, -1),
        )  # fmt: skip
        highest = (1 + self.options.within) * made.estimate.total
        while turn := [way for kind in kinds if (way := next(kind, None)) is not None]:
            good = (way for way in turn if way.schedule.estimate.total <= highest)
            yield from sorted(good, key=lambda way: way.schedule.estimate.total)

    def _placements(self, made: Schedule) -> Iterator[Way]:
        """With regard to conflicts in banks, and without: one of them is its own."""
        stages = self.fitter.stages
        blind = replace(stages.alloc, conflicts="blind")
        aware = replace(stages.alloc, conflicts="aware")
        yield Way("placed without regard to bank conflicts", made, stages.plan, blind)
        yield Way("placed with regard to bank conflicts", made, stages.plan, aware)

    def _slots(self, group: Group, more: int) -> Iterator[Way]:
        stages = self.fitter.stages
        slots = stages.plan.slots + more
        if slots > 0:
            other = replace(stages, plan=replace(stages.plan, slots=slots))
            yield from self._first(f"{slots} slot{'s' * (slots > 1)}", group, other)

    def _constants(self, group: Group) -> Iterator[Way]:
        stages = self.fitter.stages
        if any(group.tensors[name].data is not None for name in group.inputs):
            pieces = replace(stages.tile, held_up=0.0, whole=not stages.tile.whole)
            yield from self._first("constants in pieces", group, replace(stages, tile=pieces))

    def _first(self, what: str, group: Group, stages: Stages) -> Iterator[Way]:
        """What a quick search of its own finds with other passes."""
        if what not in self._others:
            tile = replace(stages.tile, breadth=LEVELS[0].breadth)
            other = Fitter(self.fitter.arch, replace(stages, tile=tile), self.fitter.fronts)
            other.search.memory = self.fitter.search.memory  # walks depend on no option
            self._others[what] = other
        try:
            found = self._others[what].schedules(group)
        except DoesNotFit:
            return
        yield from (Way(what, schedule, stages.plan, stages.alloc) for schedule in found[:1])

    def _structures(self, group: Group, made: Schedule) -> Iterator[Way]:
        """The best of each other structure, then what is next best of any."""
        stages = self.fitter.stages
        seen, rest = {_structure(made)}, []
        for schedule in self._schedules(group):
            kind = _structure(schedule)
            way = Way(sizes_text(schedule), schedule, stages.plan, stages.alloc)
            if kind in seen:
                rest.append(way)
            else:
                seen.add(kind)
                yield way
        yield from rest

    def _schedules(self, group: Group) -> list[Schedule]:
        """All schedules of a group that the search has, the best first."""
        if not group.alone:
            return self.fitter.schedules(group)
        found = self.fitter.candidates(group)
        return sorted((single(tiled, group) for tiled in found), key=lambda s: s.estimate.total)


def _structure(schedule: Schedule) -> Hashable:
    """What schedules of one structure have in common: all but the sizes of tiles."""
    outer = tuple((loop.axis, loop.rolling) for loop in schedule.loops)
    inner = tuple(
        (tiled.resident, tuple((loop.dim, loop.reduction) for loop in tiled.loops))
        for tiled in schedule.layers
    )
    if len(inner) > 1:  # their loops follow from those outside
        return schedule.parts, outer, tuple(stays for stays, _ in inner)
    return schedule.parts, outer, inner


def _identity(plan: Plan, places: Mapping[str, Place]) -> Hashable:
    """What programs of one group differ in."""
    schedule = plan.schedule
    layers = tuple((tiled.loops, tiled.parts, tiled.resident) for tiled in schedule.layers)
    buffers = tuple((b.name, b.bytes, b.slots) for b in plan.buffers.values())
    return schedule.parts, schedule.loops, layers, buffers, tuple(sorted(places.items()))
