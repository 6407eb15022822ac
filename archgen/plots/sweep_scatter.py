"""Several swept fields at once: every figure of the points over every field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, NullLocator

from archgen.outcomes.axes import StudyAxis, Value, axes, workload
from archgen.outcomes.frame import Frame, Record, records
from archgen.plots.panels import TITLE_LETTERS
from archgen.plots.style import (
    AREA,
    CYCLE,
    ENERGY,
    GREY,
    INK,
    LATENCY,
    MARKERS,
    PAPER,
    SETTINGS,
    Metric,
    available_metrics,
    colour_bar,
    folded,
    legend_columns,
    say,
    title,
)
from simmodel.arch.record import Arch

_MOST_SCATTER_FIELDS, _MOST_SCATTER_NETWORKS = 8, 8
_LOG_FROM = 8.0
_LETTERS = 18
"""Of a line of what an axis is."""


@dataclass(frozen=True)
class PanelAxis:
    """What panels of one column or row have in common."""

    title: str
    of: Callable[[Record], float]
    ticks: Sequence[tuple[float, str]] = ()
    log: bool = False


@rc_context(SETTINGS)
def scatter_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Scatter matrix: latency, energy and area over each swept column, and against each other.

    A mark is a point, its colour the network. Panels of swept columns against each other would
    show what was asked for, so there are none. A column whose marks climb or fall together in a
    row matters to it; the spread that is left is what the other columns do.
    """
    every = axes(frame, archs)
    rows = [row for row in records(frame) if not math.isnan(LATENCY.of(row))]
    metrics = available_metrics([LATENCY, ENERGY, AREA], rows)
    own: dict[str, list[Record]] = {}
    for row in rows:
        own.setdefault(workload(row, every), []).append(row)
    networks = list(own)[:_MOST_SCATTER_NETWORKS]
    across = [_side_of_axis(axis) for axis in every[:_MOST_SCATTER_FIELDS]]
    across += [_side_of_metric(each, rows) for each in metrics[:-1]]
    along = [_side_of_metric(each, rows) for each in metrics]
    count = (max(1, len(along)), max(1, len(across)))
    size = (max(6.4, 1.2 + 1.75 * count[1]), 1.3 + 1.75 * count[0])
    figure = Figure(figsize=size, layout="constrained")
    title(figure, "What came out over what was swept")
    grid = figure.subplots(*count, squeeze=False, sharex="col", sharey="row")
    for y, side in enumerate(along):
        for x, other in enumerate(across):
            # Of two figures one panel is enough.
            if x - len(every[:_MOST_SCATTER_FIELDS]) >= y:
                grid[y, x].set_axis_off()
                continue
            _draw_scatter(grid[y, x], other, side, [own[name] for name in networks])
            grid[y, x].set_xlabel(folded(other.title, _LETTERS) if y == len(along) - 1 else "")
            grid[y, x].set_ylabel(folded(side.title, _LETTERS) if x == 0 else "")
    handles = [
        Line2D([], [], color=c, marker=m, ls="", ms=5, label=name)
        for name, c, m in zip(networks, CYCLE, MARKERS, strict=False)
    ]
    figure.align_xlabels(grid[-1])
    columns = legend_columns(figure, networks)
    figure.legend(handles=handles, loc="outside lower left", ncols=columns)
    return figure


def _draw_scatter(
    panel: Axes, across: PanelAxis, along: PanelAxis, own: Sequence[Sequence[Record]]
) -> None:
    for rows, colour, marker in zip(own, CYCLE, MARKERS, strict=False):
        panel.plot(
            [across.of(row) for row in rows], [along.of(row) for row in rows], marker, ms=3.2,
            color=colour, alpha=0.6, mec="none",
        )  # fmt: skip
    for side, axis, scale in (
        (across, panel.xaxis, panel.set_xscale),
        (along, panel.yaxis, panel.set_yscale),
    ):
        if side.log:
            scale("log")
        if side.ticks:
            axis.set_major_locator(FixedLocator([place for place, _ in side.ticks]))
            axis.set_major_formatter(FixedFormatter([text for _, text in side.ticks]))
        elif side.log:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(lambda value, _: f"{value:.3g}")
        axis.set_minor_locator(NullLocator())
    panel.tick_params(labelsize=7)
    panel.tick_params(axis="x", rotation=60)


def _side_of_axis(axis: StudyAxis) -> PanelAxis:
    """Values at equal distances, whatever the steps between them."""
    places = {value: float(place) for place, value in enumerate(axis.values)}

    def of(row: Record) -> float:
        value = axis.value(row)
        return math.nan if value is None else places[value]

    step = math.ceil(len(places) / 6)
    ticks = [(place, axis.shown(value)) for value, place in list(places.items())[::step]]
    return PanelAxis(axis.label, of, ticks)


def _side_of_metric(metric: Metric, rows: Sequence[Record]) -> PanelAxis:
    values = [value for row in rows if (value := metric.of(row)) > 0] or [1.0]
    return PanelAxis(metric.title, metric.of, log=max(values) / min(values) > _LOG_FROM)


# Several swept fields at once: every point as a line across all of them and what came out.

_MOST_NETWORKS, _MOST_FIELDS = 4, 10
_MOST_TICKS, _TITLE_LETTERS = 8, 14
_QUICKEST = 0.1
"""Share of points whose lines are thick and on top."""


@dataclass(frozen=True)
class Scale:
    """One upright axis: where rows stand on it, from 0 to 1, and its ticks."""

    title: str
    places: list[float]
    """Of the rows in their order; NaN: not on it."""
    ticks: list[tuple[float, str]]


@rc_context(SETTINGS)
def parallel_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Parallel coordinates: upright axes for swept columns, then latency, energy and area.

    A panel for each network and a line for each point, dark where it is quick; the quickest tenth
    is thick and on top. Values of a swept column stand at equal distances, figures on a logarithmic
    scale, the better end at the top.
    """
    every = axes(frame, archs)
    shown = every[:_MOST_FIELDS]
    rows = [row for row in records(frame) if not math.isnan(LATENCY.of(row))]
    own: dict[str, list[Record]] = {}
    for row in rows:
        own.setdefault(workload(row, every), []).append(row)
    networks = list(own)[:_MOST_NETWORKS]
    width = max(6.4, 1.25 * (len(shown) + 3))
    size = (width, 0.7 + 3.0 * max(1, len(networks)))
    figure = Figure(figsize=size, layout="constrained")
    left = len(own) - len(networks)
    more = f" ({left} more networks left out)" if left > 0 else ""
    title(figure, f"Points across all swept fields{more}")
    grid = figure.subplots(max(1, len(networks)), 1, squeeze=False).ravel().tolist()
    if not networks:
        say(grid[0], "no point has a result")
    for panel, name in zip(grid, networks, strict=False):
        panel.set_title(folded(name, 2 * TITLE_LETTERS))
        _draw_parallel(figure, panel, own[name], shown)
    return figure


def _draw_parallel(
    figure: Figure, panel: Axes, rows: Sequence[Record], shown: Sequence[StudyAxis]
) -> None:
    metrics = available_metrics([LATENCY, ENERGY, AREA], rows)
    scales = [
        *(_scale_of_axis(axis, rows) for axis in shown),
        *(_scale_of_metric(each, rows) for each in metrics),
    ]
    lines = np.array([[scale.places[n] for scale in scales] for n in range(len(rows))])
    latencies = [LATENCY.of(row) for row in rows]
    least = min(latencies)
    norm = LogNorm(least, max(max(latencies), least * 1.0001))
    colours = ScalarMappable(norm, "cividis")
    shades = colours.to_rgba(np.array(latencies))
    order = sorted(range(len(rows)), key=lambda n: -latencies[n])
    first = len(order) - max(1, round(_QUICKEST * len(order)))
    drawn = LineCollection(
        [list(enumerate(lines[n])) for n in order],
        colors=[(*shades[n][:3], 0.45 if k < first else 1.0) for k, n in enumerate(order)],
        linewidths=[0.6 if k < first else 1.8 for k in range(len(order))],
    )  # fmt: skip
    panel.add_collection(drawn)
    panel.set_xlim(-0.3, len(scales) - 0.6)
    panel.set_ylim(-0.06, 1.06)
    panel.set_xticks(range(len(scales)), [_folded(scale.title) for scale in scales])
    panel.set_yticks([])
    panel.grid(visible=False)
    panel.spines["left"].set_visible(False)
    panel.spines["bottom"].set_visible(False)
    panel.tick_params(axis="x", length=0)
    for place, scale in enumerate(scales):
        panel.axvline(place, color=GREY, lw=0.9, zorder=3)
        for height, text in scale.ticks:
            panel.annotate(
                text, (place, height), (3, 0), textcoords="offset points", va="center",
                fontsize=7, color=INK, zorder=4,
                bbox={"fc": PAPER, "ec": "none", "alpha": 0.75, "pad": 0.6},
            )  # fmt: skip
    colour_bar(figure, colours, panel, LATENCY.title)


def _folded(text: str) -> str:
    """A title in lines as wide as its axis has room for, the unit in one of its own."""
    return "\n".join(folded(part, _TITLE_LETTERS) for part in text.replace(" [", "\n[").split("\n"))


def _scale_of_axis(axis: StudyAxis, rows: Sequence[Record]) -> Scale:
    """Values at equal distances, whatever the steps between them."""
    last = max(1, len(axis.values) - 1)
    heights: dict[Value | None, float] = {v: n / last for n, v in enumerate(axis.values)}
    step = math.ceil(len(axis.values) / _MOST_TICKS)
    ticks = [(heights[value], _tick(axis, value)) for value in axis.values[::step]]
    return Scale(axis.title, [heights.get(axis.value(row), math.nan) for row in rows], ticks)


def _tick(axis: StudyAxis, value: Value) -> str:
    return axis.shown(value) if isinstance(value, str) else f"{axis.number(value):.4g}"


def _scale_of_metric(metric: Metric, rows: Sequence[Record]) -> Scale:
    """Logarithmic, the better end at the top."""
    values = [metric.of(row) for row in rows]
    real = [value for value in values if value > 0] or [1.0]
    low, high = math.log(min(real)), math.log(max(real))
    whole = high - low or 1.0

    def height(value: float) -> float:
        at = (math.log(value) - low) / whole if value > 0 else math.nan
        return at if metric.more else 1 - at

    marks = np.geomspace(min(real), max(real), 5) if high > low else [min(real)]
    ticks = [(height(float(value)), f"{value:.3g}") for value in marks]
    return Scale(metric.title, [height(value) for value in values], ticks)
