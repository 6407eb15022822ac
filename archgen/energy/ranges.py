"""A figure with its uncertainty, and where it comes from.

The one idea: ranges add up end by end, as if all figures were wrong in the same direction. That is
wide, and honest: figures of one table often are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from archgen.energy.table import Figures
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class UncertainValue:
    """A value between a lowest and a highest one."""

    value: float
    low: float
    high: float
    stated: bool = False
    """Whether the architecture file gives it; then it counts as exact."""

    @staticmethod
    def within(value: float, low: float, high: float) -> UncertainValue:
        """`value`, known within the factors `low` and `high`."""
        return UncertainValue(value, value * low, value * high)

    @staticmethod
    def exact(value: float) -> UncertainValue:
        """`value`, which the architecture file gives."""
        return UncertainValue(value, value, value, stated=True)

    def unless(self, stated: float | None) -> UncertainValue:
        """What is stated, exactly; else this."""
        return self if stated is None else UncertainValue.exact(stated)

    def times(self, factor: float) -> UncertainValue:
        """Every end times `factor`."""
        return UncertainValue(
            self.value * factor, self.low * factor, self.high * factor, self.stated
        )

    def by(self, other: UncertainValue) -> UncertainValue:
        """Every end times that of `other`."""
        return UncertainValue(
            self.value * other.value, self.low * other.low, self.high * other.high
        )


def total(ranges: Iterable[UncertainValue]) -> UncertainValue:
    """The sum, end by end."""
    parts = list(ranges)
    return UncertainValue(
        sum(part.value for part in parts),
        sum(part.low for part in parts),
        sum(part.high for part in parts),
        stated=bool(parts) and all(part.stated for part in parts),
    )


# From one technology node to another: straight lines between known nodes, on logarithmic axes.


def at_node(points: Mapping[float, float], node: float) -> float:
    """The value at `node` nm of a curve through `points` (nm -> positive value, two or more)."""
    known = sorted(points)
    above = next((i for i, each in enumerate(known) if each >= node), len(known) - 1)
    low, high = known[max(0, above - 1)], known[max(1, above)]
    share = math.log(node / low) / math.log(high / low)
    return math.exp((1 - share) * math.log(points[low]) + share * math.log(points[high]))


# What a fast clock costs: area and energy of logic over those at a clock that the node gives.


def area_of_speed(arch: Arch, figures: Figures) -> UncertainValue:
    """Area of the logic of `arch` over that of the same at an easy clock; at least 1."""
    return _grown(arch, figures, figures.speed.area)


def energy_of_speed(arch: Arch, figures: Figures) -> UncertainValue:
    """Energy of an operation of `arch` over that of the same at an easy clock; at least 1."""
    return _grown(arch, figures, figures.speed.energy)


def easy_clock(node: float, figures: Figures) -> float:
    """Hz up to which a clock asks for nothing."""
    return figures.speed.delays(1.0, node) / figures.speed.easy


def _grown(arch: Arch, figures: Figures, doubled: Mapping[str, float]) -> UncertainValue:
    """As the mean of all units grows; ends: as the one grows that does least, and most."""
    times = max(1.0, arch.clock / easy_clock(arch.energy.node, figures))
    each = [math.log(ratio) * math.log2(times) for ratio in doubled.values()]
    return UncertainValue(math.exp(sum(each) / len(each)), math.exp(min(each)), math.exp(max(each)))
