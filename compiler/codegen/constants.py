"""Constants off chip: weights packed tile by tile, so that each tile is one contiguous transfer.

Blocks lie in order of batch position, column tile, reduction tile; within a block kernel positions
come first, then the reduction, columns last. Block addresses are affine in the tile loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import EllipsisType

import numpy as np

from compiler.codegen.tile import Places
from compiler.frontend.quantization.narrow_constants import Narrow
from compiler.geometry.boxes import Range, Region, scaled, summed
from compiler.geometry.tile_trace import TileTrace
from compiler.memory.off_chip import pinned_steps, touched_by
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.plan.make_plan import LayerPlan, Plan, moves
from compiler.schedule.residency.buffer import GRAIN
from compiler.target.array_mapping import Roles, roles
from compiler.target.layout import packed_order
from compiler.target.narrow_weights import fits_tiles, row_of
from compiler.target.start_sums import as_digits
from compiler.tensor_ir.nest import Access, Array, HostNode, NestGraph, Tensor, dense
from simmodel.arch.dtype import pack as pack_elements
from simmodel.arch.element_types import bytes_for, per_item, size_of
from simmodel.arch.lazy_array import AnyArray, LazyArray, Pieces, in_pieces, transformed
from simmodel.arch.record import Arch
from simmodel.isa.region import Address, Operand, in_bytes


@dataclass(frozen=True)
class PackedWeights:
    """One layer's packed weights."""

    tensor: str
    buffer: str
    """Name under which the packed bytes stand in memory."""
    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    """Axes of the tensor in packed order."""
    batch: tuple[int, ...]
    """Axes of batch dims."""
    col: int | None
    k: int | None
    columns: tuple[tuple[int, int], ...]
    """Ranges of columns, each cut into tiles of its own; one behind the other."""
    narrow: Narrow | None = None
    """How DRAM holds them; None: in the type that engines multiply."""
    beside: Tensor | None = None
    """A bias of which each core's part lies behind the weights of that core, for one load."""

    @property
    def extra(self) -> int:
        """Elements between the columns of weights that something `beside` them takes."""
        return 0 if self.beside is None else size_of(self.beside.dtype) // size_of(self.dtype)

    @property
    def values(self) -> PackedWeights:
        """Their narrow numbers, packed in the same order."""
        assert self.narrow is not None
        return replace(self, dtype=self.narrow.dtype)

    def parameters(self, name: str, dtype: str) -> PackedWeights:
        """Scales or zero points, one for each block, packed in the same order."""
        assert self.narrow is not None
        shape = self.narrow.scales.shape
        columns = ((0, 1),) if self.col is None or shape[self.col] == 1 else self.columns
        buffer = f"{self.buffer}.{name}"
        return replace(self, buffer=buffer, dtype=dtype, shape=shape, columns=columns)

    def on_chip(self, plan: LayerPlan) -> LayerPlan:
        """`plan` with weights as the array reads them, where it reads them compressed."""
        if self.narrow is None or not self.narrow.compressed:
            return plan
        first, *others = plan.computes
        buffer = plan.buffers[first.reads[1]]
        buffer = replace(buffer, dtype=self.dtype, strides=dense(buffer.shape, self.order))
        moved = moves(first.nest.reads[1], buffer.strides, len(first.nest.dims))
        first = replace(first, steps=(first.steps[0], moved, *first.steps[2:]))
        buffers = plan.buffers | {first.reads[1]: buffer}
        return replace(plan, buffers=buffers, computes=(first, *others))

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of all that DRAM may hold of them."""
        return self.buffer, *(f"{self.buffer}.{name}" for name in ("scales", "zeros"))

    def operand(self, region: Region, places: Places) -> Operand:
        """The block of `region`, in the tensor's logical dimensions: contiguous within each
        position of the batch, and of kernel positions if those of an inner axis are not all in it.
        """
        size, ranges = size_of(self.dtype), region.ranges
        size = size if per_item(self.dtype) == 1 else 1
        shape, taps = tuple(span.size for span in ranges), self.taps
        strides = [0] * len(shape)
        step = size
        for axis in reversed(self.order):
            strides[axis] = step
            step *= self.shape[axis] if axis in taps else shape[axis]
        moves: list[tuple[Range, int]] = []  # by how many elements a position moves the block
        stride = math.prod(n for a, n in enumerate(self.shape) if a not in self.batch)
        for axis in reversed(self.batch):
            moves.append((ranges[axis], stride))
            if shape[axis] > 1:
                strides[axis] = stride * size
            stride *= self.shape[axis]
        width = 1
        if self.col is not None:
            width = shape[self.col]
            moves.append((ranges[self.col], self._deep + self.extra))
        if self.k is not None:
            moves.append((ranges[self.k], math.prod(self.shape[a] for a in taps) * width))
        moves += [(ranges[axis], strides[axis] // size) for axis in taps]
        offset = sum(span.start * step for span, step in moves)
        terms = summed(*(scaled(span.terms, step) for span, step in moves))
        home, base = places.far[self.buffer]
        terms = tuple((name, in_bytes(factor * size, self.dtype)) for name, factor in terms)
        address = Address(base + in_bytes(offset * size, self.dtype), terms)
        return Operand(home, address, shape, tuple(strides), self.dtype)

    def holds_beside(self, name: str) -> bool:
        """Whether memory holds this tensor with the weights."""
        return self.beside is not None and self.beside.name == name

    @property
    def _deep(self) -> int:
        """Weights of a column."""
        return math.prod(self.shape[a] for a in (*self.taps, self.k) if a is not None)

    def part_beside(self, region: Region, places: Places) -> Operand:
        """What lies behind the weights of the columns of `region`."""
        assert self.beside is not None
        (span,), size = region.ranges, size_of(self.beside.dtype)
        home, base = places.far[self.buffer]
        pitch, weights = self._deep * size_of(self.dtype) + size, self._deep * size_of(self.dtype)
        address = Address(
            base + span.start * pitch + span.size * weights, scaled(span.terms, pitch)
        )
        return Operand(home, address, (span.size,), (size,), self.beside.dtype)

    def along(self, axis: int | None, low: int, high: int) -> tuple[EllipsisType | slice, ...]:
        """Index of positions `low` to `high` along an axis, in packed order behind the batch."""
        if axis is None:
            return (...,)
        behind = len(self.order) - 1 - self.order.index(axis)
        return (..., slice(low, high), *[slice(None)] * behind)

    @property
    def taps(self) -> tuple[int, ...]:
        """Axes of kernel positions; of one a block may be loaded in part."""
        return tuple(a for a in self.order if a not in (*self.batch, self.col, self.k))


def packed(plan: LayerPlan, arch: Arch, walked: Sequence[TileTrace] = ()) -> PackedWeights | None:
    """How the layer's weights are packed, or None when it has no constant weights to pack, or other
    ones at each length, or when tiles of the group, `walked` on every core, share columns in
    part."""
    layer = plan.tiled.layer
    head = layer.head
    if not plan.computes or not plan.computes[0].binding.product:
        return None
    weights = head.operands[1]
    tensor = layer.tensors[weights.tensor]
    if tensor.data is None or any(tensor.counts) or tensor.storage.registers:
        return None
    found = roles(head)
    columns = _column_ranges(plan, found.col, walked)
    ends = (0, *(start + size for start, size in columns))
    if any(start != end for (start, _), end in zip(columns, ends, strict=False)):
        return None
    axes = _axes(weights, found)
    name = f"{tensor.name}#{layer.index}"
    order = packed_order(layer, arch)
    narrow, dtype = tensor.narrow if _in_blocks(plan, tensor, columns) else None, tensor.dtype
    if narrow is not None and narrow.compressed:  # as the array reads: blocks of the reduction
        dtype, deep = narrow.dtype, row_of(head)
        order = (*(axis for axis in order if axis != deep), deep)
    beside = None if narrow is not None or axes[0] else _beside(plan, tensor, columns)
    return PackedWeights(
        tensor.name, name, dtype, tensor.shape, order, *axes, columns, narrow, beside
    )


def _beside(plan: LayerPlan, weights: Tensor, columns: Sequence[tuple[int, int]]) -> Tensor | None:
    """The bias of which each core loads its part as it does of `weights`, once, so that both come
    with one load. None: there is none, or parts begin elsewhere than a load's on chip may."""
    layer, (compute, *_), own = plan.tiled.layer, plan.computes, dict(plan.loads)
    bias, head, count = layer.head.bias, layer.head, sum(size for _, size in columns)
    read = [access.tensor for nest in layer.nests for access in nest.reads]
    if len(columns) < 2 or bias is None or read.count(bias.tensor) > 1:
        return None
    held = (plan.buffers[compute.reads[index]] for index in (1, head.reads.index(bias)))
    if any(each.level or each.slots > 1 or each.name not in own for each in held):
        return None
    tensor = layer.tensors[bias.tensor]
    if tensor.data is None or tensor.shape != (count,) or any(tensor.counts):
        return None
    item, deep = size_of(weights.dtype), weights.elements // count
    sizes = [width * size for _, width in columns for size in (deep * item, size_of(tensor.dtype))]
    fits = size_of(tensor.dtype) % item == 0 and all(size % GRAIN == 0 for size in sizes)
    return tensor if fits else None


def _in_blocks(plan: LayerPlan, tensor: Tensor, columns: Sequence[tuple[int, int]]) -> bool:
    """Whether every tile of narrow weights is whole blocks in whole bytes."""
    narrow, head = tensor.narrow, plan.tiled.layer.head
    if narrow is None:
        return False
    row = row_of(head)
    cols, deep = _tile_cuts(plan, columns, tensor.shape[row])
    depths, widths = ({high - low for low, high in cuts} for cuts in (deep, cols))
    if narrow.compressed:  # the array reads blocks of weights that are there as a whole, too
        depths |= {loop.size for loop in plan.tiled.loops if loop.dim == roles(head).k}
    return all(fits_tiles(narrow, row, depth, width) for depth in depths for width in widths)


def _tile_cuts(
    plan: LayerPlan, columns: Sequence[tuple[int, int]], depth: int, block: int = 1
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """First and last border of every tile along columns, and along a reduction of `depth` of which
    each is for `block`."""
    # None moves weights that are loaded as a whole.
    loops = plan.tiled.loops if plan.buffers[plan.computes[0].reads[1]].level else ()
    found = roles(plan.tiled.layer.head)
    wide = (loop.size for loop in loops if loop.dim == found.col and not loop.reduction)
    deep = (loop.size // block for loop in loops if loop.dim == found.k and loop.reduction)
    return (
        list(_cuts(columns, next(wide, None))),
        list(_cuts(((0, depth),), next((max(1, step) for step in deep), None))),
    )


def _stays(plan: LayerPlan) -> bool:
    """Whether the weights are on chip as a whole. Where a layer's constants stay, weights of which
    each tile needs others, as of a batch of products, are loaded piece by piece all the same."""
    return plan.computes[0].reads[1] not in dict(plan.loads)


def _column_ranges(
    plan: LayerPlan, col: int | None, walked: Sequence[TileTrace]
) -> tuple[tuple[int, int], ...]:
    if col is None or _stays(plan):
        return ((0, 1 if col is None else plan.tiled.layer.head.dims[col].extent),)
    if not walked:
        return tuple(sorted({part[col] for part in plan.tiled.parts}))
    name = plan.tiled.layer.result.name
    found: set[tuple[int, int]] = set()
    for core in walked:
        boxes = (moment.work[plan.position] for moment in core.moments)
        spans = {box[col] for box in boxes if box is not None}
        stride = (core.strides or {}).get(name, (0,) * (col + 1))[col]
        turns = range(core.repeats if stride else 1)
        found |= {(start + turn * stride, size) for start, size in spans for turn in turns}
    return tuple(sorted(found))


def _axes(weights: Access, found: Roles) -> tuple[tuple[int, ...], int | None, int | None]:
    def axis(dim: int | None) -> int | None:
        if dim is None:
            return None
        hits = (a for a, affine in enumerate(weights.index) if affine.coefficient(dim))
        return next(hits, None)

    batch = tuple(a for a in (axis(dim) for dim in found.batch) if a is not None)
    return batch, axis(found.col), axis(found.k)


def packed_bytes(
    pack: PackedWeights, plan: LayerPlan, data: AnyArray
) -> Iterator[tuple[str, AnyArray]]:
    """Each buffer in DRAM, and what it holds of the weights `data`."""
    narrow = pack.narrow
    if narrow is None:
        yield pack.buffer, packed_data(pack, plan, data)
        return
    values = packed_data(pack, plan, narrow.values)
    size = bytes_for(narrow.dtype, values.size)
    raw = partial(pack_elements, name=narrow.dtype)
    yield pack.buffer, LazyArray((size,), np.dtype(np.uint8), lambda: raw(np.asarray(values)))
    block = narrow.blocks[row_of(plan.tiled.layer.head)]
    if narrow.scale is None:
        scales = pack.parameters("scales", narrow.scale_type)
        yield scales.buffer, packed_data(scales, plan, narrow.scales, block)
    if narrow.zeros is not None:
        zeros = pack.parameters("zeros", narrow.zero_type)
        yield zeros.buffer, packed_data(zeros, plan, narrow.zeros, block)


def packed_data(pack: PackedWeights, plan: LayerPlan, data: AnyArray, block: int = 1) -> LazyArray:
    """The packed elements of `data`, one block after another; of the reduction each is for
    `block`."""
    depth = 1 if pack.k is None else data.shape[pack.k]
    cols, deep = _tile_cuts(plan, pack.columns, depth, block)
    bias = None if pack.beside is None else np.asarray(raw_values(pack.beside)).view(data.dtype)
    size = data.size + (0 if bias is None else bias.size)

    def pieces() -> Pieces:
        # Where rows of the weights are rows of each tile, some at a time will do.
        by_rows = not pack.batch and pack.k == pack.order[0] == 0
        for rows, values in in_pieces(data) if by_rows else [(slice(0, depth), np.asarray(data))]:
            ordered, end = values.transpose(pack.order), 0
            for index in np.ndindex(ordered.shape[: len(pack.batch)]):
                for start, stop in cols:
                    part = ordered[index][pack.along(pack.col, start, stop)]
                    row = part.size // max(1, rows.stop - rows.start)
                    for low, high in deep:
                        first = max(low, rows.start)
                        last = max(first, min(high, rows.stop))
                        tile = part[pack.along(pack.k, first - rows.start, last - rows.start)]
                        begin, end = end + (first - low) * row, end + (high - low) * row
                        yield slice(begin, begin + tile.size), tile.reshape(-1)
                    if bias is not None:
                        beside, begin = bias[start * pack.extra : stop * pack.extra], end
                        end += beside.size
                        yield slice(begin, end), beside

    def pack_all() -> Array:
        packed = np.empty(size, data.dtype)
        for cut, piece in pieces():
            packed[cut] = piece
        return packed

    return LazyArray((size,), data.dtype, pack_all, pieces)


def _cuts(parts: Sequence[tuple[int, int]], step: int | None) -> Iterator[tuple[int, int]]:
    """First and last border of every tile."""
    for start, size in parts:
        for low in range(start, start + size, step or size):
            yield low, min(low + (step or size), start + size)


def packed_by_step(steps: Sequence[Step], arch: Arch) -> list[tuple[PackedWeights | None, ...]]:
    """How the weights of each layer of each step are packed."""
    plans = [step.plan if isinstance(step, PlacedGroup) else None for step in steps]
    return [tuple(packed(each, arch, p.walked) for each in p.layers) if p else () for p in plans]


def constants_of(
    graph: NestGraph, steps: Sequence[Step], packs: Sequence[Sequence[PackedWeights | None]]
) -> dict[str, AnyArray]:
    """DRAM buffer -> raw elements, packed weights included; only what is read."""
    data: dict[str, AnyArray] = {}

    def add(tensor: Tensor) -> None:
        buffer = tensor.storage.buffer
        if tensor.data is not None and buffer not in data:
            data[buffer] = raw_values(graph.tensors[buffer])

    loaded = {(number, name) for (name, _), (number, _) in pinned_steps(steps).items()}
    for number, (step, own) in enumerate(zip(steps, packs, strict=True)):
        if isinstance(step, HostNode):
            for name in touched_by(step):
                add(graph.tensors[name])
            continue
        group = step.plan.schedule.group
        for name in group.stored:
            add(graph.tensors[name].sources[-1])
        for layer, pack in zip(step.plan.layers, own, strict=True):
            for name, weights in _layer_inputs(step.plan, layer.position):
                if name in group.pinned and (number, name) not in loaded:
                    continue
                tensor = graph.tensors[name]
                if pack is not None and weights and tensor.data is not None:
                    data |= packed_bytes(pack, layer, tensor.data)
                elif pack is None or not pack.holds_beside(name):
                    for source in tensor.sources:
                        add(source)
    for name in graph.outputs:
        add(graph.tensors[name])
    return data


def raw_values(constant: Tensor) -> LazyArray:
    """The elements of a constant as memory holds them, one after another."""
    assert constant.data is not None
    held = partial(as_digits, bias=constant) if constant.digits else partial(np.reshape, shape=-1)
    return transformed(constant.data, held)


def _layer_inputs(plan: Plan, position: int) -> tuple[tuple[str, bool], ...]:
    """What a layer reads from memory, and whether it reads it as weights of a product."""
    keys = (
        b.key
        for b in plan.buffers.values()
        if b.key is not None and (b.first if b.layer is None else b.layer) == position
    )
    return tuple(dict.fromkeys((key[0], key[2]) for key in keys))
