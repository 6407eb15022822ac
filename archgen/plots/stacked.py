"""Bars made of parts that add up, with numbers in the wide ones: time, energy, area; and memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

import archgen.plots.findings as findings
import archgen.plots.panels as panels
import archgen.plots.style as style
from archgen.outcomes.bottleneck import activation_memory, working_set_in
from archgen.outcomes.figures import DRAM, far_memory, figure_of
from archgen.outcomes.frame import Frame, Record, number, records
from archgen.plots.findings import points_with_labels, titled
from archgen.plots.panels import Panel, bar_figure, write_at_edge
from archgen.plots.style import filled, legend, number_text, patches, readable_on
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes

_NUMBERED_FROM = 0.085


def draw_stack(
    axes: Axes, place: float, row: Record, colours: Mapping[str, str], scale: float = 1.0,
    height: float = 0.72,
) -> None:  # fmt: skip
    """Draw the columns of `row` that have `colours`, times `scale`, as one bar; parts of at
    least 8.5 % of the width of the axes bear their number."""
    left, width = 0.0, axes.get_xlim()[1]
    for name, colour in colours.items():
        length = scale * number(row, name)
        if not length > 0:
            continue
        bar = axes.barh(place, length, left=left, height=height, **filled(colour))
        if length >= _NUMBERED_FROM * width:
            text = f"{length:.0f}" if length >= 10 or width == 100 else f"{length:.2g}"
            box = {"fc": colour, "ec": "none", "pad": 1.2}
            axes.bar_label(
                bar, [text], label_type="center", fontsize=8, color=readable_on(colour), bbox=box
            )
        left += length


def _components(frame: Frame, pattern: re.Pattern[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The columns that `pattern` matches and that are not zero everywhere, in the order of
    `COMPONENTS`: by name the component, the pattern's first group, and its colour."""
    parts = {name: match[1] for name in map(str, frame) if (match := pattern.fullmatch(name))}
    order = list(style.COMPONENTS)
    ranked = sorted(parts, key=lambda name: [*order, parts[name]].index(parts[name]))
    used = {name: parts[name] for name in ranked if (frame[name].fillna(0) > 0).any()}
    return used, {name: style.COMPONENTS.get(part, style.INK) for name, part in used.items()}


# Where the time of the matrix engines went: busy, or idle for one cause, out of 100 %.

_LABELS = {
    "matrix_busy": "busy",
    "stall_no_work": "no work",
    "stall_engine": "waits: other engine",
    "stall_core": "waits: barriers, host",
    "work_start_ups": "start-ups",
}
_STALLS = {f"stall_{cause}": colour for cause, colour in style.CAUSES.items()}
_ENGINES = {"matrix_busy": style.BUSY} | _STALLS
_MATRIX = {f"work_{part}": colour for part, colour in style.WORK.items()} | _STALLS
_DRAM = {f"moved_{part}": colour for part, colour in style.MOVED.items()}
_FLASH = {f"flash_{name}": colour for name, colour in _DRAM.items()}
_SHARES_BAR, _SHARES_ROW = 0.31, 0.68
"""Inches of one bar of a row, and the share of the row that its bars take."""


def _time_keys(columns: Mapping[str, str], far: str = "") -> list[Any]:
    """What colours of parts of the time mean; `far` is what bytes were moved from and to."""
    starts = {"stall_": "waits: ", "work_": "", "moved_": f"{far}: "}
    names = {name: re.sub("^[a-z]+_", lambda m: starts.get(m[0], ""), name) for name in columns}
    return [*patches({_LABELS.get(n, names[n].replace("_", " ")): c for n, c in columns.items()})]


def _runs(panel: Panel) -> Iterable[tuple[int, Record]]:
    return ((place, row) for place, row in panel if row["status"] == "ok")


@rc_context(style.SETTINGS)
def stalls_figure(frame: Frame, archs: Mapping[str, Arch] = panels.NONE) -> Figure:
    """Stacked bars of `matrix_busy` and every `stall_<cause>`, which add up to 1."""
    columns = {name: colour for name, colour in _ENGINES.items() if name in frame}
    points = points_with_labels(frame, archs)
    busy = findings.extremes(points, lambda row: 100 * number(row, "matrix_busy"), " %", "{} busy")
    text = titled("Time of the matrix engines", busy)
    figure, grid = bar_figure(frame, archs, text, "share of time [%]")
    for axes, panel in grid:
        axes.set_xlim(0, 100)
        for place, row in _runs(panel):
            draw_stack(axes, place, row, columns, 100)
    legend(figure, _time_keys(columns), most=5)
    return figure


@rc_context(style.SETTINGS)
def waterfall_figure(frame: Frame, archs: Mapping[str, Arch] = panels.NONE) -> Figure:
    """Stacked bars for each point: matrix engines (`work_<part>`, `stall_<cause>`) above DRAM
    (`moved_<part>`) and, where there is any, flash (`flash_moved_<part>`); `of_bound` as a tick.
    Each bar adds up to the point's time."""
    text = titled("What holds points up", findings.bottlenecks(points_with_labels(frame, archs)))
    flash = frame.columns.isin([*_FLASH]).any()
    bars = (_MATRIX, _DRAM, _FLASH) if flash else (_MATRIX, _DRAM)
    far = far_memory(archs[name] for name in frame["arch"] if name in archs)
    order = f"matrix, {far}, flash" if flash else f"matrix engines above, {far} below"
    x = f"share of time [%]: {order}"
    figure, grid = bar_figure(frame, archs, text, x, _SHARES_BAR * len(bars))
    pitch = _SHARES_ROW / len(bars)
    for axes, panel in grid:
        axes.set_xlim(0, 100)
        for place, row in _runs(panel):
            for number_from_top, colours in enumerate(bars):
                middle = place + (number_from_top - (len(bars) - 1) / 2) * pitch
                draw_stack(axes, middle, row, colours, 100, pitch - 0.02)
            at, reach = 100 * number(row, "of_bound"), _SHARES_ROW / 2 + 0.08
            axes.plot([at, at], [place - reach, place + reach], color=style.INK, lw=2)
    parts = [name for own in bars for name in own if name in frame]
    seen = {name for name in parts if (frame[name] > 0).any()}
    columns = {n: c for n, c in (_MATRIX | _DRAM).items() if not seen.isdisjoint((n, f"flash_{n}"))}
    bound = Line2D([], [], color=style.INK, lw=2, label="bound")
    legend(figure, [*_time_keys(columns, far.replace(" memory", "")), bound], most=5)
    return figure


# Where the energy and the area of each point went.

_ENERGY_PART = re.compile(r"energy_(?!low_|high_)(.+)_mj")
_AREA_PART = re.compile(r"area_(?!low_|high_)(.+)_mm2")


@rc_context(style.SETTINGS)
def energy_figure(frame: Frame, archs: Mapping[str, Arch] = panels.NONE) -> Figure:
    """Stacked bars of `energy_<component>_mj`, and the range from `energy_low_mj` to `..._high_mj`.

    Only components that cost something anywhere are drawn. The total stands beside the range.
    """
    parts, colours = _components(frame, _ENERGY_PART)
    far = far_memory(archs[name] for name in frame["arch"] if name in archs)
    parts = {name: far if part == "dram" else part for name, part in parts.items()}
    points = points_with_labels(frame, archs)
    best = findings.best_of(points, lambda row: number(row, "energy_mj"), "mJ", "takes least")
    largest = findings.largest_part([row for _, row in points], parts)
    text = titled("Energy", "; ".join(filter(None, (best, largest))))
    figure, grid = bar_figure(frame, archs, text, "energy [mJ]", 0.36)
    for axes, panel in grid:
        _draw_totals(axes, list(_runs(panel)), colours, ("energy_mj", "energy_high_mj"))
        for place, row in _runs(panel):
            low, high = number(row, "energy_low_mj"), number(row, "energy_high_mj")
            if high > low:
                axes.plot([low, high], [place + 0.43] * 2, "|-", color=style.INK, lw=1.2, ms=6)
    spread = Line2D([], [], color=style.INK, marker="|", ms=7, lw=1.2, label="low to high")
    handles = patches({parts[name]: colour for name, colour in colours.items()})
    legend(figure, [*handles, spread])
    return figure


@rc_context(style.SETTINGS)
def area_figure(frame: Frame, archs: Mapping[str, Arch] = panels.NONE) -> Figure:
    """Stacked bars of `area_<component>_mm2`, one for each machine, whatever it ran."""
    machines = {row["arch"]: row for row in reversed(records(frame))}
    rows = [machines[name] for name in dict.fromkeys(frame["arch"])]
    labels, names = panels.row_labels(rows, frame, archs)
    panel = Panel("", rows, labels if names else [str(row["arch"]) for row in rows], names)
    parts, colours = _components(frame, _AREA_PART)
    # Whatever it ran: of one network, so to speak.
    own = [{"model": "", "batch": 1, "area_mm2": row.get("area_mm2")} for row in rows]
    pairs = list(zip(map(findings.short, panel.labels), own, strict=True))
    best = findings.best_of(pairs, lambda row: number(row, "area_mm2"), "mm²", "is smallest")
    text = titled("Area", "; ".join(filter(None, (best, findings.largest_part(rows, parts)))))
    x = "area, with the interface to DRAM [mm²]"
    figure, ((axes, _),) = panels.panel_figure([panel], text, x)
    _draw_totals(axes, list(panel), colours, ("area_mm2",))
    legend(figure, patches({parts[name]: colour for name, colour in colours.items()}))
    return figure


def _draw_totals(
    axes: Axes, rows: Sequence[tuple[int, Record]], colours: Mapping[str, str],
    ends: tuple[str, ...],
) -> None:  # fmt: skip
    """Stacks with their totals, the first of the columns `ends` that the axis has room for."""
    values = [number(row, column) for _, row in rows for column in ends]
    axes.set_xlim(0, 1.05 * (max((each for each in values if each > 0), default=1.0)))
    for place, row in rows:
        total = number(row, ends[0])
        if math.isnan(total):
            panels.write_instead(axes, place, "no value")
        else:
            draw_stack(axes, place, row, colours)
            write_at_edge(axes, place, number_text(total))


# What each on-chip memory has, what of it a run used, and what would hold all that is alive.

_MEMORY_BAR = 0.2
"""Inches of the row of one memory."""
_ROOM = 1.6
"""Times the largest size that the axis goes to, and below the smallest from which it comes."""
_SET: Any = {
    "marker": "D", "ms": 5.5, "mfc": style.PAPER, "mec": style.INK, "mew": 1.2, "ls": "",
    "zorder": 4,
}  # fmt: skip
_END: Any = {"marker": "|", "ms": 9, "mec": style.INK, "mew": 1.6, "ls": "", "zorder": 3}


@rc_context(style.SETTINGS)
def memory_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Size of each on-chip memory, `peak_<memory>_bytes` of it, and the working set, over bytes.

    Each row holds one thin bar for each on-chip memory of its machine, up to the peak of the worst
    core, pale up to the size. Schedules fill what there is, so the peak does not say what a network
    needs: that does the diamond, the part of `working_set_bytes` in each shared memory, else in
    each core's local memory. On the right, traffic of DRAM, or of what is in its place, over
    `compulsory_bytes`: from 1 on upwards, what was spilled or loaded again for want of memory.
    """
    machines = [archs[name].memories.srams() for name in dict.fromkeys(frame["arch"])]
    present = [role for role in style.MEMORIES if any(role in machine for machine in machines)]
    height = max(0.36, _MEMORY_BAR * max(map(len, machines)))
    again = findings.extremes(
        points_with_labels(frame, archs),
        lambda row: figure_of(row, DRAM) / (number(row, "compulsory_bytes") or math.nan),
        " ×", "moves {} the least bytes",
    )  # fmt: skip
    figure, grid = bar_figure(frame, archs, titled("Memory on chip", again), "bytes", height)
    needs = [
        working_set_in(number(row, "working_set_bytes"), archs[row["arch"]])
        for row in records(frame)
    ]
    amounts = [float(memory.size) for machine in machines for memory in machine.values()]
    amounts += [need for need in needs if need > 0]
    for axes, panel in grid:
        axes.set_xscale("log", base=2)
        axes.set_xlim(min(amounts) / (4 * _ROOM), max(amounts) * _ROOM)
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=5))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, _: show_bytes(value))
        for place, row in _runs(panel):
            _draw_memories(axes, place, row, archs[str(row["arch"])])
            _write_need(axes, place, row, archs[str(row["arch"])])
    signs = [
        Line2D([], [], **_END, label="size of one"),
        Line2D([], [], **_SET, label="working set, its part in one"),
    ]
    legend(figure, [*patches({f"peak, {role}": style.MEMORIES[role] for role in present}), *signs])
    return figure


def _draw_memories(axes: Axes, place: int, row: Record, arch: Arch) -> None:
    memories, start = arch.memories.srams(), axes.get_xlim()[0]
    roles = [role for role in style.MEMORIES if role in memories]
    height = 0.8 / len(roles)
    for index, role in enumerate(roles):
        at = place - 0.4 + height * (index + 0.5)
        column = "dram" if role == "shared" and arch.memories.dram.on_chip else role
        size, peak = memories[role].size, number(row, f"peak_{column}_bytes")
        axes.barh(at, size - start, left=start, height=height * 0.8, color=style.PALE, alpha=0.45)
        if peak > start:
            bar = filled(style.MEMORIES[role])
            axes.barh(at, peak - start, left=start, height=height * 0.8, **bar)
        axes.plot([size], [at], **_END)
        if role == activation_memory(arch):
            axes.plot([working_set_in(number(row, "working_set_bytes"), arch)], [at], **_SET)


def _write_need(axes: Axes, place: int, row: Record, arch: Arch) -> None:
    """Right of a row: the working set, and how often what must cross DRAM's pins did so."""
    lines = []
    need, least = number(row, "working_set_bytes"), number(row, "compulsory_bytes")
    if not math.isnan(need):
        lines.append(f"working set {show_bytes(need)}")
    moved = figure_of(row, DRAM)
    if least > 0 and not math.isnan(moved):
        lines.append(f"{arch.memories.far_name('dram')} traffic × {moved / least:.3g}")
    write_at_edge(axes, place, "\n".join(lines), color=style.MUTED)
