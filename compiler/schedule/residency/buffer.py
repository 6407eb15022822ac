"""Buffers on chip: tiles of a tensor in one memory, and the layers between which they are in use;
live ranges, and the lowest bytes that these leave free; what a group holds for its layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compiler.errors import DoesNotFit
from compiler.geometry.boxes import Key
from compiler.geometry.cuts import channels_of
from compiler.geometry.tile_trace import TileTrace, largest
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Schedule
from compiler.target.group_facts import Facts, Unholdable
from compiler.tensor_ir.nest import dense
from simmodel.arch.element_types import grain_of, size_of
from simmodel.arch.record import Arch

Place = tuple[int, int]
"""Address of a buffer, and bytes from slot to slot."""
Places = dict[str, Place]


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

    def span(self, place: Place) -> tuple[int, int]:
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
        grain = math.lcm(self.arch.memories.on_chip()[role].alignment, grain_of(dtype))
        needed = math.prod(shape) * size_of(dtype) if room is None else room
        own, number = name, 0
        while own in self.buffers:
            own, number = f"{name}+{number + 1}", number + 1
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


def place(
    spans: Sequence[LiveRange], start: int = 0,
    key: Callable[[LiveRange], Any] = lambda s: (-s.size, s.first, s.name),
) -> tuple[dict[str, int], int]:  # fmt: skip
    """First-fit addresses from `start` on, in the order of `key`, for spans that overlap in time;
    and the end of all."""
    placed: list[tuple[int, LiveRange]] = []
    for span in sorted(spans, key=key):
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
    layers: Sequence[int], sizes: Sequence[float], free: Sequence[float],
    wishes: Sequence[int] | None = None,
) -> list[int]:  # fmt: skip
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


# What a group holds on chip: tensors that pass between its layers, with the borders that their
# readers expect and as many slots as their engines need, and constants that stay.


def loads_own_channels(schedule: Schedule) -> bool:
    """Whether constants that stay belong to layers, each core with those of its own channels, and
    not to the group: cores split channels, and no tile needs others."""
    return not schedule.loops and channels_of(schedule.group, schedule.parts) is not None


@dataclass(frozen=True)
class GroupBuffers:
    """What the group keeps on chip for its layers."""

    tensors: Mapping[str, str]
    """Tensor -> buffer of the group."""
    constants: Mapping[tuple[int, Key], str]
    """Constants of a layer that stay -> buffer of the group."""


class GroupBufferMaker(BufferList):
    """Makes the buffers of what a group holds."""

    def __init__(self, schedule: Schedule, slots: int, facts: Facts) -> None:
        super().__init__(facts.arch)
        self.schedule, self.slots, self.facts = schedule, slots, facts
        self.group: Group = schedule.group
        self.loads: list[tuple[str, str]] = []
        """(buffer, copy engine) of what comes from memory."""

    def make_buffers(self, walked: tuple[TileTrace, ...]) -> GroupBuffers:
        """Tensors, then constants that stay."""
        return GroupBuffers(self.tensors(walked), self._constants(walked))

    def tensors(self, walked: tuple[TileTrace, ...]) -> dict[str, str]:
        """Buffers for the tensors that the walk holds."""
        names = dict.fromkeys(name for w in walked for name in w.holds)
        again = any(w.count * w.repeats > 1 for w in walked)
        found: dict[str, str] = {}
        for name in names:
            place = None if again else self._overwritten(name, walked, found)
            found[name] = place or self._tensor_buffer(name, walked, again).name
        return found

    def _overwritten(
        self, name: str, walked: tuple[TileTrace, ...], found: Mapping[str, str]
    ) -> str | None:
        """The buffer of a tensor that nobody reads any more, if `name` may be made in its place and
        lies there alike."""
        before, facts = self.group.overwritten.get(name), self.facts
        if before is None or before not in found or {name, before} & self.group.residents.keys():
            return None
        both = name, before
        orders = {facts.passing(self.group, each).order for each in both}
        windows = ({own.windows if own else () for own in map(w.holds.get, both)} for w in walked)
        if len(orders) > 1 or any(len(own) > 1 for own in windows):
            return None
        buffer = self.buffers[found[before]]
        self.buffers[buffer.name] = replace(buffer, last=self._last_use(name))
        return buffer.name

    def _last_use(self, name: str) -> int:
        """The last layer that a tensor must be there for."""
        if name in self.group.results:
            return len(self.group.layers) - 1
        return max(p for p, layer in enumerate(self.group.layers) if name in layer.inputs)

    def _resident_buffer(self, name: str) -> TileBuffer:
        """The place of a tensor that is on chip before or after the group."""
        kept = self.group.residents[name]
        dtype = self.group.tensors[name].dtype
        item = size_of(dtype)
        buffer = self.add(
            name, "local", dtype, kept.room, (), slots=1, level=len(self.schedule.loops),
            last=len(self.group.layers) - 1, address=kept.address, offset=item * kept.offset,
        )  # fmt: skip
        strides = tuple(item * s for s in kept.strides)
        self.buffers[buffer.name] = replace(buffer, shape=kept.padded, strides=strides)
        return self.buffers[buffer.name]

    def _tensor_buffer(self, name: str, walked: tuple[TileTrace, ...], again: bool) -> TileBuffer:
        """Space for one tensor, which tiles ask for `again` or once."""
        if name in self.group.residents:
            if name in self.group.producer_positions and self._ahead(name)[1]:
                raise Unholdable(f"{name} has one place for all tiles: none is made ahead")
            return self._resident_buffer(name)
        tensor = self.group.tensors[name]
        passing = self.facts.passing(self.group, name)
        held = [w.holds[name] for w in walked if name in w.holds]
        shape = largest(held, len(tensor.shape))
        strides = tuple(size_of(tensor.dtype) * s for s in dense(shape, passing.order))
        made = self.group.producer_positions.get(name)
        # Its buffer keeps its place in the tensor over several tiles.
        stays = any(len(own.boxes) > 1 and len(own.origins) == 1 for own in held)
        rolled = any(name in w.rolled for w in walked)
        early, apart = self._ahead(name)
        if rolled:
            self.facts.movable(tensor)
        crossing = made is None or len(passing.engines) > 1
        single = not apart and (rolled or stays or not again or not crossing)
        key = (name, passing.border, False) if made is None else None
        bordered = made is not None and any(own.bordered for own in held)
        buffer = self.add(
            name, "local", tensor.dtype, shape, strides,
            slots=1 if single else max(self.slots, 1 + apart), level=len(self.schedule.loops),
            key=key, first=0 if made is None else made, last=self._last_use(name),
            lasting=early > 0 or (again and (rolled or stays or bordered)),
        )  # fmt: skip
        if apart and (stays or not again):
            raise Unholdable(f"{name} has one place for all tiles: none is made ahead")
        if made is None:
            self._load(buffer, self.group.home(name, self.arch), self.group.name)
        return buffer

    def _ahead(self, name: str) -> tuple[int, int]:
        """Tiles by which the first layer that uses a tensor is ahead of the last layer of all, and
        of the last that uses it."""
        if not (self.schedule.loops and self.schedule.loops[-1].ahead):
            return 0, 0
        layers = enumerate(self.group.layers)
        users = [p for p, layer in layers if name in (layer.result.name, *layer.inputs)]
        early = self.schedule.ahead(min(users))
        return early, early - self.schedule.ahead(max(users))

    def _load(self, buffer: TileBuffer, source: str, where: str) -> None:
        self.loads.append((buffer.name, engine_between(source, buffer.role, self.arch, where)))

    def _constants(self, walked: tuple[TileTrace, ...]) -> dict[tuple[int, Key], str]:
        """Constants that stay for several groups, in one buffer for all layers that read them; then
        those that stay for the group, with one load for all of its tiles."""
        found: dict[tuple[int, Key], str] = {}
        for pinned in (True, False) if self.group.pinned else (False,):
            made: dict[Key, TileBuffer] = {}
            for position, tiled in enumerate(self.schedule.layers):
                stays = tiled.resident and not loads_own_channels(self.schedule)
                facts = self.facts.layer(tiled.layer)
                own = facts.constants if pinned or stays else ()
                if stays and not pinned and self.schedule.loops:
                    own = facts.constants_of(walked, position)
                for constant in own:
                    home = self.group.pinned.get(constant.key[0])
                    if (home is not None) is not pinned:
                        continue
                    before = made.get(constant.key) if pinned else None
                    buffer = before or self.add(
                        constant.key[0], constant.role, constant.dtype, constant.shape,
                        constant.strides, slots=1, level=0, key=constant.key, first=position,
                        room=constant.bytes, address=None if home is None else home.address,
                        lasting=not pinned and bool(self.schedule.loops),
                    )  # fmt: skip
                    if before is None:
                        self._load(buffer, self.arch.constants, tiled.layer.name)
                    buffer = replace(buffer, last=position)
                    self.buffers[buffer.name] = made[constant.key] = buffer
                    found[position, constant.key] = buffer.name
        return found
