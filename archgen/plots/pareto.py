"""Which points are best in one respect without being worse in another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes import fronts
from archgen.outcomes.axes import StudyAxis, workload
from archgen.outcomes.axes import axes as axes_of
from archgen.outcomes.columns import COLUMNS, MORE_IS_BETTER, column
from archgen.outcomes.estimated import has_figures, run_of
from archgen.outcomes.frame import Frame, Record, number, records
from archgen.plots.labels import Wanted, place_labels
from archgen.plots.names import legend_with_names, names_of, on_machines, said_of
from archgen.plots.panels import TITLE_LETTERS, refusal, square_figure
from archgen.plots.style import (
    BLUE,
    GREY,
    RUN,
    SETTINGS,
    decades,
    folded,
    legend_columns,
    say,
)
from simmodel.arch.record import Arch

_UNITS = {
    "ms": "ms", "mm2": "mm²", "mj": "mJ", "ips": "samples/s", "cycles": "cycles", "bytes": "bytes",
}  # fmt: skip
_LOG_FROM = 30.0
_MOST_LABELS = 40
_MOST_NAMES, _LETTERS = 6, 8
"""Points of a front, and letters of the longest of their names, beyond both of which names are
numbers with a key below: those of neighbours would stand off in a fan of lines. So would any names
of twice as many points."""
_MOST_LEFT_OUT, _SAID = 4, 52
"""Points without values that are named, and letters of a line of that."""
_LINE = 0.2
"""Inches of a line of the key."""
Place = tuple[float, float]


@rc_context(SETTINGS)
def pareto_figure(
    frame: Frame,
    x: str = "latency_ms",
    y: str = "area_mm2",
    better: Collection[str] = MORE_IS_BETTER,
    archs: Mapping[str, Arch] = MappingProxyType({}),
) -> Figure:
    """Points of column `y` over column `x`, a panel for each network, and the front among them.

    Less is better, but in the columns of `better` more. Points on the front are named, by what
    was swept where `archs` (machines by name) tells that, else by machine; those that another one
    dominates are grey, and named where there is room. Names of a crowded front are numbers, the
    quickest first, with a key below; then what is dominated has none. Of equal points
    one is named. What runs gave stands beside estimates, as stars. Points without both values are
    named below their panel, with what became of them. Raises KeyError for a column that the frame
    does not have.
    """
    rows = records(frame)
    for name in (x, y):
        if name not in frame:
            raise KeyError(f"no column {name!r} in this frame")
    swept = on_machines(axes_of(frame, archs), rows)
    panels: dict[str, list[Record]] = {}
    for row in rows:
        panels.setdefault(workload(row), []).append(row)
    figure, grid = square_figure(
        len(panels),
        f"{_title_without_unit(y)} against {_title_without_unit(x).lower()}",
        share=False,
    )
    figure.set_size_inches(max(6.4, 4.6 * min(len(panels), 4)), figure.get_figheight() * 1.25)
    for axes, name in zip(grid, panels, strict=True):
        axes.set_title(folded(name, TITLE_LETTERS))
        axes.set_xlabel(_axis_label(x, x in better))
        axes.set_ylabel(_axis_label(y, y in better))
    handles = [
        Line2D([], [], color=BLUE, marker="o", ms=6, lw=1.2, label="Pareto front"),
        Line2D([], [], color=GREY, marker="o", ms=5, ls="", label="dominated"),
    ]
    if any(run_of(row) for row in rows):
        handles.append(Line2D([], [], **RUN, color=BLUE, label="run in full"))
    labels = [
        _draw_pareto_panel(axes, own, (x, y), (x in better, y in better), swept)
        for axes, own in zip(grid, panels.values(), strict=True)
    ]
    if any(_crowded(own) for own in labels):
        labels, key = _numbered(labels)
        handles += [Line2D([], [], ls="", label=f"{n}  {name}") for name, n in key.items()]
        lines = math.ceil(len(handles) / legend_columns(figure, list(key)))
        figure.set_figheight(figure.get_figheight() + _LINE * lines)
    legend_with_names(figure, handles, said_of(swept, rows))
    place_labels(figure, list(zip(grid, labels, strict=True)))
    return figure


def _crowded(labels: Sequence[Wanted]) -> bool:
    names = [text for _, text, rank in labels if rank == "front"]
    longest = max(map(len, names), default=0)
    return len(names) > _MOST_NAMES and (longest > _LETTERS or len(names) > 2 * _MOST_NAMES)


def _numbered(panels: Sequence[Sequence[Wanted]]) -> tuple[list[list[Wanted]], dict[str, int]]:
    """Labels of fronts as numbers, the same for the same name in all panels; and what these are."""
    key: dict[str, int] = {}
    made: list[list[Wanted]] = []
    for labels in panels:
        made.append([])
        for place, text, rank in labels:
            if rank == "front":
                number_of = key.setdefault(" ".join(text.split("\n")), len(key) + 1)
                made[-1].append((place, str(number_of), rank))
    return made, key


def front(points: Sequence[Place], more: tuple[bool, bool] = (False, False)) -> list[int]:
    """Indices of the points that no other dominates, in order of their first coordinate.

    `more`: in which coordinates more is better. Of equal points all are kept.
    """
    signs = [-1.0 if each else 1.0 for each in more]
    costs = [(signs[0] * a, signs[1] * b) for a, b in points]
    return sorted(fronts.front(costs), key=lambda index: points[index])


def _title_without_unit(name: str) -> str:
    """`Latency` for `latency_ms`: a unit at the end is left out."""
    words = name.split("_")
    return " ".join(words[:-1] if words[-1] in _UNITS else words).capitalize()


def _axis_label(name: str, more: bool) -> str:
    """`latency [ms], less is better`."""
    known = column(name, COLUMNS)
    last = name.rsplit("_", 1)[-1]
    unit = known.unit if known else _UNITS.get(last, "")
    unit = _UNITS.get(unit, unit)
    words = _title_without_unit(name).lower() + (f" [{unit}]" if unit else "")
    return f"{words}, {'more' if more else 'less'} is better"


def _draw_pareto_panel(
    axes: Axes,
    rows: list[Record],
    names: tuple[str, str],
    more: tuple[bool, bool],
    swept: Sequence[StudyAxis],
) -> list[Wanted]:
    """Draw one panel; gives the labels that it wants: where, what and in which colour."""
    drawn = [row for row in rows if _is_known(row, names)]
    left_out = _left_out(rows, names, swept)
    if not drawn:
        say(axes, folded(f"no point has a result: {left_out}", _SAID))
        return []
    if left_out:
        axes.set_xlabel(f"{axes.get_xlabel()}\n{folded(f'not shown: {left_out}', _SAID)}")
    points = [(number(row, names[0]), number(row, names[1])) for row in drawn]
    best = front(points, more)
    _scales(axes, points)
    rest = [point for index, point in enumerate(points) if index not in best]
    axes.plot(*_x_and_y(rest), "o", color=GREY, ms=5, mec="white", mew=0.6)
    ordered = [points[index] for index in best]
    axes.plot(*_x_and_y(_staircase(ordered, more)), "-", color=BLUE, lw=1.2)
    axes.plot(*_x_and_y(ordered), "o", color=BLUE, ms=6.5, mec="white", mew=0.6)
    for point, own in ((p, run_of(row)) for p, row in zip(points, drawn, strict=True)):
        if own is not None:
            made = number(own, names[0]), number(own, names[1])
            axes.plot(*_x_and_y([point, made]), "-", color=BLUE, lw=0.7)
            axes.plot(*_x_and_y([made]), **RUN, color=BLUE)
    _margins(axes, points)
    labels = names_of(drawn, swept)
    firsts: dict[Place, int] = {}
    for index in best:
        firsts.setdefault(points[index], index)
    for point, count in Counter(ordered).items():
        labels[firsts[point]] += f"\nand {count - 1} equal" if count > 1 else ""
    order = list(firsts.values())
    order = [*order, *(index for index in range(len(drawn)) if index not in best)][:_MOST_LABELS]
    return [
        (points[index], labels[index], "front" if index in best else "other") for index in order
    ]


def _is_known(row: Record, names: tuple[str, str]) -> bool:
    return not any(math.isnan(number(row, name)) for name in names)


def _left_out(rows: Sequence[Record], names: tuple[str, str], swept: Sequence[StudyAxis]) -> str:
    """Points without both values by what became of them: `edge-32, edge-64 (does not fit)`."""
    found: dict[str, list[str]] = {}
    for row, label in zip(rows, names_of(rows, swept), strict=True):
        if not _is_known(row, names):
            why = "no value" if has_figures(row) else refusal(row)
            found.setdefault(why, []).append(" ".join(label.split("\n")))
    return "; ".join(f"{_few(labels)} ({why})" for why, labels in found.items())


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LEFT_OUT} more" if len(names) > _MOST_LEFT_OUT else ""
    return ", ".join(names[:_MOST_LEFT_OUT]) + more


def _staircase(ordered: Sequence[Place], more: tuple[bool, bool]) -> list[Place]:
    """The front as a staircase, whose corners are the worse of both neighbours."""
    worse_x, worse_y = (min if each else max for each in more)
    path = list(ordered[:1])
    for before, after in pairwise(ordered):
        corner = (worse_x(before[0], after[0]), worse_y(before[1], after[1]))
        path += [corner, after]
    return path


def _x_and_y(points: Sequence[Place]) -> tuple[list[float], list[float]]:
    return [a for a, _ in points], [b for _, b in points]


def _scales(axes: Axes, points: Sequence[Place]) -> None:
    """Logarithmic in a direction in which values differ by more than 30 times."""
    xs, ys = _x_and_y(points)
    sides = ((axes.set_xscale, axes.xaxis), (axes.set_yscale, axes.yaxis))
    for values, (scale, axis) in zip((xs, ys), sides, strict=True):
        if min(values) > 0 and max(values) / min(values) > _LOG_FROM:
            scale("log")
            decades(axis)


def _margins(axes: Axes, points: Sequence[Place]) -> None:
    """Room for labels, but none below zero where nothing is."""
    axes.margins(0.18)
    xs, ys = _x_and_y(points)
    if min(xs) >= 0 and axes.get_xscale() == "linear":
        axes.set_xlim(left=max(0.0, axes.get_xlim()[0]))
    if min(ys) >= 0 and axes.get_yscale() == "linear":
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
