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

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from compiler.cost.overlap import copy_rate
from compiler.memory.bank_assignment import BankedMemory, Banks, Waits, separate, traffic
from compiler.memory.packing import Item, PackingSearchOptions, pack
from compiler.memory.prefetch_addresses import Early, LoadPacing, prefetched
from compiler.memory.steady_state import phases
from compiler.passes import ContractBroken, Within, ensured
from compiler.plan.make_plan import too_large
from compiler.plan.plan import Plan
from compiler.schedule.residency.buffer import TileBuffer, alive
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.dtype import size_of
from simmodel.arch.record import Arch, Memory

# Whether buffers can lie where they are said to: a check that knows nothing of who placed them.


def check_layout(
    plan: Plan, places: Mapping[str, tuple[int, int]], arch: Arch
) -> Iterator[tuple[str, str]]:
    """Errors in the places of a plan's buffers: the buffer, and a sentence.

    Args:
        plan: the buffers.
        places: address and pitch in bytes, by name; those of all buffers.
        arch: the memories.
    """
    for role, memory in arch.memories.on_chip().items():
        own = [b for b in plan.buffers.values() if b.role == role and b.address is None]
        size = plan.schedule.group.room(role, memory.size)
        for buffer in own:
            address, pitch = places[buffer.name]
            grain = math.lcm(memory.alignment, size_of(buffer.dtype))
            if address % grain or pitch % grain:
                yield (
                    buffer.name,
                    f"{buffer.name} at {address} every {pitch}: must be multiples of {grain} B",
                )
            if pitch < buffer.bytes:
                yield (
                    buffer.name,
                    f"{buffer.name}: slots of {buffer.bytes} B do not go every {pitch} B",
                )
            if address < 0 or _end_of_buffer(buffer, places) > size:
                end = _end_of_buffer(buffer, places)
                yield buffer.name, f"{buffer.name} ends at {end}, {role} memory at {size}"
        for a, b in _clashes(own, places, len(plan.layers) - 1):
            yield (
                b.name,
                f"{a.name} and {b.name} share bytes of {role} memory while both are needed",
            )


def _end_of_buffer(buffer: TileBuffer, places: Mapping[str, tuple[int, int]]) -> int:
    address, pitch = places[buffer.name]
    return address + pitch * (buffer.slots - 1) + buffer.bytes


def _clashes(
    buffers: list[TileBuffer], places: Mapping[str, tuple[int, int]], last: int
) -> Iterator[tuple[TileBuffer, TileBuffer]]:
    """Pairs that overlap in bytes and in layers, found in the order of their addresses."""
    ordered = sorted(buffers, key=lambda b: places[b.name])
    open_: list[TileBuffer] = []
    for buffer in ordered:
        start = places[buffer.name][0]
        open_ = [other for other in open_ if _end_of_buffer(other, places) > start]
        yield from ((other, buffer) for other in open_ if _lifetimes_overlap(other, buffer, last))
        open_.append(buffer)


def _lifetimes_overlap(a: TileBuffer, b: TileBuffer, last: int) -> bool:
    first, second = ((0, last) if x.lasting else (x.first, x.last) for x in (a, b))
    return first[0] <= second[1] and second[0] <= first[1]


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


def in_use(buffers: Sequence[TileBuffer], last: int) -> Lives:
    """Live ranges while layers use the buffers; `last` is the last layer's step."""
    return Lives({b.name: _used(b, last) for b in buffers})


def together(buffers: Sequence[TileBuffer], last: int) -> Lives:
    """Live ranges over all steps."""
    return Lives({b.name: (0 if b.key is not None and not b.first else 1, last) for b in buffers})


def ahead(buffers: Sequence[TileBuffer], last: int, layers: int = 1) -> Lives:
    """Live ranges in which loads begin some layers before first use."""
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


def depths(last: int) -> Iterator[int]:
    """Prefetch distances to try, in layers: all, half of them, and so on, down to one."""
    layers = last
    while layers > 0:
        yield layers
        layers //= 2


def _used(buffer: TileBuffer, last: int) -> Life:
    return (1, last) if buffer.lasting else (buffer.first + 1, buffer.last + 1)


Place = tuple[int, int]
"""Address, and bytes from slot to slot."""
Places = dict[str, Place]


@dataclass(frozen=True)
class PlacedGroup:
    """A planned group with addresses."""

    plan: Plan
    places: dict[str, Place]


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
    effort: Annotated[int, Within(0, 3)] = 1
    """Of the search for a packing where greedy placement finds none; each level takes ten times as
    long, and 0 does not search."""
    conflicts: Literal["aware", "blind"] = "aware"
    """Move buffers between banks so that engines lose fewer cycles there, or not; if the program
    is quicker as a whole where none is moved, none is."""
    banks: Banks = field(default_factory=Banks)
    """What `aware` means."""
    early: Early = field(default_factory=Early)
    """What is loaded how far ahead."""
    packer: PackingSearchOptions = field(default_factory=PackingSearchOptions)
    """The search for a packing."""

    @ensured
    def apply(self, plan: Plan, arch: Arch, before: tuple[Plan, Places] | None = None) -> Places:
        """Address and pitch of every buffer of a plan; `before` is the group that runs before it.

        Raises DoesNotFit where no placement was found.
        """
        places: Places = {}
        for role, memory in arch.memories.on_chip().items():
            size = plan.schedule.group.room(role, memory.size)
            found = [b for b in plan.buffers.values() if b.role == role]
            places |= {b.name: (b.address, b.bytes) for b in found if b.address is not None}
            buffers = [b for b in found if b.address is None]
            if buffers:
                busy = _tail(before, role) if before is not None and self.ahead else []
                room, looped = (memory, size), bool(plan.schedule.loops)
                made = self._place_in_memory(buffers, room, plan, busy, turns=looped)
                alive_ahead = ahead(buffers, len(plan.layers))
                early = self._early(made, buffers, room, plan, busy, arch)
                if early is not None:
                    made, alive_ahead = early
                if self._moves(memory):
                    once = (
                        self._place_in_memory(buffers, room, plan, busy, turns=False)
                        if looped
                        else made
                    )
                    starts = [places | start for start in (made, once)[: 1 if made == once else 2]]
                    made = self._separated(starts, buffers, room, busy, plan, arch, alive_ahead)
                places |= made
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
        return any(map(self._moves, arch.memories.on_chip().values()))

    def _moves(self, memory: Memory) -> bool:
        return self.conflicts == "aware" and memory.mapping == "blocked" and memory.banks > 1

    def _early(
        self, made: Places, buffers: list[TileBuffer], room: tuple[Memory, int], plan: Plan,
        busy: list[tuple[int, int]], arch: Arch,
    ) -> tuple[Places, Lives] | None:  # fmt: skip
        """Places that let loads begin early enough to save time; None: `made` is as good."""
        if not self.ahead or len(plan.layers) < self.early.layers or plan.schedule.loops:
            return None
        memory, size = room
        grain = math.lcm(
            memory.alignment, _access_width(memory), *(size_of(b.dtype) for b in buffers)
        )
        found = prefetched(
            made, buffers, LoadPacing.of(plan, arch), (size, grain), busy, self.early
        )
        return None if found is None else (found[0], Lives(found[1]))

    def _place_in_memory(
        self, buffers: list[TileBuffer], room: tuple[Memory, int], plan: Plan,
        busy: list[tuple[int, int]], *, turns: bool,
    ) -> Places:  # fmt: skip
        memory, size = room
        grain = math.lcm(
            memory.alignment, _access_width(memory), *(size_of(b.dtype) for b in buffers)
        )
        grains = [grain]
        if self.apart and memory.mapping == "blocked" and memory.banks > 1:
            grains.insert(0, math.lcm(memory.bank_size, grain))
        last = len(plan.layers)
        for (lives, avoided), step in itertools.product(
            _wishes(buffers, plan, busy, turns), grains
        ):
            found = _first_fit(buffers, lives, step, size, avoided)
            if found is not None:
                return found
        dense = _pack_densely(buffers)
        if _end(dense, buffers) <= size:
            return dense
        found = _searched(buffers, ahead(buffers, last), room, min(self.effort, 1), self.packer)
        if found is not None:
            return found
        lives = in_use(buffers, last)
        for step in grains:
            found = _first_fit(buffers, lives, step, size, [])
            if found is not None:
                return found
        found = _searched(buffers, lives, room, self.effort, self.packer)
        if found is not None:
            return found
        demand = max(
            sum(b.bytes * b.slots for b in buffers if alive(b, position, last - 1))
            for position in range(last)
        )
        raise too_large(plan, buffers[0].role, max(demand, size + 1), size)

    def _separated(
        self, starts: list[Places], buffers: list[TileBuffer], room: tuple[Memory, int],
        busy: list[tuple[int, int]], plan: Plan, arch: Arch, early: Lives,
    ) -> Places:  # fmt: skip
        """The best of `starts` after bank assignment, by cycles in the steady state."""
        memory, size = room
        steady = phases(plan, arch)
        names = {b.name for b in plan.buffers.values() if b.role == buffers[0].role}
        last = len(plan.layers)
        lives = in_use(buffers, last)
        rates = [min(copy_rate(arch, e), arch.dram_bytes_per_cycle) for e in arch.copy_.values()]
        stored = {name for name, _ in plan.stores}

        def loading(buffer: TileBuffer) -> float:
            return buffer.bytes / max(rates) if buffer.key is not None else 0.0

        def behind(a: TileBuffer, b: TileBuffer) -> float:
            """Cycles by which the load of the next tile's `a` is late if it reuses the bytes of
            this tile's `b`: it begins when `b` is used and stored, and should end when `a` is
            needed."""
            if not loading(a):
                return 0.0
            storing = b.bytes / max(rates) if b.name in stored else 0.0
            between = (*steady[b.last + 1 :], *steady[: a.first])
            return max(0.0, storing + loading(a) - sum(phase.period for phase in between))

        def between(a: TileBuffer, b: TileBuffer) -> float:
            if lives.meet(a.name, b.name):
                return math.inf
            times = steady[a.first].times
            if early.meet(a.name, b.name):
                hidden = steady[min(a.first, b.first)].period
                return times * (max(loading(a), loading(b)) + self.banks.again * hidden)
            # In the next tile the earlier one waits until this tile is done with the later one.
            period = min(steady[b.first].period, steady[a.first].period)
            late = max(behind(a, b), behind(b, a), self.banks.again * period)
            return (times - 1) * late

        space = BankedMemory(
            size, memory.bank_size,
            lambda b: math.lcm(memory.alignment, _access_width(memory), size_of(b.dtype)),
        )  # fmt: skip
        waits = Waits(between, busy, lambda b: loading(b) if early.early(b.name) else 0.0)
        seen = traffic(steady, names, memory, self.banks)
        made = (
            separate(
                {n: p for n, p in start.items() if n in names},
                buffers,
                seen,
                space,
                waits,
                self.banks,
            )
            for start in starts
        )
        found, _ = min(made, key=lambda each: each[1])
        return {b.name: found[b.name] for b in buffers}


def _access_width(memory: Memory) -> int:
    return min(memory.bank_width, 64)


def _wishes(
    buffers: list[TileBuffer], plan: Plan, busy: list[tuple[int, int]], turns: bool
) -> Iterator[tuple[Lives, list[tuple[int, int]]]]:
    """Live ranges and busy bytes to try, the best first: from all buffers alive all the time down
    to loads one layer ahead. `turns`: in a tile loop."""
    last = len(plan.layers)
    if turns:
        # The tile before ends often, the group before once: it is run into first.
        stored = {name for name, _ in plan.stores}
        loops = (turning(buffers, last, stored, layers) for layers in depths(last))
        yield from itertools.product((together(buffers, last), *loops), (busy, []))
    once = [together(buffers, last), *(ahead(buffers, last, layers) for layers in depths(last))]
    yield from ((lives, avoided) for avoided in (busy, []) for lives in once)


def _tail(before: tuple[Plan, Places], role: str) -> list[tuple[int, int]]:
    """Bytes that a group uses until its end: of its last layer, or, in tile loops, of all."""
    plan, places = before
    last = len(plan.layers) - 1
    looped = bool(plan.schedule.loops)
    found = []
    for buffer in plan.buffers.values():
        if buffer.role == role and (looped or alive(buffer, last, last)):
            address, pitch = places[buffer.name]
            found.append((address, address + pitch * (buffer.slots - 1) + buffer.bytes))
    return found


def _first_fit(
    buffers: list[TileBuffer], lives: Lives, grain: int, size: int, busy: Sequence[tuple[int, int]]
) -> Places | None:
    """First fit: the lowest free addresses, large buffers first, at multiples of `grain`."""
    placed: list[tuple[int, int, str | None]] = [(low, high, None) for low, high in busy]
    places: Places = {}
    for buffer in sorted(buffers, key=lambda b: -b.bytes * b.slots):
        pitch = -(-buffer.bytes // grain) * grain
        extent = pitch * (buffer.slots - 1) + buffer.bytes
        name, address = buffer.name, 0
        for low, high, other in sorted(placed, key=lambda span: span[:2]):
            if not (lives.early(name) if other is None else lives.meet(name, other)):
                continue
            if address + extent <= low:
                break
            address = max(address, -(-high // grain) * grain)
        if address + extent > size:
            return None
        placed.append((address, address + extent, name))
        places[name] = (address, pitch)
    return places


def _pack_densely(buffers: list[TileBuffer]) -> Places:
    """Addresses without gaps: sizes are multiples of the elements' alignment."""
    places: Places = {}
    address = 0
    for buffer in sorted(buffers, key=lambda b: (-size_of(b.dtype), -b.bytes * b.slots)):
        places[buffer.name] = (address, buffer.bytes)
        address += buffer.bytes * buffer.slots
    return places


def _searched(
    buffers: list[TileBuffer],
    lives: Lives,
    room: tuple[Memory, int],
    effort: int,
    how: PackingSearchOptions,
) -> Places | None:
    """A packing found by search."""
    memory, size = room
    items = [
        Item(
            b.name,
            b.bytes * b.slots,
            *lives.steps[b.name],
            math.lcm(memory.alignment, size_of(b.dtype)),
        )
        for b in buffers
    ]
    found = pack(items, size, effort, how=how)
    if found is None:
        return None
    return {b.name: (found.addresses[b.name], b.bytes) for b in buffers}


def _end(places: Places, buffers: list[TileBuffer]) -> int:
    return max(places[b.name][0] + places[b.name][1] * (b.slots - 1) + b.bytes for b in buffers)
