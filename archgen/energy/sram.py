"""On-chip memories: energy of an access and area, by size, width, ports, banks and node.

The one idea: a bank is one memory of the fit, `pJ/bit = scale (node / 22)^a KiB^b (bits / 128)^c
flat^d`, where accesses wider than the bank's array is (`flat`) cost as its cells do; what leaves
one of several banks crosses the side of the whole memory on wires. Area is that of bitcells, more
for the edges of small banks and for flat ones. Ports multiply both. `sram_points.csv` has what the
fits were made from: memories of 24 bytes to 4 MiB, 8 to 4096 bits and 7 to 130 nm.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from archgen.energy.ranges import at_node
from archgen.energy.table import Figures, Ranged, SramFit
from simmodel.arch.memories import Memory

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
    fit, cells, bits = figures.sram, figures.area.sram, 8 * memory.width
    kib = memory.size / memory.banks / _KIB
    cell = at_node(figures.area.bitcell.points, memory.node) * over_cells(cells, kib, bits)
    area = 1e-6 * 8 * memory.size * cell * area_of_ports(cells, memory.ports)
    bank = bit_energy(fit, kib, bits, memory.node) * energy_of_ports(fit, memory.ports)
    wire = 0.0
    if memory.banks > 1:
        # fJ per bit and mm, over half the side of the square that all banks make, each way.
        wire = 1e-3 * at_node(figures.wire.points, memory.node) * math.sqrt(area)
    return SramCost(8 * (bank + wire), 8 * (bank * fit.write + wire), area)


def bit_energy(fit: SramFit, kib: float, bits: float, node: float) -> float:
    """pJ of each bit of a read from one bank with one port."""
    exponents = (
        fit.node * math.log(node / _REFERENCE_NODE)
        + fit.size * math.log(kib)
        + fit.width * math.log(bits / _REFERENCE_WIDTH)
        + fit.aspect * math.log(flatness(kib, bits))
    )
    return fit.scale * math.exp(exponents)


def over_cells(fit: Ranged, kib: float, bits: float) -> float:
    """Area of one bank with one port over that of its bitcells."""
    return fit.over * (1 + fit.edge / math.sqrt(kib)) * flatness(kib, bits)


def flatness(kib: float, bits: float) -> float:
    """How many times wider an access is than the square array of the bank; at least 1."""
    return max(1.0, bits / math.sqrt(8 * _KIB * kib))


def energy_of_ports(fit: SramFit, ports: int) -> float:
    """What `ports` multiply energy by."""
    return 1 + fit.port * (ports - 1)


def area_of_ports(fit: Ranged, ports: int) -> float:
    """What `ports` multiply area by: each makes a cell wider and higher."""
    return (1 + fit.port * (ports - 1)) ** 2


# Where the figures of on-chip memories come from: the fit of the table, or a library.

_PACKAGE = "hwcomponents_cacti"
_LEAST_WIDTH, _LEAST_DEPTH = 4, 64
"""Bytes and words of the smallest memory that CACTI takes."""
Source = Callable[[Sram], SramCost]
"""Energy by byte and area of a memory at its node's nominal voltage."""


class MissingSource(Exception):
    """A library that an architecture asks for cannot be used; the text says why and what to do."""


def cacti_cost(memory: Sram) -> SramCost:
    """Energy by byte and area of `memory` as CACTI has it, through the package hwcomponents-cacti;
    one bank is one of its banks.

    Raises MissingSource: it is not installed, its release takes other arguments or gives other
    answers, or its program cannot run on this system.
    """
    try:
        make = importlib.import_module(_PACKAGE).SRAM
    except (ImportError, OSError, AttributeError) as problem:
        remedy = "pip install hwcomponents-cacti (Python 3.12 or later)"
        raise _missing_source_error("cannot be imported", problem, remedy) from None
    width = max(memory.width, _LEAST_WIDTH)
    depth = max(math.ceil(memory.size / width), _LEAST_DEPTH * memory.banks)
    try:
        # Releases from 1.0.40 on want bits in all, earlier ones words.
        bits = "size" in inspect.signature(make).parameters
        model = make(
            tech_node=memory.node * 1e-9, width=8 * width, n_rw_ports=memory.ports,
            n_banks=memory.banks, **{"size": 8 * width * depth} if bits else {"depth": depth},
        )  # fmt: skip
        read, write = (1e12 * _joules(action()) for action in (model.read, model.write))
        return SramCost(read / memory.width, write / memory.width, 1e6 * float(model.area))
    except Exception as problem:  # releases raise it bare where their program fails
        remedy = "pip install 'hwcomponents-cacti<=1.0.40', or use a system that has what it names"
        raise _missing_source_error("cannot say what a memory costs", problem, remedy) from None


def _missing_source_error(why: str, problem: Exception, remedy: str) -> MissingSource:
    said = f"{_PACKAGE} {why} ({problem})"
    return MissingSource(
        f"energy.source is 'hwcomponents', but {said}: {remedy}, or leave energy.source out"
    )


def _joules(answer: Any) -> float:
    """Energy of an action: alone in older releases, before the latency in newer ones."""
    return float(answer[0] if isinstance(answer, tuple) else answer)


def source_of(name: str, figures: Figures) -> Source:
    """The source called `name`."""
    return cacti_cost if name == "hwcomponents" else partial(sram_cost, figures=figures)
