"""Choosing among finished points, as frames: the best, those that nothing beats, tables over axes.

The one idea: columns are named as in conditions (`archgen.studies.query`), and only results count:
points that ran or were estimated, and whose outputs were not found wrong. They are chosen like with
like, and of equal ones those that ran (`archgen.outcomes.estimated`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from archgen.outcomes import fronts
from archgen.outcomes.axes import Axis, axes, workload
from archgen.outcomes.columns import MORE_IS_BETTER
from archgen.outcomes.estimated import ESTIMATED, by_merit, has_figures, like_with_like, runs
from archgen.outcomes.frame import Frame, is_wrong, number, records
from archgen.studies.design import StudyError
from archgen.studies.query import known_columns, known_numbers
from simmodel.arch import Arch

_SHOWN = 4
"""Values of an axis, and networks, that a few words name."""


def results(frame: Frame) -> Frame:
    """The points with figures, but for those whose outputs are wrong."""
    good = [has_figures(row) and not is_wrong(row) for row in records(frame)]
    return frame[good]


def best(frame: Frame, by: str, count: int = 1, ascending: bool | None = None) -> Frame:
    """The best results of each network by a column, the best first; `ascending`: whether that is
    the least, where not as its column says."""
    (name,) = known_numbers(frame, [by])
    if count < 1:
        raise StudyError([f"n: expected at least 1, not {count}"])
    rising = name not in MORE_IS_BETTER if ascending is None else ascending
    rows = _compared(frame, [name])
    loads = [workload(row) for row in records(rows)]
    places = {load: place for place, load in enumerate(dict.fromkeys(loads))}
    placed = rows.assign(_load=[places[load] for load in loads])
    ordered = by_merit(placed, name, rising)
    found = ordered.groupby("_load", sort=False).head(count)
    return frame.loc[found.sort_values("_load", kind="stable").index]


def _compared(frame: Frame, names: Sequence[str]) -> Frame:
    """The results with all of some columns, as they are compared: what estimates do not know, of
    runs."""
    like = like_with_like(frame)
    return results(like if {*names} <= {*like} else runs(frame)).dropna(subset=names)


def pareto(frame: Frame, columns: Sequence[str]) -> Frame:
    """The results of each network that no other beats in one column without losing in another."""
    names = known_numbers(frame, columns)
    rows = _compared(frame, names)
    signs = [-1.0 if name in MORE_IS_BETTER else 1.0 for name in names]
    own: dict[str, list[tuple[int, list[float]]]] = {}
    for place, row in enumerate(records(rows)):
        costs = [sign * number(row, name) for sign, name in zip(signs, names, strict=True)]
        own.setdefault(workload(row), []).append((place, costs))
    kept = [
        members[index][0]
        for members in own.values()
        for index in fronts.front([costs for _, costs in members])
    ]
    return frame.loc[rows.index[sorted(kept)]]


def pivot(frame: Frame, index: str, columns: str, values: str) -> Frame:
    """`values`, as results are compared, with a row for each value of `index` and a column for each
    of `columns`; the best where several results share a place."""
    names = [*known_columns(frame, (index, columns)), *known_numbers(frame, [values])]
    if len({*names}) < len(names):
        raise StudyError([f"index, columns and values: three columns, not {', '.join(names)}"])
    how: Literal["max", "min"] = "max" if names[2] in MORE_IS_BETTER else "min"
    rows = _compared(frame, names)
    return rows.pivot_table(index=names[0], columns=names[1], values=names[2], aggfunc=how)


def described(frame: Frame, archs: Mapping[str, Arch], title: str) -> str:
    """A study on one screen: how many points, what was swept, and the best of each network."""
    rows = records(frame)
    if not rows:
        return f"{title}: no points"
    every = axes(frame, archs)
    counts = frame["status"].value_counts()
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    networks = list(dict.fromkeys(workload(row, every) for row in rows))
    lines = [f"{title}: {len(rows)} points ({said}), {frame['arch'].nunique()} machines"]
    lines.append(f"  networks  {_few(networks)}")
    lines += [f"  swept     {axis.label}: {_values(axis)}" for axis in every]
    quickest = best(frame, "latency_ms") if "latency_ms" in frame else frame.iloc[:0]
    for row in records(quickest)[:_SHOWN]:
        said = " as estimated" if row["status"] == ESTIMATED else ""
        time = f"{row['latency_ms']:.4g} ms{said}"
        lines.append(f"  quickest  {workload(row)}: {time} on {row['arch']}")
    lines.append("  .frame, .layers, .spans, .levels; .filter, .query, .best, .pareto, .pivot")
    return "\n".join(lines)


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _values(axis: Axis) -> str:
    """`32 KiB to 1 MiB (6)`; of an axis without an order its first values."""
    shown = [axis.shown(value) for value in axis.values]
    if not axis.ordered:
        return _few(shown)
    return ", ".join(shown) if len(shown) <= _SHOWN else f"{shown[0]} to {shown[-1]} ({len(shown)})"
