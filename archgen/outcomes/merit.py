"""Figures of merit of a point: quotients of figures that it has, such as samples per square
millimetre.

The one idea: they follow from other columns and from nothing else, so whoever has a row, measured
or estimated, has them. What area is divided by has that area's range: its high end gives the low
one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from archgen.outcomes.point import Row

_LEAST = 0.001
"""Share of a machine's area below which more of it buys nothing: a quotient would be noise."""
_TERA_PER_MS = 1e-9
"""Tera-operations per second of an operation per millisecond."""
_PER_AREA: Mapping[str, str] = {
    "throughput_per_mm2": "area_mm2",
    "throughput_low_per_mm2": "area_high_mm2",
    "throughput_high_per_mm2": "area_low_mm2",
}


def per_area(gain: float, more: float, whole: float) -> float:
    """What each of `more` mm2 gains, on a machine of `whole`; NaN where it takes hardly any."""
    return gain / more if more > 0 and more >= _LEAST * whole else math.nan


def merit_row(row: Row) -> Row:
    """The figures of merit that the figures in `row` allow."""
    latency, area = (_number(row.get(name)) for name in ("latency_ms", "area_mm2"))
    samples = _number(row.get("throughput_ips"))
    tops = _over(2 * _TERA_PER_MS * _number(row.get("macs")), latency)
    found = {name: _over(samples, _number(row.get(over))) for name, over in _PER_AREA.items()}
    found |= {
        "tops_per_mm2": _over(tops, area),
        "latency_area": latency * area,
        "throughput_per_watt": _over(samples, _number(row.get("average_w"))),
    }
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _number(value: object) -> float:
    """A number of a row; NaN where it has none."""
    return float(value) if isinstance(value, int | float) else math.nan


def _over(above: float, below: float) -> float:
    return above / below if below else math.nan
