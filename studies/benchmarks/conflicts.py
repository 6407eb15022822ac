"""What placement that knows of banks saves: slots of buffers in banks of their own, or anywhere.

    python studies/benchmarks/conflicts.py [--quick] [--execute] [--jobs N] [--only TEXT]

Machines whose local memory has few banks (at most 16) or contiguous ones, as they are and, as
`blocked`, with contiguous banks and streams that meet in one bank slowed by a half beyond sharing
it. `blind` places without regard to banks, `aware` with. Conflict columns are thousands of cycles
that engines of all cores waited for ports or banks. `gain` is blind over aware cycles, `fewer` the
share of the conflict cycles that is gone. Look at `fewer` in blocked memories; interleaved ones
spread every buffer over all banks, so nothing can change there. `--quick`: three machines, small
images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tables import QUICK, Case, Result, arguments, machines, ratio, run_all, table, with_local

from archgen.schema import shipped_names
from compiler.memory.on_chip import PlaceBuffers
from compiler.options import Stages
from simmodel.arch.record import Arch

MODELS = ("resnet18", "mobilenet_v2")
FEW = 16
PENALTY = 0.5
BLIND, AWARE = Stages(alloc=PlaceBuffers(apart=False, conflicts="blind")), Stages()
COLUMNS = (
    "machine", "banks", "memory", "network", "blind", "aware", "gain", "conflicts", "aware",
    "fewer %", "executed",
)  # fmt: skip


def variants(archs: Sequence[Arch]) -> Iterator[tuple[Arch, str]]:
    """Machines where banks matter, as they are and with contiguous banks."""
    for arch in archs:
        local = arch.memories.local
        if local.banks > FEW and local.mapping != "blocked":
            continue
        yield arch, local.mapping
        if 1 < local.banks <= FEW:
            changed = with_local(arch, mapping="blocked", conflict_penalty=PENALTY)
            yield changed, f"blocked +{PENALTY}"


def row(memory: str, blind: Result, aware: Result) -> Sequence[object]:
    """Both placements on one machine."""
    case, before, after = blind.case, blind.figures, aware.figures
    head = (case.arch.name, case.arch.memories.local.banks, memory, case.model)
    if before is None or after is None:
        reason = aware.reason if before else blind.reason
        return (*head, *[None] * 5, reason, None)
    waits = [made.trace.idle("conflict") for made in (before, after)]
    fewer = f"{100 * (1 - waits[1] / waits[0]):.1f}" if waits[0] else None
    return (
        *head, before.cycles, after.cycles, ratio(before.cycles, after.cycles),
        round(waits[0] / 1e3), round(waits[1] / 1e3), fewer, f"{blind.matched} {aware.matched}",
    )  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = arguments(__doc__, given)
    names = ("k230-like", "soma-edge", "mcu-npu") if options.quick else shipped_names()
    models = [f"{MODELS[0]}{QUICK}"] if options.quick else list(MODELS)
    chosen = list(variants(machines(names)))
    cases = [
        Case(arch, model, 1, stages, f"{memory} {name}")
        for model in models
        for arch, memory in chosen
        for stages, name in ((BLIND, "blind"), (AWARE, "aware"))
    ]
    options.only = [word for word in options.only if word not in ("blind", "aware")]
    results = run_all(cases, options)
    pairs = zip(results[::2], results[1::2], strict=True)
    rows = [row(blind.case.variant.rsplit(" ", 1)[0], blind, aware) for blind, aware in pairs]
    print(table("Placement blind to banks and aware of them", COLUMNS, rows))


if __name__ == "__main__":
    main()
