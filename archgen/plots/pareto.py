"""Which points are best in one respect without being worse in another."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import archgen.plots.panels as panels
import archgen.plots.style as style
from archgen.outcomes import fronts
from archgen.outcomes.axes import workload
from archgen.outcomes.columns import COLUMNS, MORE_IS_BETTER, column
from archgen.outcomes.estimated import has_figures, run_figures
from archgen.outcomes.frame import Frame, Record, grouped, number, records
from archgen.plots.findings import titled
from archgen.plots.panels import refusal, row_labels, square_figure, write_names
from archgen.plots.style import BLUE, GREY, RUN, SETTINGS, legend, logarithmic, title
from simmodel.arch.record import Arch

_LOG_FROM = 30.0
_MOST_NAMES = 6
"""Points of a front beyond which names are numbers with a key below."""
_MOST_DOTS = 40
"""Points of a panel beyond which names would lie on some of them."""
_MOST_LEFT_OUT, _LETTERS = 4, 52
"""Points without values that are named, and letters of a line of that."""
_LINE = 0.2
"""Inches of a line of the key."""
_NAME = "name of the point"
Place = tuple[float, float]


@rc_context(SETTINGS)
def pareto_figure(
    frame: Frame, x: str = "latency_ms", y: str = "area_mm2",
    better: Collection[str] = MORE_IS_BETTER, archs: Mapping[str, Arch] = panels.NONE,
) -> Figure:  # fmt: skip
    """Points of column `y` over column `x`, a panel for each network, and the front among them.

    Less is better, but in the columns of `better` more. Points on the front are named where there
    is room, by what was swept where `archs` (machines by name) tells that, else by machine; names
    of more than six, or among many points, are numbers, the quickest first, with a key below.
    Those that another one dominates are grey. Of equal points one is named. What runs gave stands
    beside estimates, as stars. Points without both values are named below their panel, with what
    became of them. Raises KeyError for a column that the frame does not have.
    """
    if missing := [name for name in (x, y) if name not in frame]:
        raise KeyError(f"no column {missing[0]!r} in this frame")
    labels, legend_text = row_labels(records(frame), frame, archs)
    rows = records(frame.assign(**{_NAME: labels}))
    loads = grouped(rows, workload)
    what = f"{_words(y).capitalize()} against {_words(x)}"
    figure, grid = square_figure(len(loads), what, share=False, width=4.6)
    fronts_of = []
    for axes, (load, own) in zip(grid, loads.items(), strict=True):
        axes.set(
            title=style.wrapped(load, panels.TITLE_LETTERS), xlabel=_axis_label(x, x in better),
            ylabel=_axis_label(y, y in better),
        )  # fmt: skip
        fronts_of.append(_draw_points(axes, own, (x, y), (x in better, y in better)))
    handles = [
        Line2D([], [], color=BLUE, marker="o", ms=6, lw=1.2, label="Pareto front"),
        Line2D([], [], color=GREY, marker="o", ms=5, ls="", label="dominated"),
    ]
    on = sum(len({name for _, name in own}) for own in fronts_of)
    along = f"{on} of {len(rows)} points on the front{'s' if len(loads) > 1 else ''}"
    title(figure, titled(what, along if on else ""))
    if any(run_figures(row) for row in rows):
        handles.append(Line2D([], [], **RUN, color=BLUE, label="run in full"))
    most = max(map(len, fronts_of), default=0)
    numbered = most > _MOST_NAMES or max(map(len, loads.values()), default=0) > _MOST_DOTS
    if numbered:
        every = dict.fromkeys(name for own in fronts_of for _, name in own)
        key = {name: str(n) for n, name in enumerate(every, 1)}
        handles += [Line2D([], [], ls="", label=f"{n}  {name}") for name, n in key.items()]
        fronts_of = [[(place, key[name]) for place, name in own] for own in fronts_of]
    lines = legend(figure, handles, legend_text)
    if numbered:
        figure.set_figheight(figure.get_figheight() + _LINE * lines)
    figure.draw_without_rendering()
    for axes, own_names in zip(grid, fronts_of, strict=True):
        write_names(axes, own_names)
    return figure


def front_places(points: Sequence[Place], more: tuple[bool, bool] = (False, False)) -> list[int]:
    """Indices of the points that no other dominates, in order of their first coordinate.

    `more`: in which coordinates more is better. Of equal points all are kept.
    """
    signs = [-1.0 if each else 1.0 for each in more]
    costs = [(signs[0] * a, signs[1] * b) for a, b in points]
    return sorted(fronts.pareto_front(costs), key=lambda index: points[index])


def _words(name: str) -> str:
    """`latency` for `latency_ms`: the unit at the end is left out."""
    return name.rpartition("_")[0] or name


def _axis_label(name: str, more: bool) -> str:
    """`latency [ms], less is better`."""
    known = column(name, COLUMNS)
    unit = known.unit if known else name.rpartition("_")[2]
    unit = {"mm2": "mm²", "ips": "samples/s"}.get(unit, unit)
    return f"{_words(name).replace('_', ' ')} [{unit}], {'more' if more else 'less'} is better"


def _draw_points(
    axes: Axes, rows: Sequence[Record], columns: tuple[str, str], more: tuple[bool, bool]
) -> list[tuple[Place, str]]:
    """Draw one panel; gives the places on its front and their names."""
    x, y = columns
    drawn = [row for row in rows if not math.isnan(number(row, x) + number(row, y))]
    if left_out := _left_out(rows, columns):
        axes.set_xlabel(f"{axes.get_xlabel()}\n{style.wrapped(f'not shown: {left_out}', _LETTERS)}")
    if not drawn:
        style.placeholder(axes, style.wrapped(f"no point has a result: {left_out}", _LETTERS))
        return []
    places = [(number(row, x), number(row, y)) for row in drawn]
    axes.margins(0.18)  # room for names
    for side, values in zip("xy", _sides(places), strict=True):
        if min(values) > 0 and max(values) / min(values) > _LOG_FROM:
            logarithmic(axes, side)
    best = front_places(places, more)
    ordered = [places[index] for index in best]
    rest = [place for index, place in enumerate(places) if index not in best]
    step = "steps-pre" if more[0] else "steps-post"  # corners are the worse of both neighbours
    axes.plot(*_sides(rest), "o", color=GREY, ms=5, mec="white", mew=0.6)
    axes.plot(*_sides(ordered), "o-", color=BLUE, lw=1.2, ms=6.5, mec="white", drawstyle=step)
    for place, own in zip(places, map(run_figures, drawn), strict=True):
        if own is not None:
            run = number(own, x), number(own, y)
            axes.plot(*_sides([place, run]), "-", color=BLUE, lw=0.7)
            axes.plot(*_sides([run]), **RUN, color=BLUE)
    first = {places[index]: str(drawn[index][_NAME]) for index in reversed(best)}
    equal = {place: ordered.count(place) - 1 for place in dict.fromkeys(ordered)}
    return [(place, first[place] + (f" and {n} equal" if n else "")) for place, n in equal.items()]


def _sides(places: Sequence[Place]) -> tuple[list[float], list[float]]:
    return [x for x, _ in places], [y for _, y in places]


def _left_out(rows: Sequence[Record], columns: tuple[str, str]) -> str:
    """Points without both values by what became of them: `edge-32, edge-64 (does not fit)`."""
    left = [row for row in rows if any(math.isnan(number(row, name)) for name in columns)]
    said = []
    for why, own in grouped(left, lambda r: "no value" if has_figures(r) else refusal(r)).items():
        names = [str(row[_NAME]) for row in own]
        more = f" and {len(names) - _MOST_LEFT_OUT} more" if len(names) > _MOST_LEFT_OUT else ""
        said.append(f"{', '.join(names[:_MOST_LEFT_OUT])}{more} ({why})")
    return "; ".join(said)
