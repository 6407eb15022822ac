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
from archgen.plots.panels import machine_labels
from archgen.plots.style import LETTER, MUTED, folded, legend_columns

_MOST_WORDS = 6
_LETTERS = 26
"""Of a line of a name."""


def on_machines(found: Sequence[Axis]) -> list[Axis]:
    """The axes that tell the points of one network apart, where their values are names enough."""
    own = [a for a in found if a.column not in ("batch", MACHINE)]
    own = [a for a in own if not a.column.startswith((DIMENSION, OPTION))]
    named = any(axis.column == MACHINE for axis in found)
    return [] if named or len(own) > _MOST_WORDS else own


def names_of(rows: Sequence[Record], swept: Sequence[Axis]) -> list[str]:
    """What to call points: `512, 16` by the axes swept, else by machine."""
    if not swept:
        return [folded(label, _LETTERS) for label in machine_labels(rows)]
    return [folded(", ".join(_word(axis, row) for axis in swept), _LETTERS) for row in rows]


def said_of(swept: Sequence[Axis]) -> str:
    """What the words of names are: `names: local.size [KiB], lanes`."""
    return f"names: {', '.join(axis.title for axis in swept)}" if swept else ""


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
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{axis.number(value):.6g}"
