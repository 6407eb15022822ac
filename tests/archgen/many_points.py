"""Studies of as many points as a test needs, made from one run: a sweep over two fields.

The one idea: a page shows rows, and does not ask where they come from. Figures follow a law that a
reader can check: latency falls with bandwidth until the array is the limit, area grows with memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from archgen.outcomes.frame import read_table, table_bytes
from archgen.outcomes.points import Outcome, Row, StudyMetadata
from archgen.schema.rewritten import fields_of
from archgen.schema.tree import Node, Table
from archgen.schema.variants import Variant, as_node, variant
from archgen.studies.results import Study

SIZE, BANDWIDTH = "memories.local.size", "memories.dram.bandwidth"
NETWORKS = ("resnet18", "mobilenet_v2")


def sweep(made: Study, sizes: int, bandwidths: int) -> Study:
    """The first point of `made` on `sizes` x `bandwidths` machines, and as two networks."""
    first = next(outcome for outcome in made.outcomes if outcome.status == "ok")
    base = made.by_name[str(first.row["arch"])]
    tree = as_node(fields_of(base))
    machines = [
        _variant(tree, f"{64 * (place + 1)} KiB", f"{4 * (other + 1)} GB/s")
        for place, other in product(range(sizes), range(bandwidths))
    ]
    outcomes = tuple(_outcomes(first, machines))
    return Study(
        outcomes, tuple(each.arch for each in machines), StudyMetadata("sweep", total=len(outcomes))
    )


def _variant(tree: Node, size: str, bandwidth: str) -> Variant:
    assert isinstance(tree, Table)
    made, mistakes = variant(tree, {SIZE: as_node(size), BANDWIDTH: as_node(bandwidth)})
    assert made is not None, mistakes
    return made


def _outcomes(first: Outcome, machines: list[Variant]) -> Iterator[Outcome]:
    for slow, network in enumerate(NETWORKS, 1):
        for machine in machines:
            size, bandwidth = (float(str(each.value)) for each in machine.settings)
            latency = slow * max(1.0, 32e9 / bandwidth) + 65536 / size
            row: Row = {
                "arch": machine.arch.name, "model": network,
                "latency_ms": latency, "throughput_ips": 1e3 / latency,
                "latency_cycles": round(latency * machine.arch.clock / 1e3),
                "area_mm2": 1 + size / 2**20, "energy_mj": latency * 0.1 + bandwidth / 1e11,
                **{f"arch.{setting.field}": setting.value for setting in machine.settings},
            }  # fmt: skip
            own = {"arch": machine.arch.name, "model": network}
            layers = [layer | own for layer in first.layers]
            key = f"{network} {machine.arch.name}"
            tables = _tables(first, own) if machine is machines[-1] else {}
            yield replace(first, key=key, row=first.row | row, layers=layers, tables=tables)


def _tables(first: Outcome, own: Row) -> dict[str, bytes | Path]:
    """What happened over time, of the machine and network in `own`."""
    return {
        name: table_bytes(read_table(content).assign(**own))
        for name, content in first.tables.items()
        if name in ("spans", "levels")
    }
