"""What the points of a picture are called beside their marks: `512, 16` by what was swept.

The one idea: a name says only what tells a point from its neighbours, so it is short enough to
stand beside its mark, and one line of the picture says what its words are.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archgen.outcomes.axes import MACHINE, StudyAxis, axis_setting_text, deviating_axes
from archgen.outcomes.frame import Record, varied
from archgen.outcomes.points import DIMENSION, OPTION
from archgen.plots.style import LETTER, MUTED, folded, legend_columns
from simmodel.arch.units import show_bytes

# What a row of a frame ran on, in words: its machine, and whatever else tells it from others.


def several_types(rows: Sequence[Record]) -> bool:
    """Whether any machine has points of several element types."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(str(row["arch"]), set()).add(str(row["dtype"]))
    return any(len(types) > 1 for types in found.values())


def machine_labels(rows: Sequence[Record]) -> list[str]:
    """What each row ran on: its architecture, and of the rest whatever tells rows apart."""
    names = ["arch", *(["dtype"] if several_types(rows) else []), *varied(rows)]
    fields = _swept(rows)
    return [
        " ".join(
            [*(str(row[name]) for name in names), *(_column_setting(row, name) for name in fields)]
        )
        for row in rows
    ]


def _swept(rows: Sequence[Record]) -> list[str]:
    """Swept fields in which rows of the same architecture differ."""
    fields = [name for name in (rows[0] if rows else {}) if name.startswith("arch.")]
    archs = {row["arch"] for row in rows}
    return [
        name
        for name in fields
        if len({(row["arch"], str(row.get(name))) for row in rows}) > len(archs)
    ]


def _column_setting(row: Record, name: str) -> str:
    """`size=2 MiB` for the column `arch.memories.local.size`."""
    value = row.get(name)
    if value is None or pd.isna(value):
        return ""
    last = name.rsplit(".", 1)[-1]
    if last == "size" and not isinstance(value, str):
        return f"{last}={show_bytes(value)}"
    return f"{last}={value:g}" if isinstance(value, float) else f"{last}={value}"


_MOST_WORDS = 6
_MANY, _FEW = 3, 2
"""Swept fields beyond which names are differences, where no point has more of these than so many.
"""
_USUAL = "base"
"""A point that is in nothing otherwise than most."""
_MOVED = "names: what is not as in most points"
_LETTERS = 26
"""Of a line of a name."""


def on_machines(found: Sequence[StudyAxis], rows: Sequence[Record]) -> list[StudyAxis]:
    """The axes that tell the points of one network apart, where their values are names enough."""
    own = [a for a in found if a.column not in ("batch", MACHINE)]
    own = [a for a in own if not a.column.startswith((DIMENSION, OPTION))]
    named = any(axis.column == MACHINE for axis in found)
    many = len(own) > _MOST_WORDS and not _in_steps(rows, own)
    return [] if named or many else own


def names_of(rows: Sequence[Record], swept: Sequence[StudyAxis]) -> list[str]:
    """What to call points: `512, 16` by the axes swept, else by machine. Where many fields were
    moved one or two at a time, by those that are not as in most points: `clock 2 GHz`."""
    if not swept:
        found = machine_labels(rows)
    elif _in_steps(rows, swept):
        return [
            ",\n".join(folded(_axis_setting(axis, row), _LETTERS) for axis in own) or _USUAL
            for row, own in _moves(rows, swept)
        ]
    else:
        found = [", ".join(_axis_value_text(axis, row) for axis in swept) for row in rows]
    return [folded(each, _LETTERS) for each in found]


def said_of(swept: Sequence[StudyAxis], rows: Sequence[Record], most: int | None = None) -> str:
    """What the words of names are: `names: local.size [KiB], lanes`; without what most points have
    where that takes more than `most` letters."""
    if not swept:
        return ""
    if not _in_steps(rows, swept):
        return f"names: {', '.join(axis.title for axis in swept)}"
    usual = next((row for row, own in _moves(rows, swept) if not own), None)
    if usual is None:
        return _MOVED
    settings = ", ".join(_axis_setting(axis, usual) for axis in swept)
    said = f"{_USUAL}: {settings}; names: what is not so"
    return said if most is None or len(said) <= most else _MOVED


def _moves(
    rows: Sequence[Record], swept: Sequence[StudyAxis]
) -> list[tuple[Record, list[StudyAxis]]]:
    return list(zip(rows, deviating_axes(rows, swept), strict=True))


def _in_steps(rows: Sequence[Record], swept: Sequence[StudyAxis]) -> bool:
    """Whether names by difference are shorter: many fields, and few of them moved together."""
    return len(swept) > _MANY and all(len(own) <= _FEW for own in deviating_axes(rows, swept))


def _axis_setting(axis: StudyAxis, row: Record) -> str:
    value = axis.value(row)
    return "-" if value is None else axis_setting_text(axis, value)


def legend_with_names(figure: Figure, handles: Sequence[Line2D], said: str) -> None:
    """A legend below the panels, under what `said_of` has said."""
    columns = legend_columns(figure, [str(each.get_label()) for each in handles])
    legend = figure.legend(
        handles=list(handles), loc="outside lower left", ncols=columns, alignment="left",
        title=folded(said, int(figure.get_figwidth() / LETTER)) or None, title_fontsize=8,
    )  # fmt: skip
    legend.get_title().set_color(MUTED)


def _axis_value_text(axis: StudyAxis, row: Record) -> str:
    value = axis.value(row)
    if value is None:
        return "-"
    if isinstance(value, str):
        return axis.shown(value)
    return f"{axis.number(value):.6g}"
