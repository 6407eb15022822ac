"""From the bound to the measured cycle: what matrix engines and DRAM did in every cycle.

The one idea: both bars of a point are its whole time, and begin with what no schedule saves. A tick
stands at `bound_cycles`: left of it is what any schedule takes on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.frame import Frame, Record, number
from archgen.plots.panels import NONE, bar_figure, split_panels, write_refusals
from archgen.plots.stacked import draw_stack
from archgen.plots.style import CAUSES, INK, MOVED, SETTINGS, WORK, keys, legend_columns
from simmodel.arch import Arch

_ROW = 0.62
_HALF = 0.34
_NAMES = {
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
                _bound(axes, place, row)
    shown = {n: c for n, c in (matrix | dram).items() if n in frame and (frame[n] > 0).any()}
    handles = [*keys({_label(name): colour for name, colour in shown.items()})]
    tick = Line2D([], [], color=INK, lw=2, label="bound")
    labels = [_label(name) for name in shown]
    columns = min(5, legend_columns(figure, labels))
    figure.legend(handles=[*handles, tick], loc="outside lower left", ncols=columns)
    return figure


def _bound(axes: Axes, place: int, row: Record) -> None:
    at = 100 * number(row, "of_bound")
    axes.plot([at, at], [place - _HALF - 0.08, place + _HALF + 0.08], color=INK, lw=2)


def _label(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    kind, _, part = name.partition("_")
    words = part.replace("start_ups", "start-ups").replace("_", " ")
    return f"waits: {words}" if kind == "stall" else words
