"""A table of the page: headings with units, and cells with the value that they sort by.

The one idea: a cell sorts by a number where it has one, so `1.2 k` stands after `900`; what is
missing stands last whichever way a column is sorted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from archgen.report.words import NONE, percent, short, times, whole

Item = TypeVar("Item")


@dataclass(frozen=True)
class Cell:
    """What one cell shows."""

    text: str
    value: str = ""
    """What it sorts by; empty: `text`. Missing numbers have a dash and sort last."""
    link: str = ""
    """Id in the page that it leads to."""
    mark: str = ""
    """Class: `good`, `bad` or nothing."""
    share: float = math.nan
    """Drawn as a bar behind the text, 0 to 1, where it is known."""


@dataclass(frozen=True)
class Heading:
    """One column."""

    text: str
    unit: str = ""
    title: str = ""
    """What it means."""
    number: bool = True
    key: str = ""
    """Name of the column in filters; default: its text, lower case, words joined by `_`."""

    @property
    def name(self) -> str:
        """`latency` of `Latency`, for filters."""
        return self.key or self.text.lower().replace(" ", "_")


@dataclass(frozen=True)
class Sheet:
    """A table: sorted and filtered in the browser."""

    name: str
    """Id in the page."""
    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def example(self) -> str:
        """What could stand in the filter: a comparison with a measured column."""
        counts = ("#", "Group", "Rank", "Results", "Start")
        names = [each.name for each in self.headings if each.number and each.text not in counts]
        return f"words, or {names[0]}>1" if names else "words"


@dataclass(frozen=True)
class Made(Generic[Item]):
    """A column, and how its cells are made of items."""

    heading: Heading
    cell: Callable[[Item], Cell]


def sheet(
    name: str,
    caption: str,
    columns: Iterable[Made[Item]],
    items: Sequence[Item],
) -> Sheet:
    """A table with a row for each of `items`; columns without any value are left out."""
    made = [(column.heading, [column.cell(item) for item in items]) for column in columns]
    kept = [each for each in made if any(cell.text not in ("", NONE) for cell in each[1])]
    rows = tuple(zip(*(cells for _, cells in kept), strict=True))
    return Sheet(name, caption, tuple(heading for heading, _ in kept), rows)


def word(text: str, link: str = "", mark: str = "") -> Cell:
    """A cell of text."""
    return Cell(text, link=link, mark=mark)


def figure(value: float, digits: int = 3) -> Cell:
    """A number."""
    return Cell(short(value, digits), _key(value))


def count(value: float) -> Cell:
    """A whole number."""
    return Cell(whole(value), _key(value))


def part(value: float, bar: bool = False) -> Cell:
    """A share, shown in percent; with a `bar` drawn behind it."""
    return Cell(percent(value), _key(value), share=value if bar else math.nan)


def ratio(value: float) -> Cell:
    """A factor."""
    return Cell(times(value), _key(value))


def _key(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""
