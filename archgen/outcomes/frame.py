"""Outcomes to DataFrames, with the columns and types that `archgen.outcomes.columns` defines.

The one idea: every value may be missing (a point that does not fit has no latency), so whole
numbers and truth values use pandas' nullable types, and a frame has the same types whether it was
just computed or read back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from archgen.outcomes import columns as definitions
from archgen.outcomes.columns import Column, column, ordered
from archgen.outcomes.points import BUCKET, DIMENSION, Outcome, Row, Scalar
from archgen.process.files import write_atomically
from archgen.scheduling import DEFAULT
from simmodel.arch.record import Arch

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Frame = pd.DataFrame
Record = dict[str, Any]
"""One row of a frame, by column."""
_BATCH = f"{DIMENSION}batch"
_DTYPES = {"text": "string", "whole": "Int64", "real": "float64", "truth": "boolean"}


def results_frame(outcomes: Iterable[Outcome]) -> pd.DataFrame:
    """One row for each outcome, in their order; columns are `COLUMNS`."""
    return typed_frame([outcome.row for outcome in outcomes], definitions.COLUMNS)


def layers_frame(outcomes: Iterable[Outcome]) -> pd.DataFrame:
    """One row for each layer of each outcome; columns are `LAYER_COLUMNS`."""
    rows = [layer for outcome in outcomes for layer in outcome.layers]
    return typed_frame(rows, definitions.LAYER_COLUMNS)


def spans_frame(outcomes: Iterable[Outcome]) -> pd.DataFrame:
    """When each engine worked for what, of each outcome; `SPAN_COLUMNS`."""
    return _tables(outcomes, "spans", definitions.SPAN_COLUMNS)


def levels_frame(outcomes: Iterable[Outcome]) -> pd.DataFrame:
    """Occupancy, bandwidth and busy engines over time; `LEVEL_COLUMNS`."""
    return _tables(outcomes, "levels", definitions.LEVEL_COLUMNS)


def _tables(outcomes: Iterable[Outcome], name: str, columns: tuple[Column, ...]) -> pd.DataFrame:
    found = [read_table(o.tables[name]) for o in outcomes if name in o.tables]
    return pd.concat(found, ignore_index=True) if found else typed_frame([], columns)


def table_bytes(frame: Frame) -> bytes:
    """`frame` as the content of a Parquet file."""
    content = BytesIO()
    frame.to_parquet(content, index=False)
    return content.getvalue()


def read_table(content: bytes | Path) -> Frame:
    """The frame in `content`, or in the file that it names."""
    return pd.read_parquet(BytesIO(content) if isinstance(content, bytes) else content)


def with_identity(frame: Frame, row: Row, columns: tuple[Column, ...]) -> Frame:
    """`frame` with the values of `row` in front of each of its rows."""
    # Arrays rather than frames joined: this is done for each point, and pandas' joins cost more
    # than the run of a small network.
    arrays = {name: frame[name].array for name in map(str, frame)}
    for name, value in row.items():
        arrays[name] = typed([value], name, columns).array.repeat(len(frame))
    return pd.DataFrame({name: arrays[name] for name in ordered(arrays, columns)}, copy=False)


def typed_frame(rows: Sequence[Row], columns: tuple[Column, ...]) -> pd.DataFrame:
    """`rows` as a frame whose columns are defined in `columns`; KeyError for one that is not."""
    names = ordered([name for row in rows for name in row], columns)
    arrays = {name: typed([row.get(name) for row in rows], name, columns) for name in names}
    return pd.DataFrame(arrays, columns=names)


def typed(values: Sequence[Scalar], name: str, columns: tuple[Column, ...]) -> pd.Series:
    """`values` as the column `name`; KeyError for one that is not defined."""
    found = column(name, columns)
    if found is None:
        raise KeyError(name)
    kind = found.kind
    if kind != "any":
        return pd.Series(values, dtype=_DTYPES[kind])
    known = [None if pd.isna(value) else value for value in values]
    if all(v is None or (isinstance(v, int | float) and not isinstance(v, bool)) for v in known):
        return pd.Series(known, dtype="float64")
    return pd.Series([None if v is None else str(v) for v in known], dtype="string")


def save_frame(frame: pd.DataFrame, folder: Path) -> None:
    """`results.parquet` and `results.csv` in `folder`, each written whole."""
    for name, write in (("results.parquet", frame.to_parquet), ("results.csv", frame.to_csv)):
        write_atomically(folder / name, partial(write, index=False))


def records(frame: Frame) -> list[Record]:
    """The rows of `frame`; what is missing in a column of pandas' own types is None."""
    columns = {
        str(name): [None if value is pd.NA else value for value in column.tolist()]
        if column.hasnans
        else column.tolist()
        for name, column in frame.items()
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """`items` with the same key together, in order of appearance."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def missing(value: object) -> bool:
    """Whether a cell of a record holds nothing: `pandas.isna`, many times as fast."""
    return value is None or value is pd.NA or value != value


def number(row: Mapping[str, Any], column: str, default: float = math.nan) -> float:
    """The value of a column of numbers, `default` where it has none."""
    value: Any = row.get(column)
    return default if missing(value) else float(value)


def matrix_cycles(layer: Mapping[str, Any], arch: Arch) -> float:
    """Cycles in which the matrix engines of all cores worked for a row of the frame of layers."""
    return sum(number(layer, f"busy_{unit}_cycles", 0.0) for unit in arrays_of(layer, arch))


def arrays_of(layer: Mapping[str, Any], arch: Arch) -> list[str]:
    """Matrix engines of a core that worked for such a row, with those that are like them."""
    alike = map(arch.units, arch.arrays)
    busy = (
        units
        for units in alike
        if any(number(layer, f"busy_{unit}_cycles", 0.0) > 0 for unit in units)
    )
    return [unit for units in busy for unit in units]


def matrix_use(layer: Mapping[str, Any], arch: Arch) -> float:
    """Share of these that its products take at the peak of their types; NaN where it has none."""
    busy = matrix_cycles(layer, arch)
    return number(layer, "products_cycles") / busy if busy > 0 else math.nan


def dimensions(rows: Sequence[Record]) -> list[str]:
    """The columns of `rows` that are sizes of free input dimensions, without one that only repeats
    the batch."""
    names = [n for n in dict.fromkeys(chain.from_iterable(rows)) if n.startswith(DIMENSION)]
    said = ((row.get(_BATCH), row.get("batch")) for row in rows if _BATCH in names)
    repeated = all(missing(size) or size == batch for size, batch in said)
    return [name for name in names if not (name == _BATCH and repeated)]


def size_heading(name: str) -> str:
    """What a table calls the column of a size: the dimension's name, where no other is called
    that."""
    short = name.removeprefix(DIMENSION)
    return short if column(short) is None else name


def sizes(row: Record) -> dict[str, int]:
    """Sizes of free input dimensions by name, those that the row's network has."""
    held = {name: row[name] for name in row if name.startswith(DIMENSION)}
    known = {name: int(size) for name, size in held.items() if not missing(size)}
    if known.get(_BATCH) == row.get("batch"):
        known.pop(_BATCH, None)
    return {name.removeprefix(DIMENSION): size for name, size in known.items()}


def length_ranges(row: Record) -> dict[str, str]:
    """The ranges that the row's program takes, by the name of the dimension."""
    held = {name.removeprefix(BUCKET): row[name] for name in row if name.startswith(BUCKET)}
    return {name: str(span) for name, span in held.items() if not missing(span)}


def varying_schedule_columns(rows: Sequence[Record]) -> list[str]:
    """The columns about schedules in which `rows` differ."""
    names = dict.fromkeys(name for row in rows for name in row)
    chosen = [n for n in names if n in DEFAULT.columns or n.startswith((BUCKET, "pass."))]
    return [name for name in chosen if len({str(row.get(name)) for row in rows}) > 1]


def is_wrong(row: Record) -> bool:
    """Whether the outputs of a point were compared and found wrong."""
    return not missing(row["verified"]) and not row["verified"]


def does_nothing(row: Record) -> bool:
    """Whether a network leaves the machine nothing to do: such a time says nothing of machines."""
    return number(row, "latency_cycles") == 0
