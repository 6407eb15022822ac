"""Energy and area: the model against chips that have been measured or published.

    python studies/benchmarks/energy.py [--quick] [--execute] [--jobs N] [--only TEXT]

`ratio` is the model's figure over the published one, `low` and `high` the same for the ends of the
model's range; 1 should lie between them. Areas are without an interface to DRAM where the
published ones are: NVDLA, Gemmini and Simba have none. The first table needs no program. In the
second, networks are compiled and simulated; `on chip` is energy without DRAM, which these
publications leave out. `status` says how the published figure is known: read, recalled, or an upper
bound; `more` or `less`: it counts more than the model does, or under easier conditions, so that it
should lie above the model's, or below. What the machines of these chips cannot express (Eyeriss's
registers of each element) is added from the same table of figures. `--quick`: small images, so
ratios mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tables import QUICK, Case, Result, arguments, run_all, table

from archgen.energy import EnergyCosts, costs_of
from archgen.energy.ranges import UncertainValue, total
from archgen.energy.sram import Sram, sram_cost
from archgen.energy.table import shipped_table
from archgen.schema import load_arch
from simmodel.arch.costs import EnergyTable
from simmodel.arch.record import Arch

COLUMNS = ("chip", "figure", "published", "model", "ratio", "low", "high", "status")
NVDLA_MM2 = {
    16: {2048: 3.3, 1024: 1.8, 512: 1.4, 256: 1.0, 128: 0.84, 64: 0.55, 32: 0.51},
    28: {2048: 5.5, 1024: 3.0, 512: 2.3, 256: 1.7, 128: 1.4, 64: 0.91, 32: 0.85},
}
"""By node and MACs: nvdla/doc, primer."""
NVDLA_KIB = {2048: 512, 1024: 256, 512: 256, 256: 256, 128: 256, 64: 128, 32: 128}
NVDLA_GBPS = {2048: 20.0, 1024: 15.0, 512: 10.0, 256: 5.0, 128: 2.0, 64: 1.0, 32: 0.5}
NVDLA_RUNS = {2048: (291.0, 269.0), 32: (17.0, 3.6)}
"""MACs -> average mW and ResNet-50 images per second: nvdla/doc, primer, 16 nm."""


@dataclass(frozen=True)
class Line:
    """A published figure and the model's."""

    chip: str
    figure: str
    published: float
    model: UncertainValue
    status: str

    def row(self) -> Sequence[object]:
        """The line of the table."""
        ends = (end / self.published for end in (self.model.value, self.model.low, self.model.high))
        return (self.chip, self.figure, self.published, self.model.value, *ends, self.status)


def nvdla(macs: int, node: float) -> Arch:
    """NVDLA with another number of multipliers, its buffer and its DRAM."""
    arch = load_arch("nvdla-2048")
    deep = max(8, min(64, macs // 8))
    shape = {"depth": deep, "cols": macs // deep}
    if macs < 256:
        shape["rate"] = {"int8": 1.0}
    plain = arch.model_dump(mode="json", by_alias=True, exclude_unset=True)
    plain["name"] = f"nvdla-{macs}"
    plain["matrix"] |= shape
    plain["vector"]["lanes"] = max(1, macs // 128)
    # Its buffer is made of macros with a port for reads and one for writes (nvdla/hw,
    # NV_NVDLA_cbuf.v: nv_ram_rws_256x512).
    plain["memories"]["local"] |= {
        "size": NVDLA_KIB[macs] * 1024, "bank_width": max(8, min(64, macs // 32)),
        "read_ports": 1, "write_ports": 1,
    }  # fmt: skip
    plain["memories"]["dram"]["bandwidth"] = f"{NVDLA_GBPS[macs]} GB/s"
    plain["energy"] = {"node": node}
    return Arch.model_validate(plain)


def at_node(name: str, clock: float | None = None, **energy: object) -> tuple[Arch, EnergyCosts]:
    """A shipped machine with another section `energy` (and clock), and what its events cost."""
    arch = load_arch(name)
    other = {"energy": EnergyTable.model_validate(energy), "clock": clock or arch.clock}
    arch = arch.model_copy(update=other)
    return arch, costs_of(arch)


def areas() -> Iterator[Line]:
    """Areas of chips and of their parts, mm2."""
    for node, sizes in NVDLA_MM2.items():
        for macs, published in sizes.items():
            area = costs_of(nvdla(macs, node)).area
            yield Line(f"NVDLA {node} nm", f"{macs} MACs", published, area.core, "read")
    _, tpu = at_node("tpu-v1", node=28, dram="ddr3")
    yield Line("TPU v1 28 nm", "die less pins", 0.9 * 331, tpu.area.total, "upper bound")
    yield Line("TPU v1 28 nm", "data buffers", 0.37 * 331, _sum(tpu, "local", "accumulators"),
               "upper bound")  # fmt: skip
    yield Line("TPU v1 28 nm", "compute", 0.3 * 331, _sum(tpu, "mac", "vector"), "upper bound")
    yield Line("TPU v1 28 nm", "two ports to DRAM", 0.06 * 331, tpu.area.parts["dram"],
               "upper bound")  # fmt: skip
    _, gemmini = at_node("gemmini-16", node=22)
    yield Line("Gemmini 22 nm", "array", 0.116, gemmini.area.parts["mac"], "recalled")
    yield Line("Gemmini 22 nm", "scratchpad", 0.544, gemmini.area.parts["local"], "recalled")
    yield Line("Gemmini 22 nm", "accumulators", 0.146, gemmini.area.parts["accumulators"],
               "recalled")  # fmt: skip
    simba, _ = at_node("cocco-simba-1c", node=16)
    memory = simba.memories.local.model_copy(update={"size": 752 * 1024})
    chiplet = simba.model_copy(
        update={"memories": simba.memories.model_copy(update={"local": memory})}
    )
    yield Line("Simba 16 nm", "chiplet, 752 KiB", 6.0, costs_of(chiplet).area.core, "more")


def _sum(costs: EnergyCosts, *parts: str) -> UncertainValue:
    return total(costs.area.parts[name] for name in parts)


def powers() -> Iterator[Line]:
    """Chips at full rate, from costs alone: watts, and pJ of each operation."""
    arch, costs = at_node("tpu-v1", node=28, dram="ddr3")
    each_cycle = [
        costs.mac["int8"].times(arch.matrix.cells),
        costs.read["local"].times(256),  # a row of inputs, and one of results
        costs.write["local"].times(256),
        costs.read["accumulators"].times(1024),
        costs.write["accumulators"].times(1024),
        costs.read["dram"].times(arch.dram_bytes_per_cycle),
    ]
    watts = [total(each_cycle).times(1e-12 * arch.clock), costs.leakage.times(1e-3)]
    yield Line("TPU v1 28 nm", "W, full rate against busy", 40.0, total(watts), "read")
    yield Line("Eyeriss 65 nm", "mJ, AlexNet without DRAM", 278 / 34.7, _eyeriss(), "more")


def _eyeriss() -> UncertainValue:
    """mJ of AlexNet's convolutions: multiplier of 16 by 16 bits, which does two products by 8 bits,
    three scratchpads, and nothing around them."""
    _, costs = at_node("tpu-v1", clock=200e6, node=65)
    figures = shipped_table()
    filters, inputs, sums = (
        sram_cost(Sram(2 * words, 2, node=65.0), figures) for words in (224, 12, 24)
    )
    pads = 2 * (filters.read + inputs.read + sums.read + sums.write)
    fit = figures.sram
    return total(
        (costs.mac["int16"].times(2), UncertainValue.within(pads, fit.low, fit.high))
    ).times(1e-9 * 666e6)  # fmt: skip


def runs(quick: bool) -> Iterator[tuple[Case, str, float, str]]:
    """Cases with the chip, its energy on chip in mJ for a ResNet-50, and the status of that."""
    model = f"resnet50{QUICK}" if quick else "resnet50"
    for macs, (milliwatts, rate) in NVDLA_RUNS.items():
        label = f"NVDLA 16 nm, {macs} MACs"
        yield Case(nvdla(macs, 16), model), label, milliwatts / rate, "read"
    # 6.1 TOPS/W at best, whatever the supply: the 4.1 G MACs of ResNet-50 in 1.34 mJ.
    yield Case(load_arch("cocco-simba-1c"), model), "Simba 16 nm", 2 * 4.1 / 6.1, "less"


def on_chip(result: Result) -> UncertainValue | None:
    """mJ without DRAM; its range is that of the whole run, in proportion."""
    row = result.outcome.row
    if result.figures is None:
        return None
    whole, low, high, dram = (
        float(row[name] or 0)
        for name in ("energy_mj", "energy_low_mj", "energy_high_mj", "energy_dram_mj")
    )
    return UncertainValue.within(whole - dram, low / whole, high / whole)


def main(given: Sequence[str] | None = None) -> None:
    """Print the tables."""
    options = arguments(__doc__, given)
    lines = [*areas(), *powers()]
    print(table("costs against published chips", COLUMNS, (line.row() for line in lines)))
    chosen = list(runs(options.quick))
    results = run_all([case for case, *_ in chosen], options)
    published = {case.arch.name: rest for case, *rest in chosen}
    rows = []
    for result in results:
        chip, energy, status = published[result.case.arch.name]
        made = on_chip(result)
        if made is None:
            rows.append((chip, result.reason, energy, *[None] * 4, status))
        else:
            rows.append(Line(chip, "mJ, ResNet-50 without DRAM", energy, made, status).row())
    print(table("runs against published chips", COLUMNS, rows))


if __name__ == "__main__":
    main()
