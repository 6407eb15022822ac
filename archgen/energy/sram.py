"""On-chip memories: energy of an access and area, by size, width, ports, banks and node.

The one idea: a bank is one memory of the fit, `pJ/bit = scale (node / 22)^a KiB^b (bits / 128)^c
flat^d`, where accesses wider than the bank's array is (`flat`) cost as its cells do; what leaves
one of several banks crosses the side of the whole memory on wires. Area is that of bitcells, more
for the edges of small banks and for flat ones. Ports multiply both. `sram_points.csv` has what the
fits were made from: memories of 24 bytes to 4 MiB, 8 to 4096 bits and 7 to 130 nm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from archgen.energy.scaling import at_node
from archgen.energy.table import Figures, SramArea, SramFit
from simmodel.arch import Memory

_REFERENCE_NODE, _REFERENCE_WIDTH = 22.0, 128.0
_KIB = 1024


@dataclass(frozen=True)
class Sram:
    """A memory as the fit sees it."""

    size: int
    """Bytes in all banks."""
    width: int
    """Bytes of one access to one bank."""
    ports: int = 1
    banks: int = 1
    node: float = _REFERENCE_NODE
    """Nanometres."""

    @staticmethod
    def of(memory: Memory, node: float) -> Sram:
        """The memory of an architecture; separate read and write ports count alike."""
        split = (memory.read_ports or 0) + (memory.write_ports or 0)
        ports = split if memory.split_ports else memory.ports
        return Sram(memory.size, memory.bank_width, ports, memory.banks, node)


@dataclass(frozen=True)
class SramCost:
    """What a memory costs."""

    read: float
    """pJ of each byte read, in whole accesses."""
    write: float
    area: float
    """mm2."""


def sram_cost(memory: Sram, figures: Figures) -> SramCost:
    """Energy by byte and area of `memory`, at the node's nominal voltage."""
    area = sram_area(memory, figures)
    fit, bits = figures.sram, 8 * memory.width
    kib = memory.size / memory.banks / _KIB
    bank = bit_energy(fit, kib, bits, memory.node) * energy_of_ports(fit, memory.ports)
    wire = 0.0
    if memory.banks > 1:
        # fJ per bit and mm, over half the side of the square that all banks make, each way.
        wire = 1e-3 * at_node(figures.wire.points, memory.node) * math.sqrt(area)
    return SramCost(8 * (bank + wire), 8 * (bank * fit.write + wire), area)


def sram_area(memory: Sram, figures: Figures) -> float:
    """mm2 of all banks with their periphery."""
    fit, kib = figures.area.sram, memory.size / memory.banks / _KIB
    cell = at_node(figures.area.bitcell.points, memory.node) * over_cells(
        fit, kib, 8 * memory.width
    )
    return 1e-6 * 8 * memory.size * cell * area_of_ports(fit, memory.ports)


def bit_energy(fit: SramFit, kib: float, bits: float, node: float) -> float:
    """pJ of each bit of a read from one bank with one port."""
    exponents = (
        fit.node * math.log(node / _REFERENCE_NODE)
        + fit.size * math.log(kib)
        + fit.width * math.log(bits / _REFERENCE_WIDTH)
        + fit.aspect * math.log(flatness(kib, bits))
    )
    return fit.scale * math.exp(exponents)


def over_cells(fit: SramArea, kib: float, bits: float) -> float:
    """Area of one bank with one port over that of its bitcells."""
    return fit.over * (1 + fit.edge / math.sqrt(kib)) * flatness(kib, bits)


def flatness(kib: float, bits: float) -> float:
    """How many times wider an access is than the square array of the bank; at least 1."""
    return max(1.0, bits / math.sqrt(8 * _KIB * kib))


def energy_of_ports(fit: SramFit, ports: int) -> float:
    """What `ports` multiply energy by."""
    return 1 + fit.port * (ports - 1)


def area_of_ports(fit: SramArea, ports: int) -> float:
    """What `ports` multiply area by: each makes a cell wider and higher."""
    return (1 + fit.port * (ports - 1)) ** 2
