"""Conversions, biases and clips become part of the operators around them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import compiler.tensor_ir.rewrite as rewrite
from compiler.passes import Omittable, Result
from compiler.tensor_ir.bounds import representable
from compiler.tensor_ir.build import copies, identity
from compiler.tensor_ir.nest import (
    Access,
    Array,
    HostNode,
    Nest,
    NestGraph,
    Step,
    Storage,
    Tensor,
    dense,
    order_of,
)
from simmodel.arch.dtype import NUMPY
from simmodel.arch.element_types import is_float
from simmodel.arch.lazy_array import LazyArray
from simmodel.isa.region import replace


class _Merging:
    """Steps of a graph, some of which become part of the nest before them."""

    def __init__(self, graph: NestGraph) -> None:
        self.steps: list[Step | None] = list(graph.steps)
        self._removable, self._read = rewrite.private(graph), rewrite.readers(graph)
        self._made = rewrite.producers(graph)

    def producer(self, name: str) -> Nest | None:
        """The nest that makes a tensor, if nothing is lost with it but what one step reads."""
        at = self._made.get(name)
        if at is None or name not in self._removable or len(self._read[name]) > 1:
            return None
        step = self.steps[at]
        return step if isinstance(step, Nest) else None

    def merge(self, name: str, position: int, nest: Nest) -> None:
        """Put `nest` in place of the producer of a tensor and of the step at `position`."""
        at = self._made[nest.tensor] = self._made[name]
        self.steps[at], self.steps[position] = nest, None


@dataclass(frozen=True)
class FoldConversions(rewrite.NestPass, Omittable):
    """Quantization and dequantization move into the neighbours' accesses and results: engines
    convert as they read and write.

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
    graph = rewrite.with_steps(graph, steps)
    read, removable = rewrite.readers(graph), rewrite.private(graph)
    gone = {name for name in sources if name in removable and not read.get(name)}
    return rewrite.with_steps(
        graph, (s for s in graph.steps if gone.isdisjoint(rewrite.writes_of(s)))
    )


def _dequantizes(nest: Nest, graph: NestGraph) -> bool:
    if nest.function != "move" or not nest.elementwise or nest.scale is not None:
        return False
    read = nest.operands[0]
    converts = read.scale is not None and is_float(graph.tensors[nest.tensor].dtype)
    return converts and nest.unclipped and read.pad is None and identity(read, nest.rank)


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
    """Whether the border of `access` can be expressed in its elements; the lowest and highest one
    stand for infinity if a reduction ignores them."""
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


def _fold_writes(graph: NestGraph) -> NestGraph:
    merging, tensors = _Merging(graph), dict(graph.tensors)
    for position, step in enumerate(graph.steps):
        if not isinstance(step, Nest):
            continue
        source, target = tensors[step.operands[0].tensor], tensors[step.tensor]
        producer = merging.producer(source.name)
        if producer is None:
            continue
        if copies(step, graph.tensors) and step.kind != "Concat":  # parts of it are joined
            rounded = source.rounded + target.rounded
            tensors[target.name] = replace(target, rounded=rounded)
            merging.merge(source.name, position, replace(producer, tensor=target.name))
            continue
        read, plain = step.operands[0], step.function == "move" and step.elementwise
        bare = (read.scale, read.zero) == (None, 0) and identity(read, step.rank)
        quantizes = plain and bare and step.scale is not None
        if quantizes and is_float(source.dtype) and _real(producer):
            merging.merge(source.name, position, merge_tail(producer, step))
    return rewrite.with_steps(replace(graph, tensors=tensors), merging.steps)


def _real(producer: Nest) -> bool:
    """Whether the result is not encoded yet."""
    return producer.scale is None and producer.zero == 0


def merge_tail(producer: Nest, tail: Nest) -> Nest:
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


@dataclass(frozen=True)
class FoldBias(rewrite.NestPass, Omittable):
    """An addition of a constant that runs over the columns of a product is its bias.

    before:
        p[m, n] = sum k: a[m, k] * b[k, n]
        y[d0, d1] = add(p[d0, d1], c[d1])
    after:
        y[m, n] = sum k: a[m, k] * b[k, n]  + c[n]

    Of a product of integers, which a factor makes real, it is rounded to units of the sums.
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        merging, tensors, buffers = _Merging(ir), dict(ir.tensors), dict(ir.buffers)
        for position, step in enumerate(ir.steps):
            if not isinstance(step, Nest) or step.function != "add" or not step.elementwise:
                continue
            for product, constant in (step.operands, step.operands[::-1]):
                producer = merging.producer(product.tensor)
                if producer is None or not producer.contraction or not producer.unclipped:
                    continue
                if (producer.bias, producer.scale) != (None, None):
                    continue
                if not is_float(tensors[producer.tensor].dtype):
                    continue
                if identity(product, step.rank) and _per_column(constant, producer, tensors):
                    if producer.multiplier is None:
                        bias = as_real(tensors, buffers, constant)
                    elif (found := _in_units(tensors, buffers, constant, producer)) is not None:
                        bias = found
                    else:
                        continue
                    biased = replace(merge_tail(producer, step), bias=bias)
                    merging.merge(product.tensor, position, biased)
                    break
        folded = rewrite.with_steps(replace(ir, tensors=tensors, buffers=buffers), merging.steps)
        return Result(folded, folded != ir)


def _per_column(constant: Access, producer: Nest, tensors: dict[str, Tensor]) -> bool:
    """Whether the constant varies only along dims that the weights have and the input has not."""
    tensor = tensors[constant.tensor]
    if tensor.data is None or constant.scale is not None or constant.zero != 0:
        return False
    used = {dim for affine in constant.index for dim, _ in affine.terms}
    left, right = producer.operands
    return all(right.uses(dim) and not left.uses(dim) for dim in used)


def _in_units(
    tensors: dict[str, Tensor], buffers: dict[str, int], constant: Access, product: Nest
) -> Access | None:
    """A constant row as int32 numbers in units of the sums of `product`; None where it is not along
    the only axis of its factors, or too large."""
    factors, row = product.multiplier, tensors[constant.tensor]
    assert factors is not None and row.data is not None
    held = tensors[factors.tensor].data
    used = [affine for affine in constant.index if affine.terms]
    if held is None or held.ndim != 1 or used != [*factors.index]:
        return None
    units = np.asarray(held)
    real = np.asarray(row.data if row.exact is None else row.exact, np.float64).reshape(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = real / units
    if real.size != units.size or not (np.abs(exact) < MOST_BIAS).all():
        return None
    name, whole = f"{row.name}:{factors.tensor}", np.rint(exact)
    off = float(np.abs(exact - whole).max() + np.max(row.uncertain / units))
    buffers[name] = units.size
    storage = Storage(name, 0, (1,))
    tensors[name] = Tensor(
        name, units.shape, "int32", storage, whole.astype("int32"), uncertain=off
    )
    return Access(name, factors.index)


MOST_BIAS = 2**30
"""Of what an int32 accumulator holds, as sums need room beside it."""


def as_real(
    tensors: dict[str, Tensor], buffers: dict[str, int], read: Access, kind: str = "fp32",
    factor: float = 1.0,
) -> Access:  # fmt: skip
    """A read of the same numbers, less their zero point and times `factor`, of a dense tensor of
    type `kind`; one of a constant has its data."""
    tensor = tensors[read.tensor]
    if tensor.dtype == kind and factor == 1.0:
        return read
    name = ":".join([tensor.name, kind, *([f"{read.zero}"] if read.zero else [])])
    given, data = tensor.data if tensor.exact is None else tensor.exact, None
    if given is not None:

        def real() -> Array:
            made = (np.asarray(given, np.float32) - np.float32(read.zero)) * np.float32(factor)
            return made.astype(NUMPY[kind])

        data = LazyArray(tensor.shape, NUMPY[kind], real)
    storage = Storage(name, 0, dense(tensor.shape, order_of(tensor.shape, tensor.storage.strides)))
    buffers[name] = tensor.elements
    uncertain = tensor.uncertain * factor
    tensors[name] = Tensor(name, tensor.shape, kind, storage, data, uncertain=uncertain)
    return replace(read, tensor=name, zero=0)


@dataclass(frozen=True)
class FoldClips(rewrite.NestPass, Omittable):
    """Relu and Clip move into the result of the operator before them.

    before:
        c[n, o, h, w] = sum(x[...] * k[...])
        r[d0, d1, d2, d3] = relu(c[d0, d1, d2, d3])
    after:
        r[n, o, h, w] = clip(sum(x[...] * k[...]), 0, inf)
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        merging = _Merging(ir)
        for position, step in enumerate(ir.steps):
            tail = _as_clip(step) if isinstance(step, Nest) else None
            if tail is None:
                continue
            source = tail.operands[0].tensor
            producer = merging.producer(source)
            if producer is not None and _real(producer) and producer.high == math.inf:
                merging.merge(source, position, merge_tail(producer, tail))
        folded = rewrite.with_steps(ir, merging.steps)
        return Result(folded, folded != ir)


def _as_clip(nest: Nest) -> Nest | None:
    """`nest` as a `move` with limits, or None when it is something else."""
    if not nest.elementwise or nest.function not in ("move", "relu"):
        return None
    read = nest.operands[0]
    if read.scale is not None or read.zero != 0 or not identity(read, nest.rank):
        return None
    if nest.function == "relu":
        return replace(nest, low=max(nest.low, 0.0))
    return None if nest.unclipped else nest


# Quantized states stay quantized: no conversion between two inferences. The user sees real values.
# If a network quantizes an input at once, and an output is the dequantized content of the same
# bytes with the same scale, both conversions move to the ports: a port states its scale, and
# integers pass from inference to inference.


@dataclass(frozen=True)
class StoreEncoded(rewrite.NestPass, Omittable):
    """Inputs and outputs in one buffer, in the scale in which it holds them.

    input past: fp32                                    input past: fp32 scale 0.5 zero 3
    output present: fp32                                output present: fp32 scale 0.5 zero 3
    q[i=4] = move(past[i]) as scale 0.5 zero 3       =>
    present[i=5] = move(c[i] scale 0.5 zero 3)          # past is q and present is c, where
                                                        # q is the first four of c's integers
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        ends = {step.tensor: step for step in _conversions(ir) if step.tensor in ir.outputs}
        found = []
        for begin in _conversions(ir):
            name = begin.operands[0].tensor
            buffer = ir.buffer_of(begin.tensor)
            for end in ends.values() if name in ir.inputs else ():
                access = end.operands[0]
                same = (begin.scale, begin.zero) == (access.scale, access.zero)
                if same and ir.buffer_of(access.tensor) == buffer:
                    found.append((begin, end))
        return Result(_drop_conversions(ir, found), bool(found))


def _conversions(ir: NestGraph) -> Iterator[Nest]:
    """Nests that quantize an input without other readers, or compute an output without readers by
    dequantizing."""
    read: dict[str, int] = {}
    for name in (name for step in ir.steps for name in rewrite.reads_of(step)):
        buffer = ir.buffer_of(name)
        read[buffer] = read.get(buffer, 0) + 1
    shown = {ir.buffer_of(name) for name in ir.outputs}
    for step in ir.steps:
        if isinstance(step, HostNode) or step.function != "move" or step.reduce is not None:
            continue
        access, made = step.operands[0], ir.tensors[step.tensor]
        source = ir.tensors[access.tensor]
        whole = identity(access, step.rank) and access.pad is None and made.shape == source.shape
        if not whole or not step.unclipped or len(step.reads) > 1 or source.data is not None:
            continue
        given = access.tensor in ir.inputs and read[source.storage.buffer] == 1
        begins = given and access.scale is None and step.scale is not None
        ends = step.tensor in ir.outputs and not read.get(made.storage.buffer)
        begins = begins and is_float(source.dtype) and source.storage.buffer not in shown
        ends = ends and step.scale is None and access.scale is not None and is_float(made.dtype)
        if begins or ends:
            yield step


def _drop_conversions(ir: NestGraph, found: list[tuple[Nest, Nest]]) -> NestGraph:
    tensors, codes = dict(ir.tensors), dict(ir.codes)
    for begin, end in found:
        assert begin.scale is not None
        for port, stored in ((begin.operands[0].tensor, begin.tensor),
                             (end.tensor, end.operands[0].tensor)):  # fmt: skip
            tensors[port] = replace(ir.tensors[stored], name=port)
            codes[port] = begin.scale, begin.zero
    gone = {id(step) for pair in found for step in pair}
    used = {tensor.storage.buffer for tensor in tensors.values()}
    return replace(
        ir,
        tensors=tensors,
        buffers={name: size for name, size in ir.buffers.items() if name in used},
        steps=tuple(step for step in ir.steps if id(step) not in gone),
        codes=codes,
    )
