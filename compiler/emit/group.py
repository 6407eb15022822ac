"""The instructions of one group on one core: tile loops with loads, products, tails and stores.

    level 0                                     loads of what no loop moves
      for t0: level 1                           loads of what t0 moves
        for t1: level 2 ...                     innermost: the product
          then, at the result's level           the tail, and the store

A step that runs deeper than one of its buffers turns is bracketed by `Sync` at the buffer's level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from compiler.emit.constants import Packed
from compiler.emit.legal import Names, legal_copy
from compiler.emit.matrix import MatrixEmitter
from compiler.emit.segments import Segment, segments
from compiler.emit.sync import INNER, Action, Edge, edges, synchronized
from compiler.emit.tile import Places, Tile, Turn, dram_operand, inner_operand
from compiler.emit.vector import VectorEmitter
from compiler.nest.bounds import Box
from compiler.plan.ir import Buffer, Compute, Plan
from compiler.plan.make_plan import variable
from compiler.plan.ranges import Range, Region, scaled, summed
from simmodel.arch import Arch
from simmodel.dtype import is_float, limits
from simmodel.isa import Copy, Item, Loop
from simmodel.region import Operand


@dataclass(frozen=True)
class GroupEmitter:
    """Emits one planned group for any core."""

    arch: Arch
    plan: Plan
    places: Places
    packed: Packed | None
    names: Names
    origins: Sequence[int]
    """Origin index of every nest of the group."""

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """The group's tokens; none where the hardware interlocks."""
        return () if self.arch.front_end.sync == "interlock" else edges(self.plan)

    def items(self, part: Box) -> list[Item]:
        """Instructions of the core that computes `part` of the result."""
        out = tuple(Range(start, size) for start, size in part)
        return _Core(self, part).level(0, Tile(self.plan, out, {}, (Turn(),)))


@dataclass(frozen=True)
class _Core:
    emitter: GroupEmitter
    part: Box

    @property
    def plan(self) -> Plan:
        return self.emitter.plan

    @property
    def origin(self) -> int:
        return self.emitter.origins[0]

    def level(self, level: int, tile: Tile) -> list[Item]:
        """Everything at and below loop level `level`."""
        plan = self.plan
        depth = len(plan.tiled.loops)
        actions = [
            self._load(plan.buffers[name], engine, tile)
            for name, engine in plan.loads
            if plan.buffers[name].level == level
        ]
        if level < depth:
            actions.append(Action(INNER, tuple(self._loops(level, tile))))
        if level == depth:
            products = [c for c in plan.computes if c.route.engine == "matrix"]
            actions += [self._compute(compute, tile, "matrix") for compute in products]
        if level == plan.out_level:
            rest = [c for c in plan.computes if c.route.engine != "matrix" or not c.route.direct]
            actions += [self._compute(compute, tile, "vector") for compute in rest]
            actions.append(self._store(tile))
        turning = tuple(edge for edge in self.emitter.edges if edge.level == level)
        return synchronized(actions, turning, self.origin)

    def _loops(self, level: int, tile: Tile) -> list[Item]:
        loop = self.plan.tiled.loops[level]
        group = self.plan.tiled.group
        low, extent = (
            (0, group.head.dims[loop.dim].extent) if loop.reduction else self.part[loop.dim]
        )
        found = segments(group, loop, low, extent)
        total = sum(segment.count for segment in found)
        items: list[Item] = []
        for segment in found:
            inner = _entered(tile, level, segment, total)
            body = self.level(level + 1, inner)
            if segment.count == 1:
                items += body
            else:
                items.append(Loop(variable(level), segment.count, tuple(body)))
        return items

    def _load(self, buffer: Buffer, engine: str, tile: Tile) -> Action:
        assert buffer.key is not None
        tensor = tile.tensor(buffer.key[0])
        region = tile.needs.regions[buffer.key]
        target = inner_operand(buffer, region, tile, self.emitter.places)
        if self.emitter.packed is not None and buffer.key[2]:
            source = self.emitter.packed.operand(region, self.emitter.places)
        else:
            source = dram_operand(tensor, region.ranges, self.emitter.places)
        fill = _raw_border(buffer, tile) if region.bordered else 0.0
        copy = Copy(
            engine=engine, origin=self.origin, dst=target, src=source,
            before=region.before if region.bordered else (), fill=fill,
        )  # fmt: skip
        items = legal_copy(copy, self.emitter.arch, self.emitter.names)
        return Action(engine, tuple(items), writes=frozenset({buffer.name}))

    def _compute(self, compute: Compute, tile: Tile, engine: str) -> Action:
        """One nest on `engine`; a product that its own engine cannot finish takes two."""
        emitter, nest = self.emitter, compute.nest
        fields = (emitter.arch, emitter.names, emitter.places, emitter.origins[compute.position])
        kind = MatrixEmitter if engine == "matrix" else VectorEmitter
        items = tuple(kind(*fields).items(compute, tile))
        halves = compute.route.engine == "matrix" and not compute.route.direct
        if not halves:
            return Action(engine, items, frozenset(compute.reads), frozenset({compute.writes}))
        finish = [nest.reads.index(a) for a in (nest.bias, nest.multiplier) if a is not None]
        late = frozenset(compute.reads[i] for i in finish)
        sums = frozenset({str(compute.sums)})
        if engine == "matrix":
            return Action(engine, items, frozenset(compute.reads) - late, sums)
        return Action(engine, items, sums | late, frozenset({compute.writes}))

    def _store(self, tile: Tile) -> Action:
        name, engine = self.plan.store
        buffer = self.plan.buffers[name]
        result = self.plan.tiled.group.result
        if buffer.key is not None:
            source = inner_operand(
                buffer, tile.needs.regions[buffer.key], tile, self.emitter.places
            )
            source = _as_result(source, self.plan, tile)
        else:
            region = Region(tile.out, (0,) * len(tile.out), (0,) * len(tile.out))
            source = inner_operand(buffer, region, tile, self.emitter.places)
        target = dram_operand(result, tile.out, self.emitter.places)
        copy = Copy(engine=engine, origin=self.emitter.origins[-1], dst=target, src=source)
        items = legal_copy(copy, self.emitter.arch, self.emitter.names)
        return Action(engine, tuple(items), reads=frozenset({name}))


def _as_result(source: Operand, plan: Plan, tile: Tile) -> Operand:
    """A pure move's buffer seen with the result's dimensions."""
    nest = plan.tiled.group.head
    access = nest.operands[0]
    shape = tuple(span.size for span in tile.out)
    strides = tuple(
        sum(
            affine.coefficient(d) * s
            for affine, s in zip(access.index, source.strides, strict=True)
        )
        for d in range(nest.rank)
    )
    return replace(source, shape=shape, strides=strides)


def _entered(tile: Tile, level: int, segment: Segment, total: int) -> Tile:
    """`tile` inside one segment of loop `level`."""
    loop = tile.plan.tiled.loops[level]
    name = variable(level)
    terms = ((name, segment.step),) if segment.count > 1 else ()
    span = Range(segment.start, segment.size, terms)
    outer = tile.turns[level]
    counted = ((name, 1),) if segment.count > 1 else ()
    turn = Turn(outer.offset * total + segment.first, summed(scaled(outer.terms, total), counted))
    turns = (*tile.turns, turn)
    if loop.reduction:
        return replace(
            tile, split={**tile.split, loop.dim: span}, turns=turns,
            opens=segment.opens, closes=segment.closes,
        )  # fmt: skip
    out = (*tile.out[: loop.dim], span, *tile.out[loop.dim + 1 :])
    return replace(tile, out=out, turns=turns)


def _raw_border(buffer: Buffer, tile: Tile) -> float:
    """Raw value that stands for the border's real value in the buffer's element type."""
    assert buffer.key is not None
    value = buffer.key[1]
    assert value is not None
    accesses = (a for nest in tile.plan.tiled.group.nests for a in nest.reads)
    access = next(a for a in accesses if (a.tensor, a.pad) == buffer.key[:2])
    if is_float(buffer.dtype):
        return value
    low, high = limits(buffer.dtype)
    if value in (float("-inf"), float("inf")):
        return float(low if value < 0 else high)
    return float(min(max(round(value / (access.scale or 1.0)) + access.zero, low), high))
