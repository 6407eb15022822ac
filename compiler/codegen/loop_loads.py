"""Loads of whole constants in the turns of loops before them, as far as DRAM rests there.

Engines run their queues in order, so a load that stands behind a loop begins when the loop's own
loads are over, though its place is free. Each turn of the loop loads a part of it, as long as the
turn leaves the memory off chip at rest; what is left behind the loop says when all is there:

    before:  for t in 56: load x[t], compute t; load w (1 MiB)
    after:   for t in 56: load x[t], w[16 KiB * t ...], compute t; load w[896 KiB ...]

So do turns of a loop inside that loads as well.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.codegen.issue_order.units import Pricer, far_loads
from compiler.codegen.nodes import EngineStep, LoopSegment, Node, SegmentedLoop
from compiler.cost.overlap import copy_rate, startup_bytes
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Instruction, Item, Loop, Sync
from simmodel.isa.region import Operand

BURSTS = 64
"""Bytes of which pieces are multiples, so that DRAM gives no burst twice."""
SURE = 0.9
"""Share of the time that a turn leaves to loads which is given to others."""
LEAST = 2
"""A part moves so many times as long at least as its start-up and latency take."""


Turns = tuple[tuple[str, int], ...]
"""Variable and count of each loop around one turn of the innermost, the outermost first."""


@dataclass
class LoopRoom:
    """Time that the turns of a loop leave to loads of what comes behind it."""

    engine: str
    arch: Arch
    loop: SegmentedLoop
    path: tuple[int, ...]
    """Where in the bodies the loops inside stand that load as well, and where loads stand there."""
    turns: list[Turns]
    """By segment of the innermost loop."""
    left: list[float]
    """By segment, bytes that each turn may load."""
    added: list[list[EngineStep]]
    """By segment, the loads of each turn."""

    @classmethod
    def of(cls, loop: SegmentedLoop, engine: str, prices: EngineCycles) -> LoopRoom | None:
        """The room in `loop`; None where there is none, or several loops inside load."""
        arch, path = prices.arch, _load_path(loop, engine)
        if path is None:
            return None
        far = arch.constants
        rate = min(copy_rate(arch, arch.copy_[engine], far), arch.far_rates[far] / prices.cores)
        pace = prices.estimated(loop) / (sum(segment.count for segment in loop.segments) or 1)
        turns, left = list[Turns](), list[float]()
        for segment in loop.segments:
            own = [*_turns(SegmentedLoop(loop.variable, (segment,)), path)]
            inner = sum(math.prod(count for _, count in each[1:]) for each in own)
            spare = SURE * prices.spare(segment.body, engine, pace) * rate
            turns += own
            left += [spare / inner for _ in own]
        if max(left, default=0.0) <= 0:
            return None
        return cls(engine, arch, loop, path, turns, left, [[] for _ in left])

    def take(self, leaf: EngineStep, copy: Copy) -> EngineStep:
        """What is left of a load of a constant, whose place nothing uses in the loop or behind it,
        when the turns load of it what they can."""
        arch, size = self.arch, copy.dst.elements * copy.dst.itemsize
        grain = math.lcm(BURSTS, copy.dst.itemsize)
        start = startup_bytes(arch, arch.copy_[self.engine], copy.src.memory)
        loaded = 0
        for number, loops in enumerate(self.turns):
            count = math.prod(count for _, count in loops)
            rest, most = size - loaded, self.left[number] - start
            part = int(min(most, rest / count) // grain) * grain
            part = rest if count == 1 and rest <= most else part
            if part < LEAST * start or part <= 0:
                continue
            self.left[number] -= part + start
            # Nothing that tokens have to know of: who reads it waits for the rest.
            item = _slice(copy, loaded, part, loops)
            self.added[number].append(replace(leaf, items=(item,), uses=()))
            loaded += part * count
        if not loaded:
            return leaf
        # Its uses are those of all parts: it ends behind them, also where nothing is left to load.
        none = Sync(engine=copy.engine, origin=copy.origin)
        left = _slice(copy, loaded, size - loaded) if loaded < size else none
        return replace(leaf, items=(left,))

    def filled(self, loop: Node) -> Node:
        """The loop, with what turns load on other engines already, with all that they load."""
        most, every = max(map(len, self.added)), iter(self.added)

        def with_loads(loop: Node, path: tuple[int, ...]) -> Node:
            assert isinstance(loop, SegmentedLoop)
            segments = []
            for segment in loop.segments:
                (place, *inside), body = path, segment.body
                if inside:
                    made = (with_loads(body[place], tuple(inside)),)
                    body = (*body[:place], *made, *body[place + 1 :])
                else:
                    own = next(every)
                    idle = [EngineStep(self.engine, ())] * (most - len(own))
                    body = (*body[:place], *own, *idle, *body[place:])
                segments.append(LoopSegment(segment.count, body))
            return SegmentedLoop(loop.variable, tuple(segments))

        return with_loads(loop, self.path)


def _load_path(loop: SegmentedLoop, engine: str) -> tuple[int, ...] | None:
    """Where the loop stands, in the body of each loop around it, that loads on an engine, and the
    place behind its loads; None where that are several."""
    rows = [*zip(*(segment.body for segment in loop.segments), strict=True)]
    leaves = ([leaf for node in row for leaf in node.leaves] for row in rows)
    loads = [any(leaf.engine == engine and leaf.items for leaf in own) for own in leaves]
    places = [place for place, found in enumerate(loads) if found]
    inner = [place for place in places if isinstance(rows[place][0], SegmentedLoop)]
    if not inner:
        return (max(places, default=-1) + 1,)
    if len(inner) > 1:
        return None
    same = [node for node in rows[inner[0]] if isinstance(node, SegmentedLoop)]
    segments = tuple(segment for node in same for segment in node.segments)
    rest = _load_path(SegmentedLoop(same[0].variable, segments), engine)
    return None if rest is None else (inner[0], *rest)


def _turns(loop: Node, path: tuple[int, ...], around: Turns = ()) -> Iterator[Turns]:
    """By segment of the innermost loop of `path`, all loops around its turns."""
    assert isinstance(loop, SegmentedLoop)
    for segment in loop.segments:
        own = (*around, (loop.variable, segment.count))
        if len(path) == 1:
            yield own
        else:
            yield from _turns(segment.body[path[0]], path[1:], own)


def _slice(copy: Copy, start: int, size: int, loops: Turns = ()) -> Copy:
    """`size` bytes of a contiguous copy from `start` on; in each turn of `loops` the next ones."""
    terms, step = list[tuple[str, int]](), size
    for variable, count in reversed(loops):
        if count > 1:
            terms.append((variable, step))
        step *= count

    def of(whole: Operand) -> Operand:
        address, item = whole.address.plus(start), whole.itemsize
        address = replace(address, terms=(*address.terms, *terms))
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

    def moving(self, leaf: EngineStep) -> float:
        """Cycles of a step of a copy engine while all cores do alike."""
        found = defaultdict[str, float](float)
        self.add([leaf], 1, found)
        return max(found.values(), default=0.0)

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
