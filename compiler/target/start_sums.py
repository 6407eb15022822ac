"""Sums that start from their bias, where that saves the vector engine more than the array takes.

    sums -> + bias -> * scale       two passes of the vector engine, with real values in between
    sums from the bias -> * scale   one

An array writes nothing but sums, so a product of one row makes the bias: of each column four
digits of an integer, or what the array's type holds of a real number and of the rest, as weights,
times factors that are the same for all columns. Each tile starts from that row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from compiler.cost.work import array_work
from compiler.passes import Omittable
from compiler.schedule_ir.layer import Layer
from compiler.target.array_mapping import roles
from compiler.target.bind import possible
from compiler.target.vector import VectorWork
from compiler.tensor_ir.nest import Array, Nest, NestGraph, Step, Storage, Tensor
from compiler.tensor_ir.rewrite import producers, readers
from simmodel.arch.dtype import NUMPY
from simmodel.arch.element_types import is_float, product_type, size_of
from simmodel.arch.matrix_cycles import tile_limits
from simmodel.arch.record import Arch

FACTORS = (1, 255, 255, 255)
"""Of the digits of an integer, as many as an int32 has bytes."""
LARGEST = 127 * sum(FACTORS)
LOWEST = -128
"""Zero point of the factors of digits, with which an int8 holds up to 255."""


def factors_of(bias: Tensor) -> tuple[int, ...]:
    """Of the digits of `bias`, as many as one of its numbers has room for."""
    real = is_float(bias.digits)
    return (1,) * (size_of(bias.dtype) // size_of(bias.digits)) if real else FACTORS


@dataclass(frozen=True)
class StartSums(Omittable):
    """Decide which sums start from their bias.

    before:
        constant b: int32[64]
    after:
        constant b.digits: int32[64]  # held as digits of products
    """

    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with such biases where `arch` is faster with them."""
        if not self.enabled or not arch.matrix.present:
            return graph
        tensors, buffers = dict(graph.tensors), dict(graph.buffers)
        steps: list[Step] = []
        places = producers(graph), readers(graph)
        for step in graph.steps:
            own = None
            if isinstance(step, Nest) and step.contraction and step.bias is not None:
                own = _bias_in_digits(step, _tail(step, graph, *places), tensors, arch)
            if isinstance(step, Nest) and own is not None:
                assert step.bias is not None
                step = replace(step, bias=replace(step.bias, tensor=own.name))
                tensors[own.name], buffers[own.name] = own, own.elements
            steps.append(step)
        return replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))


def _tail(
    nest: Nest, graph: NestGraph, made: Mapping[str, int], read: Mapping[str, list[int]]
) -> tuple[Nest, ...]:
    """The operator behind `nest` that may share its layer, if there is one."""
    places = [] if nest.tensor in graph.outputs else read.get(nest.tensor, [])
    reader = graph.steps[places[0]] if len(places) == 1 else None
    if not isinstance(reader, Nest) or not reader.elementwise or reader.shape != nest.shape:
        return ()
    last = max(made.get(access.tensor, -1) for access in reader.operands)
    return (reader,) if last == made[nest.tensor] else ()


def _bias_in_digits(
    nest: Nest, tail: tuple[Nest, ...], tensors: dict[str, Tensor], arch: Arch
) -> Tensor | None:
    """The bias of `nest` as digits; None where its sums cannot start from it, or had better not."""
    if nest.bias is None or nest.beside:
        return None
    (way, *others), bias = possible(nest, tensors, arch), tensors[nest.bias.tensor]
    seen, column = arch.with_array(way.array), roles(nest).col
    if others or way.engine != "matrix" or way.direct or len(seen.units(way.adder)) > 1:
        return None
    along = column is not None and [a.terms for a in nest.bias.index] == [((column, 1),)]
    matrix, kind = seen.matrix, product_type(tensors[nest.operands[0].tensor].dtype)
    alike = is_float(kind) or (kind == "int8" and nest.multiplier is not None)
    name = f"{nest.tensor}.digits"
    made = replace(bias, name=name, storage=Storage(name, 0, (1,)), digits=kind)
    factors = factors_of(made)
    deep = matrix.granularity == "gemm" or tile_limits(matrix)[0] >= len(factors)
    able = matrix.granularity != "conv" and deep and matrix.peak(kind)
    if not (able and along and alike and factors) or bias.data is None:
        return None
    if is_float(kind):
        digits = real_digits(np.asarray(bias.data), made)
        held = np.sum(digits, 0, dtype=np.float32).astype(bias.data.dtype)
        if not np.isfinite(held).all():
            return None
        made = replace(made, data=held, exact=bias.data if bias.exact is None else bias.exact)
    elif np.abs(np.asarray(bias.data, np.int64)).max() > LARGEST:
        return None
    started = replace(nest, bias=replace(nest.bias, tensor=name))
    taken = []
    for head in (nest, started):
        nests, known = (head, *tail), tensors | {name: made}
        layer = Layer(0, nests, known, tuple(possible(each, known, arch) for each in nests))
        taken.append(float(VectorWork(head, known, seen, layer.binding, (), head.shape).cycles))
    once = array_work(seen, kind, (1, 1), bias.elements, len(factors)).cycles
    return made if taken[0] - taken[1] > once else None


def real_digits(values: Array, bias: Tensor) -> list[Array]:
    """What the type of digits holds of `values`, of the rest, and so on."""
    rest, found = values.astype(np.float32), list[Array]()
    for _ in factors_of(bias):
        found.append(rest.astype(NUMPY[bias.digits]))
        rest = rest - found[-1].astype(np.float32)
    return found


def as_digits(values: Array, bias: Tensor) -> Array:
    """Numbers whose bytes are digits of `values`, the lowest first, of real ones the highest."""
    if is_float(bias.digits):
        real: Array = np.stack(real_digits(values, bias), -1).view(values.dtype)[..., 0]
        return real
    whole = np.asarray(values, np.int64)
    high = np.rint(whole / FACTORS[1]).astype(np.int64)
    digits = [whole - high * FACTORS[1]]
    for _ in FACTORS[1:]:
        digits.append(np.clip(high, -127, 127))
        high = high - digits[-1]
    return np.stack(digits, -1).astype(np.int8).view(np.int32).reshape(-1)
