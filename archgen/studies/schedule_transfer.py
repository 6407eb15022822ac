"""More hardware is never reported slower for want of a schedule: machines lend theirs.

The one idea: what a machine's program does, a machine with at least as much of everything can do
as well (`archgen.studies.schedule_transfer`). Where a study reports less of it as quicker, the
larger machine runs that schedule too, is simulated with it, and keeps the better one. A slow-down
that the hardware causes stays, and is said.

    own:     40 KiB 144 008 cycles      64 KiB 176 924 cycles
    lent:                               64 KiB 143 990 cycles, schedule_from 40 KiB

Each point's own result stays as it is, under its own key; what it borrows is a second one under a
key of both machines. So what a study says depends neither on the order in which points are run nor
on how often it is interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from archgen.outcomes.points import Outcome, Point
from archgen.process.files import content_hash
from archgen.schema.rewritten import flattened
from archgen.schema.variants import LESS, MORE, is_one_of
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth, Delay

# Which machine can do whatever another one can: it has more of something, and nothing less.

_SILENT = ("name", "description", "energy", "energy.*", "assumed", "assumed.*")
"""Fields that no cycle depends on."""
_SHARED = "memories.shared"
"""A field where there is none, else several."""

Fields = dict[str, object]
"""The fields of a machine by their paths; bandwidths and delays in cycles."""


def fields_of(arch: Arch) -> Fields:
    """Every field of `arch` that a cycle may depend on."""
    found: Fields = {}
    for name, value in flattened(arch.model_dump(by_alias=True)):
        if isinstance(value, Bandwidth):
            value = value.at(arch.clock)
        elif isinstance(value, Delay):
            value = value.cycles(arch.clock)
        if not is_one_of(name, _SILENT):
            found[name] = value
    return found


def at_least(more: Fields, less: Fields) -> bool:
    """Whether a machine can do whatever another can, in no more time by its fields alone."""
    if _SHARED in less and _SHARED not in more:  # beside all that there is
        more = {name: value for name, value in more.items() if not name.startswith(f"{_SHARED}.")}
        less = {name: value for name, value in less.items() if name != _SHARED}
    if more.keys() != less.keys():
        return False
    return all(_covers(name, more[name], less[name]) for name in more if more[name] != less[name])


def _covers(name: str, ours: object, theirs: object) -> bool:
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return is_one_of(name, MORE) and {*ours} > {*theirs}
    if not (isinstance(ours, int | float) and isinstance(theirs, int | float)):
        return False
    return (is_one_of(name, MORE) and ours > theirs) or (is_one_of(name, LESS) and ours < theirs)


OBJECTIVES = ("latency", "throughput")
"""Schedules that are sought for anything else are not compared by their cycles."""
Run = Callable[[Sequence[Point]], Iterable[Outcome]]
"""Outcomes of points, in any order."""


@dataclass(frozen=True)
class ScheduleTransfer:
    """The schedule of one point, run on the machine of another."""

    key: str
    """Of its outcome."""
    label: str
    borrower: str
    """Key of the point that may report it as its own."""
    lender: str
    """Key of the point whose schedule it is."""


def transfer_schedules(
    points: Sequence[Point], own: Mapping[str, Outcome], run: Run
) -> dict[ScheduleTransfer, Outcome]:
    """What the points of a study make of the schedules of others that are quicker with no more
    hardware. `own`: their outcomes by key, where finished; `run` runs further points."""
    cycles = {point.key: _reportable_cycles(own.get(point.key)) for point in points}
    fields = {point.key: fields_of(point.arch) for point in points}
    lenders = {
        point.key: sorted(
            (
                other for other in points
                if cycles[other.key] < cycles[point.key] and _work(other) == _work(point)
                and at_least(fields[point.key], fields[other.key])
            ),
            key=lambda lender: (cycles[lender.key], lender.key),
        )
        for point in points if _borrows(point, own.get(point.key))
    }  # fmt: skip
    found: dict[ScheduleTransfer, Outcome] = {}
    best = dict(cycles)
    # The quickest lender first; a next one only while it could still be quicker than what the
    # point has by then, so most points run one borrowed schedule or none.
    while True:
        asked: dict[str, ScheduleTransfer] = {}
        wanted: list[Point] = []
        for point in points:
            waiting = lenders.get(point.key, [])
            if waiting and cycles[waiting[0].key] < best[point.key]:
                lender = waiting.pop(0)
                # Keyed by both: stored beside what the point computes alone, never in its place.
                key = content_hash({"point": point.key, "schedule_from": lender.key})
                borrowed = replace(point, key=key, schedule_from=lender.arch)
                loan = ScheduleTransfer(borrowed.key, borrowed.label, point.key, lender.key)
                asked[borrowed.key] = loan
                wanted.append(borrowed)
        if not wanted:
            return found
        for outcome in run(wanted):
            loan = asked[outcome.key]
            found[loan] = outcome
            best[loan.borrower] = min(best[loan.borrower], _reportable_cycles(outcome))


def reported_outcomes(
    own: Mapping[str, Outcome], loans: Mapping[ScheduleTransfer, Outcome]
) -> dict[str, Outcome]:
    """What each point reports, by its key: the quicker of its own and of what it has borrowed."""
    taken = dict(own)
    for loan, outcome in loans.items():
        if _reportable_cycles(outcome) < _reportable_cycles(taken[loan.borrower]):
            taken[loan.borrower] = outcome
    noted: set[str] = set()
    for loan, outcome in loans.items():  # those of the quickest lender first
        slower = _reportable_cycles(own[loan.lender]) < _reportable_cycles(taken[loan.borrower])
        if slower and loan.borrower not in noted:
            noted.add(loan.borrower)
            taken[loan.borrower] = _noted(taken[loan.borrower], own[loan.lender], outcome)
    return taken


def _borrows(point: Point, own: Outcome | None) -> bool:
    """Whether another's schedule may answer for `point`: never instead of a failure, or of a result
    that is wrong."""
    if own is None or own.status not in ("ok", "does_not_fit") or not own.good:
        return False
    return point.scheduling.objective in OBJECTIVES


def _work(point: Point) -> tuple[object, ...]:
    """What two points have to agree in."""
    return (
        point.model, point.batch, point.dtype, point.dims, point.ranges, point.roles,
        point.calibration, point.verify, point.host, point.extensions, point.scheduling,
    )  # fmt: skip


def _reportable_cycles(outcome: Outcome | None) -> float:
    """Of a run that may be reported; infinity where there is none."""
    if outcome is None or outcome.status != "ok" or not outcome.good:
        return math.inf
    cycles = outcome.row["latency_cycles"]
    assert isinstance(cycles, int | float)
    return float(cycles)


def _noted(outcome: Outcome, lender: Outcome, lent: Outcome) -> Outcome:
    """`outcome` with a word on why it is slower than `lender` all the same."""
    name = lender.row["arch"]
    said = f"slower than {name}, which has no more: "
    if lent.status == "ok":
        said += f"its program takes {lent.row['latency_cycles']} cycles here, at the same addresses"
    else:
        said += f"its schedule is not possible here: {lent.row.get('reason')}"
    known = outcome.row.get("note")
    return replace(outcome, row=outcome.row | {"note": f"{known}; {said}" if known else said})
