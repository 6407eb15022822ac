"""How much faster more cores are.

The one idea: machines belong to one family when they are equal but for their number of cores and
what they are called, so lines need no naming rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os.path import commonpath
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator, StrMethodFormatter

from archgen.outcomes.axes import FAMILY, StudyAxis, axis_setting_text, workload
from archgen.outcomes.axes import axes as axes_of
from archgen.outcomes.estimated import has_figures
from archgen.outcomes.frame import Frame, Record, number, records, varied
from archgen.outcomes.points import FIELD
from archgen.plots.panels import TITLE_LETTERS, square_figure
from archgen.plots.style import CYCLE, INK, MARKERS, MUTED, SETTINGS, folded, legend, say
from simmodel.arch.record import Arch

_MOST_PANELS = 12
_APART = 0.12
"""Of the length of an axis, between two of its numbers."""
Looks = Mapping[str, dict[str, Any]]
Speedups = dict[int, float]
"""By number of cores, ascending: latency with the fewest over latency."""


@rc_context(SETTINGS)
def scaling_figure(
    frame: Frame, archs: Mapping[str, Arch], free: Sequence[str] = ("cores", "clusters")
) -> Figure:
    """Speed-up over cores on the chip, log-log, with the ideal line; one line for each network.

    A panel for each family of machines: those equal but for the fields `free` of `Arch` and their
    names. Give more of them (`"memories"`) where memory grows with the cores. A family with one
    number of cores has no line.
    """
    every = scaling_lines(frame, archs, free)
    families = dict(list(every.items())[:_MOST_PANELS])
    left = len(every) - len(families)
    more = f" ({left} more families left out)" if left > 0 else ""
    figure, grid = square_figure(max(1, len(families)), f"Scaling over cores{more}", share=False)
    if not families:
        say(grid[0], "no machines that differ in their number of cores alone")
        return figure
    loads = dict.fromkeys(load for lines in families.values() for load in lines)
    looks: Looks = {
        load: {"color": CYCLE[n % len(CYCLE)], "marker": MARKERS[n % len(MARKERS)], "ms": 6}
        for n, load in enumerate(loads)
    }
    for axes, (name, lines) in zip(grid, families.items(), strict=True):
        axes.set_title(folded(name, TITLE_LETTERS))
        _draw_speedups(axes, lines, looks)
    ideal = Line2D([], [], ls="--", color=MUTED, lw=1.2, label="ideal")
    legend(figure, [ideal, *(Line2D([], [], label=load, **look) for load, look in looks.items())])
    return figure


def scaling_lines(
    frame: Frame, archs: Mapping[str, Arch], free: Sequence[str] = ("cores", "clusters")
) -> dict[str, dict[str, Speedups]]:
    """The lines of `scaling_figure` by family and network. A family is called by what sets it apart
    from the others, as `dram.bandwidth 8 GB/s`; else by the machine that its members are variants
    of, or what their names begin with."""
    rows = [row for row in records(frame) if has_figures(row)]
    words = [*(["dtype"] if len({row["dtype"] for row in rows}) > 1 else []), *varied(rows)]
    families: dict[str, list[Record]] = {}
    for row in sorted(rows, key=lambda row: archs[row["arch"]].core_count):
        without = {"name", "description", *free}
        content = archs[row["arch"]].model_dump_json(exclude=without, by_alias=True)
        families.setdefault(content, []).append(row)
    fields = [axis for axis in axes_of(frame, archs) if axis.column.startswith((FIELD, FAMILY))]
    lines: dict[str, dict[str, Speedups]] = {}
    for members in families.values():
        loads: dict[str, list[Record]] = {}
        for row in members:
            load = " ".join([workload(row), *(str(row[name]) for name in words)])
            loads.setdefault(load, []).append(row)
        speedups = {load: _speedups(own, archs) for load, own in loads.items()}
        if speedups := {load: own for load, own in speedups.items() if len(own) > 1}:
            lines[_family_name(members, fields, lines)] = speedups
    return lines


def _family_name(
    rows: Sequence[Record], fields: Sequence[StudyAxis], others: Mapping[str, object]
) -> str:
    """The settings that these rows share, their family or the words that their names begin with:
    the first that no other one is called."""
    values = [(axis, {axis.value(row) for row in rows}) for axis in fields]
    settings = [
        axis_setting_text(axis, value)
        for axis, own in values
        if len(own) == 1 and (value := next(iter(own))) is not None
    ]
    names = list(dict.fromkeys(str(row["arch"]) for row in rows))
    families = {str(row[FAMILY]) for row in rows if isinstance(row.get(FAMILY), str)}
    family = families.pop() if len(families) == 1 else ""
    shared = commonpath([name.replace("-", "/") for name in names]).replace("/", "-")
    choices = [", ".join(settings), family or shared, f"{names[0]} to {names[-1]}"]
    return next(name for name in choices if name and name not in others)


def _speedups(rows: Sequence[Record], archs: Mapping[str, Arch]) -> Speedups:
    timed = [row for row in rows if number(row, "latency_cycles") > 0]
    seconds = {
        archs[row["arch"]].core_count: number(row, "latency_cycles") / archs[row["arch"]].clock
        for row in reversed(timed)
    }
    return {cores: seconds[min(seconds)] / seconds[cores] for cores in sorted(seconds)}


def _draw_speedups(axes: Axes, lines: Mapping[str, Speedups], looks: Looks) -> None:
    counts = sorted({count for own in lines.values() for count in own})
    least, most = counts[0], counts[-1]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.plot([least, most], [1, most / least], "--", color=MUTED, lw=1.2)
    for load, own in lines.items():
        axes.plot([*own], [*own.values()], "-", mec="white", mew=0.6, **looks[load])
    axes.set_xticks(_apart(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(StrMethodFormatter("{x:g}"))
    speedups = [speedup for own in lines.values() for speedup in own.values()]
    low = 2 ** math.floor(math.log2(min(speedups)))
    axes.set_ylim(low / 1.1, 1.2 * max(most / least, *speedups))
    axes.set(xlabel="cores", ylabel="speed-up")
    axes.axhline(1, color=INK, lw=0.6)


def _apart(counts: Sequence[int]) -> list[int]:
    """The ascending `counts` that have room for their number on a logarithmic axis, the first and
    the last always."""
    factor = (counts[-1] / counts[0]) ** _APART
    ticks = [counts[0]]
    for count in counts[1:-1]:
        if count >= factor * ticks[-1] and counts[-1] >= factor * count:
            ticks.append(count)
    return [*ticks, counts[-1]]
