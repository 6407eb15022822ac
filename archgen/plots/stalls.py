"""Where the time of the matrix engines went: busy, or idle for one cause, out of 100 %."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.figure import Figure

from archgen.outcomes.frame import Frame, number
from archgen.plots.panels import NONE, bar_figure, split_panels, write_refusals
from archgen.plots.stacked import draw_stack
from archgen.plots.style import BUSY, CAUSES, SETTINGS, keys, legend_columns
from simmodel.arch import Arch

_NAMES = {
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
    names = {_label(name): colour for name, colour in columns.items()}
    columns_of_legend = min(5, legend_columns(figure, list(names)))
    figure.legend(handles=keys(names), loc="outside lower left", ncols=columns_of_legend)
    return figure


def _label(name: str) -> str:
    cause = name.removeprefix("stall_")
    return "busy" if name == "matrix_busy" else _NAMES.get(cause, cause)
