"""Figures of points as people name them: columns of numbers, in full or in short (`latency`).

The one idea: whoever compares, limits or judges figures names them the same way, and here is what a
name means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from archgen.outcomes.columns import MORE_IS_BETTER, column
from archgen.outcomes.frame import Record, number
from archgen.schema.mistakes import guess

DRAM = "dram_bytes"
"""Bytes read from DRAM and written to it; no column of its own."""
SHORT: Mapping[str, str] = {
    "latency": "latency_ms",
    "throughput": "throughput_ips",
    "energy": "energy_mj",
    "power": "average_w",
    "area": "area_mm2",
    "dram": DRAM,
    "utilization": "matrix_utilization",
}
"""Short name -> figure."""
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
    """Whether a figure is one of the machine alone, which says nothing about outputs: an area."""
    return unit_of(name) == "mm2"


def with_unit(value: float, name: str) -> str:
    """A value of a figure with its unit: `9.427 mm2`, `262,144 bytes`."""
    amount = f"{value:,.0f}" if value.is_integer() and abs(value) < _WHOLE else f"{value:.4g}"
    return f"{amount} {unit_of(name)}".strip()


def more_is_better(name: str) -> bool:
    """Whether more of it is better."""
    return name in MORE_IS_BETTER
