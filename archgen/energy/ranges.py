"""A figure with its uncertainty, and where it comes from.

The one idea: ranges add up end by end, as if all figures were wrong in the same direction. That is
wide, and honest: figures of one table often are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """A value between a lowest and a highest one."""

    value: float
    low: float
    high: float
    stated: bool = False
    """Whether the architecture file gives it; then it counts as exact."""

    @staticmethod
    def within(value: float, low: float, high: float) -> Range:
        """`value`, known within the factors `low` and `high`."""
        return Range(value, value * low, value * high)

    @staticmethod
    def given(stated: float | None, otherwise: Callable[[], Range]) -> Range:
        """What is stated, exactly; else what `otherwise` makes."""
        return otherwise() if stated is None else Range(stated, stated, stated, stated=True)

    def times(self, factor: float) -> Range:
        """Every end times `factor`."""
        return Range(self.value * factor, self.low * factor, self.high * factor, self.stated)

    def by(self, other: Range) -> Range:
        """Every end times that of `other`."""
        return Range(self.value * other.value, self.low * other.low, self.high * other.high)


def total(ranges: Iterable[Range]) -> Range:
    """The sum, end by end."""
    parts = list(ranges)
    return Range(
        sum(part.value for part in parts),
        sum(part.low for part in parts),
        sum(part.high for part in parts),
        stated=bool(parts) and all(part.stated for part in parts),
    )
