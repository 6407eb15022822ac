"""Depthwise convolutions as products of several channels, of which only the diagonal counts.

An array takes a channel at a time where it has no depthwise mode: one column, one position deep. As
a product of `g` channels with themselves, whose weights are zero off the diagonal, it takes `g` of
them in the same cycles. Zeros change no sum of integers; among real values one infinite channel
would reach its neighbours, so these stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from compiler.bind.machine import depthwise_takes, product_startup
from compiler.nest.base import check_nests
from compiler.nest.ir import (
    Access,
    Affine,
    Array,
    Dim,
    Nest,
    NestGraph,
    Step,
    Storage,
    Tensor,
    at,
    row_major,
)
from compiler.options import Omittable
from compiler.passes import ensured
from simmodel.arch import Arch
from simmodel.dtype import is_float, product_type, size_of
from simmodel.isa.cycles import product_cycles
from simmodel.isa.matrix import tile_limits


@dataclass(frozen=True)
class GroupDepthwise(Omittable):
    """Take several channels of a depthwise convolution at once where that is quicker.

    before:
        y[n=1, c=64, h=8, w=8] = sum over i=3, j=3 of mul(x[n, c, h + i, w + j], w[c, i, j])
    after:
        y[n=1, g=4, o=16, h=8, w=8] = sum over c=16, i=3, j=3 of
            mul(x[n, g, c, h + i, w + j], w[g, o, c, i, j])        w is 0 where o and c differ
    """

    @ensured
    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with such products where `arch` is quicker with them."""
        if not self.enabled:
            return graph
        tensors, buffers = dict(graph.tensors), dict(graph.buffers)
        steps: list[Step] = []
        for step in graph.steps:
            together = _together(step, tensors, arch) if isinstance(step, Nest) else 1
            if isinstance(step, Nest) and together > 1:
                step = _Grouping(step, together, tensors, buffers).nest()
            steps.append(step)
        return replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))

    def ensures(self, made: NestGraph, graph: NestGraph, arch: Arch) -> None:
        """The contract of every graph of nests."""
        del graph, arch
        check_nests(made)


def _together(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> int:
    """Channels of each product with which `nest` takes fewest cycles; 1: as it is."""
    if not nest.depthwise or nest.rank < 3 or not _plain(nest, tensors):
        return 1
    source = tensors[nest.operands[0].tensor]
    dtype = source.dtype
    if is_float(dtype) or arch.matrix.peak(product_type(dtype)) == 0:
        return 1
    channels = nest.shape[1]
    pixels = math.prod(nest.shape) // channels
    taps = math.prod(dim.extent for dim in nest.dims[nest.rank :])
    best, least = 1, depthwise_takes(nest, tensors, arch)
    # Layers share no tiles across the views of groups: both sides pass through memory.
    moved = source.elements * size_of(dtype)
    moved += tensors[nest.tensor].elements * size_of(tensors[nest.tensor].dtype)
    for each in range(2, min(channels, max(tile_limits(arch))) + 1):
        if channels % each:
            continue
        weights = channels * each * taps * size_of(dtype)
        cycles: float = channels // each * _cycles(arch, dtype, pixels, each, taps)
        cycles += (2 * moved + weights) / arch.dram_bytes_per_cycle
        if cycles < least:
            best, least = each, cycles
    return best


def _cycles(arch: Arch, dtype: str, pixels: int, each: int, taps: int) -> int:
    """Cycles of one product of `each` channels, with its start-ups, right behind another."""
    matrix, kind, startup = arch.matrix, product_type(dtype), product_startup(arch)
    if matrix.granularity == "conv":
        return startup + int(product_cycles(matrix, kind, pixels, each, each, taps, behind=True))
    rows, cols = tile_limits(arch)
    limit = matrix.max_pixels or pixels
    times = taps * -(-pixels // limit)
    if matrix.granularity == "tile":
        times *= -(-each // rows) * -(-each // cols)
    most = min(limit, pixels)
    return times * (startup + int(product_cycles(matrix, kind, most, each, each, behind=True)))


def _plain(nest: Nest, tensors: dict[str, Tensor]) -> bool:
    """Whether channels are the second axis of both sides and the first of constant weights."""
    left, right = nest.operands
    late = [access for access in (nest.bias, nest.multiplier) if access is not None]
    here = left.index[1] == at(1) and right.index[0] == at(1)
    once = sum(affine.coefficient(1) != 0 for affine in (*left.index, *right.index)) == 2
    constant = tensors[right.tensor].data is not None and tensors[left.tensor].data is None
    return here and once and constant and all(access.index == (at(1),) for access in late)


@dataclass(frozen=True)
class _Grouping:
    """One rewrite; new tensors go to the graph's."""

    before: Nest
    each: int
    tensors: dict[str, Tensor]
    buffers: dict[str, int]

    def nest(self) -> Nest:
        """The product of groups of channels."""
        nest, rank, each = self.before, self.before.rank, self.each
        n, c, *rest = nest.dims[:rank]
        dims = (
            n, Dim("g", c.extent // each), Dim("o", each), *rest,
            Dim("c", each), *nest.dims[rank:],
        )  # fmt: skip
        left, right = nest.operands
        image = self._view(self.tensors[left.tensor])
        index = (self._moved(left.index[0]), at(1), at(rank + 1), *map(self._moved, left.index[2:]))
        weights = self._diagonal(self.tensors[right.tensor], right.zero)
        taps = map(self._moved, right.index[1:])
        return replace(
            nest,
            tensor=self._view(self.tensors[nest.tensor]).name,
            dims=dims,
            rank=rank + 1,
            operands=(
                replace(left, tensor=image.name, index=index),
                replace(right, tensor=weights.name, index=(at(1), at(2), at(rank + 1), *taps)),
            ),
            bias=self._late(nest.bias),
            multiplier=self._late(nest.multiplier),
            sparse=each,
        )

    def _moved(self, affine: Affine) -> Affine:
        """`affine` over the new loops: one more output loop, one more reduction before the taps."""
        rank = self.before.rank
        terms = ((d + (d > 1) + (d >= rank), factor) for d, factor in affine.terms)
        return replace(affine, terms=tuple(terms))

    def _view(self, tensor: Tensor) -> Tensor:
        """`tensor` with its channels in groups."""
        n, c, *rest = tensor.shape
        outer, step, *inner = tensor.storage.strides
        storage = replace(tensor.storage, strides=(outer, step * self.each, step, *inner))
        shape = (n, c // self.each, self.each, *rest)
        name = f"{tensor.name}.by{self.each}"
        self.tensors[name] = replace(tensor, name=name, shape=shape, storage=storage)
        return self.tensors[name]

    def _late(self, access: Access | None) -> Access | None:
        """Bias or multiplier, by group and channel."""
        if access is None:
            return None
        tensor = self.tensors[access.tensor]
        shape = tensor.shape[0] // self.each, self.each
        made = self._constant(tensor, [v.reshape(shape) for v in _values(tensor)])
        return replace(access, tensor=made.name, index=(at(1), at(2)))

    def _diagonal(self, tensor: Tensor, zero: int) -> Tensor:
        """Weights [g, o, c, ...] that are `zero` where o and c differ."""

        def spread(values: Array) -> Array:
            apart = values.reshape(-1, self.each, *values.shape[1:])
            shape = (apart.shape[0], self.each, *apart.shape[1:])
            full = np.full(shape, zero, values.dtype)
            channel = np.arange(self.each)
            full[:, channel, channel] = apart
            return full

        return self._constant(tensor, [spread(values) for values in _values(tensor)])

    def _constant(self, tensor: Tensor, values: list[Array]) -> Tensor:
        """A constant with these raw values, and exact ones where `tensor` has them."""
        name = f"{tensor.name}.by{self.each}"
        data, *exact = values
        self.buffers[name] = data.size
        storage = Storage(name, 0, row_major(data.shape))
        self.tensors[name] = replace(
            tensor, name=name, shape=data.shape, storage=storage, data=data,
            exact=exact[0] if exact else None,
        )  # fmt: skip
        return self.tensors[name]


def _values(tensor: Tensor) -> list[Array]:
    """Raw values of a constant, and the exact ones where they differ."""
    return [values for values in (tensor.data, tensor.exact) if values is not None]
