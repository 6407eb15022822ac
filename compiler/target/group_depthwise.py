"""Depthwise convolutions as dense products of a few channels, zero off the diagonal.

An array without a depthwise mode takes one channel at a time: one column, depth one. A product of
`g` channels with themselves, whose weights are zero off the diagonal, computes `g` channels in the
same cycles. Zeros change no integer sum; with real values one infinite channel would reach its
neighbours, so these are left as they are.

Only the weights of such a layer change, not its dimensions and tensors: it shares tiles with its
neighbours as any other layer does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from compiler.cost.transfer import Path
from compiler.cost.work import depthwise_cycles
from compiler.passes import ensured
from compiler.target.bind import depthwise_each
from compiler.target.machine import no_products, on_its_array
from compiler.tensor_ir.nest import Affine, Array, Dim, Nest, NestGraph, Step, Tensor, at
from compiler.tensor_ir.rewrite import NestRewrite, changed_constant
from simmodel.arch.element_types import is_float, size_of
from simmodel.arch.matrix_cycles import tile_limits
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class GroupDepthwise(NestRewrite):
    """Take several channels of a depthwise convolution at once where that is quicker.

    before:
        y[n=1, o=64, h=8, w=8] = sum over i=3, j=3 of mul(x[n, o, h + i, w + j], w[o, i, j])
    after:
        y[n=1, o=64, h=8, w=8] = sum over O=16, i=3, j=3 of
            mul(x[n, o, h + i, w + j], w[o, O, i, j])       w is 0 where O is not o modulo 16
    """

    @ensured
    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with such products if `arch` is faster with them."""
        if not self.enabled:
            return graph
        tensors, buffers = dict(graph.tensors), dict(graph.buffers)
        steps: list[Step] = []
        for step in graph.steps:
            if isinstance(step, Nest):
                together = _channels_per_product(step, tensors, arch)
                step = _grouped(step, together, tensors, buffers) if together > 1 else step
            steps.append(step)
        return replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))


def _channels_per_product(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> int:
    """Channels per product with the fewest cycles for `nest`; 1: unchanged."""
    if not nest.depthwise or nest.rank < 3 or not _has_depthwise_layout(nest, tensors):
        return 1
    dtype, kind = (tensors[access.tensor].dtype for access in nest.operands)
    arrays = [arch.with_array(name) for name in arch.arrays]
    able = [a for a in arrays if not (a.matrix.depthwise or no_products(nest, tensors, a))]
    if is_float(dtype) or not able:
        return 1
    channels = nest.shape[1]
    pixels = math.prod(nest.shape) // channels
    taps = math.prod(dim.extent for dim in nest.dims[nest.rank :])
    weights, alone = channels * taps * size_of(kind), on_its_array(nest, tensors, arch)
    way = Path(arch, 1, arch.constants, alone.matrix.weights)
    best, least = 1, min(depthwise_each(nest, tensors, arch)) + way.run(weights).cycles
    for seen in able:
        way = Path(arch, 1, arch.constants, seen.matrix.weights)
        each = np.arange(2, min(channels, max(tile_limits(seen.matrix))) + 1)
        if not each.size:
            continue
        cycles = depthwise_cycles(seen, dtype, pixels, channels, taps, each)
        cycles = cycles / seen.matrix.units + way.run(each * weights).cycles
        if cycles.min() < least:
            best, least = int(each[cycles.argmin()]), cycles.min()
    return best


def _has_depthwise_layout(nest: Nest, tensors: dict[str, Tensor]) -> bool:
    """Whether channels are the second axis of both sides and the first of constant weights."""
    left, right = nest.operands
    late = [access for access in (nest.bias, nest.multiplier) if access is not None]
    here = left.index[1] == at(1) and right.index[0] == at(1)
    once = sum(affine.coefficient(1) != 0 for affine in (*left.index, *right.index)) == 2
    constant = tensors[right.tensor].data is not None and tensors[left.tensor].data is None
    return here and once and constant and all(access.index == (at(1),) for access in late)


def _grouped(nest: Nest, each: int, tensors: dict[str, Tensor], buffers: dict[str, int]) -> Nest:
    """`nest` with `each` channels per product; its new weights are added to the graph's tensors."""
    rank = nest.rank
    left, right = nest.operands
    weights = _diagonal(tensors[right.tensor], right.zero, each)
    tensors[weights.name] = weights
    buffers[weights.name] = weights.elements
    taps = (_add_reduction_loop(affine, rank) for affine in right.index[1:])
    return replace(
        nest,
        dims=(*nest.dims[:rank], Dim(nest.dims[1].name.upper(), each), *nest.dims[rank:]),
        operands=(
            replace(left, index=tuple(_add_reduction_loop(affine, rank) for affine in left.index)),
            replace(right, tensor=weights.name, index=(at(1), at(rank), *taps)),
        ),
        sparse=each,
    )


def _add_reduction_loop(affine: Affine, rank: int) -> Affine:
    terms = ((dim + (dim >= rank), factor) for dim, factor in affine.terms)
    return replace(affine, terms=tuple(terms))


def _diagonal(tensor: Tensor, zero: int, each: int) -> Tensor:
    """Weights [o, O, ...] of weights [o, ...]: `zero` where O is not o modulo `each`."""

    def spread(values: Array) -> Array:
        full = np.full((len(values), each, *values.shape[1:]), zero, values.dtype)
        channel = np.arange(len(values))
        full[channel, channel % each] = values
        return full

    shape = (tensor.shape[0], each, *tensor.shape[1:])
    return changed_constant(tensor, f"{tensor.name}.by{each}", shape, spread)
