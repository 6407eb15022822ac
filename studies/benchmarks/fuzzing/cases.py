"""A case: one machine, one graph and the options of one point of a study, from one seed.

As files a case is a folder with `machine.yaml`, `model.onnx` and `command`: what anyone needs to
repeat it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import yaml

from archgen.models.load import SourceModel
from archgen.outcomes.points import Point
from archgen.scheduling import DEFAULT, Scheduling
from archgen.schema import load_arch
from compiler.api import HALOS, OBJECTIVES, STRATEGIES
from fuzzing.graphs import graph, odd
from fuzzing.machines import BLOCKS, Tree, machine

MACHINE, MODEL, COMMAND = "machine.yaml", "model.onnx", "command"


@dataclass(frozen=True)
class Case:
    """What is tried."""

    machine: Tree
    model: onnx.ModelProto
    dtype: str
    scheduling: Scheduling = DEFAULT
    host: bool = True
    formats: str = ""
    """Of operands in blocks, as behind a network's name: activations=mxfp8."""
    in_flight: int = 1
    scattered: int = 0
    """Seed of cores of their own for the steps of its schedule, which is tried as well; 0: none."""

    @property
    def batch(self) -> int:
        """Samples in one inference, as the file fixes them."""
        return SourceModel("fuzz", self.model).batch

    def command(self, folder: Path | str) -> str:
        """The command line that repeats it from the files in `folder`."""
        way = self.scheduling
        words = [
            "archgen study", f"{folder}/{MACHINE}", "-m", self.named(folder),
            "--batch", str(self.batch), "--dtype", self.dtype, "--fusion", way.fusion,
            "--halo", way.halo, "--objective", way.objective, "--effort", str(way.effort),
            "--jobs 1 --no-plots --fresh",
        ]  # fmt: skip
        words += ["--no-host"] * (not self.host)
        words += [f"--in-flight {self.in_flight}"] * (self.in_flight > 1)
        return " ".join(words)

    def named(self, folder: Path | str) -> str:
        """The network in `folder` as a study names it."""
        return f"{folder}/{MODEL}" + f":{self.formats}" * bool(self.formats)

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
            key=folder.name, arch=load_arch(folder / MACHINE), model=self.named(folder),
            batch=self.batch, dtype=self.dtype, host=self.host,
            scheduling=self.scheduling, in_flight=self.in_flight,
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
    formats = formats_of(tree, dtype)
    deep = bool(formats) and not coded
    model = odd(rng) if strange else graph(rng, quick=quick, coded=coded, many=many, blocks=deep)
    case = Case(tree, model, dtype, way, host=rng.random() < 0.9)
    own = random.Random(f"beside {seed} {quick} {many} {strange}")
    cores = tree["clusters"] * tree["cores"]
    return replace(
        case, formats=formats if deep else "", in_flight=own.choice([1, 1, 1, 2, 3]),
        scattered=own.randrange(1, 100) if cores > 1 and own.random() < 0.5 else 0,
    )  # fmt: skip


def formats_of(tree: Tree, dtype: str) -> str:
    """What has blocks in a network that suits the array of `tree`; empty: nothing."""
    rates = tree.get("matrix", {}).get("rate", ())
    for blocks in BLOCKS:
        if f"{dtype}_{blocks}" in rates:
            return f"activations={blocks}" if blocks in rates else f"weights={blocks}"
    return ""


def plainer(case: Case) -> list[Case]:
    """The same machine and graph with one option less each."""
    usual, way = Scheduling(effort=0), case.scheduling
    found = [
        replace(case, scheduling=replace(way, **{name: getattr(usual, name)}))
        for name in ("effort", "fusion", "halo", "objective")
        if getattr(way, name) != getattr(usual, name)
    ]
    fields: dict[str, Any] = {"formats": "", "in_flight": 1, "scattered": 0}
    found += [
        replace(case, **{name: value})
        for name, value in fields.items()
        if getattr(case, name) != value
    ]
    return found if case.host else [*found, replace(case, host=True)]
