"""What figures over time share: one point's rows, an axis of cycles, groups as stretches of time.

The one idea: groups overlap, for the next one's data are loaded while one runs. Time is dealt
out by their ends: a group's stretch is from the end of those before to its own, so that stretches
add up to the whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from archgen.outcomes.axes import workload
from archgen.outcomes.frame import Frame, Record, records
from archgen.outcomes.point import BUCKET, DIMENSION
from archgen.scheduling import DEFAULT
from simmodel.arch import Arch

WIDTH = 9.6
"""Inches of a figure over time."""
_POINT = ("arch", "model", "batch", "dtype", *DEFAULT.columns)


@dataclass(frozen=True)
class Stretch:
    """Part of the run that is a group's own, in cycles."""

    group: int
    start: int
    end: int


def identity(frame: Frame) -> list[str]:
    """The columns of `frame` that say which point a row belongs to."""
    swept = (DIMENSION, BUCKET, "arch.", "pass.")
    return [name for name in map(str, frame) if name in _POINT or name.startswith(swept)]


def split_points(frame: Frame) -> list[Frame]:
    """The rows of each point, in order of appearance."""
    if frame.empty:
        return []
    return [own for _, own in frame.groupby(identity(frame), sort=False, dropna=False)]


def point_title(frame: Frame) -> str:
    """`resnet50 on edge, int8`: the one point that `frame` is about.

    Raises ValueError where it has no rows, or rows of several points.
    """
    count = len(split_points(frame))
    if count != 1:
        raise ValueError(f"expected the rows of one point, found {count} points")
    row: Record = records(frame.iloc[:1])[0]
    return f"{workload(row)} on {row['arch']}, {row['dtype']}"


def stretches(rows: Sequence[Record]) -> list[Stretch]:
    """Time by group from rows with `group`, `start_cycle` and `end_cycle`; empty ones left out."""
    ends: dict[int, int] = {}
    for row in rows:
        ends[int(row["group"])] = max(ends.get(int(row["group"]), 0), int(row["end_cycle"]))
    found, start = [], min((int(row["start_cycle"]) for row in rows), default=0)
    for group, end in sorted(ends.items(), key=lambda item: (item[1], item[0])):
        if end > start:
            found.append(Stretch(group, start, end))
            start = end
    return found


def time_axis(axes: Axes, end: float, arch: Arch, bottom: bool = True) -> None:
    """Cycles from 0 to `end`; labels where it is the `bottom`."""
    axes.set_xlim(0, max(end, 1))
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    if bottom:
        axes.set_xlabel(f"time [cycles at {arch.clock / 1e9:g} GHz]")
    axes.tick_params(labelbottom=bottom)
