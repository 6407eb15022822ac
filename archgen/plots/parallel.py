"""Several swept fields at once: every point as a line across all of them and what came out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from archgen.outcomes.axes import Axis, Value, axes, workload
from archgen.outcomes.frame import Frame, Record, records
from archgen.plots.metrics import AREA, ENERGY, LATENCY, Metric, known
from archgen.plots.panels import TITLE_LETTERS
from archgen.plots.style import GREY, INK, PAPER, SETTINGS, colour_bar, folded, say, title
from simmodel.arch import Arch

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
        _draw(figure, panel, own[name], shown)
    return figure


def _draw(figure: Figure, panel: Axes, rows: Sequence[Record], shown: Sequence[Axis]) -> None:
    metrics = known([LATENCY, ENERGY, AREA], rows)
    scales = [
        *(_of_axis(axis, rows) for axis in shown),
        *(_of_metric(each, rows) for each in metrics),
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


def _of_axis(axis: Axis, rows: Sequence[Record]) -> Scale:
    """Values at equal distances, whatever the steps between them."""
    last = max(1, len(axis.values) - 1)
    heights: dict[Value | None, float] = {v: n / last for n, v in enumerate(axis.values)}
    step = math.ceil(len(axis.values) / _MOST_TICKS)
    ticks = [(heights[value], _tick(axis, value)) for value in axis.values[::step]]
    return Scale(axis.title, [heights.get(axis.value(row), math.nan) for row in rows], ticks)


def _tick(axis: Axis, value: Value) -> str:
    return axis.shown(value) if isinstance(value, str) else f"{axis.number(value):.4g}"


def _of_metric(metric: Metric, rows: Sequence[Record]) -> Scale:
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
