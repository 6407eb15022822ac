"""On-chip addresses of a group's buffers.

A load should find its buffer free while earlier work is still running: in the layers before, or at
the end of the previous group. So the live range of a loaded buffer begins some layers early, as
many as there is room for, and buffers of the previous group's last layer are obstacles. If memory
does not suffice, early loading is given up first; then buffers that are never in use together share
addresses. In tile loops the previous tile matters more than the previous group (`turning`). In a
group without loops each load gets a live range of its own (`compiler.memory.prefetch_addresses`)
where that saves time.

In a memory whose banks are contiguous ranges, slots go to banks of their own while there is room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, product
from typing import Annotated, Literal

from compiler.cost.overlap import startup_bytes, sustained_rate
from compiler.errors import DoesNotFit
from compiler.memory.bank_assignment import BankedMemory, separate, traffic
from compiler.memory.packing import pack
from compiler.memory.prefetch_addresses import LAYERS, LoadPacing, prefetched
from compiler.memory.steady_state import phases
from compiler.passes import ContractBroken, ensured, within
from compiler.plan.make_plan import Plan, too_large
from compiler.schedule.residency.buffer import (
    GRAIN,
    LiveRange,
    Places,
    TileBuffer,
    alive,
    in_use,
    lowest_gap,
)
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.element_types import grain_of
from simmodel.arch.memories import Memory
from simmodel.arch.record import Arch

# Whether buffers can lie where they are said to: a check that knows nothing of who placed them.


def check_layout(
    plan: Plan, places: Mapping[str, tuple[int, int]], arch: Arch
) -> Iterator[tuple[str, str]]:
    """Errors in the places of a plan's buffers, by name their address and pitch in bytes: the
    buffer, and a sentence."""
    for role, memory in arch.memories.on_chip().items():
        own = [b for b in plan.buffers.values() if b.role == role and b.address is None]
        size = plan.schedule.group.room(role, memory.size)
        for buffer in own:
            yield from ((buffer.name, said) for said in _misplaced(buffer, places, memory, size))
        lives = ahead(own, len(plan.layers), 0)
        below: list[tuple[int, str]] = []
        for buffer in sorted(own, key=lambda b: places[b.name]):
            start, end = buffer.span(places[buffer.name])
            below = [each for each in below if each[0] > start]
            for _, other in below:
                if lives.meet(other, buffer.name):
                    said = f"share bytes of {role} memory while both are needed"
                    yield buffer.name, f"{other} and {buffer.name} {said}"
            below.append((end, buffer.name))


def _misplaced(
    buffer: TileBuffer, places: Mapping[str, tuple[int, int]], memory: Memory, size: int
) -> Iterator[str]:
    """Errors in the place of one buffer, of a memory of which its group has `size` bytes."""
    name, (address, pitch) = buffer.name, places[buffer.name]
    _, end = buffer.span((address, pitch))
    grain = math.lcm(memory.alignment, grain_of(buffer.dtype))
    if address % grain or pitch % grain:
        yield f"{name} at {address} every {pitch}: must be multiples of {grain} B"
    if pitch < buffer.bytes:
        yield f"{name}: slots of {buffer.bytes} B do not go every {pitch} B"
    if address < 0 or end > size:
        yield f"{name} ends at {end}, {buffer.role} memory at {size}"


AGAIN = 0.05
"""Part of a layer's time that is lost where the next tile waits for its place."""

# Between which steps of a group each of its buffers takes its bytes.

Life = tuple[int, int]
"""First and last step in which a buffer is alive."""


@dataclass(frozen=True)
class Lives:
    """Live ranges of some buffers."""

    steps: Mapping[str, Life]
    turn: int = 0
    """Length of one iteration in steps, after which the ranges repeat; 0: no loop."""

    def meet(self, a: str, b: str) -> bool:
        """Whether two buffers are alive at the same time, in this tile or in neighbouring ones."""
        (first, last), (born, dies) = self.steps[a], self.steps[b]
        if first <= dies and born <= last:
            return True
        by = self.turn if first > dies else -self.turn
        return self.turn > 0 and first <= dies + by and born + by <= last

    def early(self, name: str) -> bool:
        """Whether the live range begins while the previous group ends."""
        return self.steps[name][0] <= 0


def together(buffers: Sequence[TileBuffer], last: int) -> Lives:
    """Live ranges over all steps."""
    return Lives({b.name: (0 if b.key is not None and not b.first else 1, last) for b in buffers})


def ahead(buffers: Sequence[TileBuffer], last: int, layers: int = 1) -> Lives:
    """Live ranges in which loads begin some layers before first use, 0: with it; `last` is the last
    layer's step."""
    steps = {}
    for buffer in buffers:
        first, end = _used(buffer, last)
        steps[buffer.name] = (max(0, first - layers) if buffer.key is not None else first), end
    return Lives(steps)


def turning(
    buffers: Sequence[TileBuffer], last: int, stored: Collection[str], layers: int = 1
) -> Lives:
    """The same in tile loops: a tile's load finds its buffer free while the previous tile ends, and
    a store has one layer's time to finish."""
    steps = dict(ahead(buffers, last, layers).steps)
    for buffer in (b for b in buffers if not b.lasting):
        first, end = _used(buffer, last)
        if buffer.key is not None:
            first = max(end + 1 - last, first - layers)
        if buffer.name in stored:
            end = min(first + last - 1, end + 1)
        steps[buffer.name] = first, end
    return Lives(steps, last)


def _used(buffer: TileBuffer, last: int) -> Life:
    return (1, last) if buffer.lasting else (buffer.first + 1, buffer.last + 1)


@dataclass(frozen=True)
class PlacedGroup:
    """A planned group with addresses."""

    plan: Plan
    places: Places

    def from_core(self, first: int) -> PlacedGroup:
        """The same on the cores from `first` on."""
        plan = replace(self.plan, schedule=self.plan.schedule.from_core(first))
        return replace(self, plan=plan)


Step = PlacedGroup | HostNode


@dataclass(frozen=True)
class PlaceBuffers:
    """Give every buffer of a plan an address.

    before:
        x: 2 slots of 3 KiB, w: 2 slots of 1 KiB, local memory of 4 banks of 4 KiB
    after:
        x at 0 and 4 KiB, w at 8 KiB and 12 KiB
    """

    apart: bool = True
    """Keep slots in different banks where the memory is blocked and large enough."""
    ahead: bool = True
    """Keep room for what is loaded ahead."""
    effort: Annotated[int, within(0, 3)] = 1
    """Of the search for a packing where greedy placement finds none; each level takes ten times as
    long, and 0 does not search."""
    conflicts: Literal["aware", "blind"] = "aware"
    """Move buffers between banks so that engines lose fewer cycles there, or not; if the program
    is quicker as a whole where none is moved, none is."""

    @ensured
    def apply(self, plan: Plan, arch: Arch, before: tuple[Plan, Places] | None = None) -> Places:
        """Address and pitch of every buffer of a plan; `before` is the group that runs before it.

        Raises DoesNotFit where no placement was found.
        """
        fixed = (b for b in plan.buffers.values() if b.address is not None)
        places = {b.name: (b.address or 0, b.bytes) for b in fixed}
        for role, memory in arch.memories.on_chip().items():
            buffers = [b for b in plan.buffers.values() if b.role == role and b.address is None]
            if buffers:
                busy = _tail(before, role) if before is not None and self.ahead else []
                size = plan.schedule.group.room(role, memory.size)
                at = partial(_OneMemory, self, plan, arch, memory, size, busy=busy)
                rows = [] if self.moves_in(memory) else load_rows(plan, buffers, arch)
                try:
                    places |= _placed_in_rows(at, buffers, rows, places)
                except DoesNotFit:
                    places |= at(buffers).places(places)
        return places

    def ensures(
        self, places: Places, plan: Plan, arch: Arch, before: tuple[Plan, Places] | None = None
    ) -> None:
        """Buffers lie in their memories, and those that are in use together apart."""
        del before
        for _, wrong in check_layout(plan, places, arch):
            raise ContractBroken(wrong)

    def moves(self, arch: Arch) -> bool:
        """Whether buffers may be moved between banks of a machine."""
        return any(map(self.moves_in, arch.memories.on_chip().values()))

    def moves_in(self, memory: Memory) -> bool:
        """Whether buffers may be moved between banks of one memory."""
        return self.conflicts == "aware" and memory.mapping == "blocked" and memory.banks > 1


# Constants that are loaded once lie behind each other, as they do off chip, so that one load brings
# several where each takes longer to begin than to move.


def load_rows(plan: Plan, buffers: Sequence[TileBuffer], arch: Arch) -> list[list[TileBuffer]]:
    """Those `buffers` of one memory that one load should bring together."""
    name = arch.copy_engine(arch.constants, buffers[0].role)
    if name is None:
        return []
    most, tensors = startup_bytes(arch, arch.copy_[name]), plan.schedule.group.tensors
    found: list[list[TileBuffer]] = []
    last: dict[bool, list[TileBuffer]] = {}
    for buffer in buffers:
        constant = buffer.key is not None and tensors[buffer.key[0]].data is not None
        if not constant or buffer.slots > 1 or buffer.level:
            continue
        row = last.get(buffer.lasting)
        if row and min(row_offsets(row)[-1], buffer.bytes) <= most:
            row.append(buffer)
        else:
            last[buffer.lasting] = [buffer]
            found.append(last[buffer.lasting])
    return [row for row in found if len(row) > 1]


def row_offsets(row: Sequence[TileBuffer]) -> list[int]:
    """Where each of a row begins, and its end: off chip all begin at such multiples."""
    sizes = (-(-buffer.bytes // GRAIN) * GRAIN for buffer in row[:-1])
    starts = [*accumulate(sizes, initial=0)]
    return [*starts, starts[-1] + row[-1].bytes]


def _placed_in_rows(
    at: Callable[[Sequence[TileBuffer]], _OneMemory], buffers: Sequence[TileBuffer],
    rows: Sequence[Sequence[TileBuffer]], fixed: Places,
) -> Places:  # fmt: skip
    behind = {buffer.name for row in rows for buffer in row[1:]}
    joined = {row[0].name: _one_buffer(row) for row in rows}
    places = at([joined.get(b.name, b) for b in buffers if b.name not in behind]).places(fixed)
    for row in rows:
        address = places[row[0].name][0]
        starts = zip(row, row_offsets(row), strict=False)
        places |= {buffer.name: (address + start, buffer.bytes) for buffer, start in starts}
    return places


def _one_buffer(row: Sequence[TileBuffer]) -> TileBuffer:
    widest = max((buffer.dtype for buffer in row), key=grain_of)
    first, last = min(b.first for b in row), max(b.last for b in row)
    size = -(-row_offsets(row)[-1] // grain_of(widest)) * grain_of(widest)
    return replace(row[0], bytes=size, dtype=widest, first=first, last=last)


@dataclass(frozen=True)
class _OneMemory:
    """The buffers of a plan in one memory, of which they may have `size` bytes."""

    options: PlaceBuffers
    plan: Plan
    arch: Arch
    memory: Memory
    size: int
    buffers: Sequence[TileBuffer]
    busy: list[tuple[int, int]]
    """Bytes that the group before uses until its end."""

    @property
    def last(self) -> int:
        """Number of the last layer's step."""
        return len(self.plan.layers)

    @property
    def looped(self) -> bool:
        """Whether it is a tile of several."""
        return bool(self.plan.schedule.loops)

    @property
    def grain(self) -> int:
        """What addresses are multiples of."""
        return math.lcm(*map(self._grain_of, self.buffers))

    def _grain_of(self, buffer: TileBuffer) -> int:
        memory = self.memory
        return math.lcm(memory.alignment, min(memory.bank_width, 64), grain_of(buffer.dtype))

    def places(self, fixed: Places) -> Places:
        """Address and pitch of each buffer, beside those whose places are `fixed`."""
        made, early = self._fitted(turns=self.looped), ahead(self.buffers, self.last)
        loaded = any(buffer.key is not None for buffer in self.buffers)
        if loaded and self.options.ahead and self.last >= LAYERS and not self.looped:
            pace, room = LoadPacing.of(self.plan, self.arch), (self.size, self.grain)
            found = prefetched(made, self.buffers, pace, room, self.busy)
            if found is not None:
                made, early = found[0], Lives(found[1])
        if not self.options.moves_in(self.memory):
            return made
        once = self._fitted(turns=False) if self.looped else made
        starts = (made, once)[: 1 if made == once else 2]
        return self._separated([fixed | start for start in starts], early)

    def _fitted(self, *, turns: bool) -> Places:
        """Places for the longest live ranges that go; `turns`: in a tile loop."""
        found = next((places for places in self._attempts(turns) if places is not None), None)
        if found is None:
            role = self.buffers[0].role
            demand = max(there[role] for there in in_use(self.buffers, self.last, [role]))
            raise too_large(self.plan, role, max(demand, self.size + 1), self.size)
        return found

    def _attempts(self, turns: bool) -> Iterator[Places | None]:
        grains, effort = [self.grain], self.options.effort
        if self.options.apart and self.memory.mapping == "blocked" and self.memory.banks > 1:
            grains.insert(0, math.lcm(self.memory.bank_size, self.grain))
        wishes = _wishes(self.buffers, self.plan, self.busy, turns)
        # Where buffers are moved between banks, that weighs what the group before uses.
        shunned = self.busy if turns and not self.options.moves_in(self.memory) else []
        for (lives, avoided), grain in product(wishes, grains):
            if shunned and not avoided:
                yield self._first_fit(lives, grain, avoided, shunned)
            yield self._first_fit(lives, grain, avoided)
        yield self._dense()
        yield self._searched(ahead(self.buffers, self.last), min(effort, 1))
        needed = ahead(self.buffers, self.last, 0)
        yield from (self._first_fit(needed, grain, []) for grain in grains)
        yield self._searched(needed, effort)

    def _first_fit(
        self, lives: Lives, grain: int, busy: Sequence[tuple[int, int]],
        shunned: Sequence[tuple[int, int]] = (),
    ) -> Places | None:  # fmt: skip
        """First fit: the lowest free addresses, large buffers first, at multiples of `grain`; what
        is loaded lies in none of the bytes that are `shunned` where there is room beside them."""
        placed: list[tuple[str, tuple[int, int]]] = []
        places: Places = {}
        for buffer in sorted(self.buffers, key=lambda b: -b.bytes * b.slots):
            name, pitch = buffer.name, -(-buffer.bytes // grain) * grain
            extent = pitch * (buffer.slots - 1) + buffer.bytes
            there = [span for other, span in placed if lives.meet(name, other)]
            there += busy if lives.early(name) else ()
            address = lowest_gap(extent, there, grain)
            if shunned and buffer.key is not None:
                apart = lowest_gap(extent, [*there, *shunned], grain)
                address = apart if apart + extent <= self.size else address
            if address + extent > self.size:
                return None
            placed.append((name, (address, address + extent)))
            places[name] = (address, pitch)
        return places

    def _dense(self) -> Places | None:
        """Addresses without gaps: sizes are multiples of the elements' alignment."""
        order = sorted(self.buffers, key=lambda b: (-grain_of(b.dtype), -b.bytes * b.slots))
        ends = list(accumulate((b.bytes * b.slots for b in order), initial=0))
        if ends[-1] > self.size:
            return None
        return {b.name: (low, b.bytes) for b, low in zip(order, ends, strict=False)}

    def _searched(self, lives: Lives, effort: int) -> Places | None:
        """A packing found by search."""
        items = [
            LiveRange(
                b.name, b.bytes * b.slots, *lives.steps[b.name],
                math.lcm(self.memory.alignment, grain_of(b.dtype)),
            )
            for b in self.buffers
        ]  # fmt: skip
        found = pack(items, self.size, effort)
        if found is None:
            return None
        return {b.name: (found[b.name], b.bytes) for b in self.buffers}

    def _separated(self, starts: list[Places], early: Lives) -> Places:
        """The best of `starts` after bank assignment, by cycles in the steady state."""
        steady, buffers = phases(self.plan, self.arch), self.buffers
        names = {b.name for b in self.plan.buffers.values() if b.role == buffers[0].role}
        lives = ahead(buffers, self.last, 0)
        copies = self.arch.copy_.values()
        rate = max(sustained_rate(self.arch, e) for e in copies)
        stored = {name for name, _ in self.plan.stores}

        def loading(buffer: TileBuffer) -> float:
            return buffer.bytes / rate if buffer.key is not None else 0.0

        def behind(a: TileBuffer, b: TileBuffer) -> float:
            """Cycles by which the load of the next tile's `a` is late if it reuses the bytes of
            this tile's `b`: it begins when `b` is used and stored, and should end when `a` is
            needed."""
            if not loading(a):
                return 0.0
            storing = b.bytes / rate if b.name in stored else 0.0
            between = (*steady[b.last + 1 :], *steady[: a.first])
            return max(0.0, storing + loading(a) - sum(phase.period for phase in between))

        def between(a: TileBuffer, b: TileBuffer) -> float:
            if lives.meet(a.name, b.name):
                return math.inf
            times = steady[a.first].times
            if early.meet(a.name, b.name):
                hidden = steady[min(a.first, b.first)].period
                return times * (max(loading(a), loading(b)) + AGAIN * hidden)
            # In the next tile the earlier one waits until this tile is done with the later one.
            period = min(steady[b.first].period, steady[a.first].period)
            return (times - 1) * max(behind(a, b), behind(b, a), AGAIN * period)

        space = BankedMemory(
            self.size, self.memory.bank_size, self._grain_of, between, self.busy,
            lambda b: loading(b) if early.early(b.name) else 0.0,
        )  # fmt: skip
        seen = traffic(steady, names, self.memory)
        made = (
            separate({n: p for n, p in s.items() if n in names}, buffers, seen, space)
            for s in starts
        )
        found, _ = min(made, key=lambda each: each[1])
        return {b.name: found[b.name] for b in buffers}


def _wishes(
    buffers: Sequence[TileBuffer], plan: Plan, busy: list[tuple[int, int]], turns: bool
) -> Iterator[tuple[Lives, list[tuple[int, int]]]]:
    """Live ranges and busy bytes to try, the best first: from all buffers alive all the time down
    to loads one layer ahead. `turns`: in a tile loop."""
    last = len(plan.layers)
    distances = [last >> n for n in range(last.bit_length())]  # all layers, half of them .. one
    if turns:
        # The tile before ends often, the group before once: it is run into first.
        stored = {name for name, _ in plan.stores}
        loops = (turning(buffers, last, stored, layers) for layers in distances)
        yield from product((together(buffers, last), *loops), (busy, []))
    once = [together(buffers, last), *(ahead(buffers, last, layers) for layers in distances)]
    yield from ((lives, avoided) for avoided in (busy, []) for lives in once)


def _tail(before: tuple[Plan, Places], role: str) -> list[tuple[int, int]]:
    """Bytes that a group uses until its end: of its last layer, or, in tile loops, of all."""
    plan, places = before
    last, looped = len(plan.layers) - 1, bool(plan.schedule.loops)
    return [
        buffer.span(places[buffer.name])
        for buffer in plan.buffers.values()
        if buffer.role == role and (looped or alive(buffer, last, last))
    ]
