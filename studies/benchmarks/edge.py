"""SoMa's edge platform (Cai et al., HPCA 2025): distance from the no-stall bound.

    python studies/benchmarks/edge.py [--quick] [--execute] [--jobs N] [--only TEXT]

ResNet-50, int8. `bound` is the time below which the same program cannot get however it is ordered:
all its matrix work, or all its DRAM traffic at full rate, whichever is longer. `above` is the
distance from it; SoMa reports 3.1 %. The rows of a batch switch off one thing each:

    all           the compiler as it is
    no room       nothing is loaded before the group before has left its place (PlaceBuffers.ahead)
    no order      instructions are issued in the order of the tiles (OrderInstructions)
    neither       both off: double buffers within a group only. SoMa's gain over this is 1.16x
    one slot      neither, and streamed buffers have one slot: no overlap of load and work at all

`gain` is the time of the row over that of `all`. `--quick`: ResNet-18 at batch 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tables import Case, Result, arguments, machines, ratio, run_all, table

from compiler.codegen.issue_order.order import OrderInstructions
from compiler.memory.on_chip import PlaceBuffers
from compiler.options import Stages
from compiler.plan.make_plan import MakePlan

NO_ROOM, NO_ORDER = PlaceBuffers(ahead=False), OrderInstructions(enabled=False)
VARIANTS: Mapping[str, Stages] = {
    "all": Stages(),
    "no room": Stages(alloc=NO_ROOM),
    "no order": Stages(order=NO_ORDER),
    "neither": Stages(alloc=NO_ROOM, order=NO_ORDER),
    "one slot": Stages(plan=MakePlan(slots=1), alloc=NO_ROOM, order=NO_ORDER),
}
COLUMNS = (
    "network", "batch", "variant", "cycles", "matrix", "DRAM", "bound", "above %", "gain", "groups",
    "executed",
)  # fmt: skip


def row(result: Result, best: int | None) -> Sequence[object]:
    """One variant, against `best`, the cycles of all together."""
    case, made = result.case, result.figures
    head = (case.model, case.batch, case.variant)
    if made is None:
        return (*head, *[None] * 6, result.reason, None)
    matrix, dram = made.matrix_cycles(case.arch), made.dram_cycles(case.arch)
    bound = max(matrix, dram)
    above = f"{100 * (made.cycles / bound - 1):.1f}"
    return (
        *head, made.cycles, round(matrix), round(dram), round(bound), above,
        ratio(made.cycles, best), len(made.groups), result.matched,
    )  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = arguments(__doc__, given)
    (arch,) = machines(["soma-edge"])
    model, batches = ("resnet18", (1,)) if options.quick else ("resnet50", (1, 4, 16))
    cases = [
        Case(arch, model, batch, stages, variant)
        for batch in batches
        for variant, stages in VARIANTS.items()
    ]
    results = run_all(cases, options)
    usual = [result for result in results if result.case.variant == "all"]
    best = {r.case.batch: r.figures.cycles for r in usual if r.figures}
    rows = [row(result, best.get(result.case.batch)) for result in results]
    print(table(f"{arch.name}: distance from the no-stall bound", COLUMNS, rows))


if __name__ == "__main__":
    main()
