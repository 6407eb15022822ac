"""Scalar, host and synchronization families: bookkeeping and elements on the core, calls to the
host processor, tokens and barriers.

What the scalar unit computes is what the vector engine computes, element after element at a cost of
its own: a loop over up to three dimensions of local memory.

A host call names a payload of the program (a small serialized model); the machine knows only how
much it computes and moves. What the payload means is up to whoever executes the program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from simmodel.arch.record import Arch
from simmodel.isa.base import Instruction, OperandTraffic, View, access_latency
from simmodel.isa.operand_rules import Breaches, distinct
from simmodel.isa.region import Operand
from simmodel.isa.vector import Binary, Reduce, Ternary, Unary, VectorInstruction

HOST = "host"
"""Engine name of the host processor: one for the chip, fed from the first core's stream."""


@dataclass(frozen=True, kw_only=True)
class ScalarNop(Instruction):
    """Occupies the scalar unit for `count` cycles: address and loop bookkeeping."""

    MNEMONIC: ClassVar[str] = "scalar.nop"
    UNIT: ClassVar[str] = "scalar"

    engine: str = "scalar"
    count: int = 1

    def startup(self, arch: Arch) -> int:
        return arch.scalar.startup.cycles(arch.clock)

    def cycles(self, arch: Arch) -> int:
        return self.count

    def contract(self) -> Breaches:
        if self.count < 0:
            yield "parameter", f"{self.count} cycles, expected 0 or more"

    def execute(self, view: View) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class ScalarFamily(VectorInstruction):
    """Element-wise work on the scalar unit: a mixin before the vector engine's class."""

    UNIT: ClassVar[str] = "scalar"

    engine: str = "scalar"

    def startup(self, arch: Arch) -> int:
        return arch.scalar.startup.cycles(arch.clock) + access_latency(arch, self.reads())

    def cycles(self, arch: Arch) -> int:
        return math.ceil(math.prod(self.walked()) * arch.factor(self.form, self.cost()))

    def unencodable(self, arch: Arch) -> str | None:
        for operand in self.operands():
            if operand.memory != "local":
                return f"the scalar unit does not reach {operand.memory}"
            if not arch.scalar.has(operand.dtype):
                return f"the scalar unit has no {operand.dtype}"
        return self._too_large(arch)


@dataclass(frozen=True, kw_only=True)
class ScalarUnary(ScalarFamily, Unary):
    """dst = function(a); `parameters` are the function's constants (slopes and the like)."""

    MNEMONIC: ClassVar[str] = "scalar.unary"


@dataclass(frozen=True, kw_only=True)
class ScalarBinary(ScalarFamily, Binary):
    """dst = function(a, b)."""

    MNEMONIC: ClassVar[str] = "scalar.binary"


@dataclass(frozen=True, kw_only=True)
class ScalarTernary(ScalarFamily, Ternary):
    """dst = function(a, b, c)."""

    MNEMONIC: ClassVar[str] = "scalar.ternary"


@dataclass(frozen=True, kw_only=True)
class ScalarReduce(ScalarFamily, Reduce):
    """dst = function over the dimensions in which dst has extent 1 and a has more."""

    MNEMONIC: ClassVar[str] = "scalar.reduce"


@dataclass(frozen=True, kw_only=True)
class HostCall(Instruction):
    """outputs = payload(inputs) on the host processor, from DRAM to DRAM."""

    MNEMONIC: ClassVar[str] = "host.call"
    UNIT: ClassVar[str] = HOST
    BULK_OPERANDS: ClassVar[bool] = False

    engine: str = HOST
    payload: int
    """Index into the program's payloads."""
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()
    operations: int = 0
    """Arithmetic operations, for the host's time."""

    def reads(self) -> tuple[Operand, ...]:
        return self.inputs

    def writes(self) -> tuple[Operand, ...]:
        return self.outputs

    def startup(self, arch: Arch) -> int:
        return arch.host.latency.cycles(arch.clock)

    def cycles(self, arch: Arch) -> int:
        moved = sum(operand.distinct for operand in (*self.inputs, *self.outputs))
        compute = self.operations / arch.host.compute * arch.clock
        return math.ceil(max(compute, moved / arch.host.bandwidth.at(arch.clock)))

    def contract(self) -> Breaches:
        if self.operations < 0:
            yield "parameter", f"{self.operations} operations, expected 0 or more"
        for operand in self.outputs:
            yield from distinct(operand)

    def execute(self, view: View) -> None:
        raise RuntimeError("a host call is executed by the program's host, not by an engine")


# Synchronization: tokens between the engines of one core, barriers between cores.
#
# Any instruction may wait for and signal tokens; `Sync` does only that, for places where a bare
# instruction would be repeated by a loop. A barrier has a fixed number of arrivals; whoever awaits
# it goes on when all have arrived.
#
# An interlock watches the instructions of its own core. What another core writes here is an
# instruction of this core as well, a `Claim`: one that tells the other core that there is room, and
# one that waits for its word that the bytes are there.
#
#     core 0   copy load dst=local[0]@{0,1} wait free 1 notify full 1 @1
#     core 1   sync.claim load dst=local[0] notify free 1 @0     behind all that uses these bytes
#              sync.claim load dst=local[0] wait full 1          before all that uses them now


@dataclass(frozen=True, kw_only=True)
class Sync(Instruction):
    """Waits and signals at its position in an engine's queue; no work."""

    MNEMONIC: ClassVar[str] = "sync"

    def startup(self, arch: Arch) -> int:
        return 0

    def cycles(self, arch: Arch) -> int:
        return 0

    def contract(self) -> Breaches:
        return iter(())

    def execute(self, view: View) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Arrive(Sync):
    """Everything before it in this engine's queue has ended: count it at the barrier."""

    MNEMONIC: ClassVar[str] = "sync.arrive"

    barrier: str


@dataclass(frozen=True, kw_only=True)
class Await(Sync):
    """Nothing after it in this engine's queue starts before all arrivals of the barrier."""

    MNEMONIC: ClassVar[str] = "sync.await"

    barrier: str


@dataclass(frozen=True, kw_only=True)
class Claim(Sync):
    """A `Sync` that the interlock orders as if it wrote `dst`: bytes that another core writes."""

    MNEMONIC: ClassVar[str] = "sync.claim"
    BULK_OPERANDS: ClassVar[bool] = False

    dst: Operand

    def traffic(self, arch: Arch) -> tuple[OperandTraffic, ...]:
        return ()
