"""The ways to partition a network into groups, by name."""

from __future__ import annotations

from compiler.fuse.branch import Branch
from compiler.fuse.branchx import BranchX
from compiler.fuse.line import Line
from compiler.fuse.optimal import Optimal
from compiler.fuse.partition import PartitionStrategy, Unfused
from simmodel.registry import Registry

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
