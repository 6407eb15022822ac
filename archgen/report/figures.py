"""The figures of the page as SVG, with words on how to read them, within bounds on their size.

The one idea: a page that nobody can open helps nobody. Bars are drawn for as many points as can be
read, details for a few, and what is left out for its size is named in its place.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from matplotlib.figure import Figure

from archgen.outcomes.frame import layers_frame, levels_frame, spans_frame
from archgen.outcomes.points import Outcome
from archgen.plots import as_svg, detail_figures
from archgen.plots.saving import MOST_ROWS
from archgen.plots.style import CYCLE
from archgen.report.points import PointView
from archgen.report.ranking import Ranking, Standing
from archgen.report.sheet import Heading, Sheet
from archgen.schema.source import read_packaged

DETAILS = 4
"""Most points that are shown in detail."""
_LARGEST = 700_000
"""Characters of one figure."""
_ALL = 5_000_000
"""Characters of all details together."""
COSTS = ("figure-energy", "figure-area")

_WORDS = read_packaged(Path(__file__).with_name("figures.yaml"))
"""Titles of figures, and how to read them."""


@dataclass(frozen=True)
class Drawing:
    """A figure of the page."""

    name: str
    """Id in the page."""
    title: str
    said: str
    """How to read it."""
    svg: str
    """Empty where it is left out for its size."""


def drawings_of(figures: Iterable[tuple[str, Figure]], anchor: str = "figure") -> Iterator[Drawing]:
    """`figures` by name, as the page shows them; their ids start with `anchor`."""
    for name, figure in figures:
        kind = name.rsplit("/", 1)[-1]
        title, said = _title_and_text(kind)
        svg = as_svg(figure)
        yield Drawing(f"{anchor}-{kind}", title, said, svg if len(svg) <= _LARGEST else "")


def _title_and_text(kind: str) -> tuple[str, str]:
    first, _, swept = kind.partition("_")
    if first in _WORDS["over"]:
        entry = _WORDS["over"][first]
        return f"{entry['title']} {swept.replace('_', ' and ')}", entry["text"]
    entry = _WORDS["figures"].get(kind, {"title": kind.replace("_", " ").capitalize()})
    return entry["title"], entry.get("text", "")


def chosen_details(ranked: Sequence[Standing], workloads: Sequence[str]) -> list[PointView]:
    """The points to be shown in detail: the best of each workload on the best machines, `ranked`
    without those that are another one by a different name."""
    best = [
        standing.best[name] for standing in ranked for name in workloads if name in standing.best
    ]
    return [point for point in best if point.has_run][:DETAILS]


def details(point: PointView, outcome: Outcome) -> list[Drawing]:
    """What happened within one point."""
    frames = [make([outcome]) for make in (layers_frame, spans_frame, levels_frame)]
    given = [None if frame.empty else frame for frame in frames]
    return list(drawings_of(detail_figures({point.machine: point.arch}, *given), point.anchor))


def within_size(groups: Sequence[Sequence[Drawing]], room: int) -> list[list[Drawing]]:
    """`groups` of drawings, with those empty for which there is no room."""
    left = min(room, _ALL)
    fitting = []
    for group in groups:
        fitting.append(list(group))
        for place, drawing in enumerate(group):
            if len(drawing.svg) <= left:
                left -= len(drawing.svg)
            else:
                fitting[-1][place] = replace(drawing, said="", svg="")
    return fitting


def bars_of(count: int, ranking: Ranking) -> list[int]:
    """Indices of all of `count` points, or of many the best ones of the best machines."""
    if count <= MOST_ROWS:
        return list(range(count))
    best = [point.index for standing in ranking.ranked for point in standing.best.values()]
    return sorted(best[:MOST_ROWS]) or list(range(MOST_ROWS))


# Plots over all points. The table of all points is their data: its rows hold every figure that can
# be chosen, and a filter or a brush hides rows of it.

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
