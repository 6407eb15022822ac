"""Rules about the chip as a whole: area, clock, peak, DRAM, technology."""

from __future__ import annotations

from collections.abc import Iterator

from archgen.energy import EnergyCosts
from archgen.energy.ranges import UncertainValue, at_node
from archgen.energy.table import shipped_table
from archgen.lint.rules import Chip
from archgen.lint.subject import Check, LintedMachine, Sight
from archgen.schema.tree import Path
from simmodel.arch.units import Delay, show_bytes


def _area(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    area = seen.costs.area
    if area.total.low <= limit:
        return
    part = max(area.parts, key=lambda name: area.parts[name].value)
    path: Path = {
        "mac": ("matrix", "cols"), "vector": ("vector", "lanes"), "other": ("energy",),
    }.get(part, ("memories", part, "size"))  # fmt: skip
    most = area.parts[part].value
    chip = seen.known.most(lambda chip: chip.area)
    yield Sight(
        path,
        f"{area.total.value:,.0f} mm2 at {seen.arch.energy.node:g} nm"
        f" ({area.total.low:,.0f} at least), {most:,.0f} of it {part}",
        f"at most {limit:,.0f} mm2",
        f"{chip.cited()}: {chip.area:g} mm2 at {chip.node:g} nm",
    )


def _on_chip_size(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    held, chip = seen.peaks.on_chip, seen.known.most(lambda chip: chip.sram)
    if held > limit * (chip.sram or 0):
        role, size = _largest(seen)
        usual = f"published chips have up to {show_bytes(int(chip.sram or 0))}"
        figure = f"{show_bytes(held)} on the chip, {show_bytes(size)} of it {role}"
        yield Sight(("memories", role, "size"), figure, usual, chip.cited())


def _sram_per_mac(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    held, chip = seen.peaks.on_chip, seen.known.most(lambda chip: chip.sram_per_mac)
    most, macs = chip.sram_per_mac or 0, max(1, seen.macs)
    if held > limit * most * macs:
        role, size = _largest(seen)
        usual = f"published chips have up to {show_bytes(round(most))}"
        figure = f"{show_bytes(held)} on the chip, {show_bytes(size)} of it {role}, for"
        figure = f"{figure} {macs:,.0f} MACs, {show_bytes(round(held / macs))} each"
        yield Sight(("memories", role, "size"), figure, usual, chip.cited())


def _largest(seen: LintedMachine) -> tuple[str, int]:
    """The role of the memories on the chip that hold most, and what all of it hold."""
    sizes = {
        role: memory.size * seen.instances(role)
        for role, memory in seen.arch.memories.on_chip().items()
    }
    return max(sizes.items(), key=lambda pair: pair[1])


def _clock_fast(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    clock, chip = seen.arch.clock, seen.known.most(lambda chip: chip.clock)
    if clock > limit * chip.clock:
        usual = f"the fastest published has {chip.clock / 1e9:g} GHz"
        yield Sight(("clock",), f"{clock / 1e9:g} GHz", usual, chip.cited())


def _clock_node(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    clock, node = seen.arch.clock, seen.arch.energy.node
    speed = shipped_table().speed
    delays = speed.delays(clock, node)
    if delays < limit:
        figure = f"{clock / 1e9:g} GHz at {node:g} nm leaves a cycle {delays:.1f} gate delays"
        most = speed.delays(1e9, node) / limit
        yield Sight(("clock",), figure, f"{limit:g} at least, {most:.2g} GHz", _at_node(seen, node))


def _at_node(seen: LintedMachine, node: float) -> str:
    """The chip of the technology that is nearest."""
    dated = [chip for chip in seen.known.chips.values() if chip.node]
    chip = min(dated, key=lambda chip: abs((chip.node or 0) - node))
    return f"{chip.cited()}: {chip.clock / 1e9:g} GHz at {chip.node:g} nm"


def _clock_slow(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    clock, chip = seen.arch.clock, seen.known.least(lambda chip: chip.clock)
    if clock < limit:
        usual = f"the slowest published has {chip.clock / 1e6:g} MHz"
        yield Sight(("clock",), f"{clock / 1e6:g} MHz", usual, chip.cited())


def _array_width_field(seen: LintedMachine) -> Path:
    return ("matrix", "cols") if seen.arch.matrix.present else ("vector", "lanes")


def _peak(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    chip = seen.known.most(lambda chip: chip.tops)
    if seen.tops > limit * chip.tops:
        usual = f"published chips have up to {chip.tops:,.4g}"
        figure = f"{seen.tops:,.4g} TOPS of {seen.arch.types[0]}"
        yield Sight(_array_width_field(seen), figure, usual, chip.cited())


def _macs_per_byte(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    """Beside chips with no more on them: what holds whole networks needs little DRAM."""

    def ratio(chip: Chip) -> float | None:
        return chip.macs_per_byte if (chip.sram or 0) <= seen.peaks.on_chip else None

    most = seen.known.most(ratio)
    if seen.peaks.ridge > limit * (most.macs_per_byte or 0):
        figure = f"{seen.peaks.ridge:,.4g} MACs for each byte of DRAM bandwidth"
        usual = f"published chips with no more memory on them have up to {most.macs_per_byte:,.4g}"
        yield Sight(("memories", "dram", "bandwidth"), figure, usual, most.cited())


def _bytes_per_mac(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    ratio, least = seen.peaks.ridge, seen.known.least(lambda chip: chip.macs_per_byte)
    if ratio * limit < (least.macs_per_byte or 0):
        figure = f"{ratio:,.4g} MACs for each byte of DRAM bandwidth"
        yield Sight(("memories", "dram", "bandwidth"), figure, _balance(seen), least.cited())


def _balance(seen: LintedMachine) -> str:
    def ratio(chip: Chip) -> float | None:
        return chip.macs_per_byte

    low, high = ratio(seen.known.least(ratio)) or 0, ratio(seen.known.most(ratio)) or 0
    return f"published chips have {low:.2g} to {high:,.4g}"


def _dram_kind(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    kind, rate = seen.arch.energy.dram, seen.arch.dram_bytes_per_cycle * seen.arch.clock / 1e9
    most = seen.known.dram.get(kind)
    if most is not None and rate > limit * most.most:
        figure = f"{rate:,.4g} GB/s of {kind}"
        usual = f"{kind} is known up to {most.most:g} GB/s; energy.dram sets its price"
        recalled = ", recalled" if most.status == "recalled" else ""
        chip = f"{most.chip} ({most.source}{recalled})"
        yield Sight(("memories", "dram", "bandwidth"), figure, usual, chip)


def _dram_size(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    size, held = seen.arch.memories.dram.size, seen.peaks.on_chip
    if size < limit * held:
        figure = f"{show_bytes(size)} of DRAM for {show_bytes(held)} on the chip"
        usual = "constants and maps of a network must fit into DRAM"
        yield Sight(("memories", "dram", "size"), figure, usual, seen.nearest())


def _dram_latency(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    latency = seen.arch.dram_latency / seen.arch.clock
    if latency > limit or (0 < latency < limit / 100 and seen.arch.energy.dram != "sram"):
        usual = f"published figures are {1e9 * limit / 100:g} to {1e9 * limit:g} ns"
        chip = "Intel NPU 2.7 (intel/npu-nn-cost-model): 956 ns; NPU 4.0: 300 ns"
        yield Sight(("memories", "dram", "latency"), f"{1e9 * latency:,.3g} ns", usual, chip)


def _host_faster(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    host = seen.arch.host.compute / 1e12
    if host > limit * seen.tops:
        figure = f"the host does {host:.3g} tera-operations per second, the chip {seen.tops:.3g}"
        usual = "the host runs what the accelerator cannot, more slowly"
        yield Sight(("host", "compute"), figure, usual, seen.nearest())


def _voltage(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    given, node = seen.arch.energy.voltage, seen.arch.energy.node
    nominal = at_node(shipped_table().voltage.points, node)
    if given is not None and not nominal / limit <= given <= nominal * limit:
        usual = f"nominal at {node:g} nm is {nominal:.2g} V"
        yield Sight(("energy", "voltage"), f"{given:g} V", usual, _at_node(seen, node))


def _energy_stated(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    stated, tabled = _by_field(seen.costs), _by_field(seen.tabled)
    for path, cost in stated.items():
        known = tabled[path]
        if cost.stated and not known.low / limit <= cost.value <= known.high * limit:
            unit = _energy_unit(path)
            usual = f"the table has {known.low:.2g} to {known.high:.2g} {unit}"
            yield Sight(path, f"{cost.value:g} {unit}", usual)


def _by_field(costs: EnergyCosts) -> dict[Path, UncertainValue]:
    """Energies by the fields that may state them."""
    return {
        **{("energy", "mac", name): cost for name, cost in costs.mac.items()},
        **{("energy", "vector", name): cost for name, cost in costs.vector.items()},
        **{("energy", "memories", role, "read"): cost for role, cost in costs.read.items()},
        **{("energy", "memories", role, "write"): cost for role, cost in costs.write.items()},
        **{("energy", "links", name): cost for name, cost in costs.links.items()},
        ("energy", "instruction"): costs.instruction,
        ("energy", "leakage"): costs.leakage,
    }


def _energy_unit(path: Path) -> str:
    if path[-1] == "leakage":
        return "mW"
    return "pJ/B" if path[1] in ("memories", "links") else "pJ"


CHIP_CHECKS: dict[str, Check] = {
    "area-wafer": _area,
    "area-reticle": _area,
    "on-chip-size": _on_chip_size,
    "sram-per-mac": _sram_per_mac,
    "clock-fast": _clock_fast,
    "clock-node": _clock_node,
    "clock-slow": _clock_slow,
    "peak": _peak,
    "macs-per-byte": _macs_per_byte,
    "bytes-per-mac": _bytes_per_mac,
    "dram-kind": _dram_kind,
    "dram-size": _dram_size,
    "dram-latency": _dram_latency,
    "host-faster": _host_faster,
    "voltage": _voltage,
    "energy-stated": _energy_stated,
}


# Rules about sizes that are off by orders of magnitude: a unit mistaken, a digit too many.


def _copy_slow(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch, rate = seen.arch, seen.arch.dram_bytes_per_cycle
    for name, engine in arch.copy_.items():
        own = engine.bandwidth.at(arch.clock) * arch.core_count
        if "dram" in (*engine.from_, *engine.to) and own < limit * rate:
            figure = f"{own:,.3g} B/cycle of all cores"
            usual = f"DRAM carries {rate:,.4g} B/cycle"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): 14 GB/s of a host before 34 GB/s"
            yield Sight(("copy", name, "bandwidth"), figure, usual, chip)


def _requests_many(seen: LintedMachine, limit: float) -> Iterator[Sight]:
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


def _burst_size(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    sizes: dict[Path, int] = {("memories", "dram", "burst"): seen.arch.memories.dram.burst}
    sizes |= {("copy", name, "request"): each.request for name, each in seen.arch.copy_.items()}
    for path, size in sizes.items():
        if not limit / _LEAST_BURST <= size <= limit:
            usual = f"{limit / _LEAST_BURST:g} B to {limit:g} B"
            chip = "DDR4 and LPDDR4: bursts of 64 B; AXI4: 4096 B at most"
            yield Sight(path, f"{size:,} B at once", usual, chip)


_LEAST_BURST = 1024
"""The longest burst against the shortest."""


def _latency_long(seen: LintedMachine, limit: float) -> Iterator[Sight]:
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


def _control_large(seen: LintedMachine, limit: float) -> Iterator[Sight]:
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


def _issue_wide(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    front, engines = seen.arch.front_end, seen.arch.engines()
    if front.issue_width > limit * len(engines):
        figure = f"{front.issue_width:,} instructions in a cycle for {len(engines)} engines"
        yield Sight(("front_end", "issue_width"), figure, "one for each engine at most")


def _rate_far(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    for dtype, rate in seen.arch.matrix.rate.items() if seen.arch.matrix.present else ():
        if not 1 / limit**2 <= rate <= limit:
            usual = f"{1 / limit**2:.2g} to {limit:g}: a cell that is split has 2 or 4 products"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): int16 at a quarter"
            yield Sight(("matrix", "rate"), f"{rate:g} products of {dtype} a cell", usual, chip)


def _dram_large(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    size = seen.arch.memories.dram.size
    if size > limit:
        chip = "AMD MI325X (AMD, 2024, recalled): 256 GB"
        usual = f"{show_bytes(limit)} at most"
        yield Sight(("memories", "dram", "size"), show_bytes(size), usual, chip)


def _host_link(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    rate = seen.arch.host.bandwidth.at(seen.arch.clock) * seen.arch.clock
    if rate > limit:
        chip = "NVLink-C2C (NVIDIA Grace Hopper, recalled): 450 GB/s each way"
        usual = "8 GB/s to 64 GB/s over PCIe"
        yield Sight(("host", "bandwidth"), f"{rate / 1e9:,.4g} GB/s", usual, chip)


SCALE_CHECKS: dict[str, Check] = {
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
