"""What each step of scheduling adds on a machine of 32 cores: ResNet-50, fp16, batch 64.

    python studies/benchmarks/ablation.py [--quick] [--execute] [--jobs N] [--only TEXT]

After GraphTurbo (Zhao et al., OSDI 2023), whose orders of instances gain 2.20x over results on
chip, and whose instructions across layers 1.72x over that. Each row has what the one before has:

    DRAM only      each layer alone, everything through DRAM, instructions in the order of tiles
    shared         results in shared memory, where there is room and it is quicker
    local          results stay in local memory
    groups         layers in groups: images and tiles of one pass through several layers at a time
    instances      early layers for some of the images at a time, late ones for all
    cross-layer    instructions of neighbouring tiles, layers and groups ordered together

`step` is over the row before, `gain` over the first. The columns of stages are the matrix engines'
utilization: multiply-accumulates over what all engines could do meanwhile. A group's cycles are
divided among its stages by their busy cycles of the matrix engine. Look at `layer4`, whose small
maps leave arrays idle (18 % -> 64 % in the paper). `--quick`: batch 8, images of 64 pixels.

A user says the same with options of `archgen study` (the last row needs none):

    --effort 0 --fusion none --pass order.enabled=false --pass instances.enabled=false
    ... --pass homes.shared=true
    ... --pass keep.enabled=true
    --effort 0 --pass order.enabled=false --pass instances.enabled=false
    --effort 0 --pass order.enabled=false
    --effort 0
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tables import QUICK, Case, Figures, Result, arguments, machines, ratio, run_all, table

from archgen.scheduling import Scheduling
from simmodel.arch.record import Arch
from simmodel.trace import OriginTrace

UNORDERED = ("order.enabled", False)
WHOLE = UNORDERED, ("instances.enabled", False)
STEPS: Mapping[str, Scheduling] = {
    "DRAM only": Scheduling("none", effort=0, passes=WHOLE),
    "shared": Scheduling("none", effort=0, passes=(*WHOLE, ("homes.shared", True))),
    "local": Scheduling(
        "none", effort=0, passes=(*WHOLE, ("homes.shared", True), ("keep.enabled", True))
    ),
    "groups": Scheduling(effort=0, passes=WHOLE),
    "instances": Scheduling(effort=0, passes=(UNORDERED,)),
    "cross-layer": Scheduling(effort=0),
}
STAGES = ("stem", "layer1", "layer2", "layer3", "layer4", "head")
COLUMNS = (
    "with", "cycles", "img/s", "step", "gain", "groups", "DRAM MB", "whole",
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


def row(result: Result, before: float | None, slowest: float | None) -> Sequence[object]:
    """One step of the ablation, against the one before it and the first."""
    made, name = result.figures, result.case.variant
    if made is None:
        return (name, result.reason, *[None] * (len(COLUMNS) - 2))
    by_stage = utilization(made, result.case.arch)
    return (
        name, made.cycles, round(made.metrics.throughput), ratio(before, made.cycles),
        ratio(slowest, made.cycles), len(made.groups), made.dram_bytes / 1e6,
        made.metrics.matrix_utilization, *(by_stage.get(stage) for stage in STAGES), result.matched,
    )  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = arguments(__doc__, given)
    (arch,) = machines(["stcp920"])
    model, batch = (f"resnet50{QUICK}", 8) if options.quick else ("resnet50", 64)
    cases = [Case(arch, model, batch, way.stages, name) for name, way in STEPS.items()]
    results = run_all(cases, options)
    cycles = [result.figures.cycles if result.figures else None for result in results]
    title = f"{arch.name}: {model}, {arch.types[0]}, batch {batch}"
    rows = (row(each, one, cycles[0]) for each, one in zip(results, [None, *cycles], strict=False))
    print(table(title, COLUMNS, rows))


if __name__ == "__main__":
    main()
