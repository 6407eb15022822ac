"""What each on-chip memory has, what of it a run used, and what would hold all that is alive."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from archgen.outcomes.bottleneck import holder, part_of
from archgen.outcomes.frame import Frame, Record, number
from archgen.plots.panels import Panel, bar_figure, split_panels, write_refusals
from archgen.plots.style import INK, MEMORIES, MUTED, PALE, PAPER, SETTINGS, filled, keys
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes

_BAR, _ROW = 0.2, 0.36
"""Inches: of a bar, of a row at least."""
_MOST_TICKS = 5
_ROOM = 1.6
"""Times the largest size that the axis goes to, and below the smallest from which it comes."""
_SET: Any = {"marker": "D", "ms": 5.5, "mfc": PAPER, "mec": INK, "mew": 1.2, "ls": "", "zorder": 4}
_END: Any = {"marker": "|", "ms": 9, "mec": INK, "mew": 1.6, "ls": "", "zorder": 3}


@rc_context(SETTINGS)
def memory_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Size of each on-chip memory, `peak_<memory>_bytes` of it, and the working set, over bytes.

    Each row holds one thin bar for each on-chip memory of its machine, up to the peak of the worst
    core, pale up to the size. Schedules fill what there is, so the peak does not say what a network
    needs: that does the diamond, the part of `working_set_bytes` in each shared memory, else in
    each core's local memory. On the right, DRAM traffic over `compulsory_bytes`: from 1 on upwards,
    what was spilled or loaded again for want of memory.
    """
    panels = split_panels(frame, archs)
    machines = [archs[name].memories.on_chip() for name in dict.fromkeys(frame["arch"])]
    present = [role for role in MEMORIES if any(role in machine for machine in machines)]
    bars = max(map(len, machines))
    figure, grid = bar_figure(panels, "Memory on chip", max(_ROW, _BAR * bars))
    ends = _byte_axis_limits([row for panel in panels for row in panel.rows], archs)
    for axes, panel in zip(grid, panels, strict=True):
        _over(axes, ends)
        _draw_memories(axes, panel, archs, ends[0])
    signs = [
        Line2D([], [], **_END, label="size of one"),
        Line2D([], [], **_SET, label="working set, its part in one"),
    ]
    handles = [*keys({f"peak, {role}": MEMORIES[role] for role in present}), *signs]
    figure.legend(handles=handles, loc="outside lower left", ncols=max(2, len(present)))
    return figure


def _byte_axis_limits(rows: Sequence[Record], archs: Mapping[str, Arch]) -> tuple[float, float]:
    """Bytes from which and to which the axes of all panels go."""
    amounts = [at for row in rows for at in _amounts(row, archs[str(row["arch"])])]
    return min(amounts) / (4 * _ROOM), max(amounts) * _ROOM


def _amounts(row: Record, arch: Arch) -> Iterator[float]:
    yield from (memory.size for memory in arch.memories.on_chip().values())
    part = part_of(number(row, "working_set_bytes"), arch)
    if part > 0:
        yield part


def _over(axes: Axes, ends: tuple[float, float]) -> None:
    """Bytes by factors, with ticks at powers of two."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(ends)
    first, last = (round(math.log2(end)) for end in ends)
    step = max(1, math.ceil((last - first) / _MOST_TICKS))
    axes.xaxis.set_major_locator(FixedLocator([2.0**at for at in range(first, last + 1, step)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: show_bytes(value))


def _draw_memories(axes: Axes, panel: Panel, archs: Mapping[str, Arch], start: float) -> None:
    write_refusals(axes, panel)
    for place, row in enumerate(panel.rows):
        if row["status"] != "ok":
            continue
        arch = archs[str(row["arch"])]
        memories = arch.memories.on_chip()
        roles = [role for role in MEMORIES if role in memories]
        height = 0.8 / len(roles)
        for index, role in enumerate(roles):
            at = place - 0.4 + height * (index + 0.5)
            size, peak = memories[role].size, number(row, f"peak_{role}_bytes")
            axes.barh(at, size - start, left=start, height=height * 0.8, color=PALE, alpha=0.45)
            if peak > start:
                axes.barh(at, peak - start, left=start, height=height * 0.8,
                          **filled(MEMORIES[role]))  # fmt: skip
            axes.plot([size], [at], **_END)
            if role == holder(arch):
                axes.plot([part_of(number(row, "working_set_bytes"), arch)], [at], **_SET)
        _say_need(axes, place, row)


def _say_need(axes: Axes, place: int, row: Record) -> None:
    """Right of a row: the working set, and how often what must cross DRAM's pins did so."""
    lines = []
    whole, least = number(row, "working_set_bytes"), number(row, "compulsory_bytes")
    if not math.isnan(whole):
        lines.append(f"working set {show_bytes(whole)}")
    moved = number(row, "dram_read_bytes") + number(row, "dram_write_bytes")
    if least > 0 and not math.isnan(moved):
        lines.append(f"DRAM traffic × {moved / least:.3g}")
    axes.annotate(
        "\n".join(lines), (1, place), (2, 0), xycoords=("axes fraction", "data"),
        textcoords="offset points", va="center", fontsize=7, color=MUTED,
    )  # fmt: skip
