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

_FORM = re.compile(r"\s*([A-Za-z][\w.<>-]*?)\s*(<=|>=|==|!=|<|>|=)\s*(?![<>=!])(.*?)\s*")
ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
"""Comparisons of amounts."""
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_AREAS = ("mm2", "mm²")
_QUANTITIES: tuple[Mapping[str, float], ...] = (
    {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9},
    {"J": 1, "mJ": 1e-3, "uJ": 1e-6, "nJ": 1e-9},
    {"W": 1, "mW": 1e-3},
    {"mm2": 1, "mm²": 1, "um2": 1e-6},
    {"samples/s": 1, "fps": 1, "ips": 1, "kfps": 1e3},
    {"samples/s/W": 1, "fps/W": 1},
    {"samples/s/mm²": 1, "samples/s/mm2": 1, "fps/mm2": 1},
    {f"{prefix}B": size for prefix, size in _PREFIXES.items()} | _BINARY,
    {f"{prefix}B/s": size for prefix, size in _PREFIXES.items()},
    {f"{prefix}Hz": size for prefix, size in _PREFIXES.items()},
    {f"{prefix}OPS": size for prefix, size in _PREFIXES.items()},
    {f"{prefix}OPS/W": size for prefix, size in _PREFIXES.items()},
    {f"{prefix}OPS/{area}": size for prefix, size in _PREFIXES.items() for area in _AREAS},
    {"×": 1, "x": 1},
)
"""Units of one quantity each, by size."""


def interchangeable(unit: str) -> Mapping[str, float]:
    """`unit` first, then the others of its quantity; how many of `unit` each of them is."""
    sizes = next((known for known in _QUANTITIES if unit in known), {unit: 1.0})
    return {unit: 1.0} | {name: size / sizes[unit] for name, size in sizes.items()}


def split_condition(text: str) -> tuple[str, str, str] | None:
    """Column, comparison and value of a condition; None where it is none."""
    form = _FORM.fullmatch(text)
    return (form[1], form[2], form[3]) if form is not None and form[3] else None


def amount(text: str, name: str, unit: str, per: float = 1.0) -> float:
    """What `text` says of the column `name`, as the column holds it: where it is read in `unit`,
    `per` of what it holds is one. A bare number is what it holds.

    Raises ValueError: it is no number, or its unit is none of that column.
    """
    in_bytes = unit == "bytes" or unit in _BINARY
    percent = unit == "fraction" and text.endswith("%")
    example = "512 KiB" if in_bytes else f"5 {unit}".strip()
    number, given = split(text.removesuffix("%") if percent else text, repr(example))
    if percent and not given:
        return number / 100
    if in_bytes and given:
        return float(parse_bytes(text))
    units = interchangeable(unit)
    if given and given not in units:
        own = f"in {unit}" if unit else "a plain number"
        raise ValueError(f"{name} is {own}, not {given!r}{guess(given, units)}")
    return number * (units[given] * per if given else 1.0)
