"""Names beside points, none on another one, with a line to the point where a name stands off.

The one idea: names are placed one after the other, the important ones first, each at the nearest of
a few places around its point that covers no name and the fewest marks and lines. A name that fits
nowhere is left out. Nothing depends on chance or on a clock, so a picture is the same every time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.transforms import Bbox

from archgen.plots.style import GREY, INK, LIGHT, MUTED

Wanted = tuple[tuple[float, float], str, str]
"""Where (in data), the text, and `front` (placed wherever it can be read) or `other` (where there
is room)."""
OUTLINE = [patheffects.withStroke(linewidth=2.0, foreground=LIGHT)]
"""Keeps a name readable on a line."""
_RINGS = (6.0, 16.0, 28.0, 44.0, 64.0, 90.0)
"""Points between a point and its name."""
_NEAR = 3
"""How many of these rings there are for names that need not be there."""
_TURNS = 16
_LEADS_FROM = 12.0
"""Points between a point and its name from which on a line joins them."""
_LEADER = {"arrowstyle": "-", "color": GREY, "lw": 0.6, "shrinkA": 0, "shrinkB": 3}
_MARK = 5.0
"""Points that a mark takes."""
Place = tuple[float, float]


@dataclass(frozen=True)
class _Panel:
    """An axes, and in pixels what a name there should not cover."""

    axes: Axes
    pixel: float
    """Pixels of a point."""
    marks: Sequence[Bbox]
    lines: Sequence[Path]
    names: list[Bbox]


def place_labels(figure: Figure, panels: Sequence[tuple[Axes, Sequence[Wanted]]]) -> None:
    """Write the labels of each axes. The layout of `figure` must be final but for them."""
    figure.draw_without_rendering()
    pixel = figure.dpi / 72
    for axes, wanted in panels:
        lines = [
            line.get_transform().transform_path(line.get_path())
            for line in axes.get_lines() if line.get_linestyle() == "-"
        ]  # fmt: skip
        names = [text.get_window_extent() for text in axes.texts if text.get_text()]
        panel = _Panel(axes, pixel, list(_marks(axes, _MARK * pixel)), lines, names)
        for place, text, rank in wanted:
            _write(panel, place, text, rank == "front")


def _write(panel: _Panel, place: Place, text: str, front: bool) -> None:
    """Write a name where it covers least; nothing where it has no place."""
    axes, pixel = panel.axes, panel.pixel
    note = axes.annotate(
        text, place, (0, 0), textcoords="offset points", ha="center", va="center", zorder=6,
        fontsize=8 if front else 7, color=INK if front else MUTED, path_effects=OUTLINE,
    )  # fmt: skip
    note.set_in_layout(False)
    best = _best(panel, place, note.get_window_extent(), front)
    if best is None:
        note.remove()
        return
    offset, ring, box = best
    note.set_position((offset[0] / pixel, offset[1] / pixel))
    if ring > _LEADS_FROM:
        edge = (_edge(offset[0], box.width) / pixel, _edge(offset[1], box.height) / pixel)
        lead = axes.annotate("", place, edge, textcoords="offset points", arrowprops=_LEADER)
        lead.set_in_layout(False)
    panel.names.append(box)


def _best(panel: _Panel, place: Place, size: Bbox, front: bool) -> tuple[Place, float, Bbox] | None:
    """Offset from the point, its ring and the box of a name: where it covers least."""
    x, y = panel.axes.transData.transform(place)
    inner = panel.axes.get_window_extent()
    best, least = None, math.inf if front else 1
    for ring in _RINGS if front else _RINGS[:_NEAR]:
        for across, along in _around(ring * panel.pixel, size):
            left, low = x + across - size.width / 2, y + along - size.height / 2
            box = Bbox.from_bounds(left, low, size.width, size.height)
            if box.count_overlaps(panel.names) or not _is_within(box, inner):
                continue
            hit = box.count_overlaps(panel.marks)
            hit += sum(line.intersects_bbox(box, filled=False) for line in panel.lines)
            if hit < least:
                best, least = ((across, along), ring, box), hit
    return best


def _edge(offset: float, size: float) -> float:
    """Where the line from a point meets its name, in one direction."""
    return math.copysign(max(0.0, abs(offset) - size / 2), offset)


def _around(ring: float, size: Bbox) -> Iterator[Place]:
    """Offsets in pixels from a point to the middle of its name, the right first."""
    for turn in range(_TURNS):
        angle = 2 * math.pi * ((turn + 1) // 2) * (-1) ** turn / _TURNS
        across, along = math.cos(angle), math.sin(angle)
        yield (
            across * ring + _side(across) * size.width / 2,
            along * ring + _side(along) * size.height / 2,
        )


def _side(share: float) -> float:
    return 0.0 if abs(share) < 0.2 else math.copysign(1.0, share)


def _marks(axes: Axes, size: float) -> Iterator[Bbox]:
    """What the marks of `axes` cover."""
    for line in axes.get_lines():
        if line.get_marker() not in ("None", "", None):
            for x, y in axes.transData.transform(line.get_xydata()):
                yield Bbox.from_bounds(x - size / 2, y - size / 2, size, size)


def _is_within(box: Bbox, inner: Bbox) -> bool:
    return bool(inner.contains(box.x0, box.y0) and inner.contains(box.x1, box.y1))
