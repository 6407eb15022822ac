"""One value of each point as a bar, with a tick where its roofline bounds it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from archgen.outcomes.frame import Frame, Record, is_wrong, number, records
from archgen.plots.panels import Panel, bar_figure, split_panels, write_instead, write_refusals
from archgen.plots.style import BLUE, INK, PAPER, VERMILION

_LOG_FROM = 30.0
_WIDE, _NEAR = 0.12, 0.2
"""Shares of the axes: of a bar that holds its number, of what a number beside it takes."""
_WRONG: Any = {"fc": VERMILION, "ec": PAPER, "lw": 0.5, "hatch": "xxxx"}
_RIGHT: Any = {"fc": BLUE, "ec": PAPER, "lw": 0.5}


def value_figure(frame: Frame, column: str, unit: str, text: str, least: bool) -> Figure:
    """Bars of `column` under the title `text`; logarithmic beyond a range of 30 times.

    `least`: whether the roofline is the least that the value can be, or the most. Bars whose
    outputs were wrong are red and hatched. Points without a result are named, not drawn as zero.
    """
    panels = split_panels(frame)
    figure, grid = bar_figure(panels, text)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_xlabel(unit)
        write_refusals(axes, panel)
        _draw(axes, panel, column, least)
    figure.legend(
        handles=[
            Patch(label="simulated", **_RIGHT),
            Line2D([], [], color=INK, marker="|", ls="", ms=11, mew=2, label="roofline bound"),
            *_wrong_key(frame),
        ],
        loc="outside lower left",
        ncols=3,
    )
    return figure


def value_axis(axes: Axes, values: Sequence[float], ends: Sequence[float]) -> None:
    """From zero; or logarithmic where `values` differ by more than 30 times. `ends`: of bars."""
    least, most = min(values), max(values)
    if least > 0 and most / least > _LOG_FROM:
        axes.set_xscale("log")
        axes.set_xlim(10 ** (math.floor(math.log10(least) * 2 - 0.2) / 2), max(ends) * 6)
    else:
        axes.set_xlim(0, (most or 1.0) * 1.25)


def _wrong_key(frame: Frame) -> list[Patch]:
    if not any(is_wrong(row) for row in records(frame)):
        return []
    return [Patch(label="wrong outputs", **_WRONG)]


def _draw(axes: Axes, panel: Panel, column: str, least: bool) -> None:
    done: dict[int, Record] = {}
    for place, row in enumerate(panel.rows):
        if row["status"] == "ok" and math.isnan(number(row, column)):
            write_instead(axes, place, "no value")
        elif row["status"] == "ok":
            done[place] = row
    if not done:
        axes.set_xticks([])
        return
    values = {place: number(row, column) for place, row in done.items()}
    bounds = {place: _bound(row, values[place], least) for place, row in done.items()}
    known = [*values.values(), *(bound for bound in bounds.values() if not math.isnan(bound))]
    value_axis(axes, known, list(values.values()))
    for place, row in done.items():
        value = values[place]
        axes.barh(place, value, height=0.66, **(_WRONG if is_wrong(row) else _RIGHT))
        axes.plot([bounds[place]], [place], "|", color=INK, ms=11, mew=2)
        _write_value(axes, place, value, bounds[place])


def _write_value(axes: Axes, place: int, value: float, bound: float) -> None:
    """The number beside its bar; where the tick of its bound is in the way, inside or beyond."""
    at, tick = (_share(axes, each) for each in (value, bound))
    hidden = at < tick < at + _NEAR
    inside = hidden and at > _WIDE
    axes.annotate(
        shown(value), (bound if hidden and not inside else value, place),
        (-4 if inside else 5, 0), textcoords="offset points", va="center", fontsize=8,
        ha="right" if inside else "left", color="white" if inside else INK,
    )  # fmt: skip


def _share(axes: Axes, value: float) -> float:
    """Where `value` lies between the ends of the axes, 0 to 1; NaN stays NaN."""
    if not value > 0:
        return 0.0 if value == 0 else math.nan
    across = axes.transData.transform((value, 0))[0]
    return float(axes.transAxes.inverted().transform((across, 0))[0])


def _bound(row: Record, value: float, least: bool) -> float:
    efficiency = number(row, "efficiency")
    if least:
        return value * efficiency
    return value / efficiency if efficiency > 0 else math.nan


def shown(value: float) -> str:
    """Three digits; whole above a thousand, with separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
