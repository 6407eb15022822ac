"""Exit codes of all verbs: one for each thing that a script may want to tell apart.

The one idea: each gate that was asked for (`--fail-if-worse`, `--budget`) has a code of its own, so
that a pipeline knows what stopped it; of several the first of this list is given.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum


class ExitCode(IntEnum):
    """How a verb ends."""

    GOOD = 0
    """There is an answer, which may be that it does not fit, and all gates asked for are passed."""
    BAD = 1
    """No answer or a bad one: a point failed, outputs are wrong, nobody could build a machine
    (`check`, `lint`), or an error of archgen's own."""
    WRONG_INPUT = 2
    """Files or options are wrong; nothing was run."""
    WORSE = 3
    """`--fail-if-worse`: a point got worse than allowed, or lost its result."""
    BROKEN_BUDGET = 4
    """`--budget`: a figure is beyond its limit, or missing."""
    NOTHING_JUDGED = 5
    """There was nothing to judge: studies that are compared have no common point, a budget is about
    no point, or points are not finished."""
    UNVERIFIED = 6
    """`--budget`: a figure is within its limit, but the outputs behind it were not checked, or it
    is of a point that was only estimated."""
    INTERRUPTED = 130
    """Ctrl-C; what is finished is saved, and the same command goes on."""


def first_of(found: Collection[ExitCode]) -> ExitCode:
    """The code to end with where all of these hold."""
    return min(found, default=ExitCode.GOOD)
