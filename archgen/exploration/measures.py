"""What machines can be compared by: numeric columns of the results."""

from __future__ import annotations

import math
from dataclasses import dataclass

from archgen.outcomes.columns import COLUMNS, MORE_IS_BETTER, Column, column
from archgen.outcomes.figures import ORDERS, amount, split_condition
from archgen.outcomes.points import Row
from archgen.schema.tree import guess
from simmodel.arch.record import Arch

AREA = "area_mm2"
_INPUTS = frozenset({"batch", "dim.<dimension>", "effort"})
ESTIMABLE = frozenset(
    {
        "latency_cycles",
        "latency_ms",
        "throughput_ips",
        "latency_area",
        "throughput_per_mm2",
        "throughput_low_per_mm2",
        "throughput_high_per_mm2",
    }
)
"""Measures that estimates give; those that need no run too."""
_PRICES = frozenset({"die_yield", "chip_usd", "chip_low_usd", "chip_high_usd", "system_usd"})


def is_estimable(name: str) -> bool:
    """Whether a measure is known from an estimate."""
    return name in ESTIMABLE or needs_no_run(name)


def needs_no_run(name: str) -> bool:
    """Whether a measure is an area or what a chip of it costs, which no run changes."""
    return name.startswith("area_") or name == "core_mm2" or name in _PRICES


def upwards(name: str) -> bool:
    """Whether more of it is better."""
    return name in MORE_IS_BETTER


def measure_column(name: str, arch: Arch) -> Column:
    """The definition of a measure that results of `arch` have.

    Raises ValueError: there is none, or it is no number.
    """
    known = _measure_names(arch)
    found = column(name, COLUMNS)
    if found is None or ("<" in found.name and name not in known):
        raise ValueError(f"{name!r} is no column of the results{guess(name, known)}")
    if found.kind not in ("real", "whole") or found.name in _INPUTS:
        raise ValueError(f"{name!r} is nothing that machines are measured by{guess(name, known)}")
    return found


def _measure_names(arch: Arch) -> list[str]:
    """Every measure of the results of `arch`; of families those about its memories."""
    numeric = [c.name for c in COLUMNS if c.kind in ("real", "whole") and "<" not in c.name]
    roles = arch.memories.on_chip()
    families = [
        *(f"peak_{role}_bytes" for role in ("dram", *roles)),
        *(f"area_{part}_mm2" for part in ("mac", "vector", "scalar", *roles, "copy", "link",
                                          "front_end", "other", "dram",
                                          *(["extra"] if arch.energy.area.extra else []))),
        *(f"energy_{part}_mj" for part in ("mac", "vector", "dram", *roles, "link",
                                           "instruction", "leakage")),
    ]  # fmt: skip
    return [*(n for n in numeric if n not in _INPUTS), *families]


def measured(row: Row, name: str) -> float | None:
    """The measure in a row of the results; None where it has none."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


# What a machine has to keep to: `latency_ms <= 5`, `peak_local_bytes <= 512 KiB`.


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
