"""What a change of a machine costs in area and energy.

The one idea: a change that the rules of architectures forbid has no price, and area and energy come
from the model that the study used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from archgen.energy import Costs, costs_of
from archgen.report.points import PointView
from archgen.schema.rewritten import Fields, changed
from simmodel.arch import Arch


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
        "link": (_of_links(before), _of_links(after)),
        "instruction": (before.instruction.value, after.instruction.value),
        "leakage": (before.leakage.value, after.leakage.value * longer),
    }
    return {name: b / a if a > 0 else 1.0 for name, (a, b) in pairs.items()}


def _of_links(costs: Costs) -> float:
    """Of a byte on each link, as nobody counted their bytes apart."""
    return sum(cost.value for cost in costs.links.values())
