"""Each machine's roofline with the points that the study reached under it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.plots.style import CYCLE, GREY, INK, MARKERS, SETTINGS, Frame, square_figure, workload
from simmodel.arch import Arch

_GIGA = 1e9


@rc_context(SETTINGS)
def roofline_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Log-log, one panel for each architecture: rate over intensity.

    The intensity of a point is its MACs over the bytes it moved to and from DRAM; `archs` gives
    peaks by architecture name. Points without a result are listed in their panel.
    """
    names = list(dict.fromkeys(frame["arch"].astype(str)))
    loads = list(dict.fromkeys(workload(row) for _, row in frame.iterrows()))
    marks = {
        load: (CYCLE[i % len(CYCLE)], MARKERS[i % len(MARKERS)]) for i, load in enumerate(loads)
    }
    figure, grid = square_figure(len(names), "Roofline: compute rate over DRAM intensity")
    span = _intensities(frame, archs)
    for axes, name in zip(grid, names, strict=True):
        _draw(axes, frame[frame["arch"] == name], archs[name], span, marks)
    for axes in grid:
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("rate [GMAC/s]")
    for axes in grid[-4:]:
        axes.set_xlabel("intensity [MAC / DRAM byte]")
        axes.tick_params(labelbottom=True)
    handles = [
        Line2D([], [], color=c, marker=m, ls="", label=load) for load, (c, m) in marks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)))
    return figure


def _intensities(frame: Frame, archs: Mapping[str, Arch]) -> tuple[float, float]:
    """The range of the common axis: all points and all ridges."""
    done = frame[frame["status"] == "ok"]
    moved = (done["dram_read_bytes"] + done["dram_write_bytes"]).astype(float)
    values = [v for v in done["macs"].astype(float) / moved if np.isfinite(v) and v > 0]
    for name, dtype in set(zip(frame["arch"], frame["dtype"], strict=True)):
        values.append(archs[name].peak_macs(dtype) / archs[name].dram_bytes_per_cycle)
    values = [value for value in values if value > 0] or [1.0]
    return min(values) / 4, max(values) * 4


def _draw(
    axes: Axes,
    rows: Frame,
    arch: Arch,
    span: tuple[float, float],
    marks: Mapping[str, tuple[str, str]],
) -> None:
    axes.set_title(arch.name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*span)
    axes.margins(y=0.12)
    for dtype in dict.fromkeys(rows["dtype"].astype(str)):
        _roof(axes, arch, dtype, span)
    refused = []
    for _, row in rows.iterrows():
        colour, marker = marks[workload(row)]
        if row["status"] != "ok" or not row["macs"]:
            refused.append(workload(row))
            continue
        moved = row["dram_read_bytes"] + row["dram_write_bytes"]
        rate = row["macs"] / (row["latency_ms"] * 1e-3) / _GIGA
        axes.plot(row["macs"] / moved, rate, marker, color=colour, ms=7, mec="white", mew=0.6)
    if refused:
        shown = refused if len(refused) < 4 else [*refused[:3], f"and {len(refused) - 3} more"]
        axes.text(
            0.97, 0.04, "no result:\n" + "\n".join(shown), transform=axes.transAxes,
            ha="right", va="bottom", color=GREY, style="italic", fontsize=7.5,
        )  # fmt: skip


def _roof(axes: Axes, arch: Arch, dtype: str, span: tuple[float, float]) -> None:
    peak = arch.peak_macs(dtype) * arch.clock / _GIGA
    if peak == 0:
        return
    slope = arch.dram_bytes_per_cycle * arch.clock / _GIGA
    ridge = peak / slope
    axes.plot(
        [span[0], ridge, span[1]], [span[0] * slope, peak, peak], "-", color=INK, lw=1.2, zorder=1
    )
    axes.annotate(
        f"{peak:,.0f} {dtype}", (span[1], peak), (-2, 3), textcoords="offset points",
        ha="right", fontsize=7.5,
    )  # fmt: skip
