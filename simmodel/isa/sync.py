"""Synchronization family: tokens between the engines of one core, barriers between cores.

Any instruction may wait for and signal tokens; `Sync` does only that, for places where a bare
instruction would be repeated by a loop. A barrier has a fixed number of arrivals; whoever awaits it
goes on when all have arrived.

An interlock watches the instructions of its own core. What another core writes here is an
instruction of this core as well, a `Claim`: one that tells the other core that there is room, and
one that waits for its word that the bytes are there.

    core 0   copy load dst=local[0]@{0,1} wait free 1 notify full 1 @1
    core 1   sync.claim load dst=local[0] notify free 1 @0     behind all that uses these bytes
             sync.claim load dst=local[0] wait full 1          before all that uses them now
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simmodel.arch.record import Arch
from simmodel.isa.base import Instruction, OperandTraffic, View
from simmodel.isa.operand_rules import Breaches
from simmodel.isa.region import Operand


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
