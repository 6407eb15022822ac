"""How little on-chip memory a network needs, and what it costs in cycles and DRAM traffic.

    python studies/benchmarks/microcontroller.py [--quick] [--execute] [--jobs N] [--only TEXT]

A microcontroller's NPU, MobileNets of 224 x 224 pixels in int8. Targets: MobileNetV1 within 300 kB
(Arm's Vela, cascading), MobileNetV2 within 172 kB (MCUNetV2, inference by patches). Rows:

    latency     the machine as it is
    target      in a local memory of the target's size
    smallest    in the smallest local memory for which the network compiles, in 16 KiB steps
    memory      the machine as it is, with `objective: memory`; with `--memory` only, because its
                small tiles make long programs that take minutes to verify

`used kB` is what buffers take at most, constants included; `maps kB` is DRAM traffic of feature
maps, inputs and outputs, `weights kB` that of constants, which are read again where they cannot
stay. `slower` is the time of the row over that of the first. `--quick`: images of 64 pixels.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from tables import QUICK, Case, Result, arguments, machines, ratio, run, run_all, table, with_local

from archgen.process.start import collect_rarely
from compiler.options import Stages
from compiler.schedule.tiling.choose_tiles import ChooseTiles
from simmodel.arch.record import Arch

TARGETS: Mapping[str, int] = {"mobilenet_v1": 300_000, "mobilenet_v2": 172_000}
SMALL: Mapping[str, int] = {f"mobilenet_v1{QUICK}": 60_000, f"mobilenet_v2{QUICK}": 50_000}
STEP = 16384
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


def smallest(arch: Arch, model: str, execute: bool) -> Result | None:
    """What fits the smallest local memory, by bisection; None where not even the whole does."""
    low, high = 0, arch.memories.local.size // STEP
    best: Result | None = None
    while high - low > 1:
        middle = (low + high) // 2
        tried = run(Case(sized(arch, middle * STEP), model, 1, Stages(), "smallest"), execute)
        fits = tried.figures is not None
        said = "fits" if fits else tried.reason
        print(f"{middle * STEP / 1e3:.0f} kB: {said}", file=sys.stderr, flush=True)
        low, high, best = (low, middle, tried) if fits else (middle, high, best)
    return best


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
        Case(sized(arch, target), model, 1, Stages(), "target"),
    ]
    if options.memory:
        cases.append(Case(arch, model, 1, MEMORY, "memory"))
    results = run_all(cases, options)
    if not options.quick:
        least = smallest(arch, model, options.execute)
        results += [least] if least is not None else []
    return [row(result, target, results[0]) for result in results]


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = arguments(__doc__, given, [("memory", "with `objective: memory`, too")])
    collect_rarely()
    (arch,) = machines(["mcu-npu"])
    targets = SMALL if options.quick else TARGETS
    chosen = {m: t for m, t in targets.items() if all(word in m for word in options.only)}
    options.only = []
    made = [line for model, target in chosen.items() for line in rows(arch, model, target, options)]
    print(table(f"{arch.name}: on-chip memory and its price", COLUMNS, made))


if __name__ == "__main__":
    main()
