"""What the plots over all points are told: which columns are axes, and what they start with.

The one idea: the table of all points is the data. Its rows hold every figure that can be chosen, so
plots draw what the table holds and a filter or a brush hides rows of it; nothing is said twice.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from archgen.plots.style import CYCLE
from archgen.report.sheet import Heading, Sheet

# The plotting library that a page carries in itself.

_FILE = "plotly/package_data/plotly.min.js"
_END = "*/"
_LICENCES = ("licenses/LICENSE.txt", "licenses/LICENSE", "LICENSE.txt", "LICENSE")


@cache
def plotting_library() -> tuple[str, str]:
    """What its authors want to be said with every copy, and its text in UTF-8, deflated (zlib), in
    base64."""
    plotly = distribution("plotly")
    content = Path(str(plotly.locate_file(_FILE))).read_bytes()
    head, end, _ = content[:2000].decode("utf-8", "replace").partition(_END)
    said = "\n".join(line.strip("/* ") for line in head.splitlines()) if end else ""
    terms = next(filter(None, map(plotly.read_text, _LICENCES)), "")
    both = "\n\n".join(filter(None, (said.strip(), terms.strip())))
    return both, b64encode(zlib.compress(content, 9)).decode("ascii")


LEAST = 6
"""Results from which on plots are worth the size of what draws them."""
_NAMES = ("machine", "workload", "choice", "status")
_FIGURES = ("estimated", "latency", "throughput", "energy", "area", "matrix_use", "held_by")
_MORE = ("throughput", "speed", "matrix_use", "of_roofline", "per_area", "efficiency")
_LESS = ("estimated", "latency", "dram", "local_peak", "energy", "area", "on_host")


@dataclass(frozen=True)
class Explorer:
    """The plots over all points of a page."""

    licence: str
    """Of the plotting library."""
    library: str
    """It, as a page holds it."""
    columns: str
    """What the page's script is told, as JSON without markup."""


def explorer(
    points: Sheet, fields: Sequence[Heading], lengths: Sequence[Heading] = ()
) -> Explorer | None:
    """Plots of the table `points`, in which `fields` of machines and `lengths` of networks were
    swept; None for few results."""
    headings = {each.name: each for each in points.headings}
    # A point is a line only where it has a value on every axis.
    results = _count_values(points, "latency")
    if results < LEAST:
        return None
    said = {
        "columns": {
            name: {"text": h.text, "unit": h.unit, "said": h.said} for name, h in headings.items()
        },
        "names": _existing_columns(_NAMES, headings),
        "fields": _existing_columns((each.name for each in (*lengths, *fields)), headings),
        "lengths": _existing_columns((each.name for each in lengths), headings),
        "figures": [n for n in _FIGURES if _count_values(points, n) >= results / 2],
        "more": _existing_columns(_MORE, headings),
        "less": _existing_columns(_LESS, headings),
        "palette": CYCLE,
    }
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    return Explorer(*plotting_library(), text.replace("<", "\\u003c").replace("&", "\\u0026"))


def _count_values(points: Sheet, column: str) -> int:
    names = [each.name for each in points.headings]
    place = names.index(column) if column in names else None
    return 0 if place is None else sum(bool(row[place].value) for row in points.rows)


def _existing_columns(names: Iterable[str], headings: dict[str, Heading]) -> list[str]:
    return [name for name in names if name in headings]
