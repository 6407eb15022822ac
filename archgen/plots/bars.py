"""One value of each row as a bar: latency and throughput of points, what a parameter changes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

import archgen.plots.findings as findings
import archgen.plots.panels as panels
import archgen.plots.style as style
from archgen.outcomes.bottleneck import activation_memory, working_set_in
from archgen.outcomes.columns import MORE_IS_BETTER
from archgen.outcomes.estimated import ESTIMATED, has_figures, is_estimated, run_figures
from archgen.outcomes.figures import DRAM, far_memory, figure_of
from archgen.outcomes.frame import Frame, Record, is_wrong, number, records
from archgen.plots.findings import best_of, points_with_labels, titled
from archgen.plots.panels import NONE, Panel, bar_figure, panel_figure, write_at_edge, write_instead
from archgen.plots.style import filled, legend, logarithmic, number_text, patches, readable_on
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes

_LOG_FROM = 30.0
_WRONG: Any = {"fc": style.VERMILION, "ec": style.PAPER, "lw": 0.5, "hatch": "xxxx"}
_GUESSED: Any = {"fc": style.PALE, "ec": style.BLUE, "lw": 0.8}
_RIGHT: Any = {"fc": style.BLUE, "ec": style.PAPER, "lw": 0.5}
_ASSUMED: Any = {"ecolor": style.ORANGE, "elinewidth": 1.5, "capsize": 4, "fmt": "none"}
_BOUND: Any = {"color": style.INK, "marker": "|", "ls": "", "ms": 11, "mew": 2}


def latency_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Bars of `latency_ms`, and the least that each could be (`bound_cycles`)."""
    return _bounded_bars(
        frame, archs, ("Latency", "ms", "takes least"), "latency [ms]", "latency_ms",
        lambda row: number(row, "latency_ms") * number(row, "of_bound"),
    )  # fmt: skip


def throughput_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Bars of `throughput_ips`, and the most that each could be (`bound_cycles`); with inferences
    in flight none, as weights may be there already."""
    return _bounded_bars(
        frame, archs, ("Throughput", "samples/s", "does most"), "throughput [samples/s]",
        "throughput_ips",
        lambda row: math.nan
        if number(row, "in_flight", 0.0)
        else number(row, "throughput_ips") / (number(row, "of_bound") or math.nan),
    )  # fmt: skip


@rc_context(style.SETTINGS)
def _bounded_bars(
    frame: Frame, archs: Mapping[str, Arch], words: tuple[str, str, str], x: str, column: str,
    bound: Callable[[Record], float],
) -> Figure:  # fmt: skip
    """Bars of `column` with ticks at the `bound` of each; logarithmic beyond a range of 30 times.
    Red and hatched where outputs were wrong, pale where estimated, with what a run gave inside."""
    what, unit, best = words
    more, points = column in MORE_IS_BETTER, points_with_labels(frame, archs)
    finding = best_of(points, lambda row: number(row, column), unit, best, more)
    figure, panels = bar_figure(frame, archs, titled(what, finding), x)
    for axes, panel in panels:
        done = [(place, row) for place, row in panel if has_figures(row)]
        ends = [number(row, column) for _, row in done]
        ends += [bound(row) for _, row in done]
        ends += [number(row, "latency_high_ms") for _, row in done if column == "latency_ms"]
        ends += [number(run, column) for _, row in done if (run := run_figures(row)) is not None]
        _value_axis(axes, [end for end in ends if end >= 0])
        for place, row in done:
            if math.isnan(number(row, column)):
                write_instead(axes, place, "no value")
            else:
                _draw_bar(axes, place, row, column, bound(row))
    rows = records(frame)
    ranged = column == "latency_ms" and "latency_high_ms" in frame
    right = Patch(label="simulated", **_RIGHT)
    handles: list[Any] = [right, Line2D([], [], label="bound", **_BOUND)]
    if is_estimated(frame):
        guessed = Patch(label="estimated", **_GUESSED)
        handles = [guessed, right] if any(map(run_figures, rows)) else [guessed]
    if ranged and frame["latency_high_ms"].notna().any():
        handles += [Line2D([], [], label="range of what is assumed", color=style.ORANGE)]
    handles += [Patch(label="wrong outputs", **_WRONG)] if any(map(is_wrong, rows)) else []
    legend(figure, handles)
    return figure


def _value_axis(axes: Axes, ends: Sequence[float]) -> None:
    """From zero; or logarithmic where `ends` differ by more than 30 times."""
    if not ends:
        axes.set_xticks([])
    elif min(ends) > 0 and max(ends) / min(ends) > _LOG_FROM:
        logarithmic(axes, "x")
        axes.set_xlim(min(ends) / 2, max(ends) * 1.1)
    else:
        axes.set_xlim(0, (max(ends) or 1.0) * 1.05)


def _draw_bar(axes: Axes, place: int, row: Record, column: str, bound: float) -> None:
    value, run = number(row, column), run_figures(row)
    certain = _WRONG if is_wrong(row) else _RIGHT
    guessed = run is not None or row["status"] == ESTIMATED
    axes.barh(place, value, height=0.66, **(_GUESSED if guessed else certain))
    axes.plot([bound], [place], **_BOUND)
    low, high = number(row, "latency_low_ms"), number(row, "latency_high_ms")
    if column == "latency_ms" and low < high:
        axes.errorbar(value, place, xerr=[[value - low], [high - value]], **_ASSUMED)
    text = number_text(value)
    if run is not None:
        axes.barh(place, number(run, column), height=0.22, **certain)
        text = f"{text}\nrun {number_text(number(run, column))}"
    write_at_edge(axes, place, text)


# What each parameter is worth: the change of a result when one of them moves and the rest stay.

_SIDES: Mapping[str, str] = {"low": style.BLUE, "high": style.ORANGE}
_MOST_ROWS = 40


@rc_context(style.SETTINGS)
def tornado_figure(frame: Frame) -> Figure:
    """Bars of `low` and `high`, relative changes of a metric at `low_value` and `high_value`.

    `frame` has the columns parameter, low_value, high_value, low, high, and may have `metric`. The
    parameter that matters most is on top; of more than 40 the others are counted. A change that is
    missing has no bar, but its value is named.
    """
    ranked = sorted(records(frame), key=_reach, reverse=True)
    drawn, left = ranked[:_MOST_ROWS], len(ranked) - _MOST_ROWS
    more = f"{left} smaller ones left out" if left > 0 else ""
    panel = Panel(more, drawn, [str(row["parameter"]) for row in drawn])
    metric = str(frame["metric"].iloc[0]) if "metric" in frame else "result"
    text = f"Sensitivity: {drawn[0]['parameter']} moves {metric} most, by {_change_text(drawn[0])}"
    figure, ((axes, _),) = panel_figure([panel], text, f"change of {metric} [%]", 0.36)
    axes.axvline(0, color=style.INK, lw=1)
    reach = _reach(drawn[0]) or 0.01
    axes.set_xlim(-175 * reach, 175 * reach)
    for place, row in panel:
        _draw_changes(axes, place, row)
    legend(figure, patches({"at the low value": style.BLUE, "at the high value": style.ORANGE}))
    return figure


def _change_text(row: Record) -> str:
    """`-30 to +12 %`."""
    changes = sorted({round(100 * c) for c in (number(row, s) for s in _SIDES) if c == c})
    return f"{' to '.join(f'{change:+d}' for change in changes) or 'nothing'} %"


def _reach(row: Record) -> float:
    """The larger of a row's two changes; those that are missing count as none."""
    changes = [abs(number(row, side)) for side in _SIDES]
    return max((change for change in changes if not math.isnan(change)), default=0.0)


def _draw_changes(axes: Axes, place: int, row: Record) -> None:
    """Both bars of a parameter with its values; they share the row where they point the same way.
    A change that is missing has its words where the other bar is not."""
    low, high = number(row, "low"), number(row, "high")
    together = low * high > 0
    for side, change, other in (("low", low, high), ("high", high, low)):
        shift = (-0.19 if side == "low" else 0.19) if together else 0.0
        missing = math.isnan(change)
        if not missing:
            height = 0.36 if together else 0.7
            axes.barh(place + shift, 100 * change, height=height, **filled(_SIDES[side]))
        free = other < 0 or (side == "high" and not other > 0)
        rightwards = change > 0 or (not change < 0 and free)
        value = row.get(f"{side}_value")
        text = "" if value is None or pd.isna(value) else str(value)
        text += ": no result" if missing else f" ({100 * change:+.3g} %)"
        axes.annotate(
            text.strip(), (0 if missing else 100 * change, place + shift),
            (4 if rightwards else -4, 0), textcoords="offset points", va="center", fontsize=7,
            ha="left" if rightwards else "right", color=style.MUTED if missing else style.INK,
        )  # fmt: skip


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
_KEY_LINE, _KEY_LINES = 0.23, 3
"""Inches of a line of the legend, and lines that `panel_figure` leaves room for."""
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
    lines = legend(figure, [*_time_keys(columns, far.replace(" memory", "")), bound], most=5)
    figure.set_figheight(figure.get_figheight() + _KEY_LINE * max(0, lines - _KEY_LINES))
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
