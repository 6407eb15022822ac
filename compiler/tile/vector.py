"""Cycles of the vector engine for one nest over a tile, instruction by instruction.

A nest is a chain of links (see `emit.vector`): its function, tap by tap where the engine has no
windows, then bias and multiplier. The engine walks what all operands of a link walk as one, whole
vectors of its lanes to each innermost row; what has more dimensions than it walks, or longer rows,
is several instructions, and each pays the engine's start-up and the latency of what it reads.

    bias of [n, 64, 8, 8] by channel      rows of 64 positions, 64 of them, in 2 dimensions
    on an engine of rank 1                64 instructions

Sizes may be arrays over candidates.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.bind.machine import adds_up_in_pieces, form_of, temporary_type
from compiler.bind.roles import roles
from compiler.bind.units import columns, largest
from compiler.binding import Binding
from compiler.cost.operands import Flows
from compiler.cost.transfer import pitches
from compiler.nest.ir import Access, Nest, Tensor, order_of
from simmodel.arch import Arch
from simmodel.dtype import accumulator_of, is_float, size_of
from simmodel.isa.forms import cost_of
from simmodel.isa.functions import JOINS

_MOVE, _MULTIPLY = "vector.unary.move", "vector.binary.mul"


def vector_startup(arch: Arch, read: Collection[str] = ("local",), engine: str = "vector") -> int:
    """Cycles before an instruction that reads these memories moves its first operand."""
    memories = arch.memories.on_chip()
    latency = max((memories[role].latency.cycles(arch.clock) for role in read), default=0)
    own = arch.scalar.startup if engine == "scalar" else arch.vector.startup
    return own.cycles(arch.clock) + latency


def move_cycles(
    arch: Arch, item: int, sizes: Sequence[int], room: Sequence[int], order: Sequence[int]
) -> float:
    """Cycles of moving `sizes` elements of `item` bytes within a buffer of `room`.

    What follows on in memory is one row: rows of a map in one piece, columns of it line by line.

    Args:
        order: axes of the buffer, slowest first.
    """
    engine, (rank, longest) = arch.vector, arch.reach(_MOVE)
    lanes = engine.elements(item)
    dims, run, end, step = [1], 1, 0, 1
    for axis in reversed(order):
        if sizes[axis] > 1:
            run = run * sizes[axis] if step == run else run
            if end in (0, step):
                dims[-1] *= sizes[axis]
            else:
                dims.append(sizes[axis])
            end = step * sizes[axis]
        step *= room[axis]
    dims += [1] * (rank - len(dims))
    limit = longest or dims[0]
    whole, rest = divmod(dims[0], limit)
    count = math.prod(dims[rank:])
    rows = count * math.prod(dims[1:rank])
    if rank == 1:
        count *= whole + bool(rest)
    else:
        count *= instructions(whole, rest, dims[rank - 1])
    flows = Flows(arch)
    for write in (False, True):
        flows.add("local", math.prod(sizes) * item, run * item, write=write)
    work = rows * (whole * math.ceil(limit / lanes) + math.ceil(rest / lanes))
    return float(count * vector_startup(arch) + max(work, flows.longest()))


def instructions(whole: Any, rest: Any, last: Any) -> Any:
    """Instructions for rows of `whole` pieces and a rest: pieces of a row are taken one by one or,
    where the outermost dimension is free or as short as `last`, walked along that one."""
    one_by_one = whole + np.greater(rest, 0)
    return np.minimum(one_by_one, last * (np.minimum(whole, 1) + np.greater(rest, 0)))


@dataclass(frozen=True)
class Walked:
    """An operand as the loops of a nest walk it."""

    role: str
    """Of the memory that it lies in."""
    item: int
    """Bytes of an element."""
    steps: Sequence[Any]
    """Elements by which each loop moves on; 0: it stands still."""


@dataclass(frozen=True)
class Link:
    """Instructions that are alike but for the position of the kernel."""

    written: Walked
    reads: tuple[Walked, ...]
    form: str
    """Name of their form."""
    times: int = 1
    taps: int = 0
    """Kernel positions within an instruction that slides a window; 0: it slides none."""
    reduces: bool = False
    """Whether it walks the reduction as well."""


@dataclass(frozen=True)
class VectorWork:
    """What the vector engine does for one nest in a tile."""

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
        """Of all instructions of the engine that has most to do, start-ups included."""
        if self.units > self.beside:
            shared = columns(self.nest, self.way, self.arch)
            sizes = largest(self.sizes, self._order, self.units, shared)
            return replace(self, sizes=sizes, beside=self.units).cycles
        total: Any = 0
        for link in self._links():
            total = total + self._of(link)
        return total

    @property
    def least(self) -> float:
        """Cycles that remain whatever the layout and however it is cut: elements over lanes."""
        return sum(self._least(link) for link in self._links()) / self.units

    def _least(self, link: Link) -> float:
        if self.way.engine == "scalar":
            return 0.0  # beside the vector engine
        elements: int = math.prod(self.extents if link.reduces else self.sizes) * link.times
        factor = self.arch.factor(link.form, cost_of(link.form))
        return elements * max(1, link.taps) / self._lanes(link) * factor

    @property
    def extents(self) -> list[Any]:
        """Positions of every loop of the nest."""
        inner = (dim.extent for dim in self.nest.dims[self.nest.rank :])
        return [*self.sizes, *inner]

    def _links(self) -> Iterator[Link]:
        nest, arch = self.nest, self.arch
        late = [
            (access, form)
            for access, form in ((nest.bias, "vector.binary.add"), (nest.multiplier, _MULTIPLY))
            if access is not None
        ]
        target, scratch = self._made(self._kind), self._made(temporary_type(arch))
        if self.way.product:
            if self.way.direct:
                return
            kind = accumulator_of(self.tensors[nest.operands[0].tensor].dtype)
            source = self._made(kind, self.way.sums)
            if not late:
                yield Link(target, (source,), _MOVE)
        else:
            pieces = self.way.engine != "scalar" and adds_up_in_pieces(nest, self.tensors, arch)
            more = bool(late) or pieces
            yield from self._main(scratch if more else target, scratch)
            source = scratch
            if more and not late:
                yield Link(target, (source,), _MOVE)
        for number, (access, form) in enumerate(late, 1):
            made = target if number == len(late) else scratch
            yield Link(made, (source, self._read(access)), form)
            source = scratch

    def _main(self, target: Walked, scratch: Walked) -> Iterator[Link]:
        """The nest's own function."""
        nest = self.nest
        reads = tuple(self._read(access) for access in nest.operands)
        if nest.reduce is None:
            yield Link(target, reads, form_of(nest, self.way.finisher))
            return
        taps = math.prod(dim.extent for dim in nest.dims[nest.rank :])
        weighted = len(reads) > 1
        if not roles(nest).taps:
            yield Link(target, reads[:1], form_of(nest, self.way.finisher), reduces=True)
        elif self.arch.vector.window:
            form = f"vector.window.{'fma' if weighted else nest.reduce}"
            yield Link(target, reads, form, taps=taps)
        else:
            yield Link(scratch if taps > 1 else target, reads, _MULTIPLY if weighted else _MOVE)
            join = "vector.ternary.fma" if weighted else f"vector.binary.{JOINS[nest.reduce]}"
            yield Link(scratch, (*reads, scratch), join, times=max(0, taps - 2))
            yield Link(target, (*reads, scratch), join, times=min(1, taps - 1))

    @property
    def _kind(self) -> str:
        """Element type of the result: real values inside a layer are as wide as can be."""
        dtype, wide = self.tensors[self.nest.tensor].dtype, temporary_type(self.arch)
        widened = self.nest.tensor in self.inside and is_float(dtype)
        return wide if widened and size_of(wide) > size_of(dtype) else dtype

    @property
    def _order(self) -> tuple[int, ...]:
        """Dimensions of the result in memory, slowest first."""
        result = self.tensors[self.nest.tensor]
        return order_of(result.shape, result.storage.strides)

    def _made(self, dtype: str, role: str = "local") -> Walked:
        """The tile's own buffer for the result, or for what stands in its stead."""
        steps = pitches(self.sizes, self._order)
        inner = [0] * (len(self.nest.dims) - self.nest.rank)
        return Walked(role, size_of(dtype), [*steps, *inner])

    def _read(self, access: Access) -> Walked:
        """What the tile reads, in a buffer of just that."""
        extents, tensor = self.extents, self.tensors[access.tensor]
        box = [
            1 + sum(abs(factor) * (extents[d] - 1) for d, factor in affine.terms)
            for affine in access.index
        ]
        pitch = pitches(box, order_of(tensor.shape, tensor.storage.strides))
        steps: list[Any] = [0] * len(extents)
        for affine, stride in zip(access.index, pitch, strict=True):
            for d, factor in affine.terms:
                steps[d] = steps[d] + factor * stride
        wide = temporary_type(self.arch)
        real = access.tensor in self.inside and is_float(tensor.dtype)
        return Walked("local", size_of(wide if real else tensor.dtype), steps)

    def _lanes(self, link: Link) -> float:
        if self.way.engine == "scalar":
            return 1.0
        widest = max(operand.item for operand in (link.written, *link.reads))
        return self.arch.vector.elements(widest)

    def _of(self, link: Link) -> Any:
        """Cycles of all instructions of a link."""
        arch, lanes = self.arch, self._lanes(link)
        inner, rows, last, pieces = self._window() if link.taps else self._joined(link)
        factor = arch.factor(link.form, cost_of(link.form))
        limit = arch.reach(link.form)[1] or np.iinfo(np.int64).max
        whole, rest = inner // limit, inner % limit
        most = np.ceil(rows * np.ceil(np.minimum(inner, limit) / lanes) * factor)
        work = pieces * (whole * most + np.ceil(rows * np.ceil(rest / lanes) * factor))
        count = pieces * self._instructions(link, whole, rest, last)
        busy = np.maximum(work * max(1, link.taps), self._moved(link) * self.beside)
        start = vector_startup(arch, {operand.role for operand in link.reads}, self.way.finisher)
        return link.times * (count * start + busy)

    def _instructions(self, link: Link, whole: Any, rest: Any, last: Any) -> Any:
        """Instructions for rows of `whole` longest ones and a rest, `last` of them along the
        outermost dimension."""
        if link.taps or link.reduces or self.arch.reach(link.form)[0] == 1:
            return whole + (rest > 0)
        return instructions(whole, rest, last)

    def _window(self) -> tuple[Any, Any, Any, Any]:
        """Channels, rows of them and instructions of a window, which no dimensions join."""
        found, nest = roles(self.nest), self.nest
        rows = [d for d in (found.y, found.x) if d is not None]
        moving = [d for d in self._order if d not in rows and nest.dims[d].extent > 1]
        inner = moving[-1:]
        lead = (self.sizes[d] for d in moving[:-1])
        channels, walked = (math.prod(self.sizes[d] for d in dims) for dims in (inner, rows))
        return channels, walked, walked, math.prod(lead)

    def _joined(self, link: Link) -> tuple[Any, Any, Any, Any]:
        """Positions of a row however long, rows of an instruction, how many of these lie along its
        outermost dimension, and instructions."""
        operands, extents = (link.written, *link.reads), self.extents
        depth: Any = 0
        dims: list[Any] = [1]  # a scalar is a row of one
        ends: list[Any] = [0] * len(operands)
        for loop in self._loops(link):
            size, steps = extents[loop], [operand.steps[loop] for operand in operands]
            moves, joins = np.greater(size, 1), np.greater(depth, 0)
            for step, end in zip(steps, ends, strict=True):
                joins = joins & np.equal(step, end)
            depth = depth + (moves & ~joins)
            for level, extent in enumerate(dims, 1):
                dims[level - 1] = np.where(moves & (depth == level), extent * size, extent)
            ends = [
                np.where(moves, step * size, end) for step, end in zip(steps, ends, strict=True)
            ]
            dims.append(1)
        rank, _ = self.arch.reach(link.form)
        dims += [1] * (rank - len(dims))
        return dims[0], math.prod(dims[1:rank]), dims[rank - 1], math.prod(dims[rank:])

    def _loops(self, link: Link) -> list[int]:
        """Loops that an instruction walks, the fastest first; by what it reads where it reduces."""
        if not link.reduces:
            return [*reversed(self._order)]
        return _by_steps(range(len(self.nest.dims)), link.reads[0])

    def _moved(self, link: Link) -> Any:
        """Cycles that the memories take for what a link reads and writes."""
        flows, rank, every = Flows(self.arch), self.nest.rank, len(self.nest.dims)
        for operand in (link.written, *link.reads):
            # Of a window's input each position is read once, however many kernel positions see it.
            inner = link.reduces or (link.taps and operand is link.reads[-1] is not link.reads[0])
            size: Any = operand.item
            run: Any = 1
            for loop in _by_steps(range(every if inner else rank), operand):
                step, extent = operand.steps[loop], self.extents[loop]
                run = np.where(np.equal(step, run), run * extent, run)
                size = size * np.where(np.equal(step, 0), 1, extent)
            flows.add(operand.role, size, run * operand.item, write=operand is link.written)
        return flows.longest()


def _by_steps(loops: Iterable[int], operand: Walked) -> list[int]:
    """`loops` by how far they move an operand, the shortest way first."""
    return sorted(loops, key=lambda loop: int(np.max(operand.steps[loop])))
