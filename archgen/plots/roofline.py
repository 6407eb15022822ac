"""Rooflines of machines: with the points that a study reached, and with the groups of a run.

The one idea: what a group takes is the time from the ends of the groups before to its own, so that
areas add up to the run; groups that end within half a percent of it count as one. What was loaded
ahead cost a group no time of its own: such a point may lie above the slope.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.axes import FAMILY, StudyAxis, axes, workload
from archgen.outcomes.frame import Frame, Record, number, records
from archgen.plots.over_time import Stretch, split_points, stretches
from archgen.plots.panels import (
    OUTLINE,
    TITLE_LETTERS,
    field_labels,
    square_figure,
    swept_fields,
    write_names,
)
from archgen.plots.style import (
    CYCLE,
    INK,
    MARKERS,
    MUTED,
    SETTINGS,
    folded,
    legend,
    logarithmic,
)
from simmodel.arch.record import Arch

_GIGA = 1e9
_ROOF_NAME: Any = {"fontsize": 7.5, "path_effects": OUTLINE, "in_layout": False}
T = TypeVar("T")
_FEW = 24
"""Points of a panel whose marks may be large."""


@rc_context(SETTINGS)
def roofline_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Log-log, rate over intensity: a panel for each machine, or each family of machines that a
    sweep has made of one.

    The intensity of a point is its MACs over the bytes it moved to and from DRAM. A family has a
    roof for each peak and bandwidth, and names the least and the largest; the quickest and the
    slowest of its points of each network are named by what was swept, and a line goes through a
    network's points where one column alone is swept. Points that moved nothing stand at the right
    edge; those without a result are listed in their panel.
    """
    rows = records(frame)
    families: dict[str, list[Record]] = {}
    for row in rows:
        family = row.get(FAMILY)
        families.setdefault(str(row["arch"] if pd.isna(family) else family), []).append(row)
    every = axes(frame, archs)
    marks = _marks(workload(row, every) for row in rows)
    figure, grid = square_figure(len(families), "Roofline: compute rate over DRAM intensity")
    if len(families) == 1:
        figure.set_size_inches(7.4, 5.2)
    ran = [row for row in rows if row["status"] == "ok" and row["macs"]]
    span = _span([row["macs"] / _moved(row) for row in ran if _moved(row)], rows, archs)
    swept = [axis for axis in swept_fields(frame, archs) if axis.column != FAMILY]
    names = []
    for panel, (family, own) in zip(grid, families.items(), strict=True):
        machines = {str(row["arch"]): archs[str(row["arch"])] for row in own}
        text = f"{family}: {len(machines)} machines" if len(machines) > 1 else next(iter(machines))
        panel.set_title(folded(text, TITLE_LETTERS if len(families) > 1 else 2 * TITLE_LETTERS))
        _draw_roofs(panel, list(machines.values()), own, span)
        points = _draw_points(panel, own, archs, marks, every)
        names.append(_extremes(points, swept) if len(machines) > 1 and swept else [])
    _label_outer(grid)
    titles = ", ".join(axis.title for axis in swept)
    legend(figure, _mark_keys(marks), f"names: {titles}" if any(names) else "")
    figure.draw_without_rendering()
    for panel, own_names in zip(grid, names, strict=True):
        write_names(panel, own_names)
    return figure


Point = tuple[tuple[float, float], Record]


def _draw_points(
    panel: Axes,
    rows: Sequence[Record],
    archs: Mapping[str, Arch],
    marks: Mapping[str, tuple[str, str]],
    every: Sequence[StudyAxis],
) -> dict[str, list[Point]]:
    """Draw a panel's marks; gives the points of each network."""
    points: dict[str, list[Point]] = {}
    refused, alone = [], len({row["arch"] for row in rows}) == 1
    for row in rows:
        load, edge = workload(row, every), panel.get_xlim()[1]
        if row["status"] != "ok" or not row["macs"]:
            refused.append(folded(load if alone else f"{load} on {row['arch']}", TITLE_LETTERS))
            continue
        intensity = row["macs"] / _moved(row) if _moved(row) else edge
        rate = row["macs"] / (row["latency_ms"] * 1e-3) / _GIGA
        points.setdefault(load, []).append(((intensity, rate), row))
    through = "-" if len(every) == 1 and every[0].ordered else ""
    few = len(rows) <= _FEW
    for load, own in points.items():
        colour, marker = marks[load]
        panel.plot(
            [x for (x, _), _ in own], [y for (_, y), _ in own], marker=marker, ls=through, lw=0.8,
            color=colour, ms=7 if few else 5, mec="white", mew=0.6, alpha=1.0 if few else 0.8,
        )  # fmt: skip
    if refused:
        more = [f"and {len(refused) - 3} more"] if len(refused) > 3 else []
        _write_corner(panel, ["no result:", *refused[:3], *more])
    return points


def _extremes(
    points: Mapping[str, Sequence[Point]], swept: Sequence[StudyAxis]
) -> list[tuple[tuple[float, float], str]]:
    """Places and names of the quickest and the slowest point of each network."""
    ends = []
    for own in points.values():
        ranked = sorted(own, key=lambda point: -point[0][1])
        ends += _ends(ranked)
    names = field_labels([row for _, row in ends], swept)
    return [(place, name) for (place, _), name in zip(ends, names, strict=True)]


def _moved(row: Record) -> float:
    """Bytes read from and written to DRAM."""
    return float(row["dram_read_bytes"] + row["dram_write_bytes"])


def _marks(loads: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each workload."""
    return {
        load: (CYCLE[i % len(CYCLE)], MARKERS[i % len(MARKERS)])
        for i, load in enumerate(dict.fromkeys(loads))
    }


def _mark_keys(marks: Mapping[str, tuple[str, str]]) -> list[Line2D]:
    return [Line2D([], [], color=c, marker=m, ls="", label=load) for load, (c, m) in marks.items()]


def _label_outer(grid: Sequence[Axes]) -> None:
    """Name the axes of the panels that have no neighbour there."""
    for index, panel in enumerate(grid):
        place = panel.get_subplotspec()
        assert place is not None
        if place.is_first_col():
            panel.set_ylabel("rate [GMAC/s]")
        if index + place.get_gridspec().ncols >= len(grid):
            panel.set_xlabel("intensity [MAC / DRAM byte]")


def _write_corner(panel: Axes, lines: Sequence[str]) -> None:
    panel.text(
        0.97, 0.04, "\n".join(lines), transform=panel.transAxes, ha="right", va="bottom",
        color=MUTED, style="italic", fontsize=7.5,
    )  # fmt: skip


def _span(
    intensities: Sequence[float], rows: Sequence[Record], archs: Mapping[str, Arch]
) -> tuple[float, float]:
    """The range of the common axis: all `intensities`, and the ridges of what `rows` ran on."""
    values = list(intensities)
    for row in rows:
        arch = archs[str(row["arch"])]
        values.append(arch.peak_macs(str(row["dtype"])) / arch.dram_bytes_per_cycle)
    values = [value for value in values if value > 0] or [1.0]
    return min(values) / 3, max(values) * 2


def _draw_roofs(
    panel: Axes, machines: Sequence[Arch], rows: Sequence[Record], span: tuple[float, float]
) -> None:
    """The panel of `machines`, log-log, with each of their roofs for the element types of `rows`,
    and the names of the least and the largest of them."""
    logarithmic(panel)
    panel.set_xlim(*span)
    panel.margins(y=0.12)
    peaks: set[tuple[float, str]] = set()
    for dtype in dict.fromkeys(str(row["dtype"]) for row in rows):
        giga = [m.clock / _GIGA for m in machines]
        roofs = {
            (m.peak_macs(dtype) * rate, m.dram_bytes_per_cycle * rate)
            for m, rate in zip(machines, giga, strict=True)
            if m.peak_macs(dtype)
        }
        for peak, slope in sorted(roofs):
            panel.plot(
                [span[0], peak / slope, span[1]], [span[0] * slope, peak, peak], "-", color=INK,
                lw=1.2 if len(roofs) == 1 else 0.8, zorder=1,
            )  # fmt: skip
        peaks |= {(peak, f"{peak:,.0f} {dtype}") for peak, _ in roofs}
    for peak, text in _ends(sorted(peaks)):
        panel.text(span[1] / 1.03, peak, text, ha="right", va="bottom", **_ROOF_NAME)
    slopes = _ends(sorted({m.dram_bytes_per_cycle * m.clock / _GIGA for m in machines}))
    for slope in slopes if len(machines) > 1 else ():
        above = slope == slopes[-1]
        start = 1.15 * span[0]
        panel.text(
            start, start * slope * (1.1 if above else 0.91), f"{slope:.4g} GB/s", **_ROOF_NAME,
            va="bottom" if above else "top", rotation=math.degrees(math.atan(slope)),
            rotation_mode="anchor", transform_rotates_text=True,
        )  # fmt: skip


def _ends(values: Collection[T]) -> list[T]:
    """The first and the last, where these are two."""
    ordered = list(values)
    return [*ordered[:1], *ordered[1:][-1:]]


# The groups of layers of a run under the roofline, each as large as its time.

_TOGETHER = 0.005
_LARGEST = 900.0
"""Square points of a mark that stands for a whole run."""


@dataclass(frozen=True)
class GroupPoint:
    """A group of layers under the roofline, or some that end together."""

    groups: tuple[int, ...]
    macs: float
    moved: float
    """Bytes read from and written to DRAM."""
    cycles: float
    share: float
    """Of the run's time."""


def group_points(layers: Frame) -> list[GroupPoint]:
    """The groups of one point that take time, in order of their ends."""
    rows = records(layers)
    parts = stretches(rows)
    total = sum(part.end - part.start for part in parts)
    points = []
    for bundle in _bundles(parts, _TOGETHER * total):
        groups = tuple(part.group for part in bundle)
        own = [row for row in rows if row["group"] in groups]
        cycles = bundle[-1].end - bundle[0].start
        moved = _sum(own, "dram_read_bytes") + _sum(own, "dram_write_bytes")
        points.append(GroupPoint(groups, _sum(own, "macs"), moved, cycles, cycles / total))
    return points


def _bundles(parts: Sequence[Stretch], least: float) -> list[list[Stretch]]:
    """`parts` in order, with those bundled that would take less than `least` cycles alone."""
    bundles: list[list[Stretch]] = []
    for part in parts:
        if bundles and bundles[-1][-1].end - bundles[-1][0].start < least:
            bundles[-1].append(part)
        else:
            bundles.append([part])
    if len(bundles) > 1 and bundles[-1][-1].end - bundles[-1][0].start < least:
        short = bundles.pop()
        bundles[-1] += short
    return bundles


def _sum(rows: Sequence[Record], column: str) -> float:
    return sum(value for row in rows if (value := number(row, column)) > 0)


@rc_context(SETTINGS)
def group_roofline_figure(layers: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Log-log, one panel for each architecture: rate over intensity of the groups in `layers`.

    Groups without multiply-accumulates are counted below, with their share of time. Groups that
    move nothing to or from DRAM stand at the right edge.
    """
    runs = [(records(own.iloc[:1])[0], group_points(own)) for own in split_points(layers)]
    names = list(dict.fromkeys(str(row["arch"]) for row, _ in runs))
    marks = _marks(workload(row) for row, _ in runs)
    figure, grid = square_figure(max(1, len(names)), "Roofline of groups: area is time")
    intensities = [g.macs / g.moved for _, groups in runs for g in groups if g.macs and g.moved]
    span = _span(intensities, [row for row, _ in runs], archs)
    for panel, name in zip(grid, names, strict=False):
        own = [(row, groups) for row, groups in runs if row["arch"] == name]
        panel.set_title(folded(name, TITLE_LETTERS))
        _draw_roofs(panel, [archs[name]], [row for row, _ in own], span)
        for row, groups in own:
            _draw_groups(panel, groups, archs[name].clock, marks[workload(row)])
        idle = [group.share for _, groups in own for group in groups if not group.macs]
        if idle:
            plural = "" if len(idle) == 1 else "s"
            share = 100 * sum(idle) / len(own)
            _write_corner(panel, [f"{len(idle)} group{plural} without MACs, {share:.2g} % of time"])
    _label_outer(grid)
    legend(figure, _mark_keys(marks))
    return figure


def _draw_groups(
    panel: Axes, groups: Sequence[GroupPoint], clock: float, mark: tuple[str, str]
) -> None:
    drawn, edge = [group for group in groups if group.macs], panel.get_xlim()[1]
    panel.scatter(
        [group.macs / group.moved if group.moved else edge for group in drawn],
        [group.macs / group.cycles * clock / _GIGA for group in drawn],
        s=[max(6.0, _LARGEST * group.share) for group in drawn],
        c=mark[0], marker=mark[1], alpha=0.75, ec="white", lw=0.6,
    )  # fmt: skip
