"""What a machine has to keep to: `latency_ms <= 5`, `peak_local_bytes <= 512 KiB`.

The one idea: a bound is read in the unit of its column, with or without saying so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from archgen.columns import Column
from archgen.exploration.measures import measure_column
from archgen.schema.mistakes import guess
from simmodel.arch import Arch
from simmodel.units import parse_bytes, split

_FORM = re.compile(r"\s*([A-Za-z][\w.]*)\s*(<=|>=|==|!=|<|>|=)\s*(.*\S)\s*")
_COMPARISONS = ("<=", ">=", "<", ">")
_UNITS: Mapping[str, Mapping[str, float]] = {
    "ms": {"ms": 1, "s": 1e3, "us": 1e-3, "ns": 1e-6},
    "s": {"s": 1, "ms": 1e-3},
    "mJ": {"mJ": 1, "J": 1e3, "uJ": 1e-3, "nJ": 1e-6},
    "W": {"W": 1, "mW": 1e-3},
    "mm2": {"mm2": 1, "um2": 1e-6},
    "samples/s": {"samples/s": 1, "fps": 1, "ips": 1, "kfps": 1e3},
    "samples/s/W": {"samples/s/W": 1, "fps/W": 1},
    "fraction": {"fraction": 1, "%": 0.01},
}
_PERCENT = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*%\s*")


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
        return {
            "<=": value <= self.bound,
            ">=": value >= self.bound,
            "<": value < self.bound,
            ">": value > self.bound,
        }[self.comparison]

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
    form = _FORM.fullmatch(text)
    if form is None:
        example = "a column, <= or >=, and a bound, such as 'latency_ms <= 5'"
        raise ValueError(f"{text!r}: expected {example}")
    name, comparison, bound = form.groups()
    column = measure_column(name, arch)
    if comparison not in _COMPARISONS:
        raise ValueError(f"{text!r}: {comparison!r} compares nothing that varies; write <= or >=")
    return Constraint(name, comparison, _bound(bound, column), text.strip())


def _bound(text: str, column: Column) -> float:
    if column.unit == "bytes":
        return float(parse_bytes(text))
    units = _UNITS.get(column.unit, {column.unit: 1.0})
    if column.unit == "fraction" and (percent := _PERCENT.fullmatch(text)):
        return float(percent[1]) / 100
    number, unit = split(text, f"'5 {column.unit}'")
    if unit and unit not in units:
        known = f"{column.name} is in {column.unit}, not {unit!r}{guess(unit, units)}"
        raise ValueError(known)
    return number * (units[unit] if unit else 1.0)
