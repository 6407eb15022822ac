"""The figures of the page as SVG, with words on how to read them, within bounds on their size.

The one idea: a page that nobody can open helps nobody. Bars are drawn for as many points as can be
read, details for a few, and what is left out for its size is named in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from archgen.outcomes.frame import layers_frame, levels_frame, spans_frame
from archgen.outcomes.points import Outcome
from archgen.plots import (
    as_svg,
    detail_figures,
)
from archgen.plots.saving import MOST_ROWS, cloud_figures, row_figures, sweep_figures
from archgen.report.points import PointView, ReportSubject
from archgen.report.ranking import Ranking, Standing

DETAILS = 4
"""Most points that are shown in detail."""
_LARGEST = 700_000
"""Characters of one figure."""
_ALL = 5_000_000
"""Characters of all details together."""
COSTS = ("energy", "area")
"""Figures that belong to energy and area."""

_SAID: Mapping[str, tuple[str, str]] = {
    "latency": ("Latency", "Shorter is better. The tick is the least time that the roofline "
                "allows."),
    "throughput": ("Throughput", "Longer is better. The tick is the most that the roofline "
                   "allows."),
    "roofline": ("Roofline", "Each mark is a run: what it computed per byte of DRAM traffic, and "
                 "how fast. Marks on the slope are bound by DRAM, those under the flat roof by the "
                 "matrix engines; the gap to the roof is what a better schedule or machine could "
                 "still win."),
    "roofline_groups": ("Roofline by group of layers", "Each mark is a group of layers, as large "
                        "as its time. Large marks far below the roof are worth looking at."),
    "memory": ("Memory on chip", "A bar is what a run had in use at most, its pale end the size. "
               "Schedules fill what there is; what a network needs is the diamond, its part of all "
               "results that are alive at once. Left of it, layers have to share tiles or spill: "
               "DRAM traffic is that over what must cross its pins."),
    "stalls": ("Time of the matrix engines", "Busy, or idle for exactly one cause; parts add up "
               "to the run."),
    "waterfall": ("From the bound to the measured cycle", "Each bar is all of a run: above, what "
                  "matrix engines computed, padded, started and waited for; below, what DRAM "
                  "moved. Left of the tick is what any schedule takes on this machine."),
    "energy": ("Energy", "By component. The line spans the result with every figure at the low "
               "and at the high end of its range."),
    "area": ("Area", "By part, with the interface to DRAM; pins and DRAM itself are not counted."),
    "pareto_area": ("Area against latency", "Points on the line are beaten by no other in both."),
    "pareto_energy": ("Energy against latency", "Points on the line are beaten by no other in "
                      "both."),
    "scaling": ("Scaling", "What more of a resource brings."),
    "tornado": ("What each field is worth", "One field changed at a time; the field that matters "
                "most is on top."),
    "layers": ("Layers over time", "When each layer ran, and how well it used the matrix engines "
               "meanwhile."),
    "engines": ("Engines over time", "What each engine worked for. White is waiting."),
    "memory_time": ("Memory over time", "What each memory held, against its capacity."),
    "banks": ("Banks over time", "What each bank held."),
    "bandwidth": ("Bandwidth over time", "What moved, against the peak. Bytes of a transfer are "
                  "spread evenly over its time, so what overlaps may pass the peak."),
}  # fmt: skip

_OF_SWEPT: Mapping[str, tuple[str, str]] = {
    "sweep": ("Over", "A line goes through points that differ in this alone, dashed across what "
              "was not run. A ring is the least value from which on no larger one is better by "
              "more than 5 %, of delays the longest that is no worse. Over the size of a memory, a "
              "dotted line is where all results that are alive at once fit."),
    "map": ("Over", "Each cell is a point, all else equal. On one side of a line all cells are "
            "below its level. Cells of one shade are alike: shades span a quarter at least."),
}  # fmt: skip
"""The same for figures over swept columns, by the first word of their names."""


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


def overviews(study: ReportSubject, ranking: Ranking) -> list[Drawing]:
    """What compares points: of a large study the best where each has a row."""
    frame, archs = study.frame, study.by_name
    if frame.empty:
        return []
    shown = bars_of(len(frame), ranking)
    layers = layers_frame([study.outcomes[index] for index in shown])
    made = list(drawn(sweep_figures(frame, archs)))
    made += drawn(row_figures(frame.iloc[shown], archs, layers))
    made += drawn(cloud_figures(frame, archs))
    return made


def drawn(figures: Iterable[tuple[str, Figure]], anchor: str = "figure") -> Iterator[Drawing]:
    """`figures` by name, as the page shows them; their ids start with `anchor`."""
    for name, figure in figures:
        kind = name.rsplit("/", 1)[-1]
        title, said = _said_of(kind)
        svg = as_svg(figure)
        yield Drawing(f"{anchor}-{kind}", title, said, svg if len(svg) <= _LARGEST else "")


def _said_of(kind: str) -> tuple[str, str]:
    """Title of a figure, and how to read it."""
    first, _, swept = kind.partition("_")
    if first in _OF_SWEPT:
        title, said = _OF_SWEPT[first]
        return f"{title} {swept.replace('_', ' and ')}", said
    return _SAID.get(kind, (kind.replace("_", " ").capitalize(), ""))


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
    return list(drawn(detail_figures({point.machine: point.arch}, *given), point.anchor))


class SvgBudget:
    """Leaves out figures when all of them together would be too much."""

    def __init__(self, left: int) -> None:
        self._left = min(left, _ALL)

    def within(self, drawings: Sequence[Drawing]) -> list[Drawing]:
        """`drawings`, with those empty for which there is no room."""
        found = []
        for drawing in drawings:
            fits = len(drawing.svg) <= self._left
            self._left -= len(drawing.svg) if fits else 0
            found.append(drawing if fits else Drawing(drawing.name, drawing.title, "", ""))
        return found


def bars_of(count: int, ranking: Ranking) -> list[int]:
    """Indices of all of `count` points, or of many the best ones of the best machines."""
    if count <= MOST_ROWS:
        return list(range(count))
    best = [point.index for standing in ranking.ranked for point in standing.best.values()]
    return sorted(best[:MOST_ROWS]) or list(range(MOST_ROWS))
