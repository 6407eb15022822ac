"""One function per figure, from DataFrame to matplotlib figure.

Figures are made without pyplot: no global state, no display, the same picture in any process.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from archgen.frame import Frame
from archgen.plots.latency import latency_figure
from archgen.plots.memory import memory_figure
from archgen.plots.roofline import roofline_figure
from archgen.plots.stalls import stalls_figure
from archgen.plots.throughput import throughput_figure
from archgen.reference import write_atomically
from simmodel.arch import Arch

__all__ = [
    "latency_figure",
    "memory_figure",
    "roofline_figure",
    "save_plots",
    "stalls_figure",
    "throughput_figure",
]

_DPI = 130


def save_plots(frame: Frame, archs: Mapping[str, Arch], folder: Path) -> list[Path]:
    """Draw `frame` as latency, roofline, memory and stalls PNGs in `folder`; gives their paths.

    `archs` holds every architecture of the frame by name.
    """
    figures: dict[str, Figure] = {
        "latency": latency_figure(frame),
        "roofline": roofline_figure(frame, archs),
        "memory": memory_figure(frame, archs),
        "stalls": stalls_figure(frame),
    }
    for name, figure in figures.items():
        write_atomically(folder / f"{name}.png", partial(figure.savefig, format="png", dpi=_DPI))
    return [folder / f"{name}.png" for name in figures]
