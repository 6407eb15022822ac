"""The numpy meaning of a schedule: what its tiles compute, in their order, from what is on chip.

Every core has arrays of its own for what its group holds, and only what the current tile holds is
there: a tile that reads a position which neither it nor a tile before has made is an error, not a
value. What passes between groups goes through the network's buffers, or stays on chip where it is
kept. Addresses and slots have no meaning here, and a sum that is split is made at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from compiler.cost.multicast import handovers
from compiler.geometry.needs import layer_boxes
from compiler.geometry.tile_trace import TileStep, TileTrace, TraceCache, trace_parts
from compiler.schedule_ir.group import Group, ResidentTensor, padded
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Schedule, Tiled
from compiler.tensor_ir.bounds import Box, clipped, empty
from compiler.tensor_ir.interpreter import Host, feed, outputs, run_host, run_nest, views
from compiler.tensor_ir.nest import Access, Affine, Array, Dim, HostNode, Nest, NestGraph
from simmodel.arch.dtype import NUMPY


class NotThere(Exception):
    """A tile reads what is not on chip; says what."""


def run_schedules(
    graph: NestGraph,
    steps: Iterable[Schedule | HostNode],
    inputs: Mapping[str, Array],
    host: Host | None = None,
) -> dict[str, Array]:
    """Outputs of `graph` by name, computed tile by tile.

    Args:
        graph: the network.
        steps: a schedule for every group, and calls of the host, in order.
        inputs: one array for each graph input, in its shape.
        host: runs calls of the host; needed when there are any.

    Raises:
        ValueError: an input is missing or has another shape, or a host call has no host.
        NotThere: a schedule is wrong.
    """
    memory = views(graph)
    feed(graph, inputs, memory)
    chip: Chip = {}
    for step in steps:
        if isinstance(step, HostNode):
            run_host(step, memory, host)
        else:
            chip = _Group(step, memory, chip).run()
    return outputs(graph, memory)


@dataclass
class _ChipTensor:
    """A tensor on chip, in its whole shape, and which positions of it are there."""

    values: Array
    there: Array

    def forget_outside(self, box: Box) -> None:
        """Forget everything outside of `box`."""
        inside = np.zeros_like(self.there)
        inside[_slices(box)] = True
        self.there &= inside

    def part(self, kept: ResidentTensor) -> _ChipTensor:
        """What lies in it, a place on chip: what happens to one happens to the other."""
        first = kept.offset + sum(b * s for b, s in zip(kept.before, kept.strides, strict=True))

        def seen(place: Array) -> Array:
            steps = tuple(s * place.itemsize for s in kept.strides)
            return as_strided(place[first:], kept.shape, steps)

        return _ChipTensor(seen(self.values), seen(self.there))

    def check(self, box: Box, name: str) -> None:
        """Raise NotThere unless all of `box` is there."""
        if not self.there[_slices(box)].all():
            raise NotThere(f"{name} {list(box)} is not on chip")


def _empty(shape: tuple[int, ...], dtype: str) -> _ChipTensor:
    return _ChipTensor(np.zeros(shape, NUMPY[dtype]), np.zeros(shape, bool))


def _uncut(kept: ResidentTensor) -> ResidentTensor:
    """A tensor that is kept, as if each core had room for all of it."""
    if not kept.cut:
        return kept
    return replace(kept, cut=(), room=padded(kept.shape, kept.before, kept.after))


Chip = Mapping[int, Mapping[str, _ChipTensor]]
"""Core -> what it keeps, by the tensors that fill its places."""


@dataclass
class _Group:
    """One group, core by core."""

    schedule: Schedule
    memory: dict[str, Array]
    """Tensors in DRAM or shared memory."""
    chip: Chip
    """What the groups before have left on chip."""

    def __post_init__(self) -> None:
        self.group: Group = self.schedule.group

    def run(self) -> Chip:
        """Run it; what it leaves on chip."""
        kept, tensors = self.group.kept, self.group.tensors
        left = dict(self.chip)
        homes = {name: _uncut(k) for name, k in kept.items()}
        walks = trace_parts(self.group, self.schedule.loops, self.schedule.parts, TraceCache())
        for number, walked in enumerate(walks):
            fresh = {
                k.whole: _empty((math.prod(k.room),), tensors[k.whole].dtype)
                for k in homes.values()
            }
            chip = left[number] = {**fresh, **left.get(number, {})}
            there = {name: chip[k.whole].part(k) for name, k in homes.items()}
            core = _CoreState(self, there)
            for tile in _tiles_in_order(walked, self.group):
                core.tile(tile)
        for name in (n for n in self.group.results if n in kept):
            for one in handovers(self.group, self.schedule.parts, name):
                here, *taken = (
                    left[core][homes[name].whole].part(homes[name])
                    for core in (one.giver, *one.takers)
                )
                here.check(one.box, name)
                for their in taken:
                    their.values[_slices(one.box)] = here.values[_slices(one.box)]
                    their.there[_slices(one.box)] = True
        return left


def _tiles_in_order(walked: TileTrace, group: Group) -> Iterator[TileStep]:
    """All tiles of a core in order, at their places."""
    for turn, moment in itertools.product(range(walked.repeats), walked.moments):
        yield _shift_tile(moment, walked, group, turn) if turn else moment


def _shift_tile(moment: TileStep, walked: TileTrace, group: Group, turn: int) -> TileStep:
    """A tile in another turn of the outermost loop."""
    strides = walked.strides or {}

    def at(name: str, box: Box) -> Box:
        steps = strides.get(name, (0,) * len(box))
        return tuple((low + turn * s, n) for (low, n), s in zip(box, steps, strict=True))

    return replace(
        moment,
        out={name: at(name, box) for name, box in moment.out.items()},
        work=tuple(
            None if box is None else at(layer.result.name, box)
            for layer, box in zip(group.layers, moment.work, strict=True)
        ),
        holds={
            name: hold if name in walked.still else replace(hold, box=at(name, hold.box))
            for name, hold in moment.holds.items()
        },
    )


@dataclass
class _CoreState:
    """What one core has on chip while it works on its part."""

    whole: _Group
    held: dict[str, _ChipTensor] = field(default_factory=dict)

    def tile(self, moment: TileStep) -> None:
        """Load, compute and store one tile."""
        group = self.whole.group
        for name, hold in moment.holds.items():
            held = self._on_chip(name)
            held.forget_outside(hold.box)
            if name not in group.producer_positions and name not in group.kept:
                held.values[_slices(hold.box)] = self.whole.memory[name][_slices(hold.box)]
                held.there[_slices(hold.box)] = True
        for tiled, box in zip(self.whole.schedule.layers, moment.work, strict=True):
            for piece in () if box is None else _layer_pieces(tiled, box):
                self._piece(tiled.layer, piece, moment)
        for name, box in moment.out.items():
            if name in moment.holds and name in group.stored:
                self.held[name].check(box, name)
                self.whole.memory[name][_slices(box)] = self.held[name].values[_slices(box)]

    def _on_chip(self, name: str) -> _ChipTensor:
        if name not in self.held:
            tensor = self.whole.group.tensors[name]
            self.held[name] = _empty(tensor.shape, tensor.dtype)
        return self.held[name]

    def _piece(self, layer: Layer, box: Box, moment: TileStep) -> None:
        """Make `box` of a layer's result."""
        wants, needs = layer_boxes(layer, box)
        tensors = dict(self.whole.memory)
        for name, need in needs.items():
            if name in moment.holds:
                inside = clipped(need, layer.tensors[name].shape).box
                if not empty(inside):
                    self.held[name].check(inside, name)
                tensors[name] = self.held[name].values
        for nest in layer.nests:
            name, here = nest.tensor, wants[nest.tensor]
            if name in layer.inside:
                made = layer.tensors[name]
                tensors[name] = np.zeros(made.shape, NUMPY[made.dtype])
            elif name in moment.holds:
                tensors[name] = self.held[name].values
                self.held[name].there[_slices(here)] = True
            run_nest(within(nest, here), {**tensors, name: tensors[name][_slices(here)]})


def _layer_pieces(tiled: Tiled, box: Box) -> Iterator[Box]:
    """The pieces in which a layer makes `box` of its result, in order."""
    loops = [loop for loop in tiled.loops if not loop.reduction]
    starts = (range(box[loop.dim][0], sum(box[loop.dim]), loop.size) for loop in loops)
    for at in itertools.product(*starts):
        piece = list(box)
        for loop, start in zip(loops, at, strict=True):
            piece[loop.dim] = start, min(loop.size, sum(box[loop.dim]) - start)
        yield tuple(piece)


def within(nest: Nest, box: Box) -> Nest:
    """`nest` for `box` of its result alone: loops from zero on, accesses that begin there."""
    dims = [Dim(dim.name, size) for dim, (_, size) in zip(nest.dims, box, strict=False)]

    def moved(access: Access) -> Access:
        return replace(access, index=tuple(_from(affine, box) for affine in access.index))

    return replace(
        nest,
        dims=(*dims, *nest.dims[nest.rank :]),
        operands=tuple(map(moved, nest.operands)),
        bias=None if nest.bias is None else moved(nest.bias),
        multiplier=None if nest.multiplier is None else moved(nest.multiplier),
    )


def _from(affine: Affine, box: Box) -> Affine:
    more = sum(factor * box[dim][0] for dim, factor in affine.terms if dim < len(box))
    return Affine(affine.terms, affine.constant + more)


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(start, start + size) for start, size in box)
