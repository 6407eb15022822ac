"""What each field of a machine is worth: changed alone, and two at a time.

The one idea: a ladder of machines for each field, alike in everything else. A step up the ladder
has a gain and a price (mm2 of chip, GB/s of DRAM); where the gain falls below what is worth having,
the field no longer helps. Two fields whose changes together do more or less than the sum of both
depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations

import pandas as pd

from archgen.exploration.evaluate import EvaluatedMachine, EvaluationTools, Judge
from archgen.exploration.plan import AREA, SensitivityPlan
from archgen.exploration.space import Indices, Parameter, base_value
from archgen.outcomes.frame import Frame, Record
from archgen.outcomes.rows import per_area
from archgen.schema.tree import plain
from archgen.schema.variants import LESS, elasticity, is_one_of
from archgen.studies.results import Study

_NAN = float("nan")
_BANDWIDTH = "dram_gb_per_s"


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


def sensitivities(asked: SensitivityPlan, means: EvaluationTools) -> Sensitivities:
    """What the fields of the machine in `asked` are worth.

    Raises StudyError: what is wrong with networks or the machine.
    """
    fields = list(enumerate(asked.space.parameters))
    steps = [[_with(asked.base, {n: at}) for at in range(len(p.values))] for n, p in fields]
    pairs = _pairs(asked) if asked.asked.pairs else {}
    wanted = dict.fromkeys([asked.base, *chain.from_iterable(steps), *pairs.values()])
    machines = {c: m for c in wanted if (m := asked.space.machine(c)) is not None}
    with Judge(asked.design, means, len(machines)) as judge:
        judge.run(list(machines.values()))
        judge.transfer_schedules()
        study = judge.save()
        found = {choice: judge.full[machine.arch.name] for choice, machine in machines.items()}
    results = {choice: _result(asked, choice, found.get(choice)) for choice in wanted}
    ladders = [_ladder(asked, n, pd.DataFrame([results[c] for c in steps[n]])) for n, _ in fields]
    return Sensitivities(
        asked,
        pd.concat(ladders, ignore_index=True),
        pd.DataFrame([_tornado(asked, n, ladder) for n, ladder in enumerate(ladders)]),
        pd.DataFrame([_pair(asked, results, *each) for each in pairs.items()]),
        study,
    )


def _with(base: Indices, moved: Mapping[int, int]) -> Indices:
    return tuple(moved.get(index, value) for index, value in enumerate(base))


def _result(asked: SensitivityPlan, choice: Indices, judged: EvaluatedMachine | None) -> Record:
    """Metric, area and bandwidth of a machine, or why there are none."""
    measure = asked.metric.measure
    if judged is None:
        return {measure: _NAN, AREA: _NAN, _BANDWIDTH: _NAN,
                "reason": asked.space.forbidden.get(choice, "")}  # fmt: skip
    value, area, arch = judged.value(measure), judged.value(AREA), judged.machine.arch
    return {
        measure: _NAN if value is None or not judged.answered else value,
        AREA: _NAN if area is None else area,
        _BANDWIDTH: arch.dram_peak * arch.clock / 1e9,
        "reason": judged.reason,
    }


def _ladder(asked: SensitivityPlan, index: int, results: Frame) -> Frame:
    """The rows of one field: each value with the step from the one before."""
    parameter, own = asked.space.parameters[index], asked.base[index]
    values, area, bandwidth = (results[name] for name in (asked.metric.measure, AREA, _BANDWIDTH))
    before, more = results.shift(), bandwidth.diff()
    costs = asked.metric.cost(1) * values
    better = costs.shift() - costs
    return pd.DataFrame(
        {
            "parameter": parameter.name,
            "value": parameter.texts,
            "own": results.index == own,
            asked.metric.measure: values,
            "change": (values - values[own]) / (values[own] or _NAN),
            AREA: area,
            _BANDWIDTH: bandwidth,
            "gain": better / costs.shift().abs().replace(0, _NAN),
            "gain_per_mm2": list(map(per_area, better, area.diff(), before[AREA])),
            "gain_per_gb_per_s": (better / more).where(more > 0),
            "reason": results["reason"],
        }
    )


def enough(costs: pd.Series, worth: float, less: bool = False) -> str | None:
    """The value up to which each step gains at least `worth`; None where the last step still does.

    Args:
        costs: by values of ascending amounts; nan where there is no result.
        worth: a share of the metric.
        less: whether steps go to smaller amounts, as is better of delays.
    """
    known = costs.dropna()[:: -1 if less else 1]
    gains = -known.diff().shift(-1) / known.abs().replace(0, _NAN)
    return next(iter(gains.index[gains < worth]), None)


def _tornado(asked: SensitivityPlan, index: int, ladder: Frame) -> Record:
    """The row of one field."""
    parameter, own = asked.space.parameters[index], asked.base[index]
    low, base, high = ladder.reindex([own - 1, own, own + 1]).to_dict("records")
    costs = asked.metric.cost(1) * ladder.set_index("value")[asked.metric.measure]
    last = enough(costs, asked.asked.worth, is_one_of(parameter.name, LESS))
    return {
        "parameter": parameter.name,
        "own_value": base["value"],
        "low_value": low["value"],
        "high_value": high["value"],
        "low": low["change"],
        "high": high["change"],
        "metric": asked.metric.measure,
        "gain_per_mm2": high["gain_per_mm2"],
        "gain_per_gb_per_s": high["gain_per_gb_per_s"],
        "elasticity": _elasticity(parameter, costs.to_list(), own),
        "enough": last if parameter.ordered else None,
    }


def _elasticity(parameter: Parameter, costs: list[float], own: int) -> float:
    """Of the metric in the field, along the step up; down where there is none, or no result."""
    if not parameter.ordered:
        return _NAN
    amounts = [float(base_value(plain(value))[0]) for value in parameter.values]
    steps = (
        elasticity(costs[at] / costs[own], amounts[at] / amounts[own])
        for at in (own + 1, own - 1)
        if 0 <= at < len(costs) and costs[own] and amounts[own]
    )
    return next((found for found in steps if found is not None), _NAN)


def _pairs(asked: SensitivityPlan) -> dict[tuple[int, int], Indices]:
    """Every two parameters that have a value beside the machine's own, and both changed: to the
    value above, or the one below where there is none."""
    counts = [len(parameter.values) for parameter in asked.space.parameters]
    moved = {
        index: own + 1 if own + 1 < count else own - 1
        for index, (own, count) in enumerate(zip(asked.base, counts, strict=True))
        if count > 1
    }
    return {
        (a, b): _with(asked.base, {a: moved[a], b: moved[b]}) for a, b in combinations(moved, 2)
    }


def _pair(
    asked: SensitivityPlan, results: Mapping[Indices, Record], fields: tuple[int, int],
    both: Indices,
) -> Record:  # fmt: skip
    """The row of two fields."""
    alone = [_with(asked.base, {index: both[index]}) for index in fields]
    base, *changed = (results[c][asked.metric.measure] for c in (asked.base, *alone, both))
    one, other, together = ((value - base) / base if base else _NAN for value in changed)
    first, second = (asked.space.parameters[index] for index in fields)
    return {
        "first": first.name,
        "first_value": first.texts[both[fields[0]]],
        "second": second.name,
        "second_value": second.texts[both[fields[1]]],
        "first_alone": one,
        "second_alone": other,
        "together": together,
        "interaction": together - (one + other),
        "metric": asked.metric.measure,
    }
