"""What sweeps are drawn of: a few figures of points, as people read them.

The one idea: the same list serves lines, maps and matrices, so that a figure has one name, unit and
direction everywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from archgen.outcomes.frame import Record, number

_PEAK = re.compile(r"peak_(?!dram_)(.+)_bytes")


@dataclass(frozen=True)
class Metric:
    """One figure of a point."""

    name: str
    unit: str
    of: Callable[[Record], float]
    """Its value in `unit`, NaN where it is missing."""
    more: bool = False
    """Whether more of it is better."""
    buys: bool = True
    """Whether a larger machine is made to better it; area is what it is paid with."""

    def changes(self, one: Record, other: Record) -> bool:
        """Whether both rows have it, and it is another."""
        values = self.of(one), self.of(other)
        return not any(map(math.isnan, values)) and values[0] != values[1]

    @property
    def title(self) -> str:
        """`latency [ms]`."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def _traffic(row: Record) -> float:
    return (number(row, "dram_read_bytes") + number(row, "dram_write_bytes")) / 1e6


LATENCY = Metric("latency", "ms", lambda row: number(row, "latency_ms"))
ENERGY = Metric("energy", "mJ", lambda row: number(row, "energy_mj"))
AREA = Metric("area", "mm²", lambda row: number(row, "area_mm2"), buys=False)
METRICS = (
    LATENCY,
    Metric("throughput", "samples/s", lambda row: number(row, "throughput_ips"), more=True),
    ENERGY,
    AREA,
    Metric(
        "throughput per area",
        "samples/s/mm²",
        lambda row: number(row, "throughput_per_mm2"),
        more=True,
    ),
    Metric("DRAM traffic", "MB", _traffic),
    Metric("matrix use", "%", lambda row: 100 * number(row, "matrix_utilization"), more=True),
)
"""Of every sweep, as far as the study knows them."""


def known(metrics: Sequence[Metric], rows: Sequence[Record]) -> list[Metric]:
    """Those that some row has a value of."""
    return [each for each in metrics if any(not math.isnan(each.of(row)) for row in rows)]


def peaks(rows: Sequence[Record]) -> list[Metric]:
    """The most that is alive at once in each memory on chip, which some row has."""
    columns = dict.fromkeys(name for row in rows for name in row if _PEAK.fullmatch(name))
    return [_peak(name, found[1]) for name in columns if (found := _PEAK.fullmatch(name))]


def _peak(column: str, memory: str) -> Metric:
    name = f"{memory} memory alive at once"
    return Metric(name, "KiB", lambda row: number(row, column) / 1024, buys=False)
