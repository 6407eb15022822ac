"""Latency of each point as a bar, with a tick where its roofline would be."""

from __future__ import annotations

import math

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.frame import Frame, is_wrong, records
from archgen.plots.style import (
    BLUE,
    INK,
    SETTINGS,
    VERMILION,
    Panel,
    bar_figure,
    split_panels,
    write_refusals,
)

_LOG_FROM = 30.0


@rc_context(SETTINGS)
def latency_figure(frame: Frame) -> Figure:
    """Bars of `latency_ms`; logarithmic where values differ by more than 30 times.

    Bars whose outputs were wrong are red. Points without a result are named, not drawn as zero.
    """
    panels = split_panels(frame)
    figure, grid = bar_figure(panels, "Latency of one inference")
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, panel)
    figure.legend(
        handles=[
            Line2D([], [], color=BLUE, lw=7, label="simulated"),
            Line2D([], [], color=INK, marker="|", ls="", ms=11, mew=2, label="roofline bound"),
            *_wrong_key(frame),
        ],
        loc="outside lower left",
        ncols=3,
    )
    return figure


def _wrong_key(frame: Frame) -> list[Line2D]:
    if not any(is_wrong(row) for row in records(frame)):
        return []
    return [Line2D([], [], color=VERMILION, lw=7, label="wrong outputs")]


def _draw(axes: Axes, panel: Panel) -> None:
    done = {place: row for place, row in enumerate(panel.rows) if row["status"] == "ok"}
    axes.set_xlabel("latency [ms]")
    write_refusals(axes, panel)
    if not done:
        axes.set_xticks([])
        return
    bounds = [row["latency_ms"] * row["efficiency"] for row in done.values()]
    least, most = min(bounds), max(row["latency_ms"] for row in done.values())
    if least > 0 and most / least > _LOG_FROM:
        axes.set_xscale("log")
        axes.set_xlim(10 ** (math.floor(math.log10(least) * 2 - 0.2) / 2), most * 4)
    else:
        axes.set_xlim(0, most * 1.25)
    for place, row in done.items():
        latency = row["latency_ms"]
        axes.barh(place, latency, height=0.66, color=VERMILION if is_wrong(row) else BLUE)
        axes.plot([latency * row["efficiency"]], [place], "|", color=INK, ms=11, mew=2)
        axes.annotate(
            f"{latency:.3g}", (latency, place), (4, 0),
            textcoords="offset points", va="center", fontsize=8,
        )  # fmt: skip
