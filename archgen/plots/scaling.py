"""How much faster more cores are.

The one idea: machines belong to one family when they are equal but for their number of cores and
what they are called, so lines need no naming rule.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from archgen.outcomes.axes import FAMILY, StudyAxis, axis_setting_text, workload
from archgen.outcomes.axes import axes as axes_of
from archgen.outcomes.estimated import has_figures
from archgen.outcomes.frame import Frame, Record, number, records, varied
from archgen.outcomes.points import FIELD
from archgen.plots.panels import SQUARE_LETTERS, square_figure
from archgen.plots.style import CYCLE, INK, MARKERS, MUTED, SETTINGS, folded, legend_columns, say
from simmodel.arch.record import Arch

_MOST_PANELS = 12
_APART = 0.12
"""Of the length of an axis, between two of its numbers."""


@dataclass(frozen=True)
class SpeedupLine:
    """One network on the machines of one family."""

    label: str
    cores: list[int]
    """Ascending."""
    speedups: list[float]
    """Latency with the fewest cores over latency."""


@rc_context(SETTINGS)
def scaling_figure(
    frame: Frame, archs: Mapping[str, Arch], free: Sequence[str] = ("cores", "clusters")
) -> Figure:
    """Speed-up over cores on the chip, log-log, with the ideal line; one line for each network.

    A panel for each family of machines: those equal but for the fields `free` of `Arch` and their
    names. Give more of them (`"memories"`) where memory grows with the cores. A family with one
    number of cores has no line.
    """
    families = scaling_lines(frame, archs, free)
    left = len(families) - _MOST_PANELS
    families = dict(list(families.items())[:_MOST_PANELS])
    of_one = _base(frame) if families else ""
    more = f" ({left} more families left out)" if left > 0 else ""
    text = f"Scaling over cores{of_one}{more}"
    figure, grid = square_figure(max(1, len(families)), text, share=False)
    if not families:
        say(grid[0], "no machines that differ in their number of cores alone")
        return figure
    loads = list(dict.fromkeys(line.label for lines in families.values() for line in lines))
    for axes, (name, lines) in zip(grid, families.items(), strict=True):
        axes.set_title(folded(name, SQUARE_LETTERS))
        _draw_speedups(axes, lines, loads)
    handles = {
        str(drawn.get_label()): drawn
        for axes in grid
        for drawn in axes.get_lines()
        if not str(drawn.get_label()).startswith("_")
    }
    columns = legend_columns(figure, list(handles))
    figure.legend(handles=list(handles.values()), loc="outside lower left", ncols=columns)
    return figure


def _base(frame: Frame) -> str:
    """` of edge` where all machines are variants of one."""
    named = set(frame[FAMILY]) if FAMILY in frame else set()
    return f" of {named.pop()}" if len(named) == 1 and not frame[FAMILY].isna().any() else ""


def scaling_lines(
    frame: Frame, archs: Mapping[str, Arch], free: Sequence[str] = ("cores", "clusters")
) -> dict[str, list[SpeedupLine]]:
    """The lines of `scaling_figure` by family: what sets it apart from the others, as
    `dram.bandwidth 8 GB/s`; else the machine that its members are variants of, or what their names
    begin with."""
    rows = [row for row in records(frame) if has_figures(row)]
    mixed = ["dtype"] if len({row["dtype"] for row in rows}) > 1 else []
    ways = [*mixed, *varied(rows)]
    found: dict[str, dict[str, list[Record]]] = {}
    for row in sorted(rows, key=lambda row: archs[row["arch"]].core_count):
        family = _family(archs[row["arch"]], free)
        load = " ".join([workload(row), *(str(row[name]) for name in ways)])
        found.setdefault(family, {}).setdefault(load, []).append(row)
    lines: dict[str, list[SpeedupLine]] = {}
    fields = [axis for axis in axes_of(frame, archs) if axis.column.startswith((FIELD, FAMILY))]
    for loads in found.values():
        members = [row for own in loads.values() for row in own]
        name = ", ".join(_settings(members, fields))
        name = name if name and name not in lines else _common(members, lines)
        own = [_line(load, members, archs) for load, members in loads.items()]
        own = [line for line in own if len(set(line.cores)) > 1]
        if own:
            lines[name] = own
    return lines


def _settings(rows: Sequence[Record], fields: Sequence[StudyAxis]) -> list[str]:
    """What these rows have in common of what was swept."""
    held = [(axis, {axis.value(row) for row in rows}) for axis in fields]
    return [
        axis_setting_text(axis, value)
        for axis, values in held
        if len(values) == 1 and (value := next(iter(values))) is not None
    ]


def _common(rows: Sequence[Record], taken: Collection[str]) -> str:
    """What to call the machines of these rows, other than what is `taken`."""
    names = list(dict.fromkeys(str(row["arch"]) for row in rows))
    families = {str(row["family"]) for row in rows if not pd.isna(row.get("family"))}
    words = zip(*(name.split("-") for name in names), strict=False)
    shared = [each[0] for each in takewhile(lambda same: len(set(same)) == 1, words)]
    found = families.pop() if len(families) == 1 else "-".join(shared)
    if found and found not in taken:
        return found
    return f"{names[0]} to {names[-1]}" if len(names) > 1 else names[0]


def _family(arch: Arch, free: Sequence[str]) -> str:
    return arch.model_dump_json(exclude={"name", "description", *free}, by_alias=True)


def _line(label: str, rows: list[Record], archs: Mapping[str, Arch]) -> SpeedupLine:
    known = [row for row in rows if number(row, "latency_cycles") > 0]
    seconds = [number(row, "latency_cycles") / archs[row["arch"]].clock for row in known]
    cores = [archs[row["arch"]].core_count for row in known]
    return SpeedupLine(label, cores, [seconds[0] / own for own in seconds])


def _draw_speedups(axes: Axes, lines: Sequence[SpeedupLine], loads: Sequence[str]) -> None:
    counts = sorted({count for line in lines for count in line.cores})
    least, most = counts[0], counts[-1]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.plot([least, most], [1, most / least], "--", color=MUTED, lw=1.2, label="ideal")
    for line in lines:
        index = loads.index(line.label)
        axes.plot(
            line.cores, line.speedups, "-", marker=MARKERS[index % len(MARKERS)], ms=6,
            color=CYCLE[index % len(CYCLE)], mec="white", mew=0.6, label=line.label,
        )  # fmt: skip
    axes.xaxis.set_major_locator(FixedLocator(_ticks(counts)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    reached = [speedup for line in lines for speedup in line.speedups]
    low = 2 ** math.floor(math.log2(min(reached)))
    axes.set_ylim(low / 1.1, 1.2 * max(most / least, *reached))
    axes.set_xlabel("cores")
    axes.set_ylabel("speed-up")
    axes.axhline(1, color=INK, lw=0.6)


def _ticks(counts: Sequence[int]) -> list[int]:
    """The ascending `counts` that have room for their number on a logarithmic axis, the first and
    the last always."""
    if len(counts) < 2:
        return list(counts)
    factor = (counts[-1] / counts[0]) ** _APART
    kept = [counts[0]]
    for count in counts[1:-1]:
        if count >= factor * kept[-1] and counts[-1] >= factor * count:
            kept.append(count)
    return [*kept, counts[-1]]
