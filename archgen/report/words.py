"""Figures as text: as many digits as a reader can use, with the unit.

The one idea: a missing value is a dash, never a zero.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

NONE = "–"
GAP = "\u00a0"
"""Between a number and its unit, so that lines do not break there."""
_SMALL = 0.05


def short(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, thousands separated; a dash for what is missing."""
    if not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    before = math.floor(math.log10(abs(value))) + 1
    if -3 < before < digits + 8:
        return f"{value:,.{max(0, digits - before)}f}"
    return f"{value:.{digits}g}"


def plain(value: float) -> str:
    """`value` with four significant digits, whole from ten thousand on: never as a power."""
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def whole(value: float) -> str:
    """A whole number, thousands separated."""
    return f"{value:,.0f}" if math.isfinite(value) else NONE


def percent(share: float) -> str:
    """`41 %`, with a digit behind the point below ten."""
    if not math.isfinite(share):
        return NONE
    value = 100 * share
    if 0 < value < _SMALL:
        return f"<{GAP}0.1{GAP}%"
    text = f"{value:.1f}" if _SMALL <= abs(value) < 9.95 else f"{value:.0f}"
    return f"{text.replace('-', '−')}{GAP}%"


def signed(share: float) -> str:
    """A change: `+12 %`, `±0 %` for what is none, a dash for what is missing."""
    if not math.isfinite(share):
        return NONE
    if abs(100 * share) < _SMALL:
        return f"±0{GAP}%"
    return f"+{percent(share)}" if share > 0 else percent(share)


def times(factor: float) -> str:
    """`1.84×`."""
    return f"{short(factor)}×" if math.isfinite(factor) else NONE


def listed(names: Sequence[str], most: int = 6) -> str:
    """`a, b and c`; of more than `most` names the first, and how many more."""
    found = list(names)
    if len(found) > most:
        found = [*found[: most - 1], f"{len(found) - most + 1} more"]
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} and {found[-1]}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 point`, `3 points`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def geometric_mean(values: Sequence[float]) -> float:
    """NaN for no values, or for one that is not positive."""
    positive = all(value > 0 for value in values)
    return statistics.geometric_mean(values) if values and positive else math.nan
