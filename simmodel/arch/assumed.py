"""What a machine's file assumes: fields that nobody has measured, and the range of each.

The one idea: only what changes nothing but time may be assumed, so that the program made for the
stated value runs at both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from simmodel.arch.base import FrozenModel, Path, Problem, near
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth, Delay

_TIMED = (
    "memories", "matrix", "vector", "isa", "scalar", "engines", "copy", "links", "front_end",
    "host",
)  # fmt: skip

_DIGITS = 6
"""Significant, of values between the ends of a range."""


def _looked_up(arch: Arch, field: str) -> tuple[Any, Callable[[object], float]]:
    """The value of a dotted field, and what reads such values as numbers, delays and bandwidths by
    cycles. Raises KeyError, with the name that is not there, and those that are."""
    found: Any = arch
    read: Callable[[object], float] = _plain_number
    parts: dict[str, tuple[Any, Sequence[Any]]]
    for name in field.split("."):
        if isinstance(found, Mapping):
            parts = {key: (value, ()) for key, value in found.items()}
        else:
            known = type(found).model_fields if isinstance(found, FrozenModel) else {}
            parts = {f.alias or own: (getattr(found, own), f.metadata) for own, f in known.items()}
        if name not in parts:
            raise KeyError(name, tuple(parts))
        found, said = parts[name]
        read = next((each.read for each in said if hasattr(each, "read")), _plain_number)
    if isinstance(found, Delay):
        return found, lambda value: Delay.parse(value).at(arch.clock)
    if isinstance(found, Bandwidth):
        return found, lambda value: Bandwidth.parse(value).at(arch.clock)
    return found, read


def _plain_number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        said = f"expected a range of numbers such as '0.9 .. 1.0', got {value!r}"
        raise ValueError(said) from None


def ends(arch: Arch, field: str) -> tuple[str | float, str | float]:
    """Both ends of what `field` is assumed to be, as a file holds them."""
    span = arch.assumed[field]
    return _end_in_file(span.low), _end_in_file(span.high)


def _end_in_file(end: str) -> str | float:
    with suppress(ValueError):
        return float(end)
    return end


def place_of(arch: Arch, field: str) -> float:
    """Where the stated value of `field` lies in its range: from 0, its first end, to 1."""
    own, read = _looked_up(arch, field)
    low, high = map(read, ends(arch, field))
    return (read(own) - low) / (high - low) if high > low else 0.0


def value_at(arch: Arch, field: str, place: float) -> Any:
    """The value at `place` of a field's range, as a file holds it."""
    own, read = _looked_up(arch, field)
    if place in (0, 1):
        return ends(arch, field)[int(place)]
    first, last = map(read, ends(arch, field))
    amount, clock = first + place * (last - first), arch.clock

    def rounded(number: float) -> str:
        return f"{number:.{_DIGITS}g}"

    if isinstance(own, Delay):
        ns = f"{rounded(1e9 * amount / clock)} ns"
        return str(Delay.parse(f"{rounded(amount)} cycles" if own.in_cycles else ns))
    if isinstance(own, Bandwidth):
        rate = f"{rounded(1e-9 * amount * clock)} GB/s"
        return str(Bandwidth.parse(f"{rounded(amount)} B/cycle" if own.per_cycle else rate))
    return float(rounded(amount))


def assumption_problems(arch: Arch) -> Iterator[Problem]:
    """Assumptions about fields that are not there or that programs depend on, and ranges in which
    the stated value does not lie."""
    for field, span in arch.assumed.items():
        at: Path = ("assumed", field)
        about = (tuple(field.split(".")),)
        try:
            own, read = _looked_up(arch, field)
        except KeyError as missing:
            name, known = missing.args
            yield Problem(at, f"the machine has no field {field!r}{near(name, known)}")
            continue
        if not isinstance(own, float | Delay | Bandwidth) or field.split(".")[0] not in _TIMED:
            said = "delays, bandwidths and factors of time may be assumed"
            yield Problem(at, f"{field} decides more than time; {said}", about)
            continue
        try:
            low, high = read(span.low), read(span.high)
        except ValueError as wrong:
            yield Problem(at, str(wrong), about)
            continue
        if not low <= read(own) <= high:
            said = f"expected a range that has the stated {own} in it, got {span}"
            yield Problem(at, said, about)
        for end in ends(arch, field):
            if why := _invalid_because(arch, field, end):
                yield Problem(at, f"{field} cannot be {end}: {why}", about)


def _invalid_because(arch: Arch, field: str, end: str | float) -> str:
    """Why no machine has `end` in the place of a field's value; empty: it may have."""
    values = inner = arch.model_dump(by_alias=True)
    *path, last = field.split(".")
    for name in path:
        inner = inner[name]
    inner[last] = end
    try:
        Arch.model_validate(values)
    except ValidationError as wrong:
        return str(wrong.errors()[0]["msg"]).removeprefix("Value error, ")
    return ""
