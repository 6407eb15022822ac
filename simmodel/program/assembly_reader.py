"""Reads assembly: tokens to values, lines to the dataclass that each names, blocks by indentation.

The grammar is on the front page of `simmodel.program.assembly`. A value's form alone tells its
type, and the fields of a class say which values they take, so nothing here knows any particular
instruction.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from string import ascii_letters
from typing import Any, ClassVar, TypeVar

import numpy as np

import simmodel.program.program as program
from simmodel.arch.dtype import NAMES, NUMPY
from simmodel.arch.lazy_array import AnyArray
from simmodel.isa import INSTRUCTIONS, Instruction, Item, Loop
from simmodel.isa.region import Address, Limit, Operand, Register, Ring, Terms, contiguous
from simmodel.program.command_fields import fields_of, fits

T = TypeVar("T")
Data = Mapping[str, AnyArray]
"""Data of constants by name."""
Opened = Callable[[str], Data]
WORDS = {"inf": float("inf"), "nan": float("nan"), "none": None}
"""Bare words with a value."""
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
"""Names that need no quotes."""
DIGITS = 250
"""Most digits of a number: a float holds all with so many, hexadecimal ones too."""
DEPTH = 16
"""Most nested lists, and most nested loops."""
APART = frozenset({"engine", "waits", "signals", "notifies", "origin", "tile"})
"""Fields of instructions with a syntax of their own in the line."""
RECORDS: dict[str, Any] = {
    "register": Register, "origin": program.Origin, "tile": program.TileKind,
    "buffer": program.Buffer, "input": program.Port, "output": program.Port,
    "demand": program.Demand,
}  # fmt: skip
"""Records of a program, each a line with the fields of its class."""
_TOKEN = (
    r'"(?:[^"\\]|\\.)*"'
    r"|0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
    rf"|{PLAIN.pattern}|[^ \t]"
)
_KINDS = {
    "": "end",
    '"': "string",
    **dict.fromkeys("0123456789", "number"),
    **dict.fromkeys("_" + ascii_letters, "name"),
}
"""Kind of a token by its first character; all others are marks."""


class ParseError(ValueError):
    """Text that is not assembly; the message starts with line:column."""

    def __init__(self, line: int, column: int, message: str) -> None:
        self.line, self.column, self.message = line, column, message
        super().__init__(f"{line}:{column}: {message}")


@cache
def _tokens(comment: str) -> re.Pattern[str]:
    return re.compile(rf"{comment}.*|{_TOKEN}")


class AssemblyLine:
    """The tokens of one line, and the reading position."""

    COMMENT: ClassVar[str] = ";"
    """What begins one."""

    def __init__(self, number: int, text: str) -> None:
        self.number, self._text = number, text
        self._tokens: list[str] = _tokens(self.COMMENT).findall(text)
        if self._tokens and self._tokens[-1].startswith(self.COMMENT):
            self._tokens.pop()
        self._tokens.append("")
        self.at = 0

    @property
    def indent(self) -> int:
        """Spaces before the first token."""
        return len(self._text) - len(self._text.lstrip(" "))

    @property
    def next(self) -> str:
        """The next token, empty at the end."""
        return self._tokens[self.at]

    @property
    def token_kind(self) -> str:
        """What the next token is: a name, number, string or mark, or the end."""
        return _KINDS.get(self._tokens[self.at][:1], "mark")

    def error(self, expected: str, at: int | None = None) -> ParseError:
        """The error for a token, the next one or number `at`, that is not the `expected` one."""
        at = self.at if at is None else at
        starts = [token.start() for token in _tokens(self.COMMENT).finditer(self._text)]
        column = 1 + (starts[at] if self._tokens[at] else len(self._text))
        found = self._tokens[at] or "end of line"
        return ParseError(self.number, column, f"expected {expected}, found {found!r}")

    def accept(self, text: str) -> bool:
        """Skip `text` if it is next."""
        if self._tokens[self.at] != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(repr(text))

    def take(self, kind: str, expected: str) -> str:
        token = self._tokens[self.at]
        if _KINDS.get(token[:1], "mark") != kind:
            raise self.error(expected)
        self.at += 1
        return token

    def followed_by(self, text: str) -> bool:
        """Whether the token after the next is `text`."""
        return self._tokens[self.at : self.at + 2][1:] == [text]

    def finish(self) -> None:
        if self._tokens[self.at]:
            raise self.error("the end of the line")

    def name(self, expected: str = "a name") -> str:
        """A bare or quoted name."""
        return self.string(expected) if self.token_kind == "string" else self.take("name", expected)

    def string(self, expected: str) -> str:
        try:
            return str(json.loads(self.take("string", expected)))
        except json.JSONDecodeError as error:
            raise self.error("a string with valid escapes", self.at - 1) from error

    def number_value(self, expected: str) -> int | float:
        """A number with its sign."""
        sign = -1 if self.accept("-") else 1
        text = self._tokens[self.at]
        if text in ("inf", "nan"):
            return sign * float(self.take("name", expected))
        self.take("number", expected)
        if len(text) > DIGITS:
            raise self.error(f"at most {DIGITS} digits", self.at - 1)
        if text.isdigit():
            return sign * int(text)
        return sign * (int(text, 16) if text[:2] in ("0x", "0X") else float(text))

    def integer(self, expected: str = "a whole number") -> int:
        number = self.number_value(expected)
        if not isinstance(number, int):
            raise self.error(expected, self.at - 1)
        return number

    def items(self, end: str, item: Callable[[AssemblyLine], T]) -> tuple[T, ...]:
        """What `item` reads, separated by commas, up to `end`."""
        found: list[T] = []
        while not self.accept(end):
            if found:
                self.expect(",")
            found.append(item(self))
        return tuple(found)

    def items_after(self, word: str, item: Callable[[AssemblyLine], T]) -> tuple[T, ...]:
        """What `item` reads, separated by commas, if `word` is next."""
        found: list[T] = []
        while self.accept("," if found else word):
            found.append(item(self))
        return tuple(found)


def value(line: AssemblyLine, depth: int = 0) -> Any:
    """Number, name, string, operand, or a list of values in parentheses, inside of `depth`."""
    if depth < DEPTH and line.accept("("):
        return line.items(")", lambda inner: value(inner, depth + 1))
    if line.token_kind == "string":
        return line.string("a string")
    if line.token_kind == "name":
        if line.followed_by("["):
            return _parse_operand(line)
        word = line.take("name", "a value")
        return WORDS.get(word, word)
    return line.number_value("a value")


def _parse_operand(line: AssemblyLine) -> Operand:
    memory = line.name("a memory")
    line.expect("[")
    address = Address(*_linear(line, "]", rings=True))
    line.expect("]")
    line.expect(":")
    start = line.at
    dtype, shape = _typed_shape(line)
    strides = contiguous(shape, NUMPY[dtype].itemsize)
    if line.accept("/"):
        line.expect("{")
        strides = line.items("}", AssemblyLine.integer)
        if len(strides) != len(shape):
            raise line.error(f"{len(strides)} extents, one for each stride", start)
    scale = float(line.number_value("a scale")) if line.accept("*") else None
    zero = line.integer() if line.accept("+") or line.next == "-" else 0
    limits: tuple[Limit, ...] = ()
    if line.accept("?"):
        line.expect("{")
        limits = line.items("}", lambda inner: _limit(inner, len(shape)))
    return Operand(memory, address, shape, strides, dtype, scale, zero, _place(line), limits)


def _limit(line: AssemblyLine, rank: int) -> Limit:
    """`0: 64 + seq + -8*t` or `none: seq` of an operand with `rank` dimensions."""
    start, expected = line.at, f"a dimension below {rank}, or none"
    axis = None if line.accept("none") else line.integer(expected)
    if axis is not None and not 0 <= axis < rank:
        raise line.error(expected, start)
    line.expect(":")
    base, terms, _ = _linear(line, ",}")
    return Limit(axis, base, terms)


def _typed_shape(line: AssemblyLine) -> tuple[str, tuple[int, ...]]:
    """`int8[4, 16]` and the like."""
    dtype = line.name("an element type")
    if dtype not in NUMPY:
        raise line.error(f"one of {', '.join(NUMPY)}", line.at - 1)
    line.expect("[")
    return dtype, line.items("]", AssemblyLine.integer)


def _place(line: AssemblyLine) -> tuple[int, ...]:
    """`@2`, `@{0,1}`; empty if no cores are named."""
    if not line.accept("@"):
        return ()
    return line.items("}", AssemblyLine.integer) if line.accept("{") else (line.integer("a core"),)


def _linear(line: AssemblyLine, ends: str, rings: bool = False) -> tuple[int, Terms, Ring | None]:
    """A sum of numbers, factor * variable, and at most one ring, up to one of `ends`."""
    base, terms, ring = 0, [], None
    while True:
        sign = -1 if line.accept("-") else 1
        if rings and ring is None and line.next == "ring" and line.followed_by("("):
            ring = _ring(line)
        elif line.token_kind in ("name", "string"):
            terms.append((line.name("a loop variable"), sign))
        else:
            number = sign * line.integer("a number, a loop variable or a ring")
            if line.accept("*"):
                terms.append((line.name("a loop variable"), number))
            else:
                base += number
        if line.next and line.next in ends:
            return base, tuple(terms), ring
        if line.next != "-" and not line.accept("+"):
            raise line.error(f"'+', '-' or {' or '.join(map(repr, ends))}")


def _ring(line: AssemblyLine) -> Ring:
    line.expect("ring")
    line.expect("(")
    slots = line.integer("the number of slots")
    line.expect(",")
    pitch = line.integer("the bytes from slot to slot")
    line.expect(",")
    offset, terms, _ = _linear(line, ")")
    line.expect(")")
    return Ring(slots, pitch, offset, terms)


@cache
def _needed(cls: Any) -> tuple[str, ...]:
    """Fields without a default."""
    missing = dataclasses.MISSING
    every = dataclasses.fields(cls)
    return tuple(f.name for f in every if f.default is f.default_factory is missing)


def _fields(line: AssemblyLine, cls: Any, stop: tuple[str, ...] = ()) -> dict[str, Any]:
    """`name=value` pairs for fields of `cls`."""
    kinds, found = fields_of(cls), dict[str, Any]()
    while line.token_kind == "name" and line.next not in stop:
        field = line.next
        if field not in kinds or field in found or field in APART:
            raise line.error(f"another field of {cls.__name__}")
        line.at += 1
        line.expect("=")
        start = line.at
        found[field] = value(line)
        if not fits(found[field], kinds[field]):
            raise line.error(f"{kinds[field]} for {field}", start)
    return found


def _build(line: AssemblyLine, cls: Any, values: dict[str, Any]) -> Any:
    line.finish()
    missing = [name for name in _needed(cls) if name not in values]
    if missing:
        raise line.error(f"{', '.join(f'{name}=' for name in missing)} for {cls.__name__}")
    return cls(**values)


def _counted(line: AssemblyLine) -> tuple[str, int]:
    return line.name("a token"), line.integer("a count")


def _notice(line: AssemblyLine) -> tuple[str, int, tuple[int, ...]]:
    name, count, cores = *_counted(line), _place(line)
    if not cores:
        raise line.error("the cores of the token, as in @1 or @{1,2}")
    return name, count, cores


def _parse_instruction(line: AssemblyLine) -> Instruction:
    mnemonic = line.take("name", "an instruction")
    if mnemonic not in INSTRUCTIONS:
        raise line.error(f"loop, {', '.join(INSTRUCTIONS)}", line.at - 1)
    cls = INSTRUCTIONS[mnemonic]
    values: dict[str, Any] = {
        "engine": line.name("an engine"),
        **_fields(line, cls, ("wait", "signal", "notify")),
        "waits": line.items_after("wait", _counted),
        "signals": line.items_after("signal", _counted),
        "notifies": line.items_after("notify", _notice),
        "origin": line.integer("an origin") if line.accept("!") else 0,
        "tile": line.integer("a tile") if line.accept("/") else -1,
    }
    instruction: Instruction = _build(line, cls, values)
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


def parse_items(text: str) -> tuple[Item, ...]:
    """The instructions and loops that `text` holds.

    Raises:
        ParseError: with line, column and what was expected.
    """
    reader, found = _Reader(text), []
    while reader.next is not None:
        found.append(reader.item(reader.next))
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class Header:
    """Fields of a program's first line."""

    name: str
    arch: str
    macs: int = 0


class _ProgramReader(_Reader):
    """Collects the records of a program, in the order of the text."""

    def __init__(self, text: str, constants: Data | None, opened: Opened | None) -> None:
        super().__init__(text)
        self.data, self.opened = constants or {}, opened
        names = (*RECORDS, "core", "token", "constant", "constants", "payload")
        self.lists: dict[str, list[Any]] = {name: [] for name in names}
        self.barriers: dict[str, int] = {}

    def read(self) -> program.Program:
        line = self.next
        if line is None:
            raise ParseError(1, 1, "expected a program")
        line.expect("program")
        header = _build(line, Header, _fields(line, Header))
        self.advance()
        while (line := self.next) is not None:
            self.record(line)
        demand, _ = self.lists.pop("demand") or [None], self.lists.pop("constants")
        lists: dict[str, Any] = {f"{name}s": tuple(found) for name, found in self.lists.items()}
        return program.Program(**vars(header), **lists, demand=demand[0], barriers=self.barriers)

    def record(self, line: AssemblyLine) -> None:
        word = line.take("name", "a record")
        self.advance()
        if word in ("demand", "constants") and self.lists[word]:
            raise line.error(f"one line of {word}, there is one before", 0)
        if word in RECORDS:
            self.lists[word].append(_build(line, RECORDS[word], _fields(line, RECORDS[word])))
        elif word == "barrier":
            self.barriers |= [_new(line, "a barrier", self.barriers)]
        elif word == "token":
            if not self.lists["token"]:
                raise line.error("a core before its tokens, so not")
            self.lists["token"][-1] |= [_new(line, "a token", self.lists["token"][-1])]
        elif word == "payload":
            text = line.string("a payload in base64")
            try:
                self.lists["payload"].append(base64.b64decode(text, validate=True))
            except ValueError as error:
                raise line.error("a payload in base64", line.at - 1) from error
        elif word == "constants":
            self.lists["constants"].append(line.string("the name of a file in quotes"))
            self.data = self.opened(self.lists["constants"][0]) if self.opened else self.data
        elif word == "constant":
            self.lists["constant"].append(_parse_constant(line, self.data))
        elif word == "core":
            self.core(line)
        else:
            others = "barrier, payload, constants, constant, core or token"
            raise line.error(f"{', '.join(RECORDS)}, {others}", 0)
        line.finish()

    def core(self, line: AssemblyLine) -> None:
        if line.integer("a core") != len(self.lists["core"]):
            raise line.error(f"core {len(self.lists['core'])}", line.at - 1)
        self.lists["token"].append({})
        while (record := self.next) is not None and record.next == "token":
            self.record(record)
        self.lists["core"].append(self.block(line.indent + 1))


def _new(line: AssemblyLine, what: str, known: Mapping[str, int]) -> tuple[str, int]:
    """A new name, not among the `known`, with a count."""
    name = line.name(what)
    if name in known:
        raise line.error(f"{what} that is not there yet", line.at - 1)
    return name, line.integer("a count")


def _parse_constant(line: AssemblyLine, data: Data) -> program.Constant:
    start = line.at
    name, address = line.name("a constant"), line.integer("an address")
    dtype, shape = _typed_shape(line)
    line.expect("used")
    used = line.integer("a number of bytes")
    line.expect("hash")
    expected = line.string("a hash")
    memory = line.name("a memory") if line.accept("in") else "dram"
    if name not in data:
        raise line.error("a constant whose data is given", start)
    raw = np.ascontiguousarray(data[name])
    if raw.dtype != NUMPY[dtype] and raw.dtype.itemsize == NUMPY[dtype].itemsize:
        raw = raw.view(NUMPY[dtype])  # archives forget the types that numpy does not have
    if raw.shape != shape or raw.dtype != NUMPY[dtype] or program.digest(raw) != expected:
        kind = NAMES.get(raw.dtype, str(raw.dtype))
        given = f"{kind}{list(raw.shape)} with hash {program.digest(raw)}"
        wanted = f"{dtype}{list(shape)} with hash {expected}"
        raise line.error(f"{wanted}, given {given}, for", start)
    return program.Constant(name, address, raw, used, memory)


def parse_program(
    text: str, constants: Data | None = None, opened: Opened | None = None
) -> program.Program:
    """The program that `text` holds.

    Args:
        text: as printed by `simmodel.program.assembly.print_program`.
        constants: data of its constants by name (`simmodel.program.assembly.constant_data`).
        opened: gives such data for the name of the file that the text says it is kept in.

    Raises:
        ParseError: with line, column and what was expected; and what `opened` raises.
    """
    return _ProgramReader(text, constants, opened).read()
