"""Figures of points as people name them: columns of numbers, in full or in short (`latency`).

The one idea: whoever compares, limits or judges figures names them the same way, and here is what a
name means.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from archgen.outcomes.columns import MORE_IS_BETTER, column
from archgen.outcomes.frame import Record, number
from archgen.schema.tree import guess
from simmodel.arch.record import Arch
from simmodel.arch.units import parse_bytes, split

DRAM = "dram_bytes"
"""Bytes read from DRAM and written to it; no column of its own."""
SHORT: Mapping[str, str] = {
    "latency": "latency_ms", "throughput": "throughput_ips", "energy": "energy_mj",
    "power": "average_w", "area": "area_mm2", "dram": DRAM, "utilization": "matrix_utilization",
}  # fmt: skip


def far_memory(archs: Iterable[Arch]) -> str:
    """DRAM, or what is in its place on these machines."""
    return " or ".join(dict.fromkeys(a.memories.far_name("dram") for a in archs)) or "DRAM"


_KINDS = ("real", "whole")
_WHOLE = 1e15
"""Below it whole numbers are written in full."""
_INPUTS = frozenset({"batch", "dim.<dimension>", "effort", "pass.<option>", "arch.<field>"})


def figure_named(word: str, columns: Iterable[str]) -> str:
    """The figure that `word` means, in capitals or not, of results with these `columns`.

    Raises ValueError: there is none, or it is no number that a run gives.
    """
    names = {name.lower(): name for name in [*columns, DRAM]}
    wanted = word.strip().lower()
    found = names.get(SHORT.get(wanted, wanted))
    if found is not None and is_figure(found):
        return found
    what = "no figure of the results" if found is None else "nothing that a run gives as a number"
    known = [*SHORT, *filter(is_figure, names.values())]
    hint = guess(word, known) or "; `archgen explain columns` lists them"
    raise ValueError(f"{word.strip()!r} is {what}{hint}")


def is_figure(name: str) -> bool:
    """Whether a column holds numbers that a run gives."""
    known = column(name)
    if known is None:
        return name == DRAM
    return known.kind in _KINDS and known.name not in _INPUTS


def figure_of(row: Record, name: str) -> float:
    """The figure of a row; NaN where it has none."""
    if name != DRAM:
        return number(row, name)
    ways = [number(row, f"dram_{way}_bytes") for way in ("read", "write")]
    given = [value for value in ways if not math.isnan(value)]
    return sum(given) if given else math.nan


def unit_of(name: str) -> str:
    """The unit of a figure."""
    known = column(name)
    return "bytes" if known is None else known.unit


def is_of_machine(name: str) -> bool:
    """Whether a figure is one of the machine alone, which says nothing about outputs: an area or a
    price."""
    return unit_of(name) in ("mm2", "USD")


def with_unit(value: float, name: str) -> str:
    """A value of a figure with its unit: `9.427 mm2`, `262,144 bytes`."""
    amount = f"{value:,.0f}" if value.is_integer() and abs(value) < _WHOLE else f"{value:.4g}"
    return f"{amount} {unit_of(name)}".strip()


def more_is_better(name: str) -> bool:
    """Whether more of it is better."""
    return name in MORE_IS_BETTER


# Conditions on results, as people write them: `latency_ms <= 5`, `peak_local_bytes<=512 KiB`.

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
    *({f"{prefix}{unit}": size for prefix, size in _PREFIXES.items()}
      for unit in ("B/s", "Hz", "OPS", "OPS/W")),
    {f"{prefix}OPS/{area}": size for prefix, size in _PREFIXES.items() for area in _AREAS},
    {"×": 1, "x": 1},
)  # fmt: skip
"""Units of one quantity each, by size."""


def unit_factors(unit: str) -> Mapping[str, float]:
    """`unit` first, then the others of its quantity; how many of `unit` each of them is."""
    sizes = next((known for known in _QUANTITIES if unit in known), {unit: 1.0})
    return {unit: 1.0} | {name: size / sizes[unit] for name, size in sizes.items()}


def split_condition(text: str) -> tuple[str, str, str] | None:
    """Column, comparison and value of a condition; None where it is none."""
    form = _FORM.fullmatch(text)
    return (form[1], form[2], form[3]) if form is not None and form[3] else None


def parse_amount(text: str, name: str, unit: str, per: float = 1.0) -> float:
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
    units = unit_factors(unit)
    if given and given not in units:
        own = f"in {unit}" if unit else "a plain number"
        raise ValueError(f"{name} is {own}, not {given!r}{guess(given, units)}")
    return number * (units[given] * per if given else 1.0)
