"""Conditions on results, as people write them: `latency_ms <= 5`, `peak_local_bytes<=512 KiB`.

The one idea: a value is read in the unit of its column, with or without saying so.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from archgen.schema.mistakes import guess
from simmodel.units import parse_bytes, split

_FORM = re.compile(r"\s*([A-Za-z][\w.<>-]*?)\s*(<=|>=|==|!=|<|>|=)\s*(.*?)\s*")
ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
"""Comparisons of amounts."""
_UNITS: Mapping[str, Mapping[str, float]] = {
    "ms": {"ms": 1, "s": 1e3, "us": 1e-3, "ns": 1e-6},
    "s": {"s": 1, "ms": 1e-3},
    "mJ": {"mJ": 1, "J": 1e3, "uJ": 1e-3, "nJ": 1e-6},
    "W": {"W": 1, "mW": 1e-3},
    "mm2": {"mm2": 1, "um2": 1e-6},
    "samples/s": {"samples/s": 1, "fps": 1, "ips": 1, "kfps": 1e3},
    "samples/s/W": {"samples/s/W": 1, "fps/W": 1},
}


def split_condition(text: str) -> tuple[str, str, str] | None:
    """Column, comparison and value of a condition; None where it is none."""
    form = _FORM.fullmatch(text)
    return (form[1], form[2], form[3]) if form is not None and form[3] else None


def amount(text: str, name: str, unit: str) -> float:
    """What `text` says of the column `name`, in the column's `unit`.

    Raises ValueError: it is no number, or its unit is none of that column.
    """
    in_bytes = unit == "bytes" or name.startswith("arch.")
    percent = unit == "fraction" and text.endswith("%")
    example = "512 KiB" if in_bytes else f"5 {unit}".strip()
    number, given = split(text.removesuffix("%") if percent else text, repr(example))
    if percent and not given:
        return number / 100
    if in_bytes and given:
        return float(parse_bytes(text))
    units = _UNITS.get(unit, {unit: 1.0})
    if given and given not in units:
        own = f"in {unit}" if unit else "a plain number"
        raise ValueError(f"{name} is {own}, not {given!r}{guess(given, units)}")
    return number * (units[given] if given else 1.0)
