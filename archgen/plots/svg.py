"""A figure as SVG text that fits into a page, whatever the page's colours.

The one idea: text stays text and the background is empty; what is drawn in ink, grid, paper and
muted tones refers to the page's colours instead: `currentColor` and the CSS variables
`--figure-grid`, `--figure-paper` and `--figure-muted`. Colours that mean something stay.
"""

from __future__ import annotations

import hashlib
import re
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from archgen.plots.style import GRID, INK, MUTED, PAPER

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
