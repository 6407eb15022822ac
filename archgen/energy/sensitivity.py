"""What each field of a machine's file costs: changed alone, everything else as it is.

The one idea: no derivative is written anywhere; the machine is priced again with the field twice as
large, or by another factor (or otherwise where that is no machine), so whatever a field touches
shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from archgen.energy.costs import EnergyCosts, costs_of
from archgen.energy.sram import MissingSource
from archgen.schema.rewritten import another, leaves
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
    for field, value in leaves(arch):
        found = another(arch, field, value, factor)
        other = None if found is None else _priced(found[1])
        if found is None or other is None:
            continue
        times = _times(value_of(arch, field), value_of(found[1], field))
        effect = effect_of(base, other, field, value, found[0], times)
        if effect.mm2 or effect.leakage or effect.events:
            yield effect


def _priced(arch: Arch) -> EnergyCosts | None:
    """Costs of `arch`; None where it takes them from a library that cannot be used here."""
    try:
        return costs_of(arch)
    except MissingSource:
        return None


def _times(before: object, after: object) -> float:
    """How many times as large an amount is; NaN for what is none."""
    amounts = [each for each in (before, after) if isinstance(each, int | float) and each]
    return amounts[1] / amounts[0] if len(amounts) == 2 else math.nan


def effect_of(
    base: EnergyCosts, other: EnergyCosts, field: str, before: Any, after: Any, times: float
) -> Effect:
    """How `other` differs from `base`, where the field is `times` as large."""
    old, new = base.area.total.value, other.area.total.value
    leakage = share_of(base.leakage.value, other.leakage.value)
    pairs = {name: (cost, events_of(other).get(name)) for name, cost in events_of(base).items()}
    events = {
        name: share_of(one, two) for name, (one, two) in pairs.items() if two not in (None, one)
    }
    elastic = elasticity(new / old if old else math.nan, times)
    return Effect(field, before, after, new - old, share_of(old, new), elastic, leakage, events)


def share_of(old: float, new: float | None) -> float:
    """How much more `new` is than `old`, as a share of that."""
    return 0.0 if new is None or not old else new / old - 1


def events_of(costs: EnergyCosts) -> dict[str, float]:
    """pJ of each event, by the name that it is printed with."""
    found = {f"mac {name}": cost for name, cost in costs.mac.items()}
    found |= {f"vector {kind}": cost for kind, cost in costs.vector.items()}
    for role in costs.read:
        found |= {f"{role} read": costs.read[role], f"{role} write": costs.write[role]}
    found |= {f"link {name}": cost for name, cost in costs.links.items()}
    found["instruction"] = costs.instruction
    return {name: cost.value for name, cost in found.items()}


# Fields of architecture files that ask for no area and no energy, and why.

TIME: Mapping[str, str] = {
    "memories.dram.latency": "of another chip",
    "memories.*.mapping": "another order of the same wires",
    "memories.*.conflict_penalty": "a property of banks, not an amount of them",
    "memories.*.latency": "deeper pipelines are in the range of the figures",
    "matrix.fold_overlap": "a rule of its control",
    "matrix.im2col": "a rule of its control",
    "matrix.overlap": "a rule of its control",
    "matrix.startup": "pipelines are in the range of the figures",
    "matrix.granularity": "what one instruction asks for; its control is within a slot of issue",
    "matrix.max_pixels": "bits of a counter",
    "matrix.depthwise": "a rule of its control; a small network takes 12 % more cycles without",
    "types": "what networks are compiled for; engines have types of their own",
    "isa.without": "what the compiler must do without; a sigmoid less: 6 % of a small network",
    "isa.limits*": "what the compiler must do without; no form has logic of its own here",
    "scalar.startup": "pipelines are in the range of the figures",
    "front_end.signal": "distance; its wires lie above the logic",
    "vector.startup": "pipelines are in the range of the figures",
    "vector.max_extent": "bits of a counter",
    "copy.*.startup": "pipelines are in the range of the figures",
    "links.*.latency": "distance; its wires lie above the logic",
    "host.compute": "not on the chip",
    "host.bandwidth": "not on the chip",
    "host.latency": "not on the chip",
}
"""Fields that cost or save time alone."""

ELSEWHERE: Mapping[str, str] = {
    "name": "a word: the same program, time and price",
    "description": "a word: the same program, time and price",
    "memories.dram.size": "other chips; what does not fit is refused",
    "encoding.opcodes": "other numbers in as many bits",
    "encoding.numbers": "other numbers in as many bits",
    "encoding.order": "other places in as many bits",
    "energy.source": "whose figures are taken",
    "price.*": "dollars, which change neither the chip nor its time",
}
"""Fields that change neither price nor time."""
