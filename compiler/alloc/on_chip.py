"""Where a group's buffers lie on chip: first fit, with engines kept apart in blocked banks.

In a memory whose banks are contiguous ranges, the slots that different engines touch at the same
time go to different banks while there is room; where there is not, buffers are packed tightly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.plan.ir import Buffer, Plan
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

    def apply(self, plan: Plan, arch: Arch) -> dict[str, Place]:
        """Address and pitch of every buffer of a plan that is no larger than its memories."""
        places: dict[str, Place] = {}
        for role, memory in arch.memories.on_chip().items():
            buffers = [b for b in plan.buffers.values() if b.role == role]
            if not buffers:
                continue
            places.update(self._place(buffers, memory))
        return places

    def _place(self, buffers: list[Buffer], memory: Memory) -> dict[str, Place]:
        grain = math.lcm(memory.alignment, _word(memory), *(size_of(b.dtype) for b in buffers))
        if self.apart and memory.mapping == "blocked" and memory.banks > 1:
            spread = _stacked(buffers, math.lcm(memory.bank_size, grain))
            if _end(spread, buffers) <= memory.size:
                return spread
        tight = _stacked(buffers, grain)
        return tight if _end(tight, buffers) <= memory.size else _packed(buffers)


def _word(memory: Memory) -> int:
    return min(memory.bank_width, 64)


def _stacked(buffers: list[Buffer], grain: int) -> dict[str, Place]:
    """One after another, slots and buffers at multiples of `grain`; the largest first."""
    places: dict[str, Place] = {}
    address = 0
    for buffer in sorted(buffers, key=lambda b: -b.bytes * b.slots):
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


def _end(places: dict[str, Place], buffers: list[Buffer]) -> int:
    return max(places[b.name][0] + places[b.name][1] * (b.slots - 1) + b.bytes for b in buffers)
