"""Scalar and host family: bookkeeping on the core, and calls to the host processor.

A host call names a payload of the program (a small serialized model); the machine knows only how
much it computes and moves. What the payload means is up to whoever executes the program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from simmodel.arch import Arch
from simmodel.isa.base import Instruction, View
from simmodel.isa.contract import Breaches, distinct
from simmodel.region import Operand

HOST = "host"
"""Engine name of the host processor: one for the chip, fed from the first core's stream."""


@dataclass(frozen=True, kw_only=True)
class ScalarNop(Instruction):
    """Occupies the scalar unit for `count` cycles: address and loop bookkeeping."""

    MNEMONIC: ClassVar[str] = "scalar.nop"

    engine: str = "scalar"
    count: int = 1

    def reads(self) -> tuple[Operand, ...]:
        return ()

    def writes(self) -> tuple[Operand, ...]:
        return ()

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
class HostCall(Instruction):
    """outputs = payload(inputs) on the host processor, from DRAM to DRAM."""

    MNEMONIC: ClassVar[str] = "host.call"
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
