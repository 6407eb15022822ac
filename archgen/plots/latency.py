"""Latency of each point as a bar, with a tick where its roofline would be."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.figure import Figure

from archgen.outcomes.frame import Frame
from archgen.plots.bars import value_figure
from archgen.plots.panels import NONE
from archgen.plots.style import SETTINGS
from simmodel.arch import Arch


@rc_context(SETTINGS)
def latency_figure(frame: Frame, archs: Mapping[str, Arch] = NONE) -> Figure:
    """Bars of `latency_ms`, and the roofline's lower bound of each."""
    return value_figure(
        frame, archs, "latency_ms", "latency [ms]", "Latency of one inference", True
    )
