"""More never hurts: one field of a machine rises step by step, and no step may be slower.

    python studies/benchmarks/ladders.py --jobs 2
    python studies/benchmarks/ladders.py --quick

The one idea: each ladder is a study of its own, once with every machine by itself (`isolated`) and
once with schedules lent (docs/studies.md). A rise is by how much a step is slower than the best
step below it; what is left with schedules lent is what the hardware does, and the study says why.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from tables import arguments, table

from archgen.process.start import single_threaded
from archgen.studies.design import Design
from archgen.studies.options import Running
from archgen.studies.plan import load_study
from archgen.studies.results import Study
from archgen.studies.sweep import run_study

MACHINES = ("soma-edge", "ethos-u65-like", "k230-like", "stream-32x32-4c", "mcu-npu")
NETWORKS = ("squeezenet", "mobilenet_v2", "resnet18", "googlenet")
IMAGE = 64
"""Rows and columns of the networks' inputs."""
KIB = 1024
FIELDS: dict[str, tuple[Any, ...]] = {
    "memories.local.size": tuple(n * 96 * KIB for n in (2, 3, 4, 5, 6, 8)),
    "cores": (1, 2, 3, 4, 6),
    "memories.dram.bandwidth": tuple(f"{n} GB/s" for n in (1, 2, 4, 8, 16)),
    "memories.local.banks": (2, 4, 8, 16),
    "front_end.queue_depth": (1, 2, 4, 8, 16),
}
"""Fields, each with values from little to much."""
BAD = 0.005
"""A rise that a study should not show."""


@dataclass(frozen=True)
class Ladder:
    """One field of one machine, for one network."""

    machine: str
    network: str
    field: str

    @property
    def label(self) -> str:
        """`soma-edge resnet18 cores`."""
        return f"{self.machine} {self.network} {self.field}"

    def design(self, execute: bool) -> Design:
        """The study of all steps."""
        machines = {"extends": self.machine, "sweep": {self.field: list(FIELDS[self.field])}}
        return load_study({
            "name": "ladder", "archs": [machines], "models": [f"{self.network}:image={IMAGE}"],
            "compiler": {"effort": 0}, "verify": execute,
        })  # fmt: skip


def ladders() -> Iterator[Ladder]:
    """Every machine with every network; fields take turns."""
    fields = list(FIELDS)
    for i, machine in enumerate(MACHINES):
        for j, network in enumerate(NETWORKS):
            yield Ladder(machine, network, fields[(i + j) % len(fields)])


def climbed(ladder: Ladder, jobs: int, execute: bool) -> tuple[Study, Study]:
    """Every step by itself, and with schedules lent."""
    design = ladder.design(execute)
    with tempfile.TemporaryDirectory() as folder:
        running = Running(jobs, Path(folder), plots=False)
        alone, lent = (run_study(replace(design, isolated=own), running) for own in (True, False))
    return alone, lent


def cycles(study: Study) -> list[float]:
    """Of each step that has an answer, from little to much."""
    return [float(value) for value in study.frame["latency_cycles"].dropna()]


def rise(steps: Sequence[float]) -> float:
    """Largest share by which a step is slower than the best one below it."""
    best = list(accumulate(steps, min))
    rises = (now / least - 1 for now, least in zip(steps[1:], best, strict=False))
    return max(0.0, *rises)


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    single_threaded()
    chosen = [each for each in ladders() if all(word in each.label for word in options.only)]
    rows = []
    for ladder in chosen[:2] if options.quick else chosen:
        alone, lent = climbed(ladder, options.jobs, options.execute)
        own, shared = cycles(alone), cycles(lent)
        said = int(lent.frame["note"].fillna("").str.contains("slower than").sum())
        taken = int(lent.frame["schedule_from"].notna().sum())
        row = (
            ladder.machine, ladder.network, ladder.field, len(own), own[0], own[-1],
            100 * rise(own), 100 * rise(shared), taken, said,
        )  # fmt: skip
        print(*row, flush=True)
        rows.append(row)
    head = (
        "machine", "network", "field", "steps", "first", "last", "rise alone %", "rise lent %",
        "lent", "by hardware",
    )  # fmt: skip
    print(table("Cycles of ladders: one field from little to much", head, rows))
    for name, column in (("alone", 6), ("lent", 7)):
        bad = sum(row[column] > 100 * BAD for row in rows)
        print(f"{name}: {bad} of {len(rows)} ladders rise by more than {100 * BAD} %")


if __name__ == "__main__":
    main()
