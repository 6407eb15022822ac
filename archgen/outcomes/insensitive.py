"""Swept fields of machines along which the latency does not move, and what binds there instead.

    cores 1 to 8 changes nothing on 4 of 6 lines (latency within 1 %): DRAM traffic takes 91 to
    99 % of it

The one idea: a flat line is an answer too, to another question: what should be swept instead. What
held its runs up says it; of estimates the roof that they stand under.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from archgen.outcomes.axes import Slice, StudyAxis, axes, slices
from archgen.outcomes.bottleneck import verdict
from archgen.outcomes.columns import LIMITS, STALLS
from archgen.outcomes.estimated import comparable, has_figures, is_estimated
from archgen.outcomes.frame import Frame, Record, is_wrong, number, records
from archgen.outcomes.points import FIELD
from simmodel.arch.record import Arch

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
