"""Two swept fields: figures of the points as a map over both, with contours."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from archgen.outcomes.axes import Axis, Value, axes
from archgen.outcomes.frame import Frame, records
from archgen.outcomes.slices import Slice, slices
from archgen.plots.bars import shown
from archgen.plots.metrics import ENERGY, LATENCY, Metric, known
from archgen.plots.panels import TITLE_LETTERS, square_figure
from archgen.plots.style import DARK, LIGHT, MUTED, SETTINGS, colour_bar
from simmodel.arch import Arch

_MOST_MAPS, _MOST_NETWORKS = 3, 4
_FULL = 0.6
"""Share of a map's places that have a point, at least."""
_NUMBERED, _CONTOURED = 64, 3
"""Most cells that are numbered; least values on each axis of a map with contours."""
_COLOURS = "cividis_r"
"""Of even lightness, so that a print in grey says the same; dark is much."""


@rc_context(SETTINGS)
def map_figure(frame: Frame, archs: Mapping[str, Arch], columns: tuple[str, str]) -> Figure:
    """Latency and energy over two swept columns: a cell for each pair of values, with contours.

    A row of panels for each network, all other axes at the values that most points have. Cells
    are of one size, whatever the steps between values; a number stands in each where there are at
    most 64. Contours are at equal factors, or steps where values are close. What does not fit is
    said in its cell, an empty cell was not asked for. Raises KeyError for columns that are no such
    axes.
    """
    every = axes(frame, archs)
    by_column = {axis.column: axis for axis in every if axis.ordered}
    across, along = (by_column[name] for name in columns)
    rows = records(frame)
    maps = _first_of_each(slices(rows, every, [across, along]))
    metrics = known([LATENCY, ENERGY], rows)
    title = f"{along.label} against {across.label}"
    figure, grid = square_figure(
        max(1, len(maps) * len(metrics)), title, share=False, columns=max(1, len(metrics))
    )
    figure.set_size_inches(max(6.4, 4.2 * len(metrics)), 0.9 + 3.2 * max(1, len(maps)))
    pairs = [(one, metric) for one in maps for metric in metrics]
    for panel, (one, metric) in zip(grid, pairs, strict=False):
        _draw(figure, panel, one, metric, (across, along))
    return figure


def map_columns(frame: Frame, archs: Mapping[str, Arch]) -> list[tuple[str, str]]:
    """Pairs of columns that `map_figure` has a map of, those with most points first."""
    every, rows = axes(frame, archs), records(frame)
    found: list[tuple[int, tuple[str, str]]] = []
    for pair in combinations([axis for axis in every if axis.ordered], 2):
        whole = [one for one in slices(rows, every, pair) if _whole(one, pair)]
        if whole:
            found.append((len(whole[0].rows), (pair[0].column, pair[1].column)))
    return [columns for _, columns in sorted(found, key=lambda each: -each[0])[:_MOST_MAPS]]


def _whole(one: Slice, pair: Sequence[Axis]) -> bool:
    """Whether there is a map to draw: few enough holes, and more than a line."""
    sizes = [len({axis.value(row) for row in one.rows}) for axis in pair]
    return min(sizes) > 1 and max(sizes) > 2 and len(one.rows) >= _FULL * sizes[0] * sizes[1]


def _first_of_each(found: Sequence[Slice]) -> list[Slice]:
    """The largest slice of each network."""
    made: dict[str, Slice] = {}
    for one in found:
        made.setdefault(one.network, one)
    return list(made.values())[:_MOST_NETWORKS]


def _tick(axis: Axis, value: Value | None) -> str:
    return "" if value is None else f"{axis.number(value):.6g}"


def _held(axis: Axis, one: Slice) -> list[Value | None]:
    """The values of an axis that a slice has, in order."""
    found = {axis.value(row) for row in one.rows}
    return [value for value in axis.values if value in found]


def _draw(figure: Figure, panel: Axes, one: Slice, metric: Metric, pair: tuple[Axis, Axis]) -> None:
    across, along = pair
    held = [_held(axis, one) for axis in pair]
    values = np.full((len(held[1]), len(held[0])), np.nan)
    refused: list[tuple[int, int]] = []
    for row in one.rows:
        x, y = held[0].index(across.value(row)), held[1].index(along.value(row))
        values[y, x] = metric.of(row)
        if row["status"] != "ok":
            refused.append((x, y))
    words = [metric.title, ", ".join(filter(None, [one.network, one.label]))]
    panel.set_title("\n".join([words[0], *textwrap.wrap(words[1], TITLE_LETTERS)]), fontsize=9)
    for axis, own, side in zip(pair, held, (panel.xaxis, panel.yaxis), strict=True):
        side.set_ticks(range(len(own)), [_tick(axis, value) for value in own])
        side.set_label_text(axis.title)
    panel.grid(visible=False)
    _shade(figure, panel, values, metric)
    for x, y in refused:
        panel.text(x, y, "does\nnot fit", ha="center", va="center", fontsize=6.5, color=MUTED)


def _shade(figure: Figure, panel: Axes, values: NDArray[np.float64], metric: Metric) -> None:
    real = values[np.isfinite(values)]
    if not real.size:
        return
    low, high = float(real.min()), float(real.max())
    norm = LogNorm(low, high) if 0 < 3 * low < high else Normalize(low, high)
    drawn = panel.imshow(values, cmap=_COLOURS, norm=norm, aspect="auto", origin="lower")
    levels = _levels(low, high)
    if min(values.shape) >= _CONTOURED and np.isfinite(values).all() and levels:
        lines = panel.contour(values, levels=levels, colors=LIGHT, linewidths=0.9)
        if values.size > _NUMBERED:
            panel.clabel(lines, fmt=lambda value: shown(value), fontsize=7)
    if values.size <= _NUMBERED:
        _number(panel, values, drawn)
    colour_bar(figure, drawn, panel)


def _levels(low: float, high: float) -> list[float]:
    """Some values between, at equal factors where they are far apart."""
    if not low < high:
        return []
    if 0 < 3 * low < high:
        return [float(value) for value in np.geomspace(low, high, 7)[1:-1]]
    return [float(value) for value in np.linspace(low, high, 7)[1:-1]]


def _number(panel: Axes, values: NDArray[np.float64], drawn: ScalarMappable) -> None:
    shades = drawn.to_rgba(values)
    for (y, x), value in np.ndenumerate(values):
        if not math.isnan(value):
            red, green, blue, _ = shades[y, x]
            dark = 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
            panel.text(
                x, y, shown(value), ha="center", va="center", fontsize=7.5,
                color=DARK if dark else LIGHT,
            )  # fmt: skip
