"""Each machine's roofline with a point for each group of layers, as large as its time.

The one idea: what a group takes is the time from the ends of the groups before to its own, so that
areas add up to the run; groups that end within half a percent of it count as one. What was loaded
ahead cost a group no time of its own: such a point may lie above the slope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.axes import workload
from archgen.outcomes.frame import Frame, Record, number, records
from archgen.plots.over_time import Stretch, split_points, stretches
from archgen.plots.panels import SQUARE_LETTERS, square_figure
from archgen.plots.roofline import (
    GIGA,
    draw_roofs,
    label_outer,
    marks_of,
    span_of,
)
from archgen.plots.style import MUTED, SETTINGS, folded, legend_columns
from simmodel.arch.record import Arch

_TOGETHER = 0.005
_LARGEST = 900.0
"""Square points of a mark that stands for a whole run."""


@dataclass(frozen=True)
class GroupPoint:
    """A group of layers under the roofline, or some that end together."""

    groups: tuple[int, ...]
    macs: float
    moved: float
    """Bytes read from and written to DRAM."""
    cycles: float
    share: float
    """Of the run's time."""


def group_points(layers: Frame) -> list[GroupPoint]:
    """The groups of one point that take time, in order of their ends."""
    rows = records(layers)
    parts = stretches(rows)
    whole = sum(part.end - part.start for part in parts)
    members: dict[int, list[Record]] = {}
    for row in rows:
        members.setdefault(int(row["group"]), []).append(row)
    found = []
    for bundle in _bundles(parts, _TOGETHER * whole):
        own = [row for part in bundle for row in members[part.group]]
        cycles = bundle[-1].end - bundle[0].start
        moved = _sum(own, "dram_read_bytes") + _sum(own, "dram_write_bytes")
        groups = tuple(part.group for part in bundle)
        found.append(GroupPoint(groups, _sum(own, "macs"), moved, cycles, cycles / whole))
    return found


def _bundles(parts: Sequence[Stretch], least: float) -> list[list[Stretch]]:
    """`parts` in order, with those bundled that would take less than `least` cycles alone."""
    found: list[list[Stretch]] = []
    for part in parts:
        if found and found[-1][-1].end - found[-1][0].start < least:
            found[-1].append(part)
        else:
            found.append([part])
    if len(found) > 1 and found[-1][-1].end - found[-1][0].start < least:
        short = found.pop()
        found[-1] += short
    return found


def _sum(rows: Sequence[Record], column: str) -> float:
    values = [number(row, column) for row in rows]
    return sum(value for value in values if value > 0)


@rc_context(SETTINGS)
def group_roofline_figure(layers: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Log-log, one panel for each architecture: rate over intensity of the groups in `layers`.

    Groups without multiply-accumulates are counted below, with their share of time. Groups that
    move nothing to or from DRAM stand at the right edge.
    """
    runs = [(records(own.iloc[:1])[0], group_points(own)) for own in split_points(layers)]
    names = list(dict.fromkeys(str(row["arch"]) for row, _ in runs))
    loads = list(dict.fromkeys(workload(row) for row, _ in runs))
    figure, grid = square_figure(max(1, len(names)), "Roofline of groups: area is time")
    marks = marks_of(loads)
    intensities = [g.macs / g.moved for _, groups in runs for g in groups if g.macs and g.moved]
    span = span_of(intensities, [row for row, _ in runs], archs)
    for axes, name in zip(grid, names, strict=False):
        own = [(row, groups) for row, groups in runs if row["arch"] == name]
        _draw_group_roofline(axes, own, archs[name], span, marks)
    label_outer(grid)
    handles = [
        Line2D([], [], color=c, marker=m, ls="", alpha=0.75, label=load)
        for load, (c, m) in marks.items()
    ]
    if handles:
        columns = legend_columns(figure, loads)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    return figure


def _draw_group_roofline(
    axes: Axes,
    runs: Sequence[tuple[Record, Sequence[GroupPoint]]],
    arch: Arch,
    span: tuple[float, float],
    marks: Mapping[str, tuple[str, str]],
) -> None:
    axes.set_title(folded(arch.name, SQUARE_LETTERS))
    draw_roofs(axes, [arch], [row for row, _ in runs], span)
    silent = []
    for row, groups in runs:
        colour, marker = marks[workload(row)]
        drawn = [group for group in groups if group.macs]
        axes.scatter(
            [group.macs / group.moved if group.moved else span[1] for group in drawn],
            [group.macs / group.cycles * arch.clock / GIGA for group in drawn],
            s=[max(6.0, _LARGEST * group.share) for group in drawn],
            c=colour, marker=marker, alpha=0.75, ec="white", lw=0.6,
        )  # fmt: skip
        rest = [group.share for group in groups if not group.macs]
        if rest:
            plural = "group" if len(rest) == 1 else "groups"
            silent.append(f"{len(rest)} {plural} without MACs, {100 * sum(rest):.2g} % of time")
    if silent:
        axes.text(
            0.97, 0.03, "\n".join(silent[:4]), transform=axes.transAxes, ha="right", va="bottom",
            color=MUTED, style="italic", fontsize=7,
        )  # fmt: skip
