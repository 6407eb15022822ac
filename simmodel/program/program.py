"""The program: what the compiler makes and the machine runs.

    program  = per core one stream, tokens with their initial counts, barriers with their arrivals,
               constants and buffers at their addresses, inputs and outputs, provenance
    stream   = item*                     in program order, as the front end sees it
    item     = instruction | loop
    loop     = variable count item*

Streams keep their loops; `simmodel.program.expand` lists what they stand for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from simmodel.arch.base import OFF_CHIP
from simmodel.arch.lazy_array import AnyArray
from simmodel.arch.record import Arch
from simmodel.errors import MACHINE, PROGRAM, expect
from simmodel.isa import Item
from simmodel.isa.region import Operand, Register, cached_property
from simmodel.program.expand import Expansion, expand


@dataclass(frozen=True)
class Buffer:
    """A named range of bytes, for reports, the verifier's messages and memory peaks."""

    name: str
    memory: str
    address: int
    size: int
    core: int | None = None
    """None for DRAM and chip-level memory."""
    first: int = 0
    """First step (group) in which it is alive."""
    last: int = 0


@dataclass(frozen=True)
class Constant:
    """Bytes that are in DRAM, or in flash, before the program starts."""

    name: str
    address: int
    data: AnyArray
    used: int = 0
    """Bytes that the model needs (without packing)."""
    memory: str = "dram"
    """Role of the memory that holds them."""


def digest(data: AnyArray) -> str:
    """Hash of an array's bytes, short enough to read."""
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return hashlib.sha256(raw.data).hexdigest()[:16]


@dataclass(frozen=True)
class Port:
    """An input or output of the model, and where it lies in DRAM."""

    name: str
    operand: Operand
    """In the port's logical shape, with the strides of its storage."""
    shape: tuple[int, ...]
    dtype: str
    """Element type as the model's user sees it."""
    extents: str = ""
    """Output with this one's actual extents, if they depend on data: the port is then a row with
    room for the maximum number of elements. Empty: always `shape`."""
    batch: int | None = None
    """Of an input the axis of the samples in one run; None: none, or unknown."""


@dataclass(frozen=True)
class TensorSlice:
    """A part of a tensor, where it lies in one memory."""

    operand: Operand
    core: int = 0
    """Whose memory it is."""
    box: tuple[tuple[int, int], ...] = ()
    """First element and size of each dimension; none: all of the tensor."""


@dataclass(frozen=True)
class Probe:
    """A tensor that is observable while the program runs: each slice of it as it lies when the
    group that makes it has written there for the last time."""

    name: str
    group: int
    """As in `Origin`."""
    shape: tuple[int, ...]
    dtype: str
    slices: tuple[TensorSlice, ...]


@dataclass(frozen=True)
class Origin:
    """Source of instructions."""

    node: str
    """Name of the ONNX node or nodes."""
    group: int
    """Index of the group of layers that share a tile loop."""
    kind: str
    """Operator type."""


TileLoop = tuple[str, int, int, int, str]
"""One loop over tiles: its name, the number of the first of those meant, how many they are, how
many it has in all, and their kind in it."""


@dataclass(frozen=True)
class TileKind:
    """Equal tiles of one layer, which differ only in their position.

    The kind in a loop is `only` if it has one tile, `first` and `last` for those that equal no
    other, and `steady` for those between, or for a run of equal tiles.
    """

    layer: int
    """Its layer: index of the layer's first node among the program's origins."""
    loops: tuple[TileLoop, ...]
    """The loops over tiles around them, the outermost first; empty: the layer as a whole."""
    sizes: tuple[int, ...]
    """Extents of the part of the layer's result that each tile computes."""

    @property
    def phase(self) -> str:
        """In all loops together: first, last or only if it is that in each loop that cuts."""
        kinds = {kind for _, _, _, total, kind in self.loops if total > 1} or {"only"}
        return kinds.pop() if len(kinds) == 1 else "steady"


@dataclass(frozen=True)
class Demand:
    """Lower bound of the work of any program with the same outputs."""

    products: tuple[tuple[str, int], ...]
    """Element type -> multiply-accumulates of tiled sums of products on `Arch.multiplier`."""
    macs: int
    """Multiply-accumulates of tiled sums of products on any engine."""
    read: int
    """Bytes of constants and inputs that come from off chip, each once, without packing."""
    written: int
    """Bytes of outputs that go to DRAM, each once."""
    constants: int = 0
    """Of `read`, bytes of constants that come from flash."""


@dataclass(frozen=True)
class Program:
    """Instruction streams and everything they refer to."""

    name: str
    arch: str
    cores: tuple[tuple[Item, ...], ...]
    tokens: tuple[dict[str, int], ...]
    """Per core: token name -> initial count."""
    barriers: dict[str, int]
    """Barrier name -> arrivals that complete it."""
    constants: tuple[Constant, ...]
    buffers: tuple[Buffer, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    origins: tuple[Origin, ...]
    payloads: tuple[bytes, ...] = ()
    """Serialized models that host calls run."""
    macs: int = 0
    """Multiply-accumulates that the model's outputs need, padding excluded."""
    demand: Demand | None = None
    """None: unknown, as in programs written by hand."""
    tiles: tuple[TileKind, ...] = ()
    """Tiles of the instructions, by their `tile`."""
    registers: tuple[Register, ...] = ()
    """Lengths known only at run time: the program is for the maximum of each, and
    `simmodel.program.sizes.specialize` makes it for others."""

    @property
    def batch(self) -> int:
        """Samples in one run, by the batch axes of its inputs; 1 where they have none or differ."""
        sizes = {port.shape[port.batch] for port in self.inputs if port.batch is not None}
        return sizes.pop() if len(sizes) == 1 else 1

    @property
    def port_bytes(self) -> int:
        """Bytes of inputs and outputs."""
        return sum(port.operand.bytes for port in (*self.inputs, *self.outputs))

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """Hashes of its constants."""
        return tuple(digest(constant.data) for constant in self.constants)

    @cached_property
    def expanded(self) -> tuple[Expansion, ...]:
        """Per core, its expanded stream, for verifier, executor and simulator.

        Raises:
            NotRunnable, TooLong: as `expand`.
        """
        return tuple(map(expand, self.cores))

    def __getstate__(self) -> dict[str, Any]:
        """Without values that are faster to compute again than to read."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


# Which memory instance an operand lies in: a role and the number of the instance on the chip.

Place = tuple[str, int]
"""Role of the memory and number of the instance."""


def place(arch: Arch, role: str, core: int) -> Place:
    """The instance of the memory in `role` that belongs to `core`."""
    if role in OFF_CHIP:
        return role, 0
    if role == "shared":
        shared = arch.memories.shared
        clustered = shared is not None and shared.level == "cluster"
        return role, core // arch.cores if clustered else 0
    return role, core


def places(arch: Arch, operand: Operand, core: int) -> tuple[Place, ...]:
    """Every instance that `operand` of an instruction of `core` lies in; several: broadcast."""
    owners = operand.cores or (core,)
    return tuple(dict.fromkeys(place(arch, operand.memory, owner) for owner in owners))


def expect_run(program: object, arch: object) -> None:
    """Raise WrongArgument where these are not a program and a machine."""
    expect("program", program, Program, PROGRAM)
    expect("arch", arch, Arch, MACHINE)
