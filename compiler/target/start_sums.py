"""Sums that start from their bias, where that saves the vector engine more than the array takes.

    sums -> + bias -> * scale       two passes of the vector engine, with real values in between
    sums from the bias -> * scale   one

An array writes nothing but sums, so a product of one row makes the bias: of each column four
digits, as weights, times factors that are the same for all columns. Each tile starts from that row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from compiler.cost.work import array_work
from compiler.passes import Omittable
from compiler.target.array_mapping import roles
from compiler.target.bind import possible
from compiler.target.vector import VectorWork
from compiler.tensor_ir.nest import Array, Nest, NestGraph, Step, Storage, Tensor
from simmodel.arch.matrix_cycles import tile_limits
from simmodel.arch.record import Arch

FACTORS = (1, 255, 255, 255)
"""Of the digits of a number, as many as an int32 has bytes."""
LARGEST = 127 * sum(FACTORS)


@dataclass(frozen=True)
class StartSums(Omittable):
    """Decide which sums of integers start from their bias.

    before:
        constant b: int32[64]
    after:
        constant b.digits: int32[64]  # held as digits of products
    """

    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with such biases where `arch` is faster with them."""
        if not self.enabled or graph.registers or not arch.matrix.present:
            return graph
        tensors, buffers = dict(graph.tensors), dict(graph.buffers)
        steps: list[Step] = []
        for step in graph.steps:
            own = _bias_in_digits(step, tensors, arch) if isinstance(step, Nest) else None
            if isinstance(step, Nest) and own is not None:
                assert step.bias is not None
                step = replace(step, bias=replace(step.bias, tensor=own.name))
                tensors[own.name], buffers[own.name] = own, own.elements
            steps.append(step)
        return replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))


def _bias_in_digits(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> Tensor | None:
    """The bias of `nest` as digits; None where its sums cannot start from it, or had better not."""
    if not nest.contraction or nest.bias is None or nest.multiplier is None or nest.beside:
        return None
    (way, *others), bias = possible(nest, tensors, arch), tensors[nest.bias.tensor]
    seen, column = arch.with_array(way.array), roles(nest).col
    if others or way.engine != "matrix" or way.direct or len(seen.units(way.adder)) > 1:
        return None
    along = column is not None and [a.terms for a in nest.bias.index] == [((column, 1),)]
    eight = tensors[nest.operands[0].tensor].dtype in ("int8", "uint8")
    matrix = seen.matrix
    deep = matrix.granularity == "gemm" or tile_limits(matrix)[0] >= len(FACTORS)
    able = matrix.granularity != "conv" and deep and matrix.peak("int8")
    if not (able and along and eight):
        return None
    if bias.data is None or np.abs(np.asarray(bias.data, np.int64)).max() > LARGEST:
        return None
    name = f"{nest.tensor}.digits"
    made = replace(bias, name=name, storage=Storage(name, 0, (1,)), digits=True)
    started = replace(nest, bias=replace(nest.bias, tensor=name))
    taken = [
        float(VectorWork(each, tensors | {name: made}, seen, way, (), nest.shape).cycles)
        for each in (nest, started)
    ]
    once = array_work(seen, "int8", (1, 1), bias.elements, len(FACTORS)).cycles
    return made if taken[0] - taken[1] > once else None


def as_digits(values: Array) -> Array:
    """int32 numbers whose bytes are the digits of `values`, the lowest first."""
    whole = np.asarray(values, np.int64)
    high = np.rint(whole / FACTORS[1]).astype(np.int64)
    digits = [whole - high * FACTORS[1]]
    for _ in FACTORS[1:]:
        digits.append(np.clip(high, -127, 127))
        high = high - digits[-1]
    return np.stack(digits, -1).astype(np.int8).view(np.int32).reshape(-1)
