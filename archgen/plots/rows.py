"""What a row of a frame ran on, in words: its machine, and whatever else tells it from others."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from archgen.outcomes.frame import Record, varied
from simmodel.units import show_bytes


def several_types(rows: Sequence[Record]) -> bool:
    """Whether any machine has points of several element types."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(str(row["arch"]), set()).add(str(row["dtype"]))
    return any(len(types) > 1 for types in found.values())


def machine_labels(rows: Sequence[Record]) -> list[str]:
    """What each row ran on: its architecture, and of the rest whatever tells rows apart."""
    names = ["arch", *(["dtype"] if several_types(rows) else []), *varied(rows)]
    fields = _swept(rows)
    return [
        " ".join([*(str(row[name]) for name in names), *(_setting(row, name) for name in fields)])
        for row in rows
    ]


def _swept(rows: Sequence[Record]) -> list[str]:
    """Swept fields in which rows of the same architecture differ."""
    fields = [name for name in (rows[0] if rows else {}) if name.startswith("arch.")]
    archs = {row["arch"] for row in rows}
    return [
        name
        for name in fields
        if len({(row["arch"], str(row.get(name))) for row in rows}) > len(archs)
    ]


def _setting(row: Record, name: str) -> str:
    """`size=2 MiB` for the column `arch.memories.local.size`."""
    value = row.get(name)
    if value is None or pd.isna(value):
        return ""
    last = name.rsplit(".", 1)[-1]
    if last == "size" and not isinstance(value, str):
        return f"{last}={show_bytes(value)}"
    return f"{last}={value:g}" if isinstance(value, float) else f"{last}={value}"
