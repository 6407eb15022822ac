"""When each engine worked, and for which group of layers.

The one idea: a lane for each engine of each core, in the engine's colour; groups take turns in
being dark and light, so that one sees how far they overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import archgen.plots.style as style
from archgen.outcomes.frame import Frame, Record, arrays_of, matrix_use, number, records
from archgen.plots.over_time import WIDTH, Stretch, point_and_machine, stretches, time_axis
from archgen.plots.panels import name_rows
from archgen.plots.style import engine_colour, legend, title
from simmodel.arch.record import Arch

HOST = -1
_LANE, _MOST_LANES = 0.19, 48
_FINEST = 4000
"""Spans nearer than this fraction of the run are drawn as one: less than a pixel apart."""
_NUMBER_FROM = 0.012
_SOLID = "#6A6A6A"
Lane = tuple[int, str]
"""A core and one of its engines."""


@rc_context(style.SETTINGS)
def gantt_figure(spans: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Lanes of one point's `spans` over time, below a ruler of its groups.

    Of many cores the first, as many as 48 lanes show. Engines that never work have no lane. Raises
    ValueError for the rows of several points.
    """
    text, arch = point_and_machine(spans, archs)
    lanes, left_out = _lanes(spans, arch)
    end = int(spans["end_cycle"].max())
    figure = Figure(figsize=(WIDTH, 1.5 + _LANE * max(4, len(lanes))), layout="constrained")
    ruler, axes = figure.subplots(2, 1, sharex=True, height_ratios=[1, max(4, len(lanes))])
    left = f" ({left_out} more cores)" if left_out else ""
    busiest = _busiest(spans, lanes, end)
    title(figure, f"Engines over time: {busiest}; {text}, {end / arch.clock * 1e3:.4g} ms{left}")
    parts = stretches(records(spans[["group", "start_cycle", "end_cycle"]].dropna()))
    _draw_group_ruler(ruler, parts, end)
    _draw_lanes(axes, spans, lanes, arch, end)
    for part in parts:
        axes.axvline(part.end, color=style.GREY, alpha=0.5, lw=0.7, zorder=0)
    time_axis(axes, end, arch)
    ruler.tick_params(labelbottom=False, bottom=False)
    engines = dict.fromkeys(engine for _, engine in lanes)
    handles = [Patch(color=engine_colour(arch, name), label=name) for name in engines]
    handles.append(Patch(color=_light(_SOLID), label="light: groups of odd number"))
    legend(figure, handles, most=8)
    return figure


def _busiest(spans: Frame, lanes: Sequence[Lane], end: int) -> str:
    """`matrix works most, 62 % of the time`: of the engines of all cores that are drawn."""
    busy: dict[str, list[float]] = {}
    for core, engine in lanes:
        own = spans[(spans["core"] == core) & (spans["engine"] == engine)]
        busy.setdefault(engine, []).append((own["end_cycle"] - own["start_cycle"]).sum() / end)
    share, name = max((sum(each) / len(each), name) for name, each in busy.items())
    return f"{name} works most, {100 * min(share, 1.0):.0f} % of the time"


def _lanes(spans: Frame, arch: Arch) -> tuple[list[Lane], int]:
    """Lanes in order, the host last, and how many cores there was no room for."""
    used = set(zip(spans["core"].astype(int), spans["engine"].astype(str), strict=True))
    order = [*arch.engines(), *sorted({engine for _, engine in used} - set(arch.engines()))]
    lanes = sorted(used, key=lambda lane: (lane[0] == HOST, lane[0], order.index(lane[1])))
    ends = {core: n for n, (core, _) in enumerate(lanes, 1) if core != HOST}
    first = [core for n, (core, end) in enumerate(ends.items()) if not n or end <= _MOST_LANES]
    drawn = [lane for lane in lanes if lane[0] in (*first, HOST)]
    return drawn, len(ends) - len(first)


def _draw_group_ruler(axes: Axes, parts: Sequence[Stretch], end: int) -> None:
    axes.set_ylim(0, 1)
    axes.set_yticks([0.5], ["group"])
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    for part in parts:
        light = part.group % 2
        colour = style.PALE if light else _SOLID
        axes.broken_barh([(part.start, part.end - part.start)], (0.1, 0.8), fc=colour, lw=0)
        if part.end - part.start > (0.4 + 0.6 * len(str(part.group))) * _NUMBER_FROM * end:
            axes.text(
                (part.start + part.end) / 2, 0.48, str(part.group), fontsize=7.5,
                ha="center", va="center", color=style.DARK if light else style.LIGHT,
            )  # fmt: skip


def _draw_lanes(axes: Axes, spans: Frame, lanes: Sequence[Lane], arch: Arch, end: int) -> None:
    several = len({core for core, _ in lanes if core != HOST}) > 1
    names = [f"{core} {name}" if several and core != HOST else name for core, name in lanes]
    name_rows(axes, names, 4, 8)
    own = spans.sort_values("start_cycle")
    odd = own["group"].fillna(0).astype(int) % 2 == 1
    for place, (core, engine) in enumerate(lanes):
        here = (own["core"] == core) & (own["engine"] == engine)
        colour = engine_colour(arch, engine)
        for light, tint in ((False, colour), (True, _light(colour))):
            bars = _merge_spans(own[here & (odd == light)], end / _FINEST)
            axes.broken_barh(bars, (place - 0.39, 0.78), fc=tint, lw=0)
    starts = [place for place in range(1, len(lanes)) if lanes[place][0] != lanes[place - 1][0]]
    for place in starts:
        axes.axhline(place - 0.5, color=style.GREY, alpha=0.5, lw=0.7)


def _light(colour: str) -> tuple[float, float, float]:
    red, green, blue = (0.42 * part + 0.58 for part in to_rgb(colour))
    return red, green, blue


def _merge_spans(spans: Frame, gap: float) -> list[tuple[float, float]]:
    """Start and length of each run of spans, in order of start, no more than `gap` apart."""
    if spans.empty:
        return []
    starts = spans["start_cycle"].to_numpy(np.float64)
    ends = np.maximum.accumulate(spans["end_cycle"].to_numpy(np.float64))
    cuts = np.flatnonzero(starts[1:] > ends[:-1] + gap) + 1
    first = starts[np.concatenate([[0], cuts])]
    last = ends[np.concatenate([cuts - 1, [len(ends) - 1]])]
    return [(float(a), float(max(b - a, gap))) for a, b in zip(first, last, strict=True)]


# When each layer ran, and how well it used the matrix engines meanwhile.

_ROW, _MOST_ROWS, _LETTERS = 0.165, 72, 32


@rc_context(style.SETTINGS)
def utilization_figure(layers: Frame, archs: Mapping[str, Arch]) -> Figure:
    """A row for each layer of one point: its time, grey without MACs, its utilization, and how full
    on-chip memories are in its group.

    What its products take at the peak of their types is a share of all arrays over its own cycles
    (the bar) and of the cycles in which matrix engines worked for it (the tick). Layers of a group
    share its time. Of more than 72 layers those that took longest are drawn. Raises ValueError for
    the rows of several points.
    """
    text, arch = point_and_machine(layers, archs)
    rows = [row for row in records(layers) if number(row, "end_cycle") >= 0]
    longest = sorted(rows, key=_layer_cycles, reverse=True)[:_MOST_ROWS]
    drawn = sorted(longest, key=lambda row: (row["start_cycle"], row["end_cycle"]))
    fewer = len(rows) - len(drawn)
    left = f"; the {fewer} shortest layers left out" if fewer else ""
    figure = Figure(figsize=(WIDTH, 1.5 + _ROW * max(5, len(drawn))), layout="constrained")
    when, use, full = figure.subplots(1, 3, sharey=True, width_ratios=[1.5, 0.8, 0.7])
    end = max((number(row, "end_cycle") for row in rows), default=1)
    shares = [(str(row["node"]).split("+")[0], _layer_cycles(row) / end) for row in longest[:1]]
    most = "".join(f"{name} takes longest, {100 * share:.0f} %; " for name, share in shares)
    title(figure, f"Layers over time: {most}{text}{left}")
    _draw_time(when, drawn)
    _draw_use(use, drawn, arch)
    memories = _draw_memories(full, drawn, arch)
    time_axis(when, end, arch)
    mark: Any = {"color": style.INK, "marker": "|", "ls": "", "ms": 7, "mew": 1.6}
    while_busy = Line2D([], [], **mark, label="of one, while it works")
    over_all = Patch(color=style.BLUE, label="of all cores, over the layer's time")
    legend(figure, [over_all, while_busy, *memories])
    return figure


def _layer_cycles(row: Record) -> float:
    return number(row, "end_cycle") - number(row, "start_cycle")


def _draw_time(axes: Axes, rows: list[Record]) -> None:
    axes.set_title("layer (group) over time")
    name_rows(axes, [_layer_name(row) for row in rows], 5, 7)
    for place, row in enumerate(rows):
        span = (number(row, "start_cycle"), max(_layer_cycles(row), 1))
        colour = style.BLUE if number(row, "executed_macs") > 0 else style.GREY
        axes.broken_barh([span], (place - 0.4, 0.8), fc=colour, lw=0)
    for place in range(1, len(rows)):
        if rows[place]["group"] != rows[place - 1]["group"]:
            axes.axhline(place - 0.5, color=style.GREY, alpha=0.5, lw=0.7, zorder=0)


def _layer_name(row: Record) -> str:
    """The first node that the layer is made of, `+` where there are more, and its group."""
    first, *more = str(row["node"]).split("+")
    short = first if len(first) <= _LETTERS else f"…{first[1 - _LETTERS :]}"
    return f"{short}{' +' if more else ''} ({int(row['group'])})"


def _draw_use(axes: Axes, rows: list[Record], arch: Arch) -> None:
    _shares(axes, "use of matrix engines", "share of peak [%]")
    for place, row in enumerate(rows):
        engines = arch.core_count * max(1, len(arrays_of(row, arch)))
        products = 100 * number(row, "products_cycles", 0.0) / engines
        able, busy = _layer_cycles(row), 100 * matrix_use(row, arch)
        axes.barh(place, products / able if able > 0 else 0, height=0.8, color=style.BLUE)
        axes.plot([busy], [place], "|", color=style.INK, ms=6, mew=1.6)


def _draw_memories(axes: Axes, rows: list[Record], arch: Arch) -> list[Line2D]:
    """A line from layer to layer for each on-chip memory that is used; returns their legend."""
    _shares(axes, "memory in use", "share of its size [%]")
    lines = []
    for role, memory in arch.memories.on_chip().items():
        held = [100 * number(row, f"peak_{role}_bytes", 0.0) / memory.size for row in rows]
        if any(held):
            look: Any = {"color": style.MEMORIES[role], "lw": 1.4, "label": f"{role} memory"}
            ends = np.arange(len(rows) + 1) - 0.5
            axes.stairs(held, ends, orientation="horizontal", baseline=None, **look)
            lines.append(Line2D([], [], **look))
    return lines


def _shares(axes: Axes, heading: str, label: str) -> None:
    axes.set(title=heading, xlabel=label, xlim=(0, 104))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0, labelleft=False)
