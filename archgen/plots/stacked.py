"""Bars made of parts that add up: a colour and hatch for each part, numbers in the wide ones."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from archgen.plots.style import filled, readable_on

_NAMED_FROM = 0.07


def draw_stack(
    axes: Axes, place: float, parts: Mapping[str, float], colours: Mapping[str, str], whole: float
) -> float:
    """Draw `parts` (by name, in order) as one bar in row `place`; gives its length.

    Parts of at least 7 % of `whole`, the width of the axes, bear their number.
    """
    left = 0.0
    for name, length in parts.items():
        if not length > 0:
            continue
        colour = colours[name]
        axes.barh(place, length, left=left, height=0.72, **filled(colour))
        if length >= _NAMED_FROM * whole:
            axes.text(
                left + length / 2, place, f"{length:.0f}" if whole == 100 else f"{length:.2g}",
                color=readable_on(colour), fontsize=8, ha="center", va="center",
                bbox={"fc": colour, "ec": "none", "pad": 1.2},
            )  # fmt: skip
        left += length
    return left
