"""The study in sentences, each with its number.

The one idea: a sentence is there only where the study has what it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from archgen.outcomes.answer import answer, provenance
from archgen.outcomes.bottleneck import RECOMPILED, SIMULATED, activation_memory, working_set_in
from archgen.outcomes.estimated import ESTIMATED
from archgen.report.levers import LEAST, Lever
from archgen.report.points import PointView, ReportSubject
from archgen.report.ranking import Ranking, Standing
from archgen.report.sheet import counted, listed, percent, short, times
from simmodel.arch.units import show_bytes

_EQUAL = 0.0005
"""Leads below it would read as 1.00."""
LEAST_SHARE = 0.0005
_VERBS = {
    "does_not_fit": ("does not fit", "do not fit"),
    "unsupported": ("is not supported", "are not supported"),
    "failed": ("failed", "failed"),
}
"""What is said of points without a result, of one and of several."""


def sentences(
    study: ReportSubject, points: Sequence[PointView], ranking: Ranking,
    found: Mapping[str, Sequence[Lever]],
) -> list[str]:  # fmt: skip
    """The summary of a study's `points`, the answer first; `found` are levers by machine."""
    return [
        *(answer(study.frame, study.by_name) or ["No point has a result that could be compared."]),
        *_extent(points, ranking, study.about.total),
        *provenance(study.frame, study.about),
        *_incomplete(ranking),
        *_costs(ranking),
        *_memory(points),
        *_first_lever(ranking, found),
        *_refused(points),
        *_checked(points),
    ]


def _extent(points: Sequence[PointView], ranking: Ranking, total: int) -> Iterator[str]:
    machines = counted(len(ranking.standings), "machine")
    loads = counted(len(ranking.workloads), "workload")
    text = f"{counted(len(points), 'point')}: {machines}, {loads}"
    choices = len({point.choice for point in points})
    text += f", {choices} choices of schedules" if choices > 1 else ""
    missing = total - len(points)
    text += f"; {counted(missing, 'point')} of {total} not finished" if missing > 0 else ""
    yield f"{text}."


def _incomplete(ranking: Ranking) -> Iterator[str]:
    for standing in ranking.ranked:
        if standing.missing > ranking.ranked[0].missing:
            has = f"{len(standing.best)} of {counted(len(ranking.workloads), 'workload')}"
            yield f"{standing.name} has results for {has} and ranks below those with more."


def _costs(ranking: Ranking) -> Iterator[str]:
    """Who does most for its area, and who uses least energy."""
    if len(ranking.ranked) < 2:
        return
    if (best := ranking.leader(lambda standing: standing.per_mm2)) is not None:
        rates = _span((point.per_mm2 for point in best.best.values()), short)
        text = f"{rates} samples/s per mm² on {short(best.area)} mm²"
        against = _against(best, best.per_mm2, "rate per mm²", ranking)
        yield f"{best.name} does most for its area: {text}{against}."
    if (best := ranking.leader(lambda standing: standing.per_joule)) is not None:
        energies = _span((point.per_sample_mj for point in best.best.values()), short)
        against = _against(best, best.per_joule, "samples per joule", ranking)
        yield f"{best.name} uses least energy: {energies} mJ per sample{against}."


def _against(who: Standing, ratio: float, what: str, ranking: Ranking) -> str:
    if who.name == ranking.baseline:
        return ""
    if abs(ratio - 1) < _EQUAL:
        return f", as much as {ranking.baseline}"
    return f", {times(ratio)} the {what} of {ranking.baseline}"


def _span(values: Iterable[float], text: Callable[[float], str]) -> str:
    """`2 to 9`, or what all values are."""
    ordered = sorted(values)
    return " to ".join(dict.fromkeys([text(ordered[0]), text(ordered[-1])]))


def _share(count: int, total: int, noun: str) -> str:
    """`all 3 runs`, `2 of 3 runs`, `the only run`."""
    if total == 1:
        return f"the only {noun}"
    return f"{f'all {total}' if count == total else f'{count} of {total}'} {noun}s"


def _memory(points: Sequence[PointView]) -> Iterator[str]:
    """What memory on chip would hold, and which runs had less."""
    done = [p for p in points if p.has_run and math.isfinite(p.get("working_set_bytes"))]
    sets: dict[str, list[float]] = {}
    less = 0
    for point in done:
        need, arch = point.get("working_set_bytes"), point.arch
        sets.setdefault(point.workload, []).append(need)
        less += working_set_in(need, arch) > arch.memories.srams()[activation_memory(arch)].size
    if sets:
        amounts = listed([f"{_span(own, show_bytes)} of {name}" for name, own in sets.items()], 4)
        text = f"Working sets (the most bytes of results that are needed at once): {amounts}"
        runs = _share(less, len(done), "run")
        yield f"{text}; {runs} had less memory on chip for it." if less else f"{text}."


def _first_lever(ranking: Ranking, found: Mapping[str, Sequence[Lever]]) -> Iterator[str]:
    first = next((standing.name for standing in ranking.ranked), "")
    chosen = next(iter(found.get(first, ())), None)
    if chosen is not None:
        text = f"What to change first on {first}: {chosen.title}"
        if chosen.is_bound:
            none = f"Nothing that was tried makes {first} {percent(LEAST)} quicker"
            yield f"{none}; not tried: {chosen.title}, at most {percent(chosen.gain)}."
        elif chosen.measured is None:
            yield f"{text}, which saves {_SAVES[chosen.way].format(percent(chosen.gain))}."
        else:
            said = (
                f"{chosen.measured.machine} has it, and takes {_time_change(chosen.measured.gain)}"
            )
            yield f"{text}; {said}."


_SAVES = {
    SIMULATED: "{} of the time (the same program, simulated on the changed machine)",
    RECOMPILED: "{} of the time (recompiled for the changed machine and simulated)",
    ESTIMATED: "about {} of the time, as estimated",
}


def _time_change(gain: float) -> str:
    """Of the time of a machine, against another's."""
    if abs(gain) < LEAST_SHARE:
        return "as long"
    return f"{percent(abs(gain))} {'less' if gain > 0 else 'more'}"


def _refused(points: Sequence[PointView]) -> Iterator[str]:
    for status, (one, several) in _VERBS.items():
        found = [point for point in points if str(point.row["status"]) == status]
        if found:
            machines = listed(list(dict.fromkeys(point.machine for point in found)))
            verb = one if len(found) == 1 else several
            yield f"{counted(len(found), 'point')} {verb}, on {machines}; each with its reason."


def _checked(points: Sequence[PointView]) -> Iterator[str]:
    done = [point for point in points if point.has_run]
    right = sum(bool(point.text("verified")) and not point.wrong for point in done)
    wrong = [point.label for point in done if point.wrong]
    if wrong:
        yield f"WRONG outputs, left out of every comparison: {listed(wrong)}."
    if right:
        share = _share(right, len(done), "result")
        some = any(point.text("executed") for point in done)
        less = (
            "; of equal layers the first, second and last, where the table says so" if some else ""
        )
        yield f"The instructions of {share} were executed, and agree with ONNX Runtime{less}."
    unchecked = len(done) - right - len(wrong)
    if unchecked > 0:
        yield f"{counted(unchecked, 'result was', 'results were')} not checked."
