"""A buffer on chip: tiles of a tensor in one memory, and the layers between which it is in use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from compiler.errors import DoesNotFit
from compiler.geometry.boxes import Key
from simmodel.arch.dtype import size_of
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class TileBuffer:
    """Space on chip for tiles of one tensor."""

    name: str
    role: str
    """Memory role."""
    dtype: str
    shape: tuple[int, ...]
    """Largest tile with border, in the tensor's dimensions."""
    strides: tuple[int, ...]
    """Bytes, within a slot."""
    bytes: int
    """Of one slot."""
    slots: int
    level: int
    key: Key | None = None
    """What it holds, where that comes from memory."""
    layer: int | None = None
    """Position of the layer that it belongs to; None: of the group."""
    first: int = 0
    """Layers between which it is in use, both included."""
    last: int = 0
    lasting: bool = False
    """Its bytes must survive from one tile of the group to the next."""
    address: int | None = None
    """Where it lies, if that is not for the group to decide."""
    offset: int = 0
    """Byte of a slot at which the first element lies: others share the slot."""

    def span(self, place: tuple[int, int]) -> tuple[int, int]:
        """First byte and end of all slots at an address, so many bytes from slot to slot."""
        address, pitch = place
        return address, address + pitch * (self.slots - 1) + self.bytes


def engine_between(source: str, target: str, arch: Arch, where: str) -> str:
    """The copy engine from one memory role to another; DoesNotFit where there is none."""
    engine = arch.copy_engine(source, target)
    if engine is None:
        raise DoesNotFit(
            demand=1, bound=0, unit="path", terms=((f"{source} -> {target}", 1),),
            levers=(f"a copy engine from {source} to {target}",), where=where,
        )  # fmt: skip
    return engine


class BufferList:
    """Buffers of a group, as they are made."""

    def __init__(self, arch: Arch, buffers: dict[str, TileBuffer] | None = None) -> None:
        self.arch = arch
        self.buffers = {} if buffers is None else buffers

    def add(
        self, name: str, role: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...],
        room: int | None = None, **fields: int | bool | Key | None,
    ) -> TileBuffer:  # fmt: skip
        """A buffer whose slots are multiples of what its memory and its elements ask for, of `room`
        bytes where more than its elements lies there for a time; it gets a number behind its name
        where that is taken."""
        grain = math.lcm(self.arch.memories.on_chip()[role].alignment, size_of(dtype))
        needed = math.prod(shape) * size_of(dtype) if room is None else room
        names = (f"{name}+{n}" if n else name for n in range(len(self.buffers) + 1))
        own = next(each for each in names if each not in self.buffers)
        made = TileBuffer(own, role, dtype, shape, strides, -(-needed // grain) * grain, **fields)  # type: ignore[arg-type]
        self.buffers[own] = made
        return made


def in_use(
    buffers: Iterable[TileBuffer], layers: int, roles: Iterable[str]
) -> Iterator[dict[str, int]]:
    """For each of some layers, memory role -> bytes of `buffers` that take space meanwhile."""
    steps: list[list[tuple[str, int]]] = [[] for _ in range(layers + 1)]
    for buffer in buffers:
        if buffer.address is not None:
            continue
        first, last = (0, layers - 1) if buffer.lasting else (buffer.first, buffer.last)
        size = buffer.bytes * buffer.slots
        steps[first].append((buffer.role, size))
        steps[last + 1].append((buffer.role, -size))
    there = dict.fromkeys(roles, 0)
    for changes in steps[:layers]:
        for role, size in changes:
            there[role] += size
        yield dict(there)


def alive(buffer: TileBuffer, position: int, last: int) -> bool:
    """Whether `buffer` takes space of its own while layer `position` of 0 .. `last` runs."""
    if buffer.address is not None:
        return False
    return buffer.lasting or buffer.first <= position <= buffer.last


# Where tensors lie between groups, in DRAM or in shared memory.

GRAIN = 64
"""Every buffer starts at a multiple of this many bytes."""


@dataclass(frozen=True)
class LiveRange:
    """`size` bytes that are needed from step `first` to step `last`, both included."""

    name: str
    size: int
    first: int
    last: int
    align: int = 1
    """The address is a multiple of this many bytes."""

    def __post_init__(self) -> None:
        if self.size < 0 or self.last < self.first or self.align < 1:
            raise ValueError(f"{self} has a negative size, an empty life or no alignment")


def place(spans: Sequence[LiveRange], start: int = 0) -> tuple[dict[str, int], int]:
    """First-fit addresses from `start` on, largest first, for spans that overlap in time; and the
    end of all."""
    placed: list[tuple[int, LiveRange]] = []
    for span in sorted(spans, key=lambda s: (-s.size, s.first, s.name)):
        placed.append((lowest(span, placed, start), span))
    end = max((address + span.size for address, span in placed), default=start)
    return {span.name: address for address, span in placed}, end


def lowest(span: LiveRange, placed: Iterable[tuple[int, LiveRange]], start: int = 0) -> int:
    """The lowest address from `start` on that all leave free that is `placed` meanwhile."""
    together = (
        (address, address + other.size)
        for address, other in placed
        if other.first <= span.last and span.first <= other.last
    )
    return lowest_gap(span.size, together, span.align, start)


def lowest_gap(size: int, busy: Iterable[tuple[int, int]], align: int = 1, start: int = 0) -> int:
    """The lowest address from `start`, a multiple of `align`, on at which `size` bytes are free of
    all first bytes and ends that are `busy`."""
    address = start
    for low, high in sorted(busy):
        if address + size <= low:
            break
        address = max(address, -(-high // align) * align)
    return address


# How early what is loaded for each layer finds room, if only sums of bytes counted.


def earliest(
    layers: Sequence[int],
    sizes: Sequence[float],
    free: Sequence[float],
    wishes: Sequence[int] | None = None,
) -> list[int]:
    """For each load, the first layer from which on it can be there.

    Args:
        layers: that use what is loaded, ascending.
        sizes: bytes of each load.
        free: bytes that each layer leaves.
        wishes: no load is there before this layer; None: any may be the first.
    """
    left = list(free)
    found: list[int] = []
    floor = 0
    for number, (layer, size) in enumerate(zip(layers, sizes, strict=True)):
        first = layer
        left[layer] -= size
        least = floor if wishes is None else max(floor, wishes[number])
        while first > least and left[first - 1] >= size:
            first -= 1
            left[first] -= size
        floor = max(floor, first)
        found.append(first)
    return found
