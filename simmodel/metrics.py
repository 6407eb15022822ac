"""Metrics of one run: the figures that an architect compares.

Only here do cycles become seconds. The roofline is a lower bound of the time of any schedule: the
multiply-accumulates that the outputs need at the chip's peak, or all compulsory bytes (constants
and inputs that the outputs need, and outputs, once each) at the peak of DRAM, and of flash those of
constants, whichever is longest.
`efficiency` is that bound over the measured time. Work beyond what the outputs need counts for
nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simmodel.arch.base import OFF_CHIP, Latest
from simmodel.arch.element_types import product_type
from simmodel.arch.record import Arch
from simmodel.errors import Impossible
from simmodel.isa import HOST, MatrixInstruction, Product
from simmodel.isa.base import instructions
from simmodel.program.encoding import program_bytes
from simmodel.program.program import Buffer, Program, expect_run
from simmodel.trace import CAUSES, Trace


@dataclass(frozen=True)
class Metrics:
    """Metrics of one run of one program on one architecture."""

    latency_cycles: int
    """Core-clock cycles from the first issue to the end of the last instruction."""
    latency_ms: float
    """Milliseconds of one inference."""
    throughput: float
    """Inferences per second, each batch starting when the previous one has ended."""
    dtype: str
    """Element type of the matrix engine's operands, whose peak the next figures refer to."""
    executed_macs: int
    """Multiply-accumulates of all engines, what no output takes included."""
    matrix_utilization: float
    """Multiply-accumulates that the outputs take of the matrix engines, over what all of them could
    do meanwhile, 0..1."""
    matrix_busy: float
    """Share of the matrix engines' cycles spent in instructions, start-up included, 0..1; cycles of
    unlike ones count by their peak."""
    vector_busy: float
    """The same of the vector engines."""
    dram_read_bytes: int
    """Bytes that DRAM delivered, in whole bursts."""
    dram_write_bytes: int
    """Bytes that DRAM took, in whole bursts."""
    flash_read_bytes: int
    """Bytes that flash delivered, in whole bursts."""
    load_once_ms: float
    """Milliseconds in which the host loads weights before the first inference, where they stay on
    the chip; 0 elsewhere."""
    host_ms: float
    """Milliseconds that the host takes: for the inference, and for its calls."""
    compulsory_bytes: int
    """What outputs take of constants and inputs, and outputs, each once, without packing: an output
    that is an input seen otherwise does not move."""
    stalls: dict[str, float]
    """Idle cycles of the matrix engine by cause, averaged over cores, as a share of latency."""
    roofline_cycles: float
    """Cycles that no schedule on this machine can undercut."""
    bound: str
    """Which of the two bounds is the longer: `compute` or `bandwidth`."""
    efficiency: float
    """Roofline over latency, 0..1."""
    peak_bytes: dict[str, int]
    """Role -> most bytes of buffers alive in the same step in one instance of the memory."""
    bank_gap_bytes: dict[str, int]
    """Role -> most bytes that nothing uses in one step in banks that are in use; roles of memories
    whose banks are ranges of addresses."""
    instructions: int
    """Instructions executed."""
    program_bytes: int
    """Size of all instruction streams, loops kept."""


def measure(trace: Trace, program: Program, arch: Arch, batch: int | None = None) -> Metrics:
    """Metrics of `trace`, the run of `program` on `arch` for `batch` inferences; None: as the
    program states.

    Raises:
        Impossible: it did less than the program's demand.
    """
    expect_run(program, arch)
    cycles = max(1, trace.cycles)
    dtype = main_type(program, arch)
    needed = compulsory_bytes(program, trace)
    compute = compute_cycles(program, trace, arch)
    memory = max(needed[far] / rate for far, rate in arch.far_rates.items())
    seconds = cycles / arch.clock
    weights = sum(constant.data.nbytes for constant in program.constants)
    resident = weights if arch.memories.dram.on_chip else 0
    arrays = multipliers(arch, dtype)
    vectors, engines = arch.units("vector"), cycles * arch.core_count
    available = engines * sum(arrays.values())
    return Metrics(
        latency_cycles=trace.cycles,
        latency_ms=seconds * 1e3,
        throughput=(program.batch if batch is None else batch) / seconds,
        dtype=dtype,
        executed_macs=trace.macs,
        matrix_utilization=compute / cycles,
        matrix_busy=sum(n * trace.busy(name) for name, n in arrays.items()) / available,
        vector_busy=sum(map(trace.busy, vectors)) / (engines * len(vectors)),
        dram_read_bytes=trace.traffic["dram.read"],
        dram_write_bytes=trace.traffic["dram.write"],
        flash_read_bytes=trace.traffic.get("flash.read", 0),
        load_once_ms=arch.host_transfer(resident) / arch.clock * 1e3,
        host_ms=trace.busy(HOST) / arch.clock * 1e3,
        compulsory_bytes=sum(needed.values()),
        stalls={
            cause: sum(n * trace.idle(cause, name) for name, n in arrays.items()) / available
            for cause in CAUSES
        },
        roofline_cycles=max(compute, memory),
        bound="compute" if compute >= memory else "bandwidth",
        efficiency=max(compute, memory) / cycles,
        peak_bytes=peak_bytes(program.buffers),
        bank_gap_bytes=bank_gap_bytes(program.buffers, arch),
        instructions=trace.issued,
        program_bytes=program_bytes(program, arch),
    )


def multipliers(arch: Arch, dtype: str) -> dict[str, float]:
    """Engines of a core that are there for products, and how many times as many of element type
    `dtype` (of another type, if one of them has it not) each makes as the first one."""
    if not arch.matrix.present:
        return dict.fromkeys(arch.units("vector"), 1.0)
    known = all(each.peak(dtype) for each in arch.arrays.values())
    makes = {n: each.peak(dtype) if known else each.cells for n, each in arch.arrays.items()}
    return {u: n / makes["matrix"] for name, n in makes.items() for u in arch.units(name)}


def compute_cycles(program: Program, trace: Trace, arch: Arch) -> float:
    """Cycles of all matrix engines for the products that the outputs need, at peak rate.

    Raises:
        Impossible: the run did fewer.
    """
    demand = program.demand
    products = demand.products if demand else ((main_type(program, arch), program.macs),)
    if program.demand:
        _require_at_least("multiply-accumulates", trace.macs, program.demand.macs)
    rates = ((macs, arch.peak_macs(name)) for name, macs in products)
    return sum(macs / peak for macs, peak in rates if peak)


def _require_at_least(what: str, done: int, least: int) -> None:
    if done < least:
        raise Impossible(f"the run did {done} {what}, its outputs take at least {least}")


def compulsory_bytes(program: Program, trace: Trace) -> dict[str, int]:
    """Bytes that must cross the pins of each memory off chip at least once: constants and inputs
    that outputs need, and outputs that are not just inputs.

    If a program states no demand, all constants and ports count, as far as the run in `trace` read
    and wrote them.

    Raises:
        Impossible: the run moved less.
    """
    read, written = trace.traffic["dram.read"], trace.traffic["dram.write"]
    flash, demand = trace.traffic.get("flash.read", 0), program.demand
    if demand is not None:
        _require_at_least("bytes of reads from DRAM", read, demand.read - demand.constants)
        _require_at_least("bytes of reads from flash", flash, demand.constants)
        _require_at_least("bytes of writes to DRAM", written, demand.written)
        return {
            "dram": demand.read - demand.constants + demand.written, "flash": demand.constants
        }  # fmt: skip
    constants, stored = (
        sum(c.used or c.data.nbytes for c in program.constants if c.memory == far)
        for far in OFF_CHIP
    )
    given = [port.operand.bounds for port in program.inputs]
    made = (
        port.operand.distinct
        for port in program.outputs
        if not any(low <= port.operand.bounds[0] < high for low, high in given)
    )
    ports = sum(port.operand.distinct for port in program.inputs)
    moved = min(constants + ports, read) + min(sum(made), written)
    return {"dram": moved, "flash": min(stored, flash)}


Addresses = NDArray[np.int64]
Instance = tuple[str, int | None]
"""Role of a memory and the core that it belongs to; None for DRAM and chip-level memory."""


def peak_bytes(buffers: tuple[Buffer, ...]) -> dict[str, int]:
    """Most bytes in use in one step, by memory role, of the core with the highest peak."""
    return {role: max(taken(own).values()) for role, own in fullest(buffers).items()}


@partial(Latest, most=1)
def fullest(buffers: tuple[Buffer, ...]) -> dict[str, list[Buffer]]:
    """By memory role, the buffers of the core with the highest peak."""
    peaks: dict[str, tuple[int, list[Buffer]]] = {}
    for (role, _), own in by_instance(buffers).items():
        peak = max(taken(own).values())
        if role not in peaks or peak > peaks[role][0]:
            peaks[role] = peak, own
    return {role: own for role, (_, own) in peaks.items()}


def bank_gap_bytes(buffers: tuple[Buffer, ...], arch: Arch) -> dict[str, int]:
    """Most bytes that nothing uses in one step in those banks that are in use, by role of a memory
    whose banks are ranges of addresses, of the core with the highest peak."""
    gaps: dict[str, int] = {}
    held = fullest(buffers)
    for role, memory in arch.memories.on_chip().items():
        if memory.mapping == "blocked" and memory.banks > 1:
            borders = range(0, memory.size + 1, memory.bank_size)
            gaps[role] = 0
            for _, edges, alive in _used(held.get(role, []), borders):
                used = np.bincount(edges[:-1] // memory.bank_size, np.diff(edges) * alive)
                gaps[role] = max(gaps[role], int((memory.bank_size - used[used > 0]).sum()))
    return gaps


def by_instance(buffers: Iterable[Buffer]) -> dict[Instance, list[Buffer]]:
    """The buffers in each instance of each memory."""
    found: dict[Instance, list[Buffer]] = defaultdict(list)
    for buffer in buffers:
        found[buffer.memory, buffer.core].append(buffer)
    return found


def taken(buffers: Sequence[Buffer]) -> dict[int, int]:
    """Bytes of one instance in use from a step on, for each step in which that changes: buffers
    that share a place count once."""
    return {step: int(np.diff(edges)[alive].sum()) for step, edges, alive in _used(buffers)}


def _used(
    buffers: Sequence[Buffer], borders: Iterable[int] = ()
) -> Iterator[tuple[int, Addresses, NDArray[np.bool_]]]:
    """Each step in which what is in use changes, the addresses (n + 1, rising) at which it may,
    and `borders`, and which of the n ranges between them are in use from then on."""
    ends = np.array([(b.address, b.address + b.size) for b in buffers], np.int64).reshape(-1, 2)
    edges = np.unique(np.append(ends, np.array([*borders], np.int64)))
    places = np.searchsorted(edges, ends)
    users = np.zeros(max(0, len(edges) - 1), np.int64)
    changes: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for buffer, (low, high) in zip(buffers, places.tolist(), strict=True):
        changes[buffer.first].append((low, high, 1))
        changes[buffer.last + 1].append((low, high, -1))
    for step in sorted(changes):
        for low, high, by in changes[step]:
            users[low:high] += by
        yield step, edges, users > 0


def main_type(program: Program, arch: Arch) -> str:
    """Element type of most products, of the types whose rate is known."""
    macs: dict[str, int] = defaultdict(int)
    rated = {name for array in arch.arrays.values() for name in array.rate} or arch.types
    for instruction, times in products(program):
        kind = product_type(instruction.a.dtype, instruction.w.dtype)
        if kind in rated:
            macs[kind] += times * instruction.macs()
    return max(macs, key=lambda name: macs[name], default=arch.types[0])


def products(program: Program) -> Iterator[tuple[MatrixInstruction | Product, int]]:
    """Instructions that multiply matrices, and how often each is executed."""
    for stream in program.cores:
        for item, loops in instructions(stream):
            if isinstance(item, MatrixInstruction | Product):
                yield item, math.prod(count for _, count in loops)


# Waterfall: from the bound to the measured cycles, of matrix engines, of DRAM and of flash. All
# accounts start with the work that the outputs need at peak rate, which no schedule saves, and add
# up to the run. Between lies what a better schedule or another machine could win: repeated work,
# padding of the array, start-ups, and waits by cause.

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
    compulsory = compulsory_bytes(program, trace)[far] / rate
    moved = sum(trace.traffic[f"{far}.{way}"] for way in ("read", "write")) / rate
    worked = trace.far_loads[far] / rate
    parts = (compulsory, moved - compulsory, worked - moved, trace.cycles - worked)
    return dict(zip(MOVED, parts, strict=True))
