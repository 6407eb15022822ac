"""Rows of a frame as panels of labelled rows, and the figures that hold them.

The one idea: bars lie on their side, so that long names stay readable, and a figure grows with its
rows. What repeats most becomes rows: architectures within a panel for each workload, or workloads
within a panel for each architecture. Where fields were swept, points are called by their values
(`512, 16`), and the figure says once what these are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archgen.outcomes import axes as study_axes
from archgen.outcomes.axes import MACHINE, StudyAxis, Value, workload
from archgen.outcomes.estimated import has_figures
from archgen.outcomes.frame import Frame, Record, records, varying_schedule_columns
from archgen.outcomes.points import DIMENSION, OPTION
from archgen.plots.style import INK, LETTER, MUTED, PAPER, title, wrapped
from simmodel.arch.record import Arch

NONE: Mapping[str, Arch] = MappingProxyType({})
OUTLINE = [patheffects.withStroke(linewidth=2.0, foreground=PAPER)]
"""Keeps a name readable on a line, on a dark page too."""
TITLE_LETTERS = 29
COLUMNS = 4
"""Square panels beside each other."""
_ROW, _HEAD, _AXES_WIDTH, _LABEL_LETTERS = 0.30, 0.75, 3.4, 48
_FEW_FIELDS = 3
"""Swept fields beyond which a name says only where a point deviates from most."""


@dataclass(frozen=True)
class Panel:
    """Some rows of the frame under one title, with a label for each."""

    title: str
    rows: list[Record]
    labels: list[str]
    legend: str = ""
    """What the words of labels are, where these are values of what was swept."""

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        return enumerate(self.rows)


def several_types(rows: Sequence[Record]) -> bool:
    """Whether any machine has points of several element types."""
    pairs = {(str(row["arch"]), str(row["dtype"])) for row in rows}
    return len(pairs) > len({arch for arch, _ in pairs})


def row_labels(
    rows: Sequence[Record], frame: Frame, archs: Mapping[str, Arch]
) -> tuple[list[str], str]:
    """What to call each of `rows` of `frame`, and what the words of that are: by what was swept
    where `archs` (machines by name) tell that and it tells rows apart, else by machine."""
    names = ["arch", *(["dtype"] if several_types(rows) else []), *varying_schedule_columns(rows)]
    labels = [" ".join(str(row[name]) for name in names) for row in rows]
    swept = swept_fields(frame, archs)
    values = field_labels(rows, swept)
    if not swept or len(set(values)) < len(set(labels)):
        return labels, ""
    many = len(swept) > _FEW_FIELDS
    titles = "what is not as in most points" if many else ", ".join(axis.title for axis in swept)
    return values, f"names: {titles}"


def swept_fields(frame: Frame, archs: Mapping[str, Arch]) -> list[StudyAxis]:
    """The axes that tell the points of one network apart, where machines are no axis."""
    every = study_axes.axes(frame, archs) if archs else ()
    return [] if any(axis.column == MACHINE for axis in every) else point_axes(every)


def point_axes(every: Sequence[StudyAxis]) -> list[StudyAxis]:
    """Those of all axes of a study that tell the points of one network apart."""
    return [a for a in every if not a.column.startswith(("batch", DIMENSION, OPTION))]


def field_labels(rows: Sequence[Record], swept: Sequence[StudyAxis]) -> list[str]:
    """`512, 16` for each row by the fields swept; of many fields where it deviates from most rows:
    `clock 2 GHz`, else `as most`."""
    if len(swept) <= _FEW_FIELDS:
        return [", ".join(_value_text(axis, axis.value(row)) for axis in swept) for row in rows]
    settings = (
        [(axis, value) for axis in own if (value := axis.value(row)) is not None]
        for row, own in zip(rows, study_axes.deviating_axes(rows, swept), strict=True)
    )
    shown = study_axes.axis_setting_text
    return [", ".join(shown(*pair) for pair in own) or "as most" for own in settings]


def _value_text(axis: StudyAxis, value: Value | None) -> str:
    if value is None:
        return "-"
    return axis.shown(value) if isinstance(value, str) else f"{axis.number(value):.6g}"


def bar_figure(
    frame: Frame, archs: Mapping[str, Arch], text: str, x: str, row_height: float = _ROW
) -> tuple[Figure, list[tuple[Axes, Panel]]]:
    """A panel by workload with a row for each architecture, or the other way round, over `x`;
    points without a result are named, not drawn as zero."""
    rows = records(frame)
    inner, legend = row_labels(rows, frame, archs)
    outer = [workload(row) for row in rows]
    if len(set(inner)) < len(set(outer)):
        outer, inner, legend = inner, outer, ""
    panels = {name: Panel(name, [], [], legend) for name in dict.fromkeys(outer)}
    for name, label, row in zip(outer, inner, rows, strict=True):
        panels[name].rows.append(row)
        panels[name].labels.append(label)
    figure, grid = panel_figure(list(panels.values()), text, x, row_height)
    for axes, panel in grid:
        for place, row in panel:
            if not has_figures(row):
                write_instead(axes, place, refusal(row))
    return figure, grid


def panel_figure(
    panels: Sequence[Panel], text: str, x: str, row_height: float = _ROW
) -> tuple[Figure, list[tuple[Axes, Panel]]]:
    """A figure with one axes for each panel, high enough for its rows and a legend."""
    columns = min(len(panels), 3 if len(panels) != 4 else 2)
    rows = math.ceil(len(panels) / columns)
    longest = max(len(panel.labels) for panel in panels)
    labels = {label: wrapped(label, _LABEL_LETTERS) for panel in panels for label in panel.labels}
    letters = min(_LABEL_LETTERS, max(map(len, labels)))
    size = (
        max(6.4, (_AXES_WIDTH + LETTER * letters) * columns),
        1.0 + rows * (_HEAD + row_height * max(longest, 2)),
    )
    figure, grid = _grid(len(panels), columns, size, text)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set(title=wrapped(panel.title, TITLE_LETTERS), xlabel=x)
        name_rows(axes, [labels[each] for each in panel.labels], 2)
    words = wrapped(panels[0].legend, int((_HEAD + row_height * max(longest, 2)) / LETTER))
    for axes in grid[::columns]:
        axes.set_ylabel(words, color=MUTED, fontsize=8)
    return figure, list(zip(grid, panels, strict=True))


def name_rows(axes: Axes, names: Sequence[str], least: int, size: float = 9) -> None:
    """Rows from the top down, of which there is room for `least`."""
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.set_ylim(max(len(names), least) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _grid(
    count: int, columns: int, size: tuple[float, float], text: str, share: bool = False
) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=size, layout="constrained")
    rows = math.ceil(count / columns)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    title(figure, text)
    panels = grid.ravel().tolist()
    for spare in panels[count:]:
        spare.set_axis_off()
    return figure, panels[:count]


def square_figure(
    count: int, text: str, share: bool = True, columns: int = COLUMNS, width: float = 3.1
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` roughly square panels, with common axes where they `share`."""
    columns = min(count, columns)
    height = 1.3 + (width - 0.4) * math.ceil(count / columns)
    figure, panels = _grid(count, columns, (max(6.4, width * columns), height), text, share)
    for lowest in panels[-columns:]:
        lowest.tick_params(labelbottom=True)
    return figure, panels


def refusal(row: Record) -> str:
    """What stands where a bar would be: `does not fit`."""
    return str(row["status"]).replace("_", " ")


def write_instead(axes: Axes, place: int, text: str) -> None:
    """Words in row `place` that has no bar."""
    _write_beside(axes, (0, place), text, color=MUTED, style="italic")


def write_at_edge(axes: Axes, place: int, text: str, color: str = INK) -> None:
    """Words right of row `place`, outside of the axes."""
    _write_beside(axes, (1, place), text, color=color, fontsize=7)


def _write_beside(axes: Axes, at: tuple[float, float], text: str, **looks: Any) -> None:
    axes.annotate(
        text, at, (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
        va="center", **looks,
    )  # fmt: skip


def write_names(axes: Axes, names: Sequence[tuple[tuple[float, float], str]]) -> None:
    """Names beside points (in data), each in the first of the four corners where it stays in the
    panel and covers no other words; without such a corner it is left out. The layout must be final.
    """
    corners = [(5, 5, "left"), (5, -12, "left"), (-5, 5, "right"), (-5, -12, "right")]
    taken = [text.get_window_extent() for text in axes.texts if text.get_text()]
    inner = axes.get_window_extent()
    for place, text in names:
        for across, along, side in corners:
            note = axes.annotate(
                text, place, (across, along), textcoords="offset points", ha=side,
                fontsize=8, path_effects=OUTLINE, zorder=6, in_layout=False,
            )  # fmt: skip
            box = note.get_window_extent()
            if (
                inner.contains(*box.p0)
                and inner.contains(*box.p1)
                and not box.count_overlaps(taken)
            ):
                taken.append(box)
                break
            note.remove()
