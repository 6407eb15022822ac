"""Where a network's working set lies on a machine, and how much of it each memory there holds.

The one idea: what passes between layers lies in the memory on chip that is shared, where there is
one, else in the local memories of all cores, each with its part.
"""

from __future__ import annotations

from simmodel.arch import Arch


def holder(arch: Arch) -> str:
    """The memory on chip that holds what passes between layers."""
    return "local" if arch.memories.shared is None else "shared"


def part_of(working_set: float, arch: Arch) -> float:
    """Bytes of the working set in each memory of that kind; NaN of NaN."""
    shared = arch.memories.shared
    if shared is None:
        return working_set / arch.core_count
    return working_set / (arch.clusters if shared.level == "cluster" else 1)
