"""Quantities with units, as they stand in architecture files: `512 KiB`, `25.6 GB/s`, `100 ns`.

Each kind is a pydantic-ready annotated type, so a field's type says which units it takes. A bare
number is accepted only in the base unit of its kind (bytes, bytes per cycle, cycles, hertz, pJ,
pJ per byte, mW, square millimetres, nanometres, volts, dollars).
Decimal prefixes are powers of 1000, binary ones (`Ki`) powers of 1024.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_NO_CLOCK = 1e4
"""Hertz without a unit below which no chip runs."""
_NEAR = 1e-9
"""Relative distance from a whole number that decimal fractions of a unit may have."""
_LARGEST, _TINY = 1e18, math.ulp(0.0)
_NUMBER = re.compile(r"\s*([-+]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z/]*2?)\s*")
_BYTES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_HERTZ = {"Hz": 1, "kHz": 10**3, "MHz": 10**6, "GHz": 10**9}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_PICOJOULES = {"fJ": 1e-3, "pJ": 1.0, "nJ": 1e3, "uJ": 1e6, "mJ": 1e9, "J": 1e12}
_MILLIWATTS = {"uW": 1e-3, "mW": 1.0, "W": 1e3}
_SQUARE_MILLIMETRES = {"um2": 1e-6, "mm2": 1.0}
_NANOMETRES = {"nm": 1.0, "um": 1e3}
_VOLTS = {"mV": 1e-3, "V": 1.0}
_DOLLARS = {"USD": 1.0, "kUSD": 1e3}
_DOLLARS_PER_GIB = {"USD/GiB": 1.0, "USD/GB": 2**30 / 1e9}
_PER_CM2 = {"/cm2": 1.0, "/mm2": 100.0}
_PER_BYTE = {f"{name}/{per}": value * bits for name, value in _PICOJOULES.items()
             for per, bits in (("B", 1), ("bit", 8))}  # fmt: skip
_RATES = {f"{name}/{per}": size for per in ("s", "cycle") for name, size in _BYTES.items()}
_DELAYS = {**_SECONDS, "cycle": 1.0, "cycles": 1.0}
_YEARS = {"years": 1.0, "year": 1.0, "days": 1 / 365.25}
_OPERATIONS = {"OPS": 1, "GOPS": 10**9, "TOPS": 10**12, "MOPS": 10**6}


def split(value: object, example: str) -> tuple[float, str]:
    """Number and unit of `value`; ValueError says what a right value looks like (`example`)."""
    if isinstance(value, bool):
        raise ValueError(f"expected a quantity such as {example}, got {str(value).lower()}")
    if isinstance(value, int | float):
        return _bounded(value, value, example), ""
    match = _NUMBER.fullmatch(str(value))
    if match is None:
        raise ValueError(f"expected a quantity such as {example}, got {value!r}")
    return _bounded(float(match[1].replace("_", "")), value, example), match[2]


def _bounded(number: float, value: object, example: str) -> float:
    if not abs(number) <= _LARGEST:
        raise ValueError(f"expected a quantity of sensible size such as {example}, got {value!r}")
    return float(number)


def _unit_hint(unit: str, known: Iterable[str]) -> str:
    folded = {name.lower(): name for name in known}
    if unit.lower() not in folded and unit[1:] in folded.values():
        return ""  # another prefix, which is no slip of the pen but a factor of a thousand
    found = difflib.get_close_matches(unit.lower(), folded, n=1, cutoff=0.5)
    return f"; did you mean {folded[found[0]]!r}?" if found else ""


def _scaled(
    value: object, units: Mapping[str, float], example: str, expected: str = ""
) -> tuple[float, str]:
    """`value` in the base unit of `units`, and its own unit; `expected` names these in messages."""
    number, unit = split(value, example)
    if unit and unit not in units:
        said = f"unit {unit!r} is not {expected or 'one of ' + ', '.join(units)}"
        raise ValueError(f"{said}{_unit_hint(unit, units) or f'; write {example}'}")
    return _bounded(number * (units[unit] if unit else 1), value, example), unit


def parse_bytes(value: object) -> int:
    """Bytes of `'512 KiB'`, `'1 MB'` or a bare number of bytes; positive and whole."""
    amount, _ = _scaled(value, _BYTES, "'512 KiB'")
    whole = round(amount)
    if whole <= 0 or abs(amount - whole) > _NEAR * whole:
        raise ValueError(f"expected a positive whole number of bytes, got {value!r}")
    return whole


def parse_hertz(value: object) -> float:
    """Hertz of `'1.2 GHz'` or a bare number of hertz; positive. A few bare hertz are megahertz
    whose unit was forgotten."""
    amount, unit = _scaled(value, _HERTZ, "'1.2 GHz'")
    if 0 < amount < _NO_CLOCK and not unit:
        raise ValueError(f"a bare number is in Hz; write '{amount:g} MHz' if that is meant")
    if amount <= 0:
        raise ValueError(f"expected a positive frequency, got {value!r}")
    return amount


def _spelled_hertz(amount: float) -> float | str:
    """What JSON holds of a clock: with its unit where `parse_hertz` doubts the bare number."""
    return amount if amount >= _NO_CLOCK else f"{amount!r} Hz"


class _Quantity:
    """Lets a quantity class validate itself from text inside pydantic models."""

    EXAMPLE = ""

    @classmethod
    def parse(cls, value: object) -> Any:
        raise NotImplementedError(cls.__name__)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return _json_schema(cls.EXAMPLE)


@dataclass(frozen=True)
class Bandwidth(_Quantity):
    """Bytes per second or per cycle; the clock turns the one into the other."""

    amount: float
    per_cycle: bool

    EXAMPLE = "25.6 GB/s"

    @classmethod
    def parse(cls, value: object) -> Bandwidth:
        """`'25.6 GB/s'`, `'64 B/cycle'` or a bare number of bytes per cycle; positive."""
        if isinstance(value, Bandwidth):
            return value
        example = "'25.6 GB/s' or '64 B/cycle'"
        amount, unit = _scaled(value, _RATES, example, "bytes per s or per cycle")
        if amount <= 0:
            raise ValueError(f"expected a positive bandwidth, got {value!r}")
        return cls(amount, not unit.endswith("/s"))

    def at(self, clock: float) -> float:
        """Bytes per cycle of a clock of `clock` hertz."""
        return self.amount if self.per_cycle else self.amount / clock

    def __str__(self) -> str:
        if self.per_cycle:
            return f"{_spelled(self.amount)} B/cycle"
        large = _spelled(self.amount, 1e9)
        return f"{large} GB/s" if large else f"{_spelled(self.amount)} B/s"


@dataclass(frozen=True)
class Delay(_Quantity):
    """Seconds or cycles; the clock turns the one into the other."""

    amount: float
    in_cycles: bool

    EXAMPLE = "100 ns"

    @classmethod
    def parse(cls, value: object) -> Delay:
        """`'100 ns'`, `'20 cycles'` or a bare number of cycles; not negative."""
        if isinstance(value, Delay):
            return value
        example = "'100 ns' or '20 cycles'"
        amount, unit = _scaled(value, _DELAYS, example, f"{', '.join(_SECONDS)} or cycles")
        if amount < 0:
            raise ValueError(f"expected a delay that is not negative, got {value!r}")
        return cls(amount, unit not in _SECONDS)

    def at(self, clock: float) -> float:
        """Cycles, or parts of one, of a clock of `clock` hertz."""
        return self.amount if self.in_cycles else self.amount * clock

    def cycles(self, clock: float) -> int:
        """Whole cycles, rounded up, of a clock of `clock` hertz."""
        return math.ceil(self.at(clock) - 1e-9)

    def __str__(self) -> str:
        if self.in_cycles:
            return f"{_spelled(self.amount)} cycles"
        texts = {unit: _spelled(self.amount, _SECONDS[unit]) for unit in ("us", "ns")}
        # 200 ns are 0.20000000000000004 us too.
        known = [f"{text} {unit}" for unit, text in texts.items() if text and "e" not in text]
        return min(known, key=len, default=f"{_spelled(self.amount)} s")


@dataclass(frozen=True)
class Interval(_Quantity):
    """A range by its ends, each as a file spells it."""

    low: str
    high: str

    EXAMPLE = "60 ns .. 200 ns"

    @classmethod
    def parse(cls, value: object) -> Interval:
        """`'60 ns .. 200 ns'`, or with numbers `'0.9 .. 1.0'`."""
        if isinstance(value, Interval):
            return value
        ends = [end.strip() for end in str(value).split("..")]
        if len(ends) != 2 or not all(ends):
            raise ValueError(f"expected a range such as {cls.EXAMPLE!r}, got {value!r}")
        return cls(*ends)

    def __str__(self) -> str:
        return f"{self.low} .. {self.high}"


def _spelled(amount: float, unit: float = 1.0) -> str:
    """`amount / unit` with no digit more than it takes to have `amount` back by multiplying; empty
    where none has."""
    exact = amount / unit
    return next((text for text in (f"{exact:g}", repr(exact)) if float(text) * unit == amount), "")


def _json_schema(example: str) -> JsonSchemaValue:
    return {"anyOf": [{"type": "number"}, {"type": "string"}], "examples": [example]}


@dataclass(frozen=True)
class _Spelled:
    """Metadata of a pydantic field that is a number, or text with a unit."""

    example: str
    read: Callable[[object], float]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return _json_schema(self.example)


def _number(
    units: Mapping[str, float], example: str, wanted: str, low: float = 0.0, high: float = math.inf
) -> _Spelled:
    """A number of `units`, or a bare one in their base unit, from `low` to `high`."""

    def read(value: object) -> float:
        amount, _ = _scaled(value, units, f"'{example}'")
        if not low <= amount <= high:
            raise ValueError(f"expected {wanted}, got {value!r}")
        return amount

    return _Spelled(example, read)


Bytes = Annotated[int, _Spelled("512 KiB", parse_bytes)]
Hertz = Annotated[
    float,
    _Spelled("1.2 GHz", parse_hertz),
    PlainSerializer(_spelled_hertz, return_type=float | str, when_used="json"),
]
Energy = Annotated[float, _number(_PICOJOULES, "0.2 pJ", "an energy that is not negative")]
EnergyPerByte = Annotated[float, _number(_PER_BYTE, "4 pJ/bit", "an energy that is not negative")]
Power = Annotated[float, _number(_MILLIWATTS, "30 mW", "a power that is not negative")]
Area = Annotated[float, _number(_SQUARE_MILLIMETRES, "0.5 mm2", "an area that is not negative")]
Node = Annotated[float, _number(_NANOMETRES, "28 nm", "3 nm to 130 nm", 3.0, 130.0)]
"""Technology nodes that energies are scaled over."""
Voltage = Annotated[float, _number(_VOLTS, "0.8 V", "0.3 V to 1.5 V", 0.3, 1.5)]
Dollars = Annotated[float, _number(_DOLLARS, "9000 USD", "a price that is not negative")]
DollarsPerGib = Annotated[
    float, _number(_DOLLARS_PER_GIB, "4 USD/GiB", "a price that is not negative")
]
DollarsPerKwh = Annotated[
    float, _number({"USD/kWh": 1.0}, "0.15 USD/kWh", "a price that is not negative")
]
DefectDensity = Annotated[float, _number(_PER_CM2, "0.1 /cm2", "a density that is not negative")]
Millimetres = Annotated[float, _number({"mm": 1.0}, "300 mm", "25 mm to 450 mm", 25.0, 450.0)]
Years = Annotated[float, _number(_YEARS, "3 years", "a positive time", _TINY)]
Operations = Annotated[
    float, _number(_OPERATIONS, "10 GOPS", "a positive rate of operations", _TINY)
]


_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def exact_bytes(amount: int) -> str:
    """`amount` bytes in the largest binary unit of which they are a whole number: `1000000 B`."""
    for unit, size in _BINARY:
        if amount and amount % size == 0:
            return f"{amount // size} {unit}"
    return f"{amount} B"


def show_bytes(amount: float) -> str:
    """`amount` bytes with the largest binary unit that keeps it readable."""
    for unit, size in _BINARY:
        if amount >= size:
            return f"{amount / size:.4g} {unit}"
    return f"{amount:.4g} B"
