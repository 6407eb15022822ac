"""The ways to partition a network into groups, by name."""

from __future__ import annotations

from compiler.schedule.fusion.greedy import Branch, BranchX, Line
from compiler.schedule.fusion.optimal import Optimal
from compiler.schedule.fusion.partition import PartitionStrategy, Unfused
from simmodel.arch.base import Registry

STRATEGIES: dict[str, type[PartitionStrategy]] = Registry(
    "strategy",
    {
        "none": Unfused,
        "line": Line,
        "branch": Branch,
        "branchx": BranchX,
        "optimal": Optimal,
    },
)
"""From no fusion to the cheapest; every field of a strategy has a default."""
