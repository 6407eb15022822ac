"""The search for a space's Pareto front: proposed, screened by estimates, run in full.

The one idea: an estimate decides who is run, never who wins. Everything on the front has been
compiled, executed, checked against ONNX Runtime and simulated, and at the end every machine that
was screened out is looked at again: where the front does not dominate its estimate, it is run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from archgen.energy import costs_of
from archgen.energy.price import price_row
from archgen.energy.sram import MissingSource
from archgen.exploration.evaluate import EvaluatedMachine, EvaluationTools, Judge
from archgen.exploration.plan import (
    AREA,
    Constraint,
    Exploration,
    Objective,
    is_estimable,
    measure_column,
    parse_constraint,
)
from archgen.exploration.trials import RAN, REFUSED, SCREENED, ExplorationTrials, Proposal
from archgen.outcomes.estimated import growth
from archgen.outcomes.figures import is_of_machine, more_is_better
from archgen.outcomes.fronts import crowding_distances, dominates, pareto_front, pareto_ranks
from archgen.outcomes.rows import area_row
from archgen.process.files import content_hash
from archgen.schema.tree import attempted
from archgen.schema.variants import Variant
from archgen.studies.design import StudyError
from archgen.studies.results import Study

# What is worth running in full, by what estimates say.

_SLACK = 0.1
"""Relative excess over a bound that an estimate may have and still count as keeping to it."""


def is_blind(objectives: Sequence[Objective]) -> bool:
    """Whether estimates know nothing of what is looked for."""
    return not any(is_estimable(objective.measure) for objective in objectives)


def promising(guesses: Sequence[EvaluatedMachine], exploration: Exploration) -> list[int]:
    """Indices of the share of machines to run in full, the most promising first: those that keep to
    the constraints, then those on the foremost fronts, then the lonely ones on a front."""
    answered = [index for index, guess in enumerate(guesses) if guess.answered]
    costs = [estimated_costs(guesses[index], exploration.objectives) for index in answered]
    excess = [_excess(guesses[index], exploration.constraints) for index in answered]
    rank, lonely = pareto_ranks(costs), crowding_distances(costs)
    order = sorted(range(len(answered)), key=lambda at: (excess[at], rank[at], -lonely[at]))
    kept = math.ceil(exploration.asked.screen.keep * len(answered))
    return [answered[at] for at in order[:kept]]


def estimated_costs(
    guess: EvaluatedMachine, objectives: Sequence[Objective], error: float = 1.0
) -> tuple[float, ...]:
    """Costs of the objectives that can be estimated, times corrected by `error`."""
    known = [o for o in objectives if is_estimable(o.measure)]
    return tuple(o.cost(corrected(guess, o.measure, error) or 0.0) for o in known)


def corrected(guess: EvaluatedMachine, measure: str, error: float) -> float | None:
    """An estimate, with the time that it rests on times `error`."""
    value = guess.value(measure)
    return None if value is None else value * error ** growth(measure)[0]


def _excess(guess: EvaluatedMachine, constraints: Sequence[Constraint]) -> float:
    known = [c for c in constraints if is_estimable(c.measure)]
    values = ((c, value) for c in known for value in guess.values(c.measure))
    return sum(max(0.0, c.excess(value) - _SLACK) for c, value in values)


def time_errors(
    guessed: Mapping[str, EvaluatedMachine], full: Mapping[str, EvaluatedMachine]
) -> list[float]:
    """Simulated over estimated time of every machine that has both."""
    pairs = [
        (guessed[name].value("latency_cycles"), judged.value("latency_cycles"))
        for name, judged in full.items()
        if judged.answered and name in guessed and guessed[name].answered
    ]
    return [simulated / guess for guess, simulated in pairs if guess and simulated]


def screened_out_candidates(judge: Judge, exploration: Exploration) -> list[EvaluatedMachine]:
    """Machines that were screened out and that no machine of the front dominates, estimates
    corrected by the least error that the others had: estimates of neighbours are often equal."""
    objectives = exploration.objectives
    if not all(is_estimable(objective.measure) for objective in objectives):
        return []
    error = min(time_errors(judge.guessed, judge.full), default=1.0)
    best = best_of(judge.full.values(), exploration)
    reached = [[o.cost(judged.value(o.measure) or 0.0) for o in objectives] for judged in best]
    known = [c for c in exploration.constraints if is_estimable(c.measure)]
    left = [g for name, g in judge.guessed.items() if name not in judge.full and g.answered]
    return [
        guess
        for guess in left
        if not any(dominates(c, estimated_costs(guess, objectives, error)) for c in reached)
        and all(c.met(corrected(guess, c.measure, error)) for c in known)
    ]


_HEADLINE = ("latency_ms", "throughput_ips", "energy_mj", "area_mm2")


@dataclass(frozen=True)
class ExplorationResult:
    """What an exploration has found."""

    exploration: Exploration
    front: tuple[EvaluatedMachine, ...]
    """Machines that keep to the constraints and that no other dominates, by first objective."""
    full: tuple[EvaluatedMachine, ...] = field(repr=False)
    """Machines that were run in full."""
    guessed: tuple[EvaluatedMachine, ...] = field(repr=False)
    forbidden: Mapping[str, str] = field(repr=False)
    """Combinations that the rules between fields forbid, and why."""
    errors: tuple[float, ...] = field(repr=False)
    """Simulated over estimated time of each machine that has both."""
    study: Study = field(repr=False)
    """The machines that were run in full, as a study."""

    @property
    def looked(self) -> int:
        """Machines that were estimated or run."""
        return len({judged.machine.arch.name for judged in (*self.full, *self.guessed)})

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each machine of the front: its fields, the objectives and the usual figures."""
        names = dict.fromkeys([*self.exploration.measures, *_HEADLINE])
        rows = []
        for judged in self.front:
            row: dict[str, Any] = {"arch": judged.machine.arch.name}
            row |= {setting.field: setting.text for setting in judged.machine.settings}
            rows.append(row | {name: judged.value(name) for name in names})
        return pd.DataFrame(rows)


def search(exploration: Exploration, means: EvaluationTools) -> ExplorationResult:
    """The front of the space of `exploration`, as far as its trials reach.

    Raises:
        StudyError: what is wrong with networks or machines; that Optuna is missing.
    """
    asked = exploration.asked
    wanted = min(asked.trials, exploration.space.size)
    shares = asked.screen.keep + (1 if _screens(exploration) else 0)
    with Judge(exploration.design, means, round(wanted * shares)) as judge:
        trials = _trials(exploration, judge, means)
        _recall(trials, exploration, judge)
        while batch := trials.propose(asked.batch):
            _judge(batch, trials, exploration, judge)
        _recall(trials, exploration, judge)
        # Schedules are lent after the search: so it proposes the same however often it stopped.
        # What was screened out may yet be better than what that has found.
        judge.transfer_schedules()
        while missed := screened_out_candidates(judge, exploration):
            judge.run([guess.machine for guess in missed[: asked.batch]])
            judge.transfer_schedules()
        space = exploration.space
        return ExplorationResult(
            exploration,
            best_of(judge.full.values(), exploration),
            tuple(judge.full.values()),
            tuple(judge.guessed.values()),
            {space.text(choice): why for choice, why in space.forbidden.items()},
            tuple(time_errors(judge.guessed, judge.full)),
            judge.save(),
        )


def _trials(exploration: Exploration, judge: Judge, means: EvaluationTools) -> ExplorationTrials:
    out = means.running.out
    folder = None if out is None else Path(out)
    identity = content_hash(
        {
            "base": [judge.key(machine) for machine in exploration.design.machines],
            "parameters": {p.name: p.texts for p in exploration.space.parameters},
            "objectives": [[o.measure, o.more] for o in exploration.objectives],
            "constraints": [c.text for c in exploration.constraints],
            "screen": exploration.asked.screen.keep,
            "sampler": [exploration.asked.sampler, exploration.asked.seed],
        }
    )
    return ExplorationTrials(exploration, identity[:16], folder, judge.screen)


def _screens(exploration: Exploration) -> bool:
    return exploration.asked.screen.keep < 1 and not is_blind(exploration.objectives)


def _recall(trials: ExplorationTrials, exploration: Exploration, judge: Judge) -> None:
    """Have at hand what earlier or other runs have judged; it is stored."""
    judge.estimate(trials.machines(SCREENED, RAN) if _screens(exploration) else [])
    judge.run(trials.machines(RAN, REFUSED))


def _judge(
    batch: Sequence[Proposal], trials: ExplorationTrials, exploration: Exploration, judge: Judge
) -> None:
    """Estimate a batch, run what is promising, and tell what became of each when all is known: a
    batch that is interrupted is proposed again as a whole."""
    chosen, screened = list(batch), list[Proposal]()
    if _screens(exploration):
        best = promising(judge.estimate([proposal.machine for proposal in batch]), exploration)
        chosen = [batch[index] for index in best]
        screened = [proposal for index, proposal in enumerate(batch) if index not in best]
    verdicts = judge.run([proposal.machine for proposal in chosen])
    for proposal in screened:
        trials.tell(proposal, SCREENED)
    for proposal, judged in zip(chosen, verdicts, strict=True):
        values = judged.figures(exploration.measures)
        if values is None:
            trials.tell(proposal, REFUSED)
            continue
        excess = [
            max(c.excess(value) for value in judged.values(c.measure))
            for c in exploration.constraints
        ]
        trials.tell(proposal, RAN, values, excess)


def best_of(
    full: Iterable[EvaluatedMachine], exploration: Exploration
) -> tuple[EvaluatedMachine, ...]:
    """The front of machines that were run in full, by their first objective."""
    found: list[tuple[list[float], EvaluatedMachine]] = []
    for judged in full:
        values = judged.figures(exploration.measures)
        if values is not None and judged.meets(exploration.constraints):
            pairs = zip(exploration.objectives, values, strict=True)
            found.append(([objective.cost(value) for objective, value in pairs], judged))
    found.sort(key=lambda pair: pair[0])
    return tuple(found[index][1] for index in pareto_front([costs for costs, _ in found]))


# The smallest machine of a space that does what is asked: `throughput_ips >= 30`. Area is known
# without a run, so machines are tried from the smallest up: the first that does it is the answer.
# Those whose estimate misses by far are spared, unless the search is to be exact.

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
    asked, wrong = attempted(lambda part: parse_constraint(part, arch), parts, ValueError)
    if wrong:
        raise StudyError(f"target: {mistake}" for mistake in wrong)
    constraints = (*asked, *exploration.constraints)
    try:
        by, _ = measure_column(by, arch)
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
