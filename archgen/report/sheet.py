"""A table of the page: headings with units, and cells with the value that they sort by.

The one idea: a cell sorts by a number where it has one, so `1.2 k` stands after `900`; what is
missing stands last whichever way a column is sorted.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from markupsafe import Markup, escape

from archgen.outcomes.columns import heading_meaning
from archgen.outcomes.figures import unit_factors

# Figures as text: as many digits as a reader can use, with the unit.

NONE = "–"
GAP = "\u00a0"
"""Between a number and its unit, so that lines do not break there."""
_SMALL = 0.05


def short(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, thousands separated; a dash for what is missing."""
    if not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    before = math.floor(math.log10(abs(value))) + 1
    if -3 < before < digits + 8:
        return f"{value:,.{max(0, digits - before)}f}"
    return f"{value:.{digits}g}"


def plain(value: float) -> str:
    """`value` with four significant digits, whole from ten thousand on: never as a power."""
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def integer_text(value: float) -> str:
    """A whole number, thousands separated."""
    return f"{value:,.0f}" if math.isfinite(value) else NONE


def percent(share: float) -> str:
    """`41 %`, with a digit behind the point below ten."""
    if not math.isfinite(share):
        return NONE
    value = 100 * share
    if 0 < value < _SMALL:
        return f"<{GAP}0.1{GAP}%"
    text = f"{value:.1f}" if _SMALL <= abs(value) < 9.95 else f"{value:.0f}"
    return f"{text.replace('-', '−')}{GAP}%"


def signed(share: float) -> str:
    """A change: `+12 %`, `±0 %` for what is none, a dash for what is missing."""
    if not math.isfinite(share):
        return NONE
    if abs(100 * share) < _SMALL:
        return f"±0{GAP}%"
    return f"+{percent(share)}" if share > 0 else percent(share)


def times(factor: float) -> str:
    """`1.84×`."""
    return f"{short(factor)}×" if math.isfinite(factor) else NONE


def listed(names: Sequence[str], most: int = 6) -> str:
    """`a, b and c`; of more than `most` names the first, and how many more."""
    found = list(names)
    if len(found) > most:
        found = [*found[: most - 1], f"{len(found) - most + 1} more"]
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} and {found[-1]}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 point`, `3 points`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def geometric_mean(values: Sequence[float]) -> float:
    """NaN for no values, or for one that is not positive."""
    positive = all(value > 0 for value in values)
    return statistics.geometric_mean(values) if values and positive else math.nan


Item = TypeVar("Item")
_LONG = 28
"""Letters of a cell that may be broken."""


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

    def html(self, heading: Heading) -> Markup:
        """Its `<td>` below `heading`."""
        shared = self.share == self.share
        kinds = [
            "n" if heading.number else "", "bar" if shared else "", self.mark,
            "long" if len(self.text) > _LONG else "",
        ]  # fmt: skip
        text = escape(self.text)
        if self.link:
            text = Markup(f'<a href="#{escape(self.link)}">{text}</a>')
        said = f' class="{named}"' if (named := " ".join(filter(None, kinds))) else ""
        if self.value and self.value != self.text:
            said += f' data-v="{escape(self.value)}"'
        if shared:
            said += f' style="--share: {100 * min(max(self.share, 0.0), 1.0):.1f}%"'
        return Markup(f"<td{said}>{text}</td>")


@dataclass(frozen=True)
class Heading:
    """One column."""

    text: str
    unit: str = ""
    title: str = ""
    """What it means here; empty: what the glossary says."""
    number: bool = True
    key: str = ""
    """Name of the column in filters; default: its text, lower case, words joined by `_`."""

    said: str = ""
    """Unit that stands in the cells instead of the heading, and in which they sort: `KiB`, `%`."""

    @property
    def name(self) -> str:
        """`latency` of `Latency`, for filters."""
        return self.key or self.text.lower().replace(" ", "_")

    @property
    def units(self) -> str:
        """As JSON, what an amount in a filter may be in, by what one is of what cells sort by; the
        first is that of a bare number. Empty for plain numbers."""
        unit = self.unit or self.said
        if not unit:
            return ""
        known = {"%": 0.01} if unit == "%" else unit_factors(unit)
        return json.dumps(known, ensure_ascii=False, separators=(",", ":"))


ABOUT = "≈"
"""What stands before a figure that was only estimated."""


@dataclass(frozen=True)
class Sheet:
    """A table: sorted and filtered in the browser."""

    name: str
    """Id in the page."""
    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def body(self) -> Markup:
        """Its rows as HTML."""
        heads = self.headings
        rows = ("".join(map(Cell.html, row, heads)) for row in self.rows)
        return Markup("\n".join(f"<tr>{row}</tr>" for row in rows))

    @property
    def example(self) -> str:
        """What could stand in the filter: a comparison with a measured column, as its cells
        read."""
        counts = ("#", "Group", "Rank", "Results", "Start")
        for place, heading in enumerate(self.headings):
            known = [row[place] for row in self.rows if row[place].value]
            if heading.number and heading.text not in counts and known:
                middle = sorted(known, key=lambda cell: float(cell.value))[len(known) // 2]
                amount = "".join(middle.text.lstrip(ABOUT).split())
                return f"words, or {heading.name}>={amount}{heading.unit}"
        return "words"


@dataclass(frozen=True)
class ComputedColumn(Generic[Item]):
    """A column, and how its cells are made of items."""

    heading: Heading
    cell: Callable[[Item], Cell]


def words(text: str, of: Callable[[Item], str], key: str = "") -> ComputedColumn[Item]:
    """A column of text."""
    heading = Heading(text, number=False, key=key)
    return ComputedColumn(heading, lambda item: word(of(item) or NONE))


def values(
    text: str, of: Callable[[Item], float] | str, unit: str = "", title: str = "", key: str = "",
    cell: Callable[[float], Cell] | None = None,
) -> ComputedColumn[Item]:  # fmt: skip
    """A column of numbers: what `of` gives, or the column of that name; as figures, or as `cell`
    shows them."""
    show = cell or figure

    def shown(item: Any) -> Cell:
        value = item.get(of) if isinstance(of, str) else of(item)
        return show(math.nan if value is None or value != value else float(value))

    return ComputedColumn(Heading(text, unit, title, key=key), shown)


def sheet(
    name: str, caption: str, columns: Iterable[ComputedColumn[Item]], items: Sequence[Item]
) -> Sheet:
    """A table with a row for each of `items`; columns without any value are left out."""
    every = [(column.heading, [column.cell(item) for item in items]) for column in columns]
    used = [each for each in every if any(cell.text not in ("", NONE) for cell in each[1])]
    rows = tuple(zip(*(cells for _, cells in used), strict=True))
    headings = (
        replace(h, title=h.title or heading_meaning(h.text), said=h.said or _common_unit_sign(own))
        for h, own in used
    )
    return Sheet(name, caption, tuple(headings), rows)


def _common_unit_sign(cells: Sequence[Cell]) -> str:
    """What shares and factors end with."""
    ends = {cell.text[-1] for cell in cells if cell.value and cell.text != NONE}
    return next((sign for sign in ("%", "×") if ends == {sign}), "")


def word(text: str, link: str = "", mark: str = "") -> Cell:
    """A cell of text."""
    return Cell(text, link=link, mark=mark)


def figure(value: float, digits: int = 3) -> Cell:
    """A number."""
    return Cell(short(value, digits), _key(value))


def count(value: float) -> Cell:
    """A whole number."""
    return Cell(integer_text(value), _key(value))


def bar(value: float) -> Cell:
    """A share, shown in percent with a bar drawn behind it."""
    return Cell(percent(value), _key(value), share=value)


def change(value: float) -> Cell:
    """A share that something grows by."""
    return Cell(signed(value), _key(value))


def ratio(value: float) -> Cell:
    """A factor."""
    return Cell(times(value), _key(value))


def _key(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""
