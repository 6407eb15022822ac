"""Swept fields: figures of the points as lines over one, and as a map over two."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

import archgen.plots.style as style
from archgen.outcomes.axes import Slice, StudyAxis, axes, axis_setting_text, slices
from archgen.outcomes.bottleneck import activation_memory, working_set_in
from archgen.outcomes.estimated import has_figures, run_figures
from archgen.outcomes.figures import DRAM, figure_of, is_of_machine, more_is_better
from archgen.outcomes.frame import Frame, Record, number, records
from archgen.outcomes.fronts import CLOSE, knee
from archgen.outcomes.points import FIELD
from archgen.plots.findings import titled
from archgen.plots.panels import refusal, square_figure
from archgen.plots.style import legend, logarithmic, number_text, readable_on, wrapped
from simmodel.arch.record import Arch

_MOST_LINES, _MOST_TICKS, _TITLE_LETTERS = 8, 9, 35
_LOG_FROM = 8.0
_GAP: Any = {"ls": (0, (2, 3)), "lw": 0.9}
_NEED: Any = {"ls": ":", "lw": 1.2}
_KNEE: Any = {"ls": "", "marker": "o", "ms": 11, "mfc": "none", "mew": 1.4}
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Metric:
    """One figure of a point."""

    figure: str
    name: str
    unit: str
    factor: float = 1
    """To `unit` from that of the figure."""

    @property
    def title(self) -> str:
        """`latency [ms]`."""
        return f"{self.name} [{self.unit}]"

    @property
    def buys(self) -> bool:
        """Whether a larger machine is there to better it; area is what it is paid with."""
        return not is_of_machine(self.figure) and not self.figure.startswith("peak_")

    def of(self, row: Record) -> float:
        """Its value in `unit`, NaN where it is missing."""
        return self.factor * figure_of(row, self.figure)


LATENCY = Metric("latency_ms", "latency", "ms")
ENERGY = Metric("energy_mj", "energy", "mJ")
METRICS = (
    LATENCY,
    Metric("throughput_ips", "throughput", "samples/s"),
    ENERGY,
    Metric("area_mm2", "area", "mm²"),
    Metric("throughput_per_mm2", "throughput per area", "samples/s/mm²"),
    Metric(DRAM, "DRAM traffic", "MB", 1e-6),
    Metric("matrix_utilization", "matrix use", "%", 100),
)
"""Of every sweep, as far as the study knows them."""


def _available(metrics: Sequence[Metric], rows: Sequence[Record]) -> list[Metric]:
    """Those that some row has a value of."""
    return [each for each in metrics if any(not math.isnan(each.of(row)) for row in rows)]


def _run_values(row: Record, metric: Metric) -> list[float]:
    """What a run gave of a metric beside another value that was estimated."""
    own = run_figures(row)
    values = [] if own is None else [metric.of(own)]
    return [value for value in values if value != metric.of(row) and not math.isnan(value)]


@rc_context(style.SETTINGS)
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
    choices = slices(records(frame), every, [axis])
    lines = _lines(choices)
    rows = [row for line in lines for row in line.slice.rows]
    metrics = _available([*METRICS, *_memory_peak_metric(axis, rows)], rows)
    settings = {line.slice.label for line in lines}
    common = f" at {settings.pop()}" if len(settings) == 1 and any(settings) else ""
    figure, grid = square_figure(
        max(1, len(metrics)), f"{_finding(axis, lines)}{common}", share=False,
        columns=3 if len(metrics) < 7 else 4,
    )  # fmt: skip
    signs: set[str] = set()
    for panel, metric in zip(grid, metrics, strict=False):
        panel.set(title=wrapped(metric.title, _TITLE_LETTERS), xlabel=axis.title)
        _swept_side(panel, axis)
        for line in lines:
            signs |= _draw_line(panel, axis, metric, line)
            need = _working_set_place(axis, line.slice, archs) if metric.buys else None
            if need is not None:
                signs.add("need")
                panel.axvline(need, color=line.colour, zorder=1.2, **_NEED)
        values = [v for row in rows for v in (metric.of(row), *_run_values(row, metric))]
        values = [value for value in values if not math.isnan(value)]
        if min(values) > 0 and max(values) / min(values) > _LOG_FROM:
            logarithmic(panel, "y")
        elif min(values) >= 0:
            panel.set_ylim(0, 1.1 * max(values) or 1.0)
    legend(figure, _line_keys(axis, lines, len(choices) - len(lines), signs), most=4)
    return figure


def _finding(axis: StudyAxis, lines: Sequence[SliceLine]) -> str:
    """What the sweep found: `local.size 64 KiB to 512 KiB: 50 % less time`, of several lines the
    least and the most."""
    changes, ends = [], (axis.values[0], axis.values[-1])
    for line in lines:
        known = [row for row in line.slice.rows if LATENCY.of(row) > 0]
        if len(known) > 1:
            changes.append(LATENCY.of(known[-1]) / LATENCY.of(known[0]) - 1)
    named = f"{axis.label} {axis.shown(ends[0])} to {axis.shown(ends[1])}"
    if not changes:
        return named
    low, high = min(changes), max(changes)
    if max(abs(low), abs(high)) < _NOTHING:
        return f"{named}: no change of time"
    best = {axis.value(min(line.slice.rows, key=_time)) for line in lines}
    value = best.pop() if len(best) == 1 else None
    at = "" if value is None or value in ends else f", the least with {axis.shown(value)}"
    if high <= 0 or low >= 0:
        ends_of = sorted({round(100 * abs(change)) for change in (low, high)})
        amount, how = " to ".join(map(str, ends_of)), "less" if high <= 0 else "more"
        return f"{named}: {amount} % {how} time{at}"
    return f"{named}: {100 * -low:.0f} % less to {100 * high:.0f} % more time{at}"


def _time(row: Record) -> float:
    """Latency, of a point that has none without end; what is nothing apart is equal."""
    time = LATENCY.of(row)
    return round(math.log(time) / _NOTHING) if time > 0 else math.inf


_NOTHING = 0.01
"""Share of the time below which a change is none."""


def sweep_columns(frame: Frame, archs: Mapping[str, Arch]) -> list[str]:
    """Columns that `sweep_figure` has a line of three points and more for."""
    every = axes(frame, archs)
    rows = [row for row in records(frame) if has_figures(row)]
    return [
        axis.column
        for axis in every
        if axis.ordered and any(len(each.rows) > 2 for each in slices(rows, every, [axis]))
    ]


@dataclass(frozen=True)
class SliceLine:
    """A slice and how it is drawn."""

    slice: Slice
    label: str
    colour: str
    marker: str


def _lines(choices: Sequence[Slice]) -> list[SliceLine]:
    """Of several networks the slice of each with most points, else the first slices of the one."""
    largest: dict[str, Slice] = {}
    for each in choices:
        largest.setdefault(each.network, each)
    if len(largest) > 1:
        labelled = [(each, each.network) for each in largest.values()]
    else:
        ranked = sorted(
            choices[:_MOST_LINES], key=lambda one: [axis.values.index(v) for axis, v in one.fixed]
        )
        labelled = [(each, each.label or each.network) for each in ranked]
    looks = zip(labelled[:_MOST_LINES], style.CYCLE, style.MARKERS, strict=False)
    return [SliceLine(one, label, colour, marker) for (one, label), colour, marker in looks]


def _memory_peak_metric(axis: StudyAxis, rows: Sequence[Record]) -> list[Metric]:
    """The most that is alive at once in a memory whose size is swept."""
    match = re.fullmatch(r"arch\.memories\.(\w+)\.size", axis.column)
    name = f"peak_{match[1]}_bytes" if match else ""
    if match is None or not any(name in row for row in rows):
        return []
    return [Metric(name, f"{match[1]} memory alive at once", "KiB", 1 / 1024)]


def _working_set_place(axis: StudyAxis, one: Slice, archs: Mapping[str, Arch]) -> float | None:
    """Where between the ends of an axis each memory just holds its part of the working set."""
    for row in one.rows:
        arch = archs[str(row["arch"])]
        if axis.column == f"{FIELD}memories.{activation_memory(arch)}.size":
            part = axis.number(working_set_in(number(row, "working_set_bytes"), arch))
            if axis.number(axis.values[0]) <= part <= axis.number(axis.values[-1]):
                return part
    return None


def _draw_line(panel: Axes, axis: StudyAxis, metric: Metric, line: SliceLine) -> set[str]:
    """Draw a line, solid where neighbours were run; gives what of the legend is in it: `knee`,
    `gap`, `run`."""
    signs: set[str] = set()
    pieces = _pieces(axis, line.slice, metric)
    mark: Any = {"marker": line.marker, "ms": 4.5, "mec": "white", "mew": 0.5}
    for piece in pieces:
        panel.plot(*zip(*piece, strict=True), "-", lw=1.4, color=line.colour, **mark)
    for before, after in pairwise(pieces):
        signs.add("gap")
        panel.plot(*zip(before[-1], after[0], strict=True), color=line.colour, zorder=1.5, **_GAP)
    for row in line.slice.rows:
        at = axis.number(axis.value(row) or 0)
        if math.isnan(metric.of(row)):
            bottom = panel.get_xaxis_transform()
            panel.plot(at, 0.02, "x", color=line.colour, ms=5, transform=bottom)
        for value in _run_values(row, metric):
            signs.add("run")
            panel.plot(at, value, **style.RUN, color=line.colour)
    if (place := _knee(axis, metric, line.slice, pieces)) is not None:
        signs.add("knee")
        panel.plot(*place, mec=line.colour, **_KNEE)
    return signs


def _knee(
    axis: StudyAxis, metric: Metric, one: Slice, pieces: Sequence[Points]
) -> tuple[float, float] | None:
    """The point of a line from which on the axis gives no more; None where that is not known."""
    most = axis.values[0 if axis.less_is_more else -1]
    reaches_end = any(axis.value(row) == most for row in one.rows)
    if len(pieces) != 1 or not metric.buys or axis.is_need or not reaches_end:
        return None
    points = pieces[0][::-1] if axis.less_is_more else pieces[0]
    index = knee([y for _, y in points], more_is_better(metric.figure))
    return None if index is None else points[index]


def _pieces(axis: StudyAxis, one: Slice, metric: Metric) -> list[Points]:
    """The points of a slice, divided wherever a value of the axis was not run or has no figure."""
    pieces: list[Points] = []
    last = -math.inf
    for row in one.rows:
        value, y = axis.value(row), metric.of(row)
        if value is None or math.isnan(y):
            continue
        place = axis.values.index(value)
        if place != last + 1:
            pieces.append([])
        last = place
        pieces[-1].append((axis.number(value), y))
    return pieces


def _swept_side(panel: Axes, axis: StudyAxis) -> None:
    """The scale of an axis, with ticks at its values."""
    numbers = [axis.number(value) for value in axis.values]
    panel.set_xscale("log" if axis.scale == "log" else "linear")
    ticks = numbers[:: math.ceil(len(numbers) / _MOST_TICKS)]
    texts = list(map(_tick_text, ticks))
    panel.set_xticks(ticks, texts)
    panel.xaxis.set_minor_locator(NullLocator())
    if max(map(len, texts)) * len(ticks) > 24:
        panel.tick_params(axis="x", rotation=45)


def _line_keys(
    axis: StudyAxis, lines: Sequence[SliceLine], left: int, signs: set[str]
) -> list[Line2D]:
    keys = [
        Line2D([], [], color=line.colour, marker=line.marker, ms=5, label=line.label)
        for line in lines
    ]
    beyond = "shorter" if axis.less_is_more else "larger"
    meanings: list[tuple[str, Any, str]] = [
        ("gap", _GAP, "nothing run between"),
        ("need", _NEED, "the working set fits from here on"),
        ("knee", _KNEE, f"knee: nothing {beyond} is better by more than {100 * CLOSE:g} %"),
        ("run", style.RUN, "run in full"),
        ("left", {"ls": ""}, f"{left} more lines not drawn"),
    ]
    for sign, look, text in meanings:
        if sign in signs or (sign == "left" and left > 0):
            edge: Any = {"mec": style.INK} if sign == "knee" else {}
            keys.append(Line2D([], [], color=style.MUTED, label=text, **look, **edge))
    return keys


# Two swept fields: a cell for each pair of values. Shades span a quarter at least, so that points
# which are all within 2 % look alike.

_MOST_MAPS, _MOST_NETWORKS = 3, 4
_FULL = 0.6
"""Share of a map's places that have a point, at least."""
_NUMBERED = 64
"""Most cells that are numbered."""
_SPAN = 1.25
"""Ratio that shades span at least."""
_COLOURS = "cividis_r"
"""Of even lightness, so that a print in grey says the same; dark is much."""


@rc_context(style.SETTINGS)
def map_figure(frame: Frame, archs: Mapping[str, Arch], columns: tuple[str, str]) -> Figure:
    """Latency and energy over two swept columns: a cell for each pair of values.

    A row of panels for each network, all other axes at the values that most points have, of as
    many at those of the quickest point. Cells are of one size, whatever the steps between values; a
    number stands in each where there are at most 64. What does not fit is said in its cell, an
    empty cell was not asked for. What a run gave stands below what was estimated. Raises KeyError
    for columns that are no such axes.
    """
    every = axes(frame, archs)
    by_column = {axis.column: axis for axis in every if axis.ordered}
    pair = by_column[columns[0]], by_column[columns[1]]
    rows, maps = records(frame), dict[str, Slice]()
    for one in sorted(slices(rows, every, pair), key=lambda one: not _is_map(one, pair)):
        maps.setdefault(one.network, one)
    metrics = _available([LATENCY, ENERGY], rows)
    panels = [(one, metric) for one in [*maps.values()][:_MOST_NETWORKS] for metric in metrics]
    text = titled(f"{pair[1].label} against {pair[0].label}", _map_finding(maps, pair))
    longest = max(len(axis.values) for axis in pair)
    figure, grid = square_figure(
        max(1, len(panels)), text, share=False, columns=max(1, len(metrics)),
        width=1.6 + 0.45 * min(16, max(6, longest)),
    )  # fmt: skip
    for panel, (one, metric) in zip(grid, panels, strict=False):
        _draw_map(figure, panel, one, metric, pair)
    return figure


def _tick_text(value: float) -> str:
    """Five digits, and all of a larger whole number: `12288` KiB, never `1.229e+04`."""
    return f"{value:.0f}" if value >= 1e5 else f"{value:.5g}"


def _map_finding(maps: Mapping[str, Slice], pair: tuple[StudyAxis, StudyAxis]) -> str:
    """`quickest at cores 2, bandwidth 40 GB/s`; of several networks how far their cells are apart:
    `latency 1.2 to 8.5 times apart`."""
    every = [[row for row in one.rows if LATENCY.of(row) > 0] for one in maps.values()]
    if len(every) == 1 and every[0]:
        best = min(every[0], key=LATENCY.of)
        known = [(axis, value) for axis in pair if (value := axis.value(best)) is not None]
        return f"quickest at {', '.join(axis_setting_text(*each) for each in known)}"
    spans = [max(times) / min(times) for rows in every if (times := [*map(LATENCY.of, rows)])]
    ends = dict.fromkeys(f"{end:.3g}" for end in (min(spans), max(spans))) if spans else ()
    return f"latency {' to '.join(ends)} times apart" if ends else ""


def map_columns(frame: Frame, archs: Mapping[str, Arch]) -> list[tuple[str, str]]:
    """Pairs of columns that `map_figure` has a map of, those with most points first."""
    every, rows = axes(frame, archs), records(frame)
    sizes: dict[tuple[str, str], int] = {}
    for pair in combinations([axis for axis in every if axis.ordered], 2):
        counts = [len(one.rows) for one in slices(rows, every, pair) if _is_map(one, pair)]
        if counts:
            sizes[pair[0].column, pair[1].column] = counts[0]
    return sorted(sizes, key=lambda columns: -sizes[columns])[:_MOST_MAPS]


def _is_map(one: Slice, pair: Sequence[StudyAxis]) -> bool:
    """Whether there is a map to draw: few enough holes, and more than a line."""
    across, along = (len(_values(axis, one)) for axis in pair)
    return min(across, along) > 1 and across * along > 4 and len(one.rows) >= _FULL * across * along


def _values(axis: StudyAxis, one: Slice) -> list[Any]:
    own = {axis.value(row) for row in one.rows}
    return [value for value in axis.values if value in own]


def _draw_map(
    figure: Figure, panel: Axes, one: Slice, metric: Metric, pair: tuple[StudyAxis, StudyAxis]
) -> None:
    xs, ys = (_values(axis, one) for axis in pair)
    cells = np.full((len(ys), len(xs)), np.nan)
    words: dict[tuple[int, int], str] = {}
    for row in one.rows:
        x, y = xs.index(pair[0].value(row)), ys.index(pair[1].value(row))
        cells[y, x] = metric.of(row)
        lines = [
            number_text(cells[y, x]),
            *(f"run {number_text(run)}" for run in _run_values(row, metric)),
        ]
        words[x, y] = "\n".join(lines) if has_figures(row) else refusal(row).replace(" ", "\n")
    empty = "grey: no result" if np.isnan(cells).any() else ""
    about = ", ".join(filter(None, [one.network, one.label]))
    names = [metric.title, _range_text(cells), empty, about]
    panel.set_title("\n".join(wrapped(name, 44) for name in names if name), fontsize=9)
    for axis, values, side in zip(pair, (xs, ys), (panel.xaxis, panel.yaxis), strict=True):
        step = math.ceil(len(values) / 16)
        texts = [_tick_text(axis.number(value)) for value in values[::step]]
        side.set_ticks(range(0, len(values), step), texts)
        side.set_label_text(axis.title)
        if side is panel.xaxis and max(map(len, texts)) * len(texts) > 40:
            panel.tick_params(axis="x", rotation=45)
    panel.grid(visible=False)
    panel.set(xlim=(-0.5, len(xs) - 0.5), ylim=(-0.5, len(ys) - 0.5))
    _shade(figure, panel, cells, words if cells.size <= _NUMBERED else {})


def _shade(
    figure: Figure, panel: Axes, cells: np.ndarray[Any, Any], words: Mapping[tuple[int, int], str]
) -> None:
    """Draw the cells, the words in each, and what shades mean."""
    colours = np.ones((*cells.shape, 4))
    panel.set_facecolor(style.PALE)
    if np.isfinite(cells).any():
        low, high = np.nanmin(cells), max(np.nanmax(cells), _SPAN * np.nanmin(cells))
        norm = LogNorm(low, high) if 0 < 3 * low < high else Normalize(low, high)
        image = panel.imshow(cells, cmap=_COLOURS, norm=norm, aspect="auto", origin="lower")
        colours = image.to_rgba(cells)
        bar = figure.colorbar(image, ax=panel, format=lambda value, _: number_text(value), pad=0.02)
        bar.set_ticks((np.geomspace if low > 0 else np.linspace)(low, high, 5).tolist())
        bar.minorticks_off()
    for (x, y), text in words.items():
        colour = style.MUTED if math.isnan(cells[y, x]) else readable_on(colours[y, x])
        panel.text(x, y, text, ha="center", va="center", fontsize=7, color=colour)


def _range_text(cells: np.ndarray[Any, Any]) -> str:
    """`1.02 to 1.04, 2 % apart`."""
    if not np.nanmax(cells, initial=0) > 0:
        return ""
    low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
    if low == high:
        return f"{number_text(low)} everywhere"
    ratio = high / low if low > 0 else math.inf
    apart = f"{ratio:.3g} times" if ratio >= 2 else f"{100 * (ratio - 1):.2g} %"
    return f"{number_text(low)} to {number_text(high)}, {apart} apart"
