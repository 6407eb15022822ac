"""Nest graphs from the text that `compiler.tensor_ir.text` prints: cases are written in it, and it
is the key of remembered decisions, so it must say everything."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from compiler.tensor_ir import nest as ir
from compiler.tensor_ir.nest import Access, Affine, Array, Dim, HostNode, Nest, NestGraph, Tensor
from compiler.tensor_ir.text import LineTokens, print_graph

T = TypeVar("T")


def read_again(graph: NestGraph) -> NestGraph:
    """The graph that the text of `graph` describes, with its constants and payloads beside it."""
    data = {name: t.data for name, t in graph.tensors.items() if t.data is not None}
    hosts = (step for step in graph.steps if isinstance(step, HostNode))
    return parse_graph(print_graph(graph), data, {s.outputs[0]: s.payload for s in hosts})


class _Line(LineTokens):
    """A line of a nest graph, whose loops are known once they were read."""

    def __init__(self, line: str) -> None:
        super().__init__(1, line)
        self.loops: list[str] = []

    def real(self) -> float:
        return float(self.number_value("a number"))

    def option(self, word: str, item: Callable[[], T], default: T) -> T:
        return item() if self.accept(word) else default

    def list(self, opening: str, item: Callable[[], T], closing: str) -> tuple[T, ...]:
        self.expect(opening)
        return self.items(closing, lambda _: item())

    def names(self) -> tuple[str, ...]:
        return self.list("(", self.name, ")")

    def tensor(self, data: Mapping[str, Array], constant: bool) -> tuple[Tensor, ir.Pick | None]:
        name = self.name()
        self.expect(":")
        dtype, shape = self.name(), self.list("[", self.integer, "]")
        self.expect("at")
        buffer = self.name()
        self.expect("+")
        offset = self.integer()
        self.expect("by")
        storage = ir.Storage(buffer, offset, self.list("(", self.integer, ")"))
        made = Tensor(name, shape, dtype, storage, data[name] if constant else None)
        return made, self.pick()

    def pick(self) -> ir.Pick | None:
        word = self.next
        if word not in ("picks", "puts", "put"):
            return None
        self.at += 1
        update = self.name() if word == "puts" else ""
        if word != "picks":
            self.expect("into")
        table = given = self.name()
        self.expect("by")
        index = self.name()
        self.expect("along")
        axis = self.integer()
        if word == "picks":
            return ir.Pick(table, index, axis)
        block = self.accept("blocks")
        return ir.Put(self.option("as", self.name, table), index, axis, given, update, block)

    def host(self, payload: Mapping[str, bytes]) -> HostNode:
        outputs = self.names()
        self.expect("=")
        kind, inputs = self.name(), self.names()
        self.expect("reason")
        reason = self.name()
        self.expect("operations")
        operations, origin = self.integer(), self.option("origin", self.name, "")
        return HostNode(
            inputs, outputs, payload[outputs[0]], origin, kind, reason, operations, self.pick()
        )

    def nest(self) -> Nest:
        tensor, dims = self.name(), list(self.list("[", self.dim, "]"))
        rank = len(dims)
        self.expect("=")
        clip = self.accept("clip") and self.accept("(")
        function, reduce = self.name(), None
        if self.accept("over"):
            reduce = function
            while not self.accept("of"):
                self.accept(",")
                dims.append(self.dim())
            function = self.name()
        operands: list[Access] = []
        self.expect("(")
        while self.next not in (";", ")"):
            self.accept(",")
            operands.append(self.access())
        parameters = self.list(";", self.real, ")") if self.next == ";" else ()
        self.accept(")")
        bias, multiplier = (self.option(sign, self.access, None) for sign in "+*")
        low, high = self.list(",", self.real, ")") if clip else (-math.inf, math.inf)
        self.accept("as")
        return Nest(
            tensor, tuple(dims), rank, function, tuple(operands), reduce, parameters, bias,
            multiplier, low, high,
            scale=self.option("scale", self.real, None),
            zero=self.option("zero", self.integer, 0),
            origin=self.option("origin", self.name, ""),
            kind=self.option("kind", self.name, ""),
            composite=self.option("composite", self.name, None),
            sparse=self.option("sparse", self.integer, 1),
        )  # fmt: skip

    def dim(self) -> Dim:
        self.loops.append(self.name())
        self.expect("=")
        return Dim(self.loops[-1], self.integer())

    def access(self) -> Access:
        tensor, index = self.name(), self.list("[", self.position, "]")
        pad, scale = (self.option(word, self.real, None) for word in ("pad", "scale"))
        return Access(tensor, index, pad, scale, self.option("zero", self.integer, 0))

    def position(self) -> Affine:
        terms: list[tuple[int, int]] = []
        constant, sign = 0, -1 if self.accept("-") else 1
        while True:
            number = sign * (self.integer() if self.next[:1].isdigit() else 1)
            if self._tokens[self.at - 1].isdigit() and not self.accept("*"):
                constant += number
            else:
                terms.append((self.loops.index(self.name()), number))
            if self.next not in ("+", "-"):
                return Affine(tuple(terms), constant)
            sign = -1 if self.accept("-") else 1
            self.accept("+")


def parse_graph(
    text: str, data: Mapping[str, Array] | None = None, payload: Mapping[str, bytes] | None = None
) -> NestGraph:
    """The graph that `text` describes, whose lines may go on in indented ones; with the constants'
    `data`, and payloads of host nodes by their first output."""
    graph = NestGraph("", {}, {}, (), (), ())
    rows: dict[str, ir.Pick] = {}
    for text_line in re.sub(r"\n[ \t]+", " ", text.strip()).splitlines():
        line = _Line(text_line)
        word = line.next
        if word in ("graph", "buffer", "tensor", "constant", "input", "output", "host"):
            line.at += 1
        if word == "graph":
            graph = replace(graph, name=line.name())
        elif word == "buffer":
            name = line.name()
            graph.buffers[name] = line.integer()
        elif word in ("tensor", "constant"):
            tensor, pick = line.tensor(data or {}, word == "constant")
            graph.tensors[tensor.name] = tensor
            rows |= {} if pick is None else {tensor.name: pick}
        elif word in ("input", "output"):
            name = line.name()
            ports = {f"{word}s": (*getattr(graph, f"{word}s"), name)}
            graph = replace(graph, **ports)  # type: ignore[arg-type]
            if line.accept(":"):
                graph.ports[name] = line.name()
            if line.accept("scale"):
                graph.codes[name] = line.real(), line.option("zero", line.integer, 0)
        else:
            step = line.host(payload or {}) if word == "host" else line.nest()
            graph = replace(graph, steps=(*graph.steps, step))
        line.finish()
    for name, pick in rows.items():
        graph.tensors[name] = _with_rows(graph, graph.tensors[name], pick)
    return graph


def _with_rows(graph: NestGraph, tensor: Tensor, pick: ir.Pick) -> Tensor:
    """A tensor with its rows' table, once all tensors are known."""
    table, index = graph.tensors[pick.table], graph.tensors[pick.index]
    if isinstance(pick, ir.Put):
        return replace(tensor, placed=ir.RowPlacement(table, index, pick.axis, pick.block))
    hosts = [s for s in graph.steps if isinstance(s, HostNode) and tensor.name in s.outputs]
    origin = [(host.origin, host.kind) for host in hosts] or [("", "")]
    return replace(tensor, picked=ir.Picked(table, index, pick.axis, *origin[0]))


def check_case(path: Path, result: Callable[[str], str]) -> None:
    """What stands below the line of a case is the result of what stands above it, or becomes it."""
    before, _, after = path.read_text().partition("----\n")
    text = result(before)
    if os.environ.get("UPDATE_CASES"):
        path.write_text(f"{before}----\n{text}")
    else:
        assert text == after
