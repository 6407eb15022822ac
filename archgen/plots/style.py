"""One look for all figures: a palette safe for colour-blind readers, sizes, text.

The one idea: a colour means the same engine, cause or memory everywhere, and every colour that
another resembles in grey has a hatch of its own, so that a print without colours says the same.
"""

from __future__ import annotations

import hashlib
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from archgen.outcomes.frame import Record, number
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


# A figure as SVG text that fits into a page, whatever the page's colours.

_SALT: Any = {"svg.fonttype": "none", "svg.hashsalt": "archgen"}
_NO_DATE = {"Date": None, "Creator": None}
_OPEN = {
    INK: "currentColor",
    GRID: f"var(--figure-grid, {GRID})",
    PAPER: f"var(--figure-paper, {PAPER})",
    MUTED: f"var(--figure-muted, {MUTED})",
}
_NAMED = re.compile(r'(\bid="|href="#|url\(#)')
_SIZE = re.compile(r'width="([\d.]+)pt" height="[\d.]+pt"')
_FOR_ALL = re.compile(r"<style[^>]*>\*\{([^}]*)\}</style>")
"""What holds for a whole file, and would hold for the whole page."""
_ABOUT = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)


def svg_text(figure: Figure, transparent: bool = False) -> str:
    """`figure` as a whole SVG file: text as text, the same bytes every time. On white, as nobody
    knows where a file is shown, unless it is `transparent`."""
    target = StringIO()
    with rc_context(_SALT):
        figure.savefig(target, format="svg", transparent=transparent, metadata=_NO_DATE)
    return target.getvalue()


def as_svg(figure: Figure) -> str:
    """`figure` as an `<svg>` element for a page: as wide as it was drawn, or as the page allows.

    Ids are unique to the figure's content. Its title describes it to those who cannot see it.
    """
    text = svg_text(figure, transparent=True)
    text = text[text.index("<svg") :]
    prefix = f"f{hashlib.sha256(text.encode()).hexdigest()[:8]}-"
    text = _NAMED.sub(lambda match: match[1] + prefix, text)
    for colour, reference in _OPEN.items():
        text = re.sub(re.escape(colour), reference, text, flags=re.IGNORECASE)
    for_all = _FOR_ALL.search(text)
    style = f"max-width: 100%; height: auto; {for_all[1] if for_all else ''}"
    text = _ABOUT.sub("", _FOR_ALL.sub("", text, count=1), count=1)
    said = _escaped(figure.get_suptitle())
    text = _SIZE.sub(
        rf'width="\1pt" style="{style}" role="img" aria-label="{said}"',
        text, count=1,
    )  # fmt: skip
    return text.strip()


def _escaped(text: str) -> str:
    """`text` as it stands in an attribute and in a replacement of `re.sub`."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return plain.replace("\\", r"\\")


# What sweeps are drawn of: a few figures of points, as people read them.

_PEAK = re.compile(r"peak_(?!dram_)(.+)_bytes")


@dataclass(frozen=True)
class Metric:
    """One figure of a point."""

    name: str
    unit: str
    of: Callable[[Record], float]
    """Its value in `unit`, NaN where it is missing."""
    more: bool = False
    """Whether more of it is better."""
    buys: bool = True
    """Whether a larger machine is made to better it; area is what it is paid with."""

    def changes(self, one: Record, other: Record) -> bool:
        """Whether both rows have it, and it is another."""
        values = self.of(one), self.of(other)
        return not any(map(math.isnan, values)) and values[0] != values[1]

    @property
    def title(self) -> str:
        """`latency [ms]`."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def _traffic(row: Record) -> float:
    return (number(row, "dram_read_bytes") + number(row, "dram_write_bytes")) / 1e6


LATENCY = Metric("latency", "ms", lambda row: number(row, "latency_ms"))
ENERGY = Metric("energy", "mJ", lambda row: number(row, "energy_mj"))
AREA = Metric("area", "mm²", lambda row: number(row, "area_mm2"), buys=False)
METRICS = (
    LATENCY,
    Metric("throughput", "samples/s", lambda row: number(row, "throughput_ips"), more=True),
    ENERGY,
    AREA,
    Metric(
        "throughput per area",
        "samples/s/mm²",
        lambda row: number(row, "throughput_per_mm2"),
        more=True,
    ),
    Metric("DRAM traffic", "MB", _traffic),
    Metric("matrix use", "%", lambda row: 100 * number(row, "matrix_utilization"), more=True),
)
"""Of every sweep, as far as the study knows them."""


def available_metrics(metrics: Sequence[Metric], rows: Sequence[Record]) -> list[Metric]:
    """Those that some row has a value of."""
    return [each for each in metrics if any(not math.isnan(each.of(row)) for row in rows)]


def peaks(rows: Sequence[Record]) -> list[Metric]:
    """The most that is alive at once in each memory on chip, which some row has."""
    columns = dict.fromkeys(name for row in rows for name in row if _PEAK.fullmatch(name))
    return [_peak(name, found[1]) for name in columns if (found := _PEAK.fullmatch(name))]


def _peak(column: str, memory: str) -> Metric:
    name = f"{memory} memory alive at once"
    return Metric(name, "KiB", lambda row: number(row, column) / 1024, buys=False)
