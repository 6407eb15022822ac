"""Studies side by side: which points got better or worse than in the first, by how much and why.

The one idea: points are joined by what they are. That is said by columns; a machine or a network
that is the same in all but its name is the same, and without the architecture among the columns
two machines are compared network by network.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from statistics import geometric_mean

import pandas as pd

from archgen.comparison.differences import Pair, pair
from archgen.comparison.inputs import NAMING, ComparedStudy, side_of
from archgen.outcomes.frame import Record, records
from archgen.outcomes.points import BUCKET, DIMENSION
from archgen.process.cache import content_hash
from archgen.scheduling import DEFAULT
from archgen.schema.tree import guess
from archgen.studies.design import StudyError
from archgen.studies.results import Study
from simmodel.arch.record import Arch

# Why two studies have no common point: what one is and the other is not, column by column.

_MOST = 4
"""Values of a column that are named."""


def explain_no_overlap(
    before: Sequence[Record], after: Sequence[Record], names: tuple[str, str]
) -> str:
    """What separates the keys `before` and `after` of the studies called `names`."""
    sides = list(zip((before, after), names, strict=True))
    empty = [name for keys, name in sides if not keys]
    if empty:
        return " and ".join(f"{name} has no points" for name in empty)
    said = [
        f"{column} is "
        + " and ".join(f"{_value_list(keys, column)} in {name}" for keys, name in sides)
        for column in separating(before, after)
    ]
    return "; ".join(said) or "each value is in both, but no point has all of them in both"


def separating(before: Sequence[Record], after: Sequence[Record]) -> tuple[str, ...]:
    """Columns of which the sides share no value."""
    columns = dict.fromkeys(name for key in (*before, *after) for name in key)
    return tuple(
        name
        for name in columns
        if not set(_distinct_values(before, name)) & set(_distinct_values(after, name))
    )


def _value_list(keys: Sequence[Record], column: str) -> str:
    found = _distinct_values(keys, column)
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more


def _distinct_values(keys: Sequence[Record], column: str) -> list[str]:
    values = (key.get(column) for key in keys)
    return list(dict.fromkeys("not given" if pd.isna(each) else str(each) for each in values))


Key = tuple[Hashable, ...]
Rows = dict[Key, Record]
"""Points by the values of the columns that join them."""
Nodes = dict[Key, list[Record]]
"""Layers of points, likewise."""
Contents = dict[str, set[str]]
"""Name -> hashes of what it stands for."""
Same = Mapping[str, Mapping[str, str]]
"""Column -> a study's name for something -> that of the baseline."""
IDENTITY = ("arch", "model", "batch", "dtype", *DEFAULT.columns)


@dataclass(frozen=True)
class Against:
    """A study beside the baseline: pairs of points, and the points that only one of them has."""

    name: str
    pairs: tuple[Pair, ...]
    only_before: tuple[Record, ...]
    """Keys of points of the baseline alone."""
    only_after: tuple[Record, ...]
    """Keys of points of this study alone."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Machines and networks of this study -> the names that the same have in the baseline."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each pair: its key, statuses, verdict, each figure before, after and as a
        ratio, the difference of each cause in `change_unit`, and why."""
        return pd.DataFrame([_pair_row(self.name, pair) for pair in self.pairs])

    @property
    def means(self) -> dict[str, float]:
        """Figure -> geometric mean of its ratios over the pairs that have it."""
        ratios: dict[str, list[float]] = {}
        for both in self.pairs:
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
        """The rows of all pairs (`Against.frame`); the column `study` names the study beside the
        baseline."""
        found = [each.frame for each in self.against if each.pairs]
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Those of all studies."""
        return tuple(pair for each in self.against for pair in each.pairs)

    def no_overlap_reason(self, each: Against) -> str:
        """Why a study has no point of the baseline: what is missing on each side."""
        return explain_no_overlap(each.only_before, each.only_after, (self.baseline, each.name))

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
    row["why"] = pair.why
    return row


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
            `arch` where each side is one machine that was named. Without it machines are compared.
        threshold: relative changes up to this count as none.

    Raises:
        StudyError: no such study, machine or column, or columns by which a point has several
            partners.
    """
    if len(studies) < 2:
        raise StudyError(["give at least two studies: the first is what others are compared with"])
    first, *others = (side_of(given, number) for number, given in enumerate(studies, 1))
    chosen = _key_columns(on, [first, *others])
    rows = _by_key(first, chosen, {})
    nodes = _by_point(first.study, chosen, {}, rows)
    return StudyComparison(
        chosen,
        first.name,
        tuple(_against(first, rows, nodes, s, chosen, threshold) for s in others),
    )


def _against(
    first: ComparedStudy,
    rows: Rows,
    nodes: Nodes,
    side: ComparedStudy,
    columns: Sequence[str],
    threshold: float,
) -> Against:
    same = _same(first.study, side.study, columns)
    others = _by_key(side, columns, same)
    layers = _by_point(side.study, columns, same, others)
    pairs = tuple(
        pair(
            _key(row, columns),
            row,
            others[key],
            threshold,
            (nodes.get(key, []), layers.get(key, [])),
        )
        for key, row in rows.items()
        if key in others
    )
    return Against(
        side.name,
        pairs,
        tuple(_key(row, columns) for key, row in rows.items() if key not in others),
        tuple(_key(row, columns) for key, row in others.items() if key not in rows),
        {new: old for names in same.values() for new, old in names.items()},
    )


def _same(first: Study, second: Study, columns: Sequence[str]) -> Same:
    """What `second` calls otherwise than `first`, which does not know it by that name."""
    contents = {"arch": _machines, "model": _networks}
    return {
        name: _other_names(contents[name](first), contents[name](second))
        for name in ("arch", "model")
        if name in columns
    }


def _other_names(ours: Contents, theirs: Contents) -> dict[str, str]:
    free: dict[str, str] = {}
    for name, held in ours.items():
        for content in held if name not in theirs else ():
            free.setdefault(content, name)
    return {
        name: next(free[content] for content in held if content in free)
        for name, held in theirs.items()
        if name not in ours and not held.isdisjoint(free)
    }


def _machines(study: Study) -> Contents:
    return {name: {_machine_hash(arch)} for name, arch in study.by_name.items()}


def _machine_hash(arch: Arch) -> str:
    """A hash of all of a machine but how it is called."""
    return content_hash(arch.model_dump(mode="json", by_alias=True, exclude=set(NAMING)))


def _networks(study: Study) -> Contents:
    """Of each network its contents at all batches; none where an older version has made it."""
    found: dict[str, set[str]] = {}
    for outcome in study.outcomes:
        found.setdefault(str(outcome.row["model"]), set()).update({outcome.network} - {""})
    return found


def _key_columns(on: Sequence[str] | None, sides: Sequence[ComparedStudy]) -> tuple[str, ...]:
    known = list(dict.fromkeys(str(name) for side in sides for name in side.study.frame))
    if on is None:
        options = [name for name in known if name.startswith((DIMENSION, BUCKET, "pass."))]
        machines = all(side.one_machine for side in sides)
        usual = [name for name in IDENTITY if name != "arch" or not machines]
        return tuple(name for name in (*usual, *options) if name in known)
    unknown = [name for name in on if name not in known]
    if unknown:
        raise StudyError(f"column {name!r}: no such column{guess(name, known)}" for name in unknown)
    if not on:
        raise StudyError(["give at least one column to find points by"])
    return tuple(dict.fromkeys(on))


def _key(row: Record, columns: Sequence[str]) -> Record:
    return {name: row.get(name) for name in columns}


def _hashed(row: Record, columns: Sequence[str]) -> tuple[Hashable, ...]:
    return tuple(None if pd.isna(row.get(name)) else row.get(name) for name in columns)


def _by_key(side: ComparedStudy, columns: Sequence[str], same: Same) -> Rows:
    """Each point once: of machines that are equal in all but their names the first stands for
    all."""
    found: Rows = {}
    for row in records(side.study.frame):
        other = found.setdefault(_hashed(_renamed(row, same), columns), row)
        if other is not row and not _equal(side.study, other, row):
            raise StudyError([_ambiguous(other, row, columns, side.name)])
    return found


def _equal(study: Study, one: Record, other: Record) -> bool:
    """Whether two points are one, on machines that are equal in all but their names."""
    machines = [study.by_name.get(str(row["arch"])) for row in (one, other)]
    known = [_machine_hash(machine) for machine in machines if machine is not None]
    names = [name for name in _identifying(one) if not name.startswith("arch")]
    return len(known) == 2 and known[0] == known[1] and not _differing(names, one, other)


def _renamed(row: Record, same: Same) -> Record:
    names = {name: known[row[name]] for name, known in same.items() if row[name] in known}
    return {**row, **names} if names else row


def _ambiguous(one: Record, other: Record, columns: Sequence[str], study: str) -> str:
    differ = _differing(_identifying(one), one, other)
    same = ", ".join(f"{name}={one.get(name)}" for name in columns)
    more = f"; add {' or '.join(differ)} to the columns" if differ else ""
    return f"{study}: there are several points with {same}{more}"


def _identifying(row: Record) -> list[str]:
    starts = (DIMENSION, BUCKET, "pass.", "arch.")
    return [name for name in row if name in IDENTITY or name.startswith(starts)]


def _differing(names: Sequence[str], one: Record, other: Record) -> list[str]:
    return [name for name in names if str(one[name]) != str(other[name])]


def _by_point(study: Study, columns: Sequence[str], same: Same, points: Rows) -> Nodes:
    """The layers of `points`."""
    found: Nodes = {}
    for row in records(study.layers):
        key = _hashed(_renamed(row, same), columns)
        if key in points and points[key]["arch"] == row["arch"]:
            found.setdefault(key, []).append(row)
    return found
