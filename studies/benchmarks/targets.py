"""Whole networks on shipped machines, beside what a schedule without borders should reach.

    python studies/benchmarks/targets.py [--quick] [--execute] [--jobs N] [--only TEXT]

Every point is compiled as `archgen study` does it, at effort 1. `bound` is `bound_cycles`, which
knows the machine's arrays, memories, copy engines and DRAM and which no schedule undercuts (weights
in the order of the layers are a model: `fluid.py`). `x compulsory` is DRAM bytes over constants and
inputs that outputs take, and outputs, once each. `asked` is what to reach, `published` a figure of
a paper or a vendor for the same machine, both in the unit of the row:

    Cocco (Tan et al., ASPLOS 2024), Stream (Symons et al., IEEE TC 2024: the best layer-fusing
    schedule), STCP920 (Zhao et al., OSDI 2023: 8 726 images/s, BERT 7.67 ms at batch 32)

`--quick`: the networks of the first table on one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tables import arguments, machines, mapped, ratio, table

from archgen.outcomes.points import Outcome, Point
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD


@dataclass(frozen=True)
class Target:
    """A point and what it should reach."""

    arch: str
    model: str
    asked: float
    """In `unit`."""
    unit: str = "cycles"
    """`cycles`, `ms`, `per s` (at least so many samples), or `x` (DRAM bytes over compulsory)."""
    batch: int = 1
    published: float | None = None
    """In `unit`."""

    @property
    def label(self) -> str:
        """`soma-edge resnet50 b4`."""
        return f"{self.arch} {self.model} b{self.batch}"


PUBLISHED = (
    Target("cocco-simba-1c", "resnet50", 4.4, "ms", published=4.59),
    Target("cocco-simba-2c", "resnet50", 2.25, "ms", published=2.48),
    Target("cocco-simba-4c", "resnet50", 1.15, "ms", published=1.39),
    Target("cocco-simba-1c", "googlenet", 1.75, "ms", published=2.05),
    Target("cocco-simba-2c", "googlenet", 0.90, "ms", published=1.04),
    Target("cocco-simba-4c", "googlenet", 0.48, "ms", published=0.54),
    Target("stream-32x32", "resnet50", 5_500_000, published=7_999_335),
    Target("stream-32x32-4c", "resnet18", 1_750_000, published=1_908_277),
    Target("stcp920", "resnet50", 8_726, "per s", 64, published=8_726),
    Target("stcp920", "bert_base", 7.7, "ms", 32, published=7.67),
)
ARRAYS = (
    Target("ascend-310-like", "resnet50", 420_000),
    Target("tests/archs/nvdla-2048.yaml", "resnet50", 2_900_000),  # as when it was asked
    Target("tpu-v1", "resnet50", 950_000),
    Target("tpu-v3-like", "resnet50", 280_000),
    Target("ethos-u65-like", "resnet50", 13_500_000),
    Target("gemmini-16", "resnet50", 24_000_000),
    Target("stcp920", "resnet50", 750_000),
)
BYTES = (
    Target("soma-edge", "bert_base", 1.05, "x"),
    Target("neuroncore-v2-like", "bert_base", 1.1, "x"),
    Target("tpu-v3-like", "bert_base", 1.1, "x"),
    Target("stcp920", "bert_base", 1.1, "x"),
    Target("ascend-310-like", "llama", 1.2, "x"),
    Target("ascend-310-like", "llama:sequence=1024", 1.15, "x"),
    Target("soma-edge", "squeezenet", 1.1, "x"),
    Target("soma-edge", "densenet121", 1.1, "x"),
)
VERDICTS = {None: "-", True: "yes", False: "WRONG"}
COLUMNS = (
    "machine", "network", "batch", "cycles", "ms", "bound", "of it", "DRAM MB", "x compulsory",
    "asked", "", "met", "published", "verified",
)  # fmt: skip


def row(target: Target, outcome: Outcome) -> Sequence[object]:
    """One point beside what was asked of it."""
    head, made = (target.arch, target.model, target.batch), outcome.row
    wanted = (target.asked, target.unit)
    if outcome.status != "ok":
        reason = str(made.get("reason") or outcome.status).split("\n")[0][:60]
        return (*head, *[None] * 6, *wanted, reason, target.published, None)
    cycles, bound = _figure(outcome, "latency_cycles"), _figure(outcome, "bound_cycles")
    moved = _figure(outcome, "dram_read_bytes") + _figure(outcome, "dram_write_bytes")
    over = ratio(moved, _figure(outcome, "compulsory_bytes"))
    reached = {
        "cycles": cycles, "ms": _figure(outcome, "latency_ms"), "x": over,
        "per s": _figure(outcome, "throughput_ips"),
    }[target.unit]  # fmt: skip
    assert reached is not None
    met = reached >= target.asked if target.unit == "per s" else reached <= target.asked
    return (
        *head, round(cycles), _figure(outcome, "latency_ms"), round(bound), ratio(bound, cycles),
        moved / 1e6, over, *wanted, "yes" if met else "no", target.published,
        VERDICTS[made.get("verified")],
    )  # fmt: skip


def _figure(outcome: Outcome, name: str) -> float:
    value = outcome.row[name]
    assert isinstance(value, int | float), name
    return value


def run(target: Target, options: argparse.Namespace) -> Outcome:
    """The point of one target."""
    (arch,) = machines([target.arch])
    point = Point(
        target.label, arch, target.model, target.batch, arch.types[0], verify=options.execute
    )
    outcome = Workbench(STANDARD).run(point)
    print(target.label, outcome.status, file=sys.stderr, flush=True)
    return outcome


def measured(targets: Sequence[Target], options: argparse.Namespace) -> Iterator[Sequence[object]]:
    """Rows of the targets that were asked for."""
    chosen = [t for t in targets if all(word in t.label for word in options.only)]
    outcomes = mapped(partial(run, options=options), chosen, options.jobs)
    return map(row, chosen, outcomes)


def main(given: Sequence[str] | None = None) -> None:
    """Print the tables."""
    options = arguments(__doc__, given)
    if options.quick:
        quick = [target for target in PUBLISHED if target.arch == "cocco-simba-1c"]
        print(table("One core", COLUMNS, measured(quick, options)))
        return
    print(table("Beside published figures", COLUMNS, measured(PUBLISHED, options)))
    print(table("Arrays: ResNet-50, batch 1", COLUMNS, measured(ARRAYS, options)))
    print(table("DRAM bytes", COLUMNS, measured(BYTES, options)))


if __name__ == "__main__":
    main()
