"""Loads of whole constants: several as one, or one in pieces.

Most constants are small, and a load takes longer to begin than to move them: those that lie side by
side, off chip and on chip, come with one load. Engines run their queues in order, so a load that
waits for the last byte of its place keeps DRAM idle, and all loads behind it. Each piece waits only
for what used its own bytes, and those that are free first come first:

    place:   | used until layer 3 | used until layer 7 |
    before:  wait for layer 7; load all
    after:   wait for layer 3; load the first half; wait for layer 7; load the second half
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Annotated

import numpy as np

from compiler.codegen.loop_loads import BURSTS, EngineCycles, LoopRoom, StepTimes
from compiler.codegen.nodes import (
    EngineStep,
    LoopSegment,
    Node,
    SegmentedLoop,
    Use,
    instructions,
    touched,
    with_fields,
)
from compiler.cost.overlap import copy_rate, startup_bytes, sustained_rate
from compiler.passes import Omittable, within
from compiler.schedule.residency.buffer import GRAIN
from compiler.tensor_ir.nest import Array
from simmodel.arch.base import OFF_CHIP
from simmodel.arch.lazy_array import AnyArray, LazyArray
from simmodel.arch.record import Arch
from simmodel.isa import Await, Copy, Fill, Item
from simmodel.isa.copy import joint_runs
from simmodel.isa.region import Address, Operand
from simmodel.program.substitute import fixed, map_operands, operands_of


@dataclass(frozen=True)
class SplitLoads(Omittable):
    """Load small constants together, and large ones in pieces as their places become free.

    before:
        load w to 0 .. 64 KiB, of which layer 3 uses the first half and layer 7 the second; load b
        to 64 KiB .. 65 KiB
    after:
        load w[:half] behind layer 3; load w[half:], b behind layer 7

    Copy engines that do the same share the buffers that constants fill, as many of them as DRAM
    keeps busy. In loops, half of the cores load from memories on chip first, so that they take
    turns at DRAM. Loads that would end in time go ahead of a wait for what another step stores, and
    for the place of a tile: a loop is left by all of its slots at once, its turns one by one
    (`turns`).
    """

    least: Annotated[int, within(1)] = 16
    """A piece moves so many times as long as its start-up and latency take."""
    turns: Annotated[int, within(0, 64)] = 0
    """Turns at most of loops that load constants tile by tile whose turns become steps of their
    own, in groups without tile loops; from effort 1 on a program with 32 is tried."""

    def apply(
        self, cores: Sequence[Sequence[Node]], arch: Arch,
        estimated: Callable[[SegmentedLoop], float] = lambda _: 0.0, steps: StepTimes | None = None,
        bundles: Bundles | None = None,
    ) -> list[list[Node]]:  # fmt: skip
        """The steps of each core in order, with loads outside of all loops joined, or in pieces;
        loops take `estimated` cycles, as far as that is known, and `steps` their times."""
        if not self.enabled:
            return list(map(list, cores))
        prices = EngineCycles(arch, sum(map(bool, cores)), estimated)
        apart = [_turns_apart(nodes, prices, self.turns) for nodes in cores]
        apart = [join_small_loads(nodes, arch, bundles or Bundles((), 0)) for nodes in apart]
        apart = [_on_engines_alike(nodes, prices) for nodes in apart]
        found = [self._of_core(nodes, prices) for nodes in apart]
        if steps is not None:
            found = [AheadOfWaits(prices, steps).apply(nodes) for nodes in found]
        half = -(-len(cores) // 2)
        return [
            *found[:half],
            *([_near_first([node])[0] for node in nodes] for nodes in found[half:]),
        ]

    def _of_core(self, nodes: Sequence[Node], prices: EngineCycles) -> list[Node]:
        found: list[Node] = []
        used, arch = _Used(), prices.arch
        whole = self._during_loops(nodes, prices)
        for number, node in enumerate(whole):
            found += self._load_pieces(node, used, arch) if isinstance(node, EngineStep) else [node]
            for engine, use in node.touches:
                used.add(number, engine, use)
        return found

    def _during_loops(self, nodes: Sequence[Node], prices: EngineCycles) -> list[Node]:
        """`nodes` with parts of loads in the loops before them that leave time for it."""
        found, used, arch = list(nodes), _Used(), prices.arch
        loads = [e for e, kind in arch.copy_.items() if arch.constants in kind.from_]
        rooms: list[tuple[int, LoopRoom]] = []
        passed: list[tuple[int, SegmentedLoop]] = []  # whose room nothing has asked for
        waits: dict[int, list[Node]] = {}

        def rest(leaf: Node) -> Node:
            """What is left of a load when loops behind the last use of its place do their part."""
            if not isinstance(leaf, EngineStep) or not (passed or rooms):
                return leaf
            copy = _contiguous_constant_load(leaf, arch)
            if copy is None or leaf.uses[0].memory == "shared":  # which other cores use as well
                return leaf
            use = leaf.uses[0]
            (last,) = used.last(leaf.engine, use, [0], [use.high - use.low])
            for place, loop in passed:
                own = {engine for engine, _ in loop.touches}
                made = (LoopRoom.of(loop, e, prices) for e in loads if e in own)
                rooms.extend((place, room) for room in made if room is not None)
            passed.clear()
            for place, room in rooms:
                left = (
                    room.take(leaf, copy) if place > last and room.engine == leaf.engine else leaf
                )
                if left is not leaf:
                    behind = [replace(leaf, items=())] if last >= 0 else []
                    waits.setdefault(place, []).extend(behind)
                    return left
            return leaf

        for number, node in enumerate(nodes):
            if isinstance(node, EngineStep):
                found[number] = rest(node)
            else:
                # Constants that stay for all tiles come in the first.
                first = node.segments[:1]
                if first and first[0].count == 1:
                    turn = LoopSegment(1, tuple(map(rest, first[0].body)))
                    found[number] = replace(node, segments=(turn, *node.segments[1:]))
                passed.append((number, node))
            for engine, use in node.touches:
                used.add(number, engine, use)
        # Of one loop the last places first, as what is put there moves those behind it.
        for number, room in sorted(rooms, key=lambda each: each[1].path, reverse=True):
            found[number] = room.filled(found[number])
        return [node for number, own in enumerate(found) for node in (*waits.get(number, ()), own)]

    def _load_pieces(self, leaf: EngineStep, used: _Used, arch: Arch) -> Iterator[Node]:
        """`leaf`, or its pieces, those that can begin first first."""
        copy = _contiguous_constant_load(leaf, arch)
        if copy is None:
            yield leaf
            return
        rate = sustained_rate(arch, arch.copy_[copy.engine], copy.src.memory)
        grain = math.lcm(BURSTS, copy.dst.itemsize)
        size = max(1, math.ceil(self.least * copy.startup(arch) * rate / grain)) * grain
        total = copy.dst.elements * copy.dst.itemsize
        # What it touches of its buffer, which is less where others load the rest of it.
        low = copy.dst.address.base
        use = leaf.uses[0]._replace(low=low, high=low + total)
        cuts = range(0, max(1, total // size) * size, size)
        ends = (*cuts[1:], total)
        behind = used.last(leaf.engine, use, cuts, ends)
        spans = zip(behind, cuts, ends, strict=True)
        runs = [list(run) for _, run in groupby(spans, key=lambda span: span[0])]
        for run in sorted(runs, key=lambda run: run[0][0]):
            low, high = run[0][1], run[-1][2]
            yield leaf if high - low == total else _piece(leaf, copy, low, high)


# A loop keeps all slots of what it loads until it is over; of its turns each keeps one.


def _turns_apart(nodes: Sequence[Node], prices: EngineCycles, most: int) -> list[Node]:
    """`nodes` with up to `most` turns of each loop that loads constants alone as steps."""
    found: list[Node] = []
    for node in nodes:
        of_layer = isinstance(node, SegmentedLoop) and not prices.estimated(node)
        if of_layer and 0 < _load_turns(node, prices.arch) <= most:
            found += _turns_of(node, prices.arch)
        else:
            found.append(node)
    return found


def _load_turns(node: Node, arch: Arch) -> int:
    """Turns of a loop, and of those inside of it, that load constants; 0: it loads none, or what
    is no constant as well."""
    if isinstance(node, EngineStep):
        copies = (item for item in instructions(node.items) if isinstance(item, Copy))
        return int(any(copy.src.memory in OFF_CHIP for copy in copies))
    again = (each for segment in node.segments if segment.count > 1 for each in segment.body)
    if any(leaf.reads for each in again for leaf in each.leaves if leaf.engine in arch.copy_):
        return 0
    inner = ([_load_turns(each, arch) for each in s.body] for s in node.segments)
    return sum(s.count * max(own, default=0) for s, own in zip(node.segments, inner, strict=True))


def _turns_of(loop: Node, arch: Arch) -> Iterator[Node]:
    """The steps of all turns of a loop, without those that have nothing to do."""
    assert isinstance(loop, SegmentedLoop)
    for segment in loop.segments:
        for turn in range(segment.count):
            for node in segment.body:
                made = _done_once(node, {loop.variable: turn} if segment.count > 1 else {})
                if isinstance(made, SegmentedLoop) and _load_turns(made, arch):
                    yield from _turns_of(made, arch)
                elif any(leaf.items for leaf in made.leaves):
                    yield made


def _done_once(node: Node, turn: Mapping[str, int]) -> Node:
    """What a node of a loop does in one turn, of which it touches one slot."""
    if isinstance(node, SegmentedLoop):
        bodies = (tuple([_done_once(each, turn) for each in s.body]) for s in node.segments)
        counts = (segment.count for segment in node.segments)
        return SegmentedLoop(node.variable, tuple(map(LoopSegment, counts, bodies)))
    items = tuple([map_operands(fixed(item, turn), _in_slot) for item in node.items])
    return replace(node, items=items, uses=tuple([_one_slot(use, items) for use in node.uses]))


def _in_slot(operand: Operand) -> Operand:
    """`operand` at the address of its slot, where no loop around turns it any more."""
    address, ring = operand.address, operand.address.ring
    if ring is None or ring.terms:
        return operand
    return replace(operand, address=Address(address.at({}), address.terms))


def _one_slot(use: Use, items: Sequence[Item]) -> Use:
    """`use` outside of a loop around it: of the slot that `items` touch, if that is one."""
    inner = use._replace(home=max(0, use.home - 1), reset=max(0, use.reset - 1))
    if use.home != 1 or use.slots == 1:
        return inner
    slots = set[int]()
    for item in instructions(items):
        for operand in operands_of(item).values():
            address, ring = operand.address, operand.address.ring
            base = address.base + (ring.pitch * ring.offset if ring is not None else 0)
            if operand.memory == use.memory and use.low <= base < use.high:
                slots.add(-1 if ring is not None and ring.terms else (base - use.low) // use.pitch)
    if len(slots) != 1 or -1 in slots:
        return inner._replace(slots=1)
    low = use.low + slots.pop() * use.pitch
    size = use.high - use.low - (use.slots - 1) * use.pitch
    return inner._replace(low=low, high=low + size, slots=1)


@dataclass
class AheadOfWaits:
    """Loads of constants ahead of a wait of their engine for what a step stores, or for a place, as
    long as they find their own places free; and end before that, unless loads are what all wait
    for from there on: then only the time counts in which their engine rests."""

    prices: EngineCycles
    steps: StepTimes
    free: dict[str, float] = field(default_factory=dict)
    """Copy engine -> when it is expected to have done all so far."""
    ends: dict[str, float] = field(default_factory=dict)
    """Barrier of a step -> when it is expected to be over."""
    waits: dict[str, list[tuple[int, float, float]]] = field(default_factory=dict)
    """Copy engine -> numbers of the nodes that wait, when each wait begins, and when it ends."""
    late: dict[str, float] = field(default_factory=dict)
    """Copy engine -> by how much waits for what steps store have grown."""
    looped: dict[str, int] = field(default_factory=dict)
    """Copy engine -> number of the last loop in which it worked."""

    def apply(self, nodes: Sequence[Node]) -> list[Node]:
        """`nodes` in their new order."""
        found, used, copies = dict[int, list[Node]](), _Used(), self.prices.arch.copy_
        names = [self.steps.barrier(node.origin) for node in nodes]
        shares, now, clock = self._shares(names, nodes), 0.0, list[float]()
        spare = self._spare(nodes)
        loaded: dict[str, float] = {}  # buffer -> when what is loaded to it is there
        for number, (name, node) in enumerate(zip(names, nodes, strict=True)):
            place = number
            reads = (loaded.get(use.buffer, 0.0) for _, use in node.touches if not use.write)
            if isinstance(node, EngineStep) and node.engine in copies:
                place, end = self._place(number, node, used, clock, spare)
                loaded |= {use.buffer: end for use in node.uses if use.write}
            else:
                now = max(now, *reads, 0.0) + self.prices.busy(node) * shares.get(name, 1.0)
            if isinstance(node, SegmentedLoop):
                for engine in {leaf.engine for leaf in node.leaves} & copies.keys():
                    self.free[engine] = max(self.free.get(engine, 0.0), now)
                    self.looped[engine] = number
            clock.append(now)
            self.ends[name] = now
            found.setdefault(place, []).append(node)
            for engine, use in node.touches:
                used.add(number, engine, use)
        # A wait is the first of its place: what goes ahead of it comes behind in the list.
        return [node for own in found.values() for node in (*own[1:], own[0])]

    def _place(
        self, number: int, leaf: EngineStep, used: _Used, clock: Sequence[float],
        spare: Sequence[Mapping[str, float]],
    ) -> tuple[int, float]:  # fmt: skip
        """The number of the node ahead of which a step of a copy engine goes, or its own, and when
        it is over."""
        engine, cycles = leaf.engine, self.prices.moving(leaf)
        begin, now = self.free.get(engine, 0.0), clock[-1] if clock else 0.0
        gaps = self.waits.setdefault(engine, [])
        copy = _contiguous_constant_load(leaf, self.prices.arch)
        # Of one in parts the last says when all are there; what others use as well keeps its turn.
        whole = copy is not None and copy.dst.bytes == leaf.uses[0].high - leaf.uses[0].low
        if whole and leaf.uses[0].memory != "shared":
            use = leaf.uses[0]
            (last,) = used.last("", use, [0], [use.high - use.low])
            vacant = clock[last] if last >= 0 else 0.0
            for place, (wait, came, end) in enumerate(gaps):
                start = max(came, vacant)
                late, grown = max(0.0, start + cycles - end), self.late.get(engine, 0.0)
                rest = spare[wait][engine] - grown
                if last >= wait or start >= end or late > max(0.0, rest):
                    continue
                if rest <= 0.0 and wait < self.looped.get(engine, 0):
                    continue  # turns of loops keep their time unless loads are all that counts
                before = [(wait, came, start)] if start > came else []
                after = [] if late else [(wait, start + cycles, end)]
                gaps[place : place + 1] = [*before, *after]
                self.late[engine] = grown + late
                self.free[engine] = self.free.get(engine, 0.0) + late
                return wait, start + cycles
            if vacant > begin:
                gaps.append((number, begin, vacant))
            begin = max(begin, vacant)
        elif any(not use.write for use in leaf.uses):  # of what was made on chip
            begin = max(begin, now)
        for item in leaf.items:
            if isinstance(item, Await):
                end = self.ends.get(item.barrier, 0.0)
                gaps.append((number, begin, end))
                begin = max(begin, end)
        self.free[engine] = begin + cycles
        return number, begin + cycles

    def _spare(self, nodes: Sequence[Node]) -> list[dict[str, float]]:
        """By node, how much longer it and all behind it keep each copy engine than the engines that
        compute: if these begin later by no more than that, they are still waited for by nobody."""
        copies, found = self.prices.arch.copy_, defaultdict[str, float](float)
        moving, behind = {*copies, *self.prices.arch.far_rates}, list[dict[str, float]]()
        for node in reversed(nodes):
            self.prices.add([node], 1, found)
            work = sum(cycles for name, cycles in found.items() if name not in moving)
            behind.append({engine: found[engine] - work for engine in copies})
        return behind[::-1]

    def _shares(self, names: Sequence[str], nodes: Sequence[Node]) -> dict[str, float]:
        """By step, the part of what its engines have to do one after another that it takes."""
        copies, totals = self.prices.arch.copy_, dict[str, float]()
        for name, node in zip(names, nodes, strict=True):
            loads = isinstance(node, EngineStep) and node.engine in copies
            totals[name] = totals.get(name, 0.0) + (0.0 if loads else self.prices.busy(node))
        return {n: min(1.0, self.steps.cycles.get(n, 0.0) / (t or 1)) for n, t in totals.items()}


def _contiguous_constant_load(leaf: EngineStep, arch: Arch) -> Copy | None:
    """The load of a constant that is contiguous at both ends, if the step is one."""
    if leaf.engine not in arch.copy_ or leaf.reads or leaf.writes:
        return None
    if len(leaf.items) != 1 or len(leaf.uses) != 1:
        return None
    (copy,) = leaf.items
    if not isinstance(copy, Copy) or copy.notifies or copy.before or not leaf.uses[0].write:
        return None
    if copy.src.dtype != copy.dst.dtype or copy.dst.per_item > 1:
        return None
    far, alike = copy.src.memory in OFF_CHIP, copy.src.shape == copy.dst.shape
    return copy if far and alike and joint_runs(copy.src, copy.dst) == 1 else None


def _near_first(nodes: Sequence[Node]) -> list[Node]:
    """`nodes`, which stand in one place: in their loops, loads from memories on chip come before
    those from off chip that stand right before them. Where half of the cores do so, each half has
    DRAM while the other rests it, else all want it in the same cycles."""
    loops = [node for node in nodes if isinstance(node, SegmentedLoop)]
    order: list[int] = []  # the same in all of them, as their steps have tokens in common
    rows = [*zip(*(segment.body for loop in loops for segment in loop.segments), strict=True)]
    for place, steps in enumerate(rows):
        at, uses = len(order), [use for step in steps for _, use in step.touches]
        while at and _only_loads(steps, far=False) and _only_loads(rows[order[at - 1]], far=True):
            if any(touched(rows[order[at - 1]], use) for use in uses):
                break
            at -= 1
        order.insert(at, place)
    bodies = zip(*(_near_first(rows[place]) for place in order), strict=True)
    return [
        SegmentedLoop(
            node.variable,
            tuple([LoopSegment(each.count, next(bodies, ())) for each in node.segments]),
        )
        if isinstance(node, SegmentedLoop)
        else node
        for node in nodes
    ]


def _only_loads(steps: Sequence[Node], *, far: bool) -> bool:
    """Whether `steps` only load, from memories off chip, or from those on chip and borders, and for
    their core alone."""
    leaves = [leaf for step in steps for leaf in step.leaves]
    items = [item for leaf in leaves for item in leaf.items]
    return bool(items) and not any(leaf.staged for leaf in leaves) and all(
        isinstance(item, Copy | Fill) and item.dst.memory not in (*OFF_CHIP, "shared")
        and (isinstance(item, Copy) and item.src.memory in OFF_CHIP) is far
        for item in items
    )  # fmt: skip


@dataclass
class Bundles:
    """Copies of small constants that lie side by side off chip, for one load on one core."""

    constants: Sequence[tuple[int, AnyArray]]
    """Addresses, in order, with what lies there."""
    end: int
    """Of what lies beside them."""
    step_of: Callable[[int], int] = lambda _: 0
    """By origin of a load."""
    joins_earlier: Callable[[int, Operand], bool] = lambda *_: True
    """Whether what a step loads to an operand is to come with what a step before loads."""
    made: dict[Hashable, tuple[int, LazyArray, int]] = field(default_factory=dict)
    """By what it holds, address and bytes of each bundle, with the origin of its first load."""

    def constant_at(self, src: Operand) -> tuple[int, AnyArray] | None:
        """The constant in which an operand off chip lies."""
        base = src.address.base
        at = bisect_right(self.constants, base, key=lambda each: each[0]) - 1
        if at < 0 or base + src.bytes > self.constants[at][0] + self.constants[at][1].nbytes:
            return None
        return self.constants[at]

    def address(self, row: _Row) -> int:
        """Where a bundle lies of what a row of loads brings, as it lies on chip."""
        parts = [(each.dst.address.base - row.low, each.src) for each in row.parts]
        key = tuple((offset, src.address.base, src.bytes) for offset, src in parts)
        if key not in self.made:
            size = row.end - row.low

            def data() -> Array:
                found = np.zeros(size, np.uint8)
                for offset, src in parts:
                    low, whole = self.constant_at(src) or (0, found)
                    raw = np.ascontiguousarray(whole).reshape(-1).view(np.uint8)
                    low = src.address.base - low
                    found[offset : offset + src.bytes] = raw[low : low + src.bytes]
                return found

            made = LazyArray((size,), np.dtype(np.uint8), data)
            self.made[key] = self.end, made, row.parts[0].origin
            self.end += -(-size // GRAIN) * GRAIN
        return self.made[key][0]


@dataclass
class _Row:
    """Loads of constants of one core side by side on chip."""

    numbers: list[int]
    """Of its nodes."""
    parts: list[Copy]

    @property
    def low(self) -> int:
        """First byte on chip."""
        return self.parts[0].dst.address.base

    @property
    def end(self) -> int:
        """The byte behind it."""
        return self.parts[-1].dst.address.base + self.parts[-1].dst.bytes

    @property
    def one(self) -> bool:
        """Whether its bytes lie behind each other off chip as well."""
        by = {each.src.address.base - each.dst.address.base for each in self.parts}
        return len(by) == 1 and sum(each.dst.bytes for each in self.parts) == self.end - self.low

    def beside(self, number: int, copy: Copy) -> _Row:
        """With one more load."""
        return _Row([*self.numbers, number], [*self.parts, copy])

    def one_load(self, bundles: Bundles) -> Copy:
        """What brings all of it."""
        first = self.parts[0]
        address = first.src.address if self.one else Address(bundles.address(self))
        return replace(first, src=replace(first.src, address=address))


def join_small_loads(nodes: Sequence[Node], arch: Arch, bundles: Bundles) -> list[Node]:
    """`nodes` with loads side by side on chip as one, where either takes longer to begin than to
    move its bytes, or where all together do, which then come from a bundle."""
    rows: list[_Row] = []
    ends: dict[tuple[str, str, int], _Row] = {}
    last: dict[str, int] = {}
    for number, node in enumerate(nodes):
        copy = _contiguous_constant_load(node, arch) if isinstance(node, EngineStep) else None
        if isinstance(node, EngineStep) and copy is not None and _unconditional(copy):
            row = ends.get((copy.engine, copy.dst.memory, copy.dst.address.base), _Row([], []))
            longer, before = row.beside(number, copy), last.get(copy.engine, -1)
            if row.parts and _joins(longer, node.uses[0], before, nodes, arch, bundles):
                row.numbers, row.parts = longer.numbers, longer.parts
            else:
                row = _Row([number], [copy])
                rows.append(row)
            for end in (row.end, -(-row.end // GRAIN) * GRAIN):
                ends[copy.engine, copy.dst.memory, end] = row
        last |= {engine: number for engine, _ in node.touches}
    made = dict[int, Node]()
    for row in (row for row in rows if row.parts[1:]):
        leaf = nodes[row.numbers[0]]
        assert isinstance(leaf, EngineStep)
        made[row.numbers[0]] = _piece(leaf, row.one_load(bundles), 0, row.end - row.low)
    behind = {number for row in rows for number in row.numbers[1:]}
    return [made.get(n, node) for n, node in enumerate(nodes) if n not in behind]


def _unconditional(copy: Copy) -> bool:
    """Whether it moves the same bytes whenever it is done, and at all lengths."""
    ends = copy.src, copy.dst
    return not any(e.address.terms or e.address.ring or e.limits for e in ends)


def _joins(
    row: _Row, use: Use, before: int, nodes: Sequence[Node], arch: Arch, bundles: Bundles
) -> bool:
    """Whether the last load of a row, with its `use`, may come with those ahead of it; `before` is
    the number of the last node on their engine."""
    *ahead, number = row.numbers
    *_, copy = row.parts
    most = startup_bytes(arch, arch.copy_[copy.engine], copy.src.memory)
    total, more = row.end - row.low, copy.dst.bytes
    if total % copy.dst.itemsize or total % row.parts[0].dst.itemsize:
        return False
    step = bundles.step_of(copy.origin)
    if step != bundles.step_of(row.parts[-2].origin) and not bundles.joins_earlier(step, copy.dst):
        return False  # its place may be free later, and equal layers load alike
    if total > most:
        # What uses the first load waits no longer for others than a load takes to begin.
        if not row.one or min(total - more, more) > most or before != ahead[-1]:
            return False
        use = use._replace(low=row.low)
    elif not row.one and not all(map(bundles.constant_at, (each.src for each in row.parts))):
        return False
    between = (n for n in range(ahead[0] + 1, number) if n not in ahead)
    return not touched(map(nodes.__getitem__, between), use)


def _on_engines_alike(nodes: Sequence[Node], prices: EngineCycles) -> list[Node]:
    """`nodes` with loads of constants on as many of the copy engines that can do them as the memory
    of constants keeps busy, those of a buffer on the one that would be done with it first."""
    arch, alike = prices.arch, dict[str, list[str]]()
    for name, engine in arch.copy_.items():
        rate = prices.cores * copy_rate(arch, engine, arch.constants)
        several = math.ceil(arch.far_rates[arch.constants] / rate) if rate else 1
        alike[name] = arch.copy_engines_like(name)[:several]
    if all(names[1:] == [] for names in alike.values()):
        return list(nodes)
    kept = {
        (leaf.engine, use.buffer)
        for node in nodes for leaf in node.leaves for use in leaf.uses
        if leaf.items and _bound_to_engine(leaf)
    }  # fmt: skip
    moved = dict.fromkeys(arch.copy_, 0.0)
    chosen: dict[tuple[str, str], str] = {}

    def put(node: Node, times: int) -> Node:
        if isinstance(node, SegmentedLoop):
            segments = [
                replace(each, body=tuple(put(inner, times * each.count) for inner in each.body))
                for each in node.segments
            ]
            return replace(node, segments=tuple(segments))
        buffers = {(node.engine, use.buffer) for use in node.uses}
        if node.engine not in alike or len(buffers) != 1 or buffers & kept:
            return node
        ways = {
            n: node if n == node.engine
            else replace(node, engine=n, items=with_fields(node.items, engine=n))
            for n in alike[node.engine]
        }  # fmt: skip
        ends = {name: moved[name] + times * prices.moving(way) for name, way in ways.items()}
        name = chosen.setdefault(buffers.pop(), min(ends, key=ends.__getitem__))
        moved[name] = ends[name]
        return ways[name]

    return [put(node, 1) for node in nodes]


def _bound_to_engine(leaf: EngineStep) -> bool:
    """Whether it waits for other steps or cores, which it does in the order of its own engine."""
    waits = leaf.reads or leaf.writes or leaf.team or leaf.waited
    return bool(waits) or not _only_loads([leaf], far=True)


def _piece(leaf: EngineStep, copy: Copy, low: int, high: int) -> EngineStep:
    """Bytes `low` .. `high` of a load."""
    part = replace(copy, dst=_byte_slice(copy.dst, low, high), src=_byte_slice(copy.src, low, high))
    start = copy.dst.address.base  # less is touched of the buffer where others load the rest of it
    own = leaf.uses[0]._replace(low=start + low, high=start + high)
    return replace(leaf, items=(part,), uses=(own,))


def _byte_slice(whole: Operand, low: int, high: int) -> Operand:
    item = whole.itemsize
    return replace(
        whole, address=whole.address.plus(low), shape=((high - low) // item,), strides=(item,)
    )


class _Used:
    """What the steps so far have touched on chip: of each memory ranges of bytes, each with the
    last step that touched it, its engine, and the last step of any other engine."""

    def __init__(self) -> None:
        self._starts: dict[str, list[int]] = defaultdict(lambda: [0])
        """By memory, where ranges begin."""
        self._marks: dict[str, list[tuple[int, str, int]]] = defaultdict(lambda: [(-1, "", -1)])

    def add(self, step: int, engine: str, use: Use) -> None:
        """`step`, which comes behind all before, touches what `use` says."""
        starts, marks = self._starts[use.memory], self._marks[use.memory]
        for place in (use.low, use.high):
            at = bisect_left(starts, place)
            if at == len(starts) or starts[at] != place:
                starts.insert(at, place)
                marks.insert(at, marks[at - 1])
        first, end = bisect_left(starts, use.low), bisect_left(starts, use.high)
        made = [(step, engine, b if name == engine else a) for a, name, b in marks[first:end]]
        if made[1:] and made.count(made[0]) == len(made):  # as two engines have used all of it
            made = made[:1]
            del starts[first + 1 : end]
        marks[first:end] = made

    def last(self, engine: str, use: Use, lows: Sequence[int], highs: Sequence[int]) -> list[int]:
        """For each range within `use`, the last step before that another engine touched it with;
        -1: none."""
        starts, marks = self._starts[use.memory], self._marks[use.memory]
        found = list[int]()
        for low, high in zip(lows, highs, strict=True):
            first = bisect_right(starts, use.low + low) - 1
            met = marks[first : bisect_left(starts, use.low + high)]
            found.append(max([b if name == engine else a for a, name, b in met]))
        return found
