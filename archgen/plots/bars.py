"""One value of each row as a bar: latency and throughput of points, what a parameter changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import archgen.plots.style as style
from archgen.outcomes.columns import MORE_IS_BETTER
from archgen.outcomes.estimated import ESTIMATED, has_figures, is_estimated, run_figures
from archgen.outcomes.frame import Frame, Record, is_wrong, number, records
from archgen.plots.findings import best_of, points_with_labels, titled
from archgen.plots.panels import NONE, Panel, bar_figure, panel_figure, write_at_edge, write_instead
from archgen.plots.style import filled, legend, logarithmic, number_text, patches
from simmodel.arch.record import Arch

_LOG_FROM = 30.0
_WRONG: Any = {"fc": style.VERMILION, "ec": style.PAPER, "lw": 0.5, "hatch": "xxxx"}
_GUESSED: Any = {"fc": style.PALE, "ec": style.BLUE, "lw": 0.8}
_RIGHT: Any = {"fc": style.BLUE, "ec": style.PAPER, "lw": 0.5}
_ASSUMED: Any = {"ecolor": style.ORANGE, "elinewidth": 1.5, "capsize": 4, "fmt": "none"}
_BOUND: Any = {"color": style.INK, "marker": "|", "ls": "", "ms": 11, "mew": 2}


def latency_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Bars of `latency_ms`, and the roofline's lower bound of each."""
    return _bounded_bars(
        frame, archs, ("Latency", "ms", "takes least"), "latency [ms]", "latency_ms",
        lambda row: number(row, "latency_ms") * number(row, "efficiency"),
    )  # fmt: skip


def throughput_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Bars of `throughput_ips`, and the roofline's upper bound of each; with inferences in flight
    none, as weights may be there already."""
    return _bounded_bars(
        frame, archs, ("Throughput", "samples/s", "does most"), "throughput [samples/s]",
        "throughput_ips",
        lambda row: math.nan
        if number(row, "in_flight", 0.0)
        else number(row, "throughput_ips") / (number(row, "efficiency") or math.nan),
    )  # fmt: skip


@rc_context(style.SETTINGS)
def _bounded_bars(
    frame: Frame, archs: Mapping[str, Arch], words: tuple[str, str, str], x: str, column: str,
    bound: Callable[[Record], float],
) -> Figure:  # fmt: skip
    """Bars of `column` with ticks at the `bound` of each; logarithmic beyond a range of 30 times.
    Red and hatched where outputs were wrong, pale where estimated, with what a run gave inside."""
    what, unit, best = words
    more, points = column in MORE_IS_BETTER, points_with_labels(frame, archs)
    finding = best_of(points, lambda row: number(row, column), unit, best, more)
    figure, panels = bar_figure(frame, archs, titled(what, finding), x)
    for axes, panel in panels:
        done = [(place, row) for place, row in panel if has_figures(row)]
        ends = [number(row, column) for _, row in done]
        ends += [bound(row) for _, row in done]
        ends += [number(row, "latency_high_ms") for _, row in done if column == "latency_ms"]
        ends += [number(run, column) for _, row in done if (run := run_figures(row)) is not None]
        _value_axis(axes, [end for end in ends if end >= 0])
        for place, row in done:
            if math.isnan(number(row, column)):
                write_instead(axes, place, "no value")
            else:
                _draw_bar(axes, place, row, column, bound(row))
    rows = records(frame)
    ranged = column == "latency_ms" and "latency_high_ms" in frame
    right = Patch(label="simulated", **_RIGHT)
    handles: list[Any] = [right, Line2D([], [], label="roofline bound", **_BOUND)]
    if is_estimated(frame):
        guessed = Patch(label="estimated", **_GUESSED)
        handles = [guessed, right] if any(map(run_figures, rows)) else [guessed]
    if ranged and frame["latency_high_ms"].notna().any():
        handles += [Line2D([], [], label="range of what is assumed", color=style.ORANGE)]
    handles += [Patch(label="wrong outputs", **_WRONG)] if any(map(is_wrong, rows)) else []
    legend(figure, handles)
    return figure


def _value_axis(axes: Axes, ends: Sequence[float]) -> None:
    """From zero; or logarithmic where `ends` differ by more than 30 times."""
    if not ends:
        axes.set_xticks([])
    elif min(ends) > 0 and max(ends) / min(ends) > _LOG_FROM:
        logarithmic(axes, "x")
        axes.set_xlim(min(ends) / 2, max(ends) * 1.1)
    else:
        axes.set_xlim(0, (max(ends) or 1.0) * 1.05)


def _draw_bar(axes: Axes, place: int, row: Record, column: str, bound: float) -> None:
    value, run = number(row, column), run_figures(row)
    certain = _WRONG if is_wrong(row) else _RIGHT
    guessed = run is not None or row["status"] == ESTIMATED
    axes.barh(place, value, height=0.66, **(_GUESSED if guessed else certain))
    axes.plot([bound], [place], **_BOUND)
    low, high = number(row, "latency_low_ms"), number(row, "latency_high_ms")
    if column == "latency_ms" and low < high:
        axes.errorbar(value, place, xerr=[[value - low], [high - value]], **_ASSUMED)
    text = number_text(value)
    if run is not None:
        axes.barh(place, number(run, column), height=0.22, **certain)
        text = f"{text}\nrun {number_text(number(run, column))}"
    write_at_edge(axes, place, text)


# What each parameter is worth: the change of a result when one of them moves and the rest stay.

_SIDES: Mapping[str, str] = {"low": style.BLUE, "high": style.ORANGE}
_MOST_ROWS = 40


@rc_context(style.SETTINGS)
def tornado_figure(frame: Frame) -> Figure:
    """Bars of `low` and `high`, relative changes of a metric at `low_value` and `high_value`.

    `frame` has the columns parameter, low_value, high_value, low, high, and may have `metric`. The
    parameter that matters most is on top; of more than 40 the others are counted. A change that is
    missing has no bar, but its value is named.
    """
    ranked = sorted(records(frame), key=_reach, reverse=True)
    drawn, left = ranked[:_MOST_ROWS], len(ranked) - _MOST_ROWS
    more = f"{left} smaller ones left out" if left > 0 else ""
    panel = Panel(more, drawn, [str(row["parameter"]) for row in drawn])
    metric = str(frame["metric"].iloc[0]) if "metric" in frame else "result"
    text = f"Sensitivity: {drawn[0]['parameter']} moves {metric} most, by {_change_text(drawn[0])}"
    figure, ((axes, _),) = panel_figure([panel], text, f"change of {metric} [%]", 0.36)
    axes.axvline(0, color=style.INK, lw=1)
    reach = _reach(drawn[0]) or 0.01
    axes.set_xlim(-175 * reach, 175 * reach)
    for place, row in panel:
        _draw_changes(axes, place, row)
    legend(figure, patches({"at the low value": style.BLUE, "at the high value": style.ORANGE}))
    return figure


def _change_text(row: Record) -> str:
    """`-30 to +12 %`."""
    changes = sorted({round(100 * c) for c in (number(row, s) for s in _SIDES) if c == c})
    return f"{' to '.join(f'{change:+d}' for change in changes) or 'nothing'} %"


def _reach(row: Record) -> float:
    """The larger of a row's two changes; those that are missing count as none."""
    changes = [abs(number(row, side)) for side in _SIDES]
    return max((change for change in changes if not math.isnan(change)), default=0.0)


def _draw_changes(axes: Axes, place: int, row: Record) -> None:
    """Both bars of a parameter with its values; they share the row where they point the same way.
    A change that is missing has its words where the other bar is not."""
    low, high = number(row, "low"), number(row, "high")
    together = low * high > 0
    for side, change, other in (("low", low, high), ("high", high, low)):
        shift = (-0.19 if side == "low" else 0.19) if together else 0.0
        missing = math.isnan(change)
        if not missing:
            height = 0.36 if together else 0.7
            axes.barh(place + shift, 100 * change, height=height, **filled(_SIDES[side]))
        rightwards = change > 0 or (not change < 0 and (other < 0 or side == "high"))
        value = row.get(f"{side}_value")
        text = "" if value is None or pd.isna(value) else str(value)
        text += ": no result" if missing else f" ({100 * change:+.3g} %)"
        axes.annotate(
            text.strip(), (0 if missing else 100 * change, place + shift),
            (4 if rightwards else -4, 0), textcoords="offset points", va="center", fontsize=7,
            ha="left" if rightwards else "right", color=style.MUTED if missing else style.INK,
        )  # fmt: skip
