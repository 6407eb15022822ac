"""Machines in order: the fastest first, over all workloads, against a baseline.

The one idea: ratios are averaged geometrically over the workloads that both a machine and the
baseline have results for, each at its best choice; a machine that lacks a workload comes after
those that have it, whatever its speed. Of machines with equal estimates those that ran come first,
and of equals the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from archgen.outcomes.frame import does_nothing, grouped
from archgen.report.points import PointView, best_by_workload
from archgen.report.sheet import geometric_mean
from archgen.schema.rewritten import Fields, changed
from simmodel.arch.record import Arch

_DIGITS = 9
"""Behind the point of a ratio, so that quotients of equal estimates are equal."""


@dataclass(frozen=True)
class Standing:
    """One machine among the others; ratios are against the baseline, above 1 is better."""

    arch: Arch = field(repr=False)
    points: tuple[PointView, ...] = field(repr=False)
    best: dict[str, PointView] = field(repr=False)
    """Its fastest point by workload."""
    common: int
    """Workloads that it shares with the baseline."""
    missing: int
    """Workloads of the study without a result on it."""
    speed: float
    per_mm2: float
    """Samples per second and square millimetre, as a ratio."""
    per_joule: float
    """Samples per joule, as a ratio."""
    area: float
    """mm2."""

    @property
    def name(self) -> str:
        return self.arch.name

    @property
    def has_run(self) -> bool:
        """Whether its best of every workload was simulated."""
        return all(point.has_run for point in self.best.values())


@dataclass(frozen=True)
class Ranking:
    """All machines, the best first."""

    standings: tuple[Standing, ...]
    baseline: str
    """Name of the machine that the others are compared with; empty where there is no result."""
    workloads: tuple[str, ...]

    @cached_property
    def places(self) -> dict[str, int]:
        """Of each machine, from 1 on."""
        return {standing.name: place for place, standing in enumerate(self.standings, 1)}

    @cached_property
    def ranked(self) -> tuple[Standing, ...]:
        """Machines that have a result."""
        return tuple(standing for standing in self.standings if standing.best)

    def leader(self, value: Callable[[Standing], float]) -> Standing | None:
        """The machine with the most of something, of those that lack fewest workloads."""
        able = [standing for standing in self.ranked if math.isfinite(value(standing))]
        least = min((standing.missing for standing in able), default=0)
        full = [standing for standing in able if standing.missing == least]
        return max(full, key=lambda each: (round(value(each), _DIGITS), each.has_run), default=None)


def rank(points: Sequence[PointView], archs: Iterable[Arch]) -> Ranking:
    """Order the machines `archs` by what `points` say of them."""
    asked = [point for point in points if not does_nothing(point.row)]
    names = tuple(dict.fromkeys(point.workload for point in asked))
    members = grouped(points, lambda point: point.machine)
    own = {arch.name: (arch, members.get(arch.name, [])) for arch in archs}
    best = {name: best_by_workload(every) for name, (_, every) in own.items()}
    # The first machine with most workloads is what others are compared with: most ratios exist.
    most = max((len(found) for found in best.values()), default=0)
    baseline = next((name for name, found in best.items() if found and len(found) == most), "")
    standings = [
        _standing(arch, every, best[name], best.get(baseline, {}), names)
        for name, (arch, every) in own.items()
        if every
    ]
    standings.sort(key=_order)
    return Ranking(tuple(standings), baseline, names)


def _order(standing: Standing) -> tuple[int, float, bool, float, float]:
    # Means over fewer workloads are not comparable, so those come last however quick they are.
    speed = -round(standing.speed, _DIGITS) if math.isfinite(standing.speed) else math.inf
    own = 0.0
    if standing.has_run:
        own = geometric_mean([point.get("latency_ms") for point in standing.best.values()])
    area = standing.area if math.isfinite(standing.area) else math.inf
    return standing.missing, speed, not standing.has_run, own, area


def _standing(
    arch: Arch, points: Sequence[PointView], best: dict[str, PointView],
    against: dict[str, PointView], names: Sequence[str],
) -> Standing:  # fmt: skip
    common = [name for name in names if name in best and name in against]

    def mean(value: Callable[[PointView], float]) -> float:
        pairs = [(value(best[name]), value(against[name])) for name in common]
        return geometric_mean([a / b if b > 0 else math.nan for a, b in pairs])

    return Standing(
        arch, tuple(points), best, len(common), len(names) - len(best),
        speed=mean(lambda point: _inverse(point.time)),
        per_mm2=mean(lambda point: point.per_mm2),
        per_joule=mean(lambda point: _inverse(point.per_sample_mj)),
        area=next((point.get("area_mm2") for point in best.values()), math.nan),
    )  # fmt: skip


def _inverse(value: float) -> float:
    return 1 / value if value > 0 else math.nan


# Machines that are the same in all but their names, and what a study has measured of a change.

_SAID = {"name", "description"}
"""What is said of a machine and does not make it another one."""


def machine_content(arch: Arch) -> str:
    """What `arch` is, whatever it is called; equal for machines that are the same."""
    return arch.model_dump_json(exclude=_SAID)


def identical_machines(standings: Iterable[Standing]) -> list[tuple[Standing, ...]]:
    """`standings` in their order, those of the same machine together."""
    return [
        tuple(own) for own in grouped(standings, lambda each: machine_content(each.arch)).values()
    ]


@dataclass(frozen=True)
class MeasuredGain:
    """What a change has brought where the study has the changed machine."""

    machine: str
    gain: float
    """Share of the time that it saves, over common workloads geometrically; below 0: it takes."""


def measured(
    fields: Fields, standing: Standing, known: Mapping[str, Sequence[Standing]]
) -> MeasuredGain | None:
    """What a change of `fields` has brought on the machine of `standing`; None where nobody has run
    it. `known`: the machines of the study that have results, by `machine_content`."""
    made = changed(standing.arch, fields) if fields else None
    if made is None:
        return None
    for other in known.get(machine_content(made), ()):
        common = [name for name in standing.best if name in other.best]
        if common:
            times = [other.best[name].time / standing.best[name].time for name in common]
            return MeasuredGain(other.name, 1 - geometric_mean(times))
    return None
