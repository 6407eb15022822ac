"""The plan of a group: buffers on chip, and the steps that fill, use and empty them.

    load     a region of a tensor from memory into a buffer, before the loops that do not move it
    compute  one nest of a layer on its engine
    store    a tile from its buffer to memory

A buffer has `slots` tiles in turn, so the step that fills the next one need not wait for the steps
that still use this one. Buffers of a layer turn in the layer's loops and carry its position; those
of the group (what passes between layers, constants that stay) turn in the outer loops. `level` is
the number of these loops around a buffer's turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.geometry.tile_trace import TileTrace
from compiler.schedule.residency.buffer import TileBuffer
from compiler.schedule_ir.layer import Binding
from compiler.schedule_ir.schedule import Schedule, Tiled
from compiler.tensor_ir.nest import Nest


@dataclass(frozen=True)
class Compute:
    """One nest on its engine; buffers by name."""

    nest: Nest
    position: int
    """Position of the nest in the layer."""
    binding: Binding
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
class LayerPlan:
    """Steps of one layer, within the outer loops."""

    tiled: Tiled
    position: int
    buffers: dict[str, TileBuffer]
    """All buffers of the group."""
    loads: tuple[tuple[str, str], ...]
    """(buffer, copy engine) of the layer's own buffers, in the order in which they are issued."""
    computes: tuple[Compute, ...]
    result: str
    """Buffer that gets the layer's result."""
    store: str | None
    """Copy engine that stores it piece by piece; None where it stays, or the group stores it."""
    out_level: int
    """Loops of the layer around one piece of the result."""


@dataclass(frozen=True)
class Plan:
    """Buffers and steps of a group."""

    schedule: Schedule
    buffers: dict[str, TileBuffer]
    layers: tuple[LayerPlan, ...]
    loads: tuple[tuple[str, str], ...] = ()
    """(buffer, copy engine) of the group's own buffers that come from memory."""
    stores: tuple[tuple[str, str], ...] = ()
    """(result held on chip, copy engine)."""
    walked: tuple[TileTrace, ...] = ()
    """For every core that takes part, what each tile needs; empty for a layer alone."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Tensor -> buffer of the group that holds it."""
    slots: int = 1
    """Of streamed buffers."""
