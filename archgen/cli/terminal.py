"""How verbs print: tables of one look, sentences below them, and nothing cut off in a pipe."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

_WIDE = 1000
"""Columns of output that no terminal shows, so that nothing of a table is cut off."""


def plain_table(show_footer: bool = False) -> Table:
    """A table without lines but the one below its headings."""
    return Table(box=SIMPLE_HEAD, pad_edge=False, show_footer=show_footer)


def show(tables: Iterable[RenderableType], lines: Iterable[str]) -> None:
    """Print `tables`, then `lines`, each as it stands: what is in brackets is no markup."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDE
    for table in tables:
        console.print(table)
    for line in lines:
        console.print(line, soft_wrap=True)
