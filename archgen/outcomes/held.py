"""What every row's machine and network have in the columns that a study varies.

The one idea: a machine that a sweep leaves alone has a value in the swept field all the same, so a
column of a frame holds the value of each machine and network that has one, whoever has set it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from archgen.models.load import zoo_options
from archgen.outcomes.columns import COLUMNS, Column, ordered
from archgen.outcomes.frame import Frame, typed
from archgen.outcomes.point import DIMENSION, FIELD, OPTION, Row, Scalar
from archgen.schema.variants import field_of, value_of
from simmodel.arch import Arch
from simmodel.units import Bandwidth, Delay


def completed(frame: Frame, archs: Iterable[Arch], columns: tuple[Column, ...] = COLUMNS) -> Frame:
    """`frame` with the value of each row's machine in every column `arch.<field>`, of each row's
    network in `dim.<dimension>`, and with columns `model.<option>` for options in which some
    network of the zoo differs. What a machine or a network does not have stays missing."""
    machines = tuple(archs)
    names = [str(name) for name in frame]
    found: dict[str, list[Scalar]] = {}
    for name in (name for name in names if name.startswith(FIELD)):
        known = held(machines, name.removeprefix(FIELD))
        found[name] = _either([known.get(str(arch)) for arch in frame["arch"]], _own(frame, name))
    found |= _of_networks(frame)
    if not found:
        return frame
    arrays = {name: frame[name].array for name in names}
    arrays |= {name: typed(values, name, columns).array for name, values in found.items()}
    return pd.DataFrame({name: arrays[name] for name in ordered(arrays, columns)}, copy=False)


def held(archs: Iterable[Arch], field: str) -> dict[str, Scalar]:
    """The value of a dotted field by name of the machine, of those that have it, as numbers that
    compare: where one bandwidth or delay is in seconds all are."""
    found = [(arch, value) for arch in archs if (value := field_of(arch, field)) is not None]
    in_seconds = any(_in_seconds(value) for _, value in found)
    return {
        arch.name: _per_second(value, arch.clock) if in_seconds else value_of(arch, field)
        for arch, value in found
    }


def held_rows(rows: Iterable[Row], archs: Iterable[Arch]) -> list[Row]:
    """`rows` that name their machine, with its value of every field that any of them has set."""
    given, machines = list(rows), tuple(archs)
    fields = dict.fromkeys(name for row in given for name in row if name.startswith(FIELD))
    values = {name: held(machines, name.removeprefix(FIELD)) for name in fields}
    return [
        row
        | {name: known[str(row["arch"])] for name, known in values.items() if row["arch"] in known}
        for row in given
    ]


def _in_seconds(value: Any) -> bool:
    if isinstance(value, Bandwidth):
        return not value.per_cycle
    return isinstance(value, Delay) and not value.in_cycles


def _per_second(value: Any, clock: float) -> float:
    """Bytes per second of a bandwidth, seconds of a delay."""
    if isinstance(value, Bandwidth):
        return value.amount * clock if value.per_cycle else value.amount
    assert isinstance(value, Delay)
    return value.amount / clock if value.in_cycles else value.amount


def _of_networks(frame: Frame) -> dict[str, list[Scalar]]:
    """Columns of sizes and options of networks of the zoo."""
    if "model" not in frame:
        return {}
    specs = {str(spec): zoo_options(str(spec)) for spec in frame["model"].unique()}
    models = [specs[str(spec)] for spec in frame["model"]]
    seen: dict[tuple[str, str], set[Scalar]] = {}
    for spec, options in specs.items():
        for option, value in options.items():
            seen.setdefault((spec.partition(":")[0], option), set()).add(value)
    sizes = [str(name) for name in frame if str(name).startswith(DIMENSION)]
    found = {
        name: _either(_own(frame, name), [own.get(name.removeprefix(DIMENSION)) for own in models])
        for name in sizes
    }
    varied = dict.fromkeys(option for (_, option), values in seen.items() if len(values) > 1)
    others = [name for name in varied if f"{DIMENSION}{name}" not in found]
    return found | {f"{OPTION}{name}": [own.get(name) for own in models] for name in others}


def _own(frame: Frame, name: str) -> list[Scalar]:
    """The values of a column."""
    return [None if pd.isna(value) else value for value in frame[name]]


def _either(first: Iterable[Scalar], second: Iterable[Scalar]) -> list[Scalar]:
    """Of each pair the first where there is one."""
    return [b if a is None else a for a, b in zip(first, second, strict=True)]
