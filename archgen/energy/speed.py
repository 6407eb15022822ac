"""What a fast clock costs: area and energy of logic over those at a clock that the node gives.

The one idea: logic has a cycle that it needs nothing special for. A clock beyond it is bought with
larger cells and deeper pipelines, by the same factor for each doubling; a slower one saves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from archgen.energy.ranges import Range
from archgen.energy.table import Figures
from simmodel.arch import Arch


def area_of_speed(arch: Arch, figures: Figures) -> Range:
    """Area of the logic of `arch` over that of the same at an easy clock; at least 1."""
    return _grown(arch, figures, figures.speed.area)


def energy_of_speed(arch: Arch, figures: Figures) -> Range:
    """Energy of an operation of `arch` over that of the same at an easy clock; at least 1."""
    return _grown(arch, figures, figures.speed.energy)


def easy_clock(node: float, figures: Figures) -> float:
    """Hz up to which a clock asks for nothing."""
    return figures.speed.delays(1.0, node) / figures.speed.easy


def _grown(arch: Arch, figures: Figures, doubled: Mapping[str, float]) -> Range:
    """As the mean of all units grows; ends: as the one grows that does least, and most."""
    times = max(1.0, arch.clock / easy_clock(arch.energy.node, figures))
    each = [math.log(ratio) * math.log2(times) for ratio in doubled.values()]
    return Range(math.exp(sum(each) / len(each)), math.exp(min(each)), math.exp(max(each)))
