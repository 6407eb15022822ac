"""What `archgen explore` and `archgen sensitivity` have found, read from their folder.

The one idea: a report can be made again at any time, so it reads the tables that these verbs leave
beside the study rather than what they had in hand. What is not there has no section.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from archgen.outcomes.columns import COLUMNS, column
from archgen.outcomes.frame import Frame, Record, number, records
from archgen.plots import tornado_figure
from archgen.report.figures import Drawing, drawn
from archgen.report.sheet import (
    NONE,
    Cell,
    ComputedColumn,
    Heading,
    Sheet,
    change,
    figure,
    sheet,
    values,
    word,
    words,
)

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
    metric = str(tornado["metric"].iloc[0])
    sheets = [_tornado(records(tornado), metric)]
    for name, draw in ((LADDERS, _ladders), (PAIRS, _pairs)):
        table = _read_table(folder / name)
        sheets += [] if table is None else [draw(records(table), metric)]
    drawings = tuple(drawn([("tornado", tornado_figure(tornado))]))
    return replace(found, metric=metric, fields=tuple(sheets), drawings=drawings)


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

    def machine(row: Record) -> Cell:
        return word(_text(row, "arch"), card(_text(row, "arch")))

    columns = [ComputedColumn(Heading("Machine", number=False), machine)]
    columns += [_of_front(str(name)) for name in frame.columns if name != "arch"]
    return sheet("front", "Machines that no other one beats", columns, records(frame))


def _of_front(name: str) -> ComputedColumn[Record]:
    known = column(name, COLUMNS)
    if known is None:
        return words(name, _text_of(name), f"field {name}")
    text = name.removesuffix(f"_{known.unit}").replace("_", " ")
    text = text[0].upper() + text[1:]
    return values(text, name, known.unit, known.meaning, name, lambda value: figure(value, 4))


def _tornado(rows: Sequence[Record], metric: str) -> Sheet:
    """What each field is worth alone, the one that matters most on top."""
    of, gain = f"change of {metric}", f"what the step up gains of {metric}"
    columns: list[ComputedColumn[Record]] = [
        words("Field", _text_of("parameter")),
        words("Lower", _text_of("low_value")),
        values("At the lower", "low", title=of, key="at_lower", cell=change),
        words("Own", _text_of("own_value"), "what the machine has"),
        words("Higher", _text_of("high_value")),
        values("At the higher", "high", title=of, key="at_higher", cell=change),
        values("Elasticity", "elasticity", title=f"per cent of {metric} for one of the field"),
        values("Per mm²", "gain_per_mm2", title=gain),
        values("Per GB/s", "gain_per_gb_per_s", title=gain),
        words("Enough", _text_of("enough")),
    ]
    ranked = sorted(rows, key=lambda row: -max(_magnitude(row, "low"), _magnitude(row, "high")))
    return sheet("tornado", "One field changed, all others as they are", columns, ranked)


def _ladders(rows: Sequence[Record], metric: str) -> Sheet:
    """Every step of every field."""
    columns: list[ComputedColumn[Record]] = [
        words("Field", _text_of("parameter")),
        words("Value", _text_of("value")),
        words("Own", lambda row: "yes" if row["own"] else NONE, "what the machine has"),
        values(metric, metric, cell=lambda value: figure(value, 4)),
        values("Change", "change", title="against the machine as it is", cell=change),
        values("Gain", "gain", cell=change),
        values("Area", "area_mm2", "mm²"),
        values("DRAM", "dram_gb_per_s", "GB/s"),
        words("Reason", _text_of("reason")),
    ]
    return sheet("ladders", "Every value of every field", columns, rows)


def _pairs(rows: Sequence[Record], metric: str) -> Sheet:
    """Fields that do more or less together than alone, those that depend most on top."""
    of = f"change of {metric}"
    columns: list[ComputedColumn[Record]] = [
        words("Field", _text_of("first", "first_value")),
        words("With", _text_of("second", "second_value")),
        values("Alone", "first_alone", title=f"{of} by the first", cell=change),
        values("The other alone", "second_alone", title=f"{of} by the second", cell=change),
        values("Together", "together", title=of, cell=change),
        values("Interaction", "interaction", cell=change),
    ]
    ranked = sorted(rows, key=lambda row: -_magnitude(row, "interaction"))
    return sheet("pairs", "Two fields changed", columns, ranked)


def _text(row: Record, name: str) -> str:
    value = row.get(name)
    return NONE if value is None or pd.isna(value) else str(value)


def _text_of(*names: str) -> Callable[[Record], str]:
    return lambda row: " ".join(_text(row, name) for name in names)


def _magnitude(row: Record, name: str) -> float:
    value = number(row, name)
    return abs(value) if value == value else 0.0
