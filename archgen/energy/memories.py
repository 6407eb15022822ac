"""Area of on-chip memories: their banks, and the switch between banks and those who reach them.

The one idea: a bank is a memory of the fit, so the same bytes in more or wider banks take more
periphery; and everybody who reaches a memory has a way to every port of every bank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from archgen.energy.ranges import Range
from archgen.energy.sources import Source
from archgen.energy.sram import Sram
from archgen.energy.table import Figures
from archgen.energy.terms import Logic, Term
from archgen.schema.peaks import instances
from simmodel.arch import Arch, Memory
from simmodel.units import show_bytes

_PORTS = ("ports", "read_ports", "write_ports")


def memory_terms(
    arch: Arch, role: str, figures: Figures, source: Source, logic: Logic
) -> Iterator[Term]:
    """One of the machine's memories, all its instances."""
    memory, count, path = arch.memories.on_chip()[role], instances(arch, role), f"memories.{role}"
    where = ("cores", "clusters") if role != "shared" else ("clusters", f"{path}.level")
    given = arch.energy.memories.items()
    stated = next((known.area for name, known in given if name == role), None)
    if stated is not None:
        text = f"{count} x {stated:.4g} mm2 (energy.memories.{role}.area)"
        one = Range(stated, stated, stated, stated=True)
        yield Term(role, "memory", where, text, one.times(count))
        return
    shape = Sram.of(memory, arch.energy.node)
    fit = figures.area.sram
    banks = Range.within(source.sram(shape).area, fit.low, fit.high).times(count)
    yield Term(
        role, "banks",
        (*(f"{path}.{name}" for name in ("size", "banks", "bank_width", *_PORTS)), *where),
        f"{count} x {memory.banks} banks of {show_bytes(memory.bank_size)}, {8 * shape.width} bits "
        f"wide, {shape.ports} ports: {1e6 * banks.value / (8 * memory.size * count):.3g} um2/bit",
        banks,
    )  # fmt: skip
    yield from _switch(arch, role, memory, count, logic)


def _switch(arch: Arch, role: str, memory: Memory, count: int, logic: Logic) -> Iterator[Term]:
    path, ports = f"memories.{role}", Sram.of(memory, arch.energy.node).ports
    sharing = max(1, arch.core_count // count)
    reaching = reached_by(arch, role) * sharing
    bits = 8 * memory.bank_width * memory.banks * ports * count
    # Both ways: what each bank is given is chosen from all that reach it, what each of these gets
    # from all banks; a single one of either needs no choice.
    chosen = (reaching - 1) + reaching * (memory.banks - 1) / memory.banks
    fields = tuple(f"{path}.{name}" for name in ("banks", "bank_width", *_PORTS))
    yield Term(
        role, "switch",
        (*fields, "matrix.units", "vector.units", "vector.reads", "vector.writes", "copy.*.from",
         "copy.*.to", "matrix.input", "matrix.weights", "matrix.output", "clock"),
        f"{bits} bits at ports x {chosen:.3g} two-way choices, {reaching} reach it",
        logic.control(logic.muxes(bits * chosen)),
    )  # fmt: skip
    steps = math.log2(max(1, memory.bank_width / min(memory.alignment, memory.bank_width)))
    if steps:
        yield Term(
            role, "aligners", (f"{path}.alignment", f"{path}.bank_width", f"{path}.banks", "clock"),
            f"{bits} bits at ports x {steps:.3g} steps of a shifter",
            logic.control(logic.muxes(bits * steps)),
        )  # fmt: skip


def reached_by(arch: Arch, role: str) -> int:
    """Engines of one core that read or write the memory in `role`."""
    matrix, vector = arch.matrix, arch.vector
    array = matrix.present and role in (matrix.input, matrix.weights, matrix.output)
    lanes = role in vector.reads or role in vector.writes
    copies = sum(role in engine.from_ or role in engine.to for engine in arch.copy_.values())
    return max(1, array * matrix.units + lanes * vector.units + copies)
