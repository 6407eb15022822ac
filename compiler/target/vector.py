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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from compiler.cost.transfer import pitches
from compiler.schedule_ir.layer import Binding
from compiler.target.array_mapping import roles
from compiler.target.equal_engines import columns, largest
from compiler.target.layout import links_of
from compiler.target.loops.cover import (
    PLAIN,
    ReductionKind,
    StoredOperand,
    Unit,
    cheapest,
    memory_cycles,
    unit_of,
)
from compiler.target.loops.split import SplitInstruction as Fissioned
from compiler.target.loops.split import collapse
from compiler.target.loops.walk import StridedLoop
from compiler.target.machine import (
    adds_up_in_pieces,
    between_type,
    form_of,
    joins_in_place,
    temporary_type,
)
from compiler.tensor_ir.nest import Access, Nest, Tensor, order_of
from simmodel.arch.dtype import accumulator_of, is_float, size_of
from simmodel.arch.record import Arch
from simmodel.isa.forms import cost_of, elementwise_form

_MOVE = "vector.unary.move"


def move_cycles(
    arch: Arch, item: int, sizes: Sequence[int], room: Sequence[int], order: Sequence[int]
) -> float:
    """Cycles of moving `sizes` elements of `item` bytes within a buffer of `room`.

    Args:
        order: axes of the buffer, slowest first.
    """
    steps = pitches(room, order)
    axes = [
        StridedLoop(n, (step * item, step * item)) for n, step in zip(sizes, steps, strict=True)
    ]
    unit = unit_of(arch, (_MOVE, cost_of(_MOVE)), [StoredOperand("local", item)] * 2)
    return cheapest(unit, collapse(axes)).cycles


@dataclass(frozen=True)
class NestOperand:
    """An operand of a nest's instructions."""

    role: str
    """Of its memory."""
    item: int
    """Bytes of an element."""
    access: Access | None = None
    """None: the tile's own buffer for the result, or for an intermediate in its place."""


@dataclass(frozen=True)
class InstructionBatch:
    """Instructions of a nest that differ only in the kernel position."""

    written: NestOperand
    reads: tuple[NestOperand, ...]
    form: str
    """Name of their form."""
    times: int = 1
    taps: int = 0
    """Kernel positions within an instruction that slides a window; 0: no window."""
    reduces: bool = False
    """Whether it walks the reduction as well."""
    joins: bool = False
    """Whether a piece of the reduction may add to the pieces before it."""


class OperandLayout(NamedTuple):
    """Layout of an operand in a buffer that has just the tile's elements."""

    item: int
    """Bytes of an element."""
    reads: tuple[tuple[tuple[int, int], ...], ...] | None
    """For each axis of the tensor that is read, loops and their factors; None: the result."""
    order: tuple[int, ...]
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


class BatchShape(NamedTuple):
    """All facts of an instruction batch that decide its cycles."""

    unit: Unit
    kind: ReductionKind
    times: int
    taps: int
    places: tuple[OperandLayout, ...]


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
def _chain_cycles_cache(chain: InstructionChain) -> dict[tuple[int, ...], float]:
    """Cycles by the sizes of a tile, shared by equal nests."""
    return {}


def _chain_cycles(
    chain: InstructionChain, known: dict[tuple[int, ...], float], sizes: tuple[int, ...]
) -> float:
    """Cycles of all instructions of `chain` for a tile of `sizes`."""
    found = known.get(sizes)
    if found is None:
        extents = (*sizes, *chain.inner)
        own = [*pitches(sizes, chain.order), *(0 for _ in chain.inner)]
        found = sum(link.times * _of(chain, link, extents, own) for link in chain.links)
        known[sizes] = found
    return found


def _of(
    chain: InstructionChain, link: BatchShape, extents: Sequence[int], own: Sequence[int]
) -> float:
    """Cycles of the instructions of one batch."""
    sides = [place.steps(extents, own) for place in link.places]
    if link.taps:
        return _window(chain, link, extents, sides)
    loops = range(len(extents) if link.kind.reduces else chain.rank)
    axes = [StridedLoop(extents[d], tuple([side[d] for side in sides])) for d in loops]
    return cheapest(link.unit, collapse(axes, int(link.kind.reduces)), link.kind).cycles


def _window(
    chain: InstructionChain,
    link: BatchShape,
    extents: Sequence[int],
    sides: Sequence[Sequence[int]],
) -> float:
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
        count * work * link.taps, memory_cycles(unit, [(axis.extent, axis) for axis in axes])
    )
    return float(count * len(rows) * unit.startup + busy)


@dataclass(frozen=True)
class VectorWork:
    """The vector engine's work for one nest in a tile."""

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
        chain = self._chain
        known = _chain_cycles_cache(chain)
        tiles = np.broadcast_arrays(*self.sizes) if self.sizes else []
        if all(column.ndim == 0 for column in tiles):
            return _chain_cycles(chain, known, tuple(map(int, self.sizes)))
        each = zip(*(column.ravel().tolist() for column in tiles), strict=True)
        return np.reshape([_chain_cycles(chain, known, tile) for tile in each], tiles[0].shape)

    @property
    def _chain(self) -> InstructionChain:
        nest = self.nest
        inner = tuple(dim.extent for dim in nest.dims[nest.rank :])
        links = tuple(self._batch_shape(link) for link in self._links() if link.times)
        rows: tuple[int, ...] = ()
        channels = self._order
        if any(step.taps for step in links):
            found = roles(nest)
            rows = tuple(d for d in (found.y, found.x) if d is not None)
            channels = tuple(d for d in channels if d not in rows and nest.dims[d].extent > 1)
        return InstructionChain(nest.rank, inner, self._order, links, rows, channels)

    def _batch_shape(self, link: InstructionBatch) -> BatchShape:
        operands = (link.written, *link.reads)
        held = [StoredOperand(operand.role, operand.item) for operand in operands]
        form = link.form, cost_of(link.form)
        unit = unit_of(self.arch, form, held, self.way.finisher, self.beside)
        kind = ReductionKind(True, link.joins) if link.reduces else PLAIN
        places = tuple(self._operand_layout(operand) for operand in operands)
        return BatchShape(unit, kind, link.times, link.taps, places)

    def _operand_layout(self, operand: NestOperand) -> OperandLayout:
        if operand.access is None:
            return OperandLayout(operand.item, None, ())
        tensor = self.tensors[operand.access.tensor]
        index = tuple(affine.terms for affine in operand.access.index)
        return OperandLayout(operand.item, index, order_of(tensor.shape, tensor.storage.strides))

    @property
    def least(self) -> float:
        """Lower bound for any layout and any cut: elements over lanes."""
        return sum(self._least(link) for link in self._links()) / self.units

    def _least(self, link: InstructionBatch) -> float:
        if self.way.engine == "scalar":
            return 0.0  # beside the vector engine
        inner = self.nest.dims[self.nest.rank :] if link.reduces else ()
        elements: int = math.prod((*self.sizes, *(dim.extent for dim in inner))) * link.times
        factor = self.arch.factor(link.form, cost_of(link.form))
        return elements * max(1, link.taps) / self._lanes(link) * factor

    def _links(self) -> Iterator[InstructionBatch]:
        """Instruction batches in the order of emission, equal ones once."""
        nest, arch = self.nest, self.arch
        target, scratch = (
            self._buffer_operand(self._result_dtype),
            self._buffer_operand(between_type(arch)),
        )
        source = scratch
        if self.way.product:
            kind = accumulator_of(self.tensors[nest.operands[0].tensor].dtype)
            source = self._buffer_operand(kind, self.way.sums)
        links = links_of(nest, self.tensors, self.way, arch)
        last = len(links) - 1
        for (made, link), alike in groupby(
            enumerate(links), lambda each: (each[0] == last, each[1]._replace(at=None))
        ):
            reads = tuple(
                source if index is None else self._read_operand(nest.reads[index])
                for index in link.reads
            )
            yield self._link(link, target if made else scratch, reads, len(list(alike)))
            source = scratch

    def _link(
        self, link: Fissioned, written: NestOperand, reads: tuple[NestOperand, ...], times: int
    ) -> InstructionBatch:
        nest, engine = self.nest, self.way.finisher
        if link.kind == "each":
            form = elementwise_form(link.function, len(reads), engine)
            return InstructionBatch(written, reads, form, times)
        if link.kind == "window":
            taps = math.prod(dim.extent for dim in nest.dims[nest.rank :])
            return InstructionBatch(written, reads, form_of(nest, engine), taps=taps)
        pieces = engine != "scalar" and adds_up_in_pieces(nest, self.tensors, self.arch)
        joins = pieces or joins_in_place(nest, self.tensors)
        return InstructionBatch(written, reads, form_of(nest, engine), reduces=True, joins=joins)

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

    def _buffer_operand(self, dtype: str, role: str = "local") -> NestOperand:
        return NestOperand(role, size_of(dtype))

    def _read_operand(self, access: Access) -> NestOperand:
        tensor = self.tensors[access.tensor]
        real = access.tensor in self.inside and is_float(tensor.dtype)
        kind = temporary_type(self.arch) if real else tensor.dtype
        return NestOperand("local", size_of(kind), access)

    def _lanes(self, link: InstructionBatch) -> float:
        if self.way.engine == "scalar":
            return 1.0
        widest = max(operand.item for operand in (link.written, *link.reads))
        return self.arch.vector.elements(widest)


# How a sum of products lies on the vector engine: what goes along the lanes, and what loops walk.


def lane_of(extents: Sequence[tuple[int, int]], lanes: float) -> int | None:
    """The dimension of a result that lies along the lanes: the one that leaves fewest of them
    empty, of several the one that moves on in memory least; None: the result is one element.

    Args:
        extents: dimensions and their extents, as they lie in memory, slowest first.
        lanes: elements of a vector.
    """
    moving = [(dim, extent) for dim, extent in extents if extent > 1]
    if not moving:
        return None
    best = min(reversed(moving), key=lambda each: math.ceil(each[1] / lanes) / each[1])
    return best[0]


def kept_dims(extents: Sequence[int], adds: Sequence[bool], rank: int) -> set[int]:
    """Dimensions that one instruction walks: the last, most of the reduction, most of the rows.

    Args:
        extents: of all dimensions, that of the lanes last.
        adds: whether a dimension is added up.
        rank: dimensions of an instruction.
    """
    last = len(extents) - 1
    others = sorted(range(last), key=lambda axis: -extents[axis])
    sums, rows = ([axis for axis in others if adds[axis] == added] for added in (True, False))
    wanted = dict.fromkeys([*sums[:1], *rows[:1], *others])
    return {last, *list(wanted)[: max(0, rank - 1)]}
