"""Vector-engine cycles of one nest over a tile, instruction by instruction.

A nest is a chain of instructions (see `compiler.codegen.vector`): its function, tap by tap on an
engine without windows, then bias and multiplier. Cost model and emission use the same cover of
loops (`compiler.target.loops.cover`); each instruction pays the engine's start-up and the read
latency.

    bias of [n, 64, 8, 8] by channel      rows of 64 positions, 64 of them, in 2 dimensions
    on an engine of rank 1                64 instructions

Sizes may be arrays over candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

import compiler.target.loops.cover as cover
from compiler.cost.transfer import pitches
from compiler.schedule_ir.layer import Binding
from compiler.target.array_mapping import roles
from compiler.target.equal_engines import columns, largest
from compiler.target.layout import links_of
from compiler.target.loops.split import StridedLoop, collapse
from compiler.target.machine import (
    adds_up_in_pieces,
    between_type,
    form_of,
    joins_in_place,
    temporary_type,
)
from compiler.target.tracking import Same, once
from compiler.tensor_ir.nest import Access, Nest, Tensor, order_of
from simmodel.arch.element_types import accumulator_of, is_float, size_of
from simmodel.arch.record import Arch
from simmodel.isa.forms import cost_of, elementwise_form
from simmodel.isa.region import cached_property
from simmodel.trace import Events

_MOVE = "vector.unary.move"


def move_cycles(
    arch: Arch, item: int, sizes: Sequence[int], room: Sequence[int], order: Sequence[int]
) -> float:
    """Cycles of moving `sizes` elements of `item` bytes within a buffer of `room`, whose axes lie
    in `order`, slowest first."""
    steps = pitches(room, order)
    axes = [
        StridedLoop(n, (step * item, step * item)) for n, step in zip(sizes, steps, strict=True)
    ]
    unit = cover.unit_of(arch, (_MOVE, cost_of(_MOVE)), [cover.StoredOperand("local", item)] * 2)
    return cover.cheapest(unit, collapse(axes)).cycles


class OperandLayout(NamedTuple):
    """Layout of an operand in a buffer that has just the tile's elements."""

    role: str
    """Of its memory."""
    item: int
    """Bytes of an element."""
    reads: tuple[tuple[tuple[int, int], ...], ...] | None = None
    """For each axis of the tensor that is read, loops and their factors; None: the tile's own
    buffer for the result, or for an intermediate in its place."""
    order: tuple[int, ...] = ()
    """Axes of that tensor, slowest first."""

    def steps(self, extents: Sequence[int], own: Sequence[int]) -> list[int]:
        """Bytes by which each loop moves it; `own` are the elements that move what is made."""
        if self.reads is None:
            return [step * self.item for step in own]
        box = [
            1 + sum([abs(factor) * (extents[d] - 1) for d, factor in terms]) for terms in self.reads
        ]
        steps = [0] * len(extents)
        for terms, pitch in zip(self.reads, pitches(box, self.order), strict=True):
            for d, factor in terms:
                steps[d] += factor * pitch * self.item
        return steps

    def distinct(self, extents: Sequence[int]) -> int:
        """Elements of that tensor that loops of `extents` read."""
        every = (
            min(
                math.prod(extents[d] for d, _ in terms),
                1 + sum(abs(factor) * (extents[d] - 1) for d, factor in terms),
            )
            for terms in self.reads or ()
        )
        return math.prod(every)


class BatchShape(NamedTuple):
    """All facts that decide the cycles of instructions that differ only in the kernel position."""

    unit: cover.Unit
    kind: cover.ReductionKind
    times: int
    taps: int
    """Kernel positions within an instruction that slides a window; 0: no window."""
    places: tuple[OperandLayout, ...]
    """Of what is written, then of what is read."""
    cost: str
    """Class of `vector.cost`."""


class InstructionChain(NamedTuple):
    """All facts of a nest that decide its vector cycles for a tile of given sizes."""

    rank: int
    inner: tuple[int, ...]
    """Positions of the loops that are in no result."""
    order: tuple[int, ...]
    """Dimensions of the result in memory, slowest first."""
    links: tuple[BatchShape, ...]
    rows: tuple[int, ...] = ()
    """Of windows: dimensions along which they slide."""
    channels: tuple[int, ...] = ()
    """Of windows: the others, slowest first."""


@lru_cache(maxsize=1 << 12)
def _chain_cycles(chain: InstructionChain) -> Callable[[tuple[int, ...]], float]:
    """Cycles of all instructions of `chain` by the sizes of a tile, shared by equal nests."""

    @cache
    def cycles(sizes: tuple[int, ...]) -> float:
        extents = (*sizes, *chain.inner)
        own = [*pitches(sizes, chain.order), *(0 for _ in chain.inner)]
        return sum(link.times * _of(chain, link, extents, own) for link in chain.links)

    return cycles


def _of(
    chain: InstructionChain, link: BatchShape, extents: Sequence[int], own: Sequence[int]
) -> float:
    """Cycles of the instructions of one batch."""
    sides = [place.steps(extents, own) for place in link.places]
    if link.taps:
        return _window(chain, link, extents, sides)
    loops = range(len(extents) if link.kind.reduces else chain.rank)
    axes = [StridedLoop(extents[d], tuple([side[d] for side in sides])) for d in loops]
    return cover.cheapest(link.unit, collapse(axes, int(link.kind.reduces)), link.kind).cycles


def _window(
    chain: InstructionChain, link: BatchShape, extents: Sequence[int],
    sides: Sequence[Sequence[int]],
) -> float:  # fmt: skip
    """Cycles of windows, which merge no dimensions: rows of channels, and one window for each other
    position."""
    unit, moving = link.unit, chain.channels
    channels = extents[moving[-1]] if moving else 1
    walked = math.prod(extents[d] for d in chain.rows)
    count = math.prod(extents[d] for d in moving[:-1])
    whole, rest = divmod(channels, unit.longest)
    rows = [unit.longest] * whole + [rest] * bool(rest)
    work = sum(math.ceil(walked * math.ceil(row / unit.lanes) * unit.factor) for row in rows)
    # Each position of the input once, however many kernel positions see it.
    weights = len(sides) - 1 if len(sides) > 2 else 0
    axes = [
        StridedLoop(extent, tuple([
            side[d] if d < chain.rank or number == weights else 0
            for number, side in enumerate(sides)
        ]))
        for d, extent in enumerate(extents)
    ]  # fmt: skip
    busy = max(
        count * work * link.taps, cover.memory_cycles(unit, [(axis.extent, axis) for axis in axes])
    )
    return float(count * len(rows) * unit.startup + busy)


def overlapped(works: Iterable[tuple[str, Any]], tiles: Any) -> Any:
    """Cycles of a tile, of `tiles`, that engines work on one behind the other: each on another
    tile, where work does not come back to one of them, whose queue keeps the order of tiles; so
    those of the busiest one, and its share of the rest, which only the first tile waits for."""
    runs = [
        (engine, sum(cycles for _, cycles in run)) for engine, run in groupby(works, itemgetter(0))
    ]
    total = sum(cycles for _, cycles in runs)
    if len(runs) != len(dict(runs)) or len(runs) < 2:
        return total
    busiest = np.max(np.broadcast_arrays(*dict(runs).values()), axis=0)
    return busiest + (total - busiest) / tiles


@dataclass(frozen=True)
class VectorWork:
    """The work of the vector engine, or of one in its place, for one nest in a tile."""

    nest: Nest
    tensors: Mapping[str, Tensor]
    arch: Arch
    way: Binding
    inside: Collection[str]
    """Tensors that exist within the layer only."""
    sizes: Sequence[Any]
    """Positions along each dimension of the nest's result."""
    beside: int = 1
    """Engines that do as much at the same time."""

    def of(self, sizes: Sequence[Any]) -> VectorWork:
        """The same for other sizes, which cost no other look at the nest."""
        found = replace(self, sizes=sizes)
        found.__dict__["_chain"] = self._chain
        return found

    @property
    def units(self) -> int:
        """Engines that share the work."""
        return len(self.arch.units(self.way.finisher))

    @property
    def cycles(self) -> Any:
        """Of all instructions of the busiest engine, start-ups included."""
        if self.units > self.beside:
            shared = columns(self.nest, self.way, self.arch)
            sizes = largest(self.sizes, self._order, self.units, shared)
            return replace(self, sizes=sizes, beside=self.units).cycles
        cycles = _chain_cycles(self._chain)
        tiles = np.broadcast_arrays(*self.sizes) if self.sizes else []
        if all(column.ndim == 0 for column in tiles):
            return cycles(tuple(map(int, self.sizes)))
        each = zip(*(column.ravel().tolist() for column in tiles), strict=True)
        return np.reshape(list(map(cycles, each)), tiles[0].shape)

    @cached_property
    def _chain(self) -> InstructionChain:
        nest, facts = self.nest, list[object]()
        for name in (nest.tensor, *(access.tensor for access in nest.reads)):
            own = self.tensors[name]
            facts += own.dtype, own.shape, own.storage.strides, own.digits, name in self.inside
        key = Same(nest), self.way, self.beside, *facts
        return once("chain", key, self.arch, lambda seen: replace(self, arch=seen)._made_chain())

    def _made_chain(self) -> InstructionChain:
        nest = self.nest
        inner = tuple(dim.extent for dim in nest.dims[nest.rank :])
        links = tuple(self._batches())
        rows: tuple[int, ...] = ()
        channels = self._order
        if any(step.taps for step in links):
            found = roles(nest)
            rows = tuple(d for d in (found.y, found.x) if d is not None)
            channels = tuple(d for d in channels if d not in rows and nest.dims[d].extent > 1)
        return InstructionChain(nest.rank, inner, self._order, links, rows, channels)

    @property
    def least(self) -> float:
        """Lower bound of the vector engine for any layout and any cut: elements over lanes; what
        others do is beside that."""
        if self.way.finisher != "vector":
            return 0.0
        total, nest = 0.0, self.nest
        for batch in self._chain.links:
            inner = nest.dims[nest.rank :] if batch.kind.reduces else ()
            elements: int = math.prod((*self.sizes, *(dim.extent for dim in inner))) * batch.times
            total += elements * max(1, batch.taps) / batch.unit.lanes * batch.unit.factor
        return total / self.units

    def add_to(self, events: Events) -> None:
        """Count what all engines do for it: elements, bytes of operands and results, and the
        least instructions."""
        made: int = math.prod(self.sizes)
        inner = [dim.extent for dim in self.nest.dims[self.nest.rank :]]
        for batch in self._chain.links:
            deep = inner if batch.kind.reduces or batch.taps else [1] * len(inner)
            extents = [*self.sizes, *deep]
            target, *sources = batch.places
            events.instructions += batch.times
            events.elements[batch.cost] += batch.times * math.prod(extents)
            events.written[target.role] += batch.times * made * target.item
            for source in sources:
                size = math.prod(extents) if source.reads is None else source.distinct(extents)
                events.read[source.role] += batch.times * size * source.item

    def _batches(self) -> Iterator[BatchShape]:
        """Instructions in the order of emission, equal ones once."""
        nest, arch, engine = self.nest, self.arch, self.way.finisher
        target = OperandLayout("local", size_of(self._result_dtype))
        source = scratch = OperandLayout("local", size_of(between_type(arch)))
        if self.way.product:
            kind = accumulator_of(self.tensors[nest.operands[0].tensor].dtype)
            source = OperandLayout(self.way.sums, size_of(kind))
        links = links_of(nest, self.tensors, self.way, arch)
        last = len(links) - 1
        for (made, link), alike in groupby(
            enumerate(links), lambda each: (each[0] == last, each[1]._replace(at=None))
        ):
            each = link.kind == "each"
            form = elementwise_form(link.function, len(link.reads), engine) if each else ""
            form = form or form_of(nest, engine)
            reads = (source if at is None else self._layout(nest.reads[at]) for at in link.reads)
            places = (target if made else scratch, *reads)
            held = [cover.StoredOperand(place.role, place.item) for place in places]
            unit = cover.unit_of(arch, (form, cost_of(form)), held, engine, self.beside)
            taps = math.prod(dim.extent for dim in nest.dims[nest.rank :])
            yield BatchShape(
                unit, self._reduction(link.kind), len(list(alike)) if each else 1,
                taps if link.kind == "window" else 0, places, cost_of(form),
            )  # fmt: skip
            source = scratch

    def _reduction(self, kind: str) -> cover.ReductionKind:
        if kind != "reduce":
            return cover.PLAIN
        several = adds_up_in_pieces(self.nest, self.tensors, self.arch)
        pieces = several and self.way.finisher != "scalar"
        return cover.ReductionKind(True, pieces or joins_in_place(self.nest, self.tensors))

    @property
    def _result_dtype(self) -> str:
        """Element type of the result: real values inside a layer have the widest type."""
        dtype, wide = self.tensors[self.nest.tensor].dtype, temporary_type(self.arch)
        widened = self.nest.tensor in self.inside and is_float(dtype)
        return wide if widened and size_of(wide) > size_of(dtype) else dtype

    @property
    def _order(self) -> tuple[int, ...]:
        """Dimensions of the result in memory, slowest first."""
        result = self.tensors[self.nest.tensor]
        return order_of(result.shape, result.storage.strides)

    def _layout(self, access: Access) -> OperandLayout:
        tensor = self.tensors[access.tensor]
        real = access.tensor in self.inside and is_float(tensor.dtype)
        kind = temporary_type(self.arch) if real else tensor.dtype
        index = tuple(affine.terms for affine in access.index)
        order = order_of(tensor.shape, tensor.storage.strides)
        role = self.way.sums if access.tensor in self.inside else "local"
        return OperandLayout(role, size_of(kind), index, order)


# How a sum of products lies on the vector engine: what goes along the lanes, and what loops walk.


def lane_of(extents: Sequence[tuple[int, int]], lanes: float) -> int | None:
    """The dimension of a result that lies along the lanes: the one that leaves fewest of them
    empty, of several the one that moves on in memory least; None: the result is one element.
    `extents` by dimension are given as these lie in memory, slowest first."""
    moving = [(dim, extent) for dim, extent in extents if extent > 1]
    if not moving:
        return None
    best = min(reversed(moving), key=lambda each: math.ceil(each[1] / lanes) / each[1])
    return best[0]


def kept_dims(extents: Sequence[int], adds: Sequence[bool], rank: int) -> set[int]:
    """Dimensions that one instruction of `rank` walks: the last, along the lanes, most of the
    reduction, whose dimensions it `adds` up, and most of the rows."""
    last = len(extents) - 1
    others = sorted(range(last), key=lambda axis: -extents[axis])
    sums, rows = ([axis for axis in others if adds[axis] == added] for added in (True, False))
    wanted = dict.fromkeys([*sums[:1], *rows[:1], *others])
    return {last, *list(wanted)[: max(0, rank - 1)]}
