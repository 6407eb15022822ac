"""Rows of a frame as panels of labelled rows, and the figures that hold them.

The one idea: bars lie on their side, so that long names stay readable, and a figure grows with its
rows. What repeats most becomes rows: architectures within a panel for each workload, or workloads
within a panel for each architecture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archgen.outcomes.axes import axes as axes_of
from archgen.outcomes.axes import workload
from archgen.outcomes.estimated import has_figures
from archgen.outcomes.frame import Frame, Record, records
from archgen.plots.names import machine_labels, names_of, on_machines, said_of
from archgen.plots.style import LETTER, MUTED, folded, title
from simmodel.arch.record import Arch

NONE: Mapping[str, Arch] = MappingProxyType({})
_ROW, _HEAD, _AXES_WIDTH = 0.30, 0.75, 3.4
_LONG = 28
"""Letters of a row's name from which on what was swept says it better."""
_SAID = 120
"""Letters beside the rows for what their names are."""
TITLE_LETTERS, SQUARE_LETTERS = 34, 29
_STATUS_TEXT = {"does_not_fit": "does not fit"}


@dataclass(frozen=True)
class Panel:
    """Some rows of the frame under one title, with a label for each."""

    title: str
    rows: list[Record]
    labels: list[str]
    said: str = ""
    """What the words of labels are, where these are values of what was swept."""


def split_panels(frame: Frame, archs: Mapping[str, Arch] = NONE) -> list[Panel]:
    """Panels by workload with a row for each architecture, or the other way round. `archs`,
    machines by name, tell what was swept, by which rows are called where their names are long."""
    rows = records(frame)
    machines, said = row_names(frame, rows, archs)
    workloads = [workload(row) for row in rows]
    outer, inner = workloads, machines
    if len(set(machines)) < len(set(workloads)):
        outer, inner, said = machines, workloads, ""
    panels = {name: Panel(name, [], [], said) for name in dict.fromkeys(outer)}
    for name, label, row in zip(outer, inner, rows, strict=True):
        panels[name].rows.append(row)
        panels[name].labels.append(label)
    return list(panels.values())


def row_names(
    frame: Frame, rows: Sequence[Record], archs: Mapping[str, Arch]
) -> tuple[list[str], str]:
    """What each of `rows` of `frame` ran on; and what the words of that are, where it is not named
    but told by what was swept, since names are long and this is not."""
    labels = machine_labels(rows)
    if max(map(len, labels), default=0) <= _LONG or not archs:
        return labels, ""
    swept = on_machines(axes_of(frame, archs), rows)
    told = [" ".join(name.split("\n")) for name in names_of(rows, swept)] if swept else labels
    if len(set(told)) < len(set(labels)) or max(map(len, told)) >= max(map(len, labels)):
        return labels, ""
    return told, said_of(swept, rows, _SAID)


def _shape_of(count: int) -> tuple[int, int]:
    """Rows and columns of a grid for `count` panels."""
    columns = min(count, 3 if count != 4 else 2)
    return math.ceil(count / columns), columns


def bar_figure(
    panels: Sequence[Panel], text: str, row_height: float = _ROW
) -> tuple[Figure, list[Axes]]:
    """A figure with one axes for each panel, high enough for its rows and a legend."""
    rows, columns = _shape_of(len(panels))
    longest = max(len(panel.labels) for panel in panels)
    height = 1.0 + rows * (_HEAD + row_height * max(longest, 2))
    width = _AXES_WIDTH + LETTER * max(len(label) for panel in panels for label in panel.labels)
    figure = Figure(figsize=(max(6.4, width * columns), height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    title(figure, text)
    for spare in grid[len(panels) :]:
        spare.set_axis_off()
    for axes, panel in zip(grid, panels, strict=False):
        axes.set_title(folded(panel.title, TITLE_LETTERS))
        axes.set_yticks(range(len(panel.labels)), panel.labels)
        axes.set_ylim(max(len(panel.labels), 2) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
    if said := next((panel.said for panel in panels if panel.said), ""):
        # Beside the rows there is as much room as these are high.
        room = int(rows * row_height * max(longest, 2) / LETTER)
        figure.supylabel(folded(said, max(_LONG, room)), color=MUTED, fontsize=8)
    return figure, grid[: len(panels)]


def square_figure(
    count: int, text: str, share: bool = True, columns: int = 4
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` roughly square panels, with common axes where they `share`."""
    columns = min(count, columns)
    rows = math.ceil(count / columns)
    size = (max(6.4, 3.1 * columns), 1.3 + 2.7 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    title(figure, text)
    flat = grid.ravel().tolist()
    for spare in flat[count:]:
        spare.set_axis_off()
    for lowest in flat[max(0, count - columns) : count]:
        lowest.tick_params(labelbottom=True)
    return figure, flat[:count]


def write_refusals(axes: Axes, panel: Panel) -> None:
    """Name the points without a result in their rows, at the left end."""
    for place, row in enumerate(panel.rows):
        if not has_figures(row):
            write_instead(axes, place, refusal(row))


def refusal(row: Record) -> str:
    """What stands where a bar would be: `does not fit`."""
    return _STATUS_TEXT.get(str(row["status"]), str(row["status"]))


def write_instead(axes: Axes, place: int, text: str) -> None:
    """Words in row `place` that has no bar."""
    axes.annotate(
        text, (0, place), (4, 0), xycoords=("axes fraction", "data"),
        textcoords="offset points", va="center", color=MUTED, style="italic",
    )  # fmt: skip
