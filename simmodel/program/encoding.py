"""Control words: instructions as a machine packs them, and how many bytes these are.

    command  = opcode, queue, then the fields of the instruction in the order of its class
    field    = number, name (by a table), list (count, then its elements), optional (one bit first)

What is packed follows from the fields of the classes, how from the section `encoding` of a machine:
widths, order, and numbers for names. Bits fill control words from the lowest on; bytes of a word
lie lowest first. A machine without that section has instructions of one size, whatever they hold,
or words of several (`instruction_bytes`); else a word has the bytes of all that are in it.
This is the one owner of that size: fetching, metrics and the compiler's prices ask here.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import count
from typing import Any

from simmodel.arch.dtype import NUMPY
from simmodel.arch.record import Arch
from simmodel.arch.record import Encoding as Packing
from simmodel.isa import HOST, INSTRUCTIONS, Instruction, Item, Loop
from simmodel.isa.forms import Form, forms
from simmodel.isa.region import Address, Operand
from simmodel.program.command_fields import Code, End, ValueType, commands, fields_of, fits
from simmodel.program.expand import Site
from simmodel.program.program import Program

# Which fields the commands of a machine have, by their paths, and what kind of value each holds.

OPCODE = "opcode"
NAMES = (Code.TEXT, Code.VARIABLE)
"""Kinds that are encoded as numbers of names."""
Fields = Mapping[str, Code]
"""Path -> kind of the field; CHOICE: an optional value, whose own fields follow."""


def command_fields(mnemonic: str) -> Fields:
    """The fields of one command, of an instruction or of `loop` and `end`."""
    others: dict[str, Any] = {"loop": Loop, "end": End}
    return _of_class(others.get(mnemonic) or INSTRUCTIONS[mnemonic])


def all_fields() -> Fields:
    """The fields of all commands."""
    return {
        path: code
        for mnemonic in ("loop", "end", *INSTRUCTIONS)
        for path, code in command_fields(mnemonic).items()
    }


@cache
def _of_class(cls: Any) -> Fields:
    return {OPCODE: Code.TEXT, **dict(_of_record(cls, ""))}


def _of_record(cls: Any, prefix: str) -> Iterator[tuple[str, Code]]:
    for name, kind in fields_of(cls).items():
        yield from _of_kind(kind, f"{prefix}{name}")


def _of_kind(kind: ValueType, path: str) -> Iterator[tuple[str, Code]]:
    if kind.code == Code.CHOICE:
        yield path, Code.CHOICE
        yield f"{path}.given", Code.INT
        for part in kind.parts:
            yield from _of_kind(part, path)
    elif kind.code == Code.LIST:
        yield f"{path}.count", Code.INT
        yield from _of_kind(kind.parts[0], path)
    elif kind.code == Code.ROW:
        for number, part in enumerate(kind.parts):
            yield from _of_kind(part, f"{path}.{number}")
    elif kind.code == Code.RECORD:
        yield from _of_record(kind.record, f"{path}.")
    elif kind.code != Code.NONE:
        yield path, kind.code


# Instruction words: neighbours in a stream that are fetched and issued as one.


class Packer:
    """The word under construction."""

    def __init__(self, bundle: int) -> None:
        self.bundle = bundle
        self._engines: set[str] = set()

    def joins(self, instruction: Instruction) -> bool:
        """Add the next instruction of straight-line code to a word; whether it is the same word as
        before."""
        beside = 0 < len(self._engines) < self.bundle and instruction.engine not in self._engines
        self._engines = {*self._engines, instruction.engine} if beside else {instruction.engine}
        return beside

    def end(self) -> None:
        """End the word at the end of straight-line code."""
        self._engines = set()


def joins_previous_word(sites: Sequence[Site], bundle: int) -> list[bool]:
    """Of each site of a stream, whether it is in the same word as the one before."""
    packer, found = Packer(bundle), []
    around: object = ()
    for site in sites:
        if site.repeats or site.loops != around:
            packer.end()
        around = site.loops
        found.append(packer.joins(site.instruction))
        if site.repeats:
            packer.end()
    return found


def words(items: Iterable[Item], bundle: int) -> int:
    """Words of a stream; a loop counts as one, beside those of its body."""
    return _count_words(items, Packer(bundle))


def _count_words(items: Iterable[Item], packer: Packer) -> int:
    count = 0
    for item in items:
        if isinstance(item, Loop):
            count += 1 + _count_words(item.body, Packer(packer.bundle))
            packer.end()
        else:
            count += not packer.joins(item)
    return count


FIXED = 16
"""Bytes of an instruction without any encoding."""
_FUNCTION = "function"
WIDTHS = {
    OPCODE: 8, "engine": 8, "origin": 0, "tile": 0, "*.count": 8, "*.base": 40, "*.memory": 4,
    "*.dtype": 8, "*.shape": 24, "function": 16, "waits.*": 16, "signals.*": 16, "notifies.*": 16,
    "*": 32,
}  # fmt: skip
"""Default bits of fields: the first matching pattern counts."""
ROLES = ("dram", "shared", "local", "weights", "accumulators")


Command = Instruction | Loop | End


@dataclasses.dataclass(frozen=True)
class Misfit:
    """A value that does not fit in its field."""

    field: str
    """Mnemonic and path."""
    reason: str
    amount: float = math.inf
    """Size of the misfit: the largest per field is reported."""


class EncodingError(ValueError):
    """Values that do not fit in the fields of a machine's format, one line for each field."""

    def __init__(self, misfits: Iterable[Misfit]) -> None:
        self.misfits = tuple(misfits)
        worst: dict[str, Misfit] = {}
        for each in self.misfits:
            if each.field not in worst or worst[each.field].amount < each.amount:
                worst[each.field] = each
        super().__init__("\n".join(f"{each.field}: {each.reason}" for each in worst.values()))


@dataclasses.dataclass(frozen=True)
class Packed:
    """One field of a command."""

    path: str
    value: Any
    """An integer, a float or a name."""
    bits: int


class Format:
    """Encoding of commands on one machine."""

    def __init__(self, arch: Arch, packing: Packing) -> None:
        self._word = packing.word
        self._order = packing.order
        self._widths = {**packing.widths, **WIDTHS, **packing.widths}
        self._known: dict[str, int] = {}
        others = [name for name in ("loop", "end", *INSTRUCTIONS) if name not in packing.opcodes]
        free = (number for number in count() if number not in packing.opcodes.values())
        self._opcodes = {**packing.opcodes, **dict(zip(others, free, strict=False))}
        self._numbers: dict[str, Mapping[str, int]] = {
            **packing.numbers,
            "engine": _numbered((*arch.engines(), HOST)),
            "*.memory": _numbered(ROLES),
            "*.dtype": _numbered(NUMPY),
            _FUNCTION: _numbered(functions()),
            **packing.numbers,
        }

    @property
    def codes(self) -> dict[str, dict[str, int]]:
        """Numbers of names, by the fields that hold them; of opcodes by mnemonic."""
        tables = {OPCODE: self._opcodes, **self._numbers}
        return {
            field: dict(sorted(table.items(), key=lambda entry: entry[1]))
            for field, table in tables.items()
        }

    def packed(self, command: Command) -> list[Packed]:
        """The fields of a command, in packing order."""
        name = _mnemonic(command)
        found = [Packed(OPCODE, name, self.width(OPCODE))]
        cls: Any = type(command)
        for field, kind in fields_of(cls).items():
            found += self._fields(getattr(command, field), kind, field)
        first = self._order.get(name, ())
        # The opcode, by which a decoder knows the rest, is first unless it is named.
        fixed = int(OPCODE not in first)
        found[fixed:] = sorted(found[fixed:], key=lambda each: _field_order(each.path, first))
        return found

    def _fields(self, value: Any, kind: ValueType, path: str) -> Iterator[Packed]:
        if kind.code == Code.CHOICE:
            chosen = next(n for n, part in enumerate(kind.parts) if fits(value, part))
            bits = (len(kind.parts) - 1).bit_length() if self.width(path) else 0
            yield Packed(f"{path}.given", chosen, bits)
            yield from self._fields(value, kind.parts[chosen], path)
        elif kind.code == Code.LIST:
            yield Packed(f"{path}.count", len(value), self.width(f"{path}.count"))
            for each in value:
                yield from self._fields(each, kind.parts[0], path)
        elif kind.code == Code.ROW:
            for number, (each, part) in enumerate(zip(value, kind.parts, strict=True)):
                yield from self._fields(each, part, f"{path}.{number}")
        elif kind.code == Code.RECORD:
            cls: Any = type(value)
            for name, part in fields_of(cls).items():
                yield from self._fields(getattr(value, name), part, f"{path}.{name}")
        elif kind.code == Code.FLOAT:
            yield Packed(path, float(value), self.width(path))
        elif kind.code != Code.NONE:
            yield Packed(path, value, self.width(path))

    def width(self, path: str) -> int:
        """Bits of the field at `path`."""
        if path not in self._known:
            found = next(bits for each, bits in self._widths.items() if fnmatchcase(path, each))
            self._known[path] = found
        return self._known[path]

    def size(self, command: Command) -> int:
        """Bytes of a command."""
        bits = sum(each.bits for each in self.packed(command))
        return math.ceil(bits / (8 * self._word)) * self._word

    def bytes(self, command: Command, names: dict[str, int]) -> bytes:
        """A command's control words; names without a table get numbers in `names`.

        Raises:
            EncodingError: a value that its field does not hold.
        """
        whole, at, wrong = 0, 0, list[Misfit]()
        for each in self.packed(command):
            if not each.bits and not (each.value and each.path.endswith(".count")):
                continue  # left out
            field = f"{_mnemonic(command)} {each.path}"
            try:
                whole |= self._encode_value(each, names) << at
            except KeyError:
                there = ", ".join(self._name_table(each.path) or ())
                wrong.append(
                    Misfit(field, f"{each.value} has no number; those of {there} are stated")
                )
            except (OverflowError, struct.error):
                amount, said = math.inf, str(each.value)
                if isinstance(each.value, str):
                    said += f", which is {self._name_number(each, names)},"
                else:
                    amount = abs(each.value)
                wrong.append(Misfit(field, f"{said} in {each.bits} bits", amount))
            at += each.bits
        if wrong:
            raise EncodingError(wrong)
        return whole.to_bytes(math.ceil(at / (8 * self._word)) * self._word, "little")

    def _encode_value(self, field: Packed, names: dict[str, int]) -> int:
        """The bits of a field. Raises OverflowError or struct.error if the value does not fit;
        KeyError if it is a name without a number."""
        value, bits = field.value, field.bits
        if isinstance(value, float):
            if bits not in FLOATS:
                raise OverflowError
            return int.from_bytes(struct.pack(FLOATS[bits], value), "little")
        if isinstance(value, str):
            number, signed = self._name_number(field, names), False
        else:
            number, signed = int(value), not field.path.endswith((".count", ".given"))
        low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
        if not low <= number < high:
            raise OverflowError
        return number & (1 << bits) - 1

    def _name_number(self, field: Packed, names: dict[str, int]) -> int:
        table = self._name_table(field.path)
        return names.setdefault(field.value, len(names)) if table is None else table[field.value]

    def _name_table(self, path: str) -> Mapping[str, int] | None:
        """Numbers of the names in a field; None: numbered as they occur."""
        if path == OPCODE:
            return self._opcodes
        tables = self._numbers.items()
        return next((table for pattern, table in tables if fnmatchcase(path, pattern)), None)


FLOATS = {16: "<e", 32: "<f", 64: "<d"}
"""Struct formats of floats, by their bits."""


def functions() -> tuple[str, ...]:
    """Functions of the vector and scalar engines, by name."""
    found = {name.rpartition(".")[2] for name, form in forms().items() if _FUNCTION in _own(form)}
    return tuple(sorted(found))


def _own(form: Form) -> Mapping[str, Any]:
    """The fields of a form's instruction."""
    cls: Any = form.kind
    return fields_of(cls)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _mnemonic(command: Command) -> str:
    return command.MNEMONIC if isinstance(command, Instruction) else type(command).__name__.lower()


def _field_order(path: str, first: Sequence[str]) -> int:
    """Sort key of a field among those that come first."""
    return next((n for n, each in enumerate(first) if fnmatchcase(path, each)), len(first))


class _Same:
    """A machine, compared by identity."""

    def __init__(self, arch: Arch) -> None:
        self.arch = arch

    def __hash__(self) -> int:
        return id(self.arch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.arch is other.arch


def _format(arch: Arch) -> Format | None:
    """Encoding of commands on a machine; None: all have one size."""
    if arch.encoding is None or arch.front_end.instruction_bytes is not None:
        return None
    return _cached_format(_Same(arch))


@lru_cache(maxsize=4)
def _cached_format(machine: _Same) -> Format:
    return Format(machine.arch, machine.arch.encoding or Packing())


def fetched(arch: Arch, sites: Sequence[Site], beside: Sequence[bool]) -> list[int]:
    """Of each site, the bytes of its word up to and including it; `beside`: whether it is in the
    same word as the one before."""
    word, own = arch.front_end.instruction_bytes, _format(arch)
    if word is not None:
        return [word] * len(sites)
    found: list[int] = []
    for site, joins in zip(sites, beside, strict=True):
        size = FIXED if own is None else own.size(site.instruction)
        found.append(size + (found[-1] if joins else 0))
    return found


def program_bytes(program: Program, arch: Arch) -> int:
    """Bytes of all instruction streams; each loop counts once, and where words have a size of
    their own, each word."""
    return sum(stream_bytes(stream, arch) for stream in program.cores)


def stream_bytes(items: Sequence[Item], arch: Arch) -> int:
    """The same for one stream, or the body of a loop."""
    word, own = arch.front_end.instruction_bytes, _format(arch)
    if word is not None:
        return word * words(items, arch.front_end.bundle)
    if own is None:
        return FIXED * words(items, 1)
    return sum(own.size(each) for each in commands(items))


def typical_bytes(arch: Arch, form: str, rank: int) -> int:
    """Bytes of an instruction of this form whose operands have `rank` dimensions; of a word, if
    words have a fixed size."""
    if _format(arch) is None:
        return arch.front_end.instruction_bytes or FIXED
    return _typical(_Same(arch), form, rank)


@lru_cache(maxsize=1 << 10)
def _typical(machine: _Same, form: str, rank: int) -> int:
    cls: Any = forms()[form].kind
    operand = Operand("local", Address(0), (1,) * rank, (1,) * rank, "int8")
    given: dict[str, Any] = {
        field.name: operand if kind == _OPERAND else _LEAST.get(kind.code, ())
        for field in dataclasses.fields(cls)
        for kind in [fields_of(cls)[field.name]]
        if field.default is field.default_factory is dataclasses.MISSING
    }
    return _cached_format(machine).size(cls(**given))


_OPERAND = ValueType(Code.RECORD, (), Operand)
_LEAST = {Code.INT: 0, Code.BOOL: False, Code.FLOAT: 0.0, Code.TEXT: ""}


def codes(arch: Arch) -> dict[str, dict[str, int]]:
    """Numbers of names in the control words of `arch`: field -> name -> number.

    Fields are `opcode`, `engine`, `*.memory`, `*.dtype`, `function`, and those numbered by the
    section `encoding`; a path belongs to the first matching pattern.
    """
    return _cached_format(_Same(arch)).codes


def check_encodable(program: Program, arch: Arch) -> None:
    """Return nothing if all of `program` fits in the fields of the format that `arch` states.

    Raises:
        EncodingError: some do not.
    """
    if arch.encoding is not None:
        control_words(program, arch)


def control_words(
    program: Program, arch: Arch
) -> tuple[list[list[tuple[Command, bytes]]], dict[str, int]]:
    """Per core its commands with their control words, in the format that `arch` states, else in the
    derived one; and the numbers of names without a table.

    Raises:
        EncodingError: fields that do not hold what the program needs.
    """
    own, names = _cached_format(_Same(arch)), dict[str, int]()
    found, wrong = list[list[tuple[Command, bytes]]](), list[Misfit]()
    for stream in program.cores:
        found.append([])
        for command in commands(stream):
            try:
                found[-1].append((command, own.bytes(command, names)))
            except EncodingError as mistake:
                wrong += mistake.misfits
    if wrong:
        raise EncodingError(wrong)
    return found, names
