"""One function per figure, from DataFrame to matplotlib figure.

Figures are made without pyplot: no global state, no display, the same picture in any process.
`overview_figures` and `detail_figures` give all that a study has, `save_figures` writes them, and
`as_svg` turns one into text for a page.
"""

from archgen.plots.bars import (
    area_figure,
    energy_figure,
    latency_figure,
    memory_figure,
    stalls_figure,
    throughput_figure,
    tornado_figure,
    waterfall_figure,
)
from archgen.plots.gantt import gantt_figure, utilization_figure
from archgen.plots.over_time import bandwidth_figure, banks_figure, occupancy_figure
from archgen.plots.pareto import pareto_figure
from archgen.plots.roofline import roofline_figure
from archgen.plots.saving import detail_figures, overview_figures, save_figures
from archgen.plots.style import as_svg
from archgen.plots.sweeps import map_figure, sweep_figure

__all__ = [
    "area_figure", "as_svg", "bandwidth_figure", "banks_figure", "detail_figures", "energy_figure",
    "gantt_figure", "latency_figure", "map_figure", "memory_figure", "occupancy_figure",
    "overview_figures", "pareto_figure", "roofline_figure", "save_figures", "stalls_figure",
    "sweep_figure", "throughput_figure", "tornado_figure", "utilization_figure", "waterfall_figure",
]  # fmt: skip
