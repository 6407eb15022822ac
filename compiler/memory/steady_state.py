"""Which engines of a group run at the same time: a coarse simulation of its plan.

Each layer is a phase. Its product, vector work, loads and store run side by side, each on another
tile: loads fill the next slot while the product uses this one; epilogue and store follow. Loads and
stores of the whole group run beside all of its layers, and a layer's first loads beside the layer
before. A phase is sampled at a few points (`SAMPLES`), because the part of a larger buffer that is
in use moves with the layer's loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from compiler.cost.overlap import sustained_rate
from compiler.cost.work import additions, depthwise_cycles
from compiler.geometry.boxes import Range, needs, touched
from compiler.plan.make_plan import Compute, LayerPlan, Plan, symbolic
from compiler.schedule.residency.buffer import TileBuffer
from compiler.target.array_mapping import on_columns, roles
from compiler.target.machine import form_of, rate_type
from simmodel.arch.element_types import size_of
from simmodel.arch.matrix_cycles import product_cycles, streams
from simmodel.arch.record import Arch
from simmodel.isa.base import granule
from simmodel.isa.forms import cost_of
from simmodel.isa.region import Address, Operand, cached_property

SAMPLES = 4
"""Moments of a phase that are looked at. Of tiles of the group, turns of a layer's outer loops and
turns of its innermost one, any two are paired in every way that two slots can be."""
TILES = (0, 1, 1, 0)
OUTER = (0, 0, 1, 1)
INNER = (0, 1, 0, 1)
Moments = tuple[int, ...]


@dataclass(frozen=True)
class Stream:
    """Bytes that a task moves through the memory of one buffer."""

    buffer: str
    write: bool
    bytes: float
    """While the task runs once."""
    slot: Moments
    """By moment: the buffer's slot."""
    low: Moments
    """By moment: the first byte touched within the slot."""
    length: int
    """Bytes from the first to the last one touched."""


@dataclass(frozen=True)
class Task:
    """Repeated work of one engine during a phase."""

    engine: str
    cycles: float
    """Cycles of one turn without conflicts."""
    turns: float
    """In one phase."""
    moved_bytes: Callable[[], Iterable[Stream]] = field(compare=False)
    """What makes `streams`: most ask for cycles alone."""

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """What it moves in one turn."""
        return tuple(self.moved_bytes())

    @property
    def time(self) -> float:
        """Cycles in one phase."""
        return self.cycles * self.turns


@dataclass(frozen=True)
class Phase:
    """A layer of the group, and all work that runs meanwhile."""

    tasks: tuple[Task, ...]
    times: int
    """Tiles of the group."""

    @property
    def engines(self) -> dict[str, float]:
        """Engine -> cycles of its tasks."""
        found: dict[str, float] = {}
        for task in self.tasks:
            found[task.engine] = found.get(task.engine, 0.0) + task.time
        return found

    @cached_property
    def period(self) -> float:
        """Cycles of one run: those of the busiest engine."""
        return max(self.engines.values(), default=0.0)


def phases(plan: Plan, arch: Arch) -> list[Phase]:
    """The phases of a plan's steady state, one for each layer."""

    def ahead(name: str, engine: str, *, write: bool = True) -> Task:
        return _transfer(plan.buffers[name], engine, 1, TILES, arch, write=write)

    tiles = max((len(w.moments) * w.repeats for w in plan.walked), default=1)
    layers = (
        _Layer(layer, plan, arch.with_array(layer.tiled.layer.binding.array))
        for layer in plan.layers
    )
    found = [Phase(tuple(layer.tasks()), tiles) for layer in layers]
    for position, layer in enumerate(plan.layers):
        # What no loop of the layer moves arrives while the layer before runs.
        if position or tiles > 1:
            early = (ahead(*pair) for pair in layer.loads if not plan.buffers[pair[0]].level)
            behind = found[position - 1]
            found[position - 1] = replace(behind, tasks=(*behind.tasks, *early))
    if tiles == 1:
        return found
    # Loads for the group's next tile, and stores of the previous one.
    tensors, keys = plan.schedule.group.tensors, {n: b.key for n, b in plan.buffers.items()}
    loads = ((n, e, keys[n]) for n, e in plan.loads)
    shared = [ahead(n, e) for n, e, key in loads if key and tensors[key[0]].data is None]
    shared += [ahead(*pair, write=False) for pair in plan.stores]
    total = sum(phase.period for phase in found) or 1.0
    return [
        replace(phase, tasks=(*phase.tasks, *(
            replace(task, turns=task.turns * (phase.period / total)) for task in shared
        )))
        for phase in found
    ]  # fmt: skip


def _transfer(
    buffer: TileBuffer, engine: str, turns: float, now: Moments, arch: Arch, *, write: bool = True
) -> Task:
    """A copy of a whole slot to or from DRAM, next to the one that is used `now`."""
    rate = sustained_rate(arch, arch.copy_[engine])

    def moved_bytes() -> Iterator[Stream]:
        slot, low = tuple((turn + 1) % buffer.slots for turn in now), (0,) * SAMPLES
        yield Stream(buffer.name, write, buffer.bytes, slot, low, buffer.bytes)

    return Task(engine, buffer.bytes / rate, turns, moved_bytes)


@dataclass(frozen=True)
class _Layer:
    plan: LayerPlan
    group: Plan
    arch: Arch

    def tasks(self) -> Iterator[Task]:
        layer, counts = self.plan, self.counts
        ranges, split = symbolic(layer.tiled)
        loops = needs(layer.tiled.layer, ranges, split).loops
        pieces = math.prod(counts[: layer.out_level])
        products = [c for c in layer.computes if c.binding.product]
        # The work behind a product is done alone where there is only one piece of it.
        behind = "vector" if pieces > 1 or not products else products[0].binding.array
        apart = any(c.binding.engine == "matrix" for c in products)
        late = 1 if apart and pieces > 1 else 0
        for compute in products:
            yield self._product_task(compute, loops[compute.position], math.prod(counts))
        for compute in layer.computes:
            if compute.binding.finishes:
                yield self._tail(compute, loops[compute.position], pieces, behind, late)
        for name, engine in layer.loads:
            buffer = layer.buffers[name]
            if buffer.level:
                turns = math.prod(counts[: buffer.level])
                yield _transfer(buffer, engine, turns, self._turns(buffer.level), self.arch)
        if layer.store is not None:
            buffer, now = layer.buffers[layer.result], self._turns(layer.out_level)
            yield _transfer(buffer, layer.store, pieces, now, self.arch, write=False)

    @cached_property
    def counts(self) -> list[int]:
        """Turns of each loop."""
        return self.plan.tiled.turns

    def _turns(self, level: int) -> Moments:
        """At each moment, turns of a buffer inside the first `level` loops."""
        if level == 0:
            return TILES
        return INNER if level == len(self.plan.tiled.loops) else OUTER

    @cached_property
    def starts(self) -> list[dict[int, int]]:
        """At each moment, where each loop's dimension begins."""
        loops = list(zip(self.plan.tiled.loops, self.counts, strict=True))[::-1]
        found = []
        for sample in range(SAMPLES):
            iteration = math.prod(self.counts) * (2 * sample + 1) // (2 * SAMPLES)
            start = {}
            for loop, count in loops:
                iteration, index = divmod(iteration, count)
                start[loop.dim] = index * loop.size
            found.append(start)
        return found

    def _product_task(self, compute: Compute, loops: Sequence[Range], turns: int) -> Task:
        nest, matrix, engine = compute.nest, self.arch.matrix, compute.binding.adder
        found, sizes = roles(nest), on_columns(nest, [span.size for span in loops])
        m, n, k, taps, batch = (
            math.prod(sizes[d] for d in dims)
            for dims in (
                found.rows, found.cols, found.inner, [t.dim for t in found.taps], found.batch,
            )
        )  # fmt: skip
        dtype = rate_type(nest, self.plan.tiled.layer.tensors, self.arch)
        if engine == "vector":
            vector = self.arch.vector
            cycles = math.ceil(batch * m * n * k * taps / vector.lanes)
            left, right = 1, math.ceil(m / max(1, vector.product_rows))
        elif nest.depthwise:
            cycles = depthwise_cycles(self.arch, dtype, m, batch, taps, nest.sparse)
            left, right = 1, 1
        else:
            cycles = batch * int(product_cycles(matrix, dtype, m, n, k, taps, behind=True))
            left, right = streams(matrix, m, n, k * taps)
        alone = nest.depthwise or engine == "vector"
        whole = matrix.granularity == "conv" or alone
        again = 1 if alone else additions(self.arch, dtype, k, taps)
        pairs = zip(self.plan.tiled.loops, self.counts, strict=True)
        cut = math.prod(count for loop, count in pairs if loop.reduction)

        def moved_bytes() -> Iterator[Stream]:
            a = self._read(compute, 0, loops, 0)
            unrolled = batch * m * k * taps * size_of(self.group.buffers[compute.reads[0]].dtype)
            yield replace(a, bytes=left * (a.bytes if whole else unrolled))
            if len(nest.operands) > 1:
                w = self._read(compute, 1, loops, 0)
                yield replace(w, bytes=right * w.bytes)
            target = compute.writes if compute.sums is None else compute.sums
            result = self._result(compute, target, loops, 0)
            yield replace(result, bytes=again * result.bytes)
            if (added := again - 1 / cut) > 0:
                yield replace(result, write=False, bytes=added * result.bytes)

        return Task(engine, math.ceil(cycles / len(self.arch.units(engine))), turns, moved_bytes)

    def _tail(
        self, compute: Compute, loops: Sequence[Range], turns: int, engine: str, late: int
    ) -> Task:
        nest, own = compute.nest, compute.binding.finisher
        lanes = self.arch.lane_engine(own).lanes * len(self.arch.units(own))
        product = compute.binding.product
        sizes = [loops[d].size for d in range(nest.rank if product else len(nest.dims))]
        cost = 1.0
        if not product:
            form = form_of(nest)
            cost = self.arch.factor(form, cost_of(form), own)
        cycles = cost * math.ceil(math.prod(sizes) / lanes)

        def moved_bytes() -> Iterator[Stream]:
            yield self._result(compute, compute.writes, loops, late)
            if product and compute.sums is not None:
                yield self._result(compute, compute.sums, loops, late, write=False)
            else:
                for index in range(len(nest.operands)):
                    yield self._read(compute, index, loops, late)

        return Task(engine, cycles, turns, moved_bytes)

    def _read(self, compute: Compute, index: int, loops: Sequence[Range], late: int) -> Stream:
        buffer, spans = compute.reads[index], touched(compute.nest.reads[index], loops)
        return self._stream(buffer, spans, compute.steps[index], late, write=False)

    def _result(
        self, compute: Compute, name: str, loops: Sequence[Range], late: int, *, write: bool = True
    ) -> Stream:
        strides = self.group.buffers[name].strides
        return self._stream(name, loops[: compute.nest.rank], strides, late, write=write)

    def _stream(
        self, name: str, spans: Sequence[Range], steps: Sequence[int], late: int, *, write: bool
    ) -> Stream:
        buffer = self.group.buffers[name]
        sizes = [min(s.size, n) for s, n in zip(spans, buffer.shape, strict=False)]
        strides = buffer.strides[: len(sizes)]
        operand = Operand(buffer.role, Address(0), tuple(sizes), strides, buffer.dtype)
        length = min(operand.span[1], buffer.bytes)
        turns = TILES if buffer.layer is None else self._turns(buffer.level)
        low = [0] * SAMPLES
        if buffer.layer is None:
            moved = (
                sum(steps[d] * at for d, at in start.items() if d < len(steps))
                for start in self.starts
            )
            low = [min(first, buffer.bytes - length) for first in moved]
        slot = tuple((t - late) % buffer.slots for t in turns)
        amount = operand.traffic(granule(self.arch, buffer.role))
        return Stream(name, write, amount, slot, tuple(low), length)
