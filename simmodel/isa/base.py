"""Base of all instructions: engine, cycles, traffic, effect; the text form follows from fields.

One frozen dataclass per instruction is its whole definition (law 7). The timing side uses
`startup`, `cycles` and `traffic`; the executor `execute`; the verifier `reads`, `writes` and
`unencodable`; `simmodel.program.assembly` derives the text form from the dataclass fields.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

import numpy as np

from simmodel.arch.base import OFF_CHIP
from simmodel.arch.dtype import NAMES, Array, largest, real_limits
from simmodel.arch.element_types import PACKED, STORED, is_float
from simmodel.arch.memories import FarMemory
from simmodel.arch.record import Arch
from simmodel.isa.operand_rules import Breaches, sound, storable
from simmodel.isa.region import Operand, cached_property, replace

View = Callable[[Operand], Array]
"""Returns the writable strided array of an operand's raw values."""
Sync = tuple[tuple[str, int], ...]
"""Token names and counts."""
Notices = tuple[tuple[str, int, tuple[int, ...]], ...]
"""Token names, counts, and the cores whose tokens these are."""


@dataclass(frozen=True)
class OperandTraffic:
    """What an instruction moves through one memory."""

    operand: Operand
    write: bool
    bytes: int
    runs: int = 1
    """Contiguous ones."""

    def load(self, arch: Arch) -> float:
        """Bytes that long transfers move in the time which this takes of the memory."""
        if self.operand.memory not in OFF_CHIP:
            return self.bytes
        role = self.operand.memory
        return float(arch.far_load(role, self.bytes, self.runs, write=self.write))


class _InstructionKind(ABCMeta):
    """Classes with abstract methods, of which only subclasses are kinds: `isinstance` is asked for
    every instruction of a program many times, and an `ABC` takes several times as long."""

    __instancecheck__ = type.__instancecheck__


@dataclass(frozen=True, kw_only=True)
class Instruction(metaclass=_InstructionKind):
    """An instruction of the machine: operands, engine and synchronization."""

    MNEMONIC: ClassVar[str]
    UNIT: ClassVar[str] = "sync"
    """Kind of the engines that execute it; `sync`: any, in its queue."""
    BULK_OPERANDS: ClassVar[bool] = True
    """Whether a loop around this instruction alone may be executed as one wider instruction."""
    SPARED: ClassVar[tuple[str, ...]] = ()
    """Operands that it can do without if their limits leave nothing; if nothing is left of another
    one, the instruction is left out."""

    engine: str
    waits: Sync = ()
    """Tokens taken before it starts."""
    signals: Sync = ()
    """Tokens given when it has ended."""
    notifies: Notices = ()
    """Tokens of other cores given when it has ended; they arrive `front_end.signal` later."""
    origin: int = 0
    """Index into the program's origins: which model node this is for."""
    tile: int = -1
    """Index into the program's tiles, the tile that it works for; -1: none."""

    @property
    def form(self) -> str:
        """Name of its form (`simmodel.isa.forms`)."""
        return self.MNEMONIC

    @cached_property
    def prototype(self) -> Self:
        """The instruction on operands at address 0, for nothing and without tokens: one object for
        all that differ in nothing else, such as those of equal layers. Only where an instruction is
        and whom it waits for may depend on more, so the rest is asked of this one."""
        own, kind = self.__dict__, type(self)
        operands = [_each(own[name], _prototype) for name in operand_fields(kind)]
        ids = [tuple(map(id, o)) if type(o) is tuple else id(o) for o in operands]
        key = (kind, *[own[name] for name in _plain_fields(kind)], *ids)
        known: Any = _PROTOTYPES
        found: Self | None = known.get(key)
        if found is None:
            # Two operands of a kind are two operands still.
            copies = (_each(operand, replace) for operand in operands)
            apart = dict(zip(operand_fields(kind), copies, strict=True))
            plain = {name: value for name, value in _SITED.items() if name in own}
            found = known[key] = replace(self, **apart, **plain)
            found.__dict__["_operands"] = operands  # they have their identities meanwhile
        return found

    def reads(self) -> tuple[Operand, ...]:
        """Operands that it reads: of all its fields but `dst`."""
        # Kept by hand: a `cached_property` locks when it is first asked, and most are asked twice.
        found: tuple[Operand, ...] | None = self.__dict__.get("_sources")
        if found is None:
            every = [getattr(self, name) for name in operand_fields(type(self)) if name != "dst"]
            found = tuple([operand for operand in every if operand is not None])
            self.__dict__["_sources"] = found
        return found

    def writes(self) -> tuple[Operand, ...]:
        """Operands that it writes: `dst`."""
        dst: Operand | None = getattr(self, "dst", None)
        return () if dst is None else (dst,)

    def operands(self) -> tuple[Operand, ...]:
        """All operands, reads first."""
        return (*self.reads(), *self.writes())

    @abstractmethod
    def cycles(self, arch: Arch) -> int:
        """Cycles of work between start-up and end when no operand is late."""

    def overlap(self, arch: Arch) -> int:
        """Cycles less when it follows one of its kind without a gap.

        Not 0 if the engine overlaps the end of one with the start of the next.
        """
        return 0

    @abstractmethod
    def startup(self, arch: Arch) -> int:
        """Cycles before the first operand moves: the engine's start-up and access latencies."""

    def traffic(self, arch: Arch) -> tuple[OperandTraffic, ...]:
        """Bytes moved through each operand's memory; each operand once unless overridden."""
        reads = [operand_traffic(arch, operand) for operand in self.reads()]
        return (*reads, *(operand_traffic(arch, o, write=True) for o in self.writes()))

    @abstractmethod
    def execute(self, view: View) -> None:
        """Apply the effect to memory, seen through `view`."""

    @abstractmethod
    def contract(self) -> Breaches:
        """Breaches of the rules between its operands, each of which is sound on its own."""

    @property
    def breaches(self) -> tuple[tuple[str, str], ...]:
        """Rule and message of all errors that do not depend on the machine; empty: `execute` does
        not fail."""
        return self.prototype._breaches

    @cached_property
    def _breaches(self) -> tuple[tuple[str, str], ...]:
        alone = [breach for operand in self.operands() for breach in sound(operand)]
        return tuple(alone or self.contract())

    def unencodable(self, arch: Arch) -> str | None:
        """Why this machine has no such instruction though it has the form, or None if it has."""
        return None

    def macs(self) -> int:
        """Multiply-accumulates of the network that it computes."""
        return 0


@dataclass(frozen=True, kw_only=True)
class ConstantFill(Instruction):
    """Base of instructions that write one raw value into every element."""

    dst: Operand
    value: float = 0.0
    """Raw value."""

    def contract(self) -> Breaches:
        yield from storable("value", self.value, self.dst.dtype)

    def execute(self, view: View) -> None:
        target = view(self.dst)
        value = np.asarray(self.value)  # of blocks, zeros alone
        target[...] = (
            np.zeros((), target.dtype) if target.dtype.fields else value.astype(target.dtype)
        )


def granule(arch: Arch, role: str) -> int:
    """Least bytes that the memory in `role` moves for each contiguous run."""
    memory = arch.memories.get(role)
    if memory is None:
        raise ValueError(f"{arch.name} has no memory {role!r}")
    return memory.burst if isinstance(memory, FarMemory) else memory.bank_width


def operand_traffic(
    arch: Arch, operand: Operand, *, write: bool = False, times: int = 1
) -> OperandTraffic:
    """What the memory of `operand` moves when its box is walked so many times."""
    moved = operand.traffic(granule(arch, operand.memory))
    return OperandTraffic(operand, write, times * moved, times * operand.runs)


@cache
def operand_fields(kind: type[Instruction]) -> tuple[str, ...]:
    """Fields of an instruction class that hold operands, or any number of them."""
    return tuple(f.name for f in fields(kind) if "Operand" in str(f.type))


_SITED: dict[str, Any] = {
    "waits": (), "signals": (), "notifies": (), "barrier": "", "origin": 0, "tile": -1,
}  # fmt: skip
"""What an instruction has by where it stands in a program, in prototypes."""
_PROTOTYPES: WeakValueDictionary[object, Instruction] = WeakValueDictionary()


@cache
def _plain_fields(kind: type[Instruction]) -> tuple[str, ...]:
    others = {*operand_fields(kind), *_SITED}
    return tuple(f.name for f in fields(kind) if f.name not in others)


_prototype = attrgetter("prototype")


def _each(value: Any, change: Callable[[Operand], Operand]) -> Any:
    """`change` of an operand, or of each of several."""
    if isinstance(value, Operand):
        return change(value)
    return tuple([change(operand) for operand in value]) if value else value


def access_latency(arch: Arch, operands: tuple[Operand, ...]) -> int:
    """Longest latency, in cycles, of the memories of `operands`."""
    roles = {operand.memory for operand in operands}
    memories = (arch.memories.get(role) for role in roles)
    return max((m.latency.cycles(arch.clock) for m in memories if m is not None), default=0)


def decode(raw: Array, operand: Operand) -> Array:
    """Real values (fp32) of an operand's raw values."""
    if operand.scale is None and operand.zero == 0:
        return raw if raw.dtype == np.float32 else raw.astype(np.float32)
    centred = raw.astype(np.float32) - np.float32(operand.zero)
    return centred if operand.scale is None else centred * np.float32(operand.scale)


def encode(values: Array, operand: Operand, out: Array) -> None:
    """Store real values into `out`: divide by the scale, round half to even, add zero, saturate."""
    if operand.dtype in STORED and is_float(operand.dtype):  # as ONNX converts to them
        values = np.clip(values, -largest(operand.dtype), largest(operand.dtype))
    if not np.issubdtype(out.dtype, np.integer):
        out[...] = values
        return
    scaled = values if operand.scale is None else values / np.float32(operand.scale)
    # Elements below a byte are seen as bytes.
    low, high = real_limits(operand.dtype if operand.dtype in PACKED else NAMES[out.dtype])
    wide = np.float64 if out.dtype.itemsize > 2 else np.float32
    rounded: Array = np.rint(scaled).astype(wide, copy=False)
    if operand.zero:
        rounded = rounded + operand.zero
    out[...] = np.minimum(np.maximum(rounded, low), high)  # `np.clip` costs as much as all of this


@dataclass(frozen=True)
class Loop:
    """A hardware loop: `body`, `count` times, with `variable` counting from 0."""

    variable: str
    count: int
    body: tuple[Instruction | Loop, ...] = field(default=())


Item = Instruction | Loop
Loops = tuple[tuple[str, int], ...]
"""Loop variables and counts, outermost first."""


def instructions(items: Iterable[Item], around: Loops = ()) -> Iterator[tuple[Instruction, Loops]]:
    """Every instruction of a stream, and the loops around it."""
    for item in items:
        if isinstance(item, Loop):
            yield from instructions(item.body, (*around, (item.variable, item.count)))
        else:
            yield item, around
