"""Nest graphs as text, and back: one line per buffer, tensor and operator.

    graph net
    buffer y 1024
    tensor y: int8[1, 8, 4, 4] at y + 0 by (128, 1, 32, 8)
    constant w: int8[8, 3, 3, 3] at w + 0 by (27, 9, 3, 1)
    input x: fp32
    output y: fp32
    y[n=1, o=8, h=4, w=4] = clip(sum over c=3, i=3, j=3 of
        mul(x[n, c, 2*h + i - 1, 2*w + j - 1] pad 0.0 zero 3, w[o, c, i, j])
        + b[o] * f[o], -inf, 6.0) as scale 0.1 zero 3 origin conv_1 kind Conv
    host (p, q) = TopK(y) reason "no nest" origin topk_1 operations 64

A name is written bare where it is a word, in quotes otherwise. Numbers of constants and payloads
of host nodes are no text: `constants` and `payloads` take them out, `parse_graph` takes them back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from compiler.nest.ir import (
    Access,
    Affine,
    Array,
    Dim,
    HostNode,
    Nest,
    NestGraph,
    Step,
    Storage,
    Tensor,
)

T = TypeVar("T")

_WORD = re.compile(r"[A-Za-z_][\w.]*")
_TOKEN = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|[A-Za-z_][\w.]*|\d+(?:\.\d+)?(?:e[+-]?\d+)?|[-+*()\[\],:;=]|$)'
)
_RESERVED = frozenset(
    {"graph", "buffer", "tensor", "constant", "input", "output", "host", "clip", "over", "of",
     "inf", "nan", "pad", "scale", "zero", "origin", "kind", "composite"}
)  # fmt: skip


def constants(graph: NestGraph) -> dict[str, Array]:
    """The raw values of every constant, which the text leaves out."""
    return {name: t.data for name, t in graph.tensors.items() if t.data is not None}


def payloads(graph: NestGraph) -> dict[str, bytes]:
    """The payload of every host node by the name of its first output."""
    return {s.outputs[0]: s.payload for s in graph.steps if isinstance(s, HostNode)}


def print_graph(graph: NestGraph) -> str:
    """The text form of `graph`."""
    lines = [f"graph {_name(graph.name)}"]
    lines += [f"buffer {_name(name)} {size}" for name, size in graph.buffers.items()]
    lines += [_tensor(tensor) for tensor in graph.tensors.values()]
    for word, names in (("input", graph.inputs), ("output", graph.outputs)):
        lines += [f"{word} {_name(name)}{_port(graph.ports.get(name))}" for name in names]
    lines += [print_step(step) for step in graph.steps]
    return "\n".join(lines) + "\n"


def print_step(step: Step) -> str:
    """One operator on one line."""
    return _nest(step) if isinstance(step, Nest) else _host(step)


def _name(name: str) -> str:
    plain = _WORD.fullmatch(name) is not None and name not in _RESERVED
    return name if plain else json.dumps(name)


def _port(dtype: str | None) -> str:
    return "" if dtype is None else f": {dtype}"


def _tensor(t: Tensor) -> str:
    word = "tensor" if t.data is None else "constant"
    place = f"{_name(t.storage.buffer)} + {t.storage.offset} by ({_list(t.storage.strides)})"
    return f"{word} {_name(t.name)}: {t.dtype}[{_list(t.shape)}] at {place}"


def _list(numbers: Iterable[object]) -> str:
    return ", ".join(map(str, numbers))


def _nest(nest: Nest) -> str:
    names = [_name(dim.name) for dim in nest.dims]
    loops = [f"{name}={dim.extent}" for name, dim in zip(names, nest.dims, strict=True)]
    value = ", ".join(_access(access, names) for access in nest.operands)
    value = f"{nest.function}({value}{_parameters(nest.parameters)})"
    if nest.reduce is not None:
        value = f"{nest.reduce} over {', '.join(loops[nest.rank :])} of {value}"
    if nest.bias is not None:
        value += f" + {_access(nest.bias, names)}"
    if nest.multiplier is not None:
        value += f" * {_access(nest.multiplier, names)}"
    if (nest.low, nest.high) != (float("-inf"), float("inf")):
        value = f"clip({value}, {float(nest.low)!r}, {float(nest.high)!r})"
    code = _code(nest.scale, nest.zero)
    value += f" as{code}" if code else ""
    value += _source(nest.origin, nest.kind, nest.composite)
    return f"{_name(nest.tensor)}[{', '.join(loops[: nest.rank])}] = {value}"


def _parameters(values: tuple[float, ...]) -> str:
    return "; " + ", ".join(repr(float(v)) for v in values) if values else ""


def _access(access: Access, names: list[str]) -> str:
    index = ", ".join(_affine(affine, names) for affine in access.index)
    pad = "" if access.pad is None else f" pad {float(access.pad)!r}"
    return f"{_name(access.tensor)}[{index}]{pad}{_code(access.scale, access.zero)}"


def _affine(affine: Affine, names: list[str]) -> str:
    terms = [names[dim] if k == 1 else f"{k}*{names[dim]}" for dim, k in affine.terms]
    if affine.constant or not terms:
        terms.append(str(affine.constant))
    return " + ".join(terms).replace("+ -", "- ")


def _code(scale: float | None, zero: int) -> str:
    text = "" if scale is None else f" scale {float(scale)!r}"
    return f"{text} zero {zero}" if zero else text


def _source(origin: str, kind: str, composite: str | None) -> str:
    text = f" origin {_name(origin)}" if origin else ""
    text += f" kind {_name(kind)}" if kind else ""
    return text if composite is None else f"{text} composite {_name(composite)}"


def _host(node: HostNode) -> str:
    results = ", ".join(map(_name, node.outputs))
    inputs = ", ".join(map(_name, node.inputs))
    return (
        f"host ({results}) = {_name(node.kind)}({inputs}) reason {json.dumps(node.reason)}"
        f" operations {node.operations}{_source(node.origin, '', None)}"
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
    graph = _Parts(data or {}, payload or {})
    lines = re.sub(r"\n[ \t]+", " ", text.strip()).splitlines()
    for line in filter(None, lines):
        try:
            graph.take(_Words(line))
        except (ValueError, KeyError) as mistake:
            raise ValueError(f"{line!r}: {mistake}") from mistake
    return graph.finished()


class _Words:
    """The tokens of one line, taken from the left."""

    def __init__(self, line: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while position < len(line):
            found = _TOKEN.match(line, position)
            if found is None:
                raise ValueError(f"cannot read {line[position:]!r}")
            self.tokens.append(found.group(1))
            position = found.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def skip(self, token: str) -> bool:
        """Take `token` if it comes next; whether it did."""
        found = self.peek() == token
        self.at += found
        return found

    def expect(self, *tokens: str) -> None:
        for token in tokens:
            if not self.skip(token):
                raise ValueError(f"expected {token!r} before {self.peek()!r}")

    def name(self) -> str:
        token = self.next()
        if token.startswith('"'):
            return str(json.loads(token))
        if not _WORD.fullmatch(token):
            raise ValueError(f"expected a name, not {token!r}")
        return token

    def number(self) -> float:
        sign = -1.0 if self.skip("-") else 1.0
        return sign * float(self.next())

    def integer(self) -> int:
        sign = -1 if self.skip("-") else 1
        return sign * int(self.next())

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


class _Parts:
    """The graph so far."""

    def __init__(self, data: Mapping[str, Array], payload: Mapping[str, bytes]) -> None:
        self.data, self.payload = data, payload
        self.name = ""
        self.tensors: dict[str, Tensor] = {}
        self.buffers: dict[str, int] = {}
        self.steps: list[Step] = []
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.ports: dict[str, str] = {}

    def take(self, words: _Words) -> None:
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
            self._port(words, self.inputs if words.next() == "input" else self.outputs)
        elif first == "host":
            self.steps.append(self._host(words))
        else:
            self.steps.append(parse_nest(words))
        if words.peek():
            raise ValueError(f"nothing may follow at {words.peek()!r}")

    def _tensor(self, words: _Words, constant: bool) -> None:
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
        self.tensors[name] = Tensor(name, shape, dtype, Storage(buffer, offset, strides), data)

    def _port(self, words: _Words, ports: list[str]) -> None:
        ports.append(words.name())
        if words.skip(":"):
            self.ports[ports[-1]] = words.name()

    def _host(self, words: _Words) -> HostNode:
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
        return HostNode(inputs, outputs, self.payload[outputs[0]], origin, kind, reason, operations)

    def finished(self) -> NestGraph:
        return NestGraph(
            self.name,
            self.tensors,
            self.buffers,
            tuple(self.steps),
            tuple(self.inputs),
            tuple(self.outputs),
            self.ports,
        )


def parse_nest(words: _Words) -> Nest:
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
    bias = words.option("+", lambda: _read(words, loops), None)
    multiplier = words.option("*", lambda: _read(words, loops), None)
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
    )  # fmt: skip


def _dim(words: _Words) -> Dim:
    name = words.name()
    words.expect("=")
    return Dim(name, words.integer())


def _arguments(
    words: _Words, loops: Mapping[str, int]
) -> tuple[tuple[Access, ...], tuple[float, ...]]:
    operands: list[Access] = []
    parameters: list[float] = []
    words.expect("(")
    while words.peek() not in (";", ")"):
        words.skip(",")
        operands.append(_read(words, loops))
    if words.peek() == ";":
        parameters = words.list(";", words.number, ")")
    else:
        words.expect(")")
    return tuple(operands), tuple(parameters)


def _read(words: _Words, loops: Mapping[str, int]) -> Access:
    tensor = words.name()
    index = tuple(words.list("[", lambda: _position(words, loops), "]"))
    pad = words.option("pad", words.number, None)
    scale = words.option("scale", words.number, None)
    return Access(tensor, index, pad, scale, words.option("zero", words.integer, 0))


def _position(words: _Words, loops: Mapping[str, int]) -> Affine:
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
