"""Labels beside points that cover neither each other nor a point.

The one idea: labels are placed greedily, the important first, each at the first of a dozen
places around its point where nothing is yet; a label that fits nowhere is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from archgen.plots.style import INK, MUTED

Wanted = tuple[tuple[float, float], str, str]
"""Where (in data), the text, and `front` (always placed) or `other` (where there is room)."""
_OFFSETS = (
    (7, 0, "left", "center"), (5, 5, "left", "bottom"), (5, -5, "left", "top"),
    (-5, -5, "right", "top"), (-5, 5, "right", "bottom"), (-7, 0, "right", "center"),
    (0, 9, "center", "bottom"), (0, -9, "center", "top"),
    (6, 20, "left", "bottom"), (6, -20, "left", "top"),
    (-6, 20, "right", "bottom"), (-6, -20, "right", "top"),
)  # fmt: skip
_MARK, _STEP = 6.0, 6.0
"""Pixels."""


def place_labels(figure: Figure, panels: Sequence[tuple[Axes, Sequence[Wanted]]]) -> None:
    """Write the labels of each axes. The layout of `figure` must be final but for them."""
    figure.draw_without_rendering()
    for axes, wanted in panels:
        spots = [axes.transData.transform(place) for place, _, _ in wanted]
        marks = [_around(a, b, _MARK) for a, b in spots]
        lines = _on_lines(axes)
        taken: list[Bbox] = []
        for index, (place, text, rank) in enumerate(wanted):
            others = [*taken, *marks[:index], *marks[index + 1 :], *lines]
            note = _placed(axes, place, text, rank, others)
            if note is not None:
                taken.append(note.get_window_extent())


def _around(across: float, along: float, size: float) -> Bbox:
    return Bbox.from_bounds(across - size / 2, along - size / 2, size, size)


def _on_lines(axes: Axes) -> list[Bbox]:
    """Small boxes all along the lines of `axes`."""
    found: list[Bbox] = []
    for line in axes.get_lines():
        if line.get_linestyle() == "-":
            ends = np.asarray(axes.transData.transform(line.get_xydata()))
            for (a, b), (c, d) in pairwise(ends):
                steps = max(2, int(math.hypot(c - a, d - b) / _STEP))
                along = zip(np.linspace(a, c, steps), np.linspace(b, d, steps), strict=True)
                found += [_around(float(x), float(y), 1.0) for x, y in along]
    return found


def _placed(
    axes: Axes, place: tuple[float, float], text: str, rank: str, others: Sequence[Bbox]
) -> Annotation | None:
    """The label at its best place, or None where it would cover something."""
    tried: list[tuple[float, Annotation]] = []
    for right, up, across, along in _OFFSETS:
        note = axes.annotate(
            text, place, (right, up), textcoords="offset points", ha=across, va=along,
            fontsize=8 if rank == "front" else 7, color=INK if rank == "front" else MUTED,
        )  # fmt: skip
        note.set_in_layout(False)
        box = note.get_window_extent()
        covered = sum(box.overlaps(other) for other in others) + 3 * _outside(axes, box)
        tried.append((covered, note))
        if not covered:
            break
    least = min(covered for covered, _ in tried)
    best = next(note for covered, note in tried if covered == least)
    for _, note in tried:
        if note is not best or (least and rank != "front"):
            note.remove()
    return None if least and rank != "front" else best


def _outside(axes: Axes, box: Bbox) -> bool:
    """Whether `box` leaves the axes at either side."""
    inner = axes.get_window_extent()
    within = inner.x0 <= box.x0 and box.x1 <= inner.x1 + 4
    return not (within and inner.y0 <= box.y0 and box.y1 <= inner.y1)
