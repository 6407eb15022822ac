"""Bars made of parts that add up: a colour and hatch for each part, numbers in the wide ones."""

from __future__ import annotations

import re
from collections.abc import Mapping

from matplotlib.axes import Axes

from archgen.outcomes.frame import Frame
from archgen.plots.style import COMPONENTS, INK, filled, readable_on

_NAMED_FROM = 0.085


def draw_stack(
    axes: Axes, place: float, parts: Mapping[str, float], colours: Mapping[str, str], whole: float,
    height: float = 0.72,
) -> float:  # fmt: skip
    """Draw `parts` (by name, in order) as one bar in row `place`; gives its length.

    Parts of at least 8.5 % of `whole`, the width of the axes, bear their number.
    """
    left = 0.0
    for name, length in parts.items():
        if not length > 0:
            continue
        colour = colours[name]
        axes.barh(place, length, left=left, height=height, **filled(colour))
        if length >= _NAMED_FROM * whole:
            axes.text(
                left + length / 2, place, _short(length, whole),
                color=readable_on(colour), fontsize=8, ha="center", va="center",
                bbox={"fc": colour, "ec": "none", "pad": 1.2},
            )  # fmt: skip
        left += length
    return left


def _short(length: float, whole: float) -> str:
    """Two digits, or as many as stand before the point; shares of a hundred are whole."""
    return f"{length:.0f}" if length >= 10 or whole == 100 else f"{length:.2g}"


def component_colours(frame: Frame, pattern: re.Pattern[str]) -> dict[str, str]:
    """Colours of the columns that `pattern` matches and that are not zero everywhere.

    The pattern's first group is the component. Order is that of `COMPONENTS`, others last.
    """
    found = {name: match[1] for name in map(str, frame) if (match := pattern.fullmatch(name))}
    known = list(COMPONENTS)
    order = sorted(found, key=lambda name: [*known, found[name]].index(found[name]))
    used = [name for name in order if (frame[name].fillna(0) > 0).any()]
    return {name: COMPONENTS.get(found[name], INK) for name in used}
