"""What `archgen explore` and `archgen sensitivity` have found, read from their folder.

The one idea: a report can be made again at any time, so it reads the tables that these verbs leave
beside the study rather than what they had in hand. What is not there has no section.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

import archgen.report.sheet as sheets
from archgen.outcomes.columns import COLUMNS, column
from archgen.outcomes.frame import Frame, Record, records
from archgen.plots import tornado_figure
from archgen.report.figures import Drawing, drawings_of
from archgen.report.sheet import ComputedColumn, Heading, Sheet

FRONT, ANSWER = "front.csv", "target"
"""A table of machines that no other beats; a folder with the machine that reaches a target."""
LADDERS, TORNADO, PAIRS = "ladders.csv", "tornado.csv", "pairs.csv"
_TEXTS = ("arch", "parameter", "value", "low_value", "own_value", "high_value", "enough", "metric",
          "reason", "first", "first_value", "second", "second_value")  # fmt: skip
_NEEDED = {
    FRONT: ("arch",),
    LADDERS: ("parameter", "value", "own", "change", "area_mm2", "dram_gb_per_s", "gain"),
    TORNADO: ("parameter", "low_value", "high_value", "low", "high", "metric", "enough"),
    PAIRS: ("first", "second", "first_alone", "second_alone", "together", "interaction"),
}
_CAPTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    TORNADO: ("One field changed, all others as they are", ("low", "high")),
    LADDERS: ("Every value of every field", ()),
    PAIRS: ("Two fields changed", ("interaction",)),
}
"""What each table is, and by which changes its rows stand."""
_CHANGES = ("low", "high", "change", "gain", "first_alone", "second_alone", "together",
            "interaction")  # fmt: skip
Card = Callable[[str], str]
"""By name of a machine the id of what the page says of it."""


@dataclass(frozen=True)
class Findings:
    """Tables and figures of a search and of a sensitivity; empty where there was none."""

    front: Sheet | None = None
    answer: str = ""
    """The smallest machine that reaches what was asked for."""
    metric: str = ""
    """What a sensitivity measured."""
    fields: tuple[Sheet, ...] = ()
    drawings: tuple[Drawing, ...] = ()


def findings(folder: Path | None, card: Card) -> Findings:
    """What `folder` holds beside its study; `card` says where the page tells of a machine."""
    if folder is None:
        return Findings()
    front, tornado = _read_table(folder / FRONT), _read_table(folder / TORNADO)
    answers = sorted(path.stem for path in (folder / ANSWER).glob("*.yaml"))
    found = Findings(None if front is None else _front(front, card), answers[0] if answers else "")
    if tornado is None:
        return found
    tables = {name: _read_table(folder / name) for name in _CAPTIONS}
    fields = tuple(
        _sheet(name.removesuffix(".csv"), table.drop(columns="metric", errors="ignore"), *how)
        for name, how in _CAPTIONS.items()
        if (table := tables[name]) is not None
    )
    drawings = tuple(drawings_of([("tornado", tornado_figure(tornado))]))
    return replace(found, metric=str(tornado["metric"].iloc[0]), fields=fields, drawings=drawings)


def _read_table(path: Path) -> Frame | None:
    """A table that has rows and the columns that are needed; None where there is no such thing."""
    try:
        found = pd.read_csv(path, dtype=dict.fromkeys(_TEXTS, "string"))
    except (OSError, ValueError):  # pandas' own errors are of the latter
        return None
    complete = set(_NEEDED[path.name]) <= set(found.columns)
    return found if complete and len(found) else None


def _front(frame: Frame, card: Card) -> Sheet:
    """Machines that no other beats, by the first objective."""
    link = ComputedColumn[Record](
        Heading("Machine", number=False),
        lambda row: sheets.word(str(row["arch"]), card(str(row["arch"]))),
    )
    columns = [link, *(_column(frame, str(name)) for name in frame.columns if name != "arch")]
    return sheets.sheet("front", "Machines that no other one beats", columns, records(frame))


def _sheet(name: str, frame: Frame, caption: str, ranked_by: Sequence[str]) -> Sheet:
    """Every column of a table, rows with the largest of the changes `ranked_by` on top."""
    size = frame[list(ranked_by)].abs().max(axis=1)
    order = size.sort_values(ascending=False, kind="stable")
    columns = [_column(frame, str(each)) for each in frame.columns]
    return sheets.sheet(name, caption, columns, records(frame.loc[order.index]))


def _column(frame: Frame, name: str) -> ComputedColumn[Record]:
    """Text, a change in per cent or a number, under what its column is called."""
    known = column(name, COLUMNS)
    unit = known.unit if known else ""
    text = name if "." in name else name.removesuffix(f"_{unit}").replace("_", " ").capitalize()
    if name in _CHANGES:
        return sheets.values(text, name, key=name, cell=sheets.change)
    if known is not None or pd.api.types.is_float_dtype(frame[name]):
        meaning = known.meaning if known else ""
        return sheets.values(text, name, unit, meaning, name, lambda value: sheets.figure(value, 4))
    return sheets.words(text, lambda row: "" if pd.isna(row[name]) else str(row[name]), key=name)
