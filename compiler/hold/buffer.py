"""A buffer on chip: tiles of a tensor in one memory, and the layers between which it is in use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from compiler.errors import DoesNotFit
from compiler.geometry.ranges import Key
from simmodel.arch import Arch
from simmodel.dtype import size_of


@dataclass(frozen=True)
class Buffer:
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


def engine_between(source: str, target: str, arch: Arch, where: str) -> str:
    """The copy engine from one memory role to another; DoesNotFit where there is none."""
    engine = arch.copy_engine(source, target)
    if engine is None:
        raise DoesNotFit(
            demand=1, bound=0, unit="path", terms=((f"{source} -> {target}", 1),),
            levers=(f"a copy engine from {source} to {target}",), where=where,
        )  # fmt: skip
    return engine


def make_buffer(
    arch: Arch, name: str, role: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...],
    room: int | None = None, **fields: int | bool | Key | None,
) -> Buffer:  # fmt: skip
    """A buffer whose slots are multiples of what its memory and its elements ask for, of `room`
    bytes where more than its elements lies there for a time."""
    memory = arch.memories.on_chip()[role]
    grain = math.lcm(memory.alignment, size_of(dtype))
    needed = math.prod(shape) * size_of(dtype) if room is None else room
    size = -(-needed // grain) * grain
    return Buffer(name, role, dtype, shape, strides, size, **fields)  # type: ignore[arg-type]


def unused(name: str, names: Mapping[str, Buffer]) -> str:
    """`name`, with a number behind it where it is taken."""
    if name not in names:
        return name
    return next(f"{name}+{n}" for n in range(1, len(names) + 2) if f"{name}+{n}" not in names)


def in_use(
    buffers: Iterable[Buffer], layers: int, roles: Iterable[str]
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


def alive(buffer: Buffer, position: int, last: int) -> bool:
    """Whether `buffer` takes space of its own while layer `position` of 0 .. `last` runs."""
    if buffer.address is not None:
        return False
    return buffer.lasting or buffer.first <= position <= buffer.last
