"""Each machine's or family's roofline with the points that the study reached under it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import cycle
from typing import Any, TypeVar

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import archgen.plots.panels as panels
import archgen.plots.style as style
from archgen.outcomes.axes import FAMILY, MACHINE, StudyAxis, axes, workload
from archgen.outcomes.figures import DRAM, far_memory, figure_of
from archgen.outcomes.frame import Frame, Record, grouped, missing, number, records
from archgen.plots.findings import extremes, points_with_labels, titled
from archgen.plots.panels import field_labels, point_axes, square_figure, write_names
from archgen.plots.style import legend, logarithmic, wrapped
from simmodel.arch.element_types import WINOGRAD
from simmodel.arch.record import Arch

_GIGA = 1e9
_ROOF_NAME: Any = {"fontsize": 7.5, "path_effects": panels.OUTLINE, "in_layout": False}
_FLASH_LINE: Any = {"color": style.INK, "ls": "--", "marker": "o", "mfc": "none", "lw": 1.0}
_FAR = {"dram": DRAM, "flash": "flash_read_bytes"}
"""Memories off chip, and the figure of what a run moves."""
T = TypeVar("T")
_FEW = 24
"""Points of a panel whose marks may be large."""


@rc_context(style.SETTINGS)
def roofline_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Log-log, rate over intensity: a panel for each machine, or each family of machines that a
    sweep has made of one.

    The intensity of a point is its MACs over the bytes it moved to and from DRAM; where there is
    flash, a hollow mark has it of the bytes from there, under a dashed roof. A family has a
    roof for each peak and bandwidth, and names the least and the largest. Of several points of a
    network the quickest and the slowest are named by what tells them apart, and a line goes through
    them where one column alone is swept. Points that moved nothing stand at the right
    edge; those without a result are listed in their panel.
    """
    rows = records(frame)
    families = grouped(rows, lambda row: str(row["arch" if missing(row.get(FAMILY)) else FAMILY]))
    every = axes(frame, archs)
    loads = dict.fromkeys(workload(row, every) for row in rows)
    looks = zip(loads, cycle(style.CYCLE), cycle(style.MARKERS))
    marks = {load: (colour, marker) for load, colour, marker in looks}
    reached = extremes(
        points_with_labels(frame, archs), lambda row: 100 * number(row, "efficiency"), " %",
        "at {} of its roof",
    )  # fmt: skip
    figure, grid = square_figure(len(families), titled("Roofline", reached))
    if len(families) == 1:
        figure.set_size_inches(7.4, 5.2)
    ran = [row for row in rows if row["status"] == "ok" and row["macs"]]
    moved = [(row["macs"], figure_of(row, far)) for row in ran for far in _FAR.values()]
    span = _span([macs / amount for macs, amount in moved if amount], rows, archs)
    swept = [axis for axis in point_axes(every) if axis.column not in (FAMILY, MACHINE)]
    names = []
    for panel, (family, own) in zip(grid, families.items(), strict=True):
        machines = {str(row["arch"]): archs[str(row["arch"])] for row in own}
        text = f"{family}: {len(machines)} machines" if len(machines) > 1 else next(iter(machines))
        panel.set_title(wrapped(text, panels.TITLE_LETTERS * (1 if len(families) > 1 else 2)))
        _draw_roofs(panel, list(machines.values()), own, span)
        points = _draw_points(panel, own, marks, every)
        names.append(_extremes(points, own, swept) if swept and len(own) > len(points) else [])
    memories = [archs[str(row["arch"])].memories for row in rows]
    flash = any(each.flash is not None for each in memories)
    usual = not flash and far_memory(archs[str(row["arch"])] for row in rows) == "DRAM"
    columns = min(panels.COLUMNS, len(grid))
    for panel in grid[::columns]:
        panel.set_ylabel("rate [GMAC/s]")
    for panel in grid[-columns:]:
        panel.set_xlabel("intensity [MAC / DRAM byte]" if usual else "intensity [MAC / byte]")
    titles = ", ".join(axis.title for axis in swept)
    keys = [Line2D([], [], color=c, marker=m, ls="", label=load) for load, (c, m) in marks.items()]
    keys += [Line2D([], [], label="by bytes of flash, not DRAM", **_FLASH_LINE)] * flash
    legend(figure, keys, f"names: {titles}" if any(names) else "")
    figure.draw_without_rendering()
    for panel, own_names in zip(grid, names, strict=True):
        write_names(panel, own_names)
    return figure


Point = tuple[tuple[float, float], Record]


def _draw_points(
    panel: Axes, rows: Sequence[Record], marks: Mapping[str, tuple[str, str]],
    every: Sequence[StudyAxis],
) -> dict[str, list[Point]]:  # fmt: skip
    """Draw a panel's marks; gives the points of each network."""
    points: dict[str, list[Point]] = {}
    refused, alone = [], len({row["arch"] for row in rows}) == 1
    for row in rows:
        load, edge = workload(row, every), panel.get_xlim()[1]
        if row["status"] != "ok" or not row["macs"]:
            name = load if alone else f"{load} on {row['arch']}"
            refused.append(wrapped(name, panels.TITLE_LETTERS))
            continue
        moved = figure_of(row, DRAM)
        intensity = row["macs"] / moved if moved else edge
        rate = row["macs"] / (row["latency_ms"] * 1e-3) / _GIGA
        points.setdefault(load, []).append(((intensity, rate), row))
        if (read := figure_of(row, _FAR["flash"])) > 0:
            panel.plot(row["macs"] / read, rate, marks[load][1], mec=marks[load][0], mfc="none")
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
        panel.text(
            0.97, 0.04, "\n".join(["no result:", *refused[:3], *more]), ha="right", va="bottom",
            transform=panel.transAxes, color=style.MUTED, style="italic", fontsize=7.5,
        )  # fmt: skip
    return points


def _extremes(
    points: Mapping[str, Sequence[Point]], rows: Sequence[Record], swept: Sequence[StudyAxis]
) -> list[tuple[tuple[float, float], str]]:
    """Places and names of the quickest and the slowest point of each network, among `rows`."""
    ranked = [sorted(own, key=lambda point: -point[0][1]) for own in points.values()]
    ends = [end for own in ranked for end in _ends(own)]
    names = dict(zip(map(id, rows), field_labels(rows, swept), strict=True))
    return [(place, names[id(row)]) for place, row in ends]


def _span(
    intensities: Sequence[float], rows: Sequence[Record], archs: Mapping[str, Arch]
) -> tuple[float, float]:
    """The range of the common axis: all `intensities`, and the ridges of what `rows` ran on."""
    values = list(intensities)
    for row in rows:
        arch = archs[str(row["arch"])]
        values += [arch.peak_macs(str(row["dtype"])) / rate for rate in arch.far_rates.values()]
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
    types = dict.fromkeys(str(row["dtype"]) for row in rows)
    saved = [name for name, (base, _) in WINOGRAD.items() if base in types]
    for dtype in (*types, *saved):
        giga = [m.clock / _GIGA for m in machines]
        roofs = {
            (m.peak_macs(dtype) * rate, each * rate, far)
            for m, rate in zip(machines, giga, strict=True)
            for far, each in m.far_rates.items()
            if m.peak_macs(dtype)
        }
        for peak, slope, far in sorted(roofs):
            panel.plot(
                [span[0], peak / slope, span[1]], [span[0] * slope, peak, peak],
                "-" if far == "dram" else "--", color=style.INK,
                lw=1.2 if len(machines) == 1 else 0.8, zorder=1,
            )  # fmt: skip
        peaks |= {(peak, f"{peak:,.0f} {dtype}") for peak, *_ in roofs}
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
