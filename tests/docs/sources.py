"""What a figure of a page may be tied to: results, printed lines, tables, names of the code.

The one idea: an expression in a comment reads like the sentence above it, so these are few names,
and each refuses what is not exactly one thing.

    results("first")    the folder first: columns of its only row; results("first")["chip"] is the
                        row of one machine, and of several rows a column is a list
    csv("around/tornado.csv")    a table in a file of the page, or of the repository, as a frame
    line("words")       the figures of the one line with these words that a block has printed
    table("a", "b")     the table of the page that has these columns, as a frame: a cell that begins
                        with a figure is that figure, 7 % is 0.07
    page("README.md")   another page, for its table(...)
    code("archgen.outcomes.knee:CLOSE")  a value in the code
    names of the page's Python blocks, np, pd
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from figures import Stretch, WrongFigure, stretches

import archgen

_NUMBER = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?!\d)|[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_GROUPED = re.compile(r"(?<=\d) (?=\d{3}\b)")


@dataclass(frozen=True)
class Results:
    """Rows of a folder of results."""

    frame: pd.DataFrame

    def __getitem__(self, arch: str) -> Results:
        return Results(self.frame[self.frame["arch"] == arch])

    def __getattr__(self, column: str) -> Any:
        values = self.frame[column].tolist()
        return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class Page:
    """One page of the documentation."""

    text: str

    def table(self, *columns: str) -> pd.DataFrame:
        """The one table that has these columns."""
        found = [each for each in _tables(self.text) if set(columns) <= set(each.columns)]
        if len(found) != 1:
            raise WrongFigure(f"{len(found)} tables have the columns {', '.join(columns)}")
        return found[0]

    def stretches(self) -> list[Stretch]:
        """Its sentences."""
        return list(stretches(self.text))


def _tables(text: str) -> list[pd.DataFrame]:
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
        body = [row for row in rows[2:] if len(row) == len(rows[0])]
        found.append(pd.DataFrame([map(_cell, row) for row in body], columns=rows[0]))
    return found


def _cell(text: str) -> float | str:
    text = _GROUPED.sub("", text)
    return figures_of(text)[0] if _NUMBER.match(text) else text


def figures_of(text: str) -> list[float]:
    """The figures of a line, 7 % as 0.07."""
    return [
        float(found[0].replace(",", "")) / (100 if re.match(" ?%", text[found.end() :]) else 1)
        for found in _NUMBER.finditer(text)
    ]


def names(
    folder: Path, text: str, printed: Sequence[str], mine: Mapping[str, Any]
) -> dict[str, Any]:
    """The names under which an expression of a page finds what it is tied to: its folder, its text,
    what its blocks have printed, and their names."""
    root = Path(__file__).parents[2]

    def csv(name: str) -> pd.DataFrame:
        return pd.read_csv(folder / name if (folder / name).exists() else root / name)

    def line(words: str) -> list[float]:
        every = (each for output in printed for each in output.splitlines())
        found = {" ".join(each.split()) for each in every if words in " ".join(each.split())}
        if len(found) != 1:
            raise WrongFigure(f"{len(found)} printed lines hold {words!r}")
        return figures_of(found.pop().partition(words)[2])

    def code(place: str) -> Any:
        module, _, path = place.partition(":")
        value: Any = import_module(module)
        for name in path.split("."):
            value = getattr(value, name)
        return value

    return {
        **mine,
        "np": np,
        "pd": pd,
        "results": lambda name: Results(archgen.open_study(folder / name).frame),
        "csv": csv,
        "line": line,
        "table": Page(text).table,
        "page": lambda name: Page((root / name).read_text(encoding="utf-8")),
        "code": code,
    }


def values(expression: str, known: Mapping[str, Any]) -> list[float]:
    """What `expression` is, as a list of figures; raises WrongFigure where it is none."""
    try:
        found = np.ravel(np.asarray(eval(expression, dict(known)), dtype=float))
    except Exception as mistake:
        raise WrongFigure(f"{expression}: {type(mistake).__name__}: {mistake}") from mistake
    if not found.size or not np.isfinite(found).all():
        raise WrongFigure(f"{expression}: is no figure")
    return [float(each) for each in found]
