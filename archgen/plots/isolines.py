"""Lines of equal value on a map of cells, along the edges of cells.

The one idea: nothing is known between two cells, so a line runs where one cell is below a level and
its neighbour is not. It crosses no number, needs no point that was not run, and is a sentence that
can be checked: on this side of it every cell is below 2 ms. Its level stands at a corner where four
cells meet, which is as far from their numbers as a place can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from archgen.plots.bars import shown
from archgen.plots.style import DARK, LIGHT

Place = tuple[float, float]
Edge = tuple[Place, Place]
Values = NDArray[np.float64]
_FACTORS = 3.0
"""From this ratio on levels are at round factors, below at round steps."""
_ROUND = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_MOST = 5
_APART = 1.0
"""Least distance between two labels, in cells."""


def levels(low: float, high: float) -> list[float]:
    """Round values between `low` and `high`, at most five, even in factors where these are far
    apart."""
    if not 0 < low < high:
        return []
    if high < _FACTORS * low:
        found = MaxNLocator(_MOST, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        return [float(value) for value in found if low < value < high][:_MOST]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for rounds in (_ROUND, (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        made = [float(f"{each}e{decade}") for decade in decades for each in rounds]
        inside = [value for value in made if low < value < high]
        if len(inside) <= _MOST:
            return inside
    return inside[:: math.ceil(len(inside) / _MOST)]


def edges(values: Values, level: float) -> list[Edge]:
    """The edges between cells of which one is below `level` and the other is not; none where a
    cell has no value. Cell (row 0, column 0) has its middle at (0, 0)."""
    return list(_edges(values, level))


def _edges(values: Values, level: float) -> Iterator[Edge]:
    known, below = np.isfinite(values), values < level
    rows, columns = values.shape
    for y in range(rows):
        for x in range(columns):
            for other, edge in (
                ((y, x + 1), ((x + 0.5, y - 0.5), (x + 0.5, y + 0.5))),
                ((y + 1, x), ((x - 0.5, y + 0.5), (x + 0.5, y + 0.5))),
            ):
                inside = other[0] < rows and other[1] < columns
                if inside and known[y, x] and known[other] and below[y, x] != below[other]:
                    yield edge


def draw_isolines(panel: Axes, values: Values, at: Sequence[float]) -> None:
    """The lines of the levels `at` on a map drawn by `imshow`, each with its level. Levels that no
    cell lies between have one line and one label."""
    lines: dict[tuple[Edge, ...], list[float]] = {}
    for level in at:
        lines.setdefault(tuple(edges(values, level)), []).append(level)
    labels: dict[Place, list[float]] = {}
    for own, held in lines.items():
        if not own:
            continue
        # Dark in a light casing: to be seen on any shade.
        panel.add_collection(LineCollection(own, colors=LIGHT, linewidths=2.6, capstyle="round"))
        panel.add_collection(LineCollection(own, colors=DARK, linewidths=1.1, capstyle="round"))
        place = _label_place(own, values, labels)
        if place is not None:
            labels.setdefault(place, []).extend(held)
    for place, held in labels.items():
        panel.text(
            *place, ", ".join(map(shown, held)), ha="center", va="center", fontsize=6.5, color=DARK,
            bbox={"fc": LIGHT, "ec": DARK, "lw": 0.5, "boxstyle": "round,pad=0.15"},
        )  # fmt: skip


def _label_place(
    own: Sequence[Edge], values: Values, labels: Mapping[Place, object]
) -> Place | None:
    """The inner corner of the line that is farthest from other labels, then between cells that all
    have numbers, then farthest from the border. Where all are near labels one that has a label
    already, of a line that meets this one there; None where there is no such."""
    rows, columns = values.shape
    corners = dict.fromkeys(
        (x, y) for edge in own for x, y in edge if 0 < x < columns - 1 and 0 < y < rows - 1
    )

    def room(place: Place) -> tuple[float, bool, float]:
        x, y = place
        others = min((math.dist(place, each) for each in labels), default=math.inf)
        around = values[math.floor(y) : math.ceil(y) + 1, math.floor(x) : math.ceil(x) + 1]
        border = min(x, columns - 1 - x, y, rows - 1 - y)
        return min(others, 2 * _APART), bool(np.isfinite(around).all()), border

    best = max(corners, key=room, default=None)
    if best is None or room(best)[0] >= _APART:
        return best
    return next((place for place in corners if place in labels), None)
