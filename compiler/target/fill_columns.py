"""Pixels side by side on the columns that a convolution of few outputs leaves free.

    7 x 7, stride 2, 64 outputs on 256 columns      7 steps of 12544 pixels, 64 columns wide
    4 pixels of a line side by side                 7 steps of 3136, 256 columns wide

The kernel stands once for each pixel, moved by as many positions as its window is, among zeros
(block Toeplitz): fewer vectors stream through the array, of longer reductions and by more weights.
With channels last, pixels side by side are the bytes that the sums of these pixels are anyhow, so
only the weights of such a layer change, not its dimensions and tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from compiler.cost.transfer import Path
from compiler.cost.work import array_work
from compiler.passes import Omittable
from compiler.target.array_mapping import axis_of, pixels_together, roles
from compiler.target.layout import FEW, few_channels
from compiler.target.machine import (
    contraction_ways,
    on_array,
    on_its_array,
    product_extents,
    rate_type,
)
from compiler.target.vector import VectorWork
from compiler.tensor_ir.nest import Affine, Array, Nest, NestGraph, Step, Tensor, order_of
from compiler.tensor_ir.rewrite import changed_constant
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class FillColumns(Omittable):
    """Decide how many pixels of a convolution stand side by side on an array.

    before:
        constant k: int8[64, 3, 7, 7]
    after:
        constant k.by4: int8[64, 3, 7, 13, 4]
    """

    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with such kernels if `arch` is faster with them."""
        if not self.enabled or not arch.matrix.present:
            return graph
        tensors, buffers = dict(graph.tensors), dict(graph.buffers)
        steps: list[Step] = []
        for step in graph.steps:
            if isinstance(step, Nest):
                step, new = filled(step, tensors, arch)
                tensors |= {each.name: each for each in new}
                buffers |= {each.name: each.elements for each in new}
            steps.append(step)
        return replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))


WORTH = 0.98
"""Part of the cycles of a layer that it must not exceed with more weights, which take room too."""


def filled(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> tuple[Nest, tuple[Tensor, ...]]:
    """`nest` with the kernel that takes the fewest cycles, and its new tensors."""
    if not _able(nest, tensors, arch):
        return nest, ()
    seen = on_its_array(nest, tensors, arch)
    if not (wider := [*_side_by_side(nest, tensors, seen)]):
        return nest, ()
    ways = [(nest, tensors[nest.operands[1].tensor]), *wider]
    priced = [
        (_cycles(*way, tensors, seen) * (1.0 if n else WORTH), n) for n, way in enumerate(ways)
    ]
    best, kernel = ways[min(priced)[1]]
    if best is nest or best.bias is None or not tensors[best.bias.tensor].digits:
        return best, () if best is nest else (kernel,)
    bias, each = tensors[best.bias.tensor], pixels_together(best)
    digits = changed_constant(
        bias, f"{bias.name}.by{each}", (each, *bias.shape), lambda v: np.repeat(v[None], each, 0)
    )
    index = (Affine(spare=each - 1), *best.bias.index)
    best = replace(best, bias=replace(best.bias, tensor=digits.name, index=index))
    return best, (kernel, digits)


def _able(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> bool:
    """Whether pixels of `nest`, a convolution with a kernel of its own, lie side by side in its
    results, and the array does not finish these with values of each column."""
    if not nest.contraction or nest.beside is not None or nest.block > 1:
        return False
    found, (left, right) = roles(nest), nest.operands
    weights, way = tensors[right.tensor], contraction_ways(nest, tensors, arch)[0]
    sliding = [tap for tap in found.taps if tap.row == found.x]
    finishes = way.direct and (nest.bias is not None or nest.multiplier is not None)
    if way.engine != "matrix" or finishes or found.batch or found.col is None:
        return False
    seen, result = arch.with_array(way.array), tensors[nest.tensor]
    array = seen.matrix.granularity != "conv" and seen.matrix.overlap and seen.matrix.units == 1
    plain = all(affine == Affine(affine.terms[:1]) and affine.terms for affine in right.index)
    constant = (
        weights.data is not None and weights.narrow is None and tensors[left.tensor].data is None
    )
    order = order_of(result.shape, result.storage.strides)
    near = [d for d in order if result.shape[d] > 1][-2:] == [found.x, found.col]
    slides = len(sliding) == 1 and sliding[0].dilation == 1 and len(found.inner) == 1
    return array and plain and constant and near and slides


def _side_by_side(
    nest: Nest, tensors: dict[str, Tensor], arch: Arch
) -> Iterator[tuple[Nest, Tensor]]:
    """`nest` with 2 and more pixels side by side, as many as find columns, and its kernel."""
    found, right = roles(nest), nest.operands[1]
    assert found.x is not None and found.col is not None
    (tap,) = (tap for tap in found.taps if tap.row == found.x)
    axis = axis_of(right, tap.dim)
    line, columns = nest.dims[found.x].extent, nest.dims[found.col].extent
    for each in range(2, arch.matrix.cols // columns + 1):
        if line % each == 0:
            assert axis is not None
            kernel = _repeated(tensors[right.tensor], right.zero, each, axis, tap.stride)
            index = list(right.index)
            index[axis] = replace(index[axis], spare=(each - 1) * tap.stride)
            read = replace(right, tensor=kernel.name, index=(*index, Affine(spare=each - 1)))
            yield replace(nest, operands=(nest.operands[0], read)), kernel


def _repeated(weights: Tensor, zero: int, each: int, axis: int, stride: int) -> Tensor:
    """`weights` as often as pixels stand side by side, on an axis of their own, each further along
    `axis` by its `stride`; `zero` elsewhere."""
    wide = weights.shape[axis]
    shape = list(weights.shape)
    shape[axis] += (each - 1) * stride
    shape.append(each)

    def spread(values: Array) -> Array:
        full = np.full(shape, zero, values.dtype)
        for pixel in range(each):
            along = slice(pixel * stride, pixel * stride + wide)
            full[(slice(None),) * axis + (along, ..., pixel)] = values
        return full

    return changed_constant(weights, f"{weights.name}.by{each}", tuple(shape), spread)


def _cycles(nest: Nest, kernel: Tensor, tensors: dict[str, Tensor], arch: Arch) -> float:
    """Cycles of the products of `nest`, or of what finishes them meanwhile if that takes longer,
    and of the load of its `kernel`."""
    around = {**tensors, kernel.name: kernel}
    kind, way = rate_type(nest, around, arch), on_array(nest, around, arch)
    pixels, columns, deep, *_ = product_extents(nest)
    source = tensors[nest.operands[0].tensor]
    blocks = (most := min(pixels, arch.matrix.max_pixels or pixels)), -(-pixels // most)
    stored, *turned = few_channels(source, nest, arch)
    array = min(
        max(
            float(array_work(arch, kind, blocks, columns, each.depth, each.steps).cycles),
            each.load if each.load > stored.load else 0.0,
        )
        for each in ([stored, *turned] if deep < FEW or not turned else turned)
    )
    tail = float(VectorWork(nest, around, arch, way, (), nest.shape).cycles)
    load = Path(arch, 1, arch.constants, arch.matrix.weights).run(kernel.stored)
    return max(array, tail) / arch.core_count + float(load.cycles)
