"""A tree: the schedule of a network by names alone, before it is bound to layers and machine.

    homes    tensors that lie on chip between steps
    steps    in the order in which they run: groups of layers that share loops, or calls of the host

What a tree leaves out is the compiler's to decide: the tiles of a step without cores, the addresses
of a step without buffers. A tree is plain data, equal to another one where it says the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Memory = Literal["local", "shared", "weights", "accumulators"]


@dataclass(frozen=True)
class Span:
    """A core's part of a step's result, or of what stays on chip, along one dimension."""

    dim: str
    start: int
    stop: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Home:
    """A tensor that does not go through DRAM between the steps that make and read it; a constant
    that comes from there once for all steps that read it."""

    tensor: str
    memory: Memory
    address: int | None = None
    """Of its first byte, border included; None: the lowest that is free."""
    cores: tuple[tuple[Span, ...], ...] = ()
    """By core, the slice that it keeps in its local memory; none: all of it on the one core, or cut
    as the compiler chooses."""
    passed: bool = False
    """Whether cores pass each other what they keep beside what they make."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class For:
    """A loop over tiles along a dimension; the last tile may have fewer positions."""

    dim: str
    size: int
    rolling: bool = False
    """Of a step: keep what neighbouring tiles share instead of computing it again."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Work:
    """One layer of a step: its operators by the tensors that they make, the last one its result."""

    nests: tuple[str, ...]
    loops: tuple[For, ...] = ()
    """Outermost first."""
    resident: bool = False
    """Its constants are loaded once, before the loops of the step."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Address:
    """Where a buffer of a step lies in its memory."""

    buffer: str
    start: int
    """Byte."""
    pitch: int
    """Bytes from slot to slot."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Step:
    """Layers that share loops over tiles of their last result."""

    layers: tuple[Work, ...]
    cores: tuple[tuple[Span, ...], ...] = ()
    """For each core that takes part, in order: its part of the last layer's result; dimensions that
    are left out are whole. Without cores, the compiler chooses tiles and cores."""
    loops: tuple[For, ...] = ()
    """Outermost first."""
    slots: int | None = None
    """Tiles of a streamed buffer that are there at once; None: as many as the compiler takes."""
    buffers: tuple[Address, ...] = ()
    """All buffers of the step, or none: then the compiler places them."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Call:
    """A call of the host, by the tensors that it makes."""

    outputs: tuple[str, ...]
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Tree:
    """The schedule of a network."""

    network: str
    steps: tuple[Step | Call, ...]
    homes: tuple[Home, ...] = ()
