"""Samples per second of each point as a bar, with a tick where its roofline would be."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.figure import Figure

from archgen.outcomes.frame import Frame
from archgen.plots.bars import value_figure
from archgen.plots.style import SETTINGS


@rc_context(SETTINGS)
def throughput_figure(frame: Frame) -> Figure:
    """Bars of `throughput_ips`, and the roofline's upper bound of each."""
    return value_figure(frame, "throughput_ips", "throughput [samples/s]", "Throughput", False)
