"""Rules about sizes that are off by orders of magnitude: a unit mistaken, a digit too many.

The one idea: what a field of its kind has on every known machine lies within a factor that no
design explains; beyond it the field says something else than was meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from archgen.lint.subject import Check, Sight, Subject
from archgen.schema.mistakes import Path
from simmodel.units import Delay, show_bytes


def _copy_slow(seen: Subject, limit: float) -> Iterator[Sight]:
    arch, rate = seen.arch, seen.arch.dram_bytes_per_cycle
    for name, engine in arch.copy_.items():
        own = engine.bandwidth.at(arch.clock) * arch.core_count
        if "dram" in (*engine.from_, *engine.to) and own < limit * rate:
            figure = f"{own:,.3g} B/cycle of all cores"
            usual = f"DRAM carries {rate:,.4g} B/cycle"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): 14 GB/s of a host before 34 GB/s"
            yield Sight(("copy", name, "bandwidth"), figure, usual, chip)


def _requests_many(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    for name, engine in arch.copy_.items():
        rate = min(engine.bandwidth.at(arch.clock), arch.dram_bytes_per_cycle)
        needed = rate * arch.dram_latency
        flying = engine.outstanding * engine.request
        if "dram" in (*engine.from_, *engine.to) and flying > limit * max(needed, engine.request):
            figure = f"{engine.outstanding:,} requests of {show_bytes(engine.request)}"
            usual = f"{rate:,.4g} B/cycle for {arch.dram_latency:,} cycles are {needed:,.0f} B"
            chip = "Arm Ethos-U65: 32 requests of 128 B for 500 cycles (archs/ethos-u65-like.yaml)"
            yield Sight(("copy", name, "outstanding"), figure, usual, chip)


def _burst_size(seen: Subject, limit: float) -> Iterator[Sight]:
    sizes: dict[Path, int] = {("memories", "dram", "burst"): seen.arch.memories.dram.burst}
    sizes |= {("copy", name, "request"): each.request for name, each in seen.arch.copy_.items()}
    for path, size in sizes.items():
        if not limit / _LEAST_BURST <= size <= limit:
            usual = f"{limit / _LEAST_BURST:g} B to {limit:g} B"
            chip = "DDR4 and LPDDR4: bursts of 64 B; AXI4: 4096 B at most"
            yield Sight(path, f"{size:,} B at once", usual, chip)


_LEAST_BURST = 1024
"""The longest burst against the shortest."""


def _latency_long(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    memories = arch.memories.on_chip()
    delays: dict[Path, Delay] = {("memories", n, "latency"): m.latency for n, m in memories.items()}
    delays[("vector", "startup")] = arch.vector.startup
    if arch.matrix.present:
        delays[("matrix", "startup")] = arch.matrix.startup
    for path, delay in delays.items():
        if delay.cycles(arch.clock) > limit:
            usual = "a few cycles to some hundred"
            chip = "AWS NeuronCore v2 (aws-neuron-sdk): 64 cycles before a product"
            yield Sight(path, f"{delay.cycles(arch.clock):,} cycles", usual, chip)


def _control_large(seen: Subject, limit: float) -> Iterator[Sight]:
    front, engines = seen.arch.front_end, seen.arch.engines()
    deepest = max(engines, key=front.depth)
    if front.depth(deepest) > limit:
        figure = f"{front.depth(deepest):,} for {deepest}"
        yield Sight(("front_end", "queue_depth"), figure, "2 to 64", "Gemmini: 8 and 2")
    if front.sync == "tokens" and front.tokens > _TOKENS * limit:
        chip = "AWS NeuronCore v2: 256"
        yield Sight(("front_end", "tokens"), f"{front.tokens:,}", "16 to 256", chip)
    if front.loop_buffer is not None and front.loop_buffer > _KEPT * limit:
        chip = "NVIDIA V100 (Jia et al., 2018, recalled): 12 KiB of instructions in each part"
        usual = "256 B to 64 KiB"
        yield Sight(("front_end", "loop_buffer"), show_bytes(front.loop_buffer), usual, chip)


_TOKENS = 4
"""Tokens for each entry of a queue, where both are at their limit."""
_KEPT = 1024
"""Bytes of a loop buffer for the same."""


def _issue_wide(seen: Subject, limit: float) -> Iterator[Sight]:
    front, engines = seen.arch.front_end, seen.arch.engines()
    if front.issue_width > limit * len(engines):
        figure = f"{front.issue_width:,} instructions in a cycle for {len(engines)} engines"
        yield Sight(("front_end", "issue_width"), figure, "one for each engine at most")


def _rate_far(seen: Subject, limit: float) -> Iterator[Sight]:
    for dtype, rate in seen.arch.matrix.rate.items() if seen.arch.matrix.present else ():
        if not 1 / limit**2 <= rate <= limit:
            usual = f"{1 / limit**2:.2g} to {limit:g}: a cell that is split has 2 or 4 products"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): int16 at a quarter"
            yield Sight(("matrix", "rate"), f"{rate:g} products of {dtype} a cell", usual, chip)


def _dram_large(seen: Subject, limit: float) -> Iterator[Sight]:
    size = seen.arch.memories.dram.size
    if size > limit:
        chip = "AMD MI325X (AMD, 2024, recalled): 256 GB"
        usual = f"{show_bytes(limit)} at most"
        yield Sight(("memories", "dram", "size"), show_bytes(size), usual, chip)


def _host_link(seen: Subject, limit: float) -> Iterator[Sight]:
    rate = seen.arch.host.bandwidth.at(seen.arch.clock) * seen.arch.clock
    if rate > limit:
        chip = "NVLink-C2C (NVIDIA Grace Hopper, recalled): 450 GB/s each way"
        usual = "8 GB/s to 64 GB/s over PCIe"
        yield Sight(("host", "bandwidth"), f"{rate / 1e9:,.4g} GB/s", usual, chip)


CHECKS: dict[str, Check] = {
    "copy-slow": _copy_slow,
    "requests-many": _requests_many,
    "burst-size": _burst_size,
    "latency-long": _latency_long,
    "control-large": _control_large,
    "issue-wide": _issue_wide,
    "rate-far": _rate_far,
    "dram-large": _dram_large,
    "host-link": _host_link,
}
