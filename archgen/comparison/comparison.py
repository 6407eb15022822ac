"""Studies side by side: which points got better or worse than in the first, by how much and why.

The one idea: points are joined by what they are, which columns say; without the architecture among
them two machines are compared network by network. `out` is a folder and `out:edge` the machine
`edge` of it (`out:edge*` several).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from statistics import geometric_mean

import pandas as pd

from archgen.comparison.differences import JUDGED, Pair, pair
from archgen.outcomes.figures import figure_named, figure_of, more_is_better, with_unit
from archgen.outcomes.frame import Record, does_nothing, records
from archgen.outcomes.points import BUCKET, DIMENSION, SWITCH
from archgen.scheduling import DEFAULT
from archgen.schema.tree import guess
from archgen.studies.design import StudyError
from archgen.studies.results import Study, open_study

Points = dict[tuple[Hashable, ...], tuple[Record, list[Record]]]
"""Points and their layers by the values of the columns that join them."""
IDENTITY = ("arch", "model", "batch", "dtype", *DEFAULT.columns)
_MOST = 4
"""Values of a column that are named."""


@dataclass(frozen=True)
class ComparedStudy:
    """A study as one side of a comparison."""

    name: str
    study: Study
    one_machine: bool = False
    """Whether it was chosen as one machine, so that its name says nothing about what it is for."""


def side_of(given: ComparedStudy | Study | str | PathLike[str], number: int) -> ComparedStudy:
    """`given` as a side; the `number` names a study without a name.

    Raises StudyError: there is no such study, or no such machine in it.
    """
    if isinstance(given, ComparedStudy):
        return given
    if isinstance(given, Study):
        return ComparedStudy(given.about.name or f"study {number}", given)
    text = fspath(given)
    folder, colon, names = text.rpartition(":")
    if not colon or Path(text).exists() or not Path(folder).exists():
        return ComparedStudy(text, open_study(text))
    return _machines_of(text, open_study(folder), names.split(","))


def _machines_of(name: str, study: Study, patterns: Sequence[str]) -> ComparedStudy:
    """The machines of `study` that `patterns` name. Raises StudyError where one names none."""
    known = list(dict.fromkeys(str(outcome.row["arch"]) for outcome in study.outcomes))
    idle = [p for p in patterns if not any(fnmatchcase(each, p) for each in known)]
    if idle:
        there = f"; there is {', '.join(map(repr, known[:5]))}" if known else "; it has no points"
        raise StudyError(
            f"{name}: no machine {p!r}{guess(p.strip('*'), known) or there}" for p in idle
        )
    kept = {each for each in known if any(fnmatchcase(each, p) for p in patterns)}
    chosen = replace(
        study,
        outcomes=tuple(o for o in study.outcomes if o.row["arch"] in kept),
        archs=tuple(arch for arch in study.archs if arch.name in kept),
    )
    return ComparedStudy(name, chosen, len(kept) == 1)


def _differences(
    columns: Sequence[str], sides: Sequence[tuple[Sequence[Record], str]]
) -> Iterator[str]:
    """`effort is 0 in before and 1 in after`, for each of `columns`; sides are rows and names."""
    for column in columns:
        values = []
        for keys, name in sides:
            found = _values(keys, column)
            more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
            values.append(f"{', '.join(found[:_MOST])}{more} in {name}")
        yield f"{column} is {' and '.join(values)}"


def disjoint_columns(before: Sequence[Record], after: Sequence[Record]) -> tuple[str, ...]:
    """Columns of which the sides share no value."""
    columns = dict.fromkeys(name for key in (*before, *after) for name in key)
    return tuple(n for n in columns if not {*_values(before, n)} & {*_values(after, n)})


def _values(keys: Sequence[Record], column: str) -> list[str]:
    values = (key.get(column) for key in keys)
    return list(dict.fromkeys("not given" if pd.isna(each) else str(each) for each in values))


def _is_of_compiler(column: str) -> bool:
    """Whether a column says how networks were compiled."""
    return column in DEFAULT.columns or column.startswith(SWITCH)


@dataclass(frozen=True)
class Against:
    """A study beside the baseline: pairs of points, and the points that only one of them has."""

    name: str
    pairs: tuple[Pair, ...]
    only_before: tuple[Record, ...]
    """Keys of points of the baseline alone."""
    only_after: tuple[Record, ...]
    """Keys of points of this study alone."""

    @property
    def means(self) -> dict[str, float]:
        """Figure -> geometric mean of its ratios over the pairs that have it, and work to do."""
        ratios: dict[str, list[float]] = {}
        for both in self.pairs:
            if does_nothing(both.before) and does_nothing(both.after):
                continue
            for name, change in both.figures.items():
                if change.before > 0 and change.after > 0:
                    ratios.setdefault(name, []).append(change.ratio)
        return {name: geometric_mean(found) for name, found in ratios.items()}


@dataclass(frozen=True)
class StudyComparison:
    """Studies, each beside the first."""

    on: tuple[str, ...]
    baseline: str
    """Name of the study that the others are compared with."""
    against: tuple[Against, ...]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each pair: the study beside the baseline, its key, statuses, verdict, each
        figure before, after and as a ratio, the difference of each cause in `change_unit`, why."""
        return pd.DataFrame([_pair_row(a.name, pair) for a in self.against for pair in a.pairs])

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Those of all studies."""
        return tuple(pair for each in self.against for pair in each.pairs)

    def no_overlap_reason(self, each: Against) -> str:
        """Why a study has no point of the baseline: what one is and the other is not."""
        sides = ((each.only_before, self.baseline), (each.only_after, each.name))
        if empty := [f"{name} has no points" for keys, name in sides if not keys]:
            return " and ".join(empty)
        said = _differences(disjoint_columns(each.only_before, each.only_after), sides)
        return "; ".join(said) or "each value is in both, but no point has all of them in both"

    def options_apart(self, each: Against) -> list[str]:
        """Options of the compiler that differ between the sides of pairs, found without them."""
        sides = [pair.before for pair in each.pairs], [pair.after for pair in each.pairs]
        options = [*filter(_is_of_compiler, disjoint_columns(*sides))]
        return [*_differences(options, [(sides[0], self.baseline), (sides[1], each.name)])]

    def _repr_html_(self) -> str:
        html: str = self.frame.to_html(index=False)
        return html


def _pair_row(name: str, pair: Pair) -> Record:
    row: Record = {
        "study": name,
        **pair.key,
        "status_before": pair.before["status"],
        "status_after": pair.after["status"],
        "verdict": pair.verdict,
    }
    for name, change in pair.figures.items():
        row |= {f"{name}_before": change.before, f"{name}_after": change.after}
        row[f"{name}_ratio"] = change.ratio
    row |= dict(zip(("schedule_from_before", "schedule_from_after"), pair.lenders, strict=True))
    row["change_unit"] = pair.unit
    row |= {f"{name}_change": change.difference for name, change in pair.causes.items()}
    return row | {"why": pair.why}


def compare(
    *studies: ComparedStudy | Study | str | PathLike[str],
    on: Sequence[str] | None = None,
    threshold: float = 0.01,
) -> StudyComparison:
    """How the points of further studies differ from those of the first.

    Args:
        studies: studies, their folders, or machines of them (`out:edge`); the first is the
            baseline.
        on: columns that say which points are the same; default: all that identify a point, less
            `arch` where each side is one machine that was named, and options of the compiler of
            which each side has one value. Without `arch` machines are compared.
        threshold: relative changes up to this count as none.

    Raises:
        StudyError: no such study, machine or column, or columns by which a point has several
            partners.
    """
    if len(studies) < 2:
        raise StudyError(["give at least two studies: the first is what others are compared with"])
    first, *others = (side_of(given, number) for number, given in enumerate(studies, 1))
    columns = _key_columns(on, [first, *others])
    points = _points(first, columns)
    against = (_against(points, side, columns, threshold) for side in others)
    return StudyComparison(columns, first.name, tuple(against))


def _against(
    points: Points, side: ComparedStudy, columns: Sequence[str], threshold: float
) -> Against:
    others = _points(side, columns)
    keys = {key: {name: row.get(name) for name in columns} for key, (row, _) in points.items()}
    new = ({n: row.get(n) for n in columns} for key, (row, _) in others.items() if key not in keys)
    pairs = (
        pair(keys[key], row, others[key][0], threshold, (layers, others[key][1]))
        for key, (row, layers) in points.items()
        if key in others
    )
    missing = (key for k, key in keys.items() if k not in others)
    return Against(side.name, tuple(pairs), tuple(missing), tuple(new))


def _key_columns(on: Sequence[str] | None, sides: Sequence[ComparedStudy]) -> tuple[str, ...]:
    known = list(dict.fromkeys(str(name) for side in sides for name in side.study.frame))
    if on is None:
        frames = [side.study.frame for side in sides]
        alike = {n for n in known if all(n not in f or f[n].nunique(False) < 2 for f in frames)}
        options = [name for name in known if name.startswith((DIMENSION, BUCKET))]
        options += [name for name in known if name.startswith(SWITCH)]
        idle = {name for name in alike if _is_of_compiler(name)}
        idle |= {"arch"} if all(side.one_machine for side in sides) else set()
        return tuple(n for n in (*IDENTITY, *options) if n in known and n not in idle)
    unknown = [name for name in on if name not in known]
    if unknown:
        raise StudyError(f"column {name!r}: no such column{guess(name, known)}" for name in unknown)
    if not on:
        raise StudyError(["give at least one column to find points by"])
    return tuple(dict.fromkeys(on))


def _points(side: ComparedStudy, columns: Sequence[str]) -> Points:
    """Each point with its layers. Raises StudyError where columns do not tell points apart."""

    def key(row: Record) -> tuple[Hashable, ...]:
        return tuple(None if pd.isna(row.get(n)) else row.get(n) for n in columns)

    found: Points = {}
    for row in records(side.study.frame):
        one, _ = found.setdefault(key(row), (row, []))
        if one is not row:
            starts = (DIMENSION, BUCKET, SWITCH, "arch.")
            names = [name for name in one if name in IDENTITY or name.startswith(starts)]
            differ = [name for name in names if str(one[name]) != str(row[name])]
            same = ", ".join(f"{name}={one.get(name)}" for name in columns)
            more = f"; add {' or '.join(differ)} to the columns" if differ else ""
            raise StudyError([f"{side.name}: there are several points with {same}{more}"])
    for row in records(side.study.layers):
        if key(row) in found:
            found[key(row)][1].append(row)
    return found


# By how much figures may get worse: `latency:2%`, and which pairs of points they stop. A gate that
# nothing went through is not open: each says which pairs are worse, and whether any was judged.

USUAL_GATES = "usual"
"""Word for figures that are usually judged, where there are any."""


@dataclass(frozen=True)
class Gate:
    """How much worse a figure may be than in the baseline."""

    figure: str
    share: float
    needed: bool = True
    """Whether it is wrong that nothing has the figure."""

    def judges(self, pair: Pair) -> bool:
        """Whether there is something to judge: a result before, and the figure, or its loss."""
        before, after = self._figures(pair)
        known = pair.verdict == "lost" or not math.isnan(before + after)
        return pair.before["status"] == "ok" and known

    def stops(self, pair: Pair) -> bool:
        """Whether the pair is worse than allowed, or its result is lost."""
        if not self.judges(pair) or pair.verdict == "lost":
            return self.judges(pair)
        before, after = self._figures(pair)
        by = before - after if more_is_better(self.figure) else after - before
        return by > self.share * abs(before) and not math.isclose(before, after)

    def regression_text(self, pair: Pair) -> str:
        """How much worse the pair is."""
        if pair.verdict == "lost":
            return pair.why
        before, after = self._figures(pair)
        by = f"{100 * (after / before - 1):+.2f} %" if before else "from nothing"
        change = f"{with_unit(before, self.figure)} -> {with_unit(after, self.figure)}"
        return f"{self.figure} {change} ({by}; allowed {100 * self.share:.4g} %)"

    def _figures(self, pair: Pair) -> tuple[float, float]:
        return figure_of(pair.before, self.figure), figure_of(pair.after, self.figure)


@dataclass(frozen=True)
class Stopped:
    """A pair that a gate stops."""

    study: str
    pair: Pair
    gate: Gate


@dataclass(frozen=True)
class Judgement:
    """What gates say of a comparison."""

    stopped: tuple[Stopped, ...] = ()
    idle: tuple[str, ...] = ()
    """Where nothing could be judged, in words."""


def gates_of(words: Iterable[str], threshold: float, columns: Sequence[str]) -> tuple[Gate, ...]:
    """The gates that `words` say (`latency:2%`, or `latency` at the `threshold`; `usual`), of
    results with these columns. Raises StudyError with everything that is wrong with them."""
    found: dict[str, Gate] = {}
    wrong: list[str] = []
    for word in words:
        name, colon, share = word.partition(":")
        try:
            usual = word == USUAL_GATES
            figures = JUDGED if usual else (figure_named(name, columns),)
            allowed = share_of(share) if colon else threshold
            found |= {figure: Gate(figure, allowed, not usual) for figure in figures}
        except ValueError as mistake:
            wrong.append(f"{word!r}: {mistake}")
    if wrong:
        raise StudyError(wrong)
    return tuple(found.values())


def share_of(text: str) -> float:
    """`1%`, `1 %` or `0.01`. Raises ValueError."""
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"expected a share such as 2% or 0.02, not {text!r}") from None
    if not 0 <= share < 1:
        raise ValueError(f"expected a share below 100%, such as 2% or 0.02, not {number}")
    return share


def judged(found: StudyComparison, gates: Sequence[Gate]) -> Judgement:
    """What `gates` say of a comparison."""
    stopped = []
    for each in found.against:
        for one in each.pairs:
            own = [Stopped(each.name, one, gate) for gate in gates if gate.stops(one)]
            stopped += own[:1] if one.verdict == "lost" else own  # one stands for all
    idle = [why for each in found.against for why in _idle(found, each, gates)]
    return Judgement(tuple(stopped), tuple(idle))


def _idle(found: StudyComparison, each: Against, gates: Sequence[Gate]) -> Iterator[str]:
    without = [gate for gate in gates if not any(map(gate.judges, each.pairs))]
    if len(without) < len(gates):
        without = [gate for gate in without if gate.needed]
    if not each.pairs:
        reason = found.no_overlap_reason(each)
        yield f"{each.name}: no point of the baseline is in it: {reason}"
    elif without:
        figures = " or ".join(gate.figure for gate in without)
        yield f"{each.name}: no pair has {figures} on both sides"
