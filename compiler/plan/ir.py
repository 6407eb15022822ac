"""The plan of a tiled group: buffers on chip, and the steps that fill, use and empty them.

    load     a region of a tensor from DRAM into a buffer, before the loops that do not move it
    compute  one nest of the group on its engine
    store    the result's tile from its buffer to DRAM

A buffer has `slots` tiles in turn, so the step that fills the next one need not wait for the steps
that still use this one. `level` is the number of tile loops around a step or a buffer's turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.nest.ir import Nest
from compiler.plan.ranges import Key
from compiler.tile.ir import Tiled
from compiler.tile.machine import Route


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
    writer: str
    """Engine that fills it."""
    readers: tuple[str, ...]
    """Engines that use it."""
    key: Key | None = None
    """What it holds, where that comes from memory."""


@dataclass(frozen=True)
class Compute:
    """One nest on its engine; buffers by name."""

    nest: Nest
    position: int
    """Position of the nest in the group."""
    route: Route
    level: int
    reads: tuple[str, ...]
    """Buffer of every access, in the order of `nest.reads`."""
    steps: tuple[tuple[int, ...], ...]
    """For every access, bytes by which each loop of the nest moves it within its buffer."""
    writes: str
    sums: str | None = None
    """Buffer of partial sums (matrix engine) or of intermediate values (vector engine)."""
    scratch: tuple[str, ...] = ()
    """Buffers for intermediate values between the vector instructions of this nest."""


@dataclass(frozen=True)
class Plan:
    """Buffers and steps of a group."""

    tiled: Tiled
    buffers: dict[str, Buffer]
    loads: tuple[tuple[str, str], ...]
    """(buffer, copy engine) in the order in which they are issued."""
    computes: tuple[Compute, ...]
    store: tuple[str, str]
    """(buffer, copy engine)."""
    out_level: int
    """Tile loops around one tile of the result."""
    slots: int
    """Slots of streamed buffers; all others have one."""

    def bytes_in(self, role: str) -> int:
        """Bytes of all buffers in one memory."""
        sizes = (b.bytes * b.slots for b in self.buffers.values() if b.role == role)
        return sum(sizes)
