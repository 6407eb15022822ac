"""What each field of a machine is worth: changed alone, and two at a time.

The one idea: a ladder of machines for each field, alike in everything else. A step up the ladder
has a gain and a price (mm2 of chip, GB/s of DRAM); where the gain falls below what is worth having,
the field no longer helps. Two fields whose changes together do more or less than the sum of both
depend on each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

import pandas as pd

from archgen.exploration.evaluate import EvaluatedMachine, EvaluationTools, Judge
from archgen.exploration.measures import AREA
from archgen.exploration.plan import SensitivityPlan
from archgen.exploration.space import Indices, Parameter, base_value
from archgen.outcomes.frame import Frame
from archgen.outcomes.rows import per_area
from archgen.schema.tree import plain
from archgen.schema.variants import LESS, elasticity, is_one_of
from archgen.studies.results import Study
from archgen.studies.store import StoreError

_NAN = float("nan")


@dataclass(frozen=True)
class Sensitivities:
    """What the fields are worth."""

    asked: SensitivityPlan
    ladders: Frame = field(repr=False)
    """A row for each value of each field: its metric, and gain and price of the step to it."""
    tornado: Frame = field(repr=False)
    """A row for each field: relative changes of the metric at the values next to the machine's own,
    what the step up gains by mm2 and by GB/s, its elasticity, and the value after which more no
    longer helps."""
    pairs: Frame = field(repr=False)
    """A row for each two fields: their changes alone and together."""
    study: Study = field(repr=False)


@dataclass(frozen=True)
class Rung:
    """A machine on the ladder of one field."""

    value: str
    cost: float
    """The metric with the sign that makes less better; nan where there is no result."""
    area: float
    """mm2."""
    bandwidth: float
    """GB/s of DRAM."""
    reason: str = ""


def sensitivities(asked: SensitivityPlan, means: EvaluationTools) -> Sensitivities:
    """What the fields of the machine in `asked` are worth.

    Raises StudyError: what is wrong with networks or the machine.
    """
    ladders = {p.name: _ladder(asked, index) for index, p in enumerate(asked.space.parameters)}
    pairs = _pairs(asked) if asked.asked.pairs else []
    together = [choice for _, _, choice in pairs]
    wanted = dict.fromkeys([asked.base, *(c for own in ladders.values() for c in own), *together])
    machines = {c: m for c in wanted if (m := asked.space.machine(c)) is not None}
    with closing(Judge(asked.design, means, len(machines))) as judge:
        try:
            judge.run(list(machines.values()))
            judge.transfer_schedules()
        except BaseException:
            with suppress(StoreError):  # what interrupted the study is what has to be told
                judge.save()
            raise
        study = judge.save()
        found = {choice: judge.full[machine.arch.name] for choice, machine in machines.items()}
    rungs = {choice: _rung(asked, choice, found.get(choice)) for choice in wanted}
    labelled = [
        [replace(rungs[choice], value=text) for text, choice in zip(p.texts, own, strict=True)]
        for p, own in zip(asked.space.parameters, ladders.values(), strict=True)
    ]
    return Sensitivities(
        asked,
        pd.DataFrame([row for n, own in enumerate(labelled) for row in _steps(asked, n, own)]),
        pd.DataFrame([_tornado(asked, n, own) for n, own in enumerate(labelled)]),
        pd.DataFrame([_pair(asked, rungs, *pair) for pair in pairs]),
        study,
    )


def _ladder(asked: SensitivityPlan, index: int) -> list[Indices]:
    """The machine with each value of one parameter."""
    count = len(asked.space.parameters[index].values)
    return [_replace_indices(asked.base, {index: value}) for value in range(count)]


def _replace_indices(base: Indices, changed: dict[int, int]) -> Indices:
    return tuple(changed.get(index, value) for index, value in enumerate(base))


def _rung(asked: SensitivityPlan, choice: Indices, judged: EvaluatedMachine | None) -> Rung:
    if judged is None:
        return Rung("", _NAN, _NAN, _NAN, asked.space.forbidden.get(choice, ""))
    value = judged.value(asked.metric.measure) if judged.answered else None
    area, arch = judged.value(AREA), judged.machine.arch
    return Rung(
        "",
        _NAN if value is None else asked.metric.cost(value),
        _NAN if area is None else area,
        arch.dram_bytes_per_cycle * arch.clock / 1e9,
        judged.reason,
    )


def _steps(
    asked: SensitivityPlan, index: int, rungs: Sequence[Rung]
) -> Iterable[dict[str, object]]:
    """The rows of one field: each value with the step from the one before."""
    own = rungs[asked.base[index]]
    for before, rung in pairwise([None, *rungs]):
        assert rung is not None
        yield {
            "parameter": asked.space.parameters[index].name,
            "value": rung.value,
            "own": rung is own,
            asked.metric.measure: asked.metric.cost(rung.cost),
            "change": change(own, rung),
            AREA: rung.area,
            "dram_gb_per_s": rung.bandwidth,
            "gain": _NAN if before is None else gain(before, rung),
            "gain_per_mm2": _NAN if before is None else by_area(before, rung),
            "gain_per_gb_per_s": _NAN if before is None else by_bandwidth(before, rung),
            "reason": rung.reason,
        }


def change(base: Rung, other: Rung) -> float:
    """The relative change of the metric from `base` to `other`, as the metric counts."""
    return (other.cost - base.cost) / base.cost if base.cost else _NAN


def gain(before: Rung, after: Rung) -> float:
    """How much better the metric becomes, relative to what it was."""
    return (before.cost - after.cost) / abs(before.cost) if before.cost else _NAN


def by_area(before: Rung, after: Rung) -> float:
    """Improvement of the metric, in its unit, for each further mm2; nan for hardly any area."""
    return per_area(before.cost - after.cost, after.area - before.area, before.area)


def by_bandwidth(before: Rung, after: Rung) -> float:
    """Improvement of the metric, in its unit, for each further GB/s of DRAM."""
    more = after.bandwidth - before.bandwidth
    return (before.cost - after.cost) / more if more > 0 else _NAN


def enough(rungs: Sequence[Rung], worth: float, less: bool = False) -> str | None:
    """The value up to which each step gains at least `worth`; None where the last step still does.

    Args:
        rungs: by ascending amounts.
        worth: a share of the metric.
        less: whether steps go to smaller amounts, as is better of delays.
    """
    known = [rung for rung in rungs if rung.cost == rung.cost]
    if len(known) < 2:
        return None
    if less:
        known.reverse()
    for before, after in pairwise(known):
        if gain(before, after) < worth:
            return before.value
    return None


def _tornado(asked: SensitivityPlan, index: int, rungs: Sequence[Rung]) -> dict[str, object]:
    """The row of one field."""
    own, parameter = asked.base[index], asked.space.parameters[index]
    base = rungs[own]
    low = rungs[own - 1] if own > 0 else None
    high = rungs[own + 1] if own + 1 < len(rungs) else None
    less = is_one_of(parameter.name, LESS)
    return {
        "parameter": parameter.name,
        "own_value": base.value,
        "low_value": low.value if low else None,
        "high_value": high.value if high else None,
        "low": change(base, low) if low else _NAN,
        "high": change(base, high) if high else _NAN,
        "metric": asked.metric.measure,
        "gain_per_mm2": by_area(base, high) if high else _NAN,
        "gain_per_gb_per_s": by_bandwidth(base, high) if high else _NAN,
        "elasticity": _elasticity(parameter, rungs, own),
        "enough": enough(rungs, asked.asked.worth, less) if parameter.ordered else None,
    }


def _elasticity(parameter: Parameter, rungs: Sequence[Rung], own: int) -> float:
    """Of the metric in the field, along the step up; down where there is none, or no result."""
    if not parameter.ordered:
        return _NAN
    amounts = [float(base_value(plain(value))[0]) for value in parameter.values]
    base, found = rungs[own], None
    for other in (each for each in (own + 1, own - 1) if 0 <= each < len(rungs) and base.cost):
        if found is None and amounts[own]:
            result = rungs[other].cost / base.cost
            found = elasticity(result, amounts[other] / amounts[own])
    return _NAN if found is None else found


def _pairs(asked: SensitivityPlan) -> list[tuple[int, int, Indices]]:
    """Every two parameters that have a value beside the machine's own, and both changed: to the
    value above, or the one below where there is none."""
    counts = [len(parameter.values) for parameter in asked.space.parameters]
    moved = {
        index: own + 1 if own + 1 < count else own - 1
        for index, (own, count) in enumerate(zip(asked.base, counts, strict=True))
        if count > 1
    }
    return [
        (a, b, _replace_indices(asked.base, {a: moved[a], b: moved[b]}))
        for a, b in combinations(moved, 2)
    ]


def _pair(
    asked: SensitivityPlan, rungs: dict[Indices, Rung], a: int, b: int, both: Indices
) -> dict[str, object]:
    """The row of two fields."""
    base = rungs[asked.base]
    alone = [
        change(base, rungs[_replace_indices(asked.base, {index: both[index]})]) for index in (a, b)
    ]
    together = change(base, rungs[both])
    first, second = (asked.space.parameters[index] for index in (a, b))
    return {
        "first": first.name,
        "first_value": first.texts[both[a]],
        "second": second.name,
        "second_value": second.texts[both[b]],
        "first_alone": alone[0],
        "second_alone": alone[1],
        "together": together,
        "interaction": together - sum(alone),
        "metric": asked.metric.measure,
    }
