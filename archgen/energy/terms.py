"""Terms of a chip's area: what stands on it, which fields of the file ask for it, and how much.

The one idea: an area is a list of terms, each with the formula that made it written out in figures,
so that a part is the sum of its terms and nothing costs area without a field that says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from archgen.energy.ranges import UncertainValue, at_node
from archgen.energy.table import AreaFigures, Sum
from simmodel.arch.element_types import is_float

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
