"""How verbs print: tables of one look, sentences below them, and nothing cut off in a pipe.

A pipe has all columns, as what reads it may look for any of them; where `COLUMNS` says how wide the
reader is (`COLUMNS=80 archgen results out | less`), tables fit that as they fit a terminal.
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


class PlainTable(Table):
    """A table that may leave columns out where a terminal is too narrow for all of them."""

    spare: tuple[str, ...] = ()
    """Headings of columns that may be left out, those that are missed least first."""

    def fit(self, console: Console) -> list[str]:
        """Leave out what the width of `console` has no room for; gives the headings of it."""
        left_out: list[str] = []
        for heading in self.spare:
            if Measurement.get(console, _any_width(console), self).maximum <= console.width:
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


def show(tables: Iterable[RenderableType], lines: Iterable[str]) -> None:
    """Print `tables`, then `lines`, each as it stands: what is in brackets is no markup."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
        console.width = _WIDE
    left_out: list[str] = []
    for table in tables:
        if isinstance(table, PlainTable):
            left_out += table.fit(console)
        console.print(table)
    if left_out:
        said = f"left out to fit {console.width} columns: {', '.join(dict.fromkeys(left_out))}"
        console.print(f"{said} (a wider terminal or a pipe has all)", soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True)
