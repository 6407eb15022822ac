"""What a study answers, in five sentences at most: the best machine, the smallest that is nearly as
good, what limits the best, what the study could not see, and what to ask next.

The one idea: every sentence follows from rows of the frame, so terminal, report and notebook say
the same. Over several networks machines are compared by geometric means of their best points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from archgen.outcomes import estimated
from archgen.outcomes.axes import StudyAxis, axes, workload
from archgen.outcomes.bottleneck import Verdict, main_verdicts, verdict
from archgen.outcomes.estimated import EstimateError
from archgen.outcomes.frame import Frame, Record, does_nothing, is_wrong, number, records
from archgen.outcomes.points import FIELD, StudyMetadata
from simmodel.arch.record import Arch

NEARLY = 0.10
"""Share of the time by which a smaller machine may be slower and still be nearly as good."""
_EQUAL = 0.005
"""Share of the time by which machines differ that are as quick as each other."""


@dataclass(frozen=True)
class ComparedMachine:
    """A machine over all networks of the study."""

    name: str
    time: float
    """Geometric mean of the latencies of its best points, ms."""
    area: float
    """mm2; NaN where it is not known."""
    best: Mapping[str, Record]
    """Network -> its quickest point."""
    held: Mapping[str, Verdict]
    """Network -> what holds that point up: its run where it has one, else its estimate."""
    interval: float = math.nan
    """Geometric mean of the least `interval_ms` of each network; NaN without any in flight."""


def answer(frame: Frame, archs: Mapping[str, Arch]) -> list[str]:
    """The sentences about the points of `frame`, `Study.frame` or some of its rows; none where
    nothing has figures. `archs` are machines by name."""
    found, every = compared_machines(frame), axes(frame, archs)
    if not found:
        return []
    guessed = EstimateError.of(records(frame)) if estimated.is_estimated(frame) else None
    best = [*_fastest(found, guessed), *_first_in_flight(found), *_smallest(found)]
    return [*best, *_held_by(found[0]), *_caveats(found, every, guessed)]


def compared_machines(frame: Frame) -> list[ComparedMachine]:
    """The machines of `frame` that have a point of every network that any has, quickest first."""
    ordered = estimated.ranked_by(estimated.comparable(frame), "latency_ms")
    held = map(verdict, records(frame.loc[ordered.index]))
    return _candidates(
        [p for p in zip(records(ordered), held, strict=True) if _is_comparable(p[0])]
    )


def smaller_machine(found: Sequence[ComparedMachine]) -> tuple[ComparedMachine | None, bool]:
    """The smallest machine that is nearly as quick as the first, and True; else the least slow of
    those that have less area."""
    first, *others = found
    smaller = [each for each in others if each.area < first.area * (1 - NEARLY)]
    near = [each for each in smaller if each.time <= first.time * (1 + NEARLY)]
    alike = [each for each in smaller if each.time <= smaller[0].time * (1 + _EQUAL)]
    return min(near or alike, key=lambda each: each.area, default=None), bool(near)


def provenance(frame: Frame, about: StudyMetadata) -> Iterator[str]:
    """Which points were estimated, why others were run, and whose schedules these have run."""
    guessed, total = int(frame["status"].eq(estimated.ESTIMATED).sum()), len(frame)
    if guessed:
        yield (
            f"{guessed} of {total} points {'is' if guessed == 1 else 'are'} ESTIMATED layer by "
            "layer: nothing of them was compiled, run or checked; estimates stand beside estimates."
        )
    if chosen := estimated.chosen_words(records(frame)):
        yield f"{chosen} (chosen_as)."
    ran = frame[frame["status"].eq("ok")]
    lent = int(ran["schedule_from"].notna().sum())
    if lent:
        run = "runs the schedule" if lent == 1 else "run schedules"
        yield (
            f"{lent} of {total} points {run} of a machine with no more hardware, as that was "
            "quicker than what was found for the point's own (schedule_from; --isolated: none)."
        )
    elif ran["arch"].nunique() > 1 and about.isolated:
        why = "Every machine ran its own schedule (--isolated)"
        yield f"{why}: where more hardware is slower, that may be for want of a schedule."


def _is_comparable(row: Record) -> bool:
    judged = estimated.has_figures(row) and not is_wrong(row) and not does_nothing(row)
    return judged and number(row, "latency_ms") > 0


def _candidates(points: Sequence[tuple[Record, Verdict]]) -> list[ComparedMachine]:
    """Machines that have a point of every network that any has, the quickest first; `points` are in
    order of their latencies."""
    best: dict[str, dict[str, Record]] = {}
    held: dict[str, dict[str, Verdict]] = {}
    intervals: dict[str, dict[str, float]] = {}
    for row, found_by in points:
        best.setdefault(str(row["arch"]), {}).setdefault(workload(row), row)
        held.setdefault(str(row["arch"]), {}).setdefault(workload(row), found_by)
        every, name = intervals.setdefault(str(row["arch"]), {}), workload(row)
        every[name] = min(number(row, "interval_ms", math.inf), every.get(name, math.inf))
    most = max(map(len, best.values()), default=0)
    found = []
    for name, own in best.items():
        mean = geometric_mean(number(row, "latency_ms") for row in own.values())
        area = number(next(iter(own.values())), "area_mm2")
        if len(own) == most:
            interval = geometric_mean(intervals[name].values())
            interval = interval if math.isfinite(interval) else math.nan
            found.append(ComparedMachine(name, mean, area, own, held[name], interval))
    return sorted(found, key=lambda each: (each.time, each.area if each.area > 0 else math.inf))


def _fastest(found: Sequence[ComparedMachine], guessed: EstimateError | None) -> Iterator[str]:
    first = found[0]
    said = "" if guessed is None else f" as estimated ({guessed.percent})"
    if len(first.best) == 1:
        ((network, row),) = first.best.items()
        ran = estimated.run_figures(row)
        run = "" if ran is None else f", {_digits(number(ran, 'latency_ms'))} ms when it was run"
        takes = f"{_digits(first.time)} ms{said}{_range(row)} for {network}{run}"
        takes += f", {_digits(number(row, 'throughput_ips'))} samples/s"
        if flying := number(row, "in_flight", 0.0):
            every = _digits(number(row, "interval_ms"))
            takes += f" with {flying:.0f} inferences in flight, one every {every} ms"
    else:
        count, networks = len(first.best), len({row["model"] for row in first.best.values()})
        cases = "" if count == networks else f"{count} cases of "
        words = "one network" if networks == 1 else f"{networks} networks"
        takes = f"{_digits(first.time)} ms{said}, geometric mean of {cases}{words}"
    lenders = {name: str(row["schedule_from"]) for name, row in first.best.items()
               if isinstance(row.get("schedule_from"), str)}  # fmt: skip
    if lenders:
        where = "" if len(first.best) == 1 else f" for {len(lenders)} of them"
        takes += f", by the schedule of {' and '.join(dict.fromkeys(lenders.values()))}{where}"
    if len(found) == 1:
        yield f"{first.name} takes {takes}."
        return
    lead, second = found[1].time / first.time - 1, found[1].name
    behind = "is as quick" if lead < _EQUAL else f"takes {_longer(lead)}"
    yield f"Fastest is {first.name}: {takes}; the next, {second}, {behind}."


def _first_in_flight(found: Sequence[ComparedMachine]) -> Iterator[str]:
    """Who does most with several inferences in flight, of machines of which that is known."""
    flying = sorted((each for each in found if each.interval > 0), key=lambda each: each.interval)
    if len(flying) < 2:
        return
    first, second = flying[:2]
    mean = "" if len(first.best) == 1 else ", geometric mean"
    lead = second.interval / first.interval - 1
    behind = "is as quick" if lead < _EQUAL else f"takes {_longer(lead)}"
    every = f"an inference every {_digits(first.interval)} ms{mean}; the next, {second.name}"
    yield f"With several in flight {first.name} is first: {every}, {behind}."


def _range(row: Record) -> str:
    """` (0.49 to 0.61, 80 % of it by memories.dram.latency)`, where the machine's file assumes."""
    low, high = number(row, "latency_low_ms"), number(row, "latency_high_ms")
    if not low < high:
        return ""
    most = f"{100 * number(row, 'assumed_share'):.0f} % of it by {row['assumed_most']}"
    return f" ({_digits(low)} to {_digits(high)}, {most})"


def _smallest(found: Sequence[ComparedMachine]) -> Iterator[str]:
    """The smallest machine that is nearly as quick as the first; else what less area costs."""
    first, (chosen, near) = found[0], smaller_machine(found)
    if chosen is None:
        return
    saved = f"{_digits(chosen.area)} mm2 instead of {_digits(first.area)}"
    slower = chosen.time / first.time - 1
    if near:
        yield (
            f"The smallest within {100 * NEARLY:.0f} % of it is {chosen.name}: {saved}, "
            f"{'as quick' if slower < _EQUAL else _longer(slower)}."
        )
    else:
        yield f"Less area costs time: {chosen.name} has {saved} and takes {_longer(slower)}."


def _held_by(first: ComparedMachine) -> Iterator[str]:
    longest = sorted(first.best, key=lambda name: -number(first.best[name], "latency_ms"))
    known = main_verdicts([(name, first.held[name]) for name in longest])
    if known:
        where = " on {}" * (len(longest) > 1)
        said = "; ".join(each.sentence + where.format(name) for name, each in known)
        yield f"What holds {first.name} up: {said}."


def _caveats(
    found: Sequence[ComparedMachine], every: Sequence[StudyAxis], guessed: EstimateError | None
) -> Iterator[str]:
    """What the study does not show of its best machine: what lies beyond the ends of its sweeps,
    and what estimates do not know."""
    if guessed is not None:
        yield (
            "Estimates leave out waits, and bank conflicts beyond the peak of all banks: "
            f"{guessed.sentence}; --best 5 runs the best."
        )
    ends = [each for axis in every if (each := _end_of_sweep(found, axis))]
    if ends:
        beyond = " and ".join(ends[:2])
        yield f"The best lies at an end of what was tried: {beyond}; try values beyond."


def _end_of_sweep(found: Sequence[ComparedMachine], axis: StudyAxis) -> str:
    """`banks 16`, where the best machine has the last value of a swept field that still helps."""
    if not (axis.ordered and axis.column.startswith(FIELD)) or len(axis.values) < 2:
        return ""
    value = axis.value(next(iter(found[0].best.values())))
    ordered = axis.values[::-1] if axis.less_is_more else axis.values
    others = [
        each.time for each in found if axis.value(next(iter(each.best.values()))) == ordered[-2]
    ]
    if value != ordered[-1] or min(others, default=0.0) < (1 + _HELPS) * found[0].time:
        return ""
    return f"{axis.label} {axis.shown(value)}"


_HELPS = 0.02
"""Share of the time that the last step of a sweep saves, where more of it may be worth trying."""


def _digits(value: float) -> str:
    return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def _longer(share: float) -> str:
    """`12 % longer`, `3.1 times as long`."""
    if share < 1:
        return f"{100 * share:.0f} % longer"
    return f"{1 + share:.2g} times as long" if share < 99 else f"{1 + share:,.0f} times as long"
