"""Rules about the chip as a whole: area, clock, peak, DRAM, technology."""

from __future__ import annotations

from collections.abc import Iterator

from archgen.energy import Costs
from archgen.energy.ranges import Range
from archgen.energy.scaling import at_node
from archgen.energy.table import shipped_table
from archgen.lint.known import Chip
from archgen.lint.subject import Check, Sight, Subject
from archgen.schema.mistakes import Path
from simmodel.units import show_bytes


def _area(seen: Subject, limit: float) -> Iterator[Sight]:
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


def _on_chip_size(seen: Subject, limit: float) -> Iterator[Sight]:
    held, chip = seen.peaks.on_chip, seen.known.most(lambda chip: chip.sram)
    if held > limit * (chip.sram or 0):
        role, size = _largest(seen)
        usual = f"published chips have up to {show_bytes(int(chip.sram or 0))}"
        figure = f"{show_bytes(held)} on the chip, {show_bytes(size)} of it {role}"
        yield Sight(("memories", role, "size"), figure, usual, chip.cited())


def _sram_per_mac(seen: Subject, limit: float) -> Iterator[Sight]:
    held, chip = seen.peaks.on_chip, seen.known.most(lambda chip: chip.sram_per_mac)
    most, macs = chip.sram_per_mac or 0, max(1, seen.macs)
    if held > limit * most * macs:
        role, size = _largest(seen)
        usual = f"published chips have up to {show_bytes(round(most))}"
        figure = f"{show_bytes(held)} on the chip, {show_bytes(size)} of it {role}, for"
        figure = f"{figure} {macs:,.0f} MACs, {show_bytes(round(held / macs))} each"
        yield Sight(("memories", role, "size"), figure, usual, chip.cited())


def _largest(seen: Subject) -> tuple[str, int]:
    """The role of the memories on the chip that hold most, and what all of it hold."""
    sizes = {
        role: memory.size * seen.instances(role)
        for role, memory in seen.arch.memories.on_chip().items()
    }
    return max(sizes.items(), key=lambda pair: pair[1])


def _clock_fast(seen: Subject, limit: float) -> Iterator[Sight]:
    clock, chip = seen.arch.clock, seen.known.most(lambda chip: chip.clock)
    if clock > limit * chip.clock:
        usual = f"the fastest published has {chip.clock / 1e9:g} GHz"
        yield Sight(("clock",), f"{clock / 1e9:g} GHz", usual, chip.cited())


def _clock_node(seen: Subject, limit: float) -> Iterator[Sight]:
    clock, node = seen.arch.clock, seen.arch.energy.node
    speed = shipped_table().speed
    delays = speed.delays(clock, node)
    if delays < limit:
        figure = f"{clock / 1e9:g} GHz at {node:g} nm leaves a cycle {delays:.1f} gate delays"
        most = speed.delays(1e9, node) / limit
        yield Sight(("clock",), figure, f"{limit:g} at least, {most:.2g} GHz", _at_node(seen, node))


def _at_node(seen: Subject, node: float) -> str:
    """The chip of the technology that is nearest."""
    dated = [chip for chip in seen.known.chips.values() if chip.node]
    chip = min(dated, key=lambda chip: abs((chip.node or 0) - node))
    return f"{chip.cited()}: {chip.clock / 1e9:g} GHz at {chip.node:g} nm"


def _clock_slow(seen: Subject, limit: float) -> Iterator[Sight]:
    clock, chip = seen.arch.clock, seen.known.least(lambda chip: chip.clock)
    if clock < limit:
        usual = f"the slowest published has {chip.clock / 1e6:g} MHz"
        yield Sight(("clock",), f"{clock / 1e6:g} MHz", usual, chip.cited())


def _array(seen: Subject) -> Path:
    return ("matrix", "cols") if seen.arch.matrix.present else ("vector", "lanes")


def _peak(seen: Subject, limit: float) -> Iterator[Sight]:
    chip = seen.known.most(lambda chip: chip.tops)
    if seen.tops > limit * chip.tops:
        usual = f"published chips have up to {chip.tops:,.4g}"
        figure = f"{seen.tops:,.4g} TOPS of {seen.arch.types[0]}"
        yield Sight(_array(seen), figure, usual, chip.cited())


def _macs_per_byte(seen: Subject, limit: float) -> Iterator[Sight]:
    """Beside chips with no more on them: what holds whole networks needs little DRAM."""

    def ratio(chip: Chip) -> float | None:
        return chip.macs_per_byte if (chip.sram or 0) <= seen.peaks.on_chip else None

    most = seen.known.most(ratio)
    if seen.peaks.ridge > limit * (most.macs_per_byte or 0):
        figure = f"{seen.peaks.ridge:,.4g} MACs for each byte of DRAM bandwidth"
        usual = f"published chips with no more memory on them have up to {most.macs_per_byte:,.4g}"
        yield Sight(("memories", "dram", "bandwidth"), figure, usual, most.cited())


def _bytes_per_mac(seen: Subject, limit: float) -> Iterator[Sight]:
    ratio, least = seen.peaks.ridge, seen.known.least(lambda chip: chip.macs_per_byte)
    if ratio * limit < (least.macs_per_byte or 0):
        figure = f"{ratio:,.4g} MACs for each byte of DRAM bandwidth"
        yield Sight(("memories", "dram", "bandwidth"), figure, _balance(seen), least.cited())


def _balance(seen: Subject) -> str:
    def ratio(chip: Chip) -> float | None:
        return chip.macs_per_byte

    low, high = ratio(seen.known.least(ratio)) or 0, ratio(seen.known.most(ratio)) or 0
    return f"published chips have {low:.2g} to {high:,.4g}"


def _dram_kind(seen: Subject, limit: float) -> Iterator[Sight]:
    kind, rate = seen.arch.energy.dram, seen.arch.dram_bytes_per_cycle * seen.arch.clock / 1e9
    most = seen.known.dram.get(kind)
    if most is not None and rate > limit * most.most:
        figure = f"{rate:,.4g} GB/s of {kind}"
        usual = f"{kind} is known up to {most.most:g} GB/s; energy.dram sets its price"
        recalled = ", recalled" if most.status == "recalled" else ""
        chip = f"{most.chip} ({most.source}{recalled})"
        yield Sight(("memories", "dram", "bandwidth"), figure, usual, chip)


def _dram_size(seen: Subject, limit: float) -> Iterator[Sight]:
    size, held = seen.arch.memories.dram.size, seen.peaks.on_chip
    if size < limit * held:
        figure = f"{show_bytes(size)} of DRAM for {show_bytes(held)} on the chip"
        usual = "constants and maps of a network must fit into DRAM"
        yield Sight(("memories", "dram", "size"), figure, usual, seen.nearest())


def _dram_latency(seen: Subject, limit: float) -> Iterator[Sight]:
    latency = seen.arch.dram_latency / seen.arch.clock
    if latency > limit or (0 < latency < limit / 100 and seen.arch.energy.dram != "sram"):
        usual = f"published figures are {1e9 * limit / 100:g} to {1e9 * limit:g} ns"
        chip = "Intel NPU 2.7 (intel/npu-nn-cost-model): 956 ns; NPU 4.0: 300 ns"
        yield Sight(("memories", "dram", "latency"), f"{1e9 * latency:,.3g} ns", usual, chip)


def _host_faster(seen: Subject, limit: float) -> Iterator[Sight]:
    host = seen.arch.host.compute / 1e12
    if host > limit * seen.tops:
        figure = f"the host does {host:.3g} tera-operations per second, the chip {seen.tops:.3g}"
        usual = "the host runs what the accelerator cannot, more slowly"
        yield Sight(("host", "compute"), figure, usual, seen.nearest())


def _voltage(seen: Subject, limit: float) -> Iterator[Sight]:
    given, node = seen.arch.energy.voltage, seen.arch.energy.node
    nominal = at_node(shipped_table().voltage.points, node)
    if given is not None and not nominal / limit <= given <= nominal * limit:
        usual = f"nominal at {node:g} nm is {nominal:.2g} V"
        yield Sight(("energy", "voltage"), f"{given:g} V", usual, _at_node(seen, node))


def _energy_stated(seen: Subject, limit: float) -> Iterator[Sight]:
    stated, tabled = _by_field(seen.costs), _by_field(seen.tabled)
    for path, cost in stated.items():
        known = tabled[path]
        if cost.stated and not known.low / limit <= cost.value <= known.high * limit:
            unit = _unit(path)
            usual = f"the table has {known.low:.2g} to {known.high:.2g} {unit}"
            yield Sight(path, f"{cost.value:g} {unit}", usual)


def _by_field(costs: Costs) -> dict[Path, Range]:
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


def _unit(path: Path) -> str:
    if path[-1] == "leakage":
        return "mW"
    return "pJ/B" if path[1] in ("memories", "links") else "pJ"


CHECKS: dict[str, Check] = {
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
