"""From one technology node to another: straight lines between known nodes, on logarithmic axes.

The one idea: beyond the outermost nodes the nearest line goes on, so a figure is always there; what
lies between measured nodes is worth more than what lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping


def at_node(points: Mapping[float, float], node: float) -> float:
    """The value at `node` nm of a curve through `points` (nm -> positive value, two or more)."""
    known = sorted(points)
    above = next((i for i, each in enumerate(known) if each >= node), len(known) - 1)
    low, high = known[max(0, above - 1)], known[max(1, above)]
    share = math.log(node / low) / math.log(high / low)
    return math.exp((1 - share) * math.log(points[low]) + share * math.log(points[high]))


def of_voltage(points: Mapping[float, float], node: float, voltage: float | None) -> float:
    """Dynamic energy at `voltage` V over that at the nominal voltage of `node`: its square."""
    return 1.0 if voltage is None else (voltage / at_node(points, node)) ** 2
