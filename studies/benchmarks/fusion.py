"""What fusing layers gains where DRAM is the limit: `optimal` against one group for each layer.

    python studies/benchmarks/fusion.py [--quick] [--execute] [--jobs N] [--only TEXT]

Every machine in `archs/`, six convolutional networks, batch 1. Unfused, `DRAM-bound` is the share
of the cycles that the program's own DRAM traffic takes at full rate; only where it is half or more
the fused program is made. Look at `gain` and its geometric mean (aim: 1.5 and more), at DRAM
megabytes before and after, and at the on-chip peak of the whole chip: below 6 MB for large networks
where the machine has more. `--quick`: small images, a few machines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tables import QUICK, Case, Result, arguments, machines, on_chip_size, ratio, run_all, table

from archgen.schema import shipped_names
from compiler.options import Stages
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import KeepTensors
from compiler.schedule.residency.shared_memory import ChooseHomes

MODELS = ("resnet18", "resnet50", "mobilenet_v2", "googlenet", "densenet121", "squeezenet")
BOUND = 0.5
"""Share of the cycles that DRAM traffic takes where DRAM bounds a program."""
PEAK = 6e6
COLUMNS = (
    "machine", "network", "unfused", "DRAM-bound", "fused", "gain", "MB before", "MB after",
    "peak MB", "of MB", "groups", "executed",
)  # fmt: skip


def bounded(result: Result) -> float | None:
    """The share of a program's cycles that its DRAM traffic takes at full rate."""
    made = result.figures
    return None if made is None else made.dram_cycles(result.case.arch) / made.cycles


def row(plain: Result, fused: Result) -> Sequence[object]:
    """Both programs of one machine and network."""
    case, before, after = plain.case, plain.figures, fused.figures
    head = (case.arch.name, case.model, before.cycles if before else None, bounded(plain))
    if before is None or after is None:
        return (*head, *[None] * 6, fused.reason if before else plain.reason, None)
    return (
        *head, after.cycles, ratio(before.cycles, after.cycles),
        before.dram_bytes / 1e6, after.dram_bytes / 1e6,
        after.on_chip / 1e6, on_chip_size(case.arch) / 1e6,
        len(after.groups), f"{plain.matched} {fused.matched}",
    )  # fmt: skip


def summary(pairs: Sequence[tuple[Result, Result]]) -> str:
    """The geometric mean of all gains, and who needs more than 6 MB on chip."""
    done = [(p.figures, f.figures, f.case.arch) for p, f in pairs if p.figures and f.figures]
    if not done:
        return "nothing to compare"
    gains = [before.cycles / after.cycles for before, after, _ in done]
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    large = [after for _, after, arch in done if on_chip_size(arch) > PEAK]
    below = sum(after.on_chip < PEAK for after in large)
    slower = sum(gain < 1 for gain in gains)
    return (
        f"geometric mean of {len(gains)} gains: {mean:.3f} (aim 1.5); slower when fused: {slower}; "
        f"peak below 6 MB: {below} of the {len(large)} on machines that have more"
    )


def main(given: Sequence[str] | None = None) -> None:
    """Print the table and the mean."""
    options = arguments(__doc__, given)
    names = ("soma-edge", "cocco-simba-2c", "nvdla-2048") if options.quick else shipped_names()
    models = [f"{m}{QUICK}" for m in MODELS[:3]] if options.quick else list(MODELS)
    dram = ChooseHomes(shared=False)
    none = Stages(partition=Unfused(), keep=KeepTensors(enabled=False), homes=dram)
    optimal = Stages()
    archs = machines(names)
    cases = [Case(arch, model, 1, none, "unfused") for model in models for arch in archs]
    plain = run_all(cases, options)
    chosen = [r for r in plain if (bounded(r) or 0.0) >= BOUND]
    more = [Case(r.case.arch, r.case.model, 1, optimal) for r in chosen]
    words = [word for word in options.only if word != "unfused"]
    options.only = words
    fused = run_all(more, options)
    pairs = list(zip(chosen, fused, strict=True))
    print(table("Fusion where DRAM bounds the unfused program", COLUMNS, [row(*p) for p in pairs]))
    print(summary(pairs))
    failed = [(r.case.arch.name, r.case.model, r.reason) for r in plain if r.figures is None]
    if failed:
        print(table("No unfused program", ("machine", "network", "reason"), failed))
    left = [r.case.label for r in plain if r.figures and (bounded(r) or 0.0) < BOUND]
    print(f"\nDRAM takes less than half of the unfused time: {len(left)} of {len(plain)}")


if __name__ == "__main__":
    main()
