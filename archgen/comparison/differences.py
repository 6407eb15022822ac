"""What changed between two runs of one point: figures, causes of idle time, layers; in words too.

The one idea: the engine time of a run has exactly one cause for each idle cycle, so the difference
of two latencies is a sum of differences, one for computing and one for each cause of stalls. What a
layer adds to the end of the run likewise adds up to the run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from archgen.outcomes.figures import DRAM, figure_of
from archgen.outcomes.frame import Record, is_wrong, number

_BUSY = "busy"
AREA = "area_mm2"
JUDGED = ("latency_ms", "energy_mj", "interval_ms")
"""What makes a point better or worse; traffic and peaks are told beside it."""
_PEAK = re.compile(r"peak_\w+_bytes")
_SMALL = 0.05
"""Share of the largest of them below which the others are not named."""
_TOLD = 3
"""Causes and layers that a sentence names."""


@dataclass(frozen=True)
class Change:
    """A figure of both points."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After as a multiple of before; infinite where there was nothing before."""
        if self.before == self.after:
            return 1.0
        return self.after / self.before if self.before else math.inf

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class LayerChange:
    """A node of both runs, and what it adds to their ends."""

    node: str
    added: Change
    """Cycles, or milliseconds where the clocks differ."""
    dram: Change
    """Bytes read and written."""


@dataclass(frozen=True)
class Pair:
    """The same point in both studies."""

    key: Record
    """The columns that it was found by."""
    before: Record
    after: Record
    threshold: float
    """Relative changes up to this are none."""
    figures: Mapping[str, Change] = field(default_factory=dict)
    """Latency, energy, area, DRAM bytes and peaks of memories, where both have them."""
    unit: str = "cycles"
    """Of causes and layers: cycles, or ms where the clocks of the machines differ."""
    causes: Mapping[str, Change] = field(default_factory=dict)
    """`busy` and causes of stalls -> their share of the latency; they add up to it."""
    layers: tuple[LayerChange, ...] = ()
    """Of both, those that changed most first."""

    @property
    def verdict(self) -> str:
        """better, worse, mixed or same; lost or gained where only one has a result; neither."""
        had, has = (row["status"] == "ok" for row in (self.before, self.after))
        if not (had and has):
            return "lost" if had else "gained" if has else "neither"
        if is_wrong(self.after) and not is_wrong(self.before):
            return "lost"
        found = {self.direction(name) for name in JUDGED} - {"same"}
        return found.pop() if len(found) == 1 else "mixed" if found else "same"

    def direction(self, figure: str) -> str:
        """Whether a figure, of which less is better, got better, worse or stayed the same."""
        change = self.figures.get(figure)
        if change is None or abs(change.ratio - 1) <= self.threshold:
            return "same"
        return "worse" if change.ratio > 1 else "better"

    @property
    def lenders(self) -> tuple[str, str]:
        """The machines whose schedules the sides run, "" where it is a side's own."""
        before, after = (row.get("schedule_from") for row in (self.before, self.after))
        return "" if pd.isna(before) else str(before), "" if pd.isna(after) else str(after)

    @property
    def lent(self) -> str:
        """Whether one schedule or two are behind a change, where one of them is lent; else ""."""
        if not any(self.lenders):
            return ""
        rows = (self.before, self.after)
        if any(row["status"] != "ok" for row in rows):
            sides = zip(("before", "after"), self.lenders, strict=True)
            return ", ".join(f"{when} by the schedule of {name}" for when, name in sides if name)
        before, after = (name or row["arch"] for name, row in zip(self.lenders, rows, strict=True))
        if before == after:
            return f"both run the schedule of {before}"
        old, new = (f"that of {name}" if name else "its own" for name in self.lenders)
        return f"runs another schedule, {new}, not {old}: the machine alone may not be the cause"

    @property
    def why(self) -> str:
        """The causes and layers behind a change of latency, in a sentence or two, after a word on
        schedules that are those of other machines."""
        if self.verdict in ("lost", "gained", "neither"):
            return "; ".join(filter(None, (_status_change(self.before, self.after), self.lent)))
        if self.direction("latency_ms") == "same":
            return "" if self.verdict == "same" else self.lent
        causes = {
            "computing" if name == _BUSY else f"stalls for {name}": change.difference
            for name, change in self.causes.items()
        }
        whole = sum(causes.values())
        against = [by for by in causes.values() if by * whole < 0]
        said = [self.lent] if self.lent else []
        said.append(self._sum((name, by) for name, by in causes.items() if by * whole > 0))
        if against and max(map(abs, against)) > 0.1 * abs(whole):
            other = ((name, by) for name, by in causes.items() if by * whole < 0)
            said.append(f"against it {self._sum(other)}")
        rise = self.figures["latency_ms"].difference
        moved = [(each.node.split("+")[0], each.added.difference) for each in self.layers]
        if moved := [(name, by) for name, by in moved if by * rise > 0]:
            said.append(f"most in {self._sum(moved)}")
        return "; ".join(said)

    def _sum(self, parts: Iterable[tuple[str, float]]) -> str:
        """`stalls for data -12000 cycles, computing -40 cycles`, the largest first."""
        largest = sorted(parts, key=lambda part: -abs(part[1]))[:_TOLD]
        form = "+,.0f" if self.unit == "cycles" else "+.4g"
        return ", ".join(
            f"{name} {by:{form}} {self.unit}"
            for name, by in largest
            if abs(by) >= _SMALL * abs(largest[0][1])
        )


def _status_change(before: Record, after: Record) -> str:
    said = [str(row["status"]) if not is_wrong(row) else "wrong" for row in (before, after)]
    given = [row["reason"] for row in (after, before) if not pd.isna(row["reason"])]
    reason = f": {str(given[0]).splitlines()[0]}" if given else ""
    return f"{said[0]} -> {said[1]}{reason}"


def pair(
    key: Record, before: Record, after: Record, threshold: float,
    layers: tuple[Sequence[Record], Sequence[Record]],
) -> Pair:  # fmt: skip
    """Both rows of a point, and the rows of their layers, compared."""
    rows = (before, after)
    if before["status"] != "ok" or after["status"] != "ok":
        return Pair(key, before, after, threshold)
    cycles = [int(row["latency_cycles"]) for row in rows]
    clocks = [float(row["latency_ms"]) / max(1, n) for row, n in zip(rows, cycles, strict=True)]
    one_clock = math.isclose(*clocks, rel_tol=1e-9)
    scales = [1.0, 1.0] if one_clock else clocks
    shares = [name for name in before if name == "matrix_busy" or name.startswith("stall_")]
    causes = {
        _BUSY if name == "matrix_busy" else name.removeprefix("stall_"): Change(
            *(n * s * _amount(row, name) for row, n, s in zip(rows, cycles, scales, strict=True))
        )
        for name in shares
    }
    unit = "cycles" if one_clock else "ms"
    figures = _figures(before, after)
    return Pair(key, *rows, threshold, figures, unit, causes, _layers(layers, scales))


def _figures(before: Record, after: Record) -> dict[str, Change]:
    told = (*JUDGED, AREA)
    names = [name for name in before if name in told or _PEAK.fullmatch(name)]
    both = {name: Change(number(before, name), number(after, name)) for name in names}
    found = {name: change for name, change in both.items() if not math.isnan(change.difference)}
    return found | {DRAM: Change(_amount(before, DRAM), _amount(after, DRAM))}


def _amount(row: Record, name: str) -> float:
    """0 where it is missing."""
    value = figure_of(row, name)
    return 0.0 if math.isnan(value) else value


def _layers(
    layers: tuple[Sequence[Record], Sequence[Record]], scales: Sequence[float]
) -> tuple[LayerChange, ...]:
    one, other = map(_added_time_by_node, layers, scales)
    nothing = (0.0, 0.0)
    found = [
        LayerChange(node, *map(Change, one.get(node, nothing), other.get(node, nothing)))
        for node in one | other
    ]
    return tuple(sorted(found, key=lambda each: -abs(each.added.difference)))


def _added_time_by_node(rows: Sequence[Record], scale: float) -> dict[str, tuple[float, float]]:
    """Node -> the time from the end of all that ended before it to its own end, and DRAM bytes."""
    found: dict[str, tuple[float, float]] = {}
    end = 0
    for row in sorted(rows, key=lambda row: int(row["end_cycle"])):
        node, last = str(row["node"]), int(row["end_cycle"])
        added, moved = found.get(node, (0.0, 0.0))
        found[node] = added + scale * (last - end), moved + _amount(row, DRAM)
        end = last
    return found
