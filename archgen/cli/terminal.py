"""How verbs print and end: tables of one look, sentences below them, and one code for each end.

Tables leave out what they can until they fit a terminal, or what `COLUMNS` says
(`COLUMNS=80 archgen results out | less`). In a pipe or a file that says nothing they are whole, as
what reads them may look for words.
Each gate that was asked for (`--fail-if-worse`, `--budget`) has an exit code of its own, so that a
pipeline knows what stopped it; of several the first of `ExitCode` is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table

_WIDE = 1000
"""Columns of output that no terminal shows, so that nothing of a table is cut off."""
_ALL = 400
"""A width that has room for all columns of most tables."""


class PlainTable(Table):
    """A table that may leave columns out where a terminal is too narrow for all of them."""

    spare: tuple[str, ...] = ()
    """Headings of columns that may be left out, those that are missed least first."""

    def fit(self, console: Console, width: int) -> list[str]:
        """Leave out what `width` columns have no room for; gives the headings of it."""
        left_out: list[str] = []
        wide = console.options.update(width=_WIDE, max_width=_WIDE)
        for heading in self.spare:
            if Measurement.get(console, wide, self).maximum <= width:
                break
            kept = [column for column in self.columns if column.header != heading]
            if len(kept) < len(self.columns):
                # Paddings go by the place that a column was added at.
                self.columns = [replace(each, _index=place) for place, each in enumerate(kept)]
                left_out.append(heading)
        return left_out


def plain_table(
    *headings: str, rows: Iterable[Iterable[RenderableType]] = (), spare: tuple[str, ...] = (),
    caption: str | None = None, padding: tuple[int, int, int, int] = (0, 1, 0, 1),
) -> PlainTable:  # fmt: skip
    """A table without lines but the one below its headings, of which those that begin with `>`
    stand above numbers; `spare` may be left out, what is missed least first."""
    table = PlainTable(box=SIMPLE_HEAD, pad_edge=False, padding=padding, caption=caption)
    table.spare = spare
    for heading in headings:
        right = heading.startswith(">")
        side: Literal["left", "right"] = "right" if right else "left"
        table.add_column(heading[right:], justify=side, overflow="fold", no_wrap=right)
    for row in rows:
        table.add_row(*row)
    return table


def show(tables: Iterable[RenderableType], lines: Iterable[str] = ()) -> None:
    """Print `tables`, then `lines`, each as it stands: what is in brackets is no markup."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
        console.width = _WIDE
    left_out: list[str] = []
    for table in tables:
        if isinstance(table, PlainTable):
            left_out += table.fit(console, console.width)
        console.print(table)
    if left_out:
        names = ", ".join(dict.fromkeys(" ".join(name.split()) for name in left_out))
        said = f"hidden to fit {console.width} characters: {names}; COLUMNS={_ALL} shows all"
        console.print(said, soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True)


class ExitCode(IntEnum):
    """How a verb ends."""

    GOOD = 0
    """There is an answer, which may be that it does not fit, and all gates asked for are passed."""
    BAD = 1
    """No answer or a bad one: a point failed, outputs are wrong, nobody could build a machine
    (`check`, `lint`), or an error of archgen's own."""
    WRONG_INPUT = 2
    """Files or options are wrong; nothing was run."""
    WORSE = 3
    """`--fail-if-worse`: a point got worse than allowed, or lost its result."""
    BROKEN_BUDGET = 4
    """`--budget`: a figure is beyond its limit, or missing."""
    NOTHING_JUDGED = 5
    """There was nothing to judge: studies that are compared have no common point, a budget is about
    no point, or points are not finished."""
    UNVERIFIED = 6
    """`--budget`: a figure is within its limit, but the outputs behind it were not checked, or it
    is of a point that was only estimated."""
    INTERRUPTED = 130
    """Ctrl-C; what is finished is saved, and the same command goes on."""
