"""Toolchains whose cycles stand in tables, or are a formula, and cost models of the latter."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from host_only import LOG, as_it_is, compile_host_only

from archgen.schema import load_arch
from archgen.schema.rewritten import changed
from archgen.studies.run import Estimator
from archgen.toolchain import Compiled, Request, Toolchain
from compiler.api import NetworkEstimate
from compiler.errors import DoesNotFit
from simmodel.arch.record import Arch
from simmodel.execute import run
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
    size = 128 if name == TIGHT else int(name.removeprefix("s"))
    arch = changed(load_arch("soma-edge"), {"memories.local.size": size << 10})
    assert arch is not None
    return arch.model_copy(update={"name": name})


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
    return taking(cycles, measure(trace, program, arch, batch), arch, batch)


def measure_by_size(trace: Trace, program: Program, arch: Arch, batch: int) -> Metrics:
    """The same for machines whose names end in their KiB of local memory."""
    made_for, own = (f"s{re.findall('[0-9]+', name)[-1]}" for name in (program.arch, arch.name))
    cycles = SCHEDULES[made_for] + (0 if made_for == own else SLOWER.get(own, 0))
    return taking(cycles, measure(trace, program, arch, batch), arch, batch)


def taking(cycles: int, found: Metrics, arch: Arch, batch: int) -> Metrics:
    """Metrics of a run as if it had taken so many cycles."""
    seconds = cycles / arch.clock
    return replace(
        found, latency_cycles=cycles, latency_ms=1e3 * seconds, throughput=batch / seconds
    )


BY_TABLE = Toolchain(as_it_is, compile_for, run, simulate, measure_by_table)
BY_SIZE = Toolchain(as_it_is, compile_for, run, simulate, measure_by_size)


# Machines with a trade-off: the time is a formula of memory and multipliers with a ripple in it, so
# that larger machines are not always quicker.

KIB = 1024


def cycles_of(arch: Arch) -> int:
    """What a run takes: less with more memory and multipliers, but for a ripple."""
    size = arch.memories.local.size // KIB
    ripple = 1.3 if (size // 64) % 3 == 0 else 1.0
    return round(ripple * (400_000 / arch.matrix.cols + 2_000_000 / size))


def measure_trade_off(trace: Trace, program: Program, arch: Arch, batch: int) -> Metrics:
    """Metrics of the run, its time replaced by the formula."""
    return taking(cycles_of(arch), measure(trace, program, arch, batch), arch, batch)


def estimate_right(request: Request) -> NetworkEstimate:
    """A cost model that is never wrong."""
    if log := os.environ.get(LOG):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"estimate {request.arch.name}\n")
    return NetworkEstimate(cycles_of(request.arch), 1)


def estimate_badly(request: Request) -> NetworkEstimate:
    """A cost model that is up to a third off, this way or that."""
    off = 1.33 if request.arch.matrix.cols % 16 else 0.75
    return NetworkEstimate(off * cycles_of(request.arch), 1)


TRADE_OFF = Toolchain(as_it_is, compile_host_only, run, simulate, measure_trade_off)
RIGHT = Estimator(as_it_is, estimate_right)
OFF = Estimator(as_it_is, estimate_badly)
