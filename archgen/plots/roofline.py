"""Each machine's or family's roofline with the points that the study reached under it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.axes import FAMILY, StudyAxis, axes, workload
from archgen.outcomes.frame import Frame, Record, records
from archgen.plots.labels import OUTLINE, Wanted, place_labels
from archgen.plots.names import legend_with_names, names_of, on_machines, said_of
from archgen.plots.panels import SQUARE_LETTERS, square_figure
from archgen.plots.style import (
    CYCLE,
    INK,
    MARKERS,
    MUTED,
    SETTINGS,
    decades,
    folded,
)
from simmodel.arch.record import Arch

GIGA = 1e9
_ROOF_NAME: Any = {"fontsize": 7.5, "path_effects": OUTLINE, "in_layout": False}
T = TypeVar("T")
_FEW = 24
"""Points of a panel whose marks may be large."""
_MOST_LABELS = 40


@dataclass(frozen=True)
class RooflineMark:
    """A mark: where it stands, and what it is."""

    place: tuple[float, float]
    row: Record


@rc_context(SETTINGS)
def roofline_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Log-log, rate over intensity: a panel for each machine, or each family of machines that a
    sweep has made of one.

    The intensity of a point is its MACs over the bytes it moved to and from DRAM. A family has a
    roof for each peak and bandwidth, and names the least and the largest; its points are named by
    what was swept, the quickest and the slowest of each network always, others where there is room,
    and a line goes through a network's points where one column alone is swept. Points that moved
    nothing stand at the right edge; those without a result are listed in their panel.
    """
    rows = records(frame)
    families: dict[str, list[Record]] = {}
    for row in rows:
        families.setdefault(_family(row), []).append(row)
    every = axes(frame, archs)
    loads = list(dict.fromkeys(workload(row, every) for row in rows))
    marks = marks_of(loads)
    figure, grid = square_figure(len(families), "Roofline: compute rate over DRAM intensity")
    if len(families) == 1:
        figure.set_size_inches(7.4, 5.2)
    span = _span(rows, archs)
    swept = [axis for axis in on_machines(every, rows) if axis.column != FAMILY]
    labels: list[tuple[Axes, list[Wanted]]] = []
    for panel, (name, own) in zip(grid, families.items(), strict=True):
        count = len({row["arch"] for row in own})
        wanted = _draw_roofline(panel, own, archs, span, marks, every)
        if count > 1 and swept:
            labels.append((panel, _wanted(wanted, swept)))
        text = f"{name}: {count} machines" if count > 1 else str(own[0]["arch"])
        panel.set_title(folded(text, SQUARE_LETTERS if len(families) > 1 else 2 * SQUARE_LETTERS))
    label_outer(grid)
    handles = [
        Line2D([], [], color=c, marker=m, ls="", label=load) for load, (c, m) in marks.items()
    ]
    legend_with_names(figure, handles, said_of(swept, rows) if labels else "")
    place_labels(figure, labels)
    return figure


def _wanted(
    points: Mapping[str, Sequence[RooflineMark]], swept: Sequence[StudyAxis]
) -> list[Wanted]:
    """The names of a family's points: of each network the ends first."""
    first: list[Wanted] = []
    rest: list[Wanted] = []
    for own in points.values():
        ordered = sorted(own, key=lambda point: -point.place[1])
        names = names_of([point.row for point in ordered], swept)
        for n, (point, name) in enumerate(zip(ordered, names, strict=True)):
            end = n in (0, len(ordered) - 1)
            (first if end else rest).append((point.place, name, "front" if end else "other"))
    return [*first, *rest][:_MOST_LABELS]


def _family(row: Record) -> str:
    found = row.get("family")
    return str(row["arch"] if found is None or pd.isna(found) else found)


def _dram_bytes(row: Record) -> float:
    return float(row["dram_read_bytes"] + row["dram_write_bytes"])


def _span(rows: list[Record], archs: Mapping[str, Arch]) -> tuple[float, float]:
    done = [row for row in rows if row["status"] == "ok" and row["macs"] and _dram_bytes(row)]
    return span_of([row["macs"] / _dram_bytes(row) for row in done], rows, archs)


def _draw_roofline(
    panel: Axes,
    rows: Sequence[Record],
    archs: Mapping[str, Arch],
    span: tuple[float, float],
    marks: Mapping[str, tuple[str, str]],
    every: Sequence[StudyAxis],
) -> dict[str, list[RooflineMark]]:
    """Draw a panel; gives the points of each network."""
    machines = {str(row["arch"]): archs[str(row["arch"])] for row in rows}
    draw_roofs(panel, list(machines.values()), rows, span)
    points: dict[str, list[RooflineMark]] = {}
    refused = []
    for row in rows:
        load = workload(row, every)
        if row["status"] != "ok" or not row["macs"]:
            refused.append(load if len(machines) == 1 else f"{load} on {row['arch']}")
            continue
        rate = row["macs"] / (row["latency_ms"] * 1e-3) / GIGA
        intensity = row["macs"] / _dram_bytes(row) if _dram_bytes(row) else span[1]
        points.setdefault(load, []).append(RooflineMark((intensity, rate), row))
    few = len(rows) <= _FEW
    for load, found in points.items():
        colour, marker = marks[load]
        through = "-" if len(every) == 1 and every[0].ordered else ""
        panel.plot(
            [each.place[0] for each in found], [each.place[1] for each in found], marker=marker,
            ls=through, lw=0.8, color=colour, ms=7 if few else 5, mec="white", mew=0.6,
            alpha=1.0 if few else 0.8,
        )  # fmt: skip
    if refused:
        shown = refused if len(refused) < 4 else [*refused[:3], f"and {len(refused) - 3} more"]
        panel.text(
            0.97, 0.04, "no result:\n" + "\n".join(shown), transform=panel.transAxes,
            ha="right", va="bottom", color=MUTED, style="italic", fontsize=7.5,
        )  # fmt: skip
    return points


def marks_of(loads: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each workload."""
    return {
        load: (CYCLE[i % len(CYCLE)], MARKERS[i % len(MARKERS)]) for i, load in enumerate(loads)
    }


def label_outer(grid: Sequence[Axes]) -> None:
    """Name the axes of the panels that have no neighbour there."""
    for index, panel in enumerate(grid):
        place = panel.get_subplotspec()
        if place is not None and place.is_first_col():
            panel.set_ylabel("rate [GMAC/s]")
        if place is not None and index + place.get_gridspec().ncols >= len(grid):
            panel.set_xlabel("intensity [MAC / DRAM byte]")


def span_of(
    intensities: Sequence[float], rows: Sequence[Record], archs: Mapping[str, Arch]
) -> tuple[float, float]:
    """The range of the common axis: all `intensities`, and the ridges of what `rows` ran on."""
    values = list(intensities)
    for row in rows:
        arch = archs[str(row["arch"])]
        values.append(arch.peak_macs(str(row["dtype"])) / arch.dram_bytes_per_cycle)
    values = [value for value in values if value > 0] or [1.0]
    return min(values) / 3, max(values) * 2


def draw_roofs(
    panel: Axes, machines: Sequence[Arch], rows: Sequence[Record], span: tuple[float, float]
) -> None:
    """The panel of `machines`, log-log, with each of their roofs for the element types of `rows`,
    and the names of the least and the largest of them."""
    panel.set_xscale("log")
    panel.set_yscale("log")
    decades(panel.xaxis, panel.yaxis)
    panel.set_xlim(*span)
    panel.margins(y=0.12)
    peaks: list[tuple[float, str]] = []
    for dtype in dict.fromkeys(str(row["dtype"]) for row in rows):
        rates = {(m.peak_macs(dtype), m.dram_bytes_per_cycle, m.clock) for m in machines}
        roofs = {
            (peak * clock / GIGA, slope * clock / GIGA) for peak, slope, clock in rates if peak
        }
        for peak, slope in sorted(roofs):
            ridge = peak / slope
            panel.plot(
                [span[0], ridge, span[1]], [span[0] * slope, peak, peak], "-", color=INK,
                lw=1.2 if len(roofs) == 1 else 0.8, zorder=1,
            )  # fmt: skip
        peaks += [(peak, f"{peak:,.0f} {dtype}") for peak in {peak for peak, _ in roofs}]
    for peak, text in _ends(sorted(set(peaks))):
        panel.text(span[1] / 1.03, peak, text, ha="right", va="bottom", **_ROOF_NAME)
    slopes = _ends(sorted({m.dram_bytes_per_cycle * m.clock / GIGA for m in machines}))
    for place, slope in enumerate(slopes if len(machines) > 1 else ()):
        above = place > 0 or len(slopes) < 2
        rate = 1.15 * span[0] * slope
        panel.text(
            1.15 * span[0], rate * 1.1 if above else rate / 1.1, f"{slope:.4g} GB/s", **_ROOF_NAME,
            va="bottom" if above else "top", rotation=math.degrees(math.atan(slope)),
            rotation_mode="anchor", transform_rotates_text=True,
        )  # fmt: skip


def _ends(values: Collection[T]) -> list[T]:
    """The first and the last, where these are two."""
    ordered = list(values)
    return [*ordered[:1], *ordered[1:][-1:]]
