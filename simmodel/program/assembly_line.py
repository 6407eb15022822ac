"""One line of assembly: its tokens, and the values that they spell.

A value's form alone tells its type, so reading one needs no context. The grammar is on the front
page of `simmodel.program.assembly`.
"""

from __future__ import annotations

import json
import re
from string import ascii_letters
from typing import Any

from simmodel.arch.dtype import NUMPY
from simmodel.isa.region import Address, Limit, Operand, Ring, Terms, contiguous

WORDS = {"inf": float("inf"), "nan": float("nan"), "none": None}
"""Bare words with a value."""
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
"""Names that need no quotes."""
DIGITS = 400
"""Most digits of a number; Python reads a few thousand."""
DEPTH = 16
"""Most nested lists, and most nested loops."""
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
    rf"|{PLAIN.pattern}|;.*|[^ \t]"
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
        self.line, self.column = line, column
        super().__init__(f"{line}:{column}: {message}")


class AssemblyLine:
    """The tokens of one line, and the reading position."""

    def __init__(self, number: int, text: str) -> None:
        self.number, self._text = number, text
        self._tokens: list[str] = _TOKEN.findall(text)
        if self._tokens and self._tokens[-1].startswith(";"):
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
    def kind(self) -> str:
        """What the next token is: a name, number, string or mark, or the end."""
        return _KINDS.get(self._tokens[self.at][:1], "mark")

    def error(self, expected: str) -> ParseError:
        """The error for a token that is not the `expected` one."""
        starts = [token.start() for token in _TOKEN.finditer(self._text)]
        column = 1 + (starts[self.at] if self.next else len(self._text))
        found = self.next or "end of line"
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

    def name(self, expected: str) -> str:
        """A bare or quoted name."""
        if self.kind == "string":
            return self.string(expected)
        return self.take("name", expected)

    def string(self, expected: str) -> str:
        text = self.take("string", expected)
        try:
            return str(json.loads(text))
        except json.JSONDecodeError as error:
            self.at -= 1
            raise self.error("a string with valid escapes") from error

    def integer(self, expected: str = "a whole number") -> int:
        sign = -1 if self.accept("-") else 1
        number = self.number_value(expected)
        if not isinstance(number, int):
            self.at -= 1
            raise self.error(expected)
        return sign * number

    def number_value(self, expected: str = "a number") -> int | float:
        text = self.take("number", expected)
        if len(text) > DIGITS:
            self.at -= 1
            raise self.error(f"at most {DIGITS} digits")
        if text.isdigit():
            return int(text)
        return int(text, 16) if text[:2] in ("0x", "0X") else float(text)

    def integers(self, end: str) -> tuple[int, ...]:
        """Whole numbers separated by commas up to `end`."""
        found: list[int] = []
        while not self.accept(end):
            if found:
                self.expect(",")
            found.append(self.integer())
        return tuple(found)


def value(line: AssemblyLine, depth: int = 0) -> Any:
    """Number, name, string, operand, or a list of values in parentheses, inside of `depth`."""
    if depth < DEPTH and line.accept("("):
        return _items(line, ")", lambda inner: value(inner, depth + 1))
    if line.kind == "string":
        return line.string("a string")
    if line.kind == "name":
        if line.followed_by("["):
            return _parse_operand(line)
        word = line.take("name", "a value")
        return WORDS.get(word, word)
    sign = -1 if line.accept("-") else 1
    if line.next in ("inf", "nan"):
        return sign * float(line.take("name", "a number"))
    return sign * line.number_value("a value")


def _items(line: AssemblyLine, end: str, item: Any) -> tuple[Any, ...]:
    """Values separated by commas up to `end`."""
    found: list[Any] = []
    while not line.accept(end):
        if found:
            line.expect(",")
        found.append(item(line))
    return tuple(found)


def _parse_operand(line: AssemblyLine) -> Operand:
    memory = line.name("a memory")
    address = _address(line)
    line.expect(":")
    start = line.at
    dtype, shape = typed_shape(line)
    strides = contiguous(shape, NUMPY[dtype].itemsize)
    if line.accept("/"):
        line.expect("{")
        strides = line.integers("}")
        if len(strides) != len(shape):
            line.at = start
            raise line.error(f"{len(strides)} extents, one for each stride")
    scale = None
    if line.accept("*"):
        scale = _float(line)
    zero = line.integer() if line.next == "-" else 0
    if line.accept("+"):
        zero = line.integer()
    limits = _limits(line, len(shape)) if line.accept("?") else ()
    return Operand(memory, address, shape, strides, dtype, scale, zero, place(line), limits)


def _limits(line: AssemblyLine, rank: int) -> tuple[Limit, ...]:
    """`{0: 64 + seq + -8*t, none: seq}` of an operand with `rank` dimensions."""
    line.expect("{")
    found: list[Limit] = []
    while True:
        start = line.at
        axis = None if line.accept("none") else line.integer(f"a dimension below {rank}, or none")
        if axis is not None and not 0 <= axis < rank:
            line.at = start
            raise line.error(f"a dimension below {rank}, or none")
        line.expect(":")
        base, terms, _ = _linear(line, (",", "}"), False)
        found.append(Limit(axis, base, terms))
        if line.accept("}"):
            return tuple(found)
        line.expect(",")


def _float(line: AssemblyLine) -> float:
    found = value(line)
    if isinstance(found, int | float):
        return float(found)
    line.at -= 1
    raise line.error("a scale")


def typed_shape(line: AssemblyLine) -> tuple[str, tuple[int, ...]]:
    """`int8[4, 16]` and the like."""
    dtype = line.name("an element type")
    if dtype not in NUMPY:
        line.at -= 1
        raise line.error(f"one of {', '.join(NUMPY)}")
    line.expect("[")
    return dtype, line.integers("]")


def place(line: AssemblyLine) -> tuple[int, ...]:
    """`@2`, `@{0,1}`; empty if no cores are named."""
    if not line.accept("@"):
        return ()
    if line.accept("{"):
        return line.integers("}")
    return (line.integer("a core"),)


def _address(line: AssemblyLine) -> Address:
    line.expect("[")
    base, terms, ring = _linear(line, ("]",), True)
    line.expect("]")
    return Address(base, terms, ring)


def _linear(
    line: AssemblyLine, ends: tuple[str, ...], rings: bool
) -> tuple[int, Terms, Ring | None]:
    """A sum of numbers, factor * variable, and at most one ring, up to one of `ends`."""
    base, terms, ring = 0, [], None
    while True:
        sign = -1 if line.accept("-") else 1
        if rings and ring is None and line.next == "ring" and line.followed_by("("):
            ring = _ring(line)
        elif line.kind in ("name", "string"):
            terms.append((line.name("a loop variable"), sign))
        else:
            number = sign * line.integer("a number, a loop variable or a ring")
            if line.accept("*"):
                terms.append((line.name("a loop variable"), number))
            else:
                base += number
        if line.next in ends:
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
    offset, terms, _ = _linear(line, (")",), False)
    line.expect(")")
    return Ring(slots, pitch, offset, terms)
