"""One swept field: every figure of the points as a line over it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from archgen.outcomes.axes import Slice, StudyAxis, axes, slices
from archgen.outcomes.bottleneck import holder, part_of
from archgen.outcomes.estimated import has_figures, run_of
from archgen.outcomes.frame import Frame, Record, number, records
from archgen.outcomes.fronts import CLOSE, knee
from archgen.outcomes.points import FIELD
from archgen.plots.panels import square_figure
from archgen.plots.style import (
    CYCLE,
    INK,
    MARKERS,
    METRICS,
    MUTED,
    RUN,
    SETTINGS,
    Metric,
    available_metrics,
    decades,
    folded,
    legend_columns,
    peaks,
)
from simmodel.arch.record import Arch

_MOST_NETWORKS, _MOST_LINES, _MOST_FAINT = 8, 8, 60
_MOST_TICKS, _TITLE_LETTERS = 9, 35
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class SliceLine:
    """A slice and how it is drawn."""

    slice: Slice
    label: str
    """Empty: it stands behind, for what the other axes do to its network."""
    colour: str
    marker: str
    need: float = math.nan
    """Where on the axis the network's working set just fits; NaN: not known, or no such axis."""


@rc_context(SETTINGS)
def sweep_figure(frame: Frame, archs: Mapping[str, Arch], column: str) -> Figure:
    """Lines of latency, throughput, energy, area, DRAM traffic and use over one swept column.

    `column` is that of an axis with an order (`archgen.outcomes.axes`): a field of the machine, a
    size of the network, an option of the compiler; its scale is logarithmic where its values grow
    by factors. A line is a network, or of one network each setting of the other axes, all else
    equal; it is dashed across values that were not run, as a search leaves them. A ring marks the
    knee: the least value from which on no larger one is better by more than 5 %, of delays the
    longest of which no shorter one is. Lines with gaps have none, nor those that end before the
    axis does: what was not run may be better. A cross at the bottom is a point that does not fit, a
    star the run of a point that was estimated too. Over the size of the memory that holds what
    passes between layers, a dotted line is the network's part of `working_set_bytes` in it, and
    over that of any memory there are lines of what is alive at once.

    Raises KeyError for a column that is no such axis.
    """
    every = axes(frame, archs)
    axis = next((each for each in every if each.column == column and each.ordered), None)
    if axis is None:
        raise KeyError(f"no swept column {column!r} with an order")
    rows = records(frame)
    lines, left = _lines(slices(rows, every, [axis]))
    lines = [replace(line, need=_need(axis, line.slice, archs)) for line in lines]
    drawn = [row for line in lines for row in line.slice.rows]
    metrics = available_metrics([*METRICS, *_of_memory(axis, drawn)], drawn)
    title = f"Sweep of {axis.label}{_common(lines)}"
    figure, grid = square_figure(
        max(1, len(metrics)), title, share=False, columns=3 if len(metrics) < 7 else 4
    )
    signs: set[str] = set()
    for panel, each in zip(grid, metrics, strict=False):
        signs |= _draw_metric_panel(panel, axis, each, lines)
    _legend(figure, axis, lines, left, signs)
    return figure


def sweep_columns(frame: Frame, archs: Mapping[str, Arch]) -> list[str]:
    """Columns that `sweep_figure` has a line of three points and more for."""
    every, rows = axes(frame, archs), _done(records(frame))
    ordered = [axis for axis in every if axis.ordered]
    return [
        axis.column
        for axis in ordered
        if any(len(each.rows) > 2 for each in slices(rows, every, [axis]))
    ]


def _done(rows: Sequence[Record]) -> list[Record]:
    return [row for row in rows if has_figures(row)]


def _of_memory(axis: StudyAxis, rows: Sequence[Record]) -> list[Metric]:
    """What is alive in a memory whose size is swept."""
    parts = axis.column.split(".")
    if parts[1:2] != ["memories"] or parts[-1] != "size":
        return []
    return [metric for metric in peaks(rows) if metric.name.startswith(f"{parts[2]} ")]


def _need(axis: StudyAxis, one: Slice, archs: Mapping[str, Arch]) -> float:
    """Where between the ends of an axis each memory just holds its part of the working set."""
    for row in one.rows:
        arch = archs[str(row["arch"])]
        if axis.column == f"{FIELD}memories.{holder(arch)}.size":
            part = axis.number(part_of(number(row, "working_set_bytes"), arch))
            if axis.number(axis.values[0]) <= part <= axis.number(axis.values[-1]):
                return part
    return math.nan


def _common(lines: Sequence[SliceLine]) -> str:
    """What all labelled lines have of the other axes."""
    held = dict.fromkeys(line.slice.label for line in lines if line.label)
    return f" at {next(iter(held))}" if len(held) == 1 and all(held) else ""


def _lines(found: Sequence[Slice]) -> tuple[list[SliceLine], int]:
    """The lines of a figure, and how many slices are left out."""
    networks = list(dict.fromkeys(each.network for each in found))[:_MOST_NETWORKS]
    if len(networks) > 1:  # of each the slice with most points: what the study is about
        chosen = [next(each for each in found if each.network == name) for name in networks]
        labels = [each.network for each in chosen]
    else:
        chosen = sorted(found[:_MOST_LINES], key=_axis_positions)
        labels = [each.label or each.network for each in chosen]
    drawn = zip(chosen, labels, CYCLE, MARKERS, strict=False)
    made = [SliceLine(*each) for each in drawn]
    own = {line.slice.network: line.colour for line in made}
    several = len(networks) > 1
    rest = [each for each in found if several and each.network in own and each not in chosen]
    behind = [SliceLine(each, "", own[each.network], "") for each in rest[:_MOST_FAINT]]
    return [*behind, *made], len(found) - len(made) - len(behind)


def _axis_positions(one: Slice) -> list[float]:
    """Where it stands among others, by values of the other axes."""
    return [float(axis.values.index(value)) for axis, value in one.fixed]


def _draw_metric_panel(
    panel: Axes, axis: StudyAxis, metric: Metric, lines: Sequence[SliceLine]
) -> set[str]:
    """Draw one panel; gives what of the legend is in it: `knee`, `gap`, `need`, `run`."""
    found: set[str] = set()
    panel.set_title(folded(metric.title, _TITLE_LETTERS))
    panel.set_xlabel(axis.title)
    _over(panel, axis)
    for line in lines:
        runs = _runs(axis, line.slice, metric)
        if not line.label:
            for run in runs:
                panel.plot(*_x_and_y(run), "-", lw=0.8, alpha=0.35, color=line.colour)
            continue
        found |= _draw_line(panel, axis, metric, line, runs)
        if metric.buys and not math.isnan(line.need):
            found.add("need")
            panel.axvline(line.need, ls=":", lw=1.2, color=line.colour, zorder=1.2)
    values = [metric.of(row) for line in lines for row in line.slice.rows]
    _along(panel, [value for value in values if not math.isnan(value)])
    return found


def _draw_line(
    panel: Axes, axis: StudyAxis, metric: Metric, line: SliceLine, runs: Sequence[Points]
) -> set[str]:
    """A line with a label: whole where neighbours were run, dashed across what was not."""
    found: set[str] = set()
    for run in runs:
        panel.plot(
            *_x_and_y(run), "-", marker=line.marker, ms=4.5, lw=1.4, color=line.colour,
            mec="white", mew=0.5,
        )  # fmt: skip
    for before, after in pairwise(runs):
        found.add("gap")
        ends = [before[-1], after[0]]
        panel.plot(*_x_and_y(ends), ls=(0, (2, 3)), lw=0.9, color=line.colour, zorder=1.5)
    refused = [at(axis, row) for row in line.slice.rows if math.isnan(metric.of(row))]
    if refused:
        panel.plot(
            refused, [0.02] * len(refused), "x", color=line.colour, ms=5,
            transform=panel.get_xaxis_transform(),
        )  # fmt: skip
    both = [(row, own) for row in line.slice.rows if (own := run_of(row)) is not None]
    made = [(at(axis, row), metric.of(own)) for row, own in both if metric.changes(row, own)]
    if made:
        found.add("run")
        panel.plot(*_x_and_y(made), **RUN, color=line.colour)
    enough = _knee(axis, metric, line.slice, runs)
    if enough is not None:
        found.add("knee")
        panel.plot(*_x_and_y([enough]), "o", ms=11, mfc="none", mec=line.colour, mew=1.4)
    return found


def _knee(
    axis: StudyAxis, metric: Metric, one: Slice, runs: Sequence[Points]
) -> tuple[float, float] | None:
    """The point of a line from which on the axis gives no more; None where that is not known."""
    if len(runs) != 1 or not metric.buys or axis.is_need:
        return None
    # Where values beyond were left out nobody knows whether they are better.
    most = axis.values[0 if axis.less_is_more else -1]
    if all(axis.value(row) != most for row in one.rows):
        return None
    points = runs[0][::-1] if axis.less_is_more else runs[0]
    index = knee([y for _, y in points], metric.more)
    return None if index is None else points[index]


def _runs(axis: StudyAxis, one: Slice, metric: Metric) -> list[Points]:
    """The points of a slice, divided wherever a value of the axis was not run or has no figure."""
    made: list[Points] = []
    places = {value: place for place, value in enumerate(axis.values)}
    last = -math.inf
    for row in one.rows:
        value, y = axis.value(row), metric.of(row)
        if value is None or math.isnan(y):
            continue
        if places[value] != last + 1:
            made.append([])
        last = places[value]
        made[-1].append((axis.number(value), y))
    return made


def at(axis: StudyAxis, row: Record) -> float:
    """Where a row stands on an ordered axis."""
    value = axis.value(row)
    assert value is not None
    return axis.number(value)


def _over(panel: Axes, axis: StudyAxis) -> None:
    """The scale of an axis, with ticks at its values."""
    numbers = [axis.number(value) for value in axis.values]
    panel.set_xscale("log" if axis.scale == "log" else "linear")
    step = math.ceil(len(numbers) / _MOST_TICKS)
    ticks = numbers[::step]
    panel.xaxis.set_major_locator(FixedLocator(ticks))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    if max(len(f"{tick:.4g}") for tick in ticks) * len(ticks) > 24:
        panel.tick_params(axis="x", rotation=45)


def _along(panel: Axes, values: Sequence[float]) -> None:
    """From 0 on, unless values differ by factors."""
    if not values or min(values) < 0:
        return
    if min(values) > 0 and max(values) / min(values) > 8:
        panel.set_yscale("log")
        decades(panel.yaxis)
    else:
        panel.set_ylim(0, 1.1 * max(values) or 1.0)


def _x_and_y(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _legend(
    figure: Figure, axis: StudyAxis, lines: Sequence[SliceLine], left: int, signs: set[str]
) -> None:
    handles: list[Any] = [
        Line2D([], [], color=line.colour, marker=line.marker, ms=5, label=line.label)
        for line in lines
        if line.label
    ]
    if any(not line.label for line in lines):
        handles.append(
            Line2D([], [], color=MUTED, lw=0.7, alpha=0.6, label="at other values of other axes")
        )
    if "gap" in signs:
        handles.append(
            Line2D([], [], color=MUTED, lw=0.9, ls=(0, (2, 3)), label="nothing run between")
        )
    if "need" in signs:
        handles.append(
            Line2D([], [], color=MUTED, lw=1.2, ls=":", label="the working set fits from here on")
        )
    if "knee" in signs:
        beyond = "shorter" if axis.less_is_more else "larger"
        handles.append(
            Line2D([], [], ls="", marker="o", ms=10, mfc="none", color=INK,
                   label=f"knee: nothing {beyond} is better by more than {100 * CLOSE:g} %")
        )  # fmt: skip
    if "run" in signs:
        handles.append(Line2D([], [], **RUN, color=MUTED, label="run in full"))
    if left > 0:
        handles.append(Line2D([], [], ls="", color=MUTED, label=f"{left} more lines not drawn"))
    columns = legend_columns(figure, [str(handle.get_label()) for handle in handles])
    figure.legend(handles=handles, loc="outside lower left", ncols=columns)
