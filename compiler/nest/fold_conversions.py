"""Conversions become part of the operators around them: engines convert as they read and write."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from compiler.nest.base import NestPass
from compiler.nest.border import representable
from compiler.nest.build import identity
from compiler.nest.ir import Access, Nest, NestGraph, Step
from compiler.nest.rewrite import private, producers, readers, with_steps
from compiler.options import Omittable
from compiler.passes import Result
from simmodel.dtype import is_float


@dataclass(frozen=True)
class FoldConversions(NestPass, Omittable):
    """Quantization and dequantization move into the neighbours' accesses and results.

    before:
        f[d0] = move(q[d0] * 0.1)             dequantize
        g[d0] = add(f[d0], f2[d0])
        r[d0] = round(g[d0] / 0.2)            quantize
    after:
        r[d0] = round(add(q[d0] * 0.1, q2[d0] * 0.3) / 0.2)

    A copy of the only result that nobody else reads goes the same way: its source is written where
    the copy would lie.
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        folded = _fold_writes(_fold_reads(ir))
        return Result(folded, folded != ir)


def _fold_reads(graph: NestGraph) -> NestGraph:
    sources: dict[str, Access] = {}
    steps: list[Step | None] = list(graph.steps)
    for position, step in enumerate(graph.steps):
        if not isinstance(step, Nest):
            continue
        step = _through(step, sources, graph)
        steps[position] = step
        if _dequantizes(step, graph):
            sources[step.tensor] = step.operands[0]
    return _without_unread(with_steps(graph, steps), set(sources))


def _dequantizes(nest: Nest, graph: NestGraph) -> bool:
    if nest.function != "move" or not nest.elementwise or nest.scale is not None:
        return False
    read = nest.operands[0]
    unclipped = nest.low == -float("inf") and nest.high == float("inf")
    converts = read.scale is not None and is_float(graph.tensors[nest.tensor].dtype)
    return converts and unclipped and read.pad is None and identity(read, nest.rank)


def _through(nest: Nest, sources: dict[str, Access], graph: NestGraph) -> Nest:
    if nest.contraction or nest.depthwise:
        return nest
    operands = tuple(
        made if _bordered(nest, made, graph) else access
        for access in nest.operands
        for made in (_read_through(access, sources),)
    )
    return nest if operands == nest.operands else replace(nest, operands=operands)


def _bordered(nest: Nest, access: Access, graph: NestGraph) -> bool:
    """Whether the border around what `access` reads can be said in its elements; the lowest and
    the highest stand for infinity where a reduction passes over them."""
    if access.pad is None or (math.isinf(access.pad) and nest.reduce is not None):
        return True
    dtype = graph.tensors[access.tensor].dtype
    return representable(access.pad, dtype, access.scale, access.zero)


def _read_through(access: Access, sources: dict[str, Access]) -> Access:
    source = sources.get(access.tensor)
    if source is None or access.zero != 0:
        return access
    scale = (source.scale or 1.0) * (1.0 if access.scale is None else access.scale)
    return replace(access, tensor=source.tensor, scale=scale, zero=source.zero)


def _without_unread(graph: NestGraph, candidates: set[str]) -> NestGraph:
    """Drop the nests that write `candidates` which nobody reads any more."""
    read, removable = readers(graph), private(graph)
    gone = {name for name in candidates if name in removable and not read.get(name)}
    steps = (s if not (isinstance(s, Nest) and s.tensor in gone) else None for s in graph.steps)
    return with_steps(graph, steps)


def _fold_writes(graph: NestGraph) -> NestGraph:
    removable, made, read = private(graph), producers(graph), readers(graph)
    steps: list[Step | None] = list(graph.steps)
    tensors = dict(graph.tensors)
    for position, step in enumerate(graph.steps):
        if not isinstance(step, Nest) or not (_quantizes(step) or _copies(step, graph)):
            continue
        source = step.operands[0].tensor
        at = made.get(source)
        producer = None if at is None else steps[at]
        if at is None or not isinstance(producer, Nest) or source not in removable:
            continue
        if len(read[source]) > 1:
            continue
        if _copies(step, graph):
            steps[at] = replace(producer, tensor=step.tensor)
            target = tensors[step.tensor]
            rounded = tensors[source].rounded + target.rounded
            tensors[step.tensor] = replace(target, rounded=rounded)
            made[step.tensor] = at
            steps[position] = None
            continue
        if producer.scale is not None or producer.zero != 0:
            continue
        if not is_float(graph.tensors[source].dtype):
            continue
        steps[at] = joined(producer, step)
        made[step.tensor] = at
        steps[position] = None
    return with_steps(replace(graph, tensors=tensors), steps)


def _quantizes(nest: Nest) -> bool:
    plain = nest.function == "move" and nest.elementwise and nest.scale is not None
    read = nest.operands[0]
    return plain and read.scale is None and read.zero == 0 and identity(read, nest.rank)


def _copies(nest: Nest, graph: NestGraph) -> bool:
    """Whether `nest` moves elements as they are, and is no part of a concatenation."""
    if nest != replace(nest, function="move", reduce=None, bias=None, multiplier=None):
        return False
    if (nest.scale, nest.zero, nest.low, nest.high) != (None, 0, -float("inf"), float("inf")):
        return False
    read, target = nest.operands[0], graph.tensors[nest.tensor]
    source = graph.tensors[read.tensor]
    plain = (read.scale, read.zero, read.pad) == (None, 0, None) and identity(read, nest.rank)
    same = (source.shape, source.dtype) == (target.shape, target.dtype)
    return plain and same and nest.kind != "Concat"


def joined(producer: Nest, tail: Nest) -> Nest:
    """`producer` with the clip and the encoding of `tail`, writing tail's tensor."""
    return replace(
        producer,
        tensor=tail.tensor,
        low=max(producer.low, tail.low),
        high=min(producer.high, tail.high),
        scale=tail.scale,
        zero=tail.zero,
        origin=producer.origin
        if tail.origin in producer.origin
        else f"{producer.origin}+{tail.origin}",
    )
