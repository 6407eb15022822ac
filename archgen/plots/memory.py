"""How full each on-chip memory gets, against its capacity."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.frame import Frame
from archgen.plots.panels import Panel, bar_figure, split_panels, write_refusals
from archgen.plots.style import INK, MEMORIES, MUTED, PALE, SETTINGS
from simmodel.arch import Arch
from simmodel.units import show_bytes

_BAR = 0.14


@rc_context(SETTINGS)
def memory_figure(frame: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Bars of `peak_<memory>_bytes` as a share of the memory's size, worst core.

    Each row holds one thin bar for each on-chip memory of its machine.
    """
    panels = split_panels(frame)
    machines = [archs[name].memories.on_chip() for name in dict.fromkeys(frame["arch"])]
    present = [role for role in MEMORIES if any(role in machine for machine in machines)]
    bars = max(map(len, machines))
    figure, grid = bar_figure(panels, "Peak of on-chip memories", max(0.3, _BAR * bars))
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, panel, archs)
    handles = [Line2D([], [], color=MEMORIES[role], lw=7, label=role) for role in present]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles) or 1)
    return figure


def _draw(axes: Axes, panel: Panel, archs: Mapping[str, Arch]) -> None:
    axes.set_xlabel("peak [% of capacity]")
    axes.set_xlim(0, 128)
    axes.set_xticks(range(0, 101, 25))
    axes.axvline(100, color=INK, lw=1)
    write_refusals(axes, panel)
    for place, row in enumerate(panel.rows):
        if row["status"] != "ok":
            continue
        memories = archs[str(row["arch"])].memories.on_chip()
        roles = [role for role in MEMORIES if role in memories]
        height = 0.8 / len(roles)
        for index, role in enumerate(roles):
            at = place - 0.4 + height * (index + 0.5)
            peak, size = row.get(f"peak_{role}_bytes"), memories[role].size
            used = 0 if peak is None or peak != peak else int(peak)
            axes.barh(at, 100, height=height * 0.9, color=PALE, alpha=0.45)
            axes.barh(at, 100 * used / size, height=height * 0.9, color=MEMORIES[role])
            axes.annotate(
                show_bytes(size), (100, at), (4, 0), textcoords="offset points",
                va="center", fontsize=7, color=MUTED,
            )  # fmt: skip
