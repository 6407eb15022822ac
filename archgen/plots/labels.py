"""Names beside points that cover neither each other nor a point, with a line where they stand off.

The one idea: the important names are placed first, each where it covers least: right beside its
point, else on wider and wider rings around it, with a leader line back to the point. A name that
fits nowhere is left out; those that matter may lie on lines and marks, never on a name. What is
left to chance or to a clock would make another picture every time, so nothing is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from archgen.plots.style import GREY, INK, MUTED

Wanted = tuple[tuple[float, float], str, str]
"""Where (in data), the text, and `front` (placed wherever it can be read) or `other` (where there
is room)."""
Boxes = NDArray[np.float64]
"""One row for each box: its left, lower, right and upper end in pixels."""
_RINGS = (9.0, 16.0, 26.0, 38.0, 52.0, 70.0, 92.0, 120.0)
"""Points between a point and its name."""
_NEAR = 4
"""How many of these rings there are for names that need not be there."""
_TURNS = 16
_LEADS_FROM = 1
"""The first ring from which on a line leads to the point."""
_LEADER = {"arrowstyle": "-", "color": GREY, "lw": 0.6, "shrinkA": 0, "shrinkB": 3}
_MARK, _STEP = 7.0, 5.0
"""Pixels: of a mark; between the boxes along a line."""
_LOST = 1000.0
"""Cost of a name that cannot be read."""
_GAP = 1.5
"""Pixels that stay free around a name."""


def place_labels(
    figure: Figure,
    panels: Sequence[tuple[Axes, Sequence[Wanted]]],
    taken: Mapping[Axes, Boxes] = MappingProxyType({}),
) -> None:
    """Write the labels of each axes. The layout of `figure` must be final but for them. `taken`:
    what other texts of the axes cover, where these are aslant."""
    figure.draw_without_rendering()
    for axes, wanted in panels:
        if wanted:
            _place(figure, axes, wanted, taken.get(axes, boxes_of(axes.texts)))


def _place(figure: Figure, axes: Axes, wanted: Sequence[Wanted], names: Boxes) -> None:
    spots = [axes.transData.transform(place) for place, _, _ in wanted]
    every = marks_in(axes)
    lines = _on_lines(axes)
    inner = axes.get_window_extent()
    pixel = figure.dpi / 72
    taken: list[Boxes] = []
    for (a, b), (place, text, rank) in zip(spots, wanted, strict=True):
        front = rank == "front"
        note = axes.annotate(
            text, place, (0, 0), textcoords="offset points", ha="center", va="center",
            fontsize=8 if front else 7, color=INK if front else MUTED, zorder=6,
        )  # fmt: skip
        note.set_in_layout(False)
        size = note.get_window_extent()
        tried = _candidates(size, pixel, _RINGS if front else _RINGS[:_NEAR])
        boxes = np.column_stack([
            a + tried[:, 0] - size.width / 2 - _GAP, b + tried[:, 1] - size.height / 2 - _GAP,
            a + tried[:, 0] + size.width / 2 + _GAP, b + tried[:, 1] + size.height / 2 + _GAP,
        ])  # fmt: skip
        own_mark = covered(every, around(np.array([a, b]), 1.0)) > 0
        others = np.vstack([every[~own_mark], lines, *taken])
        # A name on a name, or on the next panel, can be read no more; one on a line can.
        lost = covered(boxes, names) + _outside(boxes, inner)
        cost = 3.0 * covered(boxes, others) + _LOST * lost
        own = np.array([covered(_lead((a, b), offset), others).sum() for offset in tried])
        best = int(np.argmin(cost + own + 0.02 * np.arange(len(tried)) / _TURNS))
        if lost[best] or (cost[best] + own[best] > 0 and not front):
            note.remove()
            continue
        note.set_position((float(tried[best, 0]) / pixel, float(tried[best, 1]) / pixel))
        taken.append(boxes[best : best + 1])
        names = np.vstack([names, boxes[best : best + 1]])
        if best >= _LEADS_FROM * _TURNS:
            taken.append(_lead((a, b), tried[best]))
            axes.annotate(
                "", place, _edge(tried[best], size, pixel), textcoords="offset points", zorder=5,
                arrowprops=_LEADER,
            ).set_in_layout(False)  # fmt: skip


def _candidates(size: Bbox, pixel: float, rings: Sequence[float]) -> Boxes:
    """Offsets in pixels from a point to the middle of its name, ring by ring, the right first."""
    found = []
    for ring in rings:
        for turn in range(_TURNS):
            angle = 2 * math.pi * ((turn + 1) // 2) * (-1) ** turn / _TURNS
            across, along = math.cos(angle), math.sin(angle)
            # The nearest edge of the name is a ring's width away, whichever side it is on.
            found.append((
                across * ring * pixel + _side(across) * size.width / 2,
                along * ring * pixel + _side(along) * size.height / 2,
            ))  # fmt: skip
    return np.array(found)


def _side(share: float) -> float:
    return 0.0 if abs(share) < 0.2 else math.copysign(1.0, share)


def _edge(offset: Boxes, size: Bbox, pixel: float) -> tuple[float, float]:
    """Where the line from a point meets its name, in points from the point."""
    across = math.copysign(max(0.0, abs(offset[0]) - size.width / 2), offset[0])
    along = math.copysign(max(0.0, abs(offset[1]) - size.height / 2), offset[1])
    return across / pixel, along / pixel


def _lead(spot: tuple[float, float], offset: Boxes) -> Boxes:
    """Small boxes along the line from a point to its name, but for its ends."""
    count = max(2, int(math.hypot(offset[0], offset[1]) / _STEP))
    shares = np.linspace(0, 1, count + 1)[1:-1] * 0.6 + 0.15
    return around(np.asarray(spot) + shares[:, None] * offset, 1.0)


def boxes_of(texts: Sequence[Text]) -> Boxes:
    """What texts cover that stand upright."""
    found = [text.get_window_extent() for text in texts if text.get_text()]
    return np.array([box.extents for box in found]).reshape(-1, 4)


def marks_in(axes: Axes) -> Boxes:
    """What the marks of `axes` cover, those of areas too."""
    lines = [line for line in axes.get_lines() if line.get_marker() not in ("None", "", None)]
    found = [
        around(np.asarray(axes.transData.transform(line.get_xydata())), _MARK) for line in lines
    ]
    for cloud in axes.collections:
        places = np.asarray(cloud.get_offsets()).reshape(-1, 2)
        if isinstance(cloud, PathCollection) and places.size:
            pixels = np.sqrt(np.asarray(cloud.get_sizes())) * axes.figure.dpi / 72
            found.append(around(np.asarray(axes.transData.transform(places)), pixels[:, None]))
    return np.vstack([np.empty((0, 4)), *found])


def around(places: Boxes, size: float | Boxes) -> Boxes:
    """Boxes of a size with their middles at `places`."""
    places = places.reshape(-1, 2)
    return np.hstack([places - size / 2, places + size / 2])


def _on_lines(axes: Axes) -> Boxes:
    """Small boxes all along the lines of `axes`."""
    found = [np.empty((0, 4))]
    for line in axes.get_lines():
        if line.get_linestyle() == "-":
            ends = np.asarray(axes.transData.transform(line.get_xydata()))
            for one, other in pairwise(ends):
                steps = max(2, int(np.hypot(*(other - one)) / _STEP))
                found.append(around(np.linspace(one, other, steps), 1.0))
    return np.vstack(found)


def covered(boxes: Boxes, others: Boxes) -> NDArray[np.float64]:
    """How many of `others` each of `boxes` covers."""
    left, low, right, high = (boxes[:, n, None] for n in range(4))
    over = (left < others[:, 2]) & (others[:, 0] < right)
    over &= (low < others[:, 3]) & (others[:, 1] < high)
    return np.asarray(over.sum(axis=1), float)


def _outside(boxes: Boxes, inner: Bbox) -> NDArray[np.float64]:
    """Whether each of `boxes` leaves the axes."""
    within = (boxes[:, 0] >= inner.x0) & (boxes[:, 2] <= inner.x1 + 4)
    within &= (boxes[:, 1] >= inner.y0) & (boxes[:, 3] <= inner.y1)
    return np.asarray(~within, float)
