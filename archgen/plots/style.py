"""One look for all figures: a palette safe for colour-blind readers, sizes, text.

The one idea: a colour means the same engine, cause or memory everywhere, and every colour that
another resembles in grey has a hatch of its own, so that a print without colours says the same.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from simmodel.arch import Arch

# Okabe and Ito's palette, a brown, and greys.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, BROWN = "#0072B2", "#D55E00", "#CC79A7", "#7A4A1E"
INK, MUTED, GREY, PALE = "#222222", "#666666", "#999999", "#DDDDDD"
GRID, PAPER = "#EEEEEE", "#FEFEFE"
"""Lines of the grid; what separates neighbours. A page may switch these, `INK` and `MUTED`."""
LIGHT, DARK = "#FFFFFF", "#111111"
"""Text on an area that keeps its colour."""

CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, GREY)
MARKERS = "osD^vP*X<>hp"
HATCHES: Mapping[str, str] = {
    ORANGE: "////", PURPLE: "....", GREEN: "\\\\\\\\", YELLOW: "----", BROWN: "xxxx", SKY: "||||",
    "#7FB8D8": "oo", "#B9D9EA": "++",
}  # fmt: skip
"""Hatch of each colour that has one."""

BUSY = BLUE
CAUSES: Mapping[str, str] = {
    "data": VERMILION, "store": ORANGE, "engine": GREEN, "core": PURPLE, "front_end": YELLOW,
    "conflict": BROWN, "bandwidth": SKY, "fill": GREY, "no_work": PALE,
}  # fmt: skip
"""Colour of each cause of idle cycles (`simmodel.trace.CAUSES`)."""
WORK: Mapping[str, str] = {
    "products": BUSY, "products_again": "#003A5C", "padding": "#7FB8D8", "start_ups": "#B9D9EA",
}  # fmt: skip
"""Colour of each part of what matrix engines are busy with."""
MOVED: Mapping[str, str] = {"compulsory": BUSY, "again": "#003A5C", "idle": PALE}
"""Colour of each part of DRAM's time."""
MEMORIES: Mapping[str, str] = {
    "shared": ORANGE, "local": SKY, "weights": YELLOW, "accumulators": PURPLE, "dram": VERMILION,
}  # fmt: skip
COMPONENTS: Mapping[str, str] = {
    "mac": BLUE, "vector": GREEN, **MEMORIES, "link": BROWN, "instruction": GREY, "leakage": PALE,
    "scalar": "#7FB8D8", "copy": "#003A5C", "front_end": "#B9D9EA", "other": GREY,
}  # fmt: skip
"""Colour of each part of a machine that costs energy or area, from the inside out."""

SETTINGS: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.edgecolor": GREY, "axes.labelcolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "axes.grid": True, "grid.color": GRID, "legend.frameon": False,
    "figure.facecolor": "white", "hatch.linewidth": 0.5,
}  # fmt: skip
RUN: Any = {"ls": "", "marker": "*", "ms": 10, "mec": "white", "mew": 0.6}
"""Mark of what a run gave, beside what was estimated."""
LETTER, _BOLD = 0.085, 0.12
"""Inches, generously, of a letter, and of one of a figure's title."""
_NUMBERS = 1.1
"""Inches of a decade from which on there is room for three numbers."""
_ENDS = re.compile(r"(?<=[-_./,:])(?=[^\s])")
"""Where a word may be broken."""


def engine_colour(arch: Arch, engine: str) -> str:
    """Colour of an engine: its kind, and of a copy engine which way it moves data."""
    fixed = {"matrix": BLUE, "vector": GREEN, "scalar": GREY, "host": BROWN}
    copy = arch.copy_.get(engine)
    if copy is None:
        return fixed.get(engine, INK)
    if copy.peer:
        return PURPLE
    if "dram" in copy.to:
        return VERMILION
    return ORANGE if "dram" in copy.from_ else SKY


def readable_on(colour: str) -> str:
    """Light or dark, whichever stands out more from `colour`."""
    red, green, blue = to_rgb(colour)
    return DARK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else LIGHT


def filled(colour: str) -> dict[str, Any]:
    """How an area of `colour` among others is drawn: its hatch, and a thin gap to its neighbour."""
    line = MUTED if colour == YELLOW else PAPER
    return {"fc": colour, "ec": line, "lw": 0.5, "hatch": HATCHES.get(colour, "")}


def keys(colours: Mapping[str, str]) -> list[Patch]:
    """Handles of a legend for areas drawn as `filled`."""
    return [Patch(label=label, **filled(colour)) for label, colour in colours.items()]


def folded(text: str, letters: int) -> str:
    """`text` in lines of at most as many letters, broken at spaces and after `-`, `_` and the
    like; a word without these is broken anywhere."""
    lines: list[str] = []
    for line in textwrap.wrap(text, letters, break_long_words=False, break_on_hyphens=False):
        lines.append("")
        for part in _ENDS.split(line):
            if lines[-1] and len(lines[-1]) + len(part) > letters:
                lines.append("")
            lines[-1] += part
    return "\n".join(
        line[at : at + letters] for line in lines for at in range(0, len(line), letters)
    )


def legend_columns(figure: Figure, labels: Sequence[str]) -> int:
    """How many columns of a legend with these labels the figure is wide enough for."""
    longest = max(map(len, labels), default=1) * LETTER + 0.5
    return max(1, min(len(labels), int(figure.get_figwidth() / longest)))


def title(figure: Figure, text: str) -> None:
    """What the whole figure shows, at the top left, in as many lines as its width asks for."""
    letters = int(figure.get_figwidth() / _BOLD)
    words = [folded(word, letters) if len(word) > letters else word for word in text.split(" ")]
    figure.suptitle(" ".join(words), fontweight="bold", x=0.01, ha="left", wrap=True)


def say(axes: Axes, text: str) -> None:
    """Words in the place of a drawing: why there is none."""
    axes.set_axis_off()
    axes.text(0.02, 0.6, text, transform=axes.transAxes, color=MUTED, style="italic", va="center")


class _Decades(LogLocator):
    """Ticks at 1, 2 and 5 of each decade, over three and more at decades alone, as where an axis
    has no room for the numbers of all."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Ticks between two ends, and one beyond each."""
        few = vmax >= 1e3 * vmin or (vmin < vmax and self._inches(vmin, vmax) < _NUMBERS)
        self.set_params(subs=(1.0,) if few else (1.0, 2.0, 5.0))
        return super().tick_values(vmin, vmax)

    def _inches(self, vmin: float, vmax: float) -> float:
        """Of a decade across the picture; infinite for upright axes, whose numbers are low."""
        panel = getattr(self.axis, "axes", None)
        if panel is None or self.axis is not panel.xaxis or vmin <= 0:
            return math.inf
        return float(panel.get_window_extent().width / panel.figure.dpi / math.log10(vmax / vmin))


def decades(*found: Axis) -> None:
    """Number axes of a logarithmic scale as people write: 0.5, 20, 1,000."""
    for axis in found:
        axis.set_major_locator(_Decades())
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def colour_bar(figure: Figure, shades: ScalarMappable, axes: Axes, text: str = "") -> None:
    """What shades mean: values from the least to the most."""
    least, most = shades.get_clim()
    assert least is not None
    assert most is not None
    bar = figure.colorbar(shades, ax=axes, format=lambda value, _: f"{value:.3g}", pad=0.02)
    bar.set_ticks((np.geomspace if least > 0 else np.linspace)(least, most, 5).tolist())
    bar.minorticks_off()
    bar.set_label(text)
