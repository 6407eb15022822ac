"""One value of each point as a bar, with a tick where its roofline bounds it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from archgen.outcomes.estimated import ESTIMATED, has_figures, is_estimated, run_of
from archgen.outcomes.frame import Frame, Record, is_wrong, number, records
from archgen.plots.panels import (
    NONE,
    Panel,
    bar_figure,
    split_panels,
    write_instead,
    write_refusals,
)
from archgen.plots.style import (
    BLUE,
    INK,
    PALE,
    PAPER,
    SETTINGS,
    VERMILION,
    decades,
)
from simmodel.arch.record import Arch

_LOG_FROM = 30.0
_WIDE, _NEAR = 0.12, 0.2
"""Shares of the axes: of a bar that holds its number, of what a number beside it takes."""
_WRONG: Any = {"fc": VERMILION, "ec": PAPER, "lw": 0.5, "hatch": "xxxx"}
_GUESSED: Any = {"fc": PALE, "ec": BLUE, "lw": 0.8}
_RIGHT: Any = {"fc": BLUE, "ec": PAPER, "lw": 0.5}


def value_figure(
    frame: Frame, archs: Mapping[str, Arch], column: str, unit: str, text: str, least: bool
) -> Figure:
    """Bars of `column` under the title `text`; logarithmic beyond a range of 30 times.

    `least`: whether the roofline is the least that the value can be, or the most. Bars whose
    outputs were wrong are red and hatched, pale where they are estimates, with what a run gave
    inside. Points without a result are named, not drawn as zero.
    """
    panels = split_panels(frame, archs)
    figure, grid = bar_figure(panels, text)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_xlabel(unit)
        write_refusals(axes, panel)
        _draw_bars(axes, panel, column, least)
    figure.legend(handles=_keys(frame), loc="outside lower left", ncols=3)
    return figure


def value_axis(axes: Axes, values: Sequence[float], ends: Sequence[float]) -> None:
    """From zero; or logarithmic where `values` differ by more than 30 times. `ends`: of bars."""
    least, most = min(values), max(values)
    if least > 0 and most / least > _LOG_FROM:
        axes.set_xscale("log")
        decades(axes.xaxis)
        axes.set_xlim(10 ** (math.floor(math.log10(least) * 2 - 0.2) / 2), max(ends) * 6)
    else:
        axes.set_xlim(0, (most or 1.0) * 1.25)


def _keys(frame: Frame) -> list[Patch | Line2D]:
    """What the legend says: what bars there are."""
    tick = Line2D([], [], color=INK, marker="|", ls="", ms=11, mew=2, label="roofline bound")
    guessed, right = Patch(label="estimated", **_GUESSED), Patch(label="simulated", **_RIGHT)
    rows = records(frame)
    if is_estimated(frame):
        found: list[Patch | Line2D] = [guessed]
        found += [right] if any(run_of(row) for row in rows) else []
    else:
        found = [right, tick]
    return [*found, *([Patch(label="wrong outputs", **_WRONG)] if any(map(is_wrong, rows)) else [])]


def _draw_bars(axes: Axes, panel: Panel, column: str, least: bool) -> None:
    done: dict[int, Record] = {}
    for place, row in enumerate(panel.rows):
        if has_figures(row) and math.isnan(number(row, column)):
            write_instead(axes, place, "no value")
        elif has_figures(row):
            done[place] = row
    if not done:
        axes.set_xticks([])
        return
    values = {place: number(row, column) for place, row in done.items()}
    bounds = {place: _bound_value(row, values[place], least) for place, row in done.items()}
    known = [*values.values(), *(bound for bound in bounds.values() if not math.isnan(bound))]
    value_axis(axes, known, list(values.values()))
    for place, row in done.items():
        value, run = values[place], run_of(row)
        certain = _WRONG if is_wrong(row) else _RIGHT
        guessed = run is not None or row["status"] == ESTIMATED
        axes.barh(place, value, height=0.66, **(_GUESSED if guessed else certain))
        axes.plot([bounds[place]], [place], "|", color=INK, ms=11, mew=2)
        if run:
            axes.barh(place, number(run, column), height=0.22, **certain)
        _write_value(axes, place, value, bounds[place], number(run or {}, column))


def _write_value(axes: Axes, place: int, value: float, bound: float, run: float) -> None:
    """The number beside its bar, and that of its `run` where the bar is an estimate; where the tick
    of its bound is in the way, inside or beyond."""
    at, tick = (_axes_fraction(axes, each) for each in (value, bound))
    hidden = at < tick < at + _NEAR
    inside = hidden and at > _WIDE
    text = shown(value) if math.isnan(run) else f"{shown(value)} (run {shown(run)})"
    if run > value:
        value = run
    axes.annotate(
        text, (bound if hidden and not inside else value, place),
        (-4 if inside else 5, 0), textcoords="offset points", va="center", fontsize=8,
        ha="right" if inside else "left", color="white" if inside else INK,
    )  # fmt: skip


def _axes_fraction(axes: Axes, value: float) -> float:
    """Where `value` lies between the ends of the axes, 0 to 1; NaN stays NaN."""
    if not value > 0:
        return 0.0 if value == 0 else math.nan
    across = axes.transData.transform((value, 0))[0]
    return float(axes.transAxes.inverted().transform((across, 0))[0])


def _bound_value(row: Record, value: float, least: bool) -> float:
    efficiency = number(row, "efficiency")
    if least:
        return value * efficiency
    return value / efficiency if efficiency > 0 else math.nan


def shown(value: float) -> str:
    """Three digits; whole above a thousand, with separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


# Latency of each point as a bar, with a tick where its roofline would be.


@rc_context(SETTINGS)
def latency_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Bars of `latency_ms`, and the roofline's lower bound of each."""
    return value_figure(
        frame, archs, "latency_ms", "latency [ms]", "Latency of one inference", True
    )


# Samples per second of each point as a bar, with a tick where its roofline would be.


@rc_context(SETTINGS)
def throughput_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Bars of `throughput_ips`, and the roofline's upper bound of each."""
    return value_figure(
        frame, archs, "throughput_ips", "throughput [samples/s]", "Throughput", False
    )
