"""A case: one machine, one graph and the options of one point of a study, from one seed.

As files a case is a folder with `machine.yaml`, `model.onnx` and `command`: what anyone needs to
repeat it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import yaml

from archgen.models.load import SourceModel
from archgen.outcomes.points import Point
from archgen.scheduling import DEFAULT, Scheduling
from archgen.schema import load_arch
from compiler.api import HALOS, OBJECTIVES, STRATEGIES
from fuzzing.graphs import graph, odd
from fuzzing.machines import Tree, machine

MACHINE, MODEL, COMMAND = "machine.yaml", "model.onnx", "command"


@dataclass(frozen=True)
class Case:
    """What is tried."""

    machine: Tree
    model: onnx.ModelProto
    dtype: str
    scheduling: Scheduling = DEFAULT
    host: bool = True

    @property
    def batch(self) -> int:
        """Samples in one inference, as the file fixes them."""
        return SourceModel("fuzz", self.model).batch

    def command(self, folder: Path | str) -> str:
        """The command line that repeats it from the files in `folder`."""
        way = self.scheduling
        words = [
            "archgen study", f"{folder}/{MACHINE}", "-m", f"{folder}/{MODEL}",
            "--batch", str(self.batch), "--dtype", self.dtype, "--fusion", way.fusion,
            "--halo", way.halo, "--objective", way.objective, "--effort", str(way.effort),
            "--jobs 1 --no-plots --fresh",
        ]  # fmt: skip
        return " ".join([*words, *(() if self.host else ("--no-host",))])

    def write(self, folder: Path) -> None:
        """Machine, model and command as files in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(self.machine, sort_keys=False)
        (folder / MACHINE).write_text(text, encoding="utf-8")
        (folder / MODEL).write_bytes(self.model.SerializeToString())
        (folder / COMMAND).write_text(self.command(folder) + "\n", encoding="utf-8")

    def point(self, folder: Path) -> Point:
        """Its point of a study, after `write`. Raises ArchError."""
        return Point(
            key=folder.name, arch=load_arch(folder / MACHINE), model=str(folder / MODEL),
            batch=self.batch, dtype=self.dtype, host=self.host,
            scheduling=self.scheduling,
        )  # fmt: skip


def case_of(seed: int, quick: bool = False, many: bool = False, strange: bool = False) -> Case:
    """The case of a seed; with `quick` a smaller one, with `many` on a machine of many cores, with
    `strange` of few operators of any kind on values of odd extents (`graphs.odd`)."""
    rng = random.Random(f"archgen {seed} {quick}" + " many" * many + " strange" * strange)
    tree = machine(rng, f"m{seed}", many)
    dtype = rng.choice(tree["types"])
    coded = rng.random() < (0.4 if dtype == "int8" else 0.06)
    effort = rng.choice([0, 0, 0, 1] if quick else [0, 0, 0, 1, 1, 1, 1, 2])
    way = Scheduling(
        fusion=rng.choice(["optimal", "optimal", *sorted(STRATEGIES)]),
        halo=rng.choice(["auto", "auto", *sorted(HALOS)]),
        objective=rng.choice(["latency", "latency", *sorted(OBJECTIVES)]), effort=effort,
    )  # fmt: skip
    model = odd(rng) if strange else graph(rng, quick=quick, coded=coded, many=many)
    return Case(tree, model, dtype, way, host=rng.random() < 0.9)


def plainer(case: Case) -> list[Case]:
    """The same machine and graph with one option less each."""
    usual, way = Scheduling(effort=0), case.scheduling
    found = [
        replace(case, scheduling=replace(way, **{name: getattr(usual, name)}))
        for name in ("effort", "fusion", "halo", "objective")
        if getattr(way, name) != getattr(usual, name)
    ]
    return found if case.host else [*found, replace(case, host=True)]
