"""One look for all figures: a palette safe for colour-blind readers, sizes, text.

The one idea: a colour means the same engine, cause or memory everywhere, and every colour that
another resembles in grey has a hatch of its own, so that a print without colours says the same.
"""

from __future__ import annotations

import hashlib
import html
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from simmodel.arch.record import Arch

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
MOVED: Mapping[str, str] = {
    "compulsory": BUSY, "again": "#003A5C", "overhead": ORANGE, "idle": PALE,
}  # fmt: skip
"""Colour of each part of DRAM's time."""
MEMORIES: Mapping[str, str] = {
    "shared": ORANGE, "local": SKY, "weights": YELLOW, "accumulators": PURPLE, "dram": VERMILION,
    "flash": BROWN,
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
    "axes.titley": 1.0,  # else every title is held against ticks, and none are above a panel
}  # fmt: skip
RUN: Any = {"ls": "", "marker": "*", "ms": 10, "mec": "white", "mew": 0.6}
"""Mark of what a run gave, beside what was estimated."""
LETTER, _BOLD = 0.085, 0.12
"""Inches, generously, of a letter, and of one of a figure's title."""
_BOLD_LINE = 0.2
"""Inches of a line of a figure's title."""


def engine_colour(arch: Arch, engine: str) -> str:
    """Colour of an engine: its kind, and of a copy engine which way it moves data."""
    fixed = {"vector": GREEN, "scalar": GREY, "host": BROWN}
    fixed |= {unit: BLUE for name in ("matrix", *arch.arrays) for unit in arch.units(name)}
    copy = arch.copy_.get(engine)
    if copy is None:
        return fixed.get(engine, PURPLE if engine in arch.engines_ else INK)
    if copy.peer:
        return PURPLE
    if "dram" in copy.to:
        return VERMILION
    return ORANGE if "dram" in copy.from_ else SKY


def readable_on(colour: Any) -> str:
    """Light or dark, whichever stands out more from `colour`."""
    red, green, blue = to_rgb(colour)
    return DARK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else LIGHT


def filled(colour: str) -> dict[str, Any]:
    """How an area of `colour` among others is drawn: its hatch, and a thin gap to its neighbour."""
    line = MUTED if colour == YELLOW else PAPER
    return {"fc": colour, "ec": line, "lw": 0.5, "hatch": HATCHES.get(colour, "")}


def patches(colours: Mapping[str, str]) -> list[Patch]:
    """Handles of a legend for areas drawn as `filled`."""
    return [Patch(label=label, **filled(colour)) for label, colour in colours.items()]


def wrapped(text: str, letters: int) -> str:
    """`text` in lines of at most as many letters, broken at spaces, hyphens and commas where it can
    be."""
    apart = re.sub(r",(?=\S)", ",\0 ", text)  # options of a network have no spaces between them
    return textwrap.fill(apart, letters).replace("\0 ", "").replace("\0", "")


def legend(figure: Figure, handles: Sequence[Any], text: str = "", most: int = 6) -> int:
    """A legend below the panels under the words `text`, in as many columns as there is room for,
    `most` at most; gives its lines."""
    if not handles:
        return 0
    longest = max(len(str(each.get_label())) for each in handles) * LETTER + 0.5
    columns = max(1, min(len(handles), most, int(figure.get_figwidth() / longest)))
    drawn = figure.legend(
        handles=list(handles), loc="outside lower left", ncols=columns, alignment="left",
        title=wrapped(text, int(figure.get_figwidth() / LETTER)) or None, title_fontsize=8,
    )  # fmt: skip
    drawn.get_title().set_color(MUTED)
    return math.ceil(len(handles) / columns)


def title(figure: Figure, text: str) -> None:
    """What the figure shows, at the top left, in as many lines as its width asks for, by which the
    figure grows."""
    lines = wrapped(text, int(figure.get_figwidth() / _BOLD))
    more = lines.count("\n") - figure.get_suptitle().count("\n")
    figure.set_figheight(figure.get_figheight() + more * _BOLD_LINE)
    figure.suptitle(lines, fontweight="bold", x=0.01, ha="left")


def with_final_layout(figure: Figure, dpi: float) -> Figure:
    """`figure` with everything in its final place, by letters as they are at `dpi`: whoever draws
    it looks for none."""
    if (engine := figure.get_layout_engine()) is not None:
        usual = figure.dpi
        figure.set_dpi(dpi)
        engine.execute(figure)
        figure.set_dpi(usual)
        figure.set_layout_engine(None)  # else it is drawn once more for each file
    return figure


def placeholder(axes: Axes, text: str) -> None:
    """Words in the place of a drawing: why there is none."""
    axes.set_axis_off()
    axes.text(0.02, 0.6, text, transform=axes.transAxes, color=MUTED, style="italic", va="center")


class _Decades(LogLocator):
    """Ticks at 1, 2 and 5 of each decade, from a range of 30 times on at decades alone."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Ticks between two ends, and one beyond each."""
        self.set_params(subs=(1.0,) if vmax >= 30 * vmin else (1.0, 2.0, 5.0))
        return super().tick_values(vmin, vmax)


def logarithmic(axes: Axes, sides: str = "xy") -> None:
    """Make sides of a panel logarithmic, numbered as people write: 0.5, 20, 1,000."""
    for side in sides:
        axes.set(**{f"{side}scale": "log"})
        axis: Axis = getattr(axes, f"{side}axis")
        axis.set_major_locator(_Decades())
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def number_text(value: float) -> str:
    """Three digits; whole above a thousand, with separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


# A figure as SVG text that fits into a page, whatever the page's colours.

SALT: Any = {"svg.fonttype": "none", "svg.hashsalt": "archgen"}
NO_DATE: Mapping[str, Any] = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
"""What files of a format would say of the moment and the program that wrote them."""
_OPEN = {
    INK: "currentColor",
    GRID: f"var(--figure-grid, {GRID})",
    PAPER: f"var(--figure-paper, {PAPER})",
    MUTED: f"var(--figure-muted, {MUTED})",
}
_SVG_DPI = 72
"""Of matplotlib's drawings as SVG."""
_NAMED = re.compile(r'(\bid="|href="#|url\(#)')
_SIZE = re.compile(r'width="([\d.]+)pt" height="[\d.]+pt"')
_FOR_ALL = re.compile(r"<style[^>]*>\*\{([^}]*)\}</style>")
"""What holds for a whole file, and would hold for the whole page."""
_ABOUT = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)


def as_svg(figure: Figure) -> str:
    """`figure` as an `<svg>` element for a page: as wide as it was drawn, or as the page allows,
    text as text, the same bytes every time.

    Ids are unique to the figure's content. Its title describes it to those who cannot see it.
    """
    target = StringIO()
    with_final_layout(figure, _SVG_DPI)
    with rc_context(SALT):
        figure.savefig(target, format="svg", transparent=True, metadata=NO_DATE["svg"])
    text = target.getvalue()
    text = text[text.index("<svg") :]
    prefix = f"f{hashlib.sha256(text.encode()).hexdigest()[:8]}-"
    text = _NAMED.sub(lambda match: match[1] + prefix, text)
    for colour, reference in _OPEN.items():
        text = re.sub(re.escape(colour), reference, text, flags=re.IGNORECASE)
    for_all = _FOR_ALL.search(text)
    style = f"max-width: 100%; height: auto; {for_all[1] if for_all else ''}"
    label = html.escape(figure.get_suptitle())
    text = _ABOUT.sub("", _FOR_ALL.sub("", text, count=1), count=1)
    return _SIZE.sub(
        lambda size: f'width="{size[1]}pt" style="{style}" role="img" aria-label="{label}"',
        text, count=1,
    ).strip()  # fmt: skip
