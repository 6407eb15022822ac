"""A figure with its uncertainty, and where it comes from.

The one idea: ranges add up end by end, as if all figures were wrong in the same direction. That is
wide, and honest: figures of one table often are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from archgen.energy.table import AreaFigures, Figures, Sum
from simmodel.arch.element_types import is_float
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


# Terms of a chip's area: what stands on it, which fields of the file ask for it, and how much. Each
# has the formula that made it written out in figures, so that a part is the sum of its terms.

WHERE = ("clock", "cores", "clusters")
"""Fields that say how often, and how fast, what stands in each core does."""
EASY = UncertainValue(1.0, 1.0, 1.0)
"""Of a clock that is not the machine's, or asks for nothing."""


@dataclass(frozen=True)
class Term:
    """One summand of the chip's area."""

    part: str
    what: str
    fields: tuple[str, ...]
    """Dotted fields of the file that it depends on."""
    formula: str
    """How it came about, in figures."""
    mm2: UncertainValue
    """Of the whole chip."""


@dataclass(frozen=True)
class Logic:
    """Logic at a node and a clock, from its area at 45 nm and a clock that asks for nothing."""

    area: AreaFigures
    node: float
    faster: UncertainValue = EASY
    """What its clock multiplies areas by."""

    def control(self, at_45: float) -> UncertainValue:
        """mm2 of `at_45` um2 of gates, registers and multiplexers."""
        return self.scaled(at_45, self.area.control.low, self.area.control.high)

    def datapath(self, at_45: float) -> UncertainValue:
        """mm2 of `at_45` um2 of arithmetic and its registers, with what stands around them."""
        around = self.area.datapath
        return self.scaled(at_45 * around.factor, around.low, around.high)

    def scaled(self, at_45: float, low: float, high: float) -> UncertainValue:
        """mm2 of `at_45` um2 at 45 nm, known within the factors `low` and `high`."""
        smaller = at_node(self.area.logic.points, self.node)
        return UncertainValue.within(1e-6 * at_45 * smaller, low, high).by(self.faster)

    def registers(self, bits: float) -> float:
        """um2 at 45 nm of that many bits of registers."""
        return bits * self.area.register_.bit

    def gates(self, count: float) -> float:
        """um2 at 45 nm of that many gate equivalents."""
        return count * self.area.gates.gate

    def muxes(self, bits: float) -> float:
        """um2 at 45 nm of that many bits of two-input multiplexers."""
        return bits * self.area.gates.mux

    def walkers(self, count: float) -> float:
        """um2 at 45 nm of that many dimensions that addresses walk."""
        walker = self.area.walker
        return count * (self.registers(walker.bits) + self.area.arithmetic.add["int32"])


def sum_of(dtype: str) -> Sum:
    """The kind of adder that products of `dtype` need."""
    return "fp32" if is_float(dtype) else "int32"
