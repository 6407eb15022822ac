"""The search for a space's Pareto front: proposed, screened by estimates, run in full.

The one idea: an estimate decides who is run, never who wins. Everything on the front has been
compiled, executed, checked against ONNX Runtime and simulated, and at the end every machine that
was screened out is looked at again: where the front does not dominate its estimate, it is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from archgen.cache import content_hash
from archgen.exploration.evaluate import Judge, Judged, Means
from archgen.exploration.plan import Exploration
from archgen.exploration.screen import is_blind, overlooked, promising, time_errors
from archgen.exploration.trials import RAN, REFUSED, SCREENED, Proposal, Trials
from archgen.outcomes.fronts import front
from archgen.studies.results import Study
from archgen.studies.store import StoreError

_HEADLINE = ("latency_ms", "throughput_ips", "energy_mj", "area_mm2")


@dataclass(frozen=True)
class Found:
    """What an exploration has found."""

    exploration: Exploration
    front: tuple[Judged, ...]
    """Machines that keep to the constraints and that no other dominates, by first objective."""
    full: tuple[Judged, ...] = field(repr=False)
    """Machines that were run in full."""
    guessed: tuple[Judged, ...] = field(repr=False)
    """Machines that were estimated."""
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


def search(exploration: Exploration, means: Means) -> Found:
    """The front of the space of `exploration`, as far as its trials reach.

    Raises:
        StudyError: what is wrong with networks or machines; that Optuna is missing.
    """
    asked = exploration.asked
    wanted = min(asked.trials, exploration.space.size)
    shares = asked.screen.keep + (1 if _screens(exploration) else 0)
    with Judge(exploration.design, means, round(wanted * shares)) as judge:
        trials = _trials(exploration, judge, means)
        try:
            _recall(trials, exploration, judge)
            while batch := trials.propose(asked.batch):
                _judge(batch, trials, exploration, judge)
            _recall(trials, exploration, judge)
            _second_look(exploration, judge)
        except BaseException:
            with suppress(StoreError):  # what interrupted the search is what has to be told
                judge.save()
            raise
        return _found(exploration, judge)


def _trials(exploration: Exploration, judge: Judge, means: Means) -> Trials:
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
    return Trials(exploration, identity[:16], folder, judge.screen)


def _screens(exploration: Exploration) -> bool:
    return exploration.asked.screen.keep < 1 and not is_blind(exploration.objectives)


def _recall(trials: Trials, exploration: Exploration, judge: Judge) -> None:
    """Have at hand what earlier or other runs have judged; it is stored."""
    judge.estimate(trials.machines(SCREENED, RAN) if _screens(exploration) else [])
    judge.run(trials.machines(RAN, REFUSED))


def _judge(
    batch: Sequence[Proposal], trials: Trials, exploration: Exploration, judge: Judge
) -> None:
    """Estimate a batch, run what is promising, and tell what became of each when all is known: a
    batch that is interrupted is proposed again as a whole."""
    chosen, screened = list(batch), list[Proposal]()
    if _screens(exploration):
        guesses = judge.estimate([proposal.machine for proposal in batch])
        keep = exploration.asked.screen.keep
        best = promising(guesses, exploration.objectives, exploration.constraints, keep)
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


def _second_look(exploration: Exploration, judge: Judge) -> None:
    """Run what was screened out and may yet be better than what was found, where machines have lent
    each other their schedules. Who proposes is told of what each has found alone: so it proposes
    the same whenever it was interrupted."""
    while True:
        judge.lend()
        best = best_of(judge.full.values(), exploration)
        missed = overlooked(
            judge.guessed, judge.full, best, exploration.objectives, exploration.constraints
        )
        if not missed:
            return
        missed = missed[: exploration.asked.batch]
        judge.run([guess.machine for guess in missed])


def best_of(full: Iterable[Judged], exploration: Exploration) -> tuple[Judged, ...]:
    """The front of machines that were run in full, by their first objective."""
    found: list[tuple[list[float], Judged]] = []
    for judged in full:
        values = judged.figures(exploration.measures)
        if values is not None and judged.meets(exploration.constraints):
            pairs = zip(exploration.objectives, values, strict=True)
            found.append(([objective.cost(value) for objective, value in pairs], judged))
    found.sort(key=lambda pair: pair[0])
    return tuple(found[index][1] for index in front([costs for costs, _ in found]))


def _found(exploration: Exploration, judge: Judge) -> Found:
    space = exploration.space
    return Found(
        exploration,
        best_of(judge.full.values(), exploration),
        tuple(judge.full.values()),
        tuple(judge.guessed.values()),
        {space.text(choice): why for choice, why in space.forbidden.items()},
        tuple(time_errors(judge.guessed, judge.full)),
        judge.save(),
    )
