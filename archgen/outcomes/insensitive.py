"""Swept fields of machines along which the latency does not move, and what binds there instead.

    cores 1 to 8 changes nothing where dram.bandwidth is 4 GB/s or 8 GB/s (latency within 1 %):
    DRAM traffic takes 91 to 99 % of it

The one idea: a flat line is an answer too, to another question: what should be swept instead. What
held its runs up says it; of estimates the roof that they stand under.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from archgen.outcomes.axes import Slice, StudyAxis, axes, slices
from archgen.outcomes.bottleneck import bottleneck_words
from archgen.outcomes.columns import STALLS
from archgen.outcomes.estimated import has_figures, is_estimated, like_with_like
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
_ROOFS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "matrix": ("work of the matrix engines", ("cores", "matrix.cols", "matrix.rows")),
    "vector": ("work of the vector engines", ("cores", "vector.lanes")),
    "bandwidth": ("DRAM traffic", ("memories.dram.bandwidth",)),
    "weights": ("loading weights", ("memories.dram.bandwidth", "memories.local.size")),
    "host": ("the host", ("host.compute", "host.bandwidth")),
}
"""By what `bound_by` names: what takes the time, and fields that move it."""
_STALL = "stall_"


@dataclass(frozen=True)
class _SweepLine:
    """Points along one axis."""

    points: Slice
    cause: str
    """What holds most of them up: a resource or a column of stalls or work; empty where the line
    moves, or nobody knows."""
    shares: tuple[float, ...] = ()
    """Of the latency, at those points."""

    @property
    def places(self) -> dict[StudyAxis | None, str]:
        """Where it lies: on the other axes, and in which network."""
        return {None: self.points.network} | {a: a.shown(v) for a, v in self.points.fixed}


@dataclass(frozen=True)
class _Flat:
    """Lines along one axis that do not move."""

    axis: StudyAxis
    where: str
    lines: tuple[_SweepLine, ...]

    @property
    def cause(self) -> str:
        """Of all, or of most of them."""
        return Counter(line.cause for line in self.lines).most_common(1)[0][0]


def flat_notes(frame: Frame, archs: Mapping[str, Arch]) -> list[str]:
    """A sentence for each few fields that are swept in vain; `archs` are machines by name."""
    every, guessed = axes(frame, archs), is_estimated(frame)
    known = [row for row in records(like_with_like(frame)) if has_figures(row)]
    rows = [row for row in known if not is_wrong(row)]
    found: dict[tuple[str, str], list[_Flat]] = {}
    for axis in every:
        if axis.ordered and axis.column.startswith(FIELD):
            lines = [_line(each, guessed) for each in slices(rows, every, [axis])]
            for flat in _flats(axis, lines):
                found.setdefault((flat.cause, flat.where), []).append(flat)
    ranked = sorted(found.values(), key=lambda own: -sum(len(flat.lines) for flat in own))
    return [_insensitive_sentence(own, every, guessed) for own in ranked[:_MOST]]


def _line(points: Slice, guessed: bool) -> _SweepLine:
    times = [number(row, "latency_ms") for row in points.rows]
    if max(times) > (1 + FLAT) * min(times):
        return _SweepLine(points, "")
    causes = [_cause(row, guessed) for row in points.rows]
    cause = Counter(causes).most_common(1)[0][0]
    pairs = zip(points.rows, causes, strict=True)
    return _SweepLine(
        points, cause, tuple(_cause_share(row, cause) for row, own in pairs if own == cause)
    )


def _cause(row: Record, guessed: bool) -> str:
    found = row.get("bound_by" if guessed else "held_by")
    return found if isinstance(found, str) else ""


def _cause_share(row: Record, cause: str) -> float:
    return number(row, "of_bound" if cause in _ROOFS else cause)


def _flats(axis: StudyAxis, lines: Sequence[_SweepLine]) -> Iterator[_Flat]:
    """The lines of an axis that do not move: those of each cause that something sets apart; the
    others together, where something sets them apart or they are most."""
    told = {""}
    for cause in dict.fromkeys(line.cause for line in lines if line.cause):
        own = tuple(line for line in lines if line.cause == cause)
        where = _where(own, [line for line in lines if line.cause != cause])
        if where is not None:
            yield _Flat(axis, where, own)
            told.add(cause)
    rest = tuple(line for line in lines if line.cause not in told)
    if rest:
        where = _where(rest, [line for line in lines if line.cause in told])
        if where is None and 2 * len(rest) >= len(lines):
            where = f" on {len(rest)} of {len(lines)} lines"
        if where is not None:
            yield _Flat(axis, where, rest)


def _where(own: Sequence[_SweepLine], others: Sequence[_SweepLine]) -> str | None:
    """What sets lines apart from all others, in words; None where nothing does."""
    if not others:
        return ""
    for place in own[0].places:
        mine, theirs = ({line.places.get(place, "") for line in side} for side in (own, others))
        if not mine & theirs:
            return f" on {_any_of(sorted(mine))}" if place is None else _at(place, mine)
    return None


def _at(axis: StudyAxis, mine: set[str]) -> str:
    """` where dram.bandwidth is 4 GB/s to 32 GB/s`."""
    shown = [axis.shown(value) for value in axis.values]
    places = [place for place, text in enumerate(shown) if text in mine]
    together = axis.ordered and places[-1] - places[0] == len(places) - 1
    texts = [shown[place] for place in places]
    return f" where {axis.label} is {_text_span(texts) if together else _any_of(texts)}"


def _any_of(texts: Sequence[str]) -> str:
    if len(texts) > _LISTED:
        return f"{', '.join(texts[:_LISTED])} or {len(texts) - _LISTED} more"
    return " or ".join(texts)


def _text_span(texts: Sequence[str]) -> str:
    """`1`, `1 or 2`, `1 to 8`."""
    return _any_of(texts) if len(texts) < 3 else f"{texts[0]} to {texts[-1]}"


def _insensitive_sentence(own: Sequence[_Flat], every: Sequence[StudyAxis], guessed: bool) -> str:
    """What fields that are flat in the same places for one reason have in common."""
    cause, where = own[0].cause, own[0].where
    fields = " and ".join(_span(flat) for flat in own)
    verb = "changes" if len(own) == 1 else "change"
    lines = [line for flat in own for line in flat.lines]
    mine = [line for line in lines if line.cause == cause]
    shares = sorted(share for line in mine for share in line.shares)
    ends = " to ".join(dict.fromkeys(f"{100 * share:.0f}" for share in (shares[0], shares[-1])))
    mostly = f" on {len(mine)} of {len(lines)} lines" if len(mine) < len(lines) else ""
    swept = {axis.column.removeprefix(FIELD) for axis in every}
    why = _why(cause, f"{ends} % of it{mostly}", swept)
    rest = _BLIND if guessed and shares[0] < _SURE else ""
    return f"{fields} {verb} nothing{where} (latency within {100 * FLAT:.0f} %): {why}{rest}"


def _span(flat: _Flat) -> str:
    """`cores 1 to 8`: the values of the lines."""
    mine = {flat.axis.value(row) for line in flat.lines for row in line.points.rows}
    texts = [flat.axis.shown(value) for value in flat.axis.values if value in mine]
    return f"{flat.axis.label} {_text_span(texts)}"


def _why(cause: str, share: str, swept: set[str]) -> str:
    """What takes the time, and what would move that and is not swept yet."""
    if cause in _ROOFS:
        what, fields = _ROOFS[cause]
        levers = [field for field in fields if field not in swept]
        return f"{what} takes {share}{'; sweep ' * bool(levers)}{_any_of(levers)}"
    if cause.startswith(_STALL):
        stall = STALLS[cause.removeprefix(_STALL)]
        return f"matrix engines wait {share}, as {stall.meaning}; {stall.levers} would help"
    return f"{bottleneck_words(cause)} takes {share}"
