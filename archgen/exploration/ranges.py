"""Ranges of quantities as the values in them: `{from: 128 KiB, to: 1 MiB}` is four sizes.

The one idea: hardware comes in steps, so a range is a list, and each value is spelled as a file
would spell it, in the unit of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from archgen.studies.sections import Quantity, Range
from simmodel.units import Bandwidth, Delay, parse_bytes, parse_hertz, split

_EXAMPLE = "'512 KiB'"
_NEAR = 1e-9
_DEFAULT_STEPS = 5
_KIB = 1024
Reading = Callable[[object], tuple[float, object]]
"""Text to a number in base units, and what has to agree for numbers to be comparable."""


def _bandwidth(value: object) -> tuple[float, object]:
    found = Bandwidth.parse(value)
    return found.amount, found.per_cycle


def _delay(value: object) -> tuple[float, object]:
    found = Delay.parse(value)
    return found.amount, found.in_cycles


_READINGS: tuple[Reading, ...] = (
    lambda value: (float(parse_bytes(value)), "bytes"),
    lambda value: (parse_hertz(value), "hertz"),
    _bandwidth,
    _delay,
)


def base_value(value: object) -> tuple[float, object]:
    """Number in base units, and its kind: `bytes`, `number` for one without a unit, ...

    Raises ValueError for what is no quantity.
    """
    number, unit = split(value, _EXAMPLE)
    if not unit:
        return number, "number"
    for reading in _READINGS:
        try:
            return reading(value)
        except ValueError:
            continue
    return number, unit


def values_of(given: Range) -> list[Quantity]:
    """The values of a range, from first to last. Raises ValueError."""
    low, kind = base_value(given.from_)
    high, other = base_value(given.to)
    if kind != other:
        raise ValueError(f"{given.from_} and {given.to} are not of the same kind")
    if not 0 < low < high:
        raise ValueError(f"expected a range that goes up from above zero, got {given.from_} .. "
                         f"{given.to}")  # fmt: skip
    if given.steps is not None and given.scale == "powers of two":
        raise ValueError("steps belong to the scales linear and log")
    inner = [spelled_like(given.from_, base) for base in _between(given, low, high)]
    return list(dict.fromkeys([given.from_, *inner, given.to]))


def _between(given: Range, low: float, high: float) -> Iterator[float]:
    """What lies between both ends, in base units."""
    if given.scale == "powers of two":
        count = math.ceil(math.log2(high / low) - _NEAR)
        yield from (low * 2**power for power in range(1, count))
        return
    last = (given.steps or _DEFAULT_STEPS) - 1
    for step in range(1, last):
        share = step / last
        log = given.scale == "log"
        yield low * (high / low) ** share if log else low + share * (high - low)


def spelled_like(example: Quantity, base: float) -> Quantity:
    """The amount `base`, in base units, as `example` is written."""
    number, unit = split(example, _EXAMPLE)
    own, kind = base_value(example)
    scaled = number * base / own
    if not unit:
        whole = isinstance(example, int) or float(example).is_integer()
        return max(1, round(scaled)) if whole else float(f"{scaled:.4g}")
    if kind == "bytes" and not math.isclose(scaled, round(scaled), rel_tol=_NEAR):
        return f"{round(base / _KIB)} KiB" if base >= 16 * _KIB else f"{round(base)} B"
    return f"{scaled:.4g} {unit}" if scaled < 1000 else f"{round(scaled)} {unit}"


def is_ordered(values: Sequence[object]) -> bool:
    """Whether values are amounts of one kind, which grow."""
    try:
        found = [base_value(value) for value in values]
    except ValueError:
        return False
    amounts = [amount for amount, _ in found]
    return len({kind for _, kind in found}) == 1 and amounts == sorted(amounts)
