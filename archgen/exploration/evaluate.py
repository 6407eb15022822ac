"""Machines judged: by estimates, or compiled, executed, checked and simulated.

The one idea: whoever explores asks for machines and gets verdicts; that points run in parallel,
are stored as soon as they are finished and are taken from the store the next time is settled here,
with the means of studies. Estimates have a store of their own, below `screen/`. Machines lend each
other their schedules as in studies (`archgen.studies.schedule_transfer`), so that more hardware is
not judged worse for want of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, geometric_mean

from archgen.exploration.plan import Constraint, measured
from archgen.outcomes.estimated import has_figures
from archgen.outcomes.points import Outcome, Point
from archgen.schema.variants import Variant
from archgen.studies.design import Contents, Design, contents_of, points
from archgen.studies.options import Running
from archgen.studies.results import Study, study_metadata, write_study
from archgen.studies.run import OUTLOOK, Estimator, to_estimate
from archgen.studies.schedule_transfer import (
    ScheduleTransfer,
    reported_outcomes,
    transfer_schedules,
)
from archgen.studies.store import Store, StoreError
from archgen.studies.sweep import Observer, PointRunner
from archgen.toolchain import STANDARD, Toolchain

SCREEN = "screen"


@dataclass(frozen=True)
class EvaluatedMachine:
    """A machine and what became of each network on it."""

    machine: Variant
    outcomes: tuple[Outcome, ...] = field(repr=False)

    @property
    def answered(self) -> bool:
        """Whether every network has figures, and none of them is known to be wrong."""
        return all(has_figures(o.row) and o.good for o in self.outcomes)

    @property
    def reason(self) -> str:
        """Why it has no figures."""
        for outcome in self.outcomes:
            if outcome.row.get("reason"):
                return f"{outcome.status}: {outcome.row['reason']}"
            if not outcome.good:
                return "its outputs are wrong"
        return ""

    def values(self, measure: str) -> list[float | None]:
        return [measured(outcome.row, measure) for outcome in self.outcomes]

    def value(self, measure: str) -> float | None:
        """The geometric mean of a measure over the networks; None where one has none."""
        found = [value for value in self.values(measure) if value is not None]
        if len(found) < len(self.outcomes) or not found:
            return None
        if min(found) <= 0:
            return fmean(found)
        return geometric_mean(found) if len(found) > 1 else found[0]

    def figures(self, measures: Iterable[str]) -> list[float] | None:
        """Each measure; None where it has no answer, or lacks one of them."""
        found = [self.value(measure) for measure in measures]
        known = [value for value in found if value is not None]
        return known if self.answered and len(known) == len(found) else None

    def meets(self, constraints: Iterable[Constraint]) -> bool:
        """Whether every network keeps to all of them."""
        return all(c.met(value) for c in constraints for value in self.values(c.measure))


@dataclass(frozen=True)
class EvaluationTools:
    """What machines are judged with."""

    running: Running = field(default_factory=Running)
    observe: Observer | None = None
    """Called after each point, with how many are finished of how many that are expected."""
    tools: Toolchain = STANDARD
    estimator: Estimator = OUTLOOK


class Judge:
    """Judges machines until it is closed."""

    def __init__(self, design: Design, means: EvaluationTools, expected: int) -> None:
        """`expected`: machines that may be asked for, for those who watch."""
        self.design, self.means = design, means
        self.expected = expected * sum(max(1, len(load.batches)) for load in design.workloads)
        self.full: dict[str, EvaluatedMachine] = {}
        """Machines that were run in full, by name."""
        self.guessed: dict[str, EvaluatedMachine] = {}
        self._own: dict[str, Outcome] = {}
        """What points that were run in full found alone, by key."""
        self._loans: dict[ScheduleTransfer, Outcome] = {}
        self._contents: Contents = contents_of(design)
        self._done = 0
        running, out = means.running, means.running.out
        untried = replace(means.tools, tries=False)  # fields are changed here anyway
        below = replace(running, out=None if out is None else Path(out) / SCREEN)
        self._run = PointRunner(design, running, untried, self.expected, self._tell)
        self._estimated = PointRunner(design, below, means.estimator, self.expected, self._tell)

    @property
    def screen(self) -> Store | None:
        """The store of estimates."""
        return self._estimated.store

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        """End who runs points; what an interruption leaves is saved before."""
        with closing(self):
            if kind is not None:
                with suppress(StoreError):  # what interrupted the study is what has to be told
                    self.save()

    def close(self) -> None:
        """End who runs points."""
        self._run.close()
        self._estimated.close()

    def key(self, machine: Variant) -> str:
        """What decides the results of a machine, as text."""
        return "".join(point.key for point in self._points(machine))

    def run(self, machines: Sequence[Variant]) -> list[EvaluatedMachine]:
        """Each machine compiled, executed, checked and simulated."""
        self._own |= self._judge(machines, self.full, self._run, self._points)
        return [self.full[machine.arch.name] for machine in machines]

    def estimate(self, machines: Sequence[Variant]) -> list[EvaluatedMachine]:
        def guessed_points(machine: Variant) -> list[Point]:
            return [to_estimate(p, self.means.estimator) for p in self._points(machine)]

        self._judge(machines, self.guessed, self._estimated, guessed_points)
        return [self.guessed[machine.arch.name] for machine in machines]

    def _judge(
        self, machines: Sequence[Variant], known: dict[str, EvaluatedMachine], run: PointRunner,
        points_of: Callable[[Variant], list[Point]],
    ) -> dict[str, Outcome]:  # fmt: skip
        """Adds to `known` what becomes of machines that are not in it; outcomes of their points."""
        new = {m.arch.name: (m, points_of(m)) for m in machines if m.arch.name not in known}
        wanted = (point for _, own in new.values() for point in own)
        found = {outcome.key: outcome for outcome in run(wanted)}
        for name, (machine, own) in new.items():
            known[name] = EvaluatedMachine(machine, tuple(found[point.key] for point in own))
        return found

    def transfer_schedules(self) -> None:
        """Let every machine that was run take the schedules of those with no more hardware which
        are quicker, as far as these stay so on it."""
        if self.design.isolated:
            return
        self._loans = transfer_schedules(self._finished_points(), self._own, self._lent)
        taken = reported_outcomes(self._own, self._loans)
        for machine in self._full_machines:
            self.full[machine.arch.name] = EvaluatedMachine(
                machine, tuple(taken[point.key] for point in self._points(machine))
            )

    def _lent(self, wanted: Sequence[Point]) -> Iterator[Outcome]:
        """What becomes of points with borrowed schedules, each of which is run once."""
        known = {outcome.key: outcome for outcome in self._loans.values()}
        yield from (known[point.key] for point in wanted if point.key in known)
        yield from self._run(point for point in wanted if point.key not in known)

    def _points(self, machine: Variant) -> list[Point]:
        return points(replace(self.design, machines=(machine,)), self._contents)

    def _tell(self, outcome: Outcome, done: int, total: int) -> None:
        """Tell who watches of points that are run and estimated together."""
        self._done += 1
        if self.means.observe is not None:
            self.means.observe(outcome, self._done, max(self.expected, self._done))

    def study(self) -> Study:
        """The machines that were run in full, as a study."""
        design = replace(self.design, machines=self._full_machines)
        said = study_metadata(design, self._finished_points(), self.means.running.command)
        outcomes = tuple(o for judged in self.full.values() for o in judged.outcomes)
        return Study(outcomes, design.archs, said, tuple(self._loans))

    def save(self) -> Study:
        """The same, written into the folder where there is one."""
        result, running = self.study(), self.means.running
        if running.out is not None and result.outcomes:
            write_study(result, Path(running.out), self._finished_points(), plots=running.plots)
        return result

    @property
    def _full_machines(self) -> tuple[Variant, ...]:
        return tuple(judged.machine for judged in self.full.values())

    def _finished_points(self) -> list[Point]:
        return [point for machine in self._full_machines for point in self._points(machine)]
