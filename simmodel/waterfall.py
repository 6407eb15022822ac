"""Waterfall: from the bound to the measured cycles, of matrix engines, of DRAM and of flash.

The one idea: all accounts start with the work that the outputs need at peak rate, which no
schedule saves, and add up to the run. Between lies what a better schedule or another machine could
win: repeated work, padding of the array, start-ups, and waits by cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simmodel.arch.record import Arch
from simmodel.metrics import compulsory_bytes, compute_cycles, main_type, multipliers, products
from simmodel.program.program import Program
from simmodel.trace import CAUSES, Trace

WORK = {
    "products": "what the outputs take, at the peak of all arrays",
    "products again": "what several tiles compute each for itself",
    "padding": "positions of the array without work, and its filling and draining",
    "start-ups": "before the first operands of an instruction move",
}
"""Busy cycles of matrix engines."""
MOVED = {
    "compulsory": "what the outputs take of constants and inputs, and outputs, once",
    "again": "what is loaded or spilled more than once, and bursts that are not used whole",
    "overhead": "rows and requests of each contiguous run, and the slower direction",
    "idle": "less asked for than it could give",
}
"""Cycles of DRAM, or of flash, at the rate of long transfers."""


@dataclass(frozen=True)
class Waterfall:
    """Cycles by cause, in order; each account adds up to the run."""

    matrix: Mapping[str, float]
    """Of the matrix engines, averaged over cores, unlike ones by their peak: the keys of `WORK`,
    then those of `CAUSES`."""
    dram: Mapping[str, float]
    """Of DRAM: the keys of `MOVED`."""
    flash: Mapping[str, float] = field(default_factory=dict)
    """The same of flash; empty without."""


def waterfall(trace: Trace, program: Program, arch: Arch) -> Waterfall:
    """Account of the cycles of `trace`, the run of `program` on `arch`. Raises Impossible if it did
    less than the outputs need.
    """
    engines = multipliers(arch, main_type(program, arch))
    cores = arch.core_count * sum(engines.values())
    busy = sum(n * trace.busy(name) for name, n in engines.items()) / cores
    needed = compute_cycles(program, trace, arch)
    done = started = 0.0
    for instruction, times in products(program):
        peak = arch.peak_macs(instruction.rate_type)
        done += times * instruction.macs() / peak if peak else 0.0
        started += times * instruction.startup(arch) * engines.get(instruction.engine, 1.0) / cores
    work = (needed, done - needed, busy - started - done, started)
    waits = {
        cause: sum(n * trace.idle(cause, name) for name, n in engines.items()) / cores
        for cause in CAUSES
    }
    moved = {
        far: _off_chip_account(far, rate, trace, program) for far, rate in arch.far_rates.items()
    }
    return Waterfall(
        dict(zip(WORK, work, strict=True)) | waits, moved["dram"], moved.get("flash", {})
    )


def _off_chip_account(far: str, rate: float, trace: Trace, program: Program) -> dict[str, float]:
    """Account of a memory off chip of this rate."""
    compulsory = compulsory_bytes(program, trace)[far] / rate
    moved = sum(trace.traffic[f"{far}.{way}"] for way in ("read", "write")) / rate
    worked = trace.far_loads[far] / rate
    parts = (compulsory, moved - compulsory, worked - moved, trace.cycles - worked)
    return dict(zip(MOVED, parts, strict=True))
