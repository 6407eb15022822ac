"""What `archgen explore` and `archgen sensitivity` have found, read from their folder.

The one idea: a report can be made again at any time, so it reads the tables that these verbs leave
beside the study rather than what they had in hand. What is not there has no section.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    figure,
    sheet,
    signed,
    word,
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
    fields, drawings, metric = [], list[Drawing](), ""
    if tornado is not None:
        metric = str(tornado["metric"].iloc[0])
        ladders, pairs = _read_table(folder / LADDERS), _read_table(folder / PAIRS)
        fields = [_tornado(records(tornado), metric)]
        fields += [_ladders(records(ladders), metric)] if ladders is not None else []
        fields += [_pairs(records(pairs), metric)] if pairs is not None else []
        drawings = list(drawn([("tornado", tornado_figure(tornado))]))
    return Findings(
        None if front is None else _front(front, card),
        answers[0] if answers else "",
        metric,
        tuple(fields),
        tuple(drawings),
    )


def _read_table(path: Path) -> Frame | None:
    """A table that has rows and the columns that are needed; None where there is no such thing."""
    try:
        found = pd.read_csv(path, dtype=dict.fromkeys(_TEXTS, "string"))
    except (OSError, ValueError):  # pandas' own errors are of the latter
        return None
    whole = set(_NEEDED[path.name]) <= set(found.columns)
    return found if whole and len(found) else None


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
        heading = Heading(name, number=False, title=f"field {name}")
        return ComputedColumn(heading, lambda row: _text_cell(row, name))
    text = name.removesuffix(f"_{known.unit}").replace("_", " ")
    heading = Heading(text[0].upper() + text[1:], known.unit, known.meaning, key=name)
    return ComputedColumn(heading, lambda row: figure(number(row, name), 4))


def _tornado(rows: Sequence[Record], metric: str) -> Sheet:
    """What each field is worth alone, the one that matters most on top."""
    columns: list[ComputedColumn[Record]] = [
        ComputedColumn(Heading("Field", number=False), lambda row: _text_cell(row, "parameter")),
        ComputedColumn(Heading("Lower", number=False), lambda row: _text_cell(row, "low_value")),
        ComputedColumn(Heading("At the lower", key="at_lower", title=f"change of {metric}"),
             lambda row: _change(row, "low")),
        ComputedColumn(Heading("Own", number=False, title="what the machine has"),
             lambda row: _text_cell(row, "own_value")),
        ComputedColumn(Heading("Higher", number=False), lambda row: _text_cell(row, "high_value")),
        ComputedColumn(Heading("At the higher", key="at_higher", title=f"change of {metric}"),
             lambda row: _change(row, "high")),
        ComputedColumn(Heading("Elasticity", title=f"per cent of {metric} for one of the field"),
             lambda row: figure(number(row, "elasticity"))),
        ComputedColumn(Heading("Per mm²", title=f"what the step up gains of {metric}"),
             lambda row: figure(number(row, "gain_per_mm2"))),
        ComputedColumn(Heading("Per GB/s", title=f"what the step up gains of {metric}"),
             lambda row: figure(number(row, "gain_per_gb_per_s"))),
        ComputedColumn(Heading("Enough", number=False), lambda row: _text_cell(row, "enough")),
    ]  # fmt: skip
    ranked = sorted(rows, key=lambda row: -max(_magnitude(row, "low"), _magnitude(row, "high")))
    return sheet("tornado", "One field changed, all others as they are", columns, ranked)


def _ladders(rows: Sequence[Record], metric: str) -> Sheet:
    """Every step of every field."""
    columns: list[ComputedColumn[Record]] = [
        ComputedColumn(Heading("Field", number=False), lambda row: _text_cell(row, "parameter")),
        ComputedColumn(Heading("Value", number=False), lambda row: _text_cell(row, "value")),
        ComputedColumn(Heading("Own", number=False, title="what the machine has"),
             lambda row: word("yes" if row["own"] else NONE)),
        ComputedColumn(Heading(metric), lambda row: figure(number(row, metric), 4)),
        ComputedColumn(Heading("Change", title="against the machine as it is"),
             lambda row: _change(row, "change")),
        ComputedColumn(Heading("Gain"), lambda row: _change(row, "gain")),
        ComputedColumn(Heading("Area", "mm²"), lambda row: figure(number(row, "area_mm2"))),
        ComputedColumn(Heading("DRAM", "GB/s"), lambda row: figure(number(row, "dram_gb_per_s"))),
        ComputedColumn(Heading("Reason", number=False), lambda row: _text_cell(row, "reason")),
    ]  # fmt: skip
    return sheet("ladders", "Every value of every field", columns, rows)


def _pairs(rows: Sequence[Record], metric: str) -> Sheet:
    """Fields that do more or less together than alone, those that depend most on top."""
    columns: list[ComputedColumn[Record]] = [
        ComputedColumn(Heading("Field", number=False),
             lambda row: _text_cell(row, "first", "first_value")),
        ComputedColumn(Heading("With", number=False),
             lambda row: _text_cell(row, "second", "second_value")),
        ComputedColumn(Heading("Alone", title=f"change of {metric} by the first"),
             lambda row: _change(row, "first_alone")),
        ComputedColumn(Heading("The other alone", title=f"change of {metric} by the second"),
             lambda row: _change(row, "second_alone")),
        ComputedColumn(Heading("Together", title=f"change of {metric}"),
             lambda row: _change(row, "together")),
        ComputedColumn(Heading("Interaction"), lambda row: _change(row, "interaction")),
    ]  # fmt: skip
    ranked = sorted(rows, key=lambda row: -_magnitude(row, "interaction"))
    return sheet("pairs", "Two fields changed", columns, ranked)


def _text(row: Record, name: str) -> str:
    value = row.get(name)
    return NONE if value is None or pd.isna(value) else str(value)


def _text_cell(row: Record, *names: str) -> Cell:
    return word(" ".join(_text(row, name) for name in names))


def _change(row: Record, name: str) -> Cell:
    value = number(row, name)
    return Cell(signed(value), f"{value:.6g}" if value == value else "")


def _magnitude(row: Record, name: str) -> float:
    value = number(row, name)
    return abs(value) if value == value else 0.0
