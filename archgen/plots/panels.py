"""Rows of a frame as panels of labelled rows, and the figures that hold them.

The one idea: bars lie on their side, so that long names stay readable, and a figure grows with its
rows. What repeats most becomes rows: architectures within a panel for each workload, or workloads
within a panel for each architecture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archgen.outcomes.axes import workload
from archgen.outcomes.estimated import has_figures
from archgen.outcomes.frame import Frame, Record, records, varied
from archgen.plots.style import LETTER, MUTED, folded, title
from simmodel.units import show_bytes

_ROW, _HEAD, _AXES_WIDTH = 0.30, 0.75, 3.4
TITLE_LETTERS, SQUARE_LETTERS = 34, 29
_STATUS_TEXT = {"does_not_fit": "does not fit"}


@dataclass(frozen=True)
class Panel:
    """Some rows of the frame under one title, with a label for each."""

    title: str
    rows: list[Record]
    labels: list[str]


def several_types(rows: Sequence[Record]) -> bool:
    """Whether any machine has points of several element types."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(str(row["arch"]), set()).add(str(row["dtype"]))
    return any(len(types) > 1 for types in found.values())


def machine_labels(rows: Sequence[Record]) -> list[str]:
    """What each row ran on: its architecture, and of the rest whatever tells rows apart."""
    names = ["arch", *(["dtype"] if several_types(rows) else []), *varied(rows)]
    fields = _swept(rows)
    return [
        " ".join([*(str(row[name]) for name in names), *(_setting(row, name) for name in fields)])
        for row in rows
    ]


def _swept(rows: Sequence[Record]) -> list[str]:
    """Swept fields in which rows of the same architecture differ."""
    fields = [name for name in (rows[0] if rows else {}) if name.startswith("arch.")]
    archs = {row["arch"] for row in rows}
    return [
        name
        for name in fields
        if len({(row["arch"], str(row.get(name))) for row in rows}) > len(archs)
    ]


def _setting(row: Record, name: str) -> str:
    """`size=2 MiB` for the column `arch.memories.local.size`."""
    value = row.get(name)
    if value is None or pd.isna(value):
        return ""
    last = name.rsplit(".", 1)[-1]
    if last == "size" and not isinstance(value, str):
        return f"{last}={show_bytes(value)}"
    return f"{last}={value:g}" if isinstance(value, float) else f"{last}={value}"


def split_panels(frame: Frame) -> list[Panel]:
    """Panels by workload with a row for each architecture, or the other way round."""
    rows = records(frame)
    machines = machine_labels(rows)
    workloads = [workload(row) for row in rows]
    outer, inner = workloads, machines
    if len(set(machines)) < len(set(workloads)):
        outer, inner = machines, workloads
    panels = {name: Panel(name, [], []) for name in dict.fromkeys(outer)}
    for name, label, row in zip(outer, inner, rows, strict=True):
        panels[name].rows.append(row)
        panels[name].labels.append(label)
    return list(panels.values())


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
