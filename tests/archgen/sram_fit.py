"""The fits of on-chip memories made again from their points, and how far they are from them.

Exponents come from CACTI, which varies one thing at a time; the level and its way from node to node
from all sources, each source at each node having one vote however many points it has.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import archgen.energy
from archgen.energy.ranges import at_node
from archgen.energy.sram import area_of_ports, bit_energy, energy_of_ports, flatness, over_cells
from archgen.energy.table import Figures, Ranged, SramFit

POINTS = Path(archgen.energy.__file__).with_name("sram_points.csv")
NODE, WIDTH = 22, 128
_PORTS = [step / 100 for step in range(0, 150, 5)]


@dataclass(frozen=True)
class Point:
    """One memory that somebody has figures for; NaN where there is none."""

    source: str
    node: float
    kib: float
    bits: float
    ports: int
    banks: int
    read_pj: float
    write_pj: float
    area_mm2: float

    @property
    def voter(self) -> tuple[str, float]:
        """What has one vote."""
        return self.source, self.node

    @property
    def shape(self) -> tuple[float, float, float]:
        """Logarithms of size, width and flatness."""
        flat = math.log(flatness(self.kib, self.bits))
        return math.log(self.kib), math.log(self.bits / WIDTH), flat

    def over_cells(self, figures: Figures) -> float:
        """Area over that of its bitcells."""
        cell = at_node(figures.area.bitcell.points, self.node)
        return 1e6 * self.area_mm2 / (8 * 1024 * self.kib * cell)


def points() -> list[Point]:
    """The points that are shipped with the package."""
    with POINTS.open(encoding="utf-8") as file:
        return [
            Point(row["source"], *(float(row[name]) for name in ("node", "kib", "bits")),
                  *(int(row[name]) for name in ("ports", "banks")),
                  *(float(row[name] or "nan") for name in ("read_pj", "write_pj", "area_mm2")))
            for row in csv.DictReader(file)
        ]  # fmt: skip


def of_energy() -> list[Point]:
    """Single banks whose reads are known."""
    return [p for p in points() if p.banks == 1 and not math.isnan(p.read_pj)]


def of_area() -> list[Point]:
    """Single banks whose area is known."""
    return [p for p in points() if p.banks == 1 and not math.isnan(p.area_mm2)]


def refit(fit: SramFit) -> dict[str, float]:
    """The table's figures of energy, as least squares on logarithms give them."""
    known = of_energy()
    tool = [p for p in known if p.source == "cacti"]
    port = min(_PORTS, key=lambda each: _shape(tool, each)[1])
    (size, width, aspect), _ = _shape(tool, port)
    levels = _votes(
        known, lambda p: _seen(p, port) - float(np.dot((size, width, aspect), p.shape))
    )  # fmt: skip
    rows = [(1.0, math.log(node / NODE)) for _, node in levels]
    scale, node = np.linalg.lstsq(np.array(rows), np.array([*levels.values()]), rcond=None)[0]
    return {"scale": math.exp(scale), "node": node, "size": size, "width": width,
            "aspect": aspect, "port": port}  # fmt: skip


def _seen(point: Point, port: float) -> float:
    """Logarithm of pJ of a bit, with one port."""
    return math.log(point.read_pj / point.bits / (1 + port * (point.ports - 1)))


def _shape(known: list[Point], port: float) -> tuple[list[float], float]:
    """Exponents of size, width and flatness, and what is left of the squares."""
    nodes = sorted({p.node for p in known})
    rows = np.array([[*p.shape, *(float(p.node == node) for node in nodes)] for p in known])
    goal = np.array([_seen(p, port) for p in known])
    found = np.linalg.lstsq(rows, goal, rcond=None)[0]
    return [float(each) for each in found[:3]], float(np.sum((rows @ found - goal) ** 2))


def _votes(
    known: Iterable[Point], value: Callable[[Point], float]
) -> Mapping[tuple[str, float], float]:
    """The mean of `value` for each source at each node."""
    cast = defaultdict(list)
    for point in known:
        cast[point.voter].append(value(point))
    return {voter: sum(values) / len(values) for voter, values in cast.items()}


def energy_ratio(fit: SramFit, p: Point) -> float:
    """Fit over figure."""
    made = bit_energy(fit, p.kib, p.bits, p.node) * energy_of_ports(fit, p.ports)
    return made * p.bits / p.read_pj


def area_ratio(figures: Figures, p: Point) -> float:
    """Fit over figure."""
    fit: Ranged = figures.area.sram
    made = over_cells(fit, p.kib, p.bits) * area_of_ports(fit, p.ports)
    return made / p.over_cells(figures)


def standard_error(known: list[Point], ratio: Callable[[Point], float]) -> float:
    """Factor by which points differ from a fit: root mean square of the logarithms, each source at
    each node alike."""
    squares = _votes(known, lambda p: math.log(ratio(p)) ** 2)
    return math.exp(math.sqrt(sum(squares.values()) / len(squares)))


def relative_error(known: list[Point], ratio: Callable[[Point], float]) -> float:
    """The same against other memories of one source at one node, which is how machines of a sweep
    are compared."""
    means = _votes(known, lambda p: math.log(ratio(p)))
    squares = [(math.log(ratio(p)) - means[p.voter]) ** 2 for p in known]
    return math.exp(math.sqrt(sum(squares) / len(squares)))
