"""Where the energy of each point went, and how sure that is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.frame import Frame, number
from archgen.plots.bars import shown
from archgen.plots.panels import (
    NONE,
    Panel,
    bar_figure,
    split_panels,
    write_instead,
    write_refusals,
)
from archgen.plots.stacked import component_colours, draw_stack
from archgen.plots.style import INK, SETTINGS, keys, legend_columns
from simmodel.arch import Arch

_PART = re.compile(r"energy_(?!low_|high_)(.+)_mj")


@rc_context(SETTINGS)
def energy_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Stacked bars of `energy_<component>_mj`, and the range from `energy_low_mj` to `..._high_mj`.

    Only components that cost something anywhere are drawn. The total stands beside the range.
    """
    panels = split_panels(frame, archs)
    figure, grid = bar_figure(panels, "Energy of one inference", 0.36)
    colours = component_colours(frame, _PART)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_xlabel("energy [mJ]")
        write_refusals(axes, panel)
        _draw(axes, panel, colours)
    handles = [
        *keys({_PART.sub(r"\1", column): colour for column, colour in colours.items()}),
        Line2D([], [], color=INK, marker="|", ms=7, lw=1.2, label="low to high"),
    ]
    columns = legend_columns(figure, [str(handle.get_label()) for handle in handles])
    figure.legend(handles=handles, loc="outside lower left", ncols=min(6, columns))
    return figure


def _draw(axes: Axes, panel: Panel, colours: dict[str, str]) -> None:
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
