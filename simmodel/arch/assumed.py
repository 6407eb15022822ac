"""What a machine's file assumes: fields that nobody has measured, and the range of each.

The one idea: only what changes nothing but time may be assumed, so that the program made for the
stated value runs at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simmodel.arch.base import FrozenModel, Path, Problem, near
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth, Delay

_TIMED = ("memories", "matrix", "vector", "isa", "scalar", "copy", "links", "front_end", "host")


def stated(arch: Arch, field: str) -> Any:
    """The value of a dotted `field`. Raises KeyError, with the name that is not there, and those
    that are."""
    found: Any = arch
    for name in field.split("."):
        if isinstance(found, Mapping):
            parts = dict(found)
        else:
            known = type(found).model_fields if isinstance(found, FrozenModel) else {}
            parts = {one.alias or own: getattr(found, own) for own, one in known.items()}
        if name not in parts:
            raise KeyError(name, tuple(parts))
        found = parts[name]
    return found


def ends(arch: Arch, field: str) -> tuple[Any, Any]:
    """Both ends of what `field` of a valid machine is assumed to be, as a file holds them."""
    own, span = stated(arch, field), arch.assumed[field]
    if isinstance(own, Delay | Bandwidth):
        return span.low, span.high
    return float(span.low), float(span.high)


def place_of(arch: Arch, field: str) -> float:
    """Where the stated value of `field` lies in its range: from 0, its first end, to 1."""
    own, span = stated(arch, field), arch.assumed[field]
    low, at, high = (_amount(value, own, arch.clock) for value in (span.low, own, span.high))
    return (at - low) / (high - low) if high > low else 0.0


def value_at(arch: Arch, field: str, place: float) -> Any:
    """The value at `place` of a field's range, as a file holds it."""
    own, (low, high) = stated(arch, field), ends(arch, field)
    if place in (0, 1):
        return (low, high)[int(place)]
    first, last = (_amount(end, own, arch.clock) for end in (low, high))
    amount = first + place * (last - first)
    if isinstance(own, Delay):
        return str(Delay(amount / arch.clock, False))
    return str(Bandwidth(amount, True)) if isinstance(own, Bandwidth) else amount


def assumption_problems(arch: Arch) -> Iterator[Problem]:
    """Assumptions about fields that are not there or that programs depend on, and ranges in which
    the stated value does not lie."""
    for field, span in arch.assumed.items():
        at: Path = ("assumed", field)
        about = (tuple(field.split(".")),)
        try:
            own = stated(arch, field)
        except KeyError as missing:
            name, known = missing.args
            yield Problem(at, f"the machine has no field {field!r}{near(name, known)}")
            continue
        timed = isinstance(own, float | Delay | Bandwidth) and field.split(".")[0] in _TIMED
        if not timed:
            said = "delays, bandwidths and factors of time may be assumed"
            yield Problem(at, f"{field} decides more than time; {said}", about)
            continue
        try:
            low, high = (_amount(end, own, arch.clock) for end in (span.low, span.high))
        except ValueError as wrong:
            yield Problem(at, str(wrong), about)
            continue
        if not low <= _amount(own, own, arch.clock) <= high:
            yield Problem(
                at, f"expected a range that has the stated {own} in it, got {span}", about
            )


def _amount(value: object, like: object, clock: float) -> float:
    """`value` of the kind of `like` as a number."""
    if isinstance(like, Delay):
        delay = Delay.parse(value)
        return delay.amount if delay.in_cycles else delay.amount * clock
    if isinstance(like, Bandwidth):
        return Bandwidth.parse(value).at(clock)
    try:
        return float(str(value))
    except ValueError:
        raise ValueError(
            f"expected a range of numbers such as '0.9 .. 1.0', got {value!r}"
        ) from None
