"""Constants that wait in shared memory until they are needed.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from compiler.codegen.loop_loads import LEAST, EngineCycles, StepTimes
from compiler.codegen.nodes import EngineStep, Node, Use
from compiler.cost.overlap import far_latency
from compiler.passes import Omittable
from compiler.schedule.residency.buffer import GRAIN
from simmodel.arch.record import Arch
from simmodel.isa import Copy
from simmodel.isa.region import Address, Operand
from simmodel.program.program import Buffer

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
