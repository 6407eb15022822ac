"""Two swept fields: figures of the points as a map over both.

The one idea: shades may not say more than the figures do. They span a quarter at least, so that
points which are all within 2 % look alike, and the title says how far apart the points are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from archgen.outcomes.axes import Slice, StudyAxis, Value, axes, slices
from archgen.outcomes.estimated import has_figures, run_of
from archgen.outcomes.frame import Frame, records
from archgen.plots.bars import shown
from archgen.plots.panels import refusal, square_figure
from archgen.plots.style import (
    DARK,
    ENERGY,
    LATENCY,
    LIGHT,
    MUTED,
    SETTINGS,
    Metric,
    available_metrics,
    colour_bar,
    folded,
)
from simmodel.arch.record import Arch

_MOST_MAPS, _MOST_NETWORKS = 3, 4
_FULL = 0.6
"""Share of a map's places that have a point, at least."""
_NUMBERED, _ABREAST = 64, 16
"""Most cells that are numbered, and most of them in a row."""
_SPAN = 1.25
"""Ratio that shades span at least."""
_CELL = (0.4, 0.29)
"""Inches of a numbered cell, at least."""
_RUN = 0.16
"""Inches of a second number in a cell."""
_FAR = 2.0
"""Ratio from which on it is told as a factor."""
_TITLE_LETTERS, _MOST_TICKS = 44, 16
_MOST_LETTERS = 48
"""Of all numbers below a map, with a space behind each."""
_COLOURS = "cividis_r"
"""Of even lightness, so that a print in grey says the same; dark is much."""


@rc_context(SETTINGS)
def map_figure(frame: Frame, archs: Mapping[str, Arch], columns: tuple[str, str]) -> Figure:
    """Latency and energy over two swept columns: a cell for each pair of values.

    A row of panels for each network, all other axes at the values that most points have. Cells
    are of one size, whatever the steps between values; a number stands in each where there are at
    most 64. What does not fit is said in its cell, an empty cell was not asked for. What a run gave
    stands below what was estimated. Raises KeyError for columns that are no such axes.
    """
    every = axes(frame, archs)
    by_column = {axis.column: axis for axis in every if axis.ordered}
    across, along = (by_column[name] for name in columns)
    rows = records(frame)
    found = slices(rows, every, [across, along])
    maps = _first_of_each([one for one in found if _is_drawable_map(one, (across, along))] or found)
    metrics = available_metrics([LATENCY, ENERGY], rows)
    title = f"{along.label} against {across.label}"
    figure, grid = square_figure(
        max(1, len(maps) * len(metrics)), title, share=False, columns=max(1, len(metrics))
    )
    sizes = [[len(_axis_values(axis, one)) for axis in (across, along)] for one in maps] or [[1, 1]]
    numbered = [size for size in sizes if _is_numbered(*size)]
    cells = [max((size[n] for size in numbered), default=1) for n in (0, 1)]
    width = max(4.2, 1.6 + _CELL[0] * cells[0]) * len(metrics)
    two = any(run_of(row) for one in maps for row in one.rows)
    height = max(3.2, 1.2 + (_CELL[1] + _RUN * two) * cells[1]) * max(1, len(maps))
    figure.set_size_inches(max(6.4, width), 0.9 + height)
    pairs = [(one, metric) for one in maps for metric in metrics]
    for panel, (one, metric) in zip(grid, pairs, strict=False):
        _draw_map(figure, panel, one, metric, (across, along))
    return figure


def map_columns(frame: Frame, archs: Mapping[str, Arch]) -> list[tuple[str, str]]:
    """Pairs of columns that `map_figure` has a map of, those with most points first."""
    every, rows = axes(frame, archs), records(frame)
    found: list[tuple[int, tuple[str, str]]] = []
    for pair in combinations([axis for axis in every if axis.ordered], 2):
        whole = [one for one in slices(rows, every, pair) if _is_drawable_map(one, pair)]
        if whole:
            found.append((len(whole[0].rows), (pair[0].column, pair[1].column)))
    return [columns for _, columns in sorted(found, key=lambda each: -each[0])[:_MOST_MAPS]]


def _is_drawable_map(one: Slice, pair: Sequence[StudyAxis]) -> bool:
    """Whether there is a map to draw: few enough holes, and more than a line."""
    sizes = [len({axis.value(row) for row in one.rows}) for axis in pair]
    return min(sizes) > 1 and max(sizes) > 2 and len(one.rows) >= _FULL * sizes[0] * sizes[1]


def _first_of_each(found: Sequence[Slice]) -> list[Slice]:
    """The largest slice of each network."""
    made: dict[str, Slice] = {}
    for one in found:
        made.setdefault(one.network, one)
    return list(made.values())[:_MOST_NETWORKS]


def _tick(axis: StudyAxis, value: Value | None) -> str:
    return "" if value is None else f"{axis.number(value):.6g}"


def _axis_values(axis: StudyAxis, one: Slice) -> list[Value | None]:
    """The values of an axis that a slice has, in order."""
    found = {axis.value(row) for row in one.rows}
    return [value for value in axis.values if value in found]


def _draw_map(
    figure: Figure, panel: Axes, one: Slice, metric: Metric, pair: tuple[StudyAxis, StudyAxis]
) -> None:
    across, along = pair
    held = [_axis_values(axis, one) for axis in pair]
    values = np.full((len(held[1]), len(held[0])), np.nan)
    refused: dict[tuple[int, int], str] = {}
    runs: dict[tuple[int, int], float] = {}
    for row in one.rows:
        x, y = held[0].index(across.value(row)), held[1].index(along.value(row))
        values[y, x] = metric.of(row)
        if not has_figures(row):
            refused[x, y] = refusal(row)
        run = run_of(row)
        if run is not None and metric.changes(row, run):
            runs[x, y] = metric.of(run)
    numbered = _is_numbered(*map(len, held))
    words = [metric.title, _value_spread(values), ", ".join(filter(None, [one.network, one.label]))]
    if refused and not numbered:
        words.append(f"x: {', '.join(dict.fromkeys(refused.values()))}")
    lines = [folded(each, _TITLE_LETTERS) for each in words if each]
    panel.set_title("\n".join(lines), fontsize=9)
    for axis, own, side in zip(pair, held, (panel.xaxis, panel.yaxis), strict=True):
        words = [_tick(axis, value) for value in own]
        room = _MOST_LETTERS // (1 + max(map(len, words))) if side is panel.xaxis else _MOST_TICKS
        step = math.ceil(len(own) / max(1, min(room, _MOST_TICKS)))
        side.set_ticks(range(0, len(own), step), words[::step])
        side.set_label_text(axis.title)
    panel.grid(visible=False)
    shades = _shade(figure, panel, values, numbered)
    for place, value in runs.items():
        _write_run(panel, place, f"run {shown(value)}" if numbered else "*", shades)
    for (x, y), why in refused.items():
        text = folded(why, 11) if numbered else "x"
        panel.text(x, y, text, ha="center", va="center", fontsize=6.5, color=MUTED)


def _write_run(panel: Axes, place: tuple[int, int], text: str, shades: NDArray[np.float64]) -> None:
    """What a run gave, in the lower half of its cell."""
    x, y = place
    panel.annotate(
        text, place, (0, -8), textcoords="offset points", ha="center", va="center", fontsize=6,
        color=_readable(shades[y, x]),
    )  # fmt: skip


def _is_numbered(columns: int, rows: int) -> bool:
    return columns * rows <= _NUMBERED and columns <= _ABREAST


def _value_spread(values: NDArray[np.float64]) -> str:
    """`1.02 to 1.04, 2 % apart`."""
    real = values[np.isfinite(values)]
    if not real.size:
        return ""
    low, high = float(real.min()), float(real.max())
    if not 0 < low < high:
        return f"{shown(low)} everywhere" if low == high else ""
    ratio, digits = high / low, _digits(low, high)
    apart = f"{ratio:.3g} times" if ratio >= _FAR else f"{100 * (ratio - 1):.2g} %"
    return f"{_exact(low, digits)} to {_exact(high, digits)}, {apart} apart"


def _digits(low: float, high: float) -> int:
    """As many as tell the ends apart, three to five."""
    apart = (high - low) / high if high > 0 else 0.0
    return 3 if apart > 0.02 or not apart else min(5, 1 + math.ceil(-math.log10(apart)))


def _exact(value: float, digits: int) -> str:
    """With all of its digits, zeros too, so that neighbours compare."""
    whole = abs(value) >= 10 ** (digits - 1)
    return f"{value:,.0f}" if whole else f"{value:#.{digits}g}"


def _shade(
    figure: Figure, panel: Axes, values: NDArray[np.float64], numbered: bool
) -> NDArray[np.float64]:
    """Draw the cells; gives the colour of each."""
    real = values[np.isfinite(values)]
    if not real.size:
        panel.set_xlim(-0.5, values.shape[1] - 0.5)
        panel.set_ylim(-0.5, values.shape[0] - 0.5)
        return np.ones((*values.shape, 4))
    low, high = float(real.min()), float(real.max())
    top = max(high, _SPAN * low)
    norm = LogNorm(low, top) if 0 < 3 * low < top else Normalize(low, top)
    drawn = panel.imshow(values, cmap=_COLOURS, norm=norm, aspect="auto", origin="lower")
    shades: NDArray[np.float64] = drawn.to_rgba(values)
    if numbered:
        _write_cell_values(panel, values, shades, _digits(low, high))
    colour_bar(figure, drawn, panel)
    return shades


def _write_cell_values(
    panel: Axes, values: NDArray[np.float64], shades: NDArray[np.float64], digits: int
) -> None:
    for (y, x), value in np.ndenumerate(values):
        if not math.isnan(value):
            panel.text(
                x, y, _exact(value, digits), ha="center", va="center", fontsize=7.5,
                color=_readable(shades[y, x]),
            )  # fmt: skip


def _readable(shade: NDArray[np.float64]) -> str:
    red, green, blue, _ = shade
    return DARK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else LIGHT
