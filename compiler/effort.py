"""How long the compiler may think: options of its searches for a level of effort.

    0    fast: one order, short groups and rows of them, two tile sizes of each kind
    1    the default; a few schedules of each group are simulated, where there is a simulator
    2    longer groups of every length, every tile size of the usual steps, more simulated
    3    wide: every group in three orders, fine steps between tile sizes

Each level tries what the one below tries, and more. Where the estimates are the judge, thinking
longer so finds no worse schedule for a group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.fuse.optimal import Optimal
from compiler.judge_groups import JudgeGroups
from compiler.stages import Stages
from compiler.tile.choose_group import Breadth

ALL = 1_000_000
"""More than there is of anything that is counted here."""


@dataclass(frozen=True)
class Effort:
    """One level."""

    breadth: Breadth
    partition: Optimal
    judge: JudgeGroups


LEVELS: tuple[Effort, ...] = (
    Effort(
        Breadth(sizes=2, patience=1, splits=4),
        Optimal(lengths=16, patience=1, orders=1, rounds=0, merge=False),
        JudgeGroups(candidates=0),
    ),
    Effort(Breadth(), Optimal(), JudgeGroups()),
    Effort(
        Breadth(sizes=ALL, patience=4, splits=ALL),
        Optimal(lengths=48, patience=8, orders=2, rounds=2),
        JudgeGroups(candidates=6, instructions=20_000, worth=0.005),
    ),
    Effort(
        Breadth(sizes=ALL, patience=ALL, growth=(1.34, 1.1), splits=ALL),
        Optimal(lengths=ALL, patience=16, orders=3, rounds=4),
        JudgeGroups(candidates=12, within=0.5, instructions=200_000, worth=0.002),
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
    tile = replace(stages.tile, breadth=level.breadth)
    return replace(stages, partition=level.partition, tile=tile, judge=level.judge)
