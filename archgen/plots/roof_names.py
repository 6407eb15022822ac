"""What roofs are: peaks over the right ends of their lines, bandwidths along their slopes.

The one idea: a name moves along its line until it covers neither a mark nor another name. The
lowest and the highest come first; of those between, what cannot be read is left out, as are
bandwidths whose names the next line above would strike through.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archgen.plots.labels import Boxes, around, boxes_of, covered, marks_in

_SIZE = 7.5
_STEPS = 12
"""Places that are tried along a line."""
_LINE = 1.2
"""Height of a line of text, in its size."""
_ABOVE = 2.0
"""Points between a line and its name."""


@dataclass(frozen=True)
class Roofs:
    """The roofs of a panel."""

    peaks: Sequence[tuple[float, str]]
    """GMAC/s, and what the line is called."""
    slopes: Sequence[float]
    """GB/s; empty where there is nothing to tell apart."""
    span: tuple[float, float]
    """Ends of the axis, MAC per byte."""


@dataclass(frozen=True)
class _Line:
    """A straight part of a roof, from the end where its name belongs to the other."""

    start: tuple[float, float]
    end: tuple[float, float]
    text: str
    flat: bool
    below: bool = False
    """Whether the name stands below it."""


def name_roofs(figure: Figure, panels: Sequence[tuple[Axes, Roofs]]) -> dict[Axes, Boxes]:
    """Write the names of each panel's roofs; gives what the texts of each cover. The layout of
    `figure` must be final but for them."""
    figure.draw_without_rendering()
    return {panel: _name(figure, panel, roofs) for panel, roofs in panels}


def _name(figure: Figure, panel: Axes, roofs: Roofs) -> Boxes:
    names = boxes_of(panel.texts)
    marks = marks_in(panel)
    for line in [*_ends_first(_flats(roofs)), *_ends_first(_apart(figure, panel, _slopes(roofs)))]:
        places = _places(figure, panel, line)
        clear = [n for n, (_, own) in enumerate(places) if not covered(own, names).any()]
        best = min(clear, key=lambda n: (covered(places[n][1], marks).sum(), n), default=None)
        if best is None:
            continue
        (x, y), own = places[best]
        names = np.vstack([names, own])
        panel.annotate(
            line.text, (x, y), (0.0, -2 * _ABOVE if line.below else _ABOVE),
            textcoords="offset points", va="top" if line.below else "bottom",
            rotation=0 if line.flat else _angle(panel, line), rotation_mode="anchor",
            ha="right" if line.flat else "left", fontsize=_SIZE,
        ).set_in_layout(False)  # fmt: skip
    return names


def _flats(roofs: Roofs) -> list[_Line]:
    """Peaks in their order, named over their right ends."""
    most = max(roofs.slopes, default=math.inf)
    found = []
    for peak, text in sorted(roofs.peaks):
        ridge = max(roofs.span[0], peak / most)
        found.append(_Line((0.98 * roofs.span[1], peak), (ridge, peak), text, flat=True))
    return found


def _slopes(roofs: Roofs) -> list[_Line]:
    """Bandwidths in their order, named from their left ends on."""
    peak = max((peak for peak, _ in roofs.peaks), default=math.inf)
    left = 1.15 * roofs.span[0]
    return [
        _Line((left, left * slope), (peak / slope, peak), f"{slope:.4g} GB/s", flat=False)
        for slope in sorted(roofs.slopes)
    ]


def _apart(figure: Figure, panel: Axes, slopes: Sequence[_Line]) -> list[_Line]:
    """Those that leave a name its height below the next, and the highest; the lowest has its name
    below where there is no room above."""
    need = (_SIZE * _LINE + _ABOVE) * figure.dpi / 72
    kept = []
    for line, above in pairwise(slopes):
        (_, low), (_, high) = panel.transData.transform([line.start, above.start])
        if (high - low) * math.cos(math.radians(_angle(panel, line))) >= need:
            kept.append(line)
        elif line is slopes[0]:
            kept.append(replace(line, below=True))
    return [*kept, *slopes[-1:]]


def _ends_first(lines: Sequence[_Line]) -> list[_Line]:
    return [*lines[:1], *lines[1:][-1:], *lines[1:-1]]


def _angle(panel: Axes, line: _Line) -> float:
    """Degrees at which a line rises in the picture."""
    (a, b), (c, d) = panel.transData.transform([line.start, line.end])
    return math.degrees(math.atan2(d - b, c - a))


def _places(figure: Figure, panel: Axes, line: _Line) -> list[tuple[tuple[float, float], Boxes]]:
    """Where a name may stand, the end of its line first, and the boxes that it covers there."""
    probe = panel.annotate(line.text, line.start, fontsize=_SIZE)
    size = probe.get_window_extent()
    probe.remove()
    pixel = figure.dpi / 72
    ends = panel.transData.transform([line.start, line.end])
    length = float(np.hypot(*(ends[1] - ends[0])))
    along = (ends[1] - ends[0]) / (length or 1.0)
    # Above the line, whichever way it goes.
    up = np.array([0.0, 1.0]) if line.flat else np.array([-along[1], along[0]])
    up = -up if line.below else up
    count = max(1, math.ceil(size.width / size.height))
    steps = (np.arange(count) + 0.5) * size.width / count
    found = []
    for share in np.linspace(0, 1, _STEPS):
        start = share * (length - size.width)
        if start < 0 and share:
            break
        corner = ends[0] + max(0.0, start) * along
        middle = corner + up * (size.height / 2 + _ABOVE * pixel)
        own = around(middle + steps[:, None] * along, size.height)
        x, y = panel.transData.inverted().transform(corner)
        found.append(((float(x), float(y)), own))
    return found
