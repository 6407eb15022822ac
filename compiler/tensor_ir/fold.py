"""A constant added per channel becomes the bias of the product before it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from compiler.passes import Omittable, Result
from compiler.tensor_ir.bounds import representable
from compiler.tensor_ir.build import identity
from compiler.tensor_ir.nest import Access, Nest, NestGraph, Step, Tensor
from compiler.tensor_ir.rewrite import NestPass, private, producers, readers, with_steps
from simmodel.arch.dtype import is_float

# Conversions become part of the operators around them: engines convert as they read and write.


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


def _without_unread(graph: NestGraph, candidates: set[str]) -> NestGraph:
    """Drop the nests that write `candidates` without readers."""
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
        steps[at] = merge_tail(producer, step)
        made[step.tensor] = at
        steps[position] = None
    return with_steps(replace(graph, tensors=tensors), steps)


def _quantizes(nest: Nest) -> bool:
    plain = nest.function == "move" and nest.elementwise and nest.scale is not None
    read = nest.operands[0]
    return plain and read.scale is None and read.zero == 0 and identity(read, nest.rank)


def _copies(nest: Nest, graph: NestGraph) -> bool:
    """Whether `nest` copies elements unchanged and is no part of a concatenation."""
    if nest != replace(nest, function="move", reduce=None, bias=None, multiplier=None):
        return False
    if (nest.scale, nest.zero, nest.low, nest.high) != (None, 0, -float("inf"), float("inf")):
        return False
    read, target = nest.operands[0], graph.tensors[nest.tensor]
    source = graph.tensors[read.tensor]
    plain = (read.scale, read.zero, read.pad) == (None, 0, None) and identity(read, nest.rank)
    same = (source.shape, source.dtype) == (target.shape, target.dtype)
    return plain and same and nest.kind != "Concat"


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
class FoldBias(NestPass, Omittable):
    """An addition of a constant that runs over the columns of a product is its bias.

    before:
        p[m, n] = sum k: a[m, k] * b[k, n]
        y[d0, d1] = add(p[d0, d1], c[d1])
    after:
        y[m, n] = sum k: a[m, k] * b[k, n]  + c[n]
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        removable, made, read = private(ir), producers(ir), readers(ir)
        tensors = dict(ir.tensors)
        buffers = dict(ir.buffers)
        steps: list[Step | None] = list(ir.steps)
        for position, step in enumerate(ir.steps):
            if not isinstance(step, Nest) or step.function != "add" or not step.elementwise:
                continue
            for product, constant in (step.operands, step.operands[::-1]):
                at = made.get(product.tensor)
                producer = None if at is None else steps[at]
                if (
                    at is None
                    or not isinstance(producer, Nest)
                    or not _takes_bias(producer, tensors)
                ):
                    continue
                if product.tensor not in removable or len(read[product.tensor]) > 1:
                    continue
                if not identity(product, step.rank) or not _per_column(constant, producer, tensors):
                    continue
                real = _as_fp32(tensors, buffers, constant)
                steps[at] = replace(merge_tail(producer, step), bias=real)
                made[step.tensor] = at
                steps[position] = None
                break
        folded = with_steps(replace(ir, tensors=tensors, buffers=buffers), steps)
        return Result(folded, folded != ir)


def _takes_bias(producer: Nest, tensors: dict[str, Tensor]) -> bool:
    free = producer.bias is None and producer.multiplier is None and producer.scale is None
    unclipped = producer.low == -math.inf and producer.high == math.inf
    return free and unclipped and producer.contraction and is_float(tensors[producer.tensor].dtype)


def _per_column(constant: Access, producer: Nest, tensors: dict[str, Tensor]) -> bool:
    """Whether the constant varies only along dims that the weights have and the input has not."""
    tensor = tensors[constant.tensor]
    if tensor.data is None or constant.scale is not None or constant.zero != 0:
        return False
    used = {dim for affine in constant.index for dim, _ in affine.terms}
    left, right = producer.operands
    return all(right.uses(dim) and not left.uses(dim) for dim in used)


def _as_fp32(tensors: dict[str, Tensor], buffers: dict[str, int], constant: Access) -> Access:
    tensor = tensors[constant.tensor]
    if tensor.dtype == "fp32" or tensor.data is None:
        return constant
    name = f"{tensor.name}:fp32"
    storage = replace(tensor.storage, buffer=name, offset=0)
    buffers[name] = buffers[tensor.storage.buffer]
    data = tensor.data if tensor.exact is None else tensor.exact
    tensors[name] = replace(
        tensor, name=name, dtype="fp32", storage=storage, data=data.astype("float32"), exact=None
    )
    return replace(constant, tensor=name)


# Clipping activations become part of the operator before them.


@dataclass(frozen=True)
class FoldClips(NestPass, Omittable):
    """Relu and Clip move into the result of the operator before them.

    before:
        c[n, o, h, w] = sum(x[...] * k[...])
        r[d0, d1, d2, d3] = relu(c[d0, d1, d2, d3])
    after:
        r[n, o, h, w] = clip(sum(x[...] * k[...]), 0, inf)
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        removable, made, read = private(ir), producers(ir), readers(ir)
        steps: list[Step | None] = list(ir.steps)
        for position, step in enumerate(ir.steps):
            tail = _as_clip(step) if isinstance(step, Nest) else None
            if tail is None:
                continue
            source = tail.operands[0].tensor
            at = made.get(source)
            producer = None if at is None else steps[at]
            if at is None or not isinstance(producer, Nest) or source not in removable:
                continue
            if len(read[source]) > 1 or not _clippable(producer):
                continue
            steps[at] = merge_tail(producer, tail)
            made[tail.tensor] = at
            steps[position] = None
        folded = with_steps(ir, steps)
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
    return nest if nest.low > -math.inf or nest.high < math.inf else None


def _clippable(producer: Nest) -> bool:
    """Whether the producer's result is still a real number that a clip may follow."""
    return producer.scale is None and producer.zero == 0 and producer.high == math.inf
