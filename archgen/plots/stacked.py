"""Bars made of parts that add up: a colour and hatch for each part, numbers in the wide ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.frame import Frame, Record, number, records
from archgen.plots.bars import shown
from archgen.plots.panels import (
    NONE,
    Panel,
    bar_figure,
    row_names,
    split_panels,
    write_instead,
    write_refusals,
)
from archgen.plots.style import (
    BUSY,
    CAUSES,
    COMPONENTS,
    INK,
    MOVED,
    SETTINGS,
    WORK,
    filled,
    keys,
    legend_columns,
    readable_on,
)
from simmodel.arch.record import Arch

_NAMED_FROM = 0.085


def draw_stack(
    axes: Axes, place: float, parts: Mapping[str, float], colours: Mapping[str, str], whole: float,
    height: float = 0.72,
) -> float:  # fmt: skip
    """Draw `parts` (by name, in order) as one bar in row `place`; gives its length.

    Parts of at least 8.5 % of `whole`, the width of the axes, bear their number.
    """
    left = 0.0
    for name, length in parts.items():
        if not length > 0:
            continue
        colour = colours[name]
        axes.barh(place, length, left=left, height=height, **filled(colour))
        if length >= _NAMED_FROM * whole:
            axes.text(
                left + length / 2, place, _short(length, whole),
                color=readable_on(colour), fontsize=8, ha="center", va="center",
                bbox={"fc": colour, "ec": "none", "pad": 1.2},
            )  # fmt: skip
        left += length
    return left


def _short(length: float, whole: float) -> str:
    """Two digits, or as many as stand before the point; shares of a hundred are whole."""
    return f"{length:.0f}" if length >= 10 or whole == 100 else f"{length:.2g}"


def component_colours(frame: Frame, pattern: re.Pattern[str]) -> dict[str, str]:
    """Colours of the columns that `pattern` matches and that are not zero everywhere.

    The pattern's first group is the component. Order is that of `COMPONENTS`, others last.
    """
    found = {name: match[1] for name in map(str, frame) if (match := pattern.fullmatch(name))}
    known = list(COMPONENTS)
    order = sorted(found, key=lambda name: [*known, found[name]].index(found[name]))
    used = [name for name in order if (frame[name].fillna(0) > 0).any()]
    return {name: COMPONENTS.get(found[name], INK) for name in used}


# Where the time of the matrix engines went: busy, or idle for one cause, out of 100 %.

_STALL_NAMES = {
    "front_end": "front end",
    "no_work": "no work",
    "engine": "other engine",
    "core": "other core",
}


@rc_context(SETTINGS)
def stalls_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Stacked bars of `matrix_busy` and every `stall_<cause>`, which add up to 1."""
    panels = split_panels(frame, archs)
    figure, grid = bar_figure(panels, "Time of the matrix engines")
    columns = {"matrix_busy": BUSY, **{f"stall_{cause}": c for cause, c in CAUSES.items()}}
    columns = {name: colour for name, colour in columns.items() if name in frame}
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_xlabel("share of time [%]")
        axes.set_xlim(0, 100)
        write_refusals(axes, panel)
        for place, row in enumerate(panel.rows):
            if row["status"] == "ok":
                shares = {name: 100 * number(row, name) for name in columns}
                draw_stack(axes, place, shares, columns, 100)
    names = {_stall_label(name): colour for name, colour in columns.items()}
    columns_of_legend = min(5, legend_columns(figure, list(names)))
    figure.legend(handles=keys(names), loc="outside lower left", ncols=columns_of_legend)
    return figure


def _stall_label(name: str) -> str:
    cause = name.removeprefix("stall_")
    return "busy" if name == "matrix_busy" else _STALL_NAMES.get(cause, cause)


# Where the energy of each point went, and how sure that is.

_ENERGY_PART = re.compile(r"energy_(?!low_|high_)(.+)_mj")


@rc_context(SETTINGS)
def energy_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Stacked bars of `energy_<component>_mj`, and the range from `energy_low_mj` to `..._high_mj`.

    Only components that cost something anywhere are drawn. The total stands beside the range.
    """
    panels = split_panels(frame, archs)
    figure, grid = bar_figure(panels, "Energy of one inference", 0.36)
    colours = component_colours(frame, _ENERGY_PART)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_xlabel("energy [mJ]")
        write_refusals(axes, panel)
        _draw_energy(axes, panel, colours)
    handles = [
        *keys({_ENERGY_PART.sub(r"\1", column): colour for column, colour in colours.items()}),
        Line2D([], [], color=INK, marker="|", ms=7, lw=1.2, label="low to high"),
    ]
    columns = legend_columns(figure, [str(handle.get_label()) for handle in handles])
    figure.legend(handles=handles, loc="outside lower left", ncols=min(6, columns))
    return figure


def _draw_energy(axes: Axes, panel: Panel, colours: dict[str, str]) -> None:
    ends = [
        number(row, column)
        for row in panel.rows
        for column in ("energy_mj", "energy_high_mj")
        if not math.isnan(number(row, column))
    ]
    most = max(ends, default=0.0) or 1.0
    axes.set_xlim(0, most * 1.25)
    for place, row in enumerate(panel.rows):
        if row["status"] != "ok":
            continue
        parts = {column: number(row, column) for column in colours}
        end = draw_stack(axes, place, parts, colours, most * 1.25)
        total = number(row, "energy_mj")
        if math.isnan(total):
            write_instead(axes, place, "no value")
            continue
        low, high = number(row, "energy_low_mj"), number(row, "energy_high_mj")
        if high > low:
            axes.plot([low, high], [place + 0.43] * 2, "|-", color=INK, lw=1.2, ms=6)
        axes.annotate(
            shown(total), (max(end, total), place), (5, 0),
            textcoords="offset points", va="center", fontsize=8,
        )  # fmt: skip


# What each machine's silicon is made of.

_AREA_PART = re.compile(r"area_(?!low_|high_)(.+)_mm2")


@rc_context(SETTINGS)
def area_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Stacked bars of `area_<component>_mm2`, one for each machine, whatever it ran."""
    rows = records(frame)
    machines = {row["arch"]: row for row in reversed(rows)}
    own = [machines[name] for name in dict.fromkeys(row["arch"] for row in rows)]
    told, said = row_names(frame, own, archs)
    panel = Panel("", own, told if said else [row["arch"] for row in own], said)
    varied = dict(zip(row_names(frame, rows, archs)[0], rows, strict=True))
    if any(str(name).startswith("arch.") for name in frame) and len(varied) > len(own):
        panel = Panel("", list(varied.values()), list(varied), panel.said)
    figure, (axes,) = bar_figure([panel], "Area")
    colours = component_colours(frame, _AREA_PART)
    areas = [number(row, "area_mm2") for row in panel.rows]
    most = max((area for area in areas if not math.isnan(area)), default=0.0) or 1.0
    axes.set_xlabel("area, with the interface to DRAM [mm²]")
    axes.set_xlim(0, most * 1.2)
    for place, (row, area) in enumerate(zip(panel.rows, areas, strict=True)):
        if math.isnan(area):
            write_instead(axes, place, "no value")
            continue
        parts = {column: number(row, column) for column in colours}
        end = draw_stack(axes, place, parts, colours, most * 1.2)
        axes.annotate(
            shown(area), (max(end, area), place), (5, 0),
            textcoords="offset points", va="center", fontsize=8,
        )  # fmt: skip
    names = {_AREA_PART.sub(r"\1", column): colour for column, colour in colours.items()}
    if names:
        columns = legend_columns(figure, list(names))
        figure.legend(handles=keys(names), loc="outside lower left", ncols=min(6, columns))
    return figure


# From the bound to the measured cycle: what matrix engines and DRAM did in every cycle.

_ROW = 0.62
_HALF = 0.34
_LOSS_NAMES = {
    "stall_front_end": "waits: front end",
    "stall_no_work": "no work",
    "stall_engine": "waits: other engine",
    "stall_core": "waits: other core",
    "moved_again": "DRAM: again",
    "moved_compulsory": "DRAM: compulsory",
    "moved_idle": "DRAM: idle",
}


@rc_context(SETTINGS)
def waterfall_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Two stacked bars for each point: matrix engines (`work_<part>`, `stall_<cause>`) above DRAM
    (`moved_<part>`), and `of_bound` as a tick. Each bar adds up to the point's time."""
    panels = split_panels(frame, archs)
    figure, grid = bar_figure(panels, "From the bound to the measured cycle", _ROW)
    matrix = {f"work_{part}": colour for part, colour in WORK.items()}
    matrix |= {f"stall_{cause}": colour for cause, colour in CAUSES.items()}
    dram = {f"moved_{part}": colour for part, colour in MOVED.items()}
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_xlabel("share of time [%]: matrix engines above, DRAM below")
        axes.set_xlim(0, 100)
        write_refusals(axes, panel)
        for place, row in enumerate(panel.rows):
            if row["status"] == "ok":
                for colours, side in ((matrix, -1), (dram, 1)):
                    shares = {name: 100 * number(row, name) for name in colours if name in row}
                    draw_stack(axes, place + side * _HALF / 2, shares, colours, 100, _HALF - 0.02)
                _draw_bound_mark(axes, place, row)
    shown = {n: c for n, c in (matrix | dram).items() if n in frame and (frame[n] > 0).any()}
    handles = [*keys({_loss_label(name): colour for name, colour in shown.items()})]
    tick = Line2D([], [], color=INK, lw=2, label="bound")
    labels = [_loss_label(name) for name in shown]
    columns = min(5, legend_columns(figure, labels))
    figure.legend(handles=[*handles, tick], loc="outside lower left", ncols=columns)
    return figure


def _draw_bound_mark(axes: Axes, place: int, row: Record) -> None:
    at = 100 * number(row, "of_bound")
    axes.plot([at, at], [place - _HALF - 0.08, place + _HALF + 0.08], color=INK, lw=2)


def _loss_label(name: str) -> str:
    if name in _LOSS_NAMES:
        return _LOSS_NAMES[name]
    kind, _, part = name.partition("_")
    words = part.replace("start_ups", "start-ups").replace("_", " ")
    return f"waits: {words}" if kind == "stall" else words
