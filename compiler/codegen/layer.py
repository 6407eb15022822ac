"""The steps of one layer within one tile of its group: its own loops with loads, products, tails.

    level 0                                     loads of what no loop of the layer moves
      for t0: level 1                           loads of what t0 moves
        for t1: level 2 ...                     innermost: the product
          then, at the result's level           the tail, and the store

Where operands and result lie is the buffers' business: a step on what the group holds is emitted
like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import compiler.codegen.copies as copies
from compiler.codegen.constants import PackedWeights
from compiler.codegen.legalize import legal_copy
from compiler.codegen.matrix import MatrixEmitter, bias_of
from compiler.codegen.nodes import (
    EngineStep,
    Node,
    SegmentedLoop,
    TileSegment,
    Use,
    of_tile,
    segments,
    waiting,
    with_fields,
)
from compiler.codegen.nodes import LoopSegment as Iterations
from compiler.codegen.tile import (
    EmissionContext,
    TilePosition,
    Turn,
    inner_operand,
    place_in,
    region_origin,
)
from compiler.codegen.vector import ProductEmitter, VectorEmitter
from compiler.geometry.boxes import Range, Region, limits, scaled, summed
from compiler.plan.make_plan import Compute, LayerPlan, variable
from compiler.schedule.residency.buffer import TileBuffer
from compiler.target.equal_engines import columns, cut_dim, shares
from compiler.tensor_ir.bounds import raw_value
from compiler.tensor_ir.nest import Tensor
from simmodel.isa import Copy
from simmodel.isa.region import Operand, cached_property, replace
from simmodel.program.program import TileKind


@dataclass(frozen=True)
class LayerEmitter:
    """Emits one planned layer."""

    around: EmissionContext
    plan: LayerPlan
    packed: PackedWeights | None
    origins: tuple[int, ...]
    """Origin index of every nest of the layer."""

    @cached_property
    def origin(self) -> int:
        """Origin index of what belongs to no single nest."""
        return self.origins[0]

    @cached_property
    def group_tensors(self) -> frozenset[str]:
        return frozenset(
            access.tensor
            for compute in self.plan.computes
            for access, buffer in zip(compute.nest.reads, compute.reads, strict=True)
            if self.plan.buffers[buffer].layer is None
        )

    def nodes(self, tile: TilePosition) -> list[Node]:
        """Everything that `tile`, the layer's share of one tile of the group, takes."""
        found = (self.plan.buffers[name] for name, _ in self.plan.loads)
        whole = {b.name: region_origin(tile, b.key) for b in found if b.key and not b.level}
        tile = replace(tile, origins={**tile.origins, **whole})
        return self._level(0, tile, tile)

    def _level(self, level: int, tile: TilePosition, share: TilePosition) -> list[Node]:
        """The steps in one piece of the layer's `share`, inside of its first `level` loops."""
        plan, depth = self.plan, len(self.plan.tiled.loops)
        here = [
            pair
            for pair in plan.loads
            if plan.buffers[pair[0]].level == level and pair not in self.late
        ]
        here.sort(key=lambda pair: self._is_constant_buffer(plan.buffers[pair[0]]), reverse=True)
        nodes: list[Node] = [
            leaf for name, engine in here for leaf in self._loads(plan.buffers[name], engine, tile)
        ]
        if level and level == self.late_level:
            nodes += [self._late(name, engine, share, tile) for name, engine in self.late]
        nodes += self.first_rows(tile, self.plan.position, level)
        if level < depth:
            nodes.append(self._segmented_loop(level, tile, share))
        if level == depth:
            products = [c for c in plan.computes if c.binding.product]
            nodes += [leaf for c in products for leaf in self._computes(c, tile, adds=True)]
        if level == plan.out_level:
            own = [c for c in plan.computes if c.binding.finishes]
            nodes += [leaf for c in own for leaf in self._computes(c, tile, adds=False)]
            if plan.store is not None:
                nodes.append(self._store(tile, plan.store))
        return of_tile(nodes, TileKind(self.origin, tile.path, tuple(s.size for s in tile.out)))

    def first_rows(self, tile: TilePosition, owner: int | None, level: int) -> Iterator[EngineStep]:
        """What makes the rows from which the sums of all tiles in `tile` start, those of this layer
        or of the group."""
        around, plan = self.around, self.plan
        for compute in (compute for compute in plan.computes if compute.start):
            row, factors = (plan.buffers[name] for name in compute.start)
            if (row.layer, row.level) != (owner, level):
                continue
            engine, array = compute.binding.adder, around.on_array(compute.binding.array)
            items = MatrixEmitter(array, self.origin, engine).first_row(compute, tile)
            digits = plan.buffers[compute.reads[bias_of(compute.nest)]]
            uses = around.uses((digits, factors), (row,))
            yield EngineStep(engine, tuple(items), uses, self.origin)

    @cached_property
    def late_level(self) -> int:
        """Loops around the first pieces of constants that are streamed; 0: nothing is late."""
        if self.around.depth:
            return 0
        buffers = (self.plan.buffers[name] for name, _ in self.plan.loads)
        return min((b.level for b in buffers if b.level and self._is_constant_buffer(b)), default=0)

    @cached_property
    def late(self) -> tuple[tuple[str, str], ...]:
        """Loads that wait for other steps, and so come behind the first pieces of constants."""
        if not self.late_level:
            return ()
        found = ((n, e, self.plan.buffers[n]) for n, e in self.plan.loads)
        return tuple((n, e) for n, e, b in found if not b.level and not self._is_constant_buffer(b))

    def _late(self, name: str, engine: str, share: TilePosition, tile: TilePosition) -> EngineStep:
        """A load for the layer's whole `share`, in its first `tile`: of what a loop moves for one
        reader and not for another that is more than the tile needs."""
        (leaf,) = self._loads(self.plan.buffers[name], engine, share)
        if not tile.first:
            return replace(leaf, items=(), reads=frozenset())
        return waiting(leaf, self.around.awaited)

    def _is_constant_buffer(self, buffer: TileBuffer) -> bool:
        assert buffer.key is not None
        return self.plan.tiled.layer.tensors[buffer.key[0]].data is not None

    def _segmented_loop(self, level: int, tile: TilePosition, share: TilePosition) -> SegmentedLoop:
        loop = self.plan.tiled.loops[level]
        layer = self.plan.tiled.layer
        if loop.reduction:
            span = Range(0, layer.head.dims[loop.dim].extent)
        else:
            span = tile.out[loop.dim]
        found = segments(layer, loop, span.start, span.size, self.group_tensors)
        total = sum(segment.count for segment in found)
        if self.late and tile.first and level < self.late_level:
            found = [*_first_alone(found[0]), *found[1:]]
        return SegmentedLoop(
            variable(level),
            tuple(
                Iterations(
                    segment.count,
                    tuple(
                        self._level(level + 1, _entered(tile, level, segment, total, span), share)
                    ),
                )
                for segment in found
            ),
        )

    def _loads(self, buffer: TileBuffer, engine: str, tile: TilePosition) -> Iterator[EngineStep]:
        assert buffer.key is not None
        tensor, region = tile.tensor(buffer.key[0]), tile.needs.regions[buffer.key]
        target = inner_operand(buffer, tensor, region, tile)
        fill = raw_border(buffer, self.plan) if region.bordered else 0.0
        return self.loads(
            buffer, tensor, region, Copy(engine=engine, dst=target, src=target, fill=fill)
        )

    def loads(
        self, buffer: TileBuffer, tensor: Tensor, region: Region, copy: Copy
    ) -> Iterator[EngineStep]:
        """The load of a region, border included, to the target of `copy`, whose source only stands
        in its place; of weights that memory holds narrow also what makes them wide."""
        around, engine = self.around, copy.engine
        packed = self.packed if buffer.key is not None and buffer.key[2] else None
        uses = around.uses((), (buffer,))
        if packed is not None and packed.narrow is not None and not packed.narrow.compressed:
            head = self.plan.tiled.layer.head
            way = copies.Widening(around, packed, head, buffer, copy.dst, region, self.origin)
            for items, span in way.loads(engine):
                parts = tuple(copies.narrowed(use, span) for use in uses)
                yield EngineStep(engine, tuple(items), parts, self.origin)
            both = around.uses((buffer,), (buffer,))
            yield EngineStep("vector", tuple(way.widens()), both, self.origin)
            return
        origin = around.picks.get(tensor.name, self.origin)
        copy = replace(copy, origin=origin, before=region.before if region.bordered else ())
        source = None if packed is None else packed.operand(region, around.places)
        if packed is None and self.packed is not None and self.packed.holds_beside(tensor.name):
            source = self.packed.part_beside(region, around.places)
        if source is not None:
            copy = copies.in_bytes(replace(copy, src=source))
            items = legal_copy(copy, around.arch, around.names)
        else:
            items = copies.load(copy, tensor, region, around)
        yield EngineStep(engine, tuple(items), uses, self.origin, copies.computed([tensor]))

    def _computes(
        self, compute: Compute, tile: TilePosition, *, adds: bool
    ) -> Iterator[EngineStep]:
        """One nest on all engines of its kind: each takes a part of the tile."""
        way, plan = compute.binding, self.plan
        arch = self.around.arch.with_array(way.array)
        units = arch.units(way.adder if adds else way.finisher)
        if len(units) == 1:
            yield self._compute(compute, tile, adds=adds)
            return
        inner = [name for name in (compute.sums, *compute.scratch) if name is not None]
        target = plan.buffers[[*inner, compute.writes][0]]
        spans = tile.needs.loops[compute.position][: compute.nest.rank]
        order = sorted(range(len(spans)), key=lambda d: -abs(target.strides[d]))
        shared = columns(compute.nest, way, arch)
        dim = cut_dim([(d, spans[d].size) for d in order], len(units), shared)
        extent = 1 if dim is None else spans[dim].size
        for number, (start, size) in enumerate(shares(extent, len(units))):
            share = None if dim is None else (compute.position, dim, start, max(1, size))
            leaf = self._compute(compute, replace(tile, share=share), adds=adds)
            uses = (
                self._engine_part(use, number, dim, (start, size))
                if use.write or use.buffer.partition(":")[2] in inner
                else use
                for use in leaf.uses
            )
            items = with_fields(leaf.items, engine=units[number]) if size else ()
            team = f"{compute.position} {'adds' if adds else 'finishes'}"
            yield replace(leaf, engine=units[number], items=items, uses=tuple(uses), team=team)

    def _engine_part(self, use: Use, number: int, dim: int | None, share: tuple[int, int]) -> Use:
        """What one of several engines makes: of a place of this tile, which the next one may cut
        otherwise, its positions; of a tensor that the group holds a part of its own, since all
        readers come before it is written anew."""
        buffer = self.plan.buffers[use.buffer.partition(":")[2]]
        if dim is None or buffer.layer is None:
            return use._replace(part=(-1, number, number + 1))
        start, size = share
        return use._replace(part=(dim, start, start + size))

    def _compute(self, compute: Compute, tile: TilePosition, *, adds: bool) -> EngineStep:
        """One nest on its engine, or one half of a product that is finished later: what `adds` up,
        and the rest."""
        nest, way = compute.nest, compute.binding
        around = self.around.on_array(way.array)
        engine = way.adder if adds else way.finisher
        origin = self.origins[compute.position]
        emitter: VectorEmitter | MatrixEmitter | ProductEmitter
        if not adds:
            emitter = VectorEmitter(around, origin, engine)
        elif way.engine == "matrix":
            emitter = MatrixEmitter(around, origin, engine)
        else:
            emitter = ProductEmitter(around, origin)
        items = tuple(emitter.items(compute, tile))
        reads = set(compute.reads)
        writes = {compute.writes}
        inner = {name for name in (compute.sums, *compute.scratch) if name is not None}
        if not way.direct:
            finish = [nest.reads.index(access) for access in nest.late]
            late = {compute.reads[i] for i in finish}
            sums = {str(compute.sums)}
            if adds:
                reads, writes, inner = (reads - late) | set(compute.start[:1]), sums, set()
            else:
                late -= {compute.reads[bias_of(nest)]} if compute.start else set()
                reads, inner = sums | late, set(compute.scratch)
        buffers = self.plan.buffers
        uses = around.uses(
            (buffers[n] for n in sorted(reads)), (buffers[n] for n in sorted(writes | inner))
        )
        return EngineStep(engine, items, uses, origin)

    def _store(self, tile: TilePosition, engine: str) -> EngineStep:
        buffer = self.plan.buffers[self.plan.result]
        result = self.plan.tiled.layer.result
        if buffer.key is not None:
            region, tensor = tile.needs.regions[buffer.key], tile.tensor(buffer.key[0])
            source = inner_operand(buffer, tensor, region, tile)
            source = _as_result(source, self.plan, tile)
        else:
            region = Region(tile.out, (0,) * len(tile.out), (0,) * len(tile.out))
            source = inner_operand(buffer, result, region, tile)
        return self.store(source, tile.out, engine)

    def store(self, source: Operand, ranges: tuple[Range, ...], engine: str) -> EngineStep:
        """The store of a box of the result, from where it lies on chip."""
        around, result, origin = self.around, self.plan.tiled.layer.result, self.origins[-1]
        copy = Copy(engine=engine, origin=origin, dst=source, src=source)
        items, uses = (
            copies.store(copy, result, ranges, around),
            (self.plan.buffers[self.plan.result],),
        )
        return EngineStep(
            engine, tuple(items), around.uses(uses, ()), origin,
            reads=copies.listed(result), writes=copies.written(result),
        )  # fmt: skip


def _as_result(source: Operand, plan: LayerPlan, tile: TilePosition) -> Operand:
    """A pure move's buffer seen with the result's dimensions."""
    nest = plan.tiled.layer.head
    access = nest.operands[0]
    shape = tuple(span.size for span in tile.out)
    strides = tuple(
        sum(
            affine.coefficient(d) * s
            for affine, s in zip(access.index, source.strides, strict=True)
        )
        for d in range(nest.rank)
    )
    result = plan.tiled.layer.result
    short = limits(result.shape, result.counts, tile.out)
    return replace(source, shape=shape, strides=strides, limits=short)


def _first_alone(segment: TileSegment) -> list[TileSegment]:
    if segment.count == 1:
        return [segment]
    rest = replace(
        segment, first=segment.first + 1, count=segment.count - 1,
        start=segment.start + segment.step, opens=False,
    )  # fmt: skip
    return [replace(segment, count=1, closes=False), rest]


def _entered(
    tile: TilePosition, level: int, segment: TileSegment, total: int, whole: Range
) -> TilePosition:
    """`tile` inside one segment of loop `level`, which walks the range `whole`."""
    loop = tile.plan.tiled.loops[level]
    name = variable(level)
    terms = ((name, segment.step),) if segment.count > 1 else ()
    span = Range(segment.start, segment.size, summed(whole.terms, terms), whole.stop)
    outer = tile.turns[level]
    counted = ((name, 1),) if segment.count > 1 else ()
    turn = Turn(outer.offset * total + segment.first, summed(scaled(outer.terms, total), counted))
    turns = (*tile.turns, turn)
    first = tile.first and segment.first == 0 and segment.count == 1
    alike = segment.first, segment.count
    path = (*tile.path, place_in(name, *alike, total, alike))
    if loop.reduction:
        return replace(
            tile, split={**tile.split, loop.dim: span}, turns=turns,
            opens=tile.opens and segment.opens, closes=tile.closes and segment.closes, first=first,
            path=path,
        )  # fmt: skip
    out = (*tile.out[: loop.dim], span, *tile.out[loop.dim + 1 :])
    return replace(tile, out=out, turns=turns, first=first, path=path)


def raw_border(buffer: TileBuffer, plan: LayerPlan) -> float:
    """Raw value that stands for the border's real value in the buffer's element type."""
    assert buffer.key is not None
    accesses = (a for nest in plan.tiled.layer.nests for a in nest.reads)
    access = next(a for a in accesses if (a.tensor, a.pad) == buffer.key[:2])
    assert access.pad is not None
    return raw_value(access.pad, buffer.dtype, access.scale, access.zero)
