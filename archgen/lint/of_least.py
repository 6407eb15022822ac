"""Rules about fields that are less than anything built has: no time at all, one where many are.

The one idea: a zero or a one in a file is mostly a placeholder, and results behind it are better,
or worse, than any chip's.
"""

from __future__ import annotations

from collections.abc import Iterator

from archgen.lint.subject import Check, Sight, Subject
from archgen.schema.mistakes import Path
from simmodel.units import Delay, show_bytes

_ROOM = 16 * 1024
"""Bytes up to which a memory may be a register file."""


def _memory_instant(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    for role in ("shared", "local"):
        memory = arch.memories.on_chip().get(role)
        if memory is None or memory.size <= _ROOM:
            continue
        cycles = memory.latency.cycles(arch.clock)
        if cycles < limit:
            figure = f"{cycles} cycles for {show_bytes(memory.size)}"
            usual = f"{limit:g} cycle at least, behind banks of this size 2 to 60"
            chip = "Gemmini (spad_read_delay, recalled): 4 cycles for 256 KiB"
            yield Sight(("memories", role, "latency"), figure, usual, chip)


def _startup_none(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    starts: dict[Path, Delay] = {("vector", "startup"): arch.vector.startup}
    if arch.matrix.present:
        starts[("matrix", "startup")] = arch.matrix.startup
    starts |= {("copy", name, "startup"): each.startup for name, each in arch.copy_.items()}
    for path, start in starts.items():
        if start.cycles(arch.clock) < limit:
            figure = f"{start.cycles(arch.clock)} cycles from the queue to the first result"
            usual = "4 to some hundred: a pipeline is filled"
            chip = "AWS NeuronCore v2 (aws-neuron-sdk): 64 cycles before a product"
            yield Sight(path, figure, usual, chip)


def _array_thin(seen: Subject, limit: float) -> Iterator[Sight]:
    matrix = seen.arch.matrix
    if not matrix.present:
        return
    sides = {"cols": matrix.cols} | ({"rows": matrix.rows} if matrix.kind == "systolic" else {})
    for name, side in sides.items():
        if side < limit:
            figure = f"{side} of {matrix.cells:,} cells"
            usual = f"{limit:g} at least: what goes along this side is used once for each fetch"
            chip = "Eyeriss (Chen et al., JSSC 2017): 12 x 14; Google TPU v1: 256 x 256"
            yield Sight(("matrix", name), figure, usual, chip)


def _host_slow(seen: Subject, limit: float) -> Iterator[Sight]:
    rate = seen.arch.host.bandwidth.at(seen.arch.clock) * seen.arch.clock
    if rate < limit:
        figure = f"{rate / 1e6:,.4g} MB/s"
        usual = f"{limit / 1e6:g} MB/s and more, over PCIe 8 GB/s to 64 GB/s"
        chip = "PCI Express 1.0 (PCI-SIG, recalled): 250 MB/s over one lane"
        yield Sight(("host", "bandwidth"), figure, usual, chip)


def _host_late(seen: Subject, limit: float) -> Iterator[Sight]:
    late = seen.arch.host.latency.cycles(seen.arch.clock) / seen.arch.clock
    if late > limit:
        usual = "1 us to 100 us: a call of a driver and an interrupt"
        chip = "NVIDIA, CUDA (recalled): about 10 us from a call to a kernel"
        yield Sight(("host", "latency"), f"{late * 1e3:,.4g} ms", usual, chip)


CHECKS: dict[str, Check] = {
    "memory-instant": _memory_instant,
    "startup-none": _startup_none,
    "array-thin": _array_thin,
    "host-slow": _host_slow,
    "host-late": _host_late,
}
