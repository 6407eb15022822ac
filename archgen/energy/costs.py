"""What each event costs on one architecture: the table at its node, under what its file states.

The one idea: everything about technology is settled here, once for each architecture, so that the
energy of a run is nothing but counts times these costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from archgen.energy.area import Area, area_of
from archgen.energy.area_of_parts import instruction_bytes
from archgen.energy.engines import vector_type
from archgen.energy.ranges import UncertainValue, at_node, energy_of_speed, of_voltage
from archgen.energy.sram import Source, Sram, source_of
from archgen.energy.table import Figures, Operation, Sum, shipped_table
from simmodel.arch.costs import MemoryEnergy
from simmodel.arch.dtype import accumulator_of
from simmodel.arch.record import Arch

_KINDS = ("simple", "multiply", "divide", "special")


@dataclass(frozen=True)
class EnergyCosts:
    """Energies of events in pJ (bytes: pJ per byte), leakage in mW, and the chip's area."""

    mac: dict[str, UncertainValue]
    """By element type that the matrix engine knows."""
    vector: dict[str, UncertainValue]
    """Of one element, by kind of operation."""
    read: dict[str, UncertainValue]
    """Of a byte, by memory role; DRAM among them."""
    write: dict[str, UncertainValue]
    links: dict[str, UncertainValue]
    instruction: UncertainValue
    leakage: UncertainValue
    area: Area


def costs_of(arch: Arch) -> EnergyCosts:
    """Costs of the events of `arch`, whose section `energy` says the node and what is known better
    than the shipped table.

    Raises MissingSource: the architecture asks for a library that is not installed.
    """
    figures = shipped_table()
    source = source_of(arch.energy.source, figures)
    area = area_of(arch, figures, source)
    memories = {role: _memory(arch, role, figures, source) for role in arch.memories.on_chip()}
    memories["dram"] = _dram(arch, figures)
    return EnergyCosts(
        mac={name: _mac(arch, name, figures) for name in arch.matrix.rate},
        vector={kind: _vector(arch, kind, figures) for kind in _KINDS},
        read={role: ends[0] for role, ends in memories.items()},
        write={role: ends[1] for role, ends in memories.items()},
        links={name: _link(arch, name, area.core.value, figures) for name in arch.links},
        instruction=_instruction_energy(arch, figures),
        leakage=_leakage(arch, area, figures),
        area=area,
    )


def _supply(arch: Arch, figures: Figures) -> float:
    return of_voltage(figures.voltage.points, arch.energy.node, arch.energy.voltage)


def _multiply(figures: Figures, dtype: Operation, node: float) -> float:
    return at_node(figures.arithmetic.multiply[dtype], node)


def _add(figures: Figures, dtype: Sum, node: float) -> float:
    return at_node(figures.arithmetic.add[dtype], node)


def _mac(arch: Arch, dtype: Operation, figures: Figures) -> UncertainValue:
    def from_table() -> UncertainValue:
        node, around = arch.energy.node, figures.datapath
        kind: Sum = "fp32" if accumulator_of(dtype) == "fp32" else "int32"
        bare = _multiply(figures, dtype, node) + _add(figures, kind, node)
        scaled = bare * around.factor * _supply(arch, figures)
        return UncertainValue.within(scaled, around.low, around.high).by(
            energy_of_speed(arch, figures)
        )

    stated = next((energy for name, energy in arch.energy.mac.items() if name == dtype), None)
    return UncertainValue.stated_or(stated, from_table)


def _vector(arch: Arch, kind: str, figures: Figures) -> UncertainValue:
    def from_table() -> UncertainValue:
        node, own, mix = arch.energy.node, vector_type(arch), getattr(figures.vector, kind)
        bare = mix.multiply * _multiply(figures, own, node) + mix.add * _add(figures, own, node)
        scaled = bare * figures.datapath.factor * _supply(arch, figures)
        usual = UncertainValue.within(scaled, figures.vector.low, figures.vector.high)
        return usual.by(energy_of_speed(arch, figures))

    return UncertainValue.stated_or(getattr(arch.energy.vector, kind), from_table)


def _stated(arch: Arch, role: str) -> MemoryEnergy:
    given = arch.energy.memories
    return next((known for name, known in given.items() if name == role), MemoryEnergy())


def _memory(
    arch: Arch, role: str, figures: Figures, source: Source
) -> tuple[UncertainValue, UncertainValue]:
    """Read and write of a byte."""
    stated, memory = _stated(arch, role), arch.memories.on_chip()[role]

    def from_source(write: bool) -> UncertainValue:
        made = source(Sram.of(memory, arch.energy.node))
        scaled = (made.write if write else made.read) * _supply(arch, figures)
        return UncertainValue.within(scaled, figures.sram.low, figures.sram.high)

    return (
        UncertainValue.stated_or(stated.read, lambda: from_source(False)),
        UncertainValue.stated_or(stated.write, lambda: from_source(True)),
    )


def _dram(arch: Arch, figures: Figures) -> tuple[UncertainValue, UncertainValue]:
    stated, kind = _stated(arch, "dram"), figures.dram[arch.energy.dram]
    table = UncertainValue(8 * kind.energy, 8 * kind.low, 8 * kind.high)
    return UncertainValue.stated_or(stated.read, lambda: table), UncertainValue.stated_or(
        stated.write, lambda: table
    )


def _link(arch: Arch, name: str, chip: float, figures: Figures) -> UncertainValue:
    """A byte across the side of what the link spans: the chip, a cluster or a core."""

    def from_table() -> UncertainValue:
        spans = {"chip": 1, "cluster": arch.clusters, "core": arch.core_count}
        length = math.sqrt(chip / spans[arch.links[name].scope])
        bit = 1e-3 * at_node(figures.wire.points, arch.energy.node) * length
        scaled = 8 * bit * _supply(arch, figures)
        return UncertainValue.within(scaled, figures.wire.low, figures.wire.high)

    return UncertainValue.stated_or(arch.energy.links.get(name), from_table)


def _instruction_energy(arch: Arch, figures: Figures) -> UncertainValue:
    def from_table() -> UncertainValue:
        known = figures.instruction
        smaller = _add(figures, "int32", arch.energy.node) / _add(figures, "int32", known.node)
        fetch = known.fetch * math.sqrt(instruction_bytes(arch) / 4)
        scaled = (known.control + fetch) * smaller * _supply(arch, figures)
        return UncertainValue.within(scaled, known.low, known.high).by(
            energy_of_speed(arch, figures)
        )

    return UncertainValue.stated_or(arch.energy.instruction, from_table)


def _leakage(arch: Arch, area: Area, figures: Figures) -> UncertainValue:
    known = figures.leakage
    return UncertainValue.stated_or(
        arch.energy.leakage,
        lambda: UncertainValue.within(known.density * area.core.value, known.low, known.high),
    )
