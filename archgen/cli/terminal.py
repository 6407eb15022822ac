"""How verbs print: tables of one look, sentences below them, and nothing cut off in a pipe.

Tables leave out what they can until they fit: a terminal, what `COLUMNS` says
(`COLUMNS=80 archgen results out | less`), or in a pipe that says nothing a width that log files and
pages have. There cells stay whole, however wide a table is, as what reads them may look for words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table

_WIDE = 1000
"""Columns of output that no terminal shows, so that nothing of a table is cut off."""
_ALL = 400
"""A width that has room for all columns of most tables."""
_PIPE = 100
"""Columns of output of a pipe that does not say how wide its reader is."""
NARROW = 80
"""The same of tables whose first columns say most: what a mail or a log of a pipeline shows."""


class PlainTable(Table):
    """A table that may leave columns out where a terminal is too narrow for all of them."""

    spare: tuple[str, ...] = ()
    """Headings of columns that may be left out, those that are missed least first."""

    def fit(self, console: Console, width: int) -> list[str]:
        """Leave out what `width` columns have no room for; gives the headings of it."""
        left_out: list[str] = []
        for heading in self.spare:
            if Measurement.get(console, _any_width(console), self).maximum <= width:
                break
            if any(column.header == heading for column in self.columns):
                kept = [each for each in self.columns if each.header != heading]
                # Paddings go by the place that a column was added at.
                self.columns = [replace(each, _index=place) for place, each in enumerate(kept)]
                left_out.append(heading)
        return left_out


def _any_width(console: Console) -> ConsoleOptions:
    return console.options.update(width=_WIDE, max_width=_WIDE)


def plain_table(show_footer: bool = False) -> PlainTable:
    """A table without lines but the one below its headings."""
    return PlainTable(box=SIMPLE_HEAD, pad_edge=False, show_footer=show_footer)


def show(tables: Iterable[RenderableType], lines: Iterable[str], pipe: int = _PIPE) -> None:
    """Print `tables`, then `lines`, each as it stands: what is in brackets is no markup. `pipe`:
    the width of one that does not say how wide its reader is."""
    console = Console(highlight=False, markup=False, emoji=False)
    width = console.width
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
        console.width, width = _WIDE, pipe
    left_out: list[str] = []
    for table in tables:
        if isinstance(table, PlainTable):
            left_out += table.fit(console, width)
        console.print(table)
    if left_out:
        names = ", ".join(dict.fromkeys(" ".join(name.split()) for name in left_out))
        said = f"left out to fit {width} columns: {names}"
        console.print(f"{said} (a wider terminal has all, and COLUMNS={_ALL})", soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True)
