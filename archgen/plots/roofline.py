"""Each machine's roofline with the points that the study reached under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.axes import workload
from archgen.outcomes.frame import Frame, Record, records
from archgen.plots.panels import square_figure
from archgen.plots.style import CYCLE, INK, MARKERS, MUTED, SETTINGS, legend_columns
from simmodel.arch import Arch

GIGA = 1e9


@rc_context(SETTINGS)
def roofline_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Log-log, one panel for each architecture: rate over intensity.

    The intensity of a point is its MACs over the bytes it moved to and from DRAM; `archs` gives
    peaks by architecture name. Points that moved nothing stand at the right edge; those without a
    result are listed in their panel.
    """
    names = list(dict.fromkeys(frame["arch"].astype(str)))
    loads = list(dict.fromkeys(workload(row) for row in records(frame)))
    marks = marks_of(loads)
    figure, grid = square_figure(len(names), "Roofline: compute rate over DRAM intensity")
    span = _span(records(frame), archs)
    for axes, name in zip(grid, names, strict=True):
        _draw(axes, records(frame[frame["arch"] == name]), archs[name], span, marks)
    label_outer(grid)
    handles = [
        Line2D([], [], color=c, marker=m, ls="", label=load) for load, (c, m) in marks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=legend_columns(figure, loads))
    return figure


def _moved(row: Record) -> float:
    return float(row["dram_read_bytes"] + row["dram_write_bytes"])


def _span(rows: list[Record], archs: Mapping[str, Arch]) -> tuple[float, float]:
    done = [row for row in rows if row["status"] == "ok" and row["macs"] and _moved(row)]
    return span_of([row["macs"] / _moved(row) for row in done], rows, archs)


def _draw(
    axes: Axes,
    rows: list[Record],
    arch: Arch,
    span: tuple[float, float],
    marks: Mapping[str, tuple[str, str]],
) -> None:
    draw_roofs(axes, arch, rows, span)
    refused = []
    for row in rows:
        colour, marker = marks[workload(row)]
        if row["status"] != "ok" or not row["macs"]:
            refused.append(workload(row))
            continue
        rate = row["macs"] / (row["latency_ms"] * 1e-3) / GIGA
        intensity = row["macs"] / _moved(row) if _moved(row) else span[1]
        axes.plot(intensity, rate, marker, color=colour, ms=7, mec="white", mew=0.6)
    if refused:
        shown = refused if len(refused) < 4 else [*refused[:3], f"and {len(refused) - 3} more"]
        axes.text(
            0.97, 0.04, "no result:\n" + "\n".join(shown), transform=axes.transAxes,
            ha="right", va="bottom", color=MUTED, style="italic", fontsize=7.5,
        )  # fmt: skip


def marks_of(loads: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each workload."""
    return {
        load: (CYCLE[i % len(CYCLE)], MARKERS[i % len(MARKERS)]) for i, load in enumerate(loads)
    }


def label_outer(grid: Sequence[Axes]) -> None:
    """Name the axes of the panels that have no neighbour there."""
    for axes in grid:
        place = axes.get_subplotspec()
        if place is not None and place.is_first_col():
            axes.set_ylabel("rate [GMAC/s]")
        if place is not None and place.is_last_row():
            axes.set_xlabel("intensity [MAC / DRAM byte]")


def span_of(
    intensities: Sequence[float], rows: Sequence[Record], archs: Mapping[str, Arch]
) -> tuple[float, float]:
    """The range of the common axis: all `intensities`, and the ridges of what `rows` ran on."""
    values = list(intensities)
    for row in rows:
        arch = archs[str(row["arch"])]
        values.append(arch.peak_macs(str(row["dtype"])) / arch.dram_bytes_per_cycle)
    values = [value for value in values if value > 0] or [1.0]
    return min(values) / 4, max(values) * 4


def draw_roofs(axes: Axes, arch: Arch, rows: Sequence[Record], span: tuple[float, float]) -> None:
    """The panel of `arch`, log-log, with a roof for each element type of `rows`."""
    axes.set_title(arch.name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*span)
    axes.margins(y=0.12)
    for dtype in dict.fromkeys(str(row["dtype"]) for row in rows):
        _draw_roof(axes, arch, dtype, span)


def _draw_roof(axes: Axes, arch: Arch, dtype: str, span: tuple[float, float]) -> None:
    """The slope of DRAM and the peak for `dtype` over the intensities of `span`."""
    peak = arch.peak_macs(dtype) * arch.clock / GIGA
    if peak == 0:
        return
    slope = arch.dram_bytes_per_cycle * arch.clock / GIGA
    ridge = peak / slope
    axes.plot(
        [span[0], ridge, span[1]], [span[0] * slope, peak, peak], "-", color=INK, lw=1.2, zorder=1
    )
    axes.annotate(
        f"{peak:,.0f} {dtype}", (span[1], peak), (-2, 3), textcoords="offset points",
        ha="right", fontsize=7.5,
    )  # fmt: skip
