"""What a chip costs to make, and a million inferences to run, from prices that a machine's file
states.

Dies on a wafer and the negative binomial model of yield: Hennessy and Patterson, Computer
Architecture, section 1.6 (edges are lost as 2 pi r over the diagonal of a die).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from archgen.energy.area import Area
from simmodel.arch.costs import Price
from simmodel.arch.record import Arch

_DEFECTS, _CLUSTERING = 0.1, 3.0
_MM2_PER_CM2 = 100.0
_SECONDS_PER_YEAR = 365.25 * 24 * 3600
_JOULES_PER_KWH = 3.6e6
_GIB = 2**30
_MILLION = 1e6
PRICES = frozenset({
    "die_yield", "chip_usd", "chip_low_usd", "chip_high_usd", "system_usd", "usd_per_million",
})  # fmt: skip
"""Columns of `price_row`."""


@dataclass(frozen=True)
class ChipPrice:
    """Of a die of some area: dollars, and what they rest on."""

    dies: int
    """On a wafer."""
    good: float
    """Share of them that works."""
    chip: float
    """USD of a chip that works, in its package."""
    system: float
    """USD of the chip and its DRAM."""


def price_of(arch: Arch, area: float) -> ChipPrice | None:
    """Price of `arch` with a die of `area` mm2; None where its file states no price, or no such die
    fits on a wafer."""
    price = arch.price
    if price is None:
        return None
    dies = dies_per_wafer(price.diameter, area)
    if dies < 1:
        return None
    good = _share_that_works(price, area)
    chip = price.wafer / (dies * good) + price.package
    return ChipPrice(dies, good, chip, chip + price.dram * arch.memories.dram.size / _GIB)


def dies_per_wafer(diameter: float, area: float) -> int:
    """Whole dies of `area` mm2 on a wafer of `diameter` mm; 0 where none fits."""
    if area <= 0:
        return 0
    whole = math.pi * (diameter / 2) ** 2 / area - math.pi * diameter / math.sqrt(2 * area)
    return max(0, math.floor(whole))


def _share_that_works(price: Price, area: float) -> float:
    if price.yield_ is not None:
        return price.yield_
    defects = _DEFECTS if price.defects is None else price.defects
    alpha = _CLUSTERING if price.clustering is None else price.clustering
    return float((1 + defects * area / _MM2_PER_CM2 / alpha) ** -alpha)


def price_row(
    arch: Arch, area: Area, throughput: float | None = None, joules: float | None = None
) -> dict[str, float]:
    """The columns of prices; none where the file of `arch` states no price. `throughput` is in
    samples/s, `joules` are those of a sample; None: not known."""
    usual, low, high = (
        price_of(arch, mm2) for mm2 in (area.total.value, area.total.low, area.total.high)
    )
    if arch.price is None or usual is None:
        return {}
    found = {"die_yield": usual.good, "chip_usd": usual.chip, "system_usd": usual.system}
    found |= {f"chip_{end}_usd": at.chip for end, at in (("low", low), ("high", high)) if at}
    if throughput and (joules is not None or not arch.price.electricity):
        lasting = throughput * arch.price.lifetime * _SECONDS_PER_YEAR
        power = arch.price.electricity * (joules or 0.0) / _JOULES_PER_KWH
        found["usd_per_million"] = _MILLION * (usual.system / lasting + power)
    return found
