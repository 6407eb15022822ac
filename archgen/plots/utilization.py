"""When each layer ran, and how well it used the matrix engines meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from archgen.outcomes.frame import Frame, Record, number, records
from archgen.plots.style import BLUE, GREY, INK, SETTINGS, title
from archgen.plots.timeline import WIDTH, point_title, time_axis
from simmodel.arch import Arch

_ROW, _MOST_ROWS, _LETTERS = 0.165, 72, 32


@rc_context(SETTINGS)
def utilization_figure(layers: Frame, archs: Mapping[str, Arch]) -> Figure:
    """A row for each layer of one point: its time, grey without MACs, and its utilization.

    The bar is MACs / (own cycles x peak of all cores), the tick MACs / (cycles in which matrix
    engines worked for it x peak of one). Layers of a group share its time. Of more than 72 layers
    those that took longest are drawn. Raises ValueError for the rows of several points.
    """
    text = point_title(layers)
    rows = [row for row in records(layers) if number(row, "end_cycle") >= 0]
    arch = archs[str(layers["arch"].iloc[0])]
    drawn = _longest(rows)
    left = (
        f"; the {len(rows) - len(drawn)} shortest layers left out" if len(rows) > len(drawn) else ""
    )
    figure = Figure(figsize=(WIDTH, 1.5 + _ROW * max(5, len(drawn))), layout="constrained")
    when, use = figure.subplots(1, 2, sharey=True, width_ratios=[1.5, 1])
    title(figure, f"Layers over time: {text}{left}")
    peak = arch.peak_macs(str(layers["dtype"].iloc[0]))
    end = max((number(row, "end_cycle") for row in rows), default=1)
    _draw_time(when, drawn)
    _draw_use(use, drawn, peak, arch.core_count)
    time_axis(when, end, arch)
    figure.legend(
        handles=[
            Patch(color=BLUE, label="of all cores, over the layer's time"),
            Line2D([], [], color=INK, marker="|", ls="", ms=7, mew=1.6,
                   label="of one, while it works"),
        ],
        loc="outside lower right", ncols=2,
    )  # fmt: skip
    return figure


def _longest(rows: list[Record]) -> list[Record]:
    """At most 72 rows, those that took longest, in order of their start."""
    ranked = sorted(rows, key=_cycles, reverse=True)[:_MOST_ROWS]
    return sorted(ranked, key=lambda row: (row["start_cycle"], row["end_cycle"]))


def _cycles(row: Record) -> float:
    return number(row, "end_cycle") - number(row, "start_cycle")


def utilization(row: Record, peak: float) -> float:
    """MACs of a layer over what the chip could do in its time; NaN where that is nothing."""
    able = _cycles(row) * peak
    return number(row, "macs") / able if able > 0 else math.nan


def _draw_time(axes: Axes, rows: list[Record]) -> None:
    axes.set_title("layer (group) over time")
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows], fontsize=7)
    axes.set_ylim(max(len(rows), 5) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    for place, row in enumerate(rows):
        span = (number(row, "start_cycle"), max(_cycles(row), 1))
        colour = BLUE if number(row, "macs") > 0 else GREY
        axes.broken_barh([span], (place - 0.4, 0.8), fc=colour, lw=0)
    for place in range(1, len(rows)):
        if rows[place]["group"] != rows[place - 1]["group"]:
            axes.axhline(place - 0.5, color=GREY, alpha=0.5, lw=0.7, zorder=0)


def _name(row: Record) -> str:
    """The first node that the layer is made of, `+` where there are more, and its group."""
    first, *more = str(row["node"]).split("+")
    short = first if len(first) <= _LETTERS else f"…{first[1 - _LETTERS :]}"
    return f"{short}{' +' if more else ''} ({int(row['group'])})"


def _draw_use(axes: Axes, rows: list[Record], peak: float, cores: int) -> None:
    axes.set_title("utilization of the matrix engines")
    axes.set_xlabel("share of peak [%]")
    axes.set_xlim(0, 104)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0, labelleft=False)
    for place, row in enumerate(rows):
        share = 100 * utilization(row, peak)
        busy = number(row, "busy_matrix_cycles") * peak / cores
        while_busy = 100 * number(row, "macs") / busy if busy > 0 else math.nan
        axes.barh(place, 0 if math.isnan(share) else share, height=0.8, color=BLUE)
        axes.plot([while_busy], [place], "|", color=INK, ms=6, mew=1.6)
