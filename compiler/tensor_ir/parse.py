"""Parser of nest graphs as text; `compiler.tensor_ir.text` prints them.

One function reads one production of that grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from compiler.tensor_ir.nest import (
    Access,
    Affine,
    Array,
    Dim,
    HostNode,
    Nest,
    NestGraph,
    Pick,
    Picked,
    Put,
    RowPlacement,
    Step,
    Storage,
    Tensor,
)

T = TypeVar("T")

WORD = re.compile(r"[A-Za-z_][\w.]*")
"""A name that needs no quotes."""
_TOKEN = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|[A-Za-z_][\w.]*|\d+(?:\.\d+)?(?:e[+-]?\d+)?|[-+*()\[\],:;=]|$)'
)


def parse_graph(
    text: str, data: Mapping[str, Array] | None = None, payload: Mapping[str, bytes] | None = None
) -> NestGraph:
    """The graph that `text` describes.

    Args:
        text: as `print_graph` writes it; a line may go on in lines that are indented.
        data: raw values of the constants by name.
        payload: payloads of host nodes by their first output.

    Raises:
        ValueError: a mistake in the text, with its line; or a constant without data.
    """
    graph = _GraphParser(data or {}, payload or {})
    lines = re.sub(r"\n[ \t]+", " ", text.strip()).splitlines()
    for line in filter(None, lines):
        try:
            graph.take(LineTokens(line))
        except (ValueError, KeyError) as mistake:
            raise ValueError(f"{line!r}: {mistake}") from mistake
    return graph.finished()


class LineTokens:
    """The tokens of one line, taken from the left; ValueError where the next is another one."""

    def __init__(self, line: str) -> None:
        self.tokens: list[str] = []
        if line.startswith("constant"):
            line = line.rpartition("  # held as ")[0] or line  # a remark for the reader
        position = 0
        while position < len(line):
            found = _TOKEN.match(line, position)
            if found is None:
                raise ValueError(f"cannot read {line[position:]!r}")
            self.tokens.append(found.group(1))
            position = found.end()
        self.at = 0

    def peek(self) -> str:
        """The next token; empty behind the last."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        """Take the next token."""
        token = self.peek()
        self.at += 1
        return token

    def skip(self, token: str) -> bool:
        """Take `token` if it comes next; whether it did."""
        found = self.peek() == token
        self.at += found
        return found

    def expect(self, *tokens: str) -> None:
        """Take exactly `tokens`."""
        for token in tokens:
            if not self.skip(token):
                where = f"before {self.peek()!r}" if self.peek() else "at the end"
                raise ValueError(f"expected {token!r} {where}")

    def name(self) -> str:
        """Take a name, bare or in quotes."""
        token = self.next()
        if token.startswith('"'):
            return str(json.loads(token))
        if not WORD.fullmatch(token):
            raise ValueError(f"expected a name, not {token!r}")
        return token

    def number(self) -> float:
        """Take a number."""
        sign = -1.0 if self.skip("-") else 1.0
        return sign * float(self.next())

    def integer(self) -> int:
        """Take a whole number."""
        sign = -1 if self.skip("-") else 1
        token = self.next()
        if not token.isdecimal():
            raise ValueError(f"expected a whole number, not {token!r}")
        return sign * int(token)

    def list(self, opening: str, item: Callable[[], T], closing: str) -> list[T]:
        """`opening` item, item, ... `closing`."""
        self.expect(opening)
        items: list[T] = []
        while not self.skip(closing):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def option(self, word: str, item: Callable[[], T], default: T) -> T:
        """What follows `word`, if that comes next."""
        return item() if self.skip(word) else default


class _GraphParser:
    """The graph under construction."""

    def __init__(self, data: Mapping[str, Array], payload: Mapping[str, bytes]) -> None:
        self.data, self.payload = data, payload
        self.name = ""
        self.tensors: dict[str, Tensor] = {}
        self.buffers: dict[str, int] = {}
        self.steps: list[Step] = []
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.ports: dict[str, str] = {}
        self.codes: dict[str, tuple[float, int]] = {}
        self.rows: list[tuple[str, Pick | None]] = []
        """Tensors, and the clause of their line about rows of others."""
        self.nodes: dict[str, tuple[str, str]] = {}
        """Output of a host node -> its origin and kind."""

    def take(self, words: LineTokens) -> None:
        """Read one line."""
        first = words.peek()
        if first == "graph":
            words.next()
            self.name = words.name()
        elif first == "buffer":
            words.next()
            name = words.name()
            self.buffers[name] = words.integer()
        elif first in ("tensor", "constant"):
            self._tensor(words, words.next() == "constant")
        elif first in ("input", "output"):
            self._parse_port(words, self.inputs if words.next() == "input" else self.outputs)
        elif first == "host":
            self.steps.append(self._parse_host_node(words))
        else:
            self.steps.append(parse_nest(words))
        if words.peek():
            raise ValueError(f"nothing may follow at {words.peek()!r}")

    def _tensor(self, words: LineTokens, constant: bool) -> None:
        name = words.name()
        words.expect(":")
        dtype = words.name()
        shape = tuple(words.list("[", words.integer, "]"))
        words.expect("at")
        buffer = words.name()
        words.expect("+")
        offset = words.integer()
        words.expect("by")
        strides = tuple(words.list("(", words.integer, ")"))
        data = self.data[name] if constant else None
        made = Tensor(name, shape, dtype, Storage(buffer, offset, strides), data)
        self.rows.append((name, _pick(words)))
        self.tensors[name] = made

    def _in_table(self, name: str, pick: Pick | None) -> None:
        """Attach a tensor's rows to their table, once all tensors are known."""
        if pick is None:
            return
        table, index = self.tensors[pick.table], self.tensors[pick.index]
        if isinstance(pick, Put):
            made = replace(
                self.tensors[name], placed=RowPlacement(table, index, pick.axis, pick.block)
            )
        else:
            origin, kind = self.nodes.get(name, ("", ""))
            picked = Picked(table, index, pick.axis, origin, kind)
            made = replace(self.tensors[name], picked=picked)
        self.tensors[name] = made

    def _parse_port(self, words: LineTokens, ports: list[str]) -> None:
        ports.append(words.name())
        if words.skip(":"):
            self.ports[ports[-1]] = words.name()
        scale = words.option("scale", words.number, None)
        if scale is not None:
            self.codes[ports[-1]] = scale, words.option("zero", words.integer, 0)

    def _parse_host_node(self, words: LineTokens) -> HostNode:
        words.expect("host")
        outputs = tuple(words.list("(", words.name, ")"))
        words.expect("=")
        kind = words.name()
        inputs = tuple(words.list("(", words.name, ")"))
        words.expect("reason")
        reason = words.name()
        words.expect("operations")
        operations = words.integer()
        origin = words.option("origin", words.name, "")
        return HostNode(
            inputs, outputs, self.payload[outputs[0]], origin, kind, reason, operations,
            _pick(words),
        )  # fmt: skip

    def finished(self) -> NestGraph:
        hosts = (step for step in self.steps if isinstance(step, HostNode))
        self.nodes = {name: (step.origin, step.kind) for step in hosts for name in step.outputs}
        for name, pick in self.rows:
            self._in_table(name, pick)
        return NestGraph(
            self.name,
            self.tensors,
            self.buffers,
            tuple(self.steps),
            tuple(self.inputs),
            tuple(self.outputs),
            self.ports,
            self.codes,
        )


def _pick(words: LineTokens) -> Pick | None:
    """`picks table by index along 0`, `puts update into given by index along 0 as table` or, of a
    tensor, `put into table by index along 0`; None: none of these follows."""
    word = words.peek()
    if word not in ("picks", "puts", "put"):
        return None
    words.next()
    update = words.name() if word == "puts" else ""
    if word != "picks":
        words.expect("into")
    table = given = words.name()
    words.expect("by")
    index = words.name()
    words.expect("along")
    axis = words.integer()
    if word == "picks":
        return Pick(table, index, axis)
    block = words.skip("blocks")
    table = words.option("as", words.name, table)
    return Put(table, index, axis, given, update, block)


def parse_nest(words: LineTokens) -> Nest:
    """One nest from its tokens."""
    tensor = words.name()
    dims = words.list("[", lambda: _dim(words), "]")
    rank = len(dims)
    words.expect("=")
    clip = words.skip("clip")
    if clip:
        words.expect("(")
    function, reduce = words.name(), None
    if words.skip("over"):
        reduce = function
        while not words.skip("of"):
            words.skip(",")
            dims.append(_dim(words))
        function = words.name()
    loops = {dim.name: position for position, dim in enumerate(dims)}
    operands, parameters = _arguments(words, loops)
    bias = words.option("+", lambda: _parse_access(words, loops), None)
    multiplier = words.option("*", lambda: _parse_access(words, loops), None)
    low, high = float("-inf"), float("inf")
    if clip:
        words.expect(",")
        low = words.number()
        words.expect(",")
        high = words.number()
        words.expect(")")
    words.skip("as")
    return Nest(
        tensor, tuple(dims), rank, function, operands, reduce, parameters, bias, multiplier,
        low, high,
        scale=words.option("scale", words.number, None),
        zero=words.option("zero", words.integer, 0),
        origin=words.option("origin", words.name, ""),
        kind=words.option("kind", words.name, ""),
        composite=words.option("composite", words.name, None),
        sparse=words.option("sparse", words.integer, 1),
    )  # fmt: skip


def _dim(words: LineTokens) -> Dim:
    name = words.name()
    words.expect("=")
    return Dim(name, words.integer())


def _arguments(
    words: LineTokens, loops: Mapping[str, int]
) -> tuple[tuple[Access, ...], tuple[float, ...]]:
    operands: list[Access] = []
    parameters: list[float] = []
    words.expect("(")
    while words.peek() not in (";", ")"):
        words.skip(",")
        operands.append(_parse_access(words, loops))
    if words.peek() == ";":
        parameters = words.list(";", words.number, ")")
    else:
        words.expect(")")
    return tuple(operands), tuple(parameters)


def _parse_access(words: LineTokens, loops: Mapping[str, int]) -> Access:
    tensor = words.name()
    index = tuple(words.list("[", lambda: _position(words, loops), "]"))
    pad = words.option("pad", words.number, None)
    scale = words.option("scale", words.number, None)
    return Access(tensor, index, pad, scale, words.option("zero", words.integer, 0))


def _position(words: LineTokens, loops: Mapping[str, int]) -> Affine:
    terms: list[tuple[int, int]] = []
    constant = 0
    sign = -1 if words.skip("-") else 1
    while True:
        if words.peek()[:1].isdigit():
            number = sign * words.integer()
            if words.skip("*"):
                terms.append((loops[words.name()], number))
            else:
                constant += number
        else:
            terms.append((loops[words.name()], sign))
        if words.peek() not in ("+", "-"):
            return Affine(tuple(terms), constant)
        sign = -1 if words.next() == "-" else 1
