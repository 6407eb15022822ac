"""What each field of a machine's file costs: changed alone, everything else as it is.

The one idea: no derivative is written anywhere; the machine is priced again with the field twice as
large (or otherwise where that is no machine), so whatever a field touches shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from archgen.energy.costs import Costs, costs_of
from archgen.energy.sources import MissingSource
from archgen.schema.rewritten import another, leaves
from simmodel.arch import Arch


@dataclass(frozen=True)
class Effect:
    """What another value of one field does to costs, as shares of what they were."""

    field: str
    before: Any
    after: Any
    mm2: float
    """Area more, not as a share."""
    area: float
    leakage: float
    events: dict[str, float]
    """By event, those that change: `local read`, `instruction`."""


def effects(arch: Arch) -> Iterator[Effect]:
    """Of each field of `arch` that costs depend on, in the order of the file."""
    base = costs_of(arch)
    for field, value in leaves(arch):
        found = another(arch, field, value)
        other = None if found is None else _priced(found[1])
        if found is None or other is None:
            continue
        effect = effect_of(base, other, field, value, found[0])
        if effect.mm2 or effect.leakage or effect.events:
            yield effect


def _priced(arch: Arch) -> Costs | None:
    """Costs of `arch`; None where it takes them from a library that cannot be used here."""
    try:
        return costs_of(arch)
    except MissingSource:
        return None


def effect_of(base: Costs, other: Costs, field: str, before: Any, after: Any) -> Effect:
    """How `other` differs from `base`."""
    old, new = base.area.total.value, other.area.total.value
    leakage = share_of(base.leakage.value, other.leakage.value)
    pairs = {name: (cost, events_of(other).get(name)) for name, cost in events_of(base).items()}
    events = {
        name: share_of(one, two) for name, (one, two) in pairs.items() if two not in (None, one)
    }
    return Effect(field, before, after, new - old, share_of(old, new), leakage, events)


def share_of(old: float, new: float | None) -> float:
    """How much more `new` is than `old`, as a share of that."""
    return 0.0 if new is None or not old else new / old - 1


def events_of(costs: Costs) -> dict[str, float]:
    """pJ of each event, by the name that it is printed with."""
    found = {f"mac {name}": cost for name, cost in costs.mac.items()}
    found |= {f"vector {kind}": cost for kind, cost in costs.vector.items()}
    for role in costs.read:
        found |= {f"{role} read": costs.read[role], f"{role} write": costs.write[role]}
    found |= {f"link {name}": cost for name, cost in costs.links.items()}
    found["instruction"] = costs.instruction
    return {name: cost.value for name, cost in found.items()}
