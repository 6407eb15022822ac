"""What a user may choose of how a network is scheduled, in words, and the passes that do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.effort import LEVELS, stages_for
from compiler.fuse.optimal import Optimal
from compiler.fuse.partition import Unfused
from compiler.fuse.strategies import STRATEGIES
from compiler.keep import KeepTensors
from compiler.stages import Stages
from compiler.tile.objective import Objective

HALOS: Mapping[str, bool | None] = {"auto": None, "rolling": True, "recompute": False}
"""What neighbouring tiles of a group share: kept, computed again; auto: whichever is cheaper."""
OBJECTIVES: Mapping[str, Objective] = {
    "latency": "latency", "throughput": "throughput", "memory": "memory", "energy-proxy": "energy",
}  # fmt: skip
"""What schedules are compared by."""
EFFORTS = range(len(LEVELS))
"""How long the compiler may search."""


def stages_of(fusion: str, halo: str, objective: str, effort: int) -> Stages:
    """The passes for one choice of everything.

    Args:
        fusion: how layers are partitioned into groups, a name of `STRATEGIES`.
        halo: a name of `HALOS`.
        objective: a name of `OBJECTIVES`.
        effort: one of `EFFORTS`.
    """
    stages = stages_for(effort)
    # Least memory is found by compiling for less and less of it, as quick as that allows.
    sought = "latency" if objective == "memory" else OBJECTIVES[objective]
    tile = replace(stages.tile, rolling=HALOS[halo], objective=sought)
    strategy = STRATEGIES[fusion]
    partition = stages.partition if strategy is Optimal else strategy()
    fused = strategy is not Unfused  # else everything goes through DRAM
    keep, homes = KeepTensors(enabled=fused), replace(stages.homes, shared=fused)
    return replace(stages, partition=partition, tile=tile, keep=keep, homes=homes)
