"""What held a run up: its roof where the run came near it, else the largest part of its time that
the roof does not explain.

The one idea: the roof (`bound_by`) says what no schedule can undercut, and explains the share
`of_bound` of the time. Where matrix engines waited longer than that for one cause, or worked longer
on padding or on the same again, that is what to look at: its column is the answer. Beyond the roof
no cause holds a run for longer than what the roof leaves: arrays that wait nine tenths of the time
for data are held by bandwidth where DRAM takes these nine tenths at its peak. Nor is a wait an
answer where what was waited for worked as long: DRAM, or vector engines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from archgen.outcomes.columns import LIMITS
from archgen.outcomes.estimated import ESTIMATED
from archgen.outcomes.frame import number
from archgen.outcomes.points import Row
from simmodel.arch.record import Arch

_OF_THE_ROOF = "work_products"
"""What outputs take at the peak of all arrays: no loss, and a part of what the roof counts."""
_PARTS = ("stall_", "work_")
_LOST = ("moved_again", "moved_overhead")
"""What DRAM's time went to besides bytes that outputs take."""
_LOADS = ("stall_data", "stall_store", "stall_bandwidth")
"""Waits that DRAM explains where it moved bytes for as long."""
_ENGINES = ("stall_engine", "stall_front_end", "stall_no_work", "stall_core")
"""Waits that vector engines explain where they worked for as long."""


def bottleneck_row(row: Row) -> Row:
    """The column of what held up the run in `row`; none where nothing of its time is known."""
    parts = [name for name in row if name.startswith(_PARTS) and name != _OF_THE_ROOF]
    held = max(parts, key=lambda name: number(row, name, 0.0), default="")
    known = ("of_bound", *_LOST, "moved_compulsory", "vector_busy", held)
    roof, *lost, once, vector, longest = (number(row, name, 0.0) for name in known)
    longest = min(longest, 1 - roof)
    if max(lost) > max(roof, once) and sum(lost) + once >= longest and held in ("", *_LOADS):
        return {"held_by": _LOST[lost.index(max(lost))]}
    if roof and roof >= longest:
        return {"held_by": row["bound_by"]}
    if held in _ENGINES and vector >= longest:
        return {"held_by": "vector_busy"}
    return {"held_by": held} if longest else {}


@dataclass(frozen=True)
class Verdict:
    """What holds a run up: the one answer to "what bounds it?"."""

    cause: str
    """Value of the column `held_by`: a resource, or another column of shares; may be empty."""
    share: float
    """Of the run's time: of a resource the least that it needs, else the time that goes there."""
    estimated: bool = False
    """Whether there was no run: then the cause is the bound, as nothing is known of waits."""

    @property
    def words(self) -> str:
        """As a cell of a table: `DRAM bandwidth`, `waits for data`."""
        return LIMITS[self.cause].words if self.cause else ""

    @property
    def sentence(self) -> str:
        """`DRAM traffic takes 92 % of the time`; a loss has its share of the engines' time."""
        time = "the estimated time" if self.estimated else "the time"
        whose = "the matrix engines' time" if self.cause.startswith(_PARTS) else time
        return f"{LIMITS[self.cause].phrase} takes {100 * self.share:.0f} % of {whose}"


def verdict(row: Row) -> Verdict:
    """What holds up the run, or the estimate, in `row` of the frame of points; beside estimates
    (`comparable`) a loss that they do not know is none, but the bound."""
    held, bound = row.get("held_by"), row.get("bound_by")
    known = [each for each in (held, bound) if isinstance(each, str) and each in LIMITS]
    cause = next((each for each in known if each in row or each == bound), "")
    shares = (number(row, name) for name in (cause, "bound_share", "of_bound"))
    # The frame of an older study has no `bound_share`.
    share = next((each for each in shares if cause and not math.isnan(each)), 0.0)
    return Verdict(cause, share, row.get("status") == ESTIMATED or cause not in known[:1])


_FEW = 3
"""Networks each of which has a verdict of its own in a sentence."""


def main_verdicts(found: Sequence[tuple[str, Verdict]]) -> list[tuple[str, Verdict]]:
    """Networks and what holds a machine up on them, that a sentence names: a few, else the first;
    not those of which nothing is known."""
    return [pair for pair in found[: len(found) if len(found) <= _FEW else 1] if pair[1].cause]


# Where a network's working set lies on a machine, and how much of it each memory there holds.


def activation_memory(arch: Arch) -> str:
    """The memory on chip that holds what passes between layers."""
    return "shared" if "shared" in arch.memories.srams() else "local"


def working_set_in(working_set: float, arch: Arch) -> float:
    """Bytes of the working set in each memory of that kind; NaN of NaN."""
    return working_set / arch.instances(activation_memory(arch))


# What is known of a change of a machine before anybody compiles for the changed one.

SIMULATED, RECOMPILED, AT_MOST = "simulated", "compiled anew", "at most"
DETAIL = "tried"
"""Name among the details of an outcome."""


@dataclass(frozen=True)
class TriedChange:
    """A change, and the share of the time that it saves; below 0: that it takes."""

    fields: Mapping[str, Any]
    gain: float
    way: str
    """SIMULATED, ANEW, ESTIMATED or AT_MOST."""
    rests_on: str = ""


def change_key(fields: Mapping[str, Any]) -> str:
    """`fields` as what a change is looked up by."""
    return json.dumps(fields, sort_keys=True)


def tried_changes(details: Mapping[str, Any]) -> dict[str, TriedChange]:
    """What is in details, by `change_key`."""
    found = [TriedChange(**each) for each in details.get(DETAIL, ())]
    return {change_key(each.fields): each for each in found}
