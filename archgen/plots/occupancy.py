"""How full each on-chip memory is over time, as a whole and bank by bank."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from archgen.outcomes.frame import Frame
from archgen.plots.levels import Series, series
from archgen.plots.style import INK, MEMORIES, SETTINGS, say, title
from archgen.plots.timeline import WIDTH, point_title, time_axis
from simmodel.arch import Arch, Memory
from simmodel.units import show_bytes

_TOPS = (4.0, 20.0, 60.0)
"""Ends of the axis, in %, where a memory never gets fuller."""
_SHADES = "cividis"
"""Safe for colour-blind readers, and its lightness grows evenly, so that it prints in grey."""


@rc_context(SETTINGS)
def occupancy_figure(levels: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Occupancy of each on-chip memory of one point, as a share of its size, with its peak.

    Of memories that every core has, that of the core with the highest peak. Raises ValueError for
    the rows of several points.
    """
    text = point_title(levels)
    arch = archs[str(levels["arch"].iloc[0])]
    memories = arch.memories.on_chip()
    found = {name: own for name, own in series(levels, "occupancy").items() if name in memories}
    unused = [name for name, own in found.items() if not own.values.any()]
    found = {name: own for name, own in found.items() if name not in unused}
    empty = f"; {', '.join(unused)}: not used" if unused else ""
    count = max(1, len(found))
    figure = Figure(figsize=(WIDTH, 0.9 + 1.35 * count), layout="constrained")
    grid = figure.subplots(count, 1, squeeze=False).ravel().tolist()
    title(figure, f"Memory over time: {text}{empty}")
    if not found:
        say(grid[0], "nothing is known of what memories held")
    for axes, (name, own) in zip(grid, found.items(), strict=False):
        _draw(axes, name, own, memories[name])
        time_axis(axes, own.edges[-1], arch, bottom=axes is grid[-1])
    return figure


def _draw(axes: Axes, name: str, own: Series, memory: Memory) -> None:
    shares = 100 * own.values / memory.size
    axes.stairs(shares, own.edges, fill=True, color=MEMORIES[name])
    top = next((each for each in _TOPS if each > 1.1 * shares.max()), 100.0)
    axes.axhline(100, color=INK, lw=1)
    axes.set_ylim(0, 1.08 * top)
    axes.set_yticks([0, top / 4, top / 2, 3 * top / 4, top])
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_ylabel("% full")
    peak = int(np.argmax(own.values))
    share, used = shares[peak], show_bytes(own.values[peak])
    axes.set_title(f"{name}: at most {used} of {show_bytes(memory.size)} ({share:.3g} %)")
    at = (own.edges[peak] + own.edges[peak + 1]) / 2
    axes.plot([at], [share], "v", color=INK, ms=5, mec="white", mew=0.6, clip_on=False)


def has_banks(levels: Frame) -> bool:
    """Whether the rows say anything of single banks."""
    return bool((levels["kind"].eq("occupancy") & levels["name"].str.contains(".bank")).any())


@rc_context(SETTINGS)
def banks_figure(levels: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Occupancy of each bank over time as shades, one map for each memory of one point.

    Only memories whose banks are ranges of addresses have any. Raises ValueError for the rows of
    several points.
    """
    text = point_title(levels)
    arch = archs[str(levels["arch"].iloc[0])]
    maps: dict[str, list[Series]] = {}
    for name, own in series(levels, "occupancy").items():
        memory, dot, _ = name.partition(".bank")
        if dot:
            maps.setdefault(memory, []).append(own)
    heights = [0.55 + 0.16 * max(4, len(banks)) for banks in maps.values()] or [1.0]
    figure = Figure(figsize=(WIDTH, 0.8 + sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights).ravel().tolist()
    title(figure, f"Banks over time: {text}")
    if not maps:
        say(grid[0], "no memory with banks that are ranges of addresses")
    for axes, (name, banks) in zip(grid, maps.items(), strict=False):
        _draw_banks(figure, axes, name, banks, arch.memories.on_chip()[name])
        time_axis(axes, banks[0].edges[-1], arch, bottom=axes is grid[-1])
    return figure


def _draw_banks(figure: Figure, axes: Axes, name: str, banks: list[Series], memory: Memory) -> None:
    shares = 100 * np.array([bank.values for bank in banks]) / memory.bank_size
    image = axes.imshow(
        shares, cmap=_SHADES, vmin=0, vmax=100, aspect="auto", interpolation="nearest",
        extent=(0, banks[0].edges[-1], len(banks) - 0.5, -0.5),
    )  # fmt: skip
    axes.set_title(f"{name}: {len(banks)} banks of {show_bytes(memory.bank_size)}")
    axes.set_ylabel("bank")
    axes.grid(visible=False)
    step = max(1, len(banks) // 8)
    axes.set_yticks(range(0, len(banks), step))
    figure.colorbar(image, ax=axes, label="% full", ticks=[0, 50, 100], pad=0.01)
