"""Latency of whole networks, int8, batch 1, against published schedulers of the same machines.

    python studies/benchmarks/latency.py [--quick] [--execute] [--jobs N] [--only TEXT]

First table: Cocco's machine (Tan et al., ASPLOS 2024) with 1, 2 and 4 cores, milliseconds. Look at
`gain`: above 1 is quicker than published; `aim` is what a good schedule of this machine should
reach. Second table: Stream's machine (Symons et al., IEEE TC 2024), cycles. `floor` is the model's
multiply-accumulates at the full rate, or all weights once through DRAM, whichever is longer.
`--quick`: one core, the smaller network of each table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from tables import Case, Result, arguments, machines, ratio, run_all, table


@dataclass(frozen=True)
class Published:
    """A figure from a paper; milliseconds or cycles."""

    arch: str
    model: str
    figure: float
    aim: float | None = None


COCCO = (
    Published("cocco-simba-1c", "resnet50", 4.59, 4.2),
    Published("cocco-simba-2c", "resnet50", 2.48, 2.2),
    Published("cocco-simba-4c", "resnet50", 1.39, 1.2),
    Published("cocco-simba-1c", "googlenet", 2.05),
    Published("cocco-simba-2c", "googlenet", 1.04),
    Published("cocco-simba-4c", "googlenet", 0.54),
)
STREAM = (
    Published("stream-32x32", "resnet50", 7_999_335),
    Published("stream-32x32", "resnet18", 3_863_768),
    Published("stream-32x32-4c", "resnet18", 1_908_277),
)


def cocco_row(known: Published, result: Result) -> Sequence[object]:
    """Milliseconds beside those of the paper."""
    head = (known.arch, known.model)
    if result.figures is None:
        return (*head, None, known.figure, None, known.aim, result.reason, None)
    took = result.figures.metrics.latency_ms
    met = "" if known.aim is None else "met" if took <= known.aim else "missed"
    gain = ratio(known.figure, took)
    return (*head, took, known.figure, gain, known.aim, met, result.matched)


def stream_row(known: Published, result: Result) -> Sequence[object]:
    """Cycles beside those of the paper."""
    head = (known.arch, known.model)
    if result.figures is None:
        return (*head, None, int(known.figure), None, None, result.reason, None)
    made = result.figures
    gain = ratio(known.figure, made.cycles)
    floor = round(made.metrics.roofline_cycles)
    return (
        *head, made.cycles, int(known.figure), gain, floor, made.metrics.efficiency, result.matched,
    )  # fmt: skip


def measured(
    known: Sequence[Published], options: argparse.Namespace
) -> list[tuple[Published, Result]]:
    """The published cases that were asked for, measured."""
    archs = {arch.name: arch for arch in machines(dict.fromkeys(row.arch for row in known))}
    rows = {Case(archs[row.arch], row.model).label: row for row in known}
    cases = [Case(archs[row.arch], row.model) for row in known]
    return [(rows[result.case.label], result) for result in run_all(cases, options)]


def main(given: Sequence[str] | None = None) -> None:
    """Print both tables."""
    options = arguments(__doc__, given)
    cocco = [row for row in COCCO if not options.quick or row == COCCO[3]]
    stream = [row for row in STREAM if not options.quick or row == STREAM[1]]
    columns = ("machine", "network", "ms", "published", "gain", "aim", "", "executed")
    rows = [cocco_row(*pair) for pair in measured(cocco, options)]
    print(table("Cocco's machine, int8, batch 1, milliseconds", columns, rows))
    columns = ("machine", "network", "cycles", "published", "gain", "floor", "of it", "executed")
    rows = [stream_row(*pair) for pair in measured(stream, options)]
    print(table("Stream's machine, int8, batch 1, cycles", columns, rows))


if __name__ == "__main__":
    main()
