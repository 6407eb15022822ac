"""On-chip memories: energy of an access and area, by size, width, ports, banks and node.

The one idea: a bank is one memory of the fit, `pJ/bit = scale (node / 22)^a KiB^b (bits / 128)^c`,
and what leaves one of several banks crosses half the side of the whole memory on wires. Ports
multiply both energy and area: each one beyond the first adds a fixed share. The fit spans memories
from 24 bytes to 2 MiB, 16 to 4096 bits and 7 to 65 nm; its points differ from it by a factor of 1.8
(standard error), and the worst by 3.1. That is how far published tools are apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from archgen.energy.scaling import at_node
from archgen.energy.table import Figures, SramFit
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
    # The fit is of a single bank; only its energy depends on how the memory is cut.
    bits = 8 * memory.width
    kib = memory.size / memory.banks / _KIB
    bank = bit_energy(figures.sram, kib, bits, memory.node) * of_ports(figures.sram, memory.ports)
    wire = 0.0
    if memory.banks > 1:
        # fJ per bit and mm, over half the side of the square that all banks make.
        wire = 1e-3 * at_node(figures.wire.points, memory.node) * math.sqrt(area) / 2
    return SramCost(8 * (bank + wire), 8 * (bank * figures.sram.write + wire), area)


def sram_area(memory: Sram, figures: Figures) -> float:
    """mm2 of all banks with their periphery."""
    cell = at_node(figures.area.bitcell.points, memory.node) / figures.area.sram.density
    return 1e-6 * 8 * memory.size * cell * of_ports(figures.sram, memory.ports)


def bit_energy(fit: SramFit, kib: float, bits: float, node: float) -> float:
    """pJ of each bit of a read from one bank with one port."""
    exponents = (
        fit.node * math.log(node / _REFERENCE_NODE)
        + fit.size * math.log(kib)
        + fit.width * math.log(bits / _REFERENCE_WIDTH)
    )
    return fit.scale * math.exp(exponents)


def of_ports(fit: SramFit, ports: int) -> float:
    """What `ports` multiply energy and area by."""
    return 1 + fit.port * (ports - 1)
