"""One look for all figures: sizes, a palette safe for colour-blind readers, the layout of rows.

The one idea: bars lie on their side, so that long names stay readable, and a figure grows with its
rows. What repeats most becomes rows: architectures within a panel for each workload, or workloads
within a panel for each architecture. A colour means the same engine, cause or memory everywhere.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archgen.frame import Frame, Record, records, varied

# Okabe and Ito's palette, and two greys.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
INK, GREY, PALE = "#222222", "#999999", "#DDDDDD"

CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, GREY)
MARKERS = "osD^vP*X<>hp"

BUSY = BLUE
CAUSES: Mapping[str, str] = {
    "data": VERMILION, "store": ORANGE, "engine": GREEN, "core": PURPLE, "front_end": YELLOW,
    "conflict": "#8C510A", "bandwidth": SKY, "fill": GREY, "no_work": PALE,
}  # fmt: skip
"""Colour of each cause of idle cycles (`simmodel.trace.CAUSES`)."""
MEMORIES: Mapping[str, str] = {
    "shared": ORANGE, "local": BLUE, "weights": GREEN, "accumulators": PURPLE,
}  # fmt: skip

SETTINGS: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.edgecolor": GREY, "axes.labelcolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "axes.grid": True, "grid.color": "#EEEEEE", "legend.frameon": False,
    "figure.facecolor": "white",
}  # fmt: skip
_ROW, _HEAD, _AXES_WIDTH = 0.30, 0.75, 3.4
_LETTER = 0.085
"""Inches, generously, of a letter."""
_TITLE_LETTERS = 34
_STATUS_TEXT = {"does_not_fit": "does not fit", "unsupported": "unsupported", "failed": "failed"}


@dataclass(frozen=True)
class Panel:
    """Some rows of the frame under one title, with a label for each."""

    title: str
    rows: list[Record]
    labels: list[str]


def workload(row: Record) -> str:
    """`resnet50, batch 4` (the batch only where it is not 1)."""
    batch = int(row["batch"])
    name = str(row["model"])
    name = name.rsplit("/", 1)[-1].removesuffix(".onnx")
    return name if batch == 1 else f"{name}, batch {batch}"


def split_panels(frame: Frame) -> list[Panel]:
    """Panels by workload with a row for each architecture, or the other way round."""
    rows = records(frame)
    types: dict[str, set[str]] = {}
    for row in rows:
        types.setdefault(row["arch"], set()).add(row["dtype"])
    mixed = any(len(names) > 1 for names in types.values())
    names = ["arch", *(["dtype"] if mixed else []), *varied(rows)]
    machines = [" ".join(str(row[name]) for name in names) for row in rows]
    workloads = [workload(row) for row in rows]
    outer, inner = workloads, machines
    if len(set(machines)) < len(set(workloads)):
        outer, inner = machines, workloads
    panels = {title: Panel(title, [], []) for title in dict.fromkeys(outer)}
    for title, label, row in zip(outer, inner, rows, strict=True):
        panels[title].rows.append(row)
        panels[title].labels.append(label)
    return list(panels.values())


def legend_columns(figure: Figure, labels: Sequence[str]) -> int:
    """How many columns of a legend with these labels the figure is wide enough for."""
    longest = max(len(label) for label in labels) * _LETTER + 0.5
    return max(1, min(len(labels), int(figure.get_figwidth() / longest)))


def shape_of(count: int) -> tuple[int, int]:
    """Rows and columns of a grid for `count` panels."""
    columns = min(count, 3 if count != 4 else 2)
    return math.ceil(count / columns), columns


def bar_figure(
    panels: Sequence[Panel], title: str, row_height: float = _ROW
) -> tuple[Figure, list[Axes]]:
    """A figure with one axes for each panel, high enough for its rows and a legend."""
    rows, columns = shape_of(len(panels))
    longest = max(len(panel.labels) for panel in panels)
    height = 1.0 + rows * (_HEAD + row_height * max(longest, 2))
    width = _AXES_WIDTH + _LETTER * max(len(label) for panel in panels for label in panel.labels)
    figure = Figure(figsize=(max(6.4, width * columns), height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    figure.suptitle(title, fontweight="bold", x=0.01, ha="left")
    for spare in grid[len(panels) :]:
        spare.set_axis_off()
    for axes, panel in zip(grid, panels, strict=False):
        axes.set_title(textwrap.fill(panel.title, _TITLE_LETTERS))
        axes.set_yticks(range(len(panel.labels)), panel.labels)
        axes.set_ylim(max(len(panel.labels), 2) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
    return figure, grid[: len(panels)]


def square_figure(count: int, title: str) -> tuple[Figure, list[Axes]]:
    """A figure of `count` roughly square panels with common axes."""
    columns = min(count, 4)
    rows = math.ceil(count / columns)
    size = (max(6.4, 3.1 * columns), 1.3 + 2.7 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    figure.suptitle(title, fontweight="bold", x=0.01, ha="left")
    flat = grid.ravel().tolist()
    for spare in flat[count:]:
        spare.set_axis_off()
    return figure, flat[:count]


def refusal(row: Record) -> str:
    """What stands where a bar would be: `does not fit`."""
    return _STATUS_TEXT.get(str(row["status"]), str(row["status"]))


def write_refusals(axes: Axes, panel: Panel) -> None:
    """Name the points without a result in their rows, at the left end."""
    for place, row in enumerate(panel.rows):
        if row["status"] != "ok":
            axes.annotate(
                refusal(row), (0, place), (4, 0), xycoords=("axes fraction", "data"),
                textcoords="offset points", va="center", color=GREY, style="italic",
            )  # fmt: skip
