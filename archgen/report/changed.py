"""A machine with one thing changed: the fields, and what the change costs in area and energy.

The one idea: the changed machine is made and checked like any other, so a change that the rules of
architectures forbid has no price, and area and energy come from the model that the study used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from archgen.energy import Costs, costs_of
from archgen.report.points import PointView
from archgen.schema.tree import Table
from archgen.schema.variants import spelled, variant
from simmodel.arch import Arch
from simmodel.units import Bandwidth, Delay

_KIB, _NANO = 1024, 1e9
Fields = Mapping[str, Any]
"""Dotted field -> its new value, as a file spells it."""


def fields_of(arch: Arch) -> dict[str, Any]:
    """`arch` as its file would spell it, every field that it may state."""
    made: dict[str, Any] = arch.model_dump(mode="json", by_alias=True, exclude_none=True)
    _with_nulls(made, arch.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    for memory in made["memories"].values():
        # Ports of their own for reads and writes stand in the place of shared ones.
        if {"read_ports", "write_ports"} & memory.keys():
            memory.pop("ports", None)
    return made


def _with_nulls(made: dict[str, Any], stated: Mapping[str, Any]) -> None:
    """State in `made` what is nothing, where it would be something if nobody stated it."""
    for name, value in stated.items():
        if value is None:
            made[name] = None
        elif isinstance(value, Mapping):
            _with_nulls(made[name], value)


def scaled(arch: Arch, field: str, factor: float) -> Fields:
    """`field` times `factor`, in the unit that it has; nothing where the machine lacks it."""
    found: Any = fields_of(arch)
    for part in field.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    value = _times(found, field.rsplit(".", 1)[-1], factor)
    return {} if value is None else {field: value}


def _times(value: object, name: str, factor: float) -> str | int | None:
    if isinstance(value, int):
        made = max(1, round(value * factor))
        return f"{made // _KIB} KiB" if name == "size" and made % _KIB == 0 else made
    if isinstance(value, str) and name == "bandwidth":
        rate = Bandwidth.parse(value)
        return str(Bandwidth(rate.amount * factor, rate.per_cycle))
    if isinstance(value, str) and name == "latency":
        delay = Delay.parse(value)
        amount = delay.amount * factor
        return f"{amount:g} cycles" if delay.in_cycles else f"{amount * _NANO:g} ns"
    return None


def changed(arch: Arch, fields: Fields) -> Arch | None:
    """`arch` with `fields` set; None where that is no valid machine, or no change."""
    tree = spelled(fields_of(arch))
    assert isinstance(tree, Table)
    choice = {field: spelled(value) for field, value in fields.items()}
    made, mistakes = variant(tree, choice, name=arch.name) if fields else (None, [])
    return made.arch if made is not None and not mistakes and made.arch != arch else None


@dataclass(frozen=True)
class Price:
    """What a change costs; NaN where that is not known."""

    area: float
    """mm2 more."""
    area_share: float
    """The same as a share of the machine."""
    energy_share: float
    """Change of a run's energy, if the gain is reached."""


UNKNOWN = Price(math.nan, math.nan, math.nan)


def price(arch: Arch, fields: Fields, point: PointView, longer: float) -> Price:
    """What `fields` cost on `arch`.

    Args:
        arch: the machine.
        fields: what is changed about it.
        point: whose energy is judged.
        longer: its time afterwards, as a factor.
    """
    other = changed(arch, fields)
    if other is None:
        return UNKNOWN
    before, after = costs_of(arch), costs_of(other)
    area, more = before.area.total.value, after.area.total.value - before.area.total.value
    ratios = _ratios(before, after, str(point.row["dtype"]), longer)
    parts = {name: point.get(f"energy_{name}_mj") for name in ratios}
    known = {name: part for name, part in parts.items() if math.isfinite(part)}
    whole = point.get("energy_mj")
    delta = sum(part * (ratios[name] - 1) for name, part in known.items())
    share = delta / whole if whole > 0 else math.nan
    return Price(more, more / area if area > 0 else math.nan, share)


def _ratios(before: Costs, after: Costs, dtype: str, longer: float) -> dict[str, float]:
    """By component of energy: what it takes afterwards, as a factor."""
    pairs = {name: (before.read[name].value, after.read[name].value) for name in before.read}
    if dtype in before.mac:
        pairs["mac"] = (before.mac[dtype].value, after.mac[dtype].value)
    pairs |= {
        "vector": (before.vector["simple"].value, after.vector["simple"].value),
        "instruction": (before.instruction.value, after.instruction.value),
        "leakage": (before.leakage.value, after.leakage.value * longer),
    }
    return {name: b / a if a > 0 else 1.0 for name, (a, b) in pairs.items()}
