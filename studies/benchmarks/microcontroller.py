"""How little on-chip memory a network needs, and what it costs in cycles and DRAM traffic.

    python studies/benchmarks/microcontroller.py [--quick] [--execute] [--jobs N] [--only TEXT]

A microcontroller's NPU, MobileNets of 224 x 224 pixels in int8. Targets: MobileNetV1 within 300 kB
(Arm's Vela, cascading), MobileNetV2 within 172 kB (MCUNetV2, inference by patches). Rows:

    latency     the machine as it is
    memory      the same with `objective: memory`
    target      for latency again, in a local memory of the target's size
    smallest    for latency, in the smallest local memory for which the network compiles
    smallest m  the same with `objective: memory`

`kB` is what is in use at most, constants included; `maps kB` is DRAM traffic of feature maps, inputs
and outputs, `weights kB` that of constants, which are read again where they cannot stay. `slower` is
the time of the row over that of the first. `--quick`: images of 64 pixels.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from tables import QUICK, Case, Result, arguments, machines, ratio, run, run_all, table, with_local

from archgen.threads import collect_rarely
from compiler.stages import Stages
from compiler.tile.choose_tiles import ChooseTiles
from simmodel.arch import Arch

TARGETS: Mapping[str, int] = {"mobilenet_v1": 300_000, "mobilenet_v2": 172_000}
SMALL: Mapping[str, int] = {f"mobilenet_v1{QUICK}": 60_000, f"mobilenet_v2{QUICK}": 50_000}
STEP = 4096
"""Bytes by which the smallest memory is found."""
MEMORY = Stages(tile=ChooseTiles(objective="memory"))
COLUMNS = (
    "network", "variant", "local kB", "used kB", "target", "", "cycles", "slower", "maps kB",
    "weights kB", "executed",
)  # fmt: skip


def sized(arch: Arch, size: int) -> Arch:
    """`arch` with a local memory of `size` bytes, in whole words of its banks."""
    word = arch.memories.local.banks * arch.memories.local.bank_width
    return with_local(arch, size=size // word * word)


def smallest(arch: Arch, model: str, stages: Stages, variant: str) -> Case:
    """The case with the smallest local memory in steps of 4 KiB, by bisection."""
    low, high = 0, arch.memories.local.size // STEP
    while high - low > 1:
        middle = (low + high) // 2
        tried = Case(sized(arch, middle * STEP), model, 1, stages, variant)
        if run(tried).figures is None:
            low = middle
        else:
            high = middle
    return Case(sized(arch, high * STEP), model, 1, stages, variant)


def row(result: Result, target: int, first: Result) -> Sequence[object]:
    """One variant against the first."""
    case, made = result.case, result.figures
    head = (case.model, case.variant, case.arch.memories.local.size / 1e3)
    if made is None:
        return (*head, None, target / 1e3, None, None, None, None, result.reason, None)
    return (
        *head, made.on_chip / 1e3, target / 1e3, "met" if made.on_chip <= target else "above",
        made.cycles, ratio(made.cycles, first.figures.cycles if first.figures else None),
        made.map_bytes / 1e3, made.constant_bytes / 1e3, result.matched,
    )  # fmt: skip


def rows(
    arch: Arch, model: str, target: int, options: argparse.Namespace
) -> list[Sequence[object]]:
    """All variants of one network."""
    cases = [
        Case(arch, model, 1, Stages(), "latency"),
        Case(arch, model, 1, MEMORY, "memory"),
        Case(sized(arch, target), model, 1, Stages(), "target"),
        smallest(arch, model, Stages(), "smallest"),
        smallest(arch, model, MEMORY, "smallest m"),
    ]
    results = run_all(cases, options)
    return [row(result, target, results[0]) for result in results]


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = arguments(__doc__, given)
    collect_rarely()
    (arch,) = machines(["mcu-npu"])
    targets = SMALL if options.quick else TARGETS
    chosen = {m: t for m, t in targets.items() if all(word in m for word in options.only)}
    options.only = []
    made = [line for model, target in chosen.items() for line in rows(arch, model, target, options)]
    print(table(f"{arch.name}: on-chip memory and its price", COLUMNS, made))


if __name__ == "__main__":
    main()
