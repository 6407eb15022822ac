"""Control words: instructions as a machine packs them, and how many bytes these are.

What is packed follows from the fields of the classes (`simmodel.program.command_fields`), how from
the section `encoding` of a machine: widths, order, and numbers for names. Bits fill control words
from the lowest on; bytes of a word lie lowest first. A machine without that section has
instructions of one size, whatever they hold, or words of several (`instruction_bytes`); else a word
has the bytes of all that are in it. This is the one owner of that size: fetching, metrics and the
compiler's prices ask here.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simmodel.arch.base import Latest
from simmodel.arch.dtype import NUMPY
from simmodel.arch.memories import ROLES
from simmodel.arch.record import INSTRUCTION_BYTES, Arch
from simmodel.arch.record import Encoding as Packing
from simmodel.isa import HOST, INSTRUCTIONS, Instruction, Item, Loop
from simmodel.isa.forms import forms
from simmodel.isa.region import Address, Operand
from simmodel.program.command_fields import (
    OPCODE,
    Code,
    Command,
    ValueType,
    commands,
    fields_of,
    values_of,
)
from simmodel.program.expand import Expansion, Site
from simmodel.program.program import Program

# Instruction words: neighbours in a stream that are fetched and issued as one.


def _shares_word(engines: Iterable[str | None], bundle: int) -> Iterator[bool]:
    """Of each instruction's engine, whether it is in the same word as the one before; None ends
    straight-line code."""
    word: set[str] = set()
    for engine in engines:
        if engine is None:
            word = set()
            continue
        beside = 0 < len(word) < bundle and engine not in word
        word = {*word, engine} if beside else {engine}
        yield beside


def joins_previous_word(sites: Sequence[Site], bundle: int) -> list[bool]:
    """Of each site of a stream, whether it is in the same word as the one before."""
    engines: list[str | None] = []
    around: object = ()
    for site in sites:
        engines += [None] if site.repeats or site.loops != around else []
        engines += [site.instruction.engine, *([None] if site.repeats else [])]
        around = site.loops
    return list(_shares_word(engines, bundle))


def words(items: Sequence[Item], bundle: int) -> int:
    """Words of a stream; a loop counts as one, beside those of its body."""
    engines = [None if isinstance(item, Loop) else item.engine for item in items]
    loops = [1 + words(item.body, bundle) for item in items if isinstance(item, Loop)]
    return sum(loops) + sum(not beside for beside in _shares_word(engines, bundle))


WIDTHS = {
    OPCODE: 8, "engine": 8, "origin": 0, "tile": 0, "table.count": 0, "*.count": 8,
    "*.base": 40, "*.memory": 4, "*.dtype": 8, "*.shape": 24, "function": 16, "waits.*": 16,
    "signals.*": 16, "notifies.*": 16, "*": 32,
}  # fmt: skip
"""Default bits of fields: the first matching pattern counts."""
FLOATS = {16: "<e", 32: "<f", 64: "<d"}
"""Struct formats of floats, by their bits."""
Misfits = dict[str, tuple[float, str]]
"""Mnemonic and path of a field -> the largest value that it does not hold, and the reason."""


class EncodingError(ValueError):
    """Values that do not fit in the fields of a machine's format, one line for each field."""


class Format:
    """Encoding of commands on one machine."""

    def __init__(self, arch: Arch, packing: Packing) -> None:
        self._word = packing.word
        self._order = packing.order
        # Fields of what arrays add are in the formats of machines whose arrays do.
        adds = any("add" in array.writeback for array in arch.arrays.values())
        late = {"added": int(adds), "middle.count": 2 * adds}
        self._widths = {**packing.widths, **late, **WIDTHS, **packing.widths}
        self._known: dict[str, int] = {}
        self.typical: dict[tuple[str, int], int] = {}
        """What `typical_bytes` has said, by form and rank."""
        others = [name for name in ("loop", "end", *INSTRUCTIONS) if name not in packing.opcodes]
        free = (number for number in count() if number not in packing.opcodes.values())
        opcodes = {**packing.opcodes, **dict(zip(others, free, strict=False))}
        self.names = {
            "engine": (*arch.engines(), HOST), "*.memory": ROLES, "*.dtype": tuple(NUMPY),
            "function": functions(),
        }  # fmt: skip
        """What may stand in fields that hold some of a few names."""
        numbered = {field: {n: i for i, n in enumerate(each)} for field, each in self.names.items()}
        self.tables: dict[str, Mapping[str, int]] = {
            OPCODE: opcodes, **packing.numbers, **numbered, **packing.numbers
        }  # fmt: skip
        """Numbers of names, by the fields that hold them; of opcodes by mnemonic."""

    def width(self, path: str) -> int:
        """Bits of the field at `path`."""
        if path not in self._known:
            if path.endswith(".given"):
                self._known[path] = min(1, self.width(path.removesuffix(".given")))
            else:
                widths = self._widths.items()
                self._known[path] = next(bits for each, bits in widths if fnmatchcase(path, each))
        return self._known[path]

    def packed(self, command: Command) -> list[tuple[str, Any, int]]:
        """Path, value and bits of the fields of a command, in packing order."""
        name = _mnemonic(command)
        found: list[tuple[str, Any, int]] = [(OPCODE, name, self.width(OPCODE))]
        for path, code, value in values_of(command):
            if code is not Code.OPTIONAL:
                number = float(value) if code is Code.FLOAT else value
                found.append((path, number, self.width(path)))
        first = self._order.get(name, ())

        def place(field: tuple[str, Any, int]) -> int:
            return next(
                (n for n, each in enumerate(first) if fnmatchcase(field[0], each)), len(first)
            )

        # The opcode, by which a decoder knows the rest, is first unless it is named.
        fixed = int(OPCODE not in first)
        return found[:fixed] + sorted(found[fixed:], key=place) if first else found

    def size(self, command: Command) -> int:
        """Bytes of a command."""
        bits = sum(bits for _, _, bits in self.packed(command))
        return math.ceil(bits / (8 * self._word)) * self._word

    def bytes(self, command: Command, names: dict[str, int], wrong: Misfits) -> bytes:
        """A command's control words; names without a table get numbers in `names`, and what no
        field holds is noted in `wrong`."""
        whole = at = 0
        for path, value, bits in self.packed(command):
            if not bits and not (value and path.endswith(".count")):
                continue  # left out
            number, amount, said = self._number(path, value, bits, names)
            if said:
                field = f"{_mnemonic(command)} {path}"
                wrong[field] = max(wrong.get(field, (-1.0, "")), (amount, said), key=lambda w: w[0])
            whole |= number << at
            at += bits
        return whole.to_bytes(math.ceil(at / (8 * self._word)) * self._word, "little")

    def _number(
        self, path: str, value: Any, bits: int, names: dict[str, int]
    ) -> tuple[int, float, str]:
        """The bits of a field; and if they do not hold the value, its amount and the reason."""
        if isinstance(value, float):
            try:
                return int.from_bytes(struct.pack(FLOATS[bits], value), "little"), 0.0, ""
            except (KeyError, OverflowError):
                return 0, abs(value), f"{value} in {bits} bits"
        low, high = 0, 1 << bits
        if isinstance(value, str):
            table = self._table(path)
            if table is not None and value not in table:
                there = ", ".join(table)
                return 0, math.inf, f"{value} has no number; those of {there} are stated"
            number = names.setdefault(value, len(names)) if table is None else table[value]
            amount, said = math.inf, f"{value}, which is {number}, in {bits} bits"
        else:
            number, amount, said = int(value), abs(value), f"{value} in {bits} bits"
            if not path.endswith((".count", ".given")):
                low, high = -(1 << bits - 1), 1 << bits - 1
        return (number & (1 << bits) - 1, 0.0, "") if low <= number < high else (0, amount, said)

    def _table(self, path: str) -> Mapping[str, int] | None:
        """Numbers of the names in a field; None: numbered as they occur."""
        tables = self.tables.items()
        return next((table for pattern, table in tables if fnmatchcase(path, pattern)), None)


def functions() -> tuple[str, ...]:
    """Functions of the vector and scalar engines, by name."""
    kinds: Iterable[tuple[str, Any]] = ((name, form.kind) for name, form in forms().items())
    return tuple(
        sorted({n.rpartition(".")[2] for n, kind in kinds if "function" in fields_of(kind)})
    )


def _mnemonic(command: Command) -> str:
    return command.MNEMONIC if isinstance(command, Instruction) else type(command).__name__.lower()


def _format(arch: Arch) -> Format | None:
    """Encoding of commands on a machine; None: all have one size."""
    if arch.encoding is None or arch.front_end.instruction_bytes is not None:
        return None
    return format_of(arch)


format_of = Latest[Arch, Format](lambda arch: Format(arch, arch.encoding or Packing()), 4)
"""The format that a machine states, else the derived one."""


def fetched(arch: Arch, sites: Sequence[Site], beside: Sequence[bool]) -> list[int]:
    """Of each site, the bytes of its word up to and including it; `beside`: whether it is in the
    same word as the one before."""
    word, own = arch.front_end.instruction_bytes, _format(arch)
    if word is not None:
        return [word] * len(sites)
    found: list[int] = []
    for site, joins in zip(sites, beside, strict=True):
        size = INSTRUCTION_BYTES if own is None else own.size(site.instruction)
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
        return INSTRUCTION_BYTES * words(items, 1)
    return sum(own.size(each) for each in commands(items))


def typical_bytes(arch: Arch, form: str, rank: int) -> int:
    """Bytes of an instruction of this form whose operands have `rank` dimensions; of a word, if
    words have a fixed size."""
    if _format(arch) is None:
        return arch.front_end.instruction_bytes or INSTRUCTION_BYTES
    known = format_of(arch).typical
    if (form, rank) not in known:
        known[form, rank] = _typical(arch, form, rank)
    return known[form, rank]


def _typical(arch: Arch, form: str, rank: int) -> int:
    cls: Any = forms()[form].kind
    operand = Operand("local", Address(0), (1,) * rank, (1,) * rank, "int8")
    given: dict[str, Any] = {
        field.name: operand if kind == _OPERAND else _LEAST.get(kind.code, ())
        for field in dataclasses.fields(cls)
        for kind in [fields_of(cls)[field.name]]
        if field.default is field.default_factory is dataclasses.MISSING
    }
    return format_of(arch).size(cls(**given))


_OPERAND = ValueType(Code.RECORD, (), Operand)
_LEAST = {Code.INT: 0, Code.FLOAT: 0.0, Code.TEXT: ""}


def codes(arch: Arch) -> dict[str, dict[str, int]]:
    """Numbers of names in the control words of `arch`: field -> name -> number.

    Fields are `opcode`, `engine`, `*.memory`, `*.dtype`, `function`, and those numbered by the
    section `encoding`; a path belongs to the first matching pattern.
    """
    tables = format_of(arch).tables
    return {
        field: dict(sorted(table.items(), key=lambda entry: entry[1]))
        for field, table in tables.items()
    }


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
    own, names, wrong = format_of(arch), dict[str, int](), Misfits()
    found = [
        [(command, own.bytes(command, names, wrong)) for command in commands(stream)]
        for stream in program.cores
    ]
    if wrong:
        raise EncodingError("\n".join(f"{field}: {said}" for field, (_, said) in wrong.items()))
    return found, names


# Loop buffer: which instructions a front end need not fetch again.
#
#     loop_buffer 64 B, instructions of 16 B          fetched               in the buffer
#       a                                             a
#       loop t 3:  b  c                               b c                   b c  b c
#       loop s 2:  d  e  f  g  h                      d e f g h  d e f g h
#
# If a loop's whole body fits, later iterations fetch nothing; if not, every iteration fetches all
# of it, as the one before leaves only the end of the body in the buffer.


def at_hand(items: Sequence[Item], stream: Expansion, arch: Arch) -> NDArray[np.bool_]:
    """Whether each occurrence in `stream`, the expansion of `items`, needs no fetch; of a site that
    repeats, whether its first turn needs none."""
    flags, size = np.zeros(len(stream.order), np.bool_), arch.front_end.loop_buffer
    if size is None:
        return flags
    sites = zip(stream.sites, _loops_that_fit(items, (), arch, size), strict=True)
    for number, (site, fits) in enumerate(sites):
        turns = np.indices([count for _, count in site.loops])
        later = [turn.ravel() > 0 for turn, fit in zip(turns, fits, strict=False) if fit]
        if later:
            flags[stream.order == number] = np.any(later, axis=0)
    return flags


def _loops_that_fit(
    items: Iterable[Item], around: tuple[bool, ...], arch: Arch, size: int
) -> Iterator[tuple[bool, ...]]:
    """Of each instruction, which of the loops around it the buffer holds; those around a single one
    count as one loop."""
    for item in items:
        if not isinstance(item, Loop):
            yield around
            continue
        inner, loops = item.body, 1
        while len(inner) == 1 and isinstance(inner[0], Loop):
            inner, loops = inner[0].body, loops + 1
        if len(inner) == 1:
            yield (*around, *[stream_bytes(inner, arch) <= size] * loops)
        else:
            fits = stream_bytes(item.body, arch) <= size
            yield from _loops_that_fit(item.body, (*around, fits), arch, size)
