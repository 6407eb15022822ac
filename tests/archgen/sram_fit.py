"""The fit of on-chip memories made again from its points, and how far it is from them."""

from __future__ import annotations

import math

import numpy as np

from archgen.energy.sram import bit_energy, of_ports
from archgen.energy.table import SramFit

REFERENCE_NODE, REFERENCE_WIDTH = 22, 128


def refit(fit: SramFit) -> tuple[float, float, float, float]:
    """scale, node, size and width as least squares over the fit's points gives them."""
    rows = [
        (1.0, math.log(p.node / REFERENCE_NODE), math.log(p.size),
         math.log(p.width / REFERENCE_WIDTH))
        for p in fit.points
    ]  # fmt: skip
    goal = [math.log(p.read / p.width / of_ports(fit, p.ports)) for p in fit.points]
    found = np.linalg.lstsq(np.array(rows), np.array(goal), rcond=None)[0]
    return math.exp(found[0]), float(found[1]), float(found[2]), float(found[3])


def ratios(fit: SramFit) -> list[float]:
    """Fit over figure, for each of the fit's points."""
    made = (bit_energy(fit, p.size, p.width, p.node) * of_ports(fit, p.ports) for p in fit.points)
    return [value * p.width / p.read for value, p in zip(made, fit.points, strict=True)]


def standard_error(fit: SramFit) -> float:
    """Factor by which the fit's points differ from it: root mean square of the logarithms."""
    return math.exp(math.sqrt(sum(math.log(r) ** 2 for r in ratios(fit)) / len(fit.points)))
