"""Area of what stands on the chip for DRAM: an interface of its own, or a port of the system's.

The one idea: an interface is pins, and each kind of DRAM moves so much by a pin, so bandwidth says
how many there are; a machine inside a larger system has none of them, only a port of a bus.
`interface_points.csv` has the published sizes behind the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from archgen.energy.ranges import Range
from archgen.energy.table import Figures
from archgen.energy.terms import Logic, Term
from simmodel.arch import Arch

PART = "dram"
"""The part of these terms. No share of what is not listed is added to it, and it does not leak with
the logic."""
_FIELDS = ("energy.interface", "energy.dram")


def has_own(arch: Arch) -> bool:
    """Whether pads and controllers stand on the chip for this machine alone."""
    return arch.energy.interface == "own" and arch.energy.dram != "sram"


def interface_terms(arch: Arch, figures: Figures, logic: Logic) -> Iterator[Term]:
    """Pads with what drives them, and controllers; or a port; or what the file states."""
    given = arch.energy.memories.items()
    stated = next((known.area for name, known in given if name == "dram"), None)
    if stated is not None:
        one = Range(stated, stated, stated, stated=True)
        yield Term(PART, "interface", (), f"{stated:.4g} mm2 (energy.memories.dram.area)", one)
    elif has_own(arch):
        yield from _own(arch, figures, logic)
    else:
        yield from _port(arch, figures, logic)


def _own(arch: Arch, figures: Figures, logic: Logic) -> Iterator[Term]:
    dram, kind = arch.memories.dram, figures.interface[arch.energy.dram]
    rate = 1e-9 * dram.bandwidth.at(arch.clock) * arch.clock
    pins = 8 * rate / kind.rate
    yield Term(
        PART, "PHY", ("memories.dram.bandwidth", *_FIELDS),
        f"{rate:.4g} GB/s = {pins:.4g} data pins of {kind.rate:g} Gb/s x {kind.pin:.3g} mm2 "
        f"({arch.energy.dram}, at every node)",
        Range(pins * kind.pin, pins * kind.low, pins * kind.high),
    )  # fmt: skip
    known = figures.controller[kind.controller]
    one = logic.gates(known.gates)
    yield Term(
        PART, "controllers", ("memories.dram.channels", *_FIELDS),
        f"{dram.channels} channels x {known.gates:.3g} gates",
        logic.scaled(one * dram.channels, known.low / known.gates, known.high / known.gates),
    )  # fmt: skip
    yield _bursts(arch, figures, logic)


def _port(arch: Arch, figures: Figures, logic: Logic) -> Iterator[Term]:
    """As a link ends at a memory: a choice and two registers by bit and direction."""
    bits = 2 * 8 * arch.dram_bytes_per_cycle
    yield Term(
        PART, "port", ("memories.dram.bandwidth", "clock", *_FIELDS),
        f"{bits:.4g} bits both ways: a choice and two registers each, "
        f"{figures.area.channel.port:g} gates",
        logic.control(
            logic.muxes(bits) + logic.registers(2 * bits) + logic.gates(figures.area.channel.port)
        ),
    )  # fmt: skip
    yield _bursts(arch, figures, logic)


def _bursts(arch: Arch, figures: Figures, logic: Logic) -> Term:
    dram, known = arch.memories.dram, figures.area.channel
    bits = 8 * dram.burst * known.bursts * dram.channels
    return Term(
        PART, "bursts", ("memories.dram.channels", "memories.dram.burst"),
        f"{dram.channels} channels x {known.bursts} bursts of {dram.burst} B",
        logic.control(logic.registers(bits * figures.area.copy_.latch)),
    )  # fmt: skip
