"""Where the time of the matrix engines went: busy, or idle for one cause, out of 100 %."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from archgen.frame import Frame
from archgen.plots.style import (
    BUSY,
    CAUSES,
    SETTINGS,
    Panel,
    bar_figure,
    split_panels,
    write_refusals,
)

_NAMES = {
    "front_end": "front end",
    "no_work": "no work",
    "engine": "other engine",
    "core": "other core",
}
_NAMED_FROM = 0.08


@rc_context(SETTINGS)
def stalls_figure(frame: Frame) -> Figure:
    """Stacked bars of `matrix_busy` and every `stall_<cause>`, which add up to 1."""
    panels = split_panels(frame)
    figure, grid = bar_figure(panels, "Time of the matrix engines")
    columns = {"matrix_busy": BUSY, **{f"stall_{cause}": c for cause, c in CAUSES.items()}}
    columns = {name: colour for name, colour in columns.items() if name in frame}
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, panel, columns)
    handles = [Patch(color=colour, label=_label(name)) for name, colour in columns.items()]
    figure.legend(handles=handles, loc="outside lower left", ncols=5 if len(grid) > 1 else 4)
    return figure


def _label(name: str) -> str:
    cause = name.removeprefix("stall_")
    return "busy" if name == "matrix_busy" else _NAMES.get(cause, cause)


def _draw(axes: Axes, panel: Panel, columns: dict[str, str]) -> None:
    axes.set_xlabel("share of time [%]")
    axes.set_xlim(0, 100)
    write_refusals(axes, panel)
    for place, row in enumerate(panel.rows):
        if row["status"] != "ok":
            continue
        left = 0.0
        for name, colour in columns.items():
            share = 100 * float(row[name])
            axes.barh(place, share, left=left, height=0.72, color=colour)
            if name == "matrix_busy" and share > 100 * _NAMED_FROM:
                axes.text(left + share / 2, place, f"{share:.0f}", color="white", fontsize=8,
                          ha="center", va="center")  # fmt: skip
            left += share
