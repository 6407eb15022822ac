"""Loads of whole constants while DRAM rests: in the turns of loops before them, or to a memory in
which they wait.

Engines run their queues in order, so a load that stands behind a loop begins when the loop's own
loads are over, though its place is free. Each turn of the loop loads a part of it, as long as the
turn leaves the memory off chip at rest; what is left behind the loop says when all is there:

    before:  for t in 56: load x[t], compute t; load w (1 MiB)
    after:   for t in 56: load x[t], w[16 KiB * t ...], compute t; load w[896 KiB ...]

Memory near the engines is small, so that loads stand close to their layers: DRAM rests while early
layers compute, and late layers wait for it. Where an engine of its own fills shared memory,
constants wait there:

    before:                            layer 1    load w7 (DRAM -> local); layer 7
    after:   fill w7 (DRAM -> shared); layer 1    load w7 (shared -> local); layer 7

In every step DRAM has time left, or takes longer than the step's work. What steps lack is filled
in the time that the earliest steps have left, in order of use; cores take turns, as few flows leave
most of DRAM to the loads of all cores that are needed soon. Each load has a place of its own, for
its core alone, which nothing else in the program uses: its bytes say what has to keep its order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.codegen.issue_order.units import Pricer, far_loads
from compiler.codegen.nodes import EngineStep, LoopSegment, Node, SegmentedLoop, Use
from compiler.cost.overlap import copy_rate, far_latency, startup_bytes
from compiler.passes import Omittable
from compiler.schedule.residency.buffer import GRAIN
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Instruction, Item, Loop, Sync
from simmodel.isa.region import Address, Operand
from simmodel.program.program import Buffer

BURSTS = 64
"""Bytes of which pieces are multiples, so that DRAM gives no burst twice."""
SURE = 0.9
"""Share of the time that a turn leaves to loads which is given to others."""
LEAST = 2
"""A part moves so many times as long at least as its start-up and latency take."""


@dataclass
class LoopRoom:
    """Time that the turns of a loop leave to loads of what comes behind it."""

    engine: str
    arch: Arch
    loop: SegmentedLoop
    place: int
    """Where in the body loads stand."""
    left: list[float]
    """By segment, bytes that each turn may load."""
    added: list[list[EngineStep]]
    """By segment, the loads of each turn."""

    @classmethod
    def of(cls, loop: SegmentedLoop, engine: str, prices: EngineCycles) -> LoopRoom | None:
        """The room in `loop`; None where there is none, or a loop inside loads."""
        arch, place = prices.arch, 0
        for segment in loop.segments:
            for number, node in enumerate(segment.body):
                if not any(leaf.engine == engine and leaf.items for leaf in node.leaves):
                    continue
                if isinstance(node, SegmentedLoop):
                    return None
                place = max(place, number + 1)
        far = arch.constants
        rate = min(copy_rate(arch, arch.copy_[engine], far), arch.far_rates[far] / prices.cores)
        pace = prices.estimated(loop) / (sum(segment.count for segment in loop.segments) or 1)
        left = [SURE * prices.spare(s.body, engine, pace) * rate for s in loop.segments]
        if max(left, default=0.0) <= 0:
            return None
        return cls(engine, arch, loop, place, left, [[] for _ in left])

    def take(self, leaf: EngineStep, copy: Copy) -> EngineStep:
        """What is left of a load of a constant, whose place nothing uses since before the loop,
        when the turns load of it what they can."""
        arch, size = self.arch, copy.dst.elements * copy.dst.itemsize
        grain = math.lcm(BURSTS, copy.dst.itemsize)
        start = startup_bytes(arch, arch.copy_[self.engine], copy.src.memory)
        loaded = 0
        for number, segment in enumerate(self.loop.segments):
            rest, most = size - loaded, self.left[number] - start
            part = int(min(most, rest / segment.count) // grain) * grain
            part = rest if segment.count == 1 and rest <= most else part
            if part < LEAST * start or part <= 0:
                continue
            self.left[number] -= part + start
            step = self.loop.variable if segment.count > 1 else ""
            # Nothing that tokens have to know of: who reads it waits for the rest.
            item = _slice(copy, loaded, part, step)
            self.added[number].append(replace(leaf, items=(item,), uses=()))
            loaded += part * segment.count
        if not loaded:
            return leaf
        # Its uses are those of all parts: it ends behind them, also where nothing is left to load.
        none = Sync(engine=copy.engine, origin=copy.origin)
        left = _slice(copy, loaded, size - loaded) if loaded < size else none
        return replace(leaf, items=(left,))

    def filled(self, loop: Node) -> Node:
        """The loop, with what turns load on other engines already, with all that they load."""
        assert isinstance(loop, SegmentedLoop)
        most = max(map(len, self.added))
        segments = []
        for segment, own in zip(loop.segments, self.added, strict=True):
            idle = [EngineStep(self.engine, ())] * (most - len(own))
            body = segment.body
            body = (*body[: self.place], *own, *idle, *body[self.place :])
            segments.append(LoopSegment(segment.count, body))
        return SegmentedLoop(loop.variable, tuple(segments))


def _slice(copy: Copy, start: int, size: int, variable: str = "") -> Copy:
    """`size` bytes of a contiguous copy from `start` on; in each turn of a loop the next ones."""

    def of(whole: Operand) -> Operand:
        address, item = whole.address.plus(start), whole.itemsize
        if variable:
            address = replace(address, terms=(*address.terms, (variable, size)))
        return replace(whole, address=address, shape=(size // item,), strides=(item,))

    return replace(copy, dst=of(copy.dst), src=of(copy.src))


@dataclass(frozen=True)
class EngineCycles:
    """Cycles of steps by engine and memory off chip, on one of so many cores that do alike."""

    arch: Arch
    cores: int
    estimated: Callable[[SegmentedLoop], float]
    """Cycles of all turns of a loop; 0: not known."""
    known: dict[int, tuple[Instruction, int, Mapping[str, float]]] = field(default_factory=dict)
    """By identity of a prototype, which is kept: its cycles, and those of memories off chip."""

    def spare(self, body: Sequence[Node], engine: str, pace: float) -> float:
        """Cycles that a copy engine and the memory of constants have nothing to do in one turn of
        `pace` cycles, or of those of its busiest engine."""
        found = defaultdict[str, float](float)
        self.add(body, 1, found)
        loads = max(found[engine], found[self.arch.constants])
        moving = {*self.arch.copy_, *self.arch.far_rates}
        return max(pace, *(found[name] for name in found.keys() - moving), 0.0) - loads

    def busy(self, node: Node) -> float:
        """Cycles of all engines for a step or a loop, one after another."""
        found = defaultdict[str, float](float)
        self.add([node], 1, found)
        return sum(cycles for name, cycles in found.items() if name not in self.arch.far_rates)

    def add(self, body: Sequence[Node], times: int, found: dict[str, float]) -> None:
        for node in body:
            if isinstance(node, SegmentedLoop):
                for segment in node.segments:
                    self.add(segment.body, times * segment.count, found)
                continue
            for item, often in _repeated(node.items, times):
                kind = item.prototype
                if id(kind) not in self.known:
                    cycles = Pricer(self.arch, {}).issue_unit(kind).cost.cycles
                    self.known[id(kind)] = kind, cycles, far_loads(kind, self.arch)
                _, cycles, loads = self.known[id(kind)]
                found[node.engine] += often * cycles
                for far, load in loads.items():
                    found[far] += often * load * self.cores / self.arch.far_rates[far]


def _repeated(items: Sequence[Item], times: int) -> Iterator[tuple[Instruction, int]]:
    """Each instruction, and how often it is done."""
    for item in items:
        if isinstance(item, Loop):
            yield from _repeated(item.body, times * item.count)
        else:
            yield item, times


@dataclass(frozen=True)
class StepTimes:
    """How long the steps of a program are expected to take."""

    cycles: Mapping[str, float]
    """By the barrier of a step."""
    barrier: Callable[[int], str]
    """Of the step that an origin belongs to."""


# Constants that wait in shared memory.

EAGER = 1.5
"""Times the time that DRAM is expected to have left in a step which is filled: where it has less,
what waits is late by no more than DRAM is busy."""


@dataclass(frozen=True)
class FillShared(Omittable):
    """Load constants to shared memory while DRAM rests, and from there when they are needed.

    before:
        layer 1; load w7 from DRAM; layer 7
    after:
        fill w7 in shared memory; layer 1; load w7 from shared memory; layer 7
    """

    enabled: bool = False
    """False: the pass is left out; from effort 1 on a program with it is tried."""

    def apply(
        self, cores: Sequence[Sequence[Node]], arch: Arch, steps: StepTimes, low: int
    ) -> tuple[list[list[Node]], list[Buffer]]:
        """The nodes of each core, and what waits in shared memory, of which bytes from `low` on are
        free; `steps` are expected to take their times."""
        engine = filling_engine(arch) if self.enabled else None
        if engine is None:
            return list(map(list, cores)), []
        plan, room = _FillPlan.of(cores, arch, steps), _Room(arch, low)
        moves = list(plan.moves(room))
        made = [
            plan.rewritten(nodes, engine, [move for move in moves if move.load.core == core])
            for core, nodes in enumerate(cores)
        ]
        return made, list(room.buffers(moves))


def filling_engine(arch: Arch) -> str | None:
    """The engine that fills shared memory with constants, where it is not the one that loads."""
    name, near = arch.copy_engine(arch.constants, "shared"), arch.copy_engine("shared", "local")
    return name if near is not None and name != near else None


@dataclass(frozen=True)
class _FarLoad:
    """A load of a constant outside of all loops, contiguous off chip."""

    core: int
    node: int
    """Number among the nodes of the core."""
    step: int
    leaf: EngineStep
    copy: Copy


@dataclass(frozen=True)
class _Move:
    """A load through shared memory."""

    load: _FarLoad
    begin: int
    """Number of the step with which it is filled."""
    place: Operand

    def filling(self, engine: str) -> EngineStep:
        """What brings it there."""
        leaf, place = self.load.leaf, self.place
        src = replace(self.load.copy.src, shape=place.shape, strides=place.strides)
        item = Copy(engine=engine, origin=leaf.origin, dst=place, src=src)
        return EngineStep(engine, (item,), (self._use(write=True),), leaf.origin)

    def loading(self) -> EngineStep:
        """The load from there."""
        leaf, copy = self.load.leaf, self.load.copy
        near = replace(copy, src=replace(copy.src, memory="shared", address=self.place.address))
        items = tuple(near if item is copy else item for item in leaf.items)
        return replace(leaf, items=items, uses=(*leaf.uses, self._use(write=False)))

    def _use(self, *, write: bool) -> Use:
        low, high = self.place.bounds
        return Use(f"waiting{low}", "shared", low, high, 1, 0, 0, write)


class _Room:
    """What the whole program leaves free of each shared memory."""

    def __init__(self, arch: Arch, low: int) -> None:
        memory = arch.memories.shared
        assert memory is not None
        self._size, self._grain = memory.size, math.lcm(GRAIN, memory.alignment)
        self._clustered = memory.level == "cluster"
        self._seen_by = arch.cores if self._clustered else arch.core_count
        self._low = -(-low // self._grain) * self._grain
        self._ends: dict[int, int] = {}
        """By shared memory, the end of what waits there."""

    def place(self, load: _FarLoad) -> Operand | None:
        """Bytes for a load; None where there are none left."""
        number, src = load.core // self._seen_by, load.copy.src
        start = self._ends.get(number, self._low)
        if start + src.bytes > self._size:
            return None
        self._ends[number] = start + -(-src.bytes // self._grain) * self._grain
        shape, strides = (src.elements,), (src.itemsize,)
        return replace(src, memory="shared", address=Address(start), shape=shape, strides=strides)

    def buffers(self, moves: Sequence[_Move]) -> Iterator[Buffer]:
        """What is taken by `moves`."""
        for number, end in self._ends.items():
            core = number * self._seen_by if self._clustered else None
            first, last = min(m.begin for m in moves), max(m.load.step for m in moves)
            size = min(end, self._size) - self._low
            yield Buffer("constants that wait", "shared", self._low, size, core, first, last)


@dataclass(frozen=True)
class _FillPlan:
    """The steps of a program, with cycles of each."""

    arch: Arch
    step_of: Callable[[Node], int]
    far: list[float]
    """Of the memory of constants."""
    work: list[float]
    """Of the busiest engine that copies nothing."""
    spare: list[float]
    """That the memory of constants is expected to have left."""
    loads: list[list[_FarLoad]]
    """What could come through shared memory: the first load of each core, the second of each."""

    @classmethod
    def of(cls, cores: Sequence[Sequence[Node]], arch: Arch, steps: StepTimes) -> _FillPlan:
        """The plan of the steps that `cores` do."""
        names = {name: number for number, name in enumerate(steps.cycles)}
        far, work = [0.0] * len(names), [0.0] * len(names)
        moving, prices = {*arch.copy_, *arch.far_rates}, EngineCycles(arch, 1, lambda _: 0.0)
        turns: list[list[tuple[int, int, _FarLoad]]] = [[] for _ in names]

        def step_of(node: Node) -> int:
            return names[steps.barrier(node.origin)]

        for core, nodes in enumerate(cores):
            busy = [defaultdict[str, float](float) for _ in names]
            places = [0] * len(names)
            for number, node in enumerate(nodes):
                step = step_of(node)
                prices.add([node], 1, busy[step])
                if isinstance(node, EngineStep) and (copy := _far_constant(node, arch)) is not None:
                    turns[step].append(
                        (places[step], core, _FarLoad(core, number, step, node, copy))
                    )
                    places[step] += 1
            for step, own in enumerate(busy):
                far[step] += own[arch.constants]
                engines = (cycles for name, cycles in own.items() if name not in moving)
                work[step] = max(work[step], *engines, 0.0)
        times = zip(steps.cycles.values(), work, far, strict=True)
        spare = [EAGER * max(0.0, max(time, least) - own) for time, least, own in times]
        loads = [[load for *_, load in sorted(own, key=lambda t: t[:2])] for own in turns]
        return cls(arch, step_of, far, work, spare, loads)

    def moves(self, room: _Room) -> Iterator[_Move]:
        """What comes through shared memory, in order of use."""
        rate, spare, now = self.arch.far_rates[self.arch.constants], [*self.spare], 0
        for step, loads in enumerate(self.loads):
            lack = self.far[step] - self.work[step]
            for load in loads:
                while now < step - 1 and spare[now] <= 0:
                    now += 1
                if lack <= 0 or now >= step - 1 or (place := room.place(load)) is None:
                    break
                cycles = load.copy.src.bytes / rate
                lack, spare[now] = lack - cycles, spare[now] - cycles
                yield _Move(load, now, place)

    def rewritten(self, nodes: Sequence[Node], engine: str, moves: Sequence[_Move]) -> list[Node]:
        """The nodes of one core, of whose loads these come through shared memory."""
        found, begun = list[Node](), 0
        near = {move.load.node: move.loading() for move in moves}
        for number, node in enumerate(nodes):
            while begun < len(moves) and moves[begun].begin <= self.step_of(node):
                found.append(moves[begun].filling(engine))
                begun += 1
            found.append(near.get(number, node))
        return found


def _far_constant(leaf: EngineStep, arch: Arch) -> Copy | None:
    """The one copy of a step, if it loads a constant that is contiguous off chip by an engine that
    reaches shared memory too, and takes longer to move than to begin while all cores load."""
    copies = [item for item in leaf.items if isinstance(item, Copy)]
    if leaf.reads or leaf.writes or leaf.engine not in arch.copy_ or len(copies) != 1:
        return None
    (copy,), engine, far = copies, arch.copy_[leaf.engine], arch.constants
    src = copy.src
    begin = engine.startup.cycles(arch.clock) + far_latency(arch, far)
    able = src.memory == far and "shared" in engine.from_ and copy.dst.memory in engine.to
    whole = src.run == src.bytes and src.per_item == 1
    still = not src.address.terms and src.address.ring is None and not src.limits
    long = src.bytes >= LEAST * begin * arch.far_rates[far] / arch.core_count
    return copy if able and whole and still and long else None
