"""Which memory instance an operand lies in: a role and the number of the instance on the chip.

DRAM and chip-level shared memory exist once, cluster-level shared memory once per cluster, every
other memory once per core.
"""

from __future__ import annotations

from simmodel.arch import Arch
from simmodel.region import Operand

Place = tuple[str, int]
"""Role of the memory and number of the instance."""


def place(arch: Arch, role: str, core: int) -> Place:
    """The instance of the memory in `role` that belongs to `core`."""
    if role == "dram":
        return role, 0
    if role == "shared":
        shared = arch.memories.shared
        clustered = shared is not None and shared.level == "cluster"
        return role, core // arch.cores if clustered else 0
    return role, core


def places(arch: Arch, operand: Operand, core: int) -> tuple[Place, ...]:
    """Every instance that `operand` of an instruction of `core` lies in; several: broadcast."""
    owners = operand.cores or (core,)
    return tuple(dict.fromkeys(place(arch, operand.memory, owner) for owner in owners))
