"""Where a group's buffers lie on chip.

Neighbouring groups start from opposite ends of a memory, what is loaded ahead outermost: so the
next group's constants arrive while this one still computes. In a memory whose banks are contiguous
ranges, slots that different engines touch at the same time go to different banks while there is
room. Buffers of a long group share space where they are never in use together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.alloc.pack import Item, pack
from compiler.plan.ir import Buffer, Plan
from compiler.plan.make_plan import alive, too_large
from simmodel.arch import Arch, Memory
from simmodel.dtype import size_of

Place = tuple[int, int]
"""Address, and bytes from slot to slot."""


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
    alternate: bool = True
    """Start from the other end of each memory than the group before."""

    def apply(self, plan: Plan, arch: Arch, *, flipped: bool = False) -> dict[str, Place]:
        """Address and pitch of every buffer of a plan; `flipped`: from the memories' ends.

        Raises DoesNotFit where no placement was found.
        """
        places: dict[str, Place] = {}
        for role, memory in arch.memories.on_chip().items():
            buffers = [b for b in plan.buffers.values() if b.role == role]
            if not buffers:
                continue
            found = self._place(buffers, memory, plan)
            turned = _flipped(found, buffers, memory) if flipped and self.alternate else None
            places.update(turned or found)
        return places

    def _place(self, buffers: list[Buffer], memory: Memory, plan: Plan) -> dict[str, Place]:
        grain = math.lcm(memory.alignment, _word(memory), *(size_of(b.dtype) for b in buffers))
        if self.apart and memory.mapping == "blocked" and memory.banks > 1:
            spread = _stacked(buffers, math.lcm(memory.bank_size, grain))
            if _end(spread, buffers) <= memory.size:
                return spread
        tight = _stacked(buffers, grain)
        if _end(tight, buffers) <= memory.size:
            return tight
        dense = _packed(buffers)
        if _end(dense, buffers) <= memory.size:
            return dense
        return _shared(buffers, memory, plan)


def _word(memory: Memory) -> int:
    return min(memory.bank_width, 64)


def _ahead(buffer: Buffer) -> bool:
    """Whether it is loaded and could be before the group's turn."""
    return buffer.key is not None


def _stacked(buffers: list[Buffer], grain: int) -> dict[str, Place]:
    """One after another, slots and buffers at multiples of `grain`: what is loaded first."""
    places: dict[str, Place] = {}
    address = 0
    for buffer in sorted(buffers, key=lambda b: (not _ahead(b), -b.bytes * b.slots)):
        pitch = -(-buffer.bytes // grain) * grain
        places[buffer.name] = (address, pitch)
        address += pitch * buffer.slots
    return places


def _packed(buffers: list[Buffer]) -> dict[str, Place]:
    """One after another without gaps: their sizes are multiples of what their elements need."""
    places: dict[str, Place] = {}
    address = 0
    for buffer in sorted(buffers, key=lambda b: (-size_of(b.dtype), -b.bytes * b.slots)):
        places[buffer.name] = (address, buffer.bytes)
        address += buffer.bytes * buffer.slots
    return places


def _shared(buffers: list[Buffer], memory: Memory, plan: Plan) -> dict[str, Place]:
    """Space used in turns by buffers that are never in use together."""
    last = len(plan.layers) - 1
    items = [
        Item(
            b.name, b.bytes * b.slots,
            0 if b.lasting else b.first, last if b.lasting else b.last,
            math.lcm(memory.alignment, size_of(b.dtype)),
        )
        for b in buffers
    ]  # fmt: skip
    found = pack(items, memory.size)
    role = buffers[0].role
    if found is None:
        demand = max(
            sum(b.bytes * b.slots for b in buffers if alive(b, position, last))
            for position in range(last + 1)
        )
        raise too_large(plan, role, max(demand, memory.size + 1), memory.size)
    return {b.name: (found.addresses[b.name], b.bytes) for b in buffers}


def _flipped(
    places: dict[str, Place], buffers: Sequence[Buffer], memory: Memory
) -> dict[str, Place] | None:
    """The same placement seen from the memory's end, where alignment allows that."""
    turned = {}
    for buffer in buffers:
        address, pitch = places[buffer.name]
        base = memory.size - (address + pitch * buffer.slots)
        if base < 0 or base % math.lcm(memory.alignment, size_of(buffer.dtype)):
            return None
        turned[buffer.name] = (base, pitch)
    return turned


def _end(places: dict[str, Place], buffers: list[Buffer]) -> int:
    return max(places[b.name][0] + places[b.name][1] * (b.slots - 1) + b.bytes for b in buffers)
