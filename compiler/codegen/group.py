"""The steps of one group on one core: outer loops around its layers, and what passes between them.

constants that stay
for o0: for o1:             tiles of the results, runs of equal ones as one hardware loop
  inputs of the tile
  layer by layer            border of its result, its steps; what the next tile keeps, its store
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from compiler.codegen.constants import PackedWeights
from compiler.codegen.layer import LayerEmitter
from compiler.codegen.legalize import legal_vector
from compiler.codegen.nodes import EngineStep, LoopSegment, Node, SegmentedLoop, emptied, of_tile
from compiler.codegen.tile import (
    EmissionContext,
    TilePosition,
    Turn,
    address_of_ranges,
    in_buffer,
    place_in,
    slot_address,
)
from compiler.geometry.boxes import Range, Region, needs, scaled, summed
from compiler.geometry.tile_trace import Repeat, TileStep, TileTrace
from compiler.plan.make_plan import Plan, outer
from compiler.plan.symbolic_parts import STILL, Following
from compiler.schedule.residency.buffer import TileBuffer
from compiler.target.group_facts import by_part
from compiler.target.start_sums import FACTORS, LOWEST
from compiler.tensor_ir.bounds import Box, TileWindow, empty, raw_value
from simmodel.arch.element_types import is_float
from simmodel.isa import Await, Copy, Item, Splat, Unary
from simmodel.isa.region import Address, Operand, Terms, cached_property, replace
from simmodel.program.program import TileKind, TileLoop


@dataclass(frozen=True)
class Moving:
    """Where the outer loops stand: one run of tiles, with what each loop adds to positions."""

    walked: TileTrace
    run: Repeat
    variables: tuple[str, str]
    """Names of the loops around all tiles and over the tiles; empty where there is none."""
    turn: int = 0
    """Turns of the loop around all tiles that are over before its variable counts."""
    path: tuple[TileLoop, ...] = ()
    """Which tiles these are."""
    turns: tuple[Turn, ...] = (Turn(),)
    """By level, turns of the loops."""
    core: int = 0
    following: Following = STILL

    @property
    def moment(self) -> TileStep:
        """The run's first tile."""
        return self.walked.moments[self.run.first]

    def work(self, box: Box, then: Box | None, tensor: str) -> tuple[Range, ...]:
        """`box` of what the first tile computes of a tensor, moved by loops and lengths; `then` is
        that of the next tile."""
        return self.following.work(self.core, tensor, self._ranges(box, then, tensor))

    def buffered_ranges(self, box: Box, then: Box | None, tensor: str) -> tuple[Range, ...]:
        """The same of what it holds."""
        return self.following.buffered_box(self.core, tensor, self._ranges(box, then, tensor))

    def _ranges(self, box: Box, then: Box | None, tensor: str) -> tuple[Range, ...]:
        around, over = self.variables
        strides = (self.walked.strides or {}).get(tensor, (0,) * len(box))
        spans = []
        for dim, (start, size) in enumerate(box):
            terms: Terms = ((around, strides[dim]),) if around else ()
            if over and then is not None:
                terms = (*terms, (over, then[dim][0] - start))
            spans.append(Range(start + self.turn * strides[dim], size, summed(terms)))
        return tuple(spans)

    @property
    def next(self) -> TileStep | None:
        """The run's second tile."""
        if self.run.count == 1:
            return None
        return self.walked.moments[self.run.first + 1]

    def buffer_origin(self, tensor: str) -> tuple[Range, ...]:
        """Where the buffer of a held tensor begins in it; sizes without meaning."""
        hold = self.moment.holds[tensor]
        if tensor in self.walked.still:
            still = tuple(Range(*span) for span in _origin(hold))
            return self.following.buffered_box(self.core, tensor, still)
        then = None if self.next is None else self.next.holds[tensor]
        return self.buffered_ranges(_origin(hold), None if then is None else _origin(then), tensor)


def _origin(hold: TileWindow) -> Box:
    return tuple((start, size) for start, size in zip(hold.origin, hold.sizes, strict=True))


@dataclass(frozen=True)
class GroupEmitter:
    """Emits one planned group for one core."""

    around: EmissionContext
    plan: Plan
    packs: Sequence[PackedWeights | None]
    """By layer."""
    origins: Sequence[tuple[int, ...]]
    """By layer, origin index of every nest."""
    following: Following
    """How the cores' parts follow lengths."""
    number: int
    """Of the core among those that take part."""

    @cached_property
    def layers(self) -> tuple[LayerEmitter, ...]:
        layers = zip(self.plan.layers, self.packs, self.origins, strict=True)
        return tuple(
            LayerEmitter(
                self._ahead(self.plan.schedule.ahead(plan.position)),
                pack.on_chip(plan) if pack else plan, pack, origins,
            )
            for plan, pack, origins in layers
        )  # fmt: skip

    def _ahead(self, tiles: int) -> EmissionContext:
        """What steps share that are so many tiles ahead of those of the last layer."""
        return replace(self.around, ahead=tiles) if tiles else self.around

    @cached_property
    def walked(self) -> TileTrace:
        return self.plan.walked[self.number]

    def _moving(self, run: Repeat, variables: tuple[str, str] = ("", ""), **fields: Any) -> Moving:
        following = self.following
        return Moving(self.walked, run, variables, core=self.number, following=following, **fields)

    def nodes(self) -> list[Node]:
        """All steps."""
        computes = [c for layer in self.plan.layers for c in layer.computes if c.start]
        factors = dict.fromkeys(compute.start[1] for compute in computes)
        return [*map(self._factors, factors), *self._nodes()]

    def _factors(self, name: str) -> EngineStep:
        """What lays the factors of digits, less the zero point with which they are read."""
        around, buffer, origin = self.around, self.plan.buffers[name], self.layers[0].origin
        items: list[Item] = []
        whole = not is_float(buffer.dtype)
        lays = {buffer.shape[0]: FACTORS[-1], 1: FACTORS[0]} if whole else {buffer.shape[0]: 1}
        for size, value in lays.items():
            address = Address(around.places.chip[name][0])
            dst = Operand(buffer.role, address, (size,), buffer.strides, buffer.dtype)
            splat = Splat(engine="vector", origin=origin, dst=dst, value=value + LOWEST * whole)
            items += legal_vector(splat, around.arch, around.names)
        return EngineStep("vector", tuple(items), around.uses((), (buffer,)), origin)

    def _nodes(self) -> list[Node]:
        schedule = self.plan.schedule
        if not self.plan.walked:
            part = tuple(Range(*span) for span in schedule.parts[self.number])
            out = self.following.work(self.number, schedule.group.results[-1], part)
            tile = TilePosition(self.around, self.layers[0].plan, out, {}, (Turn(),))
            return self.layers[0].nodes(tile)
        depth = len(schedule.loops)
        if depth == 0:
            whole = range(len(self.layers))
            return self._tile_nodes(self._moving(Repeat(0, 1)), whole, first=True)
        if depth == 1:
            return [self._tile_loop("", (Turn(),), (), first=True)]
        # Constants that stay arrive in the first turn.
        repeats = self.walked.repeats
        rest = repeats - 1

        def path(begin: int, count: int) -> tuple[TileLoop, ...]:
            return (place_in(outer(0), begin, count, repeats, (begin, count)),)

        segments = [
            LoopSegment(1, (self._tile_loop("", (Turn(), Turn()), path(0, 1), first=True),))
        ]
        if rest:
            around = outer(0) if rest > 1 else ""
            turn = Turn(1, ((around, 1),) if around else ())
            walk = self._tile_loop(around, (Turn(), turn), path(1, rest), first=False)
            segments.append(LoopSegment(rest, (walk,)))
        return [SegmentedLoop(outer(0), tuple(segments))]

    def _tile_loop(
        self, around: str, turns: tuple[Turn, ...], path: tuple[TileLoop, ...], *, first: bool
    ) -> SegmentedLoop:
        """The loop over tiles, inside the one that `path` tells of."""
        total = len(self.walked.moments)
        name = outer(len(turns) - 1)
        stages = self.plan.schedule.stages

        def tiles(run: Repeat, part: range) -> tuple[list[Node], list[Node]]:
            """What some layers do in a run of tiles, borders and the rest; nothing, in their
            places, in one before the first or behind the last."""
            there = 0 <= run.first < total
            run = run if there else Repeat(min(max(run.first, 0), total - 1), 1)
            counted = ((name, 1),) if run.count > 1 else ()
            last = turns[-1]
            turn = Turn(last.offset * total + run.first, summed(scaled(last.terms, total), counted))
            offset = turns[-1].offset if len(turns) > 1 else 0
            over = name if run.count > 1 else ""
            like = next(r for r in self.walked.alike if r.first <= run.first < r.first + r.count)
            here = place_in(name, run.first, run.count, total, (like.first, like.count))
            moving = self._moving(
                run, (around, over), turn=offset, path=(*path, here), turns=(*turns, turn)
            )
            borders = self._borders(moving, part) if len(stages) > 1 else []
            nodes = self._tile_nodes(moving, part, first=first and run.first == 0)
            if not there:
                return [*map(emptied, borders)], [*map(emptied, nodes)]
            return borders, nodes

        ends = (*(run.first for run in self._runs), total)
        early = range(len(stages))[::-1]
        bodies = []
        for begin, end in pairwise(sorted({end - ahead for end in ends for ahead in early})):
            runs = (Repeat(begin + ahead, end - begin) for ahead in early)
            # Products do not wait for borders behind what other stages do meanwhile.
            body = chain.from_iterable(chain(*zip(*map(tiles, runs, stages), strict=True)))
            bodies.append(LoopSegment(end - begin, tuple(body)))
        return SegmentedLoop(name, tuple(bodies))

    @property
    def _runs(self) -> Iterator[Repeat]:
        """Runs of tiles; one that waits for a piece of what the host makes is a run by itself."""
        waiting = [tile for tiles in self.around.pieces.values() for tile in tiles]
        for run in self.walked.runs:
            end = run.first + run.count
            inside = (cut for tile in waiting for cut in (tile, tile + 1) if run.first < cut < end)
            for first, last in pairwise(sorted({run.first, *inside, end})):
                yield Repeat(first, last - first)

    def _is_constant(self, buffer: str) -> bool:
        key = self.plan.buffers[buffer].key
        assert key is not None
        return self.plan.schedule.group.tensors[key[0]].data is not None

    def _tile_nodes(self, moving: Moving, part: range, *, first: bool) -> list[Node]:
        """Some layers of one tile; the first one waits for the constants that stay."""
        nodes: list[Node] = []
        for name, engine in self.plan.loads:
            buffer = self.plan.buffers[name]
            if not self._is_constant(name) and self._first_reader(buffer) in part:
                load = self._input(buffer, engine, moving)
                nodes += of_tile([load], self._tile_of(buffer.first, moving))
        stores, stored = dict(self.plan.stores), self.plan.schedule.group.stored
        origins = self._origins(moving)
        for position in part:
            layer = self.layers[position]
            steps = self._constant_loads(position, first=first)
            if any(compute.start for compute in layer.plan.computes):
                rows = layer.first_rows(self._layer_share(layer, origins), None, 0)
                steps += rows if first else map(emptied, rows)
            steps += self._layer_nodes(layer, position, moving, origins)
            if layer.plan.tiled.layer.result.name in stored and layer.plan.result in stores:
                steps.append(self._store(layer, stores[layer.plan.result], moving))
            steps += self._handing(position, moving, apart=False)
            nodes += of_tile(steps, self._tile_of(position, moving))
        return nodes

    def _borders(self, moving: Moving, part: range) -> list[Node]:
        """What fills borders of some layers in one tile, and places with what the tile before has
        of them."""
        nodes: list[Node] = []
        for position in part:
            steps = self._handing(position, moving, apart=True)
            steps += self._border(self.layers[position], moving)
            nodes += of_tile(steps, self._tile_of(position, moving))
        return nodes

    def _first_reader(self, buffer: TileBuffer) -> int:
        """The first layer that reads an input of the group."""
        assert buffer.key is not None
        layers = enumerate(self.plan.schedule.group.layers)
        return next(position for position, la in layers if buffer.key[0] in la.inputs)

    def _tile_of(self, position: int, moving: Moving) -> TileKind:
        """The tiles of a layer that go with those of the group."""
        work = moving.moment.work[position] or ()
        origin = self.layers[position].origin
        return TileKind(origin, moving.path, tuple(size for _, size in work))

    def _origins(self, moving: Moving) -> dict[str, tuple[Range, ...]]:
        found = {
            buffer: moving.buffer_origin(tensor)
            for tensor, buffer in self.plan.held.items()
            if tensor in moving.moment.holds
        }
        held = {*self.plan.held.values()}
        for buffer in self.plan.buffers.values():
            if buffer.layer is None and buffer.name not in held and buffer.key is not None:
                region = self._constant_region(buffer)
                found[buffer.name] = tuple(
                    span._replace(start=span.start - b)
                    for span, b in zip(region.ranges, region.before, strict=True)
                )
        return found

    def _layer_nodes(
        self, layer: LayerEmitter, position: int, moving: Moving,
        origins: Mapping[str, tuple[Range, ...]],
    ) -> list[Node]:  # fmt: skip
        """One layer in one tile, whose buffers begin at `origins`."""
        staged, turns = len(self.plan.schedule.stages) > 1, moving.turns
        border = [] if staged else self._border(layer, moving)
        work = moving.moment.work[position]
        idle = work is None
        if work is None:
            moments = self.walked.moments
            busy = next((n for n, m in enumerate(moments) if m.work[position] is not None), None)
            if busy is None:
                return border  # this core needs nothing of it
            moving = self._moving(Repeat(busy, 1))
            origins = self._origins(moving)
            work = moving.moment.work[position]
            assert work is not None
        then = None if moving.next is None else moving.next.work[position]
        result = layer.plan.tiled.layer.result.name
        tile = TilePosition(
            self.around, layer.plan, moving.work(work, then, result), {}, (Turn(),),
            outer=turns, origins=origins, path=moving.path,
        )  # fmt: skip
        nodes = layer.nodes(tile)
        steps = [emptied(node) for node in nodes] if idle else nodes
        return [*steps, *border] if self._in_time(result) else [*border, *steps]

    def _in_time(self, name: str) -> bool:
        """Whether the border of a result is early enough behind its layer: where the vector engine
        reads it, which is still at the tile before, products need not wait for both."""
        plan = self.plan
        readers = plan.schedule.group.internal_readers.get(name, ())
        heads = (plan.layers[position].computes[0].binding for position in readers)
        several = name in plan.held and plan.buffers[plan.held[name]].slots > 1
        return several and all(head.engine != "matrix" for head in heads)

    def _constant_loads(self, position: int, *, first: bool) -> list[Node]:
        """The one load of each constant of a layer that stays."""
        nodes: list[Node] = []
        for name, engine in self.plan.loads:
            buffer = self.plan.buffers[name]
            if not self._is_constant(name) or buffer.first != position or buffer.key is None:
                continue
            if buffer.address is None or self.around.lacking(buffer.key[0], self.number):
                nodes += self._load_constant(buffer, engine)  # no earlier group did
        return nodes if first else [emptied(node) for node in nodes]

    def _load_constant(self, buffer: TileBuffer, engine: str) -> Iterator[EngineStep]:
        layer = self.layers[buffer.first]
        buffer = layer.plan.buffers[buffer.name]
        assert buffer.key is not None
        tensor = self.plan.schedule.group.tensors[buffer.key[0]]
        region = self._constant_region(buffer)
        address = Address(self.around.places.chip[buffer.name][0])
        target = in_buffer(buffer, address, region.padded, tensor, region.ranges)
        return layer.loads(buffer, tensor, region, Copy(engine=engine, dst=target, src=target))

    def _constant_region(self, buffer: TileBuffer) -> Region:
        """What this core needs of a constant that stays."""
        key = buffer.key
        assert key is not None
        part = self.plan.schedule.loops and buffer.address is None and by_part(key)
        ranges = self._results(buffer.first, part=bool(part))
        return needs(self.layers[buffer.first].plan.tiled.layer, ranges, {}).regions[key]

    def _layer_share(
        self, layer: LayerEmitter, origins: Mapping[str, tuple[Range, ...]]
    ) -> TilePosition:
        """All that this core computes of a layer, as one tile."""
        out = self._results(layer.plan.position, part=bool(self.plan.schedule.loops))
        return TilePosition(self.around, layer.plan, out, {}, (Turn(),), origins=origins)

    def _results(self, position: int, *, part: bool) -> tuple[Range, ...]:
        """What is computed of a layer: all, or this core's `part`."""
        layer = self.layers[position].plan.tiled.layer
        ranges = tuple(Range(0, extent) for extent in layer.result.shape)
        if part:
            share = self.walked.share(position, layer.result.name)
            # A core without work loads one element, as all take the same steps.
            share = share or tuple((0, 1) for _ in ranges)
            ranges = tuple(Range(*span) for span in share)
            ranges = self.following.work(self.number, layer.result.name, ranges)
        return ranges

    def _buffer_box(
        self, buffer: TileBuffer, ranges: Sequence[Range], tensor: str, moving: Moving
    ) -> Operand:
        tile = TilePosition(self.around, self.plan.layers[0], (), {}, (Turn(),), outer=moving.turns)
        origin, address = moving.buffer_origin(tensor), slot_address(buffer, tile)
        address = address_of_ranges(address, ranges, origin, buffer.strides)
        shape = tuple(span.size for span in ranges)
        return in_buffer(buffer, address, shape, self.plan.schedule.group.tensors[tensor], ranges)

    def _input(self, buffer: TileBuffer, engine: str, moving: Moving) -> EngineStep:
        """The load of a tile's part of an input, with the border around it."""
        assert buffer.key is not None
        name = buffer.key[0]
        tensor = self.plan.schedule.group.tensors[name]
        first = self._first_reader(buffer)
        layer = next(self.layers[s.start] for s in self.plan.schedule.stages if first in s)
        hold = moving.moment.holds.get(name)
        before = moving.run.first - 1
        known = before >= 0 and self.walked.moments[before].holds.get(name) == hold
        if hold is None or known:
            return EngineStep(engine, (), layer.around.uses((), (buffer,)), layer.origin)
        then = None if moving.next is None else moving.next.holds[name].box
        ranges = moving.buffered_ranges(hold.box, then, name)
        region = Region(ranges, hold.before, hold.after)
        outside = tuple(
            Range(span.start - b, size, span.terms, span.stop)
            for span, b, size in zip(ranges, hold.before, region.padded, strict=True)
        )
        target = self._buffer_box(buffer, outside, name, moving)
        fill = self._raw_border(name) if region.bordered else 0.0
        copy = Copy(engine=engine, dst=target, src=target, fill=fill)
        (step,) = layer.loads(buffer, tensor, region, copy)
        if (tiles := self.around.pieces.get(name)) is None:
            return step
        barrier = tiles.get(moving.run.first)
        waits = (Await(engine=engine, barrier=barrier, origin=layer.origin),) if barrier else ()
        return replace(step, items=(*waits, *step.items), waited=True)

    def _raw_border(self, name: str) -> float:
        group = self.plan.schedule.group
        if name in group.residents:
            return group.residents[name].border
        tensor, layers = group.tensors[name], group.layers
        accesses = (a for layer in layers for nest in layer.nests for a in nest.reads)
        access = next(a for a in accesses if a.tensor == name and a.pad is not None)
        assert access.pad is not None
        return raw_value(access.pad, tensor.dtype, access.scale, access.zero)

    def _border(self, layer: LayerEmitter, moving: Moving) -> list[Node]:
        """What surrounds a layer's result on chip: filled when its buffer is new, and where a
        tile reaches the tensor's end."""
        name = layer.plan.tiled.layer.result.name
        buffer = self.plan.buffers[layer.plan.result]
        # A step on every core if on one: what stands behind it is alike on all of them.
        if buffer.layer is not None or not any(w.bordered(name) for w in self.plan.walked):
            return []
        holds = [m.holds[name] for m in self.walked.moments if name in m.holds]
        hold = moving.moment.holds.get(name)
        items: list[Item] = []
        if hold is not None and empty(hold.box):
            fresh = True  # nothing but border
        elif len(set(holds)) > 1:
            fresh = moving.run.first < buffer.slots or moving.run.count == 1
        else:  # the buffer keeps its place, and its border with it
            fresh = moving.run.first < buffer.slots
        if name in self.walked.still:
            fresh = moving.run.first == 0 and not moving.turn and not moving.variables[0]
        if hold is not None and fresh:
            for ranges in _frame(moving.buffer_origin(name), hold, buffer.shape):
                dst = self._buffer_box(buffer, ranges, name, moving)
                splat = Splat(
                    engine="vector", origin=layer.origin, dst=dst, value=self._raw_border(name)
                )
                items += legal_vector(splat, self.around.arch, self.around.names)
        uses = layer.around.uses((), (buffer,))
        return [EngineStep("vector", tuple(items), uses, layer.origin)]

    def _store(self, layer: LayerEmitter, engine: str, moving: Moving) -> EngineStep:
        """The store of a result that the group holds for its own layers as well."""
        result = layer.plan.tiled.layer.result
        then = None if moving.next is None else moving.next.out[result.name]
        ranges = moving.work(moving.moment.out[result.name], then, result.name)
        buffer = self.plan.buffers[layer.plan.result]
        return layer.store(self._buffer_box(buffer, ranges, result.name, moving), ranges, engine)

    def _handing(self, position: int, moving: Moving, *, apart: bool) -> list[Node]:
        """Moves of what the next tile keeps: within a place behind the last layer that reads it
        here; `apart`, from one place to the next, before the first that is behind its layer."""
        nodes: list[Node] = []
        schedule, origin = self.plan.schedule, self.layers[position].origin
        for name in self.walked.rolled:
            buffer = self.plan.buffers[self.plan.held[name]]
            behind = next(stage.stop for stage in schedule.stages if buffer.first in stage)
            place = behind if apart else schedule.group.internal_readers[name][-1]
            if (buffer.slots > 1) != apart or position != place:
                continue
            now = schedule.ahead(position)
            reads = self._ahead(now).uses((buffer,), ())
            uses = (*reads, *self._ahead(now + apart).uses((), (buffer,)))
            handed = self.walked.handed[moving.run.first].get(name)
            items = [] if handed is None else self._shift(name, buffer, handed, moving)
            nodes.append(EngineStep("vector", tuple(items), uses, origin))
        return nodes

    def _shift(
        self, name: str, buffer: TileBuffer, handed: tuple[int, int, int], moving: Moving
    ) -> list[Item]:
        """`overlap` positions moved to the front of the buffer, in pieces that never overlap, or of
        its next place."""
        dim, shift, overlap = handed
        origin, then, most = moving.buffer_origin(name), moving, shift
        if buffer.slots > 1:
            turn = moving.turns[-1]
            turns = (*moving.turns[:-1], replace(turn, offset=turn.offset + 1))
            then, most = replace(moving, turns=turns), overlap
        items: list[Item] = []
        for start in range(0, overlap, most):
            size = min(most, overlap - start)

            def rows(low: int, size: int = size) -> tuple[Range, ...]:
                span = Range(origin[dim].start + low, size, origin[dim].terms)
                return (*origin[:dim], span, *origin[dim + 1 :])

            move = Unary(
                engine="vector", origin=self.layers[buffer.first].origin, function="move",
                dst=self._buffer_box(buffer, rows(start), name, then),
                a=self._buffer_box(buffer, rows(start + shift), name, moving),
            )  # fmt: skip
            items += legal_vector(move, self.around.arch, self.around.names)
        return items


def _frame(
    origin: Sequence[Range], hold: TileWindow, shape: Sequence[int]
) -> list[tuple[Range, ...]]:
    """Slabs of a buffer of `shape` that cover the border of `hold`, one dimension at a time."""
    whole = [Range(first.start, n, first.terms) for first, n in zip(origin, shape, strict=True)]
    boxes = []
    for dim, (size, before, after) in enumerate(
        zip(hold.sizes, hold.before, hold.after, strict=True)
    ):
        for low, count in ((0, before), (size - after, after)):
            if count:
                span = Range(whole[dim].start + low, count, whole[dim].terms)
                boxes.append((*whole[:dim], span, *whole[dim + 1 :]))
    return boxes
