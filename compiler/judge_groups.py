"""How many schedules of a group a judge is asked about, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compiler.options import Amount, Factor, Share, Within


@dataclass(frozen=True)
class JudgeGroups:
    """Run other schedules of each group alone, where a simulator is at hand, and take the best.

    before:
        group 3: two slots, 12 100 cycles expected        simulated 14 900
    after:
        group 3: one slot, 12 600 cycles expected         simulated 12 800
    """

    candidates: Amount = 4
    """Schedules of a group that are tried beside the one that the estimates prefer."""
    within: Factor = 0.25
    """Share by which the estimate of a schedule, or of a whole program, that is tried may be
    higher."""
    instructions: Amount = 4_000
    """Of all programs that are run, together: when there have been as many, no more follow."""
    worth: Share = 0.02
    """Share of the whole run that a group could save at most, for its schedules to be tried."""
    patience: Annotated[float, Within(1)] = 2.0
    """Times the cycles of the first program that one with less memory may take, where least memory
    is sought."""


ESTIMATED = "as estimated"
"""What the estimates prefer, among the trials of a group."""


@dataclass(frozen=True)
class Trial:
    """One schedule of a group that was run."""

    what: str
    estimated: float
    """Cycles."""
    cycles: int
    """Simulated, of the group alone."""
