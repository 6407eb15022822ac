"""Several swept fields at once: every figure of the points over every field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, NullLocator

from archgen.outcomes.axes import Axis, axes, workload
from archgen.outcomes.frame import Frame, Record, records
from archgen.plots.metrics import AREA, ENERGY, LATENCY, Metric, known
from archgen.plots.style import CYCLE, MARKERS, SETTINGS, folded, legend_columns, title
from simmodel.arch import Arch

_MOST_FIELDS, _MOST_NETWORKS = 8, 8
_LOG_FROM = 8.0
_LETTERS = 18
"""Of a line of what an axis is."""


@dataclass(frozen=True)
class Side:
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
    metrics = known([LATENCY, ENERGY, AREA], rows)
    own: dict[str, list[Record]] = {}
    for row in rows:
        own.setdefault(workload(row, every), []).append(row)
    networks = list(own)[:_MOST_NETWORKS]
    across = [_of_axis(axis) for axis in every[:_MOST_FIELDS]]
    across += [_of_metric(each, rows) for each in metrics[:-1]]
    along = [_of_metric(each, rows) for each in metrics]
    count = (max(1, len(along)), max(1, len(across)))
    size = (max(6.4, 1.2 + 1.75 * count[1]), 1.3 + 1.75 * count[0])
    figure = Figure(figsize=size, layout="constrained")
    title(figure, "What came out over what was swept")
    grid = figure.subplots(*count, squeeze=False, sharex="col", sharey="row")
    for y, side in enumerate(along):
        for x, other in enumerate(across):
            # Of two figures one panel is enough.
            if x - len(every[:_MOST_FIELDS]) >= y:
                grid[y, x].set_axis_off()
                continue
            _draw(grid[y, x], other, side, [own[name] for name in networks])
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


def _draw(panel: Axes, across: Side, along: Side, own: Sequence[Sequence[Record]]) -> None:
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


def _of_axis(axis: Axis) -> Side:
    """Values at equal distances, whatever the steps between them."""
    places = {value: float(place) for place, value in enumerate(axis.values)}

    def of(row: Record) -> float:
        value = axis.value(row)
        return math.nan if value is None else places[value]

    step = math.ceil(len(places) / 6)
    ticks = [(place, axis.shown(value)) for value, place in list(places.items())[::step]]
    return Side(axis.label, of, ticks)


def _of_metric(metric: Metric, rows: Sequence[Record]) -> Side:
    values = [value for row in rows if (value := metric.of(row)) > 0] or [1.0]
    return Side(metric.title, metric.of, log=max(values) / min(values) > _LOG_FROM)
