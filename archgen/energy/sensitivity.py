"""What each field of a machine's file costs: changed alone, everything else as it is.

The one idea: no derivative is written anywhere; the machine is priced again with the field twice as
large, or by another factor (or otherwise where that is no machine), so whatever a field touches
shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from archgen.energy.costs import EnergyCosts, costs_of, event_name
from archgen.energy.sram import MissingSource
from archgen.schema.rewritten import changed_to_other, leaf_fields
from archgen.schema.variants import TWICE, elasticity, value_of
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class Effect:
    """What another value of one field does to costs, as shares of what they were."""

    field: str
    before: Any
    after: Any
    mm2: float
    """Area more, not as a share."""
    area: float
    elasticity: float | None
    """Per cent of area for one per cent of the field; None where that is no amount."""
    leakage: float
    events: dict[str, float]
    """By event, those that change: `local read`, `instruction`."""


def effects(arch: Arch, factor: float = TWICE) -> Iterator[Effect]:
    """Of each field of `arch` that costs depend on, in the order of the file; amounts become
    `factor` times as large, or what is lawful and nearest."""
    base = costs_of(arch)
    for field, value in leaf_fields(arch):
        found = changed_to_other(arch, field, value, factor)
        if found is None:
            continue
        after, changed = found
        try:
            other = costs_of(changed)
        except MissingSource:  # of a library that cannot be used here
            continue
        amounts = [
            amount
            for machine in (arch, changed)
            if isinstance(amount := value_of(machine, field), int | float) and amount
        ]
        times = amounts[1] / amounts[0] if len(amounts) == 2 else math.nan
        effect = _effect_of(base, other, field, value, after, times)
        if effect.mm2 or effect.leakage or effect.events:
            yield effect


def _effect_of(
    base: EnergyCosts, other: EnergyCosts, field: str, before: Any, after: Any, times: float
) -> Effect:
    """How `other` differs from `base`, where the field is `times` as large."""
    old, new = base.area.total.value, other.area.total.value
    leakage = _share_of(base.leakage.value, other.leakage.value)
    costs, changed = events_of(base), events_of(other)
    events = {
        name: _share_of(cost, changed[name])
        for name, cost in costs.items()
        if changed.get(name, cost) != cost
    }
    elastic = elasticity(new / old if old else math.nan, times)
    return Effect(field, before, after, new - old, _share_of(old, new), elastic, leakage, events)


def _share_of(old: float, new: float) -> float:
    """How much more `new` is than `old`, as a share of that."""
    return new / old - 1 if old else 0.0


def events_of(costs: EnergyCosts) -> dict[str, float]:
    """pJ of each event, by the name that it is printed with."""
    events = {event_name(field): cost.value for field, cost in costs.by_field.items()}
    del events["leakage"]
    return events
