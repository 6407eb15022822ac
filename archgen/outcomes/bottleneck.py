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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from archgen.outcomes.axes import Slice, StudyAxis, axes, slices
from archgen.outcomes.columns import LIMITS, STALLS
from archgen.outcomes.estimated import ESTIMATED, comparable, has_figures, is_estimated
from archgen.outcomes.frame import Frame, Record, is_wrong, number, records
from archgen.outcomes.points import FIELD, Row
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


# Swept fields of machines along which the latency does not move, and what binds there instead:
# a flat line is an answer too, to another question, what should be swept instead.

FLAT = 0.01
"""Share by which latencies along a line differ at most that does not move."""
_SURE = 0.9
"""Share of the latency from which on a roof alone explains an estimate."""
_BLIND = "; estimates know no conflicts or waits, so runs may differ (--best)"
_MOST = 3
"""Notes; what is flat on most lines comes first."""
_LISTED = 3
"""Values that a note names one by one."""
_STALL = "stall_"


@dataclass(frozen=True)
class _Flat:
    """Lines along one axis that do not move."""

    axis: StudyAxis
    where: str
    """` on 3 of 4 lines`; empty where all are flat."""
    rows: tuple[Record, ...]
    """Their points."""
    causes: Counter[str]
    """What holds points up (`held_by`) -> how many."""

    @property
    def cause(self) -> str:
        return self.causes.most_common(1)[0][0]


def flat_notes(frame: Frame, archs: Mapping[str, Arch]) -> list[str]:
    """A sentence for each few fields that are swept in vain; `archs` are machines by name."""
    every, guessed = axes(frame, archs), is_estimated(frame)
    known = [row for row in records(comparable(frame)) if has_figures(row)]
    rows = [row for row in known if not is_wrong(row)]
    found: dict[tuple[str, str], list[_Flat]] = {}
    for axis in every:
        if axis.ordered and axis.column.startswith(FIELD):
            flat = _flat(axis, slices(rows, every, [axis]))
            if flat is not None and flat.cause:
                found.setdefault((flat.cause, flat.where), []).append(flat)
    ranked = sorted(found.values(), key=lambda own: -sum(len(flat.rows) for flat in own))
    swept = {axis.column.removeprefix(FIELD) for axis in every}
    return [_insensitive_sentence(own, swept, guessed) for own in ranked[:_MOST]]


def _flat(axis: StudyAxis, lines: Sequence[Slice]) -> _Flat | None:
    """The lines of an axis that do not move, where they are half of all and more."""
    still = []
    for line in lines:
        times = [number(row, "latency_ms") for row in line.rows]
        if max(times) <= (1 + FLAT) * min(times):
            still.append(line)
    if not still or 2 * len(still) < len(lines):
        return None
    rows = tuple(row for line in still for row in line.rows)
    where = "" if len(still) == len(lines) else f" on {len(still)} of {len(lines)} lines"
    return _Flat(axis, where, rows, Counter(verdict(row).cause for row in rows))


def _any_of(texts: Sequence[str]) -> str:
    if len(texts) > _LISTED:
        return f"{', '.join(texts[:_LISTED])} or {len(texts) - _LISTED} more"
    return " or ".join(texts)


def _insensitive_sentence(own: Sequence[_Flat], swept: set[str], guessed: bool) -> str:
    """What fields that are flat in the same places for one reason have in common."""
    cause, rows = own[0].cause, [row for flat in own for row in flat.rows]
    mine = [found for row in rows if (found := verdict(row)).cause == cause]
    shares = sorted(found.share for found in mine)
    ends = " to ".join(dict.fromkeys(f"{100 * share:.0f}" for share in (shares[0], shares[-1])))
    few = 2 * len(mine) <= len(rows)
    mostly = f" on {len(mine)} of {len(rows)} points" if few else ""
    why = _why(cause, f"{ends} % of it{mostly}", swept)
    rest = _BLIND if guessed and shares[0] < _SURE else ""
    fields = " and ".join(f"{flat.axis.label} {_text_span(flat)}" for flat in own)
    verb = "changes" if len(own) == 1 else "change"
    said = f"{fields} {verb} nothing{own[0].where} (latency within {100 * FLAT:.0f} %)"
    return f"{said}: {why}{rest}"


def _text_span(flat: _Flat) -> str:
    """The values of its points: `1`, `1 or 2`, `1 to 8`."""
    mine = {flat.axis.value(row) for row in flat.rows}
    texts = [flat.axis.shown(value) for value in flat.axis.values if value in mine]
    return _any_of(texts) if len(texts) < 3 else f"{texts[0]} to {texts[-1]}"


def _why(cause: str, share: str, swept: set[str]) -> str:
    """What takes the time, and what would move that and is not swept yet."""
    found = LIMITS[cause]
    said = f"{found.phrase} takes {share}"
    if cause.startswith(_STALL):
        return f"{said}; {STALLS[cause.removeprefix(_STALL)].levers} would help"
    levers = [field for field in found.fields if field not in swept]
    return f"{said}{'; sweep ' * bool(levers)}{_any_of(levers)}"
