"""What the points of a picture are called beside their marks: `512, 16` by what was swept.

The one idea: a name says only what tells a point from its neighbours, so it is short enough to
stand beside its mark, and one line of the picture says what its words are.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.axes import MACHINE, Axis
from archgen.outcomes.frame import Record
from archgen.outcomes.point import DIMENSION, OPTION
from archgen.outcomes.slices import moved, named
from archgen.plots.rows import machine_labels
from archgen.plots.style import LETTER, MUTED, folded, legend_columns

_MOST_WORDS = 6
_MANY, _FEW = 3, 2
"""Swept fields beyond which names are differences, where no point has more of these than so many.
"""
_USUAL = "base"
"""A point that is in nothing otherwise than most."""
_MOVED = "names: what is not as in most points"
_LETTERS = 26
"""Of a line of a name."""


def on_machines(found: Sequence[Axis], rows: Sequence[Record]) -> list[Axis]:
    """The axes that tell the points of one network apart, where their values are names enough."""
    own = [a for a in found if a.column not in ("batch", MACHINE)]
    own = [a for a in own if not a.column.startswith((DIMENSION, OPTION))]
    named = any(axis.column == MACHINE for axis in found)
    many = len(own) > _MOST_WORDS and not _in_steps(rows, own)
    return [] if named or many else own


def names_of(rows: Sequence[Record], swept: Sequence[Axis]) -> list[str]:
    """What to call points: `512, 16` by the axes swept, else by machine. Where many fields were
    moved one or two at a time, by those that are not as in most points: `clock 2 GHz`."""
    if not swept:
        found = machine_labels(rows)
    elif _in_steps(rows, swept):
        return [
            ",\n".join(folded(_setting(axis, row), _LETTERS) for axis in own) or _USUAL
            for row, own in _moves(rows, swept)
        ]
    else:
        found = [", ".join(_word(axis, row) for axis in swept) for row in rows]
    return [folded(each, _LETTERS) for each in found]


def said_of(swept: Sequence[Axis], rows: Sequence[Record], most: int | None = None) -> str:
    """What the words of names are: `names: local.size [KiB], lanes`; without what most points have
    where that takes more than `most` letters."""
    if not swept:
        return ""
    if not _in_steps(rows, swept):
        return f"names: {', '.join(axis.title for axis in swept)}"
    usual = next((row for row, own in _moves(rows, swept) if not own), None)
    if usual is None:
        return _MOVED
    said = f"{_USUAL}: {', '.join(_setting(axis, usual) for axis in swept)}; names: what is not so"
    return said if most is None or len(said) <= most else _MOVED


def _moves(rows: Sequence[Record], swept: Sequence[Axis]) -> list[tuple[Record, list[Axis]]]:
    return list(zip(rows, moved(rows, swept), strict=True))


def _in_steps(rows: Sequence[Record], swept: Sequence[Axis]) -> bool:
    """Whether names by difference are shorter: many fields, and few of them moved together."""
    return len(swept) > _MANY and all(len(own) <= _FEW for own in moved(rows, swept))


def _setting(axis: Axis, row: Record) -> str:
    value = axis.value(row)
    return "-" if value is None else named(axis, value)


def legend_with_names(figure: Figure, handles: Sequence[Line2D], said: str) -> None:
    """A legend below the panels, under what `said_of` has said."""
    columns = legend_columns(figure, [str(each.get_label()) for each in handles])
    legend = figure.legend(
        handles=list(handles), loc="outside lower left", ncols=columns, alignment="left",
        title=folded(said, int(figure.get_figwidth() / LETTER)) or None, title_fontsize=8,
    )  # fmt: skip
    legend.get_title().set_color(MUTED)


def _word(axis: Axis, row: Record) -> str:
    value = axis.value(row)
    if value is None:
        return "-"
    if isinstance(value, str):
        return axis.shown(value)
    return f"{axis.number(value):.6g}"
