"""What machines can be compared by: numeric columns of the results."""

from __future__ import annotations

import math
from dataclasses import dataclass

from archgen.energy.price import PRICES
from archgen.outcomes import figures
from archgen.outcomes.columns import COLUMNS, Column, column
from archgen.outcomes.estimated import growth
from archgen.outcomes.frame import number
from archgen.outcomes.points import Row
from archgen.schema.tree import guess
from simmodel.arch.record import Arch

AREA = "area_mm2"


def is_estimable(name: str) -> bool:
    """Whether a measure is known without a run."""
    return any(growth(name)) or figures.is_of_machine(name)


def measure_column(word: str, arch: Arch) -> tuple[str, Column]:
    """The measure of results of `arch` that `word` means, in full or in short (`area`), and the
    definition that it falls under.

    Raises ValueError: there is none, or it is no number.
    """
    name = figures.SHORT.get(word, word) if column(figures.SHORT.get(word, word)) else word
    known, found = _measure_names(arch), column(name)
    if found is None or ("<" in found.name and name not in known):
        raise ValueError(f"{name!r} is no column of the results{guess(name, known)}")
    if not figures.is_figure(name):
        raise ValueError(f"{name!r} is nothing that machines are measured by{guess(name, known)}")
    if arch.price is None and name in PRICES:
        raise ValueError(f"{name!r} needs what a wafer costs: {arch.name} has no section price")
    return name, found


def _measure_names(arch: Arch) -> list[str]:
    """Every measure of the results of `arch`; of families those about its memories."""
    roles = arch.memories.srams()
    families = [
        *(f"peak_{role}_bytes" for role in arch.memories.roles()),
        *(f"area_{part}_mm2" for part in ("mac", "vector", "scalar", *roles, "copy", "link",
                                          "front_end", "other", "dram",
                                          *(["extra"] if arch.energy.area.extra else []))),
        *(f"energy_{part}_mj" for part in ("mac", "vector", *arch.memories.roles(), "link",
                                           "instruction", "leakage")),
    ]  # fmt: skip
    fixed = [known.name for known in COLUMNS if "<" not in known.name]
    return [*filter(figures.is_figure, fixed), *families]


def measured(row: Row, name: str) -> float | None:
    """The measure in a row of the results; None where it has none."""
    value = number(row, name)
    return value if math.isfinite(value) else None


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
        met: bool = figures.ORDERS[self.comparison](value, self.bound)
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
    parts = figures.split_condition(text)
    if parts is None:
        example = "a column, <= or >=, and a bound, such as 'latency_ms <= 5'"
        raise ValueError(f"{text!r}: expected {example}")
    name, comparison, bound = parts
    name, column = measure_column(name, arch)
    if comparison not in figures.ORDERS:
        raise ValueError(f"{text!r}: {comparison!r} compares nothing that varies; write <= or >=")
    return Constraint(
        name, comparison, figures.parse_amount(bound, name, column.unit), text.strip()
    )
