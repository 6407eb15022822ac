"""What a machine has to keep to: `latency_ms <= 5`, `peak_local_bytes <= 512 KiB`."""

from __future__ import annotations

from dataclasses import dataclass

from archgen.exploration.measures import measure_column
from archgen.outcomes.conditions import ORDERS, amount, split_condition
from simmodel.arch import Arch


@dataclass(frozen=True)
class Constraint:
    """A measure and its bound."""

    measure: str
    comparison: str
    """One of <= >= < >."""
    bound: float
    """In the unit of the column."""
    text: str = ""
    """As it was written."""

    def met(self, value: float | None) -> bool:
        """Whether `value` keeps to it; what is not known does not."""
        if value is None:
            return False
        met: bool = ORDERS[self.comparison](value, self.bound)
        return met

    def excess(self, value: float | None) -> float:
        """By how much `value` misses the bound, relative to it; 0 where it is met."""
        if value is None:
            return float("inf")
        if self.met(value):
            return 0.0
        return max(abs(value - self.bound) / (abs(self.bound) or 1.0), 1e-12)

    def missed_by(self, value: float | None) -> float:
        """The factor between `value` and a bound that it misses; 1 where it is met or unknown."""
        if value is None or self.met(value):
            return 1.0
        low, high = sorted((value, self.bound))
        return high / low if low > 0 else float("inf")


def parse_constraint(text: str, arch: Arch) -> Constraint:
    """The constraint that `text` says, about results of `arch`.

    Raises ValueError: with what is wrong and what would be right.
    """
    parts = split_condition(text)
    if parts is None:
        example = "a column, <= or >=, and a bound, such as 'latency_ms <= 5'"
        raise ValueError(f"{text!r}: expected {example}")
    name, comparison, bound = parts
    column = measure_column(name, arch)
    if comparison not in ORDERS:
        raise ValueError(f"{text!r}: {comparison!r} compares nothing that varies; write <= or >=")
    return Constraint(name, comparison, amount(bound, name, column.unit), text.strip())
