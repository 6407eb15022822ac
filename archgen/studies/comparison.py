"""Two studies side by side: which points got better or worse, by how much and why.

The one idea: points are joined by the columns that say what they are. Fewer columns join more:
without the architecture among them, two machines are compared network by network.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from statistics import geometric_mean

import pandas as pd

from archgen.outcomes.frame import Record, records
from archgen.outcomes.point import BUCKET, DIMENSION
from archgen.scheduling import DEFAULT
from archgen.schema.mistakes import guess
from archgen.studies.design import StudyError
from archgen.studies.differences import Pair, pair
from archgen.studies.results import Study, open_study

IDENTITY = ("arch", "model", "batch", "dtype", *DEFAULT.columns)


@dataclass(frozen=True)
class StudyComparison:
    """Pairs of points of two studies, and the points that only one of them has."""

    on: tuple[str, ...]
    pairs: tuple[Pair, ...]
    only_before: tuple[Record, ...]
    """Keys of points of the first study alone."""
    only_after: tuple[Record, ...]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each pair: its key, statuses, verdict, each figure before, after and as a
        ratio, the difference of each cause in `change_unit`, and why."""
        return pd.DataFrame([_row(pair) for pair in self.pairs])

    @property
    def means(self) -> dict[str, float]:
        """Figure -> geometric mean of its ratios over the pairs that have it."""
        ratios: dict[str, list[float]] = {}
        for both in self.pairs:
            for name, change in both.figures.items():
                if change.before > 0 and change.after > 0:
                    ratios.setdefault(name, []).append(change.ratio)
        return {name: geometric_mean(found) for name, found in ratios.items()}

    @property
    def worse(self) -> tuple[Pair, ...]:
        """Pairs that got worse in something, or lost their result."""
        return tuple(p for p in self.pairs if p.verdict in ("worse", "mixed", "lost"))

    def _repr_html_(self) -> str:
        html: str = self.frame.to_html(index=False)
        return html


def _row(pair: Pair) -> Record:
    row: Record = {
        **pair.key,
        "status_before": pair.before["status"],
        "status_after": pair.after["status"],
        "verdict": pair.verdict,
    }
    for name, change in pair.figures.items():
        row |= {f"{name}_before": change.before, f"{name}_after": change.after}
        row[f"{name}_ratio"] = change.ratio
    row["change_unit"] = pair.unit
    row |= {f"{name}_change": change.difference for name, change in pair.causes.items()}
    row["why"] = pair.why
    return row


def compare(
    before: Study | str | PathLike[str],
    after: Study | str | PathLike[str],
    on: Sequence[str] | None = None,
    threshold: float = 0.01,
) -> StudyComparison:
    """How the points of `after` differ from those of `before`.

    Args:
        before, after: studies, or their folders.
        on: columns that say which points are the same; default: all that identify a point. Without
            `arch` among them, two machines are compared.
        threshold: relative changes up to this count as none.

    Raises:
        StudyError: no such study or column, or columns by which a point has several partners.
    """
    first, second = (s if isinstance(s, Study) else open_study(s) for s in (before, after))
    chosen = _columns(on, first.frame, second.frame)
    rows, others = _by_key(first, chosen, "first"), _by_key(second, chosen, "second")
    one, other = (_by_point(study, chosen) for study in (first, second))
    pairs = tuple(
        pair(_key(row, chosen), row, others[key], threshold, (one.get(key, []), other.get(key, [])))
        for key, row in rows.items()
        if key in others
    )
    return StudyComparison(
        chosen,
        pairs,
        tuple(_key(row, chosen) for key, row in rows.items() if key not in others),
        tuple(_key(row, chosen) for key, row in others.items() if key not in rows),
    )


def _columns(on: Sequence[str] | None, *frames: pd.DataFrame) -> tuple[str, ...]:
    known = list(dict.fromkeys(str(name) for frame in frames for name in frame))
    if on is None:
        options = [name for name in known if name.startswith((DIMENSION, BUCKET, "pass."))]
        return tuple(name for name in (*IDENTITY, *options) if name in known)
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


def _by_key(study: Study, columns: Sequence[str], which: str) -> dict[tuple[Hashable, ...], Record]:
    found: dict[tuple[Hashable, ...], Record] = {}
    for row in records(study.frame):
        other = found.setdefault(_hashed(row, columns), row)
        if other is not row:
            raise StudyError([_ambiguous(other, row, columns, which)])
    return found


def _ambiguous(one: Record, other: Record, columns: Sequence[str], which: str) -> str:
    names = [n for n in one if n in IDENTITY or n.startswith((DIMENSION, BUCKET, "pass.", "arch."))]
    differ = [name for name in names if str(one[name]) != str(other[name])]
    same = ", ".join(f"{name}={one.get(name)}" for name in columns)
    more = f"; add {' or '.join(differ)} to the columns" if differ else ""
    return f"the {which} study has several points with {same}{more}"


def _by_point(study: Study, columns: Sequence[str]) -> dict[tuple[Hashable, ...], list[Record]]:
    found: dict[tuple[Hashable, ...], list[Record]] = {}
    for row in records(study.layers):
        found.setdefault(_hashed(row, columns), []).append(row)
    return found
