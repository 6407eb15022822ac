"""What each machine's silicon is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.figure import Figure

from archgen.outcomes.frame import Frame, number, records
from archgen.plots.bars import shown
from archgen.plots.panels import NONE, Panel, bar_figure, row_names, write_instead
from archgen.plots.stacked import component_colours, draw_stack
from archgen.plots.style import SETTINGS, keys, legend_columns
from simmodel.arch import Arch

_PART = re.compile(r"area_(?!low_|high_)(.+)_mm2")


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
    colours = component_colours(frame, _PART)
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
    names = {_PART.sub(r"\1", column): colour for column, colour in colours.items()}
    if names:
        columns = legend_columns(figure, list(names))
        figure.legend(handles=keys(names), loc="outside lower left", ncols=min(6, columns))
    return figure
