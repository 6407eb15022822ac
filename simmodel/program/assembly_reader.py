"""Reads assembly: lines to the dataclass that each names, blocks by indentation.

The grammar is on the front page of `simmodel.program.assembly`. The fields of a class say which
values they take, so nothing here knows any particular instruction.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from simmodel.arch.dtype import NAMES, NUMPY
from simmodel.isa import INSTRUCTIONS, Instruction, Item, Loop
from simmodel.isa.region import Register
from simmodel.program.assembly_line import (
    DEPTH,
    AssemblyLine,
    ParseError,
    place,
    typed_shape,
    value,
)
from simmodel.program.program import Buffer, Constant, Demand, Origin, Port, Program, TileKind

Data = Mapping[str, NDArray[Any]]
"""Data of constants by name."""
Opened = Callable[[str], Data]
APART = frozenset({"engine", "waits", "signals", "notifies", "origin", "tile"})
"""Fields of instructions with a syntax of their own in the line."""


@dataclasses.dataclass(frozen=True)
class Header:
    """Fields of a program's first line."""

    name: str
    arch: str
    macs: int = 0


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """Type of each field."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


@cache
def _test(hint: Any) -> Callable[[Any], bool]:
    """Whether a value is of the type `hint`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        tests = tuple(map(_test, parts))
        return lambda given: any(test(given) for test in tests)
    if origin is tuple and parts[-1] is Ellipsis:
        each = _test(parts[0])
        return lambda given: isinstance(given, tuple) and all(map(each, given))
    if origin is tuple:
        tests = tuple(map(_test, parts))
        return lambda given: (
            isinstance(given, tuple)
            and len(given) == len(tests)
            and all(test(value) for test, value in zip(tests, given, strict=True))
        )
    return lambda given: isinstance(given, (int, float) if hint is float else hint)


@cache
def _needed(cls: Any) -> tuple[str, ...]:
    """Fields without a default."""
    return tuple(
        field.name
        for field in dataclasses.fields(cls)
        if field.default is field.default_factory is dataclasses.MISSING
    )


def _fields(line: AssemblyLine, cls: type, stop: tuple[str, ...] = ()) -> dict[str, Any]:
    """`name=value` pairs for fields of `cls`."""
    hints, found = _hints(cls), {}
    while line.kind == "name" and line.next not in stop:
        field = line.next
        if field not in hints or field in found or field in APART:
            raise line.error(f"another field of {cls.__name__}")
        line.at += 1
        line.expect("=")
        start = line.at
        found[field] = value(line)
        if not _test(hints[field])(found[field]):
            line.at = start
            kind = getattr(hints[field], "__name__", hints[field])
            raise line.error(f"{kind} for {field}")
    return found


def _build(line: AssemblyLine, cls: Any, values: dict[str, Any]) -> Any:
    line.finish()
    missing = [name for name in _needed(cls) if name not in values]
    if missing:
        raise line.error(f"{', '.join(f'{name}=' for name in missing)} for {cls.__name__}")
    return cls(**values)


def _counted(line: AssemblyLine, word: str) -> tuple[tuple[str, int], ...]:
    if not line.accept(word):
        return ()
    found = [(line.name("a token"), line.integer("a count"))]
    while line.accept(","):
        found.append((line.name("a token"), line.integer("a count")))
    return tuple(found)


def _noticed(line: AssemblyLine) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    if not line.accept("notify"):
        return ()
    found = [_notice(line)]
    while line.accept(","):
        found.append(_notice(line))
    return tuple(found)


def _notice(line: AssemblyLine) -> tuple[str, int, tuple[int, ...]]:
    name, count, cores = line.name("a token"), line.integer("a count"), place(line)
    if not cores:
        raise line.error("the cores of the token, as in @1 or @{1,2}")
    return name, count, cores


def _parse_instruction(line: AssemblyLine) -> Instruction:
    mnemonic = line.take("name", "an instruction")
    if mnemonic not in INSTRUCTIONS:
        line.at -= 1
        raise line.error(f"loop, {', '.join(INSTRUCTIONS)}")
    cls = INSTRUCTIONS[mnemonic]
    engine = line.name("an engine")
    values = _fields(line, cls, ("wait", "signal", "notify"))
    values |= {"waits": _counted(line, "wait"), "signals": _counted(line, "signal")}
    values["notifies"] = _noticed(line)
    values["origin"] = line.integer("an origin") if line.accept("!") else 0
    values["tile"] = line.integer("a tile") if line.accept("/") else -1
    instruction: Instruction = _build(line, cls, {"engine": engine, **values})
    return instruction


class _Reader:
    """Reads a text line by line, one line ahead."""

    def __init__(self, text: str) -> None:
        self._lines = (AssemblyLine(n, row) for n, row in enumerate(text.split("\n"), 1))
        self.next: AssemblyLine | None = None
        self.advance()

    def advance(self) -> None:
        """Advance to the next line that is not blank."""
        self.next = next((line for line in self._lines if line.next), None)

    def block(self, indent: int, depth: int = 0) -> tuple[Item, ...]:
        """Items of all following lines that are indented by at least `indent`, in `depth` loops."""
        items: list[Item] = []
        level = None
        while (line := self.next) is not None and line.indent >= indent:
            level = line.indent if level is None else level
            if line.indent != level:
                raise line.error(f"an indentation of {level} spaces, not {line.indent}")
            items.append(self.item(line, depth))
        return tuple(items)

    def item(self, line: AssemblyLine, depth: int = 0) -> Item:
        self.advance()
        if depth == DEPTH and line.next == "loop":
            raise line.error(f"at most {DEPTH} loops inside of each other")
        if not line.accept("loop"):
            return _parse_instruction(line)
        variable, count = line.name("a loop variable"), line.integer("a count")
        line.finish()
        return Loop(variable, count, self.block(line.indent + 1, depth + 1))


def parse_item(text: str) -> Item:
    """The instruction or loop that `text` holds.

    Raises:
        ParseError: with line, column and what was expected.
    """
    reader = _Reader(text)
    if reader.next is None:
        raise ParseError(1, 1, "expected an instruction or a loop")
    item = reader.item(reader.next)
    if reader.next is not None:
        raise reader.next.error("the end of the text")
    return item


def parse_items(text: str) -> tuple[Item, ...]:
    """The instructions and loops that `text` holds. Raises as `parse_item`."""
    reader, found = _Reader(text), []
    while reader.next is not None:
        found.append(reader.item(reader.next))
    return tuple(found)


class _ProgramReader:
    """Collects the records of a program, in the order of the text."""

    def __init__(self, text: str, constants: Data | None, opened: Opened | None) -> None:
        self.reader, self.data = _Reader(text), constants or {}
        self.opened = opened
        self.values: dict[str, Any] = {}
        names = "registers cores tokens constants buffers inputs outputs origins tiles payloads"
        self.lists: dict[str, list[Any]] = {name: [] for name in names.split()}
        self.barriers: dict[str, int] = {}
        self.seen: set[str] = set()

    def read(self) -> Program:
        line = self.reader.next
        if line is None:
            raise ParseError(1, 1, "expected a program")
        line.expect("program")
        self.values = _fields(line, Header)
        line.finish()
        self.reader.advance()
        while (line := self.reader.next) is not None:
            self.record(line)
        missing = [name for name in ("name", "arch") if name not in self.values]
        if missing:
            raise ParseError(1, 1, f"expected {missing[0]}= for the program")
        lists = {name: tuple(found) for name, found in self.lists.items()}
        return Program(**(self.values | lists), barriers=self.barriers)

    def record(self, line: AssemblyLine) -> None:
        kinds = {
            "register": Register,
            "origin": Origin,
            "tile": TileKind,
            "buffer": Buffer,
            "input": Port,
            "output": Port,
        }
        word = line.take("name", "a record")
        self.reader.advance()
        if word in kinds:
            built = _build(line, kinds[word], _fields(line, kinds[word]))
            self.lists[f"{word}s"].append(built)
        elif word == "demand":
            self.once(line, word)
            self.values["demand"] = _build(line, Demand, _fields(line, Demand))
        elif word == "barrier":
            self.barriers |= [_new(line, "a barrier", self.barriers)]
        elif word == "token":
            if not self.lists["tokens"]:
                raise line.error("a core before its tokens, so not")
            self.lists["tokens"][-1] |= [_new(line, "a token", self.lists["tokens"][-1])]
        elif word == "payload":
            self.lists["payloads"].append(_payload(line))
        elif word == "constants":
            self.once(line, word)
            name = line.string("the name of a file in quotes")
            self.data = self.data if self.opened is None else self.opened(name)
        elif word == "constant":
            self.lists["constants"].append(_parse_constant(line, self.data))
        elif word == "core":
            self.core(line)
        else:
            line.at -= 1
            raise line.error(
                f"{', '.join(kinds)}, demand, barrier, payload, constants, constant, core or token"
            )
        line.finish()

    def once(self, line: AssemblyLine, word: str) -> None:
        if word in self.seen:
            line.at -= 1
            raise line.error(f"one line of {word}, there is one before")
        self.seen.add(word)

    def core(self, line: AssemblyLine) -> None:
        number = line.integer("a core")
        if number != len(self.lists["cores"]):
            line.at -= 1
            raise line.error(f"core {len(self.lists['cores'])}")
        self.lists["tokens"].append({})
        while (record := self.reader.next) is not None and record.next == "token":
            self.record(record)
        self.lists["cores"].append(self.reader.block(line.indent + 1))


def _new(line: AssemblyLine, what: str, known: Mapping[str, int]) -> tuple[str, int]:
    """A new name, not among the `known`, with a count."""
    name = line.name(what)
    if name in known:
        line.at -= 1
        raise line.error(f"{what} that is not there yet")
    return name, line.integer("a count")


def _payload(line: AssemblyLine) -> bytes:
    text = line.string("a payload in base64")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        line.at -= 1
        raise line.error("a payload in base64") from error


def digest(data: NDArray[Any]) -> str:
    """Hash of an array's bytes, short enough to read."""
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:16]


def _parse_constant(line: AssemblyLine, data: Data) -> Constant:
    start = line.at
    name, address = line.name("a constant"), line.integer("an address")
    dtype, shape = typed_shape(line)
    line.expect("used")
    used = line.integer("a number of bytes")
    line.expect("hash")
    expected = line.string("a hash")
    if name not in data:
        line.at = start
        raise line.error("a constant whose data is given")
    raw = np.ascontiguousarray(data[name])
    if raw.dtype != NUMPY[dtype] and raw.dtype.itemsize == NUMPY[dtype].itemsize:
        raw = raw.view(NUMPY[dtype])  # archives forget the types that numpy does not have
    if raw.shape != shape or raw.dtype != NUMPY[dtype] or digest(raw) != expected:
        line.at = start
        kind = NAMES.get(raw.dtype, str(raw.dtype))
        given = f"{kind}{list(raw.shape)} with hash {digest(raw)}"
        raise line.error(f"{dtype}{list(shape)} with hash {expected}, given {given}, for")
    return Constant(name, address, raw, used)


def parse_program(
    text: str, constants: Data | None = None, opened: Opened | None = None
) -> Program:
    """The program that `text` holds.

    Args:
        text: as printed by `simmodel.program.assembly.print_program`.
        constants: data of its constants by name (`simmodel.program.assembly.constant_data`).
        opened: gives such data for the name of the file that the text says it is kept in.

    Raises:
        ParseError: with line, column and what was expected; and what `opened` raises.
    """
    return _ProgramReader(text, constants, opened).read()
