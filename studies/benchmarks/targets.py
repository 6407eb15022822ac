"""Whole networks on shipped machines, beside what their schedules should reach.

    python studies/benchmarks/targets.py [--quick] [--execute] [--jobs N] [--only TEXT]

Every point is compiled as `archgen study` does it, at effort 1. `bound` is `bound_cycles`, which
knows the machine's arrays, memories, copy engines and DRAM and which no schedule undercuts. `x
fluid` is cycles over a model that is no bound: weights in the order of the layers, through the
memory that holds them, before exact arrays at the best split (`fluid.py`). `x compulsory` is DRAM
bytes over constants and inputs that outputs take, and outputs, once each. `asked` is what to reach,
`published` a figure of a paper or a vendor for the same machine, both in the unit of the row:

    Cocco (Tan et al., ASPLOS 2024), Stream (Symons et al., IEEE TC 2024: the best layer-fusing
    schedule), STCP920 (Zhao et al., OSDI 2023: 8 726 images/s, BERT 7.67 ms at batch 32)

`--quick`: the networks of the first table on one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fluid import over_fluid
from tables import arguments, machines, mapped, ratio, table

from archgen.outcomes.points import Outcome, Point
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, Compiled, Request


@dataclass(frozen=True)
class Target:
    """A point and what it should reach."""

    arch: str
    model: str
    asked: float
    """In `unit`."""
    unit: str = "cycles"
    """`cycles`, `ms`, `per s` (samples, at least), `of bound` (at least), `x fluid`, or `x bytes`
    (DRAM bytes over compulsory)."""
    batch: int = 1
    published: float | None = None
    """In `unit`."""

    @property
    def label(self) -> str:
        """`soma-edge resnet50 b4`."""
        return f"{self.arch} {self.model} b{self.batch}"


PUBLISHED = (
    Target("cocco-simba-1c", "resnet50", 4.33, "ms", published=4.59),
    Target("cocco-simba-2c", "resnet50", 2.23, "ms", published=2.48),
    Target("cocco-simba-4c", "resnet50", 1.11, "ms", published=1.39),
    Target("cocco-simba-1c", "googlenet", 1.75, "ms", published=2.05),
    Target("cocco-simba-2c", "googlenet", 0.90, "ms", published=1.04),
    Target("cocco-simba-4c", "googlenet", 0.48, "ms", published=0.54),
    Target("stream-32x32", "resnet50", 5_500_000, published=7_999_335),
    Target("stream-32x32-4c", "resnet18", 1_700_000, published=1_908_277),
    Target("stcp920", "resnet50", 12_000, "per s", 64, published=8_726),
    Target("stcp920", "bert_base", 7.7, "ms", 32, published=7.67),
)
DECODE = "llama:sequence=1,past=511"
NETWORKS = (
    Target("ascend-310-like", "resnet50", 380_000),
    Target("neuroncore-v2-like", "resnet50", 600_000),
    Target("tpu-v3-like", "resnet50", 200_000),
    Target("tpu-v1", "resnet50", 800_000),
    Target("stcp920", "resnet50", 520_000),
    Target("ethos-u65-like", "resnet50", 12_500_000),
    Target("tests/archs/nvdla-2048.yaml", "resnet50", 2_700_000),  # as when it was asked
    Target("mcu-npu", "resnet50", 42_000_000),
    Target("k230-like", "resnet50", 2_600_000),
    Target("stream-32x32-4c", "resnet50", 3_560_000),
    Target("gemmini-16", "resnet50", 24_000_000),
    Target("soma-edge", "googlenet", 1.08, "x fluid"),
    Target("soma-edge", "squeezenet", 1.08, "x fluid"),
    Target("soma-edge", "resnet50", 1.04, "x fluid", 4),
    Target("soma-edge", "resnet50", 1.06, "x fluid", 16),
)
ATTENTION = (
    Target("ascend-310-like", "llama:sequence=1024", 0.75, "of bound"),
    Target("soma-edge", "llama:sequence=512", 0.75, "of bound"),
    Target("tpu-v3-like", "llama:sequence=512", 0.75, "of bound"),
    Target("tpu-v3-like", DECODE, 0.95, "of bound"),
    Target("neuroncore-v2-like", DECODE, 0.95, "of bound"),
)
BYTES = (
    Target("soma-edge", "bert_base", 1.05, "x bytes"),
    Target("neuroncore-v2-like", "bert_base", 1.1, "x bytes"),
    Target("tpu-v3-like", "bert_base", 1.1, "x bytes"),
    Target("stcp920", "bert_base", 1.1, "x bytes"),
    Target("ascend-310-like", "llama", 1.2, "x bytes"),
    Target("ascend-310-like", "llama:sequence=1024", 1.15, "x bytes"),
    Target("soma-edge", "llama:sequence=512", 1.15, "x bytes"),
    Target("tpu-v3-like", "llama:sequence=512", 1.15, "x bytes"),
    Target("soma-edge", "squeezenet", 1.1, "x bytes"),
    Target("soma-edge", "densenet121", 1.1, "x bytes"),
)
VERDICTS = {None: "-", True: "yes", False: "WRONG"}
COLUMNS = (
    "machine", "network", "batch", "cycles", "ms", "bound", "of bound", "x fluid", "DRAM MB",
    "x bytes", "asked", "", "met", "published", "verified",
)  # fmt: skip
AT_LEAST = ("per s", "of bound")


def row(target: Target, made: tuple[Outcome, float | None]) -> Sequence[object]:
    """One point beside what was asked of it."""
    outcome, fluid = made
    head = (target.arch, target.model, target.batch)
    wanted = (target.asked, target.unit)
    if outcome.status != "ok":
        reason = str(outcome.row.get("reason") or outcome.status).split("\n")[0][:60]
        return (*head, *[None] * 7, *wanted, reason, target.published, None)
    cycles, bound = _figure(outcome, "latency_cycles"), _figure(outcome, "bound_cycles")
    moved = _figure(outcome, "dram_read_bytes") + _figure(outcome, "dram_write_bytes")
    over, share = ratio(moved, _figure(outcome, "compulsory_bytes")), ratio(bound, cycles)
    reached = {
        "cycles": cycles, "ms": _figure(outcome, "latency_ms"), "of bound": share, "x bytes": over,
        "x fluid": fluid, "per s": _figure(outcome, "throughput_ips"),
    }[target.unit]  # fmt: skip
    assert reached is not None
    met = reached >= target.asked if target.unit in AT_LEAST else reached <= target.asked
    return (
        *head, round(cycles), _figure(outcome, "latency_ms"), round(bound), share, fluid,
        moved / 1e6, over, *wanted, "yes" if met else "no", target.published,
        VERDICTS[outcome.row.get("verified")],
    )  # fmt: skip


def _figure(outcome: Outcome, name: str) -> float:
    value = outcome.row[name]
    assert isinstance(value, int | float), name
    return value


def run(target: Target, options: argparse.Namespace) -> tuple[Outcome, float | None]:
    """The point of one target, and how far it is above the model of `fluid.py`."""
    (arch,) = machines([target.arch])
    requests: list[Request] = []

    def compiled(request: Request) -> Compiled:
        requests.append(request)
        return STANDARD.compile(request)

    point = Point(
        target.label, arch, target.model, target.batch, arch.types[0], verify=options.execute
    )
    outcome = Workbench(replace(STANDARD, compile=compiled)).run(point)
    print(target.label, outcome.status, file=sys.stderr, flush=True)
    if outcome.status != "ok":
        return outcome, None
    return outcome, over_fluid(requests[0], round(_figure(outcome, "latency_cycles")))


def measured(targets: Sequence[Target], options: argparse.Namespace) -> Iterator[Sequence[object]]:
    """Rows of the targets that were asked for."""
    chosen = [t for t in targets if all(word in t.label for word in options.only)]
    outcomes = mapped(partial(run, options=options), chosen, options.jobs)
    return map(row, chosen, outcomes)


TABLES = {
    "Beside published figures": PUBLISHED,
    "Whole networks": NETWORKS,
    "A layer of Llama: prompts, and one token": ATTENTION,
    "DRAM bytes": BYTES,
}


def main(given: Sequence[str] | None = None) -> None:
    """Print the tables."""
    options = arguments(__doc__, given)
    if options.quick:
        quick = [target for target in PUBLISHED if target.arch == "cocco-simba-1c"]
        print(table("One core", COLUMNS, measured(quick, options)))
        return
    for title, targets in TABLES.items():
        print(table(title, COLUMNS, measured(targets, options)), flush=True)


if __name__ == "__main__":
    main()
