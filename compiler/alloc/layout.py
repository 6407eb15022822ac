"""Whether buffers can lie where they are said to: a check that knows nothing of who placed them.

A buffer takes `slots` tiles from its address on, one every `pitch` bytes. Two buffers of one memory
may share bytes only where no layer of the group needs both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from compiler.hold.buffer import Buffer
from compiler.plan.ir import Plan
from simmodel.arch import Arch
from simmodel.dtype import size_of


def check_layout(
    plan: Plan, places: Mapping[str, tuple[int, int]], arch: Arch
) -> Iterator[tuple[str, str]]:
    """What is wrong with the places of a plan's buffers: the buffer, and a sentence.

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
            if address < 0 or _end(buffer, places) > size:
                yield (
                    buffer.name,
                    f"{buffer.name} ends at {_end(buffer, places)}, {role} memory at {size}",
                )
        for a, b in _clashes(own, places, len(plan.layers) - 1):
            yield (
                b.name,
                f"{a.name} and {b.name} share bytes of {role} memory while both are needed",
            )


def _end(buffer: Buffer, places: Mapping[str, tuple[int, int]]) -> int:
    address, pitch = places[buffer.name]
    return address + pitch * (buffer.slots - 1) + buffer.bytes


def _clashes(
    buffers: list[Buffer], places: Mapping[str, tuple[int, int]], last: int
) -> Iterator[tuple[Buffer, Buffer]]:
    """Pairs that overlap in bytes and in layers, found in the order of their addresses."""
    ordered = sorted(buffers, key=lambda b: places[b.name])
    open_: list[Buffer] = []
    for buffer in ordered:
        start = places[buffer.name][0]
        open_ = [other for other in open_ if _end(other, places) > start]
        yield from ((other, buffer) for other in open_ if _together(other, buffer, last))
        open_.append(buffer)


def _together(a: Buffer, b: Buffer, last: int) -> bool:
    first, second = ((0, last) if x.lasting else (x.first, x.last) for x in (a, b))
    return first[0] <= second[1] and second[0] <= first[1]
