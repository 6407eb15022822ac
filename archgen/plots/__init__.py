"""One function per figure, from DataFrame to matplotlib figure.

Figures are made without pyplot: no global state, no display, the same picture in any process.
`overview_figures` and `detail_figures` give all that a study has, `save_plots` writes them, and
`as_svg` turns one into text for a page.
"""

from archgen.plots.bars import latency_figure, throughput_figure
from archgen.plots.gantt import gantt_figure, utilization_figure
from archgen.plots.group_roofline import group_roofline_figure
from archgen.plots.maps import map_figure
from archgen.plots.memory import memory_figure
from archgen.plots.over_time import bandwidth_figure, banks_figure, occupancy_figure
from archgen.plots.pareto import pareto_figure
from archgen.plots.roofline import roofline_figure
from archgen.plots.saving import FORMATS, detail_figures, overview_figures, save_plots
from archgen.plots.scaling import scaling_figure
from archgen.plots.stacked import area_figure, energy_figure, stalls_figure, waterfall_figure
from archgen.plots.style import as_svg, svg_text
from archgen.plots.sweep_lines import sweep_figure
from archgen.plots.sweep_scatter import parallel_figure, scatter_figure
from archgen.plots.tornado import tornado_figure

__all__ = [
    "FORMATS",
    "area_figure",
    "as_svg",
    "bandwidth_figure",
    "banks_figure",
    "detail_figures",
    "energy_figure",
    "gantt_figure",
    "group_roofline_figure",
    "latency_figure",
    "map_figure",
    "memory_figure",
    "occupancy_figure",
    "overview_figures",
    "parallel_figure",
    "pareto_figure",
    "roofline_figure",
    "save_plots",
    "scaling_figure",
    "scatter_figure",
    "stalls_figure",
    "svg_text",
    "sweep_figure",
    "throughput_figure",
    "tornado_figure",
    "utilization_figure",
    "waterfall_figure",
]
