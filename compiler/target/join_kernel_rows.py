"""Kernel rows that join the reduction of a convolution of few channels, beside the kernel columns.

An array is nearly empty while it multiplies few channels: it takes one kernel row after another,
each with the columns that lie side by side. Where the rows of all windows are laid side by side
quickly enough, one product takes the whole kernel.

    7 x 7 of 3 channels      7 products of depth 21      or a copy of the input, and 1 of depth 147

The copy has each line of the input as often as windows see it. Engines that form windows
themselves (`im2col`) need none; those whose pixels may not overlap in memory gain nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from compiler.cost.transfer import Path
from compiler.cost.work import least_product_cycles
from compiler.passes import ensured
from compiler.target.array_mapping import joining
from compiler.target.bind import moved_each
from compiler.target.fill_columns import filled
from compiler.target.layout import few_channels
from compiler.target.machine import no_products, on_array, on_its_array, product_extents, rate_type
from compiler.target.vector import VectorWork
from compiler.tensor_ir.nest import (
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
    dense,
)
from compiler.tensor_ir.rewrite import NestRewrite, changed_constant
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class JoinKernelRows(NestRewrite):
    """Lay the rows of a kernel side by side for an array that few channels leave nearly empty.

    before:
        y[n=1, o=64, h=112, w=112] = sum over c=3, i=7, j=7 of
            mul(x[n, c, 2 h + i - 3, 2 w + j - 3], k[o, c, i, j])
    after:
        r[n=1, i=7, c=3, h=112, w=229] = move(x[n, c, 2 h + i - 3, w - 3])
        y[n=1, o=64, h=112, w=112] = sum over c=21, i=1, j=7 of
            mul(r[n, c, h + i, 2 w + j], k[o, c, i, j])
    """

    @ensured
    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        """`graph` with such products if `arch` is faster with them."""
        if not self.enabled:
            return graph
        tensors, buffers = dict(graph.tensors), dict(graph.buffers)
        steps: list[Step] = []
        for step in graph.steps:
            made: tuple[Step, ...] = (step,)
            nest = step if isinstance(step, Nest) and step.contraction else None
            seen = arch if nest is None else on_its_array(nest, tensors, arch)
            if nest is not None and _joinable(nest, tensors, seen):
                made, new = _copy_and_product(nest, tensors)
                if _pays(nest, made, {**tensors, **new}, seen, given=graph.inputs):
                    tensors.update(new)
                    buffers |= {t.storage.buffer: t.elements for t in new.values()}
                else:
                    made = (step,)
            steps += made
        return replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))


def _joinable(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> bool:
    """Whether `nest` is a plain convolution of several kernel rows, whose columns join."""
    if not nest.contraction or len(nest.dims) != 7 or nest.rank != 4 or nest.dims[5].extent == 1:
        return False
    columns_join = any(tap.dim == 6 for tap in joining(nest, arch.matrix))
    if no_products(nest, tensors, arch) is not None or not columns_join:
        return False
    left, right = nest.operands
    rows, columns = left.index[2:]
    weights = tensors[right.tensor]
    slides = [[dim for dim, _ in side.terms] for side in (rows, columns)] == [[2, 5], [3, 6]]
    plain = left.index[:2] == (at(0), at(4)) and right.index == (at(1), at(4), at(5), at(6))
    constant = weights.data is not None and weights.narrow is None
    return slides and plain and constant and tensors[left.tensor].data is None


def _copy_and_product(
    nest: Nest, tensors: dict[str, Tensor]
) -> tuple[tuple[Nest, Nest], dict[str, Tensor]]:
    """The copy of the input and the product of all kernel rows; with their new tensors."""
    left, right = nest.operands
    source, weights = tensors[left.tensor], tensors[right.tensor]
    rows, columns = left.index[2:]
    channels, high, wide = (dim.extent for dim in nest.dims[4:])
    batch, _, lines, pixels = nest.shape
    deep, reach = high * channels, (pixels - 1) * columns.coefficient(3) + wide
    name, shape = f"{nest.tensor}.rows", (batch, deep, lines, reach)
    strides = dense(shape, (0, 2, 3, 1))
    split = (batch, high, channels, lines, reach)
    apart = (strides[0], channels, 1, *strides[2:])
    pad = None if left.pad is None else left.pad / (left.scale or 1.0) + left.zero
    down, dilation = rows.coefficient(2), rows.coefficient(5)
    line = Affine(((3, down), (1, dilation)), rows.constant)
    read = (at(0), at(2), line, at(4, 1, columns.constant))
    copy = Nest(
        f"{name}.apart", tuple(Dim(n, e) for n, e in zip("nichw", split, strict=True)), 5, "move",
        (Access(source.name, read, pad),), origin=nest.origin, kind=nest.kind,
    )  # fmt: skip
    window = (at(0), at(4), Affine(((2, 1), (5, 1))), replace(columns, constant=0))
    kernel = _side_by_side(weights, deep)
    dims = (*nest.dims[:4], replace(nest.dims[4], extent=deep), replace(nest.dims[5], extent=1))
    product = replace(
        nest, dims=(*dims, nest.dims[6]),
        operands=(
            replace(left, tensor=name, index=window, pad=None), replace(right, tensor=kernel.name)
        ),
    )  # fmt: skip
    whole = Tensor(name, shape, source.dtype, Storage(name, 0, strides))
    parts = replace(whole, name=copy.tensor, shape=split, storage=Storage(name, 0, apart))
    return (copy, product), {t.name: t for t in (whole, parts, kernel)}


def _side_by_side(weights: Tensor, deep: int) -> Tensor:
    """Weights [o, (i, c), 1, j] of weights [o, c, i, j]."""

    def turned(values: Array) -> Array:
        return values.transpose(0, 2, 1, 3).reshape(len(values), deep, 1, -1)

    shape = (weights.shape[0], deep, 1, weights.shape[3])
    return changed_constant(weights, f"{weights.name}.rows", shape, turned)


def _pays(
    nest: Nest, joined: tuple[Nest, Nest], tensors: dict[str, Tensor], arch: Arch,
    given: Collection[str],
) -> bool:  # fmt: skip
    """Whether one product behind the copy, which goes through DRAM where it leaves no room on chip,
    takes fewer cycles than one kernel position after another, both with as many pixels side by side
    as columns are free for. Engines finish sums meanwhile."""
    copy, product = joined
    source, made = (tensors[each.operands[0].tensor] for each in (nest, product))
    kind, way = rate_type(nest, tensors, arch), on_array(nest, tensors, arch)
    tail = float(VectorWork(nest, tensors, arch, way, (), nest.shape).cycles)
    apart, together = (filled(each, tensors, arch)[0] for each in (nest, product))

    def engines(pixels: int, columns: int, depth: int, steps: int) -> float:
        each = least_product_cycles(arch, kind, pixels, columns, depth)
        return max(steps * each / arch.matrix.units, tail)

    pixels, columns, *_ = product_extents(apart)
    before = min(
        (way.load if source.name in given else 0.0) + engines(pixels, columns, way.depth, way.steps)
        for way in few_channels(source, apart, arch)
    )
    pixels, columns, deep, positions, batch = product_extents(together)
    taken = engines(pixels, columns, deep * positions, batch) + min(moved_each(copy, tensors, arch))
    if taken < before and 2 * made.stored > arch.memories.on_chip()["local"].size:
        ways = (Path(arch, 1, "dram", "local", store=store) for store in (False, True))
        taken += sum(float(way.box(made, made.shape).cycles) for way in ways)
    return taken < before
