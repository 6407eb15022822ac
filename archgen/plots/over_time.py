"""What figures over time share: one point's rows, an axis of cycles, groups as stretches of time.

The one idea: groups overlap, for the next one's data are loaded while one runs. Time is dealt
out by their ends: a group's stretch is from the end of those before to its own, so that stretches
add up to the whole run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

import archgen.plots.style as style
from archgen.outcomes.axes import workload
from archgen.outcomes.frame import Frame, Record, records
from archgen.outcomes.points import BUCKET, DIMENSION
from archgen.plots.style import legend, placeholder, title
from archgen.scheduling import DEFAULT
from simmodel.arch.memories import Memory
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes

WIDTH = 9.6
"""Inches of a figure over time."""
_POINT = ("arch", "model", "batch", "dtype", *DEFAULT.columns)


@dataclass(frozen=True)
class Stretch:
    """Part of the run that is a group's own, in cycles."""

    group: int
    start: int
    end: int


def point_columns(frame: Frame) -> list[str]:
    """The columns of `frame` that say which point a row belongs to."""
    swept = (DIMENSION, BUCKET, "arch.", "pass.")
    return [name for name in map(str, frame) if name in _POINT or name.startswith(swept)]


def split_points(frame: Frame) -> list[Frame]:
    """The rows of each point, in order of appearance."""
    if frame.empty:
        return []
    return [own for _, own in frame.groupby(point_columns(frame), sort=False, dropna=False)]


def point_and_machine(frame: Frame, archs: Mapping[str, Arch]) -> tuple[str, Arch]:
    """`resnet50 on edge, int8`: the one point that `frame` is about; and its machine.

    Raises ValueError where it has no rows, or rows of several points.
    """
    count = len(split_points(frame))
    if count != 1:
        raise ValueError(f"expected the rows of one point, found {count} points")
    row: Record = records(frame.iloc[:1])[0]
    return f"{workload(row)} on {row['arch']}, {row['dtype']}", archs[str(row["arch"])]


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


def _rows_figure(text: str, heights: Sequence[float], missing: str) -> tuple[Figure, list[Axes]]:
    """A figure of panels one below the other, each as high as `heights` says; words about what is
    `missing` where there is none."""
    sizes = list(heights) or [1.35]
    figure = Figure(figsize=(WIDTH, 1.0 + sum(sizes)), layout="constrained")
    grid = figure.subplots(len(sizes), 1, squeeze=False, height_ratios=sizes).ravel().tolist()
    title(figure, text)
    if not heights:
        placeholder(grid[0], missing)
    return figure, grid[: len(heights)]


# Series of the frame `Study.levels`, and what each of them can be at most.

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """A level over time: constant in each bin."""

    edges: Values
    """Cycles, one more than values."""
    values: Values


def series(levels: Frame, kind: str) -> dict[str, Series]:
    """All levels of `kind` of one point, by name in order of appearance."""
    levels_of: dict[str, Series] = {}
    for name, rows in levels[levels["kind"] == kind].groupby("name", sort=False):
        ordered = rows.sort_values("cycle")
        starts = ordered["cycle"].to_numpy(np.float64)
        width = starts[-1] - starts[-2] if len(starts) > 1 else 1.0
        values = ordered["value"].fillna(0).to_numpy(np.float64)
        levels_of[str(name)] = Series(np.append(starts, starts[-1] + width), values)
    return levels_of


# What DRAM and each link moved over time, against what they can.

_DIRECTIONS = {"read": style.ORANGE, "write": style.VERMILION, "link": style.BROWN}


@rc_context(style.SETTINGS)
def bandwidth_figure(levels: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Bytes per cycle of DRAM, reads and writes stacked, and of each link, of one point.

    The line is the peak: of a link, that of all its instances and directions together. Raises
    ValueError for the rows of several points.
    """
    text, arch = point_and_machine(levels, archs)
    own = series(levels, "bandwidth")
    panels = []
    for role, peak in arch.far_rates.items():
        both = ("read", "write") if role == "dram" else ("read",)
        if far := {way: own[f"{role}.{way}"] for way in both if f"{role}.{way}" in own}:
            panels.append((arch.memories.far_name(role), far, peak))
    idle = []
    for name, moved in own.items():
        link = name.removeprefix("link.")
        known = arch.links.get(link)
        if known is not None and moved.values.any():
            # Of all instances, in both directions where it has two.
            ways = 2 if known.duplex and not set(known.from_).isdisjoint(known.to) else 1
            lanes = arch.scopes(known.scope) * ways
            if (network := arch.grid(known)) is not None:
                lanes = network.links // (1 if known.duplex else 2)
            peak = known.bandwidth.at(arch.clock) * lanes
            panels.append((f"link {link}", {"link": moved}, peak))
        elif known is not None:
            idle.append(link)
    unused = f"; nothing over {', '.join(idle)}" if idle else ""
    means = [(_mean(parts) / peak, name) for name, parts, peak in panels]
    most = f"{max(means)[1]} is {100 * max(means)[0]:.0f} % used; " if means else ""
    heights, missing = [1.45] * len(panels), "nothing is known of what was moved"
    figure, grid = _rows_figure(f"Bandwidth over time: {most}{text}{unused}", heights, missing)
    for axes, (name, parts, peak) in zip(grid, panels, strict=True):
        _draw_bandwidth(axes, name, parts, peak, arch.clock)
        time_axis(axes, next(iter(parts.values())).edges[-1], arch, bottom=axes is grid[-1])
    used = dict.fromkeys(way for _, parts, _ in panels for way in parts)
    legend(figure, [Patch(label=way, color=_DIRECTIONS[way]) for way in used])
    return figure


def _mean(parts: Mapping[str, Series]) -> float:
    """Of all parts together, over time."""
    return sum(float(np.average(p.values, weights=np.diff(p.edges))) for p in parts.values())


def _draw_bandwidth(
    axes: Axes, name: str, parts: Mapping[str, Series], peak: float, clock: float
) -> None:
    edges = next(iter(parts.values())).edges
    base = np.zeros(len(edges) - 1)
    for way, own in parts.items():
        top = base + own.values
        axes.stairs(top, edges, baseline=base, fill=True, color=_DIRECTIONS[way])
        base = top
    axes.axhline(peak, color=style.INK, lw=1)
    axes.set_ylim(0, 1.08 * max(peak, base.max()))
    axes.set_ylabel("bytes / cycle")
    mean = _mean(parts)
    axes.set_title(
        f"{name}: mean {mean:.3g} of {peak:.4g} bytes / cycle "
        f"({mean / peak:.0%}, {mean * clock / 1e9:.3g} of {peak * clock / 1e9:.4g} GB/s)"
    )


# How full each on-chip memory is over time, as a whole and bank by bank.

_TOPS = (4.0, 20.0, 60.0, 100.0)
"""Ends of the axis, in %, where a memory never gets fuller."""
_SHADES = "cividis"
"""Safe for colour-blind readers, and its lightness grows evenly, so that it prints in grey."""


@rc_context(style.SETTINGS)
def occupancy_figure(levels: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Occupancy of each on-chip memory of one point, as a share of its size, with its peak.

    Of memories that every core has, that of the core with the highest peak. Raises ValueError for
    the rows of several points.
    """
    text, arch = point_and_machine(levels, archs)
    memories = arch.memories.on_chip()
    own = {name: each for name, each in series(levels, "occupancy").items() if name in memories}
    used = {name: each for name, each in own.items() if each.values.any()}
    unused = ", ".join(name for name in own if name not in used)
    empty = f"; {unused}: not used" if unused else ""
    heights, missing = [1.35] * len(used), "nothing is known of what memories held"
    peaks = [(own.values.max() / memories[name].size, name) for name, own in used.items()]
    most = f"fullest is {max(peaks)[1]}, {100 * max(peaks)[0]:.0f} %; " if peaks else ""
    figure, grid = _rows_figure(f"Memory over time: {most}{text}{empty}", heights, missing)
    for axes, (name, each) in zip(grid, used.items(), strict=True):
        _draw_occupancy(axes, name, each, memories[name])
        time_axis(axes, each.edges[-1], arch, bottom=axes is grid[-1])
    return figure


def _draw_occupancy(axes: Axes, name: str, own: Series, memory: Memory) -> None:
    shares = 100 * own.values / memory.size
    axes.stairs(shares, own.edges, fill=True, color=style.MEMORIES[name])
    top = next((each for each in _TOPS if each > 1.1 * shares.max()), _TOPS[-1])
    axes.axhline(100, color=style.INK, lw=1)
    axes.set_ylim(0, 1.08 * top)
    axes.set_yticks(np.linspace(0, top, 5))
    axes.set_ylabel("% full")
    peak = int(np.argmax(own.values))
    share, amount = shares[peak], show_bytes(own.values[peak])
    axes.set_title(f"{name}: at most {amount} of {show_bytes(memory.size)} ({share:.3g} %)")
    at = (own.edges[peak] + own.edges[peak + 1]) / 2
    axes.plot([at], [share], "v", color=style.INK, ms=5, mec="white", mew=0.6, clip_on=False)


def has_banks(levels: Frame) -> bool:
    """Whether the rows say anything of single banks."""
    return bool((levels["kind"].eq("occupancy") & levels["name"].str.contains(".bank")).any())


@rc_context(style.SETTINGS)
def banks_figure(levels: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Occupancy of each bank over time as shades, one map for each memory of one point.

    Only memories whose banks are ranges of addresses have any. Raises ValueError for the rows of
    several points.
    """
    text, arch = point_and_machine(levels, archs)
    maps: dict[str, list[Series]] = {}
    for name, own in series(levels, "occupancy").items():
        memory, dot, _ = name.partition(".bank")
        if dot:
            maps.setdefault(memory, []).append(own)
    heights = [0.55 + 0.16 * max(4, len(banks)) for banks in maps.values()]
    missing = "no memory with banks that are ranges of addresses"
    sizes = {name: arch.memories.on_chip()[name].bank_size for name in maps}
    shares = [bank.values.max() / sizes[name] for name, banks in maps.items() for bank in banks]
    full = max(shares, default=0.0)
    figure, grid = _rows_figure(
        f"Banks over time: the fullest holds {100 * full:.0f} %; {text}", heights, missing
    )
    for axes, (name, banks) in zip(grid, maps.items(), strict=True):
        size, count, end = arch.memories.on_chip()[name].bank_size, len(banks), banks[0].edges[-1]
        image = axes.imshow(
            100 * np.array([bank.values for bank in banks]) / size, cmap=_SHADES, vmin=0, vmax=100,
            aspect="auto", interpolation="nearest", extent=(0, end, count - 0.5, -0.5),
        )  # fmt: skip
        axes.set(title=f"{name}: {count} banks of {show_bytes(size)}", ylabel="bank")
        axes.grid(visible=False)
        axes.set_yticks(range(0, count, max(1, count // 8)))
        figure.colorbar(image, ax=axes, label="% full", ticks=[0, 50, 100], pad=0.01)
        time_axis(axes, end, arch, bottom=axes is grid[-1])
    return figure
