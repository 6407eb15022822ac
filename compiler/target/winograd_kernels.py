"""Kernels as Winograd's products take them, where the machine has these in memory.

    w[n, c, i, j] of 3 x 3 positions    ->    of 4 x 4, of which the nest uses 3 x 3

More bytes come from memory for fewer products, so a kernel becomes such a one where the longer of
both takes less time so. Transformed numbers need not be whole ones: the place that they take is
kept, with the kernel itself in its corner, whose sums are those that exact transforms give.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from compiler.cost.overlap import copy_rate, path
from compiler.passes import Omittable
from compiler.target.array_mapping import axis_of, roles
from compiler.target.machine import (
    array_takes,
    contraction_ways,
    on_its_array,
    rate_type,
    slides_by_one,
)
from compiler.tensor_ir.nest import Affine, Nest, NestGraph, Step, Tensor
from compiler.tensor_ir.rewrite import changed_constant
from simmodel.arch.element_types import WINOGRAD
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class TransformKernels(Omittable):
    """Decide which kernels of 3 x 3 memory holds transformed.

    before:
        constant w: int8[64, 64, 3, 3]
    after:
        constant w.winograd: int8[64, 64, 4, 4]
    """

    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with transformed kernels if `arch` has these and is faster with them."""
        stored = {a.winograd.stored for a in arch.arrays.values() if a.winograd is not None}
        if not self.enabled or True not in stored:
            return graph
        tensors, buffers = dict(graph.tensors), dict(graph.buffers)
        readers = Counter(
            name
            for step in graph.steps
            for name in ([a.tensor for a in step.reads] if isinstance(step, Nest) else step.inputs)
        )
        shared = Counter(tensor.storage.buffer for tensor in graph.tensors.values())
        steps: list[Step] = []
        for step in graph.steps:
            if isinstance(step, Nest) and slides_by_one(step):
                weights = tensors[step.operands[1].tensor]
                seen = on_its_array(step, graph.tensors, arch)
                winograd, made = seen.matrix.winograd, None
                alone = readers[weights.name] == shared[weights.storage.buffer] == 1
                if winograd is not None and winograd.stored and alone:
                    made = _with_room(step, weights, winograd.outputs - 1)
                if made is not None and _quicker(step, *made, graph.tensors, seen):
                    step, kernel = made
                    tensors[kernel.name] = kernel
                    buffers[kernel.name] = kernel.elements
            steps.append(step)
        return replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))


def _with_room(nest: Nest, weights: Tensor, more: int) -> tuple[Nest, Tensor] | None:
    """`nest` and its kernel with `more` lines and columns; None where it is no constant of its own,
    or moves in other ways."""
    access = nest.operands[1]
    axes = [axis_of(access, tap.dim) for tap in roles(nest).taps]
    plain = all(affine == Affine(affine.terms[:1]) for affine in access.index)
    if weights.data is None or weights.narrow is not None or not plain:
        return None
    grown = [more if axis in axes else 0 for axis in range(len(weights.shape))]
    shape = tuple(n + by for n, by in zip(weights.shape, grown, strict=True))
    more_by = [(0, by) for by in grown]
    kernel = changed_constant(
        weights, f"{weights.name}.winograd", shape, lambda values: np.pad(values, more_by)
    )
    index = tuple(replace(affine, spare=by) for affine, by in zip(access.index, grown, strict=True))
    read = replace(access, tensor=kernel.name, index=index)
    return replace(nest, operands=(nest.operands[0], read)), kernel


def _quicker(
    nest: Nest, other: Nest, kernel: Tensor, tensors: dict[str, Tensor], arch: Arch
) -> bool:
    """Whether products of the `other` nest, or the loads of its `kernel`, take less time than those
    of `nest`, as far as weights come from memory off chip."""
    around = tensors | {kernel.name: kernel}
    if contraction_ways(nest, tensors, arch)[0].engine != "matrix":
        return False
    if rate_type(other, around, arch) not in WINOGRAD:
        return False
    far, cores = arch.constants, arch.core_count
    engine = path(arch, far, arch.matrix.weights)
    rate = min(arch.far_rates[far], cores * copy_rate(arch, engine, far))
    now, then = (
        max(
            array_takes(each, rate_type(each, around, arch), arch) / cores,
            around[each.operands[1].tensor].stored / rate,
        )
        for each in (nest, other)
    )
    return then < now
