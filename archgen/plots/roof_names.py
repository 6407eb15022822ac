"""What roofs are: peaks over the right ends of their lines, bandwidths at the left ends of theirs.

The one idea: the lowest and the highest always have a name, the lowest bandwidth below its line. Of
those between, what has no room below the next line is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from archgen.plots.labels import OUTLINE

_SIZE = 7.5
_ABOVE = 2.0
"""Points between a line and its name."""
_NEED = 1.2 * _SIZE + _ABOVE
"""Points that a name takes above its line."""


@dataclass(frozen=True)
class Roofs:
    """The roofs of a panel."""

    peaks: Sequence[tuple[float, str]]
    """GMAC/s, and what the line is called."""
    slopes: Sequence[float]
    """GB/s, ascending; empty where there is nothing to tell apart."""
    span: tuple[float, float]
    """Ends of the axis, MAC per byte."""


def name_roofs(figure: Figure, panels: Sequence[tuple[Axes, Roofs]]) -> None:
    """Write the names of each panel's roofs. The layout of `figure` must be final but for them."""
    figure.draw_without_rendering()
    for panel, roofs in panels:
        _name_peaks(panel, roofs)
        if roofs.slopes:
            _name_slopes(panel, roofs, _NEED * figure.dpi / 72)


def _name_peaks(panel: Axes, roofs: Roofs) -> None:
    names: list[Bbox] = []
    first, *between = sorted(roofs.peaks)
    for peak, text in [first, *between[-1:], *between[:-1]]:
        note = panel.annotate(
            text, (roofs.span[1], peak), (-_ABOVE, _ABOVE), textcoords="offset points", ha="right",
            va="bottom", fontsize=_SIZE, path_effects=OUTLINE,
        )  # fmt: skip
        note.set_in_layout(False)
        box = note.get_window_extent()
        if box.count_overlaps(names):
            note.remove()
        else:
            names.append(box)


def _name_slopes(panel: Axes, roofs: Roofs, need: float) -> None:
    left, right = 1.15 * roofs.span[0], 2 * roofs.span[0]
    for slope, below in _with_room(panel, roofs.slopes, left, need):
        (a, b), (c, d) = panel.transData.transform([(left, left * slope), (right, right * slope)])
        panel.annotate(
            f"{slope:.4g} GB/s", (left, left * slope), (0, -2 * _ABOVE if below else _ABOVE),
            textcoords="offset points", ha="left", va="top" if below else "bottom",
            rotation=math.degrees(math.atan2(d - b, c - a)), rotation_mode="anchor",
            fontsize=_SIZE, path_effects=OUTLINE,
        ).set_in_layout(False)  # fmt: skip


def _with_room(
    panel: Axes, slopes: Sequence[float], left: float, need: float
) -> Iterator[tuple[float, bool]]:
    """Slopes whose names fit below the next line, and whether they stand below their own."""
    heights = panel.transData.transform([(left, left * slope) for slope in slopes])[:, 1]
    for n, slope in enumerate(slopes):
        if 0 < n < len(slopes) - 1 and heights[n + 1] - heights[n] < need:
            continue
        yield slope, n == 0 < len(slopes) - 1
