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
from contextlib import suppress
from dataclasses import dataclass, replace

from compiler.codegen.nodes import instructions
from compiler.context import ScheduledNetwork, ScheduleSearch
from compiler.decisions.group_costs import Fit, GroupCosts
from compiler.errors import DoesNotFit
from compiler.geometry.tile_trace import Unwalkable
from compiler.memory.on_chip import PlaceBuffers, PlacedGroup, Step
from compiler.options import ESTIMATED, LEVELS, JudgeGroups, Stages, Trial
from compiler.pipeline import emit_program
from compiler.plan.make_plan import MakePlan, Plan
from compiler.schedule.residency.buffer import Place
from compiler.schedule.tiling.objective import charge_of
from compiler.schedule.wording import sizes_text
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Schedule
from compiler.target.group_facts import Unholdable
from compiler.tensor_ir.nest import NestGraph
from simmodel.program.program import Program
from simmodel.trace import Trace


@dataclass(frozen=True)
class TuningCandidate:
    """A schedule of a group, and how it is planned and placed."""

    what: str
    """In which it differs from what the estimates prefer."""
    schedule: Schedule
    plan: MakePlan
    alloc: PlaceBuffers


@dataclass
class Autotuner:
    """The groups of one network on one machine."""

    graph: NestGraph
    costs: GroupCosts
    run: Callable[[Program], int]
    """Cycles of a program."""
    options: JudgeGroups

    def __post_init__(self) -> None:
        self.made: dict[int, tuple[Trial, ...]] = {}
        """What was tried of the groups of one outline."""
        self._best: dict[int, TuningCandidate | None] = {}
        self._spent = 0
        """Instructions in programs so far."""
        self._alone: int | None = None
        """Cycles of the only step, where there is one only: the run of the program says it."""
        self._quickest: Program | None = None
        """Of the only step; the network's, often the same, does not run while this is there."""
        self._others: dict[str, GroupCosts] = {}

    def tune(self, steps: Sequence[Step], added: Mapping[int, int]) -> tuple[Step, ...]:
        """The `steps` of a program with the schedules that are quickest by themselves; each has
        `added` cycles to the program's run."""
        self._alone = sum(added.values()) if len(steps) == 1 else None
        groups = dict[int, tuple[PlacedGroup, Fit | None]]()
        before: Fit | None = None
        for step in steps:
            if isinstance(step, PlacedGroup):
                groups.setdefault(self._outline(step), (step, before))
                before = step.plan, step.places
        for outline in self._outlines_worth_tuning(steps, added):
            if self._spent <= self.options.instructions:
                self._best[outline] = self._best_candidate(*groups[outline])

        def fit(step: PlacedGroup, before: Fit | None) -> Fit | None:
            way = self._best.get(self._outline(step))
            return None if way is None else self._fit(way, step.plan.schedule.group, before)

        return refitted(steps, fit)

    def of(self, steps: Sequence[Step]) -> dict[int, tuple[Trial, ...]]:
        """By step, what was tried of its group, or of one like it; the first is `ESTIMATED`."""
        outlines = {n: self._outline(s) for n, s in enumerate(steps) if isinstance(s, PlacedGroup)}
        return {n: self.made[found] for n, found in outlines.items() if found in self.made}

    def _outline(self, step: PlacedGroup) -> int:
        return self.costs.search.outlines.of(step.plan.schedule.group)

    def _outlines_worth_tuning(self, steps: Sequence[Step], added: Mapping[int, int]) -> list[int]:
        """Groups that take so much longer than they must that others are worth their trial, those
        with most to gain first."""
        search = self.costs.search
        stake: dict[int, float] = {}
        for number, step in enumerate(steps):
            if isinstance(step, PlacedGroup):
                least = search.bounds.least(step.plan.schedule.group, search.cores).total
                outline = self._outline(step)
                stake[outline] = stake.get(outline, 0.0) + max(0.0, added.get(number, 0) - least)
        enough = self.options.worth * sum(added.values())
        found = (outline for outline, cycles in stake.items() if cycles > enough)
        return sorted(found, key=stake.__getitem__, reverse=True)

    def _best_candidate(self, step: PlacedGroup, before: Fit | None) -> TuningCandidate | None:
        """The quickest way for the group of `step`; None where that is its own."""
        group, made = step.plan.schedule.group, step.plan.schedule
        cycles = self.run(self._program_of(step)) if self._alone is None else self._alone
        trials = [Trial(ESTIMATED, made.estimate.total, cycles)]
        short = self.costs.stages.tile.short_inputs
        least = cycles * charge_of(made, short)
        best: TuningCandidate | None = None
        seen = {_identity(step.plan, step.places)}
        # Without the plan of loads its constants lie elsewhere, which makes it no other way.
        with suppress(DoesNotFit):
            placed = self.costs.stages.alloc.apply(step.plan, self.costs.arch, before)
            seen.add(_identity(step.plan, placed))
        for way in self._candidates(group, made):
            if len(trials) > self.options.candidates or self._spent > self.options.instructions:
                break
            fit = self._fit(way, group, before)
            if fit is None or _identity(*fit) in seen:
                continue
            seen.add(_identity(*fit))
            try:
                program = self._program_of(PlacedGroup(*fit))
            except DoesNotFit:  # too few tokens
                continue
            cycles = self.run(program)
            trials.append(Trial(way.what, way.schedule.estimate.total, cycles))
            weighed = cycles * charge_of(way.schedule, short)
            if weighed < least:
                least, best = weighed, way
                self._quickest = None if self._alone is None else program
        self.made[self._outline(step)] = tuple(trials)
        return best

    def _program_of(self, step: PlacedGroup) -> Program:
        """One of this step alone."""
        alone = replace(self.graph, steps=(), inputs=(), outputs=())
        search = ScheduleSearch(alone, (), self.costs)
        program = emit_program(ScheduledNetwork(search, (step,)), search.context).program
        self._spent += sum(1 for core in program.cores for _ in instructions(core))
        return program

    def _fit(self, way: TuningCandidate, group: Group, before: Fit | None) -> Fit | None:
        """The group planned and placed; None where it does not fit so."""
        arch = self.costs.arch
        try:
            plan = way.plan.apply(way.schedule.of(group), arch)
            return plan, way.alloc.apply(plan, arch, before)
        except (DoesNotFit, Unwalkable, Unholdable):
            return None

    def _candidates(self, group: Group, made: Schedule) -> Iterator[TuningCandidate]:
        """Other ways that may be as good: the best of each kind by estimate, then the next of each
        kind, and so on."""
        kinds = (
            self._structures(group, made), self._placements(made), self._constant_candidates(group),
            self._slots(group, 1), self._slots(group, -1),
        )  # fmt: skip
        highest = (1 + self.options.within) * made.estimate.total
        while turn := [way for kind in kinds if (way := next(kind, None)) is not None]:
            good = (way for way in turn if way.schedule.estimate.total <= highest)
            yield from sorted(good, key=lambda way: way.schedule.estimate.total)

    def _placements(self, made: Schedule) -> Iterator[TuningCandidate]:
        """With regard to conflicts in banks, and without: one of them is its own."""
        stages = self.costs.stages
        blind = replace(stages.alloc, conflicts="blind")
        aware = replace(stages.alloc, conflicts="aware")
        for regard, alloc in (("without", blind), ("with", aware)):
            what = f"placed {regard} regard to bank conflicts"
            yield TuningCandidate(what, made, stages.plan, alloc)

    def _slots(self, group: Group, more: int) -> Iterator[TuningCandidate]:
        stages = self.costs.stages
        slots = stages.plan.slots + more
        if slots > 0:
            other = replace(stages, plan=replace(stages.plan, slots=slots))
            yield from self._quick_search(f"{slots} slot{'s' * (slots > 1)}", group, other)

    def _constant_candidates(self, group: Group) -> Iterator[TuningCandidate]:
        stages = self.costs.stages
        if any(group.tensors[name].data is not None for name in group.inputs):
            tile = replace(stages.tile, held_up=0.0, whole=not stages.tile.whole)
            other = replace(stages, tile=tile)
            yield from self._quick_search("constants in pieces", group, other)

    def _quick_search(self, what: str, group: Group, stages: Stages) -> Iterator[TuningCandidate]:
        """What a quick search of its own finds with other passes."""
        if what not in self._others:
            tile = replace(stages.tile, breadth=LEVELS[0].breadth)
            self._others[what] = self.costs.with_stages(replace(stages, tile=tile))
        with suppress(DoesNotFit):
            for schedule in self._others[what].schedules(group)[:1]:
                yield TuningCandidate(what, schedule, stages.plan, stages.alloc)

    def _structures(self, group: Group, made: Schedule) -> Iterator[TuningCandidate]:
        """The best of each other structure, then what is next best of any."""
        stages = self.costs.stages
        seen, rest = {_structure(made)}, []
        for schedule in self.costs.every(group):
            kind = _structure(schedule)
            way = TuningCandidate(sizes_text(schedule), schedule, stages.plan, stages.alloc)
            if kind in seen:
                rest.append(way)
            else:
                seen.add(kind)
                yield way
        yield from rest


def refitted(
    steps: Sequence[Step], fit: Callable[[PlacedGroup, Fit | None], Fit | None]
) -> tuple[Step, ...]:
    """Steps with their groups as `fit` plans and places them behind the group before; None: as they
    are."""
    found: list[Step] = []
    before: Fit | None = None
    for step in steps:
        if isinstance(step, PlacedGroup):
            made = fit(step, before)
            step = step if made is None else PlacedGroup(*made)
            before = step.plan, step.places
        found.append(step)
    return tuple(found)


def cycles_by_step(trace: Trace) -> dict[int, int]:
    """By step, the cycles from the end of the steps before to its own end."""
    ends: dict[int, int] = {}
    for origin in trace.origins:
        ends[origin.group] = max(ends.get(origin.group, 0), origin.last)
    found, end = {}, 0
    for step in sorted(ends):
        found[step] = max(0, ends[step] - end)
        end = max(end, ends[step])
    return found


def _structure(schedule: Schedule) -> Hashable:
    """What schedules of one structure have in common: all but the sizes of tiles."""
    outer = tuple((loop.axis, loop.rolling) for loop in schedule.loops)
    inner = tuple(
        (tiled.resident, tuple((loop.dim, loop.reduction, loop.ahead) for loop in tiled.loops))
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
