"""Columns, terms, headings and causes of stalls: the words of results, each defined once.

The one idea: `columns.yaml` and `words.yaml` are read by frames, terminal, report and `archgen
explain` alike. A column's name with `<memory>`, `<cause>` or `<engine>` stands for a family, one
for each memory, cause or engine that the machines of the study have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from archgen.schema.source import read_packaged

_PLACEHOLDER = re.compile(r"<[a-z]+>")


@dataclass(frozen=True)
class Column:
    """A column, or with a `<placeholder>` a family of columns."""

    name: str
    kind: str
    """Type of its values, as `columns.yaml` explains them."""
    unit: str
    meaning: str

    def matches(self, name: str) -> bool:
        """Whether `name` is this column or belongs to this family."""
        # A model's file may call a dimension anything.
        held = ".+" if self.name.endswith("<dimension>") else "[A-Za-z0-9_.-]+"
        pattern = held.join(re.escape(part) for part in _PLACEHOLDER.split(self.name))
        return re.fullmatch(pattern, name) is not None


@dataclass(frozen=True)
class Stall:
    """What a cause means, and what would reduce it."""

    meaning: str
    levers: str


@dataclass(frozen=True)
class BottleneckWords:
    """What may hold a run up."""

    words: str
    """As a cell of a table: `DRAM bandwidth`."""
    phrase: str
    """In a sentence, before "takes 92 % of the time": `DRAM traffic`."""
    fields: list[str]
    """Of a machine, that move it."""


_COLUMNS = read_packaged(Path(__file__).with_name("columns.yaml"))
_WORDS = read_packaged(Path(__file__).with_name("words.yaml"))


def _frame(*parts: str) -> tuple[Column, ...]:
    return tuple(Column(name, *row) for part in parts for name, row in _COLUMNS[part].items())


COLUMNS = _frame("identity", "points")
LAYER_COLUMNS = _frame("identity", "layers")
SPAN_COLUMNS = _frame("identity", "spans")
LEVEL_COLUMNS = _frame("identity", "levels")
COMMAND_COLUMNS = _frame("commands")
MORE_IS_BETTER = frozenset[str](_COLUMNS["more_is_better"])
"""Figures of points of which more is better; of all others less is."""
TERMS: Mapping[str, str] = _WORDS["terms"]
"""Terms: what they mean wherever they stand."""
HEADINGS: Mapping[str, tuple[str, str]] = _WORDS["headings"]
"""Headings of tables, lower case and in one line -> where they stand, and what is below them."""
_MEANINGS = {name: said for names, (_, said) in HEADINGS.items() for name in names.split(" / ")}
STALLS = {cause: Stall(*row) for cause, row in _WORDS["stalls"].items()}
"""Causes for which an engine did not compute."""
LIMITS = {cause: BottleneckWords(*row) for cause, row in _WORDS["limits"].items()}
"""What holds a run up, by values of the column `held_by`."""


def heading_meaning(text: str) -> str:
    """What stands below a heading; empty where the glossary does not have it."""
    return _MEANINGS.get(text.lower(), "")


def column(name: str, columns: Iterable[Column] = COLUMNS) -> Column | None:
    """The definition that `name` falls under, exact names before families; None where undefined."""
    known = tuple(columns)
    exact = next((column for column in known if column.name == name), None)
    return exact or next((column for column in known if column.matches(name)), None)


def ordered(names: Iterable[str], columns: tuple[Column, ...] = COLUMNS) -> list[str]:
    """Defined columns in the order of their definitions, families in order of appearance.

    Columns without `<placeholder>` are always there. Raises KeyError for an undefined name.
    """
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        found = column(name, columns)
        if found is None:
            raise KeyError(f"column {name!r} is not defined in archgen/outcomes/columns.yaml")
        families.setdefault(found.name, []).append(name)
    result: list[str] = []
    for known in columns:
        result += families.get(known.name, [] if "<" in known.name else [known.name])
    return result
