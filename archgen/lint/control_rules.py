"""Rules about what keeps order (tokens, queues, fetch), and how cores reach each other."""

from __future__ import annotations

from collections.abc import Iterator

from archgen.energy.area_of_parts import instruction_bytes
from archgen.lint.engine_rules import ArrayProduct
from archgen.lint.subject import Check, LintedMachine, Sight
from archgen.schema.tree import Path
from simmodel.arch.units import Delay, show_bytes


def _tokens_few(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    front, engines = seen.arch.front_end, seen.arch.engines()
    if front.sync == "tokens" and front.tokens < limit * len(engines):
        figure = f"{front.tokens} for {len(engines)} engines"
        usual = f"{limit * len(engines):g} at least"
        chip = "Arm Ethos-U: two kernels and two transfers in flight; AWS NeuronCore v2: 256"
        yield Sight(("front_end", "tokens"), figure, usual, chip)


def _queue_shallow(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    front = seen.arch.front_end
    least = min(seen.arch.engines(), key=front.depth)
    if front.depth(least) < limit:
        figure = f"{front.depth(least)} for {least}"
        usual = "two and more: one behind the one that runs"
        chip = "Arm Ethos-U (Vela): two kernels in flight; Gemmini: 8 and 2"
        yield Sight(("front_end", "queue_depth"), figure, usual, chip)


def _fetch_slow(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    rate = arch.front_end.fetch_bandwidth
    if rate is None or not arch.matrix.present:
        return
    size = instruction_bytes(arch)
    engines = len(arch.engines()) - 1  # the scalar unit has little to do
    fetched = engines * size / rate.at(arch.clock)
    cycles = ArrayProduct.best(arch).cycles
    if fetched > limit * cycles:
        figure = (
            f"{engines} instructions of {size:.4g} B, one for each engine, are fetched in "
            f"{fetched:,.0f} cycles; the array's longest takes {cycles:,}"
        )
        usual = f"{engines * size / cycles:,.3g} B/cycle at least"
        yield Sight(("front_end", "fetch_bandwidth"), figure, usual, seen.nearest())


def _loop_buffer_idle(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    front = seen.arch.front_end
    kept = front.loop_buffer or 0
    if kept > limit and front.fetch_bandwidth is None:
        figure = (
            f"{show_bytes(kept)} that save nothing: instructions are there without being fetched"
        )
        usual = "with front_end.fetch_bandwidth"
        yield Sight(("front_end", "loop_buffer"), figure, usual)


def _cores_apart(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    peers = sum(engine.peer for engine in arch.copy_.values())
    ways = peers + (arch.memories.shared is not None)
    if arch.core_count > 1 and ways < limit:
        figure = f"{arch.core_count} cores that meet in DRAM alone"
        usual = "memories.shared, or a copy engine with peer: true"
        chip = "Google TPU v3: links between cores; STCP920: 8 MiB in each cluster"
        yield Sight(("cores",), figure, usual, chip)


def _weights_each_core(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    ways = sum(engine.broadcast for engine in arch.copy_.values())
    ways += arch.memories.shared is not None
    if arch.core_count > 1 and ways < limit:
        figure = f"each of {arch.core_count} cores loads weights that all need from DRAM"
        usual = "a copy engine with broadcast: true, or memories.shared"
        chip = "Simba (Shao et al., MICRO 2019) sends them to several elements at once"
        yield Sight(("copy",), figure, usual, chip)


CONTROL_CHECKS: dict[str, Check] = {
    "tokens-few": _tokens_few,
    "queue-shallow": _queue_shallow,
    "fetch-slow": _fetch_slow,
    "loop-buffer-idle": _loop_buffer_idle,
    "cores-apart": _cores_apart,
    "weights-each-core": _weights_each_core,
}


# Rules about fields that are less than anything built has: no time at all, one where many are.

_ROOM = 16 * 1024
"""Bytes up to which a memory may be a register file."""


def _memory_instant(seen: LintedMachine, limit: float) -> Iterator[Sight]:
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


def _startup_none(seen: LintedMachine, limit: float) -> Iterator[Sight]:
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


def _array_thin(seen: LintedMachine, limit: float) -> Iterator[Sight]:
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


def _host_slow(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    rate = seen.arch.host.bandwidth.at(seen.arch.clock) * seen.arch.clock
    if rate < limit:
        figure = f"{rate / 1e6:,.4g} MB/s"
        usual = f"{limit / 1e6:g} MB/s and more, over PCIe 8 GB/s to 64 GB/s"
        chip = "PCI Express 1.0 (PCI-SIG, recalled): 250 MB/s over one lane"
        yield Sight(("host", "bandwidth"), figure, usual, chip)


def _host_late(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    late = seen.arch.host.latency.cycles(seen.arch.clock) / seen.arch.clock
    if late > limit:
        usual = "1 us to 100 us: a call of a driver and an interrupt"
        chip = "NVIDIA, CUDA (recalled): about 10 us from a call to a kernel"
        yield Sight(("host", "latency"), f"{late * 1e3:,.4g} ms", usual, chip)


MINIMUM_CHECKS: dict[str, Check] = {
    "memory-instant": _memory_instant,
    "startup-none": _startup_none,
    "array-thin": _array_thin,
    "host-slow": _host_slow,
    "host-late": _host_late,
}
