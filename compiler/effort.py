"""How long the compiler may think: options of its searches for a level of effort.

    0    fast: one order, short groups and rows of them, two tile sizes of each kind
    1    the default
    2    longer groups of every length, every tile size of the usual steps
    3    wide: every group in three orders, fine steps between tile sizes

Each level tries what the one below tries, and more. Where the estimates are the judge, thinking
longer so finds no worse schedule for a group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.fuse.branch import Branch
from compiler.fuse.branchx import BranchX
from compiler.fuse.optimal import Optimal
from compiler.fuse.partition import PartitionStrategy, Unfused
from compiler.keep import KeepTensors
from compiler.stages import Stages
from compiler.tile.choose_group import Breadth

ALL = 1_000_000
"""More than there is of anything that is counted here."""


@dataclass(frozen=True)
class Effort:
    """One level."""

    breadth: Breadth
    partition: Optimal


LEVELS: tuple[Effort, ...] = (
    Effort(
        Breadth(sizes=2, patience=1, splits=4),
        Optimal(lengths=16, patience=1, orders=1, rounds=0, merge=False),
    ),
    Effort(Breadth(), Optimal()),
    Effort(
        Breadth(sizes=ALL, patience=4, splits=ALL),
        Optimal(lengths=48, patience=8, orders=2, rounds=2),
    ),
    Effort(
        Breadth(sizes=ALL, patience=ALL, growth=(1.34, 1.1), splits=ALL),
        Optimal(lengths=ALL, patience=16, orders=3, rounds=4),
    ),
)
"""By level, from fast to wide."""


def stages_for(effort: int, stages: Stages | None = None) -> Stages:
    """The passes with the search options of a level; every other option as in `stages`.

    Raises:
        ValueError: no such level.
    """
    if not 0 <= effort < len(LEVELS):
        raise ValueError(f"effort {effort}; there are levels 0 to {len(LEVELS) - 1}")
    stages = stages or Stages()
    level = LEVELS[effort]
    return replace(
        stages, partition=level.partition, tile=replace(stages.tile, breadth=level.breadth)
    )


def alternatives(effort: int, stages: Stages) -> tuple[Stages, ...]:
    """Ways to compile among which a simulation may decide: the estimates do not see everything.

    From effort 1 on these hold what lower efforts compile, so whoever takes the best of all is
    never worse off than with them.
    """
    if effort == 0:
        return (stages,)
    halved = replace(stages, partition=BranchX())
    apart = replace(stages, partition=Unfused(), keep=KeepTensors(enabled=False))
    if effort == 1:
        chosen = isinstance(stages.partition, Optimal)
        return (stages, halved, apart) if chosen else (stages,)
    usual = stages_for(1, stages)
    if not isinstance(stages.partition, Optimal):
        usual = replace(usual, partition=stages.partition)
    eager = replace(usual, tile=replace(usual.tile, held_up=0.0))
    pieces = replace(usual, tile=replace(usual.tile, held_up=0.0, whole=False))
    memory = replace(usual, keep=KeepTensors(enabled=False))
    quick = replace(stages_for(0, stages), partition=_quick(stages))
    found: tuple[Stages, ...] = (stages, usual, eager, pieces, memory, quick)
    if not isinstance(stages.partition, Optimal):
        return found
    found = (*found, halved, apart)
    if effort == 2:
        return found
    return (*found, stages_for(2, stages), *(replace(s, partition=Branch()) for s in found[1:4]))


def _quick(stages: Stages) -> PartitionStrategy:
    """The partition of effort 0, where the strategy has levels."""
    partition = stages.partition
    return LEVELS[0].partition if isinstance(partition, Optimal) else partition
