"""Where a group's buffers lie on chip.

What is loaded should find its place free while the work before it is still going on: in the layers
before, or at the end of the group before. So buffers that are loaded live some layers longer, as
many as there is room for, and the buffers that the last layer of the group before works on are
obstacles. Where there is not that much room, this wish is given up first; then buffers that are
never in use together share space. In a group without outer loops each load gets a life of its own
(`early`) where that saves time.

In a memory whose banks are contiguous ranges, slots go to banks of their own while there is room.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from compiler.alloc.conflicts import Banks, traffic
from compiler.alloc.exact import Packer
from compiler.alloc.layout import check_layout
from compiler.alloc.pack import Item, pack
from compiler.alloc.prefetch import Early, Pace, prefetched
from compiler.alloc.separate import Space, Waits, separate
from compiler.alloc.steady import phases
from compiler.cost.rates import copy_rate
from compiler.hold.buffer import Buffer, alive
from compiler.options import Within
from compiler.passes import ContractBroken, ensured
from compiler.plan.ir import Plan
from compiler.plan.make_plan import too_large
from simmodel.arch import Arch, Memory
from simmodel.dtype import size_of

Place = tuple[int, int]
"""Address, and bytes from slot to slot."""
Places = dict[str, Place]


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
    """Move buffers between banks so that engines lose fewer cycles there, or not."""
    banks: Banks = field(default_factory=Banks)
    """What `aware` means."""
    early: Early = field(default_factory=Early)
    """What is loaded how far ahead."""
    packer: Packer = field(default_factory=Packer)
    """The search for a packing."""

    @ensured
    def apply(self, plan: Plan, arch: Arch, before: tuple[Plan, Places] | None = None) -> Places:
        """Address and pitch of every buffer of a plan; `before` is the group that runs before it.

        Raises DoesNotFit where no placement was found.
        """
        places: Places = {}
        for role, memory in arch.memories.on_chip().items():
            size = memory.size - (plan.schedule.group.reserved if role == "local" else 0)
            found = [b for b in plan.buffers.values() if b.role == role]
            places |= {b.name: (b.address, b.bytes) for b in found if b.address is not None}
            buffers = [b for b in found if b.address is None]
            if buffers:
                busy = _tail(before, role) if before is not None and self.ahead else []
                made = self._place(buffers, (memory, size), plan, busy)
                ahead = _ahead(buffers, len(plan.layers))
                early = self._early(made, buffers, (memory, size), plan, busy, arch)
                if early is not None:
                    made, ahead = early
                places |= made
                if self.conflicts == "aware" and memory.mapping == "blocked" and memory.banks > 1:
                    places |= self._separated(
                        places, buffers, (memory, size), busy, plan, arch, ahead
                    )
        return places

    def ensures(
        self, places: Places, plan: Plan, arch: Arch, before: tuple[Plan, Places] | None = None
    ) -> None:
        """Buffers lie in their memories, and those that are in use together apart."""
        del before
        for _, wrong in check_layout(plan, places, arch):
            raise ContractBroken(wrong)

    def _early(
        self, made: Places, buffers: list[Buffer], room: tuple[Memory, int], plan: Plan,
        busy: list[tuple[int, int]], arch: Arch,
    ) -> tuple[Places, Lives] | None:  # fmt: skip
        """Places with which loads can begin so early that it pays; None: `made` does as well."""
        if not self.ahead or len(plan.layers) < self.early.layers or plan.schedule.loops:
            return None
        memory, size = room
        grain = math.lcm(memory.alignment, _word(memory), *(size_of(b.dtype) for b in buffers))
        return prefetched(made, buffers, Pace.of(plan, arch), (size, grain), busy, self.early)

    def _place(
        self, buffers: list[Buffer], room: tuple[Memory, int], plan: Plan,
        busy: list[tuple[int, int]],
    ) -> Places:  # fmt: skip
        memory, size = room
        grain = math.lcm(memory.alignment, _word(memory), *(size_of(b.dtype) for b in buffers))
        grains = [grain]
        if self.apart and memory.mapping == "blocked" and memory.banks > 1:
            grains.insert(0, math.lcm(memory.bank_size, grain))
        last = len(plan.layers)
        ahead = _ahead(buffers, last)
        # From all together down to one layer ahead; the group before is run into only then.
        early = (_ahead(buffers, last, layers) for layers in _depths(last))
        wishes = [_together(buffers, last), *early, ahead]
        for avoided, lives, step in itertools.product((busy, []), wishes, grains):
            found = _first_fit(buffers, lives, step, size, avoided)
            if found is not None:
                return found
        dense = _packed(buffers)
        if _end(dense, buffers) <= size:
            return dense
        found = _searched(buffers, ahead, room, min(self.effort, 1), self.packer)
        if found is not None:
            return found
        lives = _lives(buffers, last)
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
        self, places: Places, buffers: list[Buffer], room: tuple[Memory, int],
        busy: list[tuple[int, int]], plan: Plan, arch: Arch, ahead: Lives,
    ) -> Places:  # fmt: skip
        """`places` with buffers moved between banks, for fewer cycles in the steady state."""
        memory, size = room
        steady = phases(plan, arch)
        names = {b.name for b in plan.buffers.values() if b.role == buffers[0].role}
        last = len(plan.layers)
        lives = _lives(buffers, last)
        rates = [min(copy_rate(arch, e), arch.dram_bytes_per_cycle) for e in arch.copy_.values()]
        stored = {name for name, _ in plan.stores}

        def loading(buffer: Buffer) -> float:
            return buffer.bytes / max(rates) if buffer.key is not None else 0.0

        def behind(a: Buffer, b: Buffer) -> float:
            """Cycles that the load of the next tile's `a` behind this tile's `b` is late: it begins
            when what `b` holds is used and stored, and should end when `a` is wanted again."""
            if not loading(a):
                return 0.0
            storing = b.bytes / max(rates) if b.name in stored else 0.0
            between = (*steady[b.last + 1 :], *steady[: a.first])
            return max(0.0, storing + loading(a) - sum(phase.period for phase in between))

        def between(a: Buffer, b: Buffer) -> float:
            if _meet(lives[a.name], lives[b.name]):
                return math.inf
            times = steady[a.first].times
            if _meet(ahead[a.name], ahead[b.name]):
                hidden = steady[min(a.first, b.first)].period
                return times * (max(loading(a), loading(b)) + self.banks.again * hidden)
            # In the next tile the earlier one waits until this tile is done with the later one.
            period = min(steady[b.first].period, steady[a.first].period)
            late = max(behind(a, b), behind(b, a), self.banks.again * period)
            return (times - 1) * late

        space = Space(
            size, memory.bank_size,
            lambda b: math.lcm(memory.alignment, _word(memory), size_of(b.dtype)),
        )  # fmt: skip
        waits = Waits(between, busy, lambda b: 0.0 if ahead[b.name][0] else loading(b))
        found = separate(
            {n: p for n, p in places.items() if n in names}, buffers,
            traffic(steady, names, memory, self.banks), space, waits, self.banks,
        )  # fmt: skip
        return {b.name: found[b.name] for b in buffers}


Lives = dict[str, tuple[int, int]]
"""Buffer -> steps in which it is alive; 0 is the end of the group before, layers follow from 1."""


def _word(memory: Memory) -> int:
    return min(memory.bank_width, 64)


def _together(buffers: list[Buffer], last: int) -> Lives:
    """All of them all the time."""
    return {b.name: (0 if b.key is not None and not b.first else 1, last) for b in buffers}


def _lives(buffers: list[Buffer], last: int) -> Lives:
    """Each while layers use it."""
    return {b.name: (1, last) if b.lasting else (b.first + 1, b.last + 1) for b in buffers}


def _ahead(buffers: list[Buffer], last: int, layers: int = 1) -> Lives:
    """The same, with what is loaded some layers longer."""
    lives = _lives(buffers, last)
    return {
        name: (max(0, first - layers) if loaded else first, end)
        for name, (first, end), loaded in (
            (b.name, lives[b.name], b.key is not None) for b in buffers
        )
    }


def _depths(last: int) -> Iterator[int]:
    """How many layers ahead loads may find room: all, half of them, and so on, down to two."""
    layers = last
    while layers > 1:
        yield layers
        layers //= 2


def _tail(before: tuple[Plan, Places], role: str) -> list[tuple[int, int]]:
    """Bytes that a group works on to its end: those of its last layer, or, in loops, of all."""
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
    buffers: list[Buffer], lives: Lives, grain: int, size: int, busy: Sequence[tuple[int, int]]
) -> Places | None:
    """The lowest addresses that are free, large buffers first, at multiples of `grain`."""
    placed = [(low, high, 0, 0) for low, high in busy]
    places: Places = {}
    for buffer in sorted(buffers, key=lambda b: -b.bytes * b.slots):
        pitch = -(-buffer.bytes // grain) * grain
        extent = pitch * (buffer.slots - 1) + buffer.bytes
        first, last = lives[buffer.name]
        address = 0
        for low, high, born, dies in sorted(placed):
            if born > last or first > dies:
                continue
            if address + extent <= low:
                break
            address = max(address, -(-high // grain) * grain)
        if address + extent > size:
            return None
        placed.append((address, address + extent, first, last))
        places[buffer.name] = (address, pitch)
    return places


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _packed(buffers: list[Buffer]) -> Places:
    """One after another without gaps: their sizes are multiples of what their elements need."""
    places: Places = {}
    address = 0
    for buffer in sorted(buffers, key=lambda b: (-size_of(b.dtype), -b.bytes * b.slots)):
        places[buffer.name] = (address, buffer.bytes)
        address += buffer.bytes * buffer.slots
    return places


def _searched(
    buffers: list[Buffer], lives: Lives, room: tuple[Memory, int], effort: int, how: Packer
) -> Places | None:
    """A packing found by search."""
    memory, size = room
    items = [
        Item(
            b.name,
            b.bytes * b.slots,
            *lives[b.name],
            math.lcm(memory.alignment, size_of(b.dtype)),
        )
        for b in buffers
    ]
    found = pack(items, size, effort, how=how)
    if found is None:
        return None
    return {b.name: (found.addresses[b.name], b.bytes) for b in buffers}


def _end(places: Places, buffers: list[Buffer]) -> int:
    return max(places[b.name][0] + places[b.name][1] * (b.slots - 1) + b.bytes for b in buffers)
