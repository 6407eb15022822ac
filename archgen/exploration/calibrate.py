"""A machine's assumed fields fitted to measured times.

The one idea: what may be assumed changes nothing but time, so each network is compiled once and its
program runs on every machine that is tried. Each field is moved along its range by itself, in
turns; half of the times say whether the other half is met by more than chance.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from archgen.report.sheet import counted
from archgen.schema.rewritten import Fields, changed
from simmodel.arch.assumed import place_of, value_at
from simmodel.arch.record import Arch
from simmodel.machine.run import cycles_of
from simmodel.program.program import Program

COLUMNS = ("model", "ms", "batch", "tree", "kind")
_COARSE = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Places along a range that are tried first; then some around the best of them."""
_FINE = (-0.1875, -0.125, -0.0625, -0.03125, 0.03125, 0.0625, 0.125, 0.1875)
_ROUNDS = 3
_GAIN = 1e-3
"""What a round must take off the error for another one."""
_WORSE, _FAR, _SPREAD = 0.01, 0.5, 0.1
"""Errors that are told: more of a kind than before; of half of the times; between equal points."""
_FEWEST = 4
"""Times below which half of them says nothing of the other half."""


@dataclass(frozen=True)
class Measurement:
    """One measured time."""

    model: str
    ms: float
    batch: int | None
    tree: str
    """File with the schedule that was measured; empty: the compiler's own is taken."""
    kind: str
    """What errors are listed by; default: the network without its options."""
    line: str
    """Where it stands: `points.csv:2`."""


def read_measurements(path: Path) -> tuple[list[Measurement], list[str]]:
    """The rows of a CSV file with the columns model, ms and if wanted batch, tree and kind, and
    what is wrong with the others, each with its line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as why:
        return [], [f"{path}: {getattr(why, 'strerror', None) or why}"]
    there = [name for name in (rows[0] if rows else []) if name is not None]
    wrong = [f"{path}:1: no column {name!r}" for name in COLUMNS[:2] if name not in there]
    wrong += [
        f"{path}:1: unknown column {name!r}; there are {', '.join(COLUMNS)}"
        for name in there
        if name not in COLUMNS
    ]
    if not rows:
        wrong = [f"{path}: holds no rows; expected a line of columns such as model,ms"]
    found = []
    for number, row in enumerate([] if wrong else rows, 2):
        line, more = f"{path}:{number}", row.pop(None, None)
        if more:
            hint = f'quote a network with options: "{row["model"]},...",0.5'
            wrong.append(f"{line}: {len(more)} values more than columns; {hint}")
            continue
        said = {name: (row.get(name) or "").strip() for name in COLUMNS}
        ms, batch = _positive(said["ms"]), _positive(said["batch"] or "1")
        mistakes = [
            f"{line}: {name} {said[name]!r}: expected {expected}"
            for name, expected, good in (
                ("model", "a network of the zoo, or an .onnx file", said["model"]),
                ("ms", "a time above 0, in ms", ms),
                ("batch", "a whole number above 0", batch and batch == int(batch)),
                ("tree", "a file", not said["tree"] or Path(said["tree"]).is_file()),
            )
            if not good
        ]
        wrong += mistakes
        if mistakes:
            continue
        kind = said["kind"] or Path(said["model"]).stem.partition(":")[0]
        samples = int(batch) if said["batch"] else None
        found.append(Measurement(said["model"], ms, samples, said["tree"], kind, line))
    return found, wrong


def _positive(text: str) -> float:
    """The number that a text is, 0 where it is none above 0."""
    with suppress(ValueError):
        return amount if 0 < (amount := float(text)) < math.inf else 0
    return 0


@dataclass(frozen=True)
class Calibration:
    """What a fit found."""

    points: Sequence[Measurement]
    fields: Fields
    """The fitted values, as a file spells them."""
    before: Sequence[float]
    """Simulated ms of each point with the values that the file states."""
    after: Sequence[float]
    held_out: Sequence[float] = field(default=())
    """The same where the point was left out of the fit; empty: there are too few points."""
    unseen: Collection[str] = ()
    """Assumed fields that change none of these times over their range."""

    def errors(self, times: Sequence[float], kind: str = "") -> list[float]:
        """Relative errors of `times`, of one kind or of all points."""
        pairs = zip(self.points, times, strict=True)
        return [abs(ms / p.ms - 1) for p, ms in pairs if kind in ("", p.kind)]

    def sentence(self, kind: str = "") -> str:
        """How well it does, in words."""
        before, after = self.errors(self.before, kind), self.errors(self.after, kind)
        said = f"median error {median(before):.1%} before, {median(after):.1%} after"
        if self.held_out:
            left = median(self.errors(self.held_out, kind))
            said += f", {left:.1%} where left out of the fit"
        return f"{said} ({counted(len(after), 'point')})"

    def doubts(self) -> Iterator[str]:
        """What speaks against the fit."""
        fields = len(self.fields) - len(self.unseen)
        same: dict[tuple[object, ...], list[Measurement]] = {}
        for point in self.points:
            same.setdefault((point.model, point.batch, point.tree), []).append(point)
        if len(same) <= fields:
            said = f"{counted(len(same), 'unlike point')} for {counted(fields, 'field')}"
            yield f"{said}: other values may meet the times as well; measure more networks"
        for kind in dict.fromkeys(point.kind for point in self.points):
            before, after = (median(self.errors(ms, kind)) for ms in (self.before, self.after))
            if after > before + _WORSE:
                yield f"{kind}: the fit makes it worse, {before:.1%} to {after:.1%}"
        if median(self.errors(self.after)) > _FAR:
            yield "half of the times are met by no value in the ranges: are they in ms?"
        for points in same.values():
            least, most = min(p.ms for p in points), max(p.ms for p in points)
            if most > least * (1 + _SPREAD):
                where = ", ".join(p.line for p in points)
                yield f"{where}: one network, {least:g} to {most:g} ms"


def calibrate(
    arch: Arch, points: Sequence[Measurement], compiled: Callable[[Measurement], Program]
) -> Calibration:
    """The assumed fields of `arch` that come nearest to the measured times of `points`, whose
    programs on it `compiled` makes."""
    programs = [compiled(point) for point in points]
    known: dict[tuple[tuple[float, ...], int], float] = {}

    def fields_at(places: Sequence[float]) -> Fields:
        return {f: value_at(arch, f, at) for f, at in zip(arch.assumed, places, strict=True)}

    def milliseconds(places: tuple[float, ...], point: int) -> float:
        if (places, point) not in known:
            machine = changed(arch, fields_at(places)) or arch
            cycles = cycles_of(programs[point], machine)
            known[places, point] = 1e3 * cycles / arch.clock
        return known[places, point]

    def fitted(chosen: Sequence[int]) -> tuple[float, ...]:
        # The mean of logarithms: as much too long counts like as much too short, outliers little.
        return _descend(start, lambda places: fmean(
            abs(math.log(milliseconds(places, each) / points[each].ms)) for each in chosen
        ))  # fmt: skip

    start = tuple(place_of(arch, name) for name in arch.assumed)
    every = range(len(points))
    best = fitted(every)
    held_out: list[float] = []
    if len(points) >= _FEWEST:
        order = sorted(every, key=lambda each: points[each].kind)  # halves have some of each kind
        halves = order[::2], order[1::2]
        times = {
            each: milliseconds(own, each)
            for own, left in zip(map(fitted, halves), halves[::-1], strict=True)
            for each in left
        }
        held_out = [times[each] for each in every]
    before, after = ([milliseconds(at, each) for each in every] for at in (start, best))
    unseen = [
        name
        for axis, name in enumerate(arch.assumed)
        if all(
            milliseconds((*best[:axis], end, *best[axis + 1 :]), each) == after[each]
            for end in (0.0, 1.0)
            for each in every
        )
    ]
    return Calibration(points, fields_at(best), before, after, held_out, unseen)


def _descend(
    start: tuple[float, ...], error: Callable[[tuple[float, ...]], float]
) -> tuple[float, ...]:
    """Places from 0 to 1 where `error` is least, one coordinate moved at a time."""
    best, least = start, error(start)
    for _ in range(_ROUNDS):
        before = least
        for axis in range(len(start)):
            for centre, steps in ((0.0, _COARSE), (None, _FINE)):
                middle = best[axis] if centre is None else centre
                for place in (min(1.0, max(0.0, middle + step)) for step in steps):
                    tried = (*best[:axis], place, *best[axis + 1 :])
                    if (found := error(tried)) < least:
                        best, least = tried, found
        if before - least < _GAIN:
            break
    return best
