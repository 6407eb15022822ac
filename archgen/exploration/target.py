"""The smallest machine of a space that does what is asked: `throughput_ips >= 30`.

The one idea: area is known without a run, so machines are tried from the smallest up, and the first
that does it is the answer. Those whose estimate misses by far are spared; with `exact`
nothing is spared, and the answer is that of trying them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from archgen.energy import costs_of
from archgen.energy.price import price_row
from archgen.energy.sram import MissingSource
from archgen.exploration import measures
from archgen.exploration.evaluate import EvaluatedMachine, EvaluationTools, Judge
from archgen.exploration.measures import AREA, Constraint, is_estimable
from archgen.exploration.plan import Exploration, Objective
from archgen.outcomes.figures import is_of_machine, more_is_better
from archgen.outcomes.rows import area_row
from archgen.schema.tree import attempted
from archgen.schema.variants import Variant
from archgen.studies.design import StudyError
from archgen.studies.results import Study

MOST = 20_000
"""Combinations that are looked through."""


@dataclass(frozen=True)
class Answer:
    """The machine that was asked for, and what was done to find it."""

    exploration: Exploration
    constraints: tuple[Constraint, ...]
    """Those of the study, and the target."""
    smallest: Objective
    machine: EvaluatedMachine | None
    """None: no machine of the space does it."""
    full: tuple[EvaluatedMachine, ...] = field(repr=False)
    """Machines that were run, in the order of trying."""
    spared: int
    """Machines that were not run because their estimates miss the target by far."""
    machines: int
    """Machines of the space."""
    study: Study = field(repr=False)


def smallest(
    exploration: Exploration, target: str, means: EvaluationTools, by: str = AREA,
    exact: bool = False,
) -> Answer:  # fmt: skip
    """The machine with least of `by` that keeps to `target` and the constraints of the study;
    arguments as of `archgen.smallest_machine`. A `by` that is not of machines is known of none
    before its run, so all are run that estimates do not spare.

    Raises StudyError: a mistake in `target` or `by`, or a space that is too large.
    """
    arch = exploration.design.machines[0].arch
    parts = target.split(",")
    asked, wrong = attempted(lambda part: measures.parse_constraint(part, arch), parts, ValueError)
    if wrong:
        raise StudyError(f"target: {mistake}" for mistake in wrong)
    constraints = (*asked, *exploration.constraints)
    try:
        by, _ = measures.measure_column(by, arch)
    except ValueError as mistake:
        raise StudyError([f"smallest: {mistake}"]) from None
    size = Objective(by, more_is_better(by))
    ordered = _ordered(exploration, by)
    ahead = max(1, means.running.jobs)
    spared = 0
    margin = float("inf") if exact else exploration.asked.screen.margin
    with closing(Judge(exploration.design, means, len(ordered))) as judge:
        tried: list[EvaluatedMachine] = []
        for start in range(0, len(ordered), ahead):
            some = ordered[start : start + ahead]
            hopeful = _hopeful(judge, some, constraints, margin)
            spared += len(some) - len(hopeful)
            tried += judge.run(hopeful)
            if is_of_machine(by) and _least(tried, constraints, size) is not None:
                break
        judge.transfer_schedules()
        tried = [judge.full[each.machine.arch.name] for each in tried]
        best = _least(tried, constraints, size)
        study = judge.study()
    return Answer(exploration, constraints, size, best, tuple(tried), spared, len(ordered), study)


def _ordered(exploration: Exploration, by: str) -> list[Variant]:
    """The machines of the space; where `by` is an area, from the smallest up."""
    space = exploration.space
    if space.size > MOST:
        said = f"{space.size} combinations are more than {MOST}; give fewer values, or search"
        raise StudyError([f"explore.parameters: {said}"])
    found: list[tuple[float, Variant]] = []
    for machine in space.machines():
        try:
            area = costs_of(machine.arch).area
        except MissingSource as mistake:
            raise StudyError([str(mistake)]) from None
        row = {**area_row(area), **price_row(machine.arch, area)}
        found.append((float(row.get(by) or row[AREA] or 0), machine))
    return [machine for _, machine in sorted(found, key=lambda each: each[0])]


def _hopeful(
    judge: Judge, machines: Sequence[Variant], constraints: Sequence[Constraint], margin: float
) -> list[Variant]:
    """Machines whose estimates do not miss a constraint by more than `margin`. A machine that the
    estimate refuses is run: the compiler may know a way."""
    exact = [c for c in constraints if is_of_machine(c.measure)]
    known = exact if math.isinf(margin) else [c for c in constraints if is_estimable(c.measure)]
    if not known:
        return list(machines)
    return [
        guess.machine
        for guess in judge.estimate(machines)
        if all(c.missed_by(value) <= (1.0 if c in exact else margin) for c in known
               for value in guess.values(c.measure))
    ]  # fmt: skip


def _least(
    tried: Sequence[EvaluatedMachine], constraints: Sequence[Constraint], size: Objective
) -> EvaluatedMachine | None:
    """The first of the smallest machines that keep to all constraints."""
    fitting = [
        (size.cost(value), index)
        for index, judged in enumerate(tried)
        if judged.answered and judged.meets(constraints)
        for value in (judged.value(size.measure),)
        if value is not None
    ]
    return tried[min(fitting)[1]] if fitting else None
