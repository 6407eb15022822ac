"""The figures of the page as SVG, with words on how to read them, within bounds on their size.

The one idea: a page that nobody can open helps nobody. Bars are drawn for as many points as can be
read, details for a few, and what is left out for its size is named in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from archgen.outcomes.frame import layers_frame, levels_frame, spans_frame
from archgen.outcomes.points import Outcome
from archgen.plots import as_svg, detail_figures
from archgen.plots.saving import MOST_ROWS
from archgen.report.points import PointView
from archgen.report.ranking import Ranking, Standing
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
