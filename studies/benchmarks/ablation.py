"""What each step of scheduling adds on a machine of 32 cores: ResNet-50, fp16, batch 64.

    python studies/benchmarks/ablation.py [--quick] [--execute] [--jobs N] [--only TEXT]

After GraphTurbo (Zhao et al., OSDI 2023), whose steps gain 2.20x and 1.72x there. Rows: each layer
alone (`none`), groups on chip along a line, along branches, optimal; what passes between groups
through DRAM or through shared memory (`between`); instructions in the order of the tiles and
ordered. `gain` is over the first row. The columns of stages are the matrix engines' utilization:
multiply-accumulates over what all engines could do meanwhile. A group's cycles are divided among
its stages by their busy cycles of the matrix engine. Look at `layer4`, whose small maps leave
arrays idle (18 % -> 64 % in the paper). `--quick`: batch 8, images of 64 pixels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tables import QUICK, Case, Figures, Result, arguments, machines, ratio, run_all, table

from compiler.codegen.issue_order.order import OrderInstructions
from compiler.options import Stages
from compiler.schedule.fusion.optimal import STRATEGIES
from compiler.schedule.residency.activations import KeepTensors
from compiler.schedule.residency.shared_memory import ChooseHomes
from simmodel.arch.record import Arch
from simmodel.trace import OriginTrace

ROWS = tuple(
    (way, home, on)
    for way in ("none", "line", "branch", "optimal")
    for home in ("dram", "shared")
    for on in (False, True)
)
STAGES = ("stem", "layer1", "layer2", "layer3", "layer4", "head")
COLUMNS = (
    "fusion", "between", "ordered", "cycles", "img/s", "gain", "groups", "DRAM MB", "whole",
    *STAGES, "executed",
)  # fmt: skip


def stage_of(origin: OriginTrace) -> str:
    """The stage of a residual network that a node belongs to."""
    first: str = origin.node.split(".")[0]
    if first in STAGES:
        return first
    return "head" if first.startswith(("avgpool", "flatten", "fc")) else "stem"


def utilization(made: Figures, arch: Arch) -> Mapping[str, float]:
    """Matrix utilization by stage, 0..1."""
    cycles: dict[str, float] = defaultdict(float)
    macs: dict[str, int] = defaultdict(int)
    for group in made.groups:
        busy: dict[str, int] = defaultdict(int)
        for origin in group.origins:
            busy[stage_of(origin)] += origin.busy.get("matrix", 0)
            macs[stage_of(origin)] += origin.macs
        total = sum(busy.values())
        for stage, share in busy.items():
            cycles[stage] += group.advance * (share / total if total else 1 / len(busy))
    peak = arch.peak_macs(made.metrics.dtype)
    return {stage: macs[stage] / (peak * cycles[stage]) for stage in cycles if cycles[stage]}


def row(result: Result, slowest: int | None) -> Sequence[object]:
    """One step of the ablation, against the first."""
    made, (way, home, order) = result.figures, result.case.variant.split()
    if made is None:
        return (way, home, order, result.reason, *[None] * (len(COLUMNS) - 4))
    by_stage = utilization(made, result.case.arch)
    return (
        way, home, order, made.cycles, round(made.metrics.throughput), ratio(slowest, made.cycles),
        len(made.groups), made.dram_bytes / 1e6, made.metrics.matrix_utilization,
        *(by_stage.get(stage) for stage in STAGES), result.matched,
    )  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = arguments(__doc__, given)
    (arch,) = machines(["stcp920"])
    model, batch = (f"resnet50{QUICK}", 8) if options.quick else ("resnet50", 64)
    cases = [
        Case(
            arch,
            model,
            batch,
            Stages(
                partition=STRATEGIES[way](),
                order=OrderInstructions(enabled=ordered),
                keep=KeepTensors(enabled=way != "none"),
                homes=ChooseHomes(shared=home == "shared"),
            ),
            f"{way} {home} {'yes' if ordered else 'no'}",
        )
        for way, home, ordered in ROWS
    ]
    results = run_all(cases, options)
    slowest = results[0].figures.cycles if results and results[0].figures else None
    title = f"{arch.name}: {model}, {arch.types[0]}, batch {batch}"
    print(table(title, COLUMNS, [row(result, slowest) for result in results]))


if __name__ == "__main__":
    main()
