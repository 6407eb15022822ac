"""What a machine could do at best, from its file: to hold against data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from simmodel.arch import Arch


@dataclass(frozen=True)
class Peaks:
    """Derived peaks of one architecture, for the whole chip unless said otherwise."""

    tops: dict[str, float]
    """Element type -> tera-operations per second (a multiply-accumulate counts two)."""
    bytes_per_cycle: dict[str, float]
    """Memory role -> bytes read per core cycle: DRAM of the chip, shared memory of one instance,
    the others of one core."""
    on_chip: int
    """Bytes of all memories on the chip."""
    ridge: float
    """MACs per DRAM byte, in the preferred type, above which compute is the limit."""


def peaks(arch: Arch) -> Peaks:
    """The derived peaks of `arch`."""
    memories = arch.memories.on_chip()
    widths = {"dram": arch.dram_bytes_per_cycle}
    widths |= {role: float(memory.bytes_per_cycle()) for role, memory in memories.items()}
    return Peaks(
        tops={name: 2e-12 * arch.clock * arch.peak_macs(name) for name in arch.types},
        bytes_per_cycle=widths,
        on_chip=sum(memory.size * instances(arch, role) for role, memory in memories.items()),
        ridge=arch.peak_macs(arch.types[0]) / arch.dram_bytes_per_cycle,
    )


def instances(arch: Arch, role: str) -> int:
    """How many memories of this role the chip has."""
    shared = arch.memories.shared
    if role != "shared" or shared is None:
        return arch.core_count
    return arch.clusters if shared.level == "cluster" else 1
