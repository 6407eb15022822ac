"""A toolchain whose cycles stand in tables: what each schedule takes, what each machine adds."""

from __future__ import annotations

import re
from dataclasses import replace

from host_only import as_it_is, compile_host_only

from archgen.schema import load_arch
from archgen.toolchain import Compiled, Request, Toolchain, execute
from compiler.errors import DoesNotFit
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate
from simmodel.metrics import Metrics, measure
from simmodel.program.program import Program
from simmodel.trace import Trace

SCHEDULES = {"s64": 1000, "s128": 1500, "s256": 900, "s512": 1200}
"""Cycles of the program that is made for a machine, which is called by its KiB of local memory."""
SLOWER = {"s512": 700}
"""What a machine adds to whatever program it runs but its own."""
TIGHT = "tight"
"""A machine for which no program is found."""


def machine(name: str) -> Arch:
    """A shipped machine with as much local memory as its name says."""
    arch = load_arch("soma-edge")
    size = int(name.removeprefix("s")) if name != TIGHT else 128
    local = arch.memories.local.model_copy(update={"size": size << 10})
    memories = arch.memories.model_copy(update={"local": local})
    return arch.model_copy(update={"name": name, "memories": memories})


def compile_for(request: Request) -> Compiled:
    """A program that bears the name of the machine that it is made for."""
    lender = request.schedule_from or request.arch
    if lender.name == TIGHT:
        raise DoesNotFit(2048, 1024, "B", (("weights", 2048),), ("a larger memory",), "l1")
    return compile_host_only(replace(request, arch=lender))


def measure_by_table(trace: Trace, program: Program, arch: Arch, batch: int) -> Metrics:
    """Metrics of the run, its time replaced by what the tables say."""
    cycles = SCHEDULES[program.arch]
    cycles += 0 if program.arch == arch.name else SLOWER.get(arch.name, 0)
    return _taking(cycles, measure(trace, program, arch, batch), arch, batch)


def measure_by_size(trace: Trace, program: Program, arch: Arch, batch: int) -> Metrics:
    """The same for machines whose names end in their KiB of local memory."""
    made_for, own = (f"s{re.findall('[0-9]+', name)[-1]}" for name in (program.arch, arch.name))
    cycles = SCHEDULES[made_for] + (0 if made_for == own else SLOWER.get(own, 0))
    return _taking(cycles, measure(trace, program, arch, batch), arch, batch)


def _taking(cycles: int, found: Metrics, arch: Arch, batch: int) -> Metrics:
    seconds = cycles / arch.clock
    return replace(
        found, latency_cycles=cycles, latency_ms=1e3 * seconds, throughput=batch / seconds
    )


BY_TABLE = Toolchain(as_it_is, compile_for, execute, simulate, measure_by_table)
BY_SIZE = Toolchain(as_it_is, compile_for, execute, simulate, measure_by_size)
