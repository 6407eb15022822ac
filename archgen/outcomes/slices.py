"""Points that differ in one or two axes alone: what a line or a map may be drawn through.

The one idea: a study of several axes is seldom a whole grid; it is a grid of some of them and
single lines along others. A slice holds the points of one network that agree in every axis but
those that it is along, whichever entry of the study file they come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from archgen.outcomes.axes import Axis, Value, workload
from archgen.outcomes.estimated import ESTIMATED, has_figures
from archgen.outcomes.frame import Record

Place = tuple[Value | None, ...]
"""A value on each of some axes."""
Key = tuple[Value | None, ...]
"""What the points of a slice share: their network, and a value on each other axis."""


@dataclass(frozen=True)
class Slice:
    """Points of one network along some axes."""

    network: str
    fixed: tuple[tuple[Axis, Value], ...]
    """The other axes, with what all of its points have there."""
    rows: tuple[Record, ...] = field(repr=False)
    """Each place once; in the order of the first axis that it is along."""

    @property
    def label(self) -> str:
        """`banks 4, dram.bandwidth 16 GB/s`."""
        return ", ".join(named(axis, value) for axis, value in self.fixed)


def named(axis: Axis, value: Value) -> str:
    """`banks 4`; a text speaks for itself."""
    shown = axis.shown(value)
    return shown if isinstance(value, str) and axis.label == "machine" else f"{axis.label} {shown}"


def moved(rows: Sequence[Record], axes: Sequence[Axis]) -> list[list[Axis]]:
    """For each row the axes on which it is not where most rows are."""
    counts = [(axis, Counter(axis.value(row) for row in rows)) for axis in axes]
    pairs = [(axis, count.most_common(1)[0][0]) for axis, count in counts if count]
    return [[axis for axis, value in pairs if axis.value(row) != value] for row in rows]


def slices(rows: Sequence[Record], axes: Sequence[Axis], along: Sequence[Axis]) -> list[Slice]:
    """The slices of `rows` along some of their `axes`, of two places and more; those with most
    places first, and for as many in order of appearance. Of points at one place the first that has
    figures counts, before one that was only estimated one that ran.
    """
    others = [axis for axis in axes if axis not in along]
    found: dict[Key, dict[Place, Record]] = {}
    for row in rows:
        place = tuple(axis.value(row) for axis in along)
        if None not in place:
            key = (workload(row, axes), *(axis.value(row) for axis in others))
            own = found.setdefault(key, {})
            own[place] = max(own.get(place, row), row, key=_known)
    made = [
        Slice(str(key[0]), _fixed(others, key[1:]), _in_order(places, along))
        for key, places in found.items()
        if all(len({at[n] for at in places}) > 1 for n in range(len(along)))
    ]
    return sorted(made, key=lambda each: -len(each.rows))


def _known(row: Record) -> tuple[bool, bool]:
    """How well it is known what a point does."""
    return has_figures(row), row["status"] != ESTIMATED


def _fixed(others: Sequence[Axis], values: Place) -> tuple[tuple[Axis, Value], ...]:
    pairs = zip(others, values, strict=True)
    return tuple((axis, value) for axis, value in pairs if value is not None)


def _in_order(places: Mapping[Place, Record], along: Sequence[Axis]) -> tuple[Record, ...]:
    orders = [{value: index for index, value in enumerate(axis.values)} for axis in along]

    def order(place: Place) -> list[int]:
        return [of[v] for of, v in zip(orders, place, strict=True) if v is not None]

    return tuple(places[place] for place in sorted(places, key=order))
