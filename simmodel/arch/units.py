"""Quantities with units, as they stand in architecture files: `512 KiB`, `25.6 GB/s`, `100 ns`.

Each kind is a pydantic-ready annotated type, so a field's type says which units it takes. A bare
number is accepted only in the base unit of its kind (bytes, bytes per cycle, cycles, hertz, pJ,
pJ per byte, mW, square millimetres, nanometres, volts).
Decimal prefixes are powers of 1000, binary ones (`Ki`) powers of 1024.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_NO_CLOCK = 1e4
"""Hertz without a unit below which no chip runs."""
_NEAR = 1e-9
"""Relative distance from a whole number that decimal fractions of a unit may have."""
_LARGEST = 1e18
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
_PER_BYTE = {f"{name}/{per}": value * bits for name, value in _PICOJOULES.items()
             for per, bits in (("B", 1), ("bit", 8))}  # fmt: skip
NODES = (3.0, 130.0)
"""Technology nodes, in nanometres, that energies are scaled over."""
VOLTAGES = (0.3, 1.5)
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


def _scaled(value: object, units: dict[str, int] | dict[str, float], example: str) -> float:
    number, unit = split(value, example)
    if unit and unit not in units:
        known = f"unit {unit!r} is not one of {', '.join(units)}"
        raise ValueError(f"{known}{_unit_hint(unit, units) or f'; write {example}'}")
    return _bounded(number * (units[unit] if unit else 1), value, example)


def parse_bytes(value: object) -> int:
    """Bytes of `'512 KiB'`, `'1 MB'` or a bare number of bytes; positive and whole."""
    amount = _scaled(value, _BYTES, "'512 KiB'")
    whole = round(amount)
    if whole <= 0 or abs(amount - whole) > _NEAR * whole:
        raise ValueError(f"expected a positive whole number of bytes, got {value!r}")
    return whole


def parse_hertz(value: object) -> float:
    """Hertz of `'1.2 GHz'` or a bare number of hertz; positive. A few bare hertz are megahertz
    whose unit was forgotten."""
    amount = _scaled(value, _HERTZ, "'1.2 GHz'")
    if 0 < amount < _NO_CLOCK and not split(value, "'1.2 GHz'")[1]:
        raise ValueError(f"a bare number is in Hz; write '{amount:g} MHz' if that is meant")
    if amount <= 0:
        raise ValueError(f"expected a positive frequency, got {value!r}")
    return amount


def _spelled_hertz(amount: float) -> float | str:
    """What JSON holds of a clock: with its unit where `parse_hertz` doubts the bare number."""
    return amount if amount >= _NO_CLOCK else f"{amount!r} Hz"


def parse_operations(value: object) -> float:
    """Operations per second of `'10 GOPS'` or a bare number; positive."""
    amount = _scaled(value, _OPERATIONS, "'10 GOPS'")
    if amount <= 0:
        raise ValueError(f"expected a positive rate of operations, got {value!r}")
    return amount


def parse_energy(value: object) -> float:
    """Picojoules of `'0.2 pJ'` or a bare number of picojoules; not negative."""
    return _not_negative(value, _PICOJOULES, "'0.2 pJ'", "an energy")


def parse_energy_per_byte(value: object) -> float:
    """Picojoules per byte of `'4 pJ/bit'`, `'1.5 pJ/B'` or a bare number; not negative."""
    return _not_negative(value, _PER_BYTE, "'1.5 pJ/B' or '4 pJ/bit'", "an energy")


def parse_power(value: object) -> float:
    """Milliwatts of `'30 mW'` or a bare number of milliwatts; not negative."""
    return _not_negative(value, _MILLIWATTS, "'30 mW'", "a power")


def parse_area(value: object) -> float:
    """Square millimetres of `'0.5 mm2'`, `'400 um2'` or a bare number; not negative."""
    return _not_negative(value, _SQUARE_MILLIMETRES, "'0.5 mm2'", "an area")


def _not_negative(value: object, units: dict[str, float], example: str, noun: str) -> float:
    amount = _scaled(value, units, example)
    if amount < 0:
        raise ValueError(f"expected {noun} that is not negative, got {value!r}")
    return amount


def parse_node(value: object) -> float:
    """Nanometres of `'28 nm'` or a bare number of nanometres; within `NODES`."""
    return _within(value, _NANOMETRES, "'28 nm'", NODES, "nm")


def parse_voltage(value: object) -> float:
    """Volts of `'0.8 V'` or a bare number of volts; within `VOLTAGES`."""
    return _within(value, _VOLTS, "'0.8 V'", VOLTAGES, "V")


def _within(
    value: object, units: dict[str, float], example: str, ends: tuple[float, float], unit: str
) -> float:
    amount = _scaled(value, units, example)
    if not ends[0] <= amount <= ends[1]:
        raise ValueError(f"expected {ends[0]:g} {unit} to {ends[1]:g} {unit}, got {value!r}")
    return amount


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
        return {"anyOf": [{"type": "number"}, {"type": "string"}], "examples": [cls.EXAMPLE]}


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
        number, unit = split(value, example)
        size, _, per = unit.partition("/")
        if unit and (size not in _BYTES or per not in ("s", "cycle")):
            known = [f"{scale}/{time}" for time in ("s", "cycle") for scale in _BYTES]
            said = f"unit {unit!r} is not bytes per s or per cycle"
            raise ValueError(f"{said}{_unit_hint(unit, known) or f'; write {example}'}")
        if number <= 0:
            raise ValueError(f"expected a positive bandwidth, got {value!r}")
        amount = number * _BYTES[size] if unit else number
        return cls(_bounded(amount, value, example), per != "s")

    def at(self, clock: float) -> float:
        """Bytes per cycle of a clock of `clock` hertz."""
        return self.amount if self.per_cycle else self.amount / clock

    def __str__(self) -> str:
        if self.per_cycle:
            return f"{_shortest(self.amount, 1)} B/cycle"
        if self.amount == float(_shortest(self.amount, 10**9)) * 10**9:
            return f"{_shortest(self.amount, 10**9)} GB/s"
        return f"{_shortest(self.amount, 1)} B/s"


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
        number, unit = split(value, example)
        known = (*_SECONDS, "cycle", "cycles")
        if unit and unit not in known:
            said = f"unit {unit!r} is not {', '.join(_SECONDS)} or cycles"
            raise ValueError(f"{said}{_unit_hint(unit, known) or f'; write {example}'}")
        if number < 0:
            raise ValueError(f"expected a delay that is not negative, got {value!r}")
        in_cycles = unit in ("", "cycle", "cycles")
        return cls(number if in_cycles else number * _SECONDS[unit], in_cycles)

    def cycles(self, clock: float) -> int:
        """Whole cycles, rounded up, of a clock of `clock` hertz."""
        exact = self.amount if self.in_cycles else self.amount * clock
        return math.ceil(exact - 1e-9)

    def __str__(self) -> str:
        if self.in_cycles:
            return f"{_shortest(self.amount, 1)} cycles"
        texts = [f"{_read_back(self.amount, _SECONDS[unit])} {unit}" for unit in ("us", "ns")]
        # 200 ns are 0.20000000000000004 us too.
        known = [text for text in texts if "e" not in text]
        return min(known, key=len, default=f"{_shortest(self.amount, 1)} s")


def _read_back(amount: float, unit: float) -> str:
    """`amount / unit` with no digit more than it takes to have `amount` back by multiplying."""
    exact = amount / unit
    texts = (f"{exact:g}", repr(exact))
    return next((text for text in texts if float(text) * unit == amount), "none")


def _shortest(amount: float, unit: float) -> str:
    """`amount / unit` with no digit more than it takes to read it back; whole without a point."""
    exact = amount / unit
    return next(text for text in (f"{exact:g}", repr(exact)) if float(text) == exact)


def _quantity_schema(example: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"type": "string"}], "examples": [example]}
    )


Bytes = Annotated[int, BeforeValidator(parse_bytes), _quantity_schema("512 KiB")]
Hertz = Annotated[
    float,
    BeforeValidator(parse_hertz),
    PlainSerializer(_spelled_hertz, return_type=float | str, when_used="json"),
    _quantity_schema("1.2 GHz"),
]
Energy = Annotated[float, BeforeValidator(parse_energy), _quantity_schema("0.2 pJ")]
EnergyPerByte = Annotated[
    float, BeforeValidator(parse_energy_per_byte), _quantity_schema("4 pJ/bit")
]
Power = Annotated[float, BeforeValidator(parse_power), _quantity_schema("30 mW")]
Area = Annotated[float, BeforeValidator(parse_area), _quantity_schema("0.5 mm2")]
Node = Annotated[float, BeforeValidator(parse_node), _quantity_schema("28 nm")]
Voltage = Annotated[float, BeforeValidator(parse_voltage), _quantity_schema("0.8 V")]
Operations = Annotated[float, BeforeValidator(parse_operations), _quantity_schema("10 GOPS")]


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
