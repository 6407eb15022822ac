"""What is worth running in full, by what estimates say.

The one idea: an estimate never decides who is on the front, only who is looked at more closely. As
soon as some machines have been simulated, estimates are corrected by the least that they were off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from archgen.exploration.constraints import Constraint
from archgen.exploration.evaluate import Judged
from archgen.exploration.measures import is_estimable
from archgen.exploration.plan import Objective
from archgen.outcomes.fronts import dominates, ranks, spread

_SLACK = 0.1
"""Relative excess over a bound that an estimate may have and still count as keeping to it."""
_TIMES = {
    "latency_cycles": 1,
    "latency_ms": 1,
    "latency_area": 1,
    "throughput_ips": -1,
    "throughput_per_mm2": -1,
    "throughput_low_per_mm2": -1,
    "throughput_high_per_mm2": -1,
}
"""Measures that the error of the estimated time changes, and how."""


def is_blind(objectives: Sequence[Objective]) -> bool:
    """Whether estimates know nothing of what is looked for."""
    return not any(is_estimable(objective.measure) for objective in objectives)


def promising(
    guesses: Sequence[Judged],
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint],
    keep: float,
) -> list[int]:
    """Indices of the share `keep` of machines to run in full, the most promising first: those that
    keep to the constraints, then those on the foremost fronts, then the lonely ones on a front."""
    answered = [index for index, guess in enumerate(guesses) if guess.answered]
    costs = [estimated_costs(guesses[index], objectives) for index in answered]
    rank, lonely = ranks(costs), spread(costs)
    order = sorted(
        range(len(answered)),
        key=lambda at: (_excess(guesses[answered[at]], constraints), rank[at], -lonely[at]),
    )
    return [answered[at] for at in order[: math.ceil(keep * len(answered))]]


def estimated_costs(
    guess: Judged, objectives: Sequence[Objective], error: float = 1.0
) -> tuple[float, ...]:
    """Costs of the objectives that can be estimated, times corrected by `error`."""
    known = [o for o in objectives if is_estimable(o.measure)]
    return tuple(o.cost(corrected(guess, o.measure, error) or 0.0) for o in known)


def corrected(guess: Judged, measure: str, error: float) -> float | None:
    """An estimate, with the time that it rests on times `error`."""
    value = guess.value(measure)
    return None if value is None else value * error ** _TIMES.get(measure, 0)


def _excess(guess: Judged, constraints: Sequence[Constraint]) -> float:
    worst = [
        max(0.0, c.excess(value) - _SLACK)
        for c in constraints
        if is_estimable(c.measure)
        for value in guess.values(c.measure)
    ]
    return sum(worst)


def time_errors(guessed: Mapping[str, Judged], full: Mapping[str, Judged]) -> list[float]:
    """Simulated over estimated time of every machine that has both."""
    pairs = [
        (guessed[name].value("latency_cycles"), judged.value("latency_cycles"))
        for name, judged in full.items()
        if judged.answered and name in guessed and guessed[name].answered
    ]
    return [simulated / guess for guess, simulated in pairs if guess and simulated]


def overlooked(
    guessed: Mapping[str, Judged],
    full: Mapping[str, Judged],
    best: Sequence[Judged],
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint],
) -> list[Judged]:
    """Machines that were screened out and that no machine of the front `best` dominates, estimates
    corrected by the least error that the others had: estimates of neighbours are often equal."""
    if not all(is_estimable(objective.measure) for objective in objectives):
        return []
    error = min(time_errors(guessed, full), default=1.0)
    reached = [[o.cost(judged.value(o.measure) or 0.0) for o in objectives] for judged in best]
    return [
        guess
        for name, guess in guessed.items()
        if name not in full
        and guess.answered
        and not any(dominates(costs, estimated_costs(guess, objectives, error))
                    for costs in reached)
        and all(c.met(corrected(guess, c.measure, error))
                for c in constraints if is_estimable(c.measure))
    ]  # fmt: skip
