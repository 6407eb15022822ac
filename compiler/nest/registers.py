"""Lengths that are known only when a program runs, and integers that follow from them.

The one idea: whatever of a network depends on such a length is a number at the upper edge of the
length's range, for which everything is decided, less a multiple of how far below the edge the
length is. What is no such sum is refused where it is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simmodel.region import Register, Terms

Point = tuple[int, ...]
"""A value for each of some registers, in their order."""


@dataclass(frozen=True)
class Count:
    """A number of positions: `base` and, for each of `terms`, factor times register."""

    base: int
    terms: Terms

    def at(self, values: Mapping[str, int]) -> int:
        """The number where the registers have `values`."""
        return self.base + sum(factor * values[name] for name, factor in self.terms)


def below(terms: Terms, registers: Sequence[Register], values: Mapping[str, int]) -> int:
    """How much a number with `terms` is less at `values` than at the upper edge."""
    high = {register.name: register.high for register in registers}
    return sum(factor * (high[name] - values[name]) for name, factor in terms)


def edge_of(registers: Sequence[Register]) -> Point:
    """The upper edge of all ranges."""
    return tuple(register.high for register in registers)


def fitted(known: Mapping[Point, int], registers: Sequence[Register]) -> Terms | None:
    """How a number that is `known` at the upper edge and at other points follows from the
    registers; None where it is no sum of multiples, as far as the points tell."""
    edge = edge_of(registers)
    terms: list[tuple[str, int]] = []
    for position, register in enumerate(registers):
        alone = (p for p in known if _differ(p, edge) == [position])
        near = max(alone, key=lambda p: p[position], default=None)
        if near is None:
            continue
        factor, rest = divmod(known[edge] - known[near], register.high - near[position])
        if rest:
            return None
        if factor:
            terms.append((register.name, factor))
    made = tuple(terms)
    names = [register.name for register in registers]
    right = all(
        known[edge] - below(made, registers, dict(zip(names, point, strict=True))) == number
        for point, number in known.items()
    )
    return made if right else None


def counted(known: Mapping[Point, int], registers: Sequence[Register]) -> Count | None:
    """The same as a number of positions."""
    terms = fitted(known, registers)
    if terms is None:
        return None
    edge = edge_of(registers)
    high = dict(zip((register.name for register in registers), edge, strict=True))
    return Count(known[edge] - sum(factor * high[name] for name, factor in terms), terms)


def _differ(point: Point, edge: Point) -> list[int]:
    return [i for i, (value, high) in enumerate(zip(point, edge, strict=True)) if value != high]
