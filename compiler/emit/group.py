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

from compiler.emit.constants import Packed
from compiler.emit.legal import Names, legal_copy
from compiler.emit.matrix import MatrixEmitter
from compiler.emit.segments import Segment, segments
from compiler.emit.sync import Tokens, signalling, tokens, turning_at, waiting
from compiler.emit.tile import Places, Tile, Turn, dram_operand, inner_operand
from compiler.emit.vector import VectorEmitter
from compiler.nest.bounds import Box
from compiler.plan.ir import Buffer, Compute, Plan
from compiler.plan.make_plan import variable
from compiler.plan.ranges import Range, Region, scaled, summed
from simmodel.arch import Arch
from simmodel.dtype import is_float, limits
from simmodel.isa import Copy, Item, Loop, Sync
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

    @property
    def edges(self) -> Tokens:
        """The group's tokens; none where the hardware interlocks."""
        return Tokens() if self.arch.front_end.sync == "interlock" else tokens(self.plan)

    def items(self, part: Box) -> list[Item]:
        """Instructions of the core that computes `part` of the result."""
        out = tuple(Range(start, size) for start, size in part)
        return _Core(self, self.edges, part).level(0, Tile(self.plan, out, {}, (Turn(),)))


@dataclass(frozen=True)
class _Core:
    emitter: GroupEmitter
    edges: Tokens
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
        items: list[Item] = []
        for name, engine in plan.loads:
            if plan.buffers[name].level == level:
                items += self._load(plan.buffers[name], engine, tile)
        items += self._brackets(level, opening=True)
        if level < len(plan.tiled.loops):
            items += self._loops(level, tile)
        items += self._brackets(level, opening=False)
        products = [c for c in plan.computes if c.route.engine == "matrix"]
        if level == len(plan.tiled.loops):
            for compute in products:
                items += self._compute(compute, tile, "matrix")
        if level == plan.out_level:
            for compute in plan.computes:
                if compute.route.engine != "matrix" or not compute.route.direct:
                    items += self._compute(compute, tile, "vector")
            items += self._store(tile)
        return items

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

    def _brackets(self, level: int, *, opening: bool) -> list[Item]:
        """Syncs around deeper loops, for buffers that turn here but are used down there."""
        items: list[Item] = []
        if level == len(self.plan.tiled.loops):
            return items
        for buffer in turning_at(self.plan.buffers, level):
            for edge in self.edges.filled_by(buffer.name):
                if self._depth(edge.reader, buffer) > level:
                    names = {
                        "waits" if opening else "signals": (
                            (edge.full if opening else edge.empty, 1),
                        )
                    }
                    items.append(Sync(engine=edge.reader, origin=self.origin, **names))
                if self._depth(edge.writer, buffer) > level:
                    names = {
                        "waits" if opening else "signals": (
                            (edge.empty if opening else edge.full, 1),
                        )
                    }
                    items.append(Sync(engine=edge.writer, origin=self.origin, **names))
        return items

    def _depth(self, engine: str, buffer: Buffer) -> int:
        """Level of the steps in which `engine` touches `buffer`."""
        if engine == "matrix":
            return len(self.plan.tiled.loops)
        if engine == "vector":
            return self.plan.out_level
        stores = engine == self.plan.store[1] and buffer.name == self.plan.store[0]
        return self.plan.out_level if stores and engine != buffer.writer else buffer.level

    def _synced(
        self, items: list[Item], engine: str, reads: Sequence[Buffer], writes: Sequence[Buffer],
        level: int,
    ) -> list[Item]:  # fmt: skip
        """`items` with the tokens of the buffers that turn at `level`."""
        before: list[str] = []
        after: list[str] = []
        for buffer in reads:
            for edge in self.edges.used_by(buffer.name, engine):
                if buffer.level == level:
                    before.append(edge.full)
                    after.append(edge.empty)
        for buffer in writes:
            for edge in self.edges.filled_by(buffer.name):
                if edge.writer == engine and buffer.level == level:
                    before.append(edge.empty)
                    after.append(edge.full)
        items = waiting(items, engine, tuple(dict.fromkeys(before)), self.origin)
        return signalling(items, engine, tuple(dict.fromkeys(after)), self.origin)

    def _load(self, buffer: Buffer, engine: str, tile: Tile) -> list[Item]:
        assert buffer.key is not None
        tensor = tile.tensor(buffer.key[0])
        region = tile.needs.regions[buffer.key]
        target = inner_operand(buffer, region, tile, self.emitter.places)
        if self.emitter.packed is not None and tensor.name == self.emitter.packed.tensor:
            source = self.emitter.packed.operand(region, self.emitter.places)
        else:
            source = dram_operand(tensor, region.ranges, self.emitter.places)
        fill = _raw_border(buffer, tile) if region.bordered else 0.0
        copy = Copy(
            engine=engine, origin=self.origin, dst=target, src=source,
            before=region.before if region.bordered else (), fill=fill,
        )  # fmt: skip
        items = legal_copy(copy, self.emitter.arch, self.emitter.names)
        return self._synced(items, engine, (), (buffer,), buffer.level)

    def _compute(self, compute: Compute, tile: Tile, engine: str) -> list[Item]:
        emitter = self.emitter
        fields = (emitter.arch, emitter.names, emitter.places, emitter.origins[compute.position])
        buffers = self.plan.buffers
        finishing = compute.route.engine == "matrix" and engine == "vector"
        late = [
            compute.nest.reads.index(a) for a in (compute.nest.bias, compute.nest.multiplier) if a
        ]
        if engine == "matrix":
            items = MatrixEmitter(*fields).items(compute, tile)
            level = len(self.plan.tiled.loops)
        else:
            items = VectorEmitter(*fields).items(compute, tile)
            level = self.plan.out_level
        if finishing:
            reads = [buffers[str(compute.sums)], *(buffers[compute.reads[i]] for i in late)]
            writes = [buffers[compute.writes]]
        elif compute.route.engine == "matrix" and not compute.route.direct:
            reads = [buffers[name] for i, name in enumerate(compute.reads) if i not in late]
            writes = [buffers[str(compute.sums)]]
        else:
            reads = [buffers[name] for name in compute.reads]
            writes = [buffers[compute.writes]]
        return self._synced(items, engine, reads, writes, level)

    def _store(self, tile: Tile) -> list[Item]:
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
        return self._synced(items, engine, (buffer,), (), self.plan.out_level)


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
    access = next(a for a in accesses if (a.tensor, a.pad) == buffer.key)
    if is_float(buffer.dtype):
        return value
    low, high = limits(buffer.dtype)
    if value in (float("-inf"), float("inf")):
        return float(low if value < 0 else high)
    return float(min(max(round(value / (access.scale or 1.0)) + access.zero, low), high))
