"""Levers of the report against what they bring: the first ones applied, compiled and simulated.

    python studies/benchmarks/levers.py [--quick] [--execute] [--only TEXT] [--bounds] [--usual]

A lever's gain holds for the same program (simulated), for one that was made for the changed machine
at effort 0 (compiled anew), or is an estimate; the changed machine gets a program of its own here,
at effort 0, with `--usual` at effort 1. `told %` and `is %` are the shares of the time that the
report promises and that are saved; `off` their difference in points. `--bounds` applies levers that
have a bound alone too, which may be far above what is saved. Small images. `--quick`: one machine,
one network.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tables import arguments, table

from archgen.outcomes.bottleneck import AT_MOST
from archgen.report.account import account
from archgen.report.levers import Lever, levers
from archgen.report.points import point_views
from archgen.schema import load_arch
from archgen.schema.rewritten import changed
from archgen.studies.results import Study
from archgen.studies.sweep import study
from archgen.toolchain import STANDARD, Toolchain
from simmodel.arch.record import Arch

HERE = Path(__file__).parent
MACHINES = (
    str(HERE / "dense.yaml"),
    "gemmini-16",
    "ethos-u65-like",
    "cocco-simba-1c",
    "nvdla-2048",
)
MODELS = ("mobilenet_v2:image=64", "resnet18:image=64")
FIRST = 3
COLUMNS = ("machine", "network", "change", "known by", "told %", "is %", "off", "more mm2")


@dataclass(frozen=True)
class Applied:
    """A lever, and the share of the time that it saves."""

    lever: Lever
    saved: float | None
    """None: the changed machine has no result."""

    @property
    def off(self) -> float | None:
        """Points between what was told and what is."""
        return None if self.saved is None else 100 * (self.lever.gain - self.saved)


def applied(arch: Arch, model: str, options: argparse.Namespace) -> Iterator[Applied]:
    """The first levers of a machine on a network, each compiled for and simulated."""
    base = _run([arch], model, STANDARD, options)
    if base.outcomes[0].status != "ok":
        return
    own = account(point_views(base)[0], base.outcomes[0])
    found = [lever for lever in levers(arch, [own]) if lever.fields]
    kept = [lever for lever in found if options.bounds or lever.way != AT_MOST][:FIRST]
    others = [changed(arch, lever.fields) for lever in kept]
    named = [each.model_copy(update={"name": f"{arch.name}-{number}"})
             for number, each in enumerate(others) if each is not None]  # fmt: skip
    after = _run(named, model, replace(STANDARD, tries=False), options) if named else base
    for lever, outcome in zip(kept, after.outcomes, strict=False):
        cycles = outcome.row.get("latency_cycles")
        before = own.point.get("latency_cycles")
        yield Applied(lever, 1 - cycles / before if isinstance(cycles, int) else None)


def _run(archs: Sequence[Arch], model: str, tools: Toolchain, options: argparse.Namespace) -> Study:
    return study(archs, [model], effort=int(options.usual), verify=options.execute, plots=False,
                 isolated=True, executor="here", tools=tools)  # fmt: skip


def rows(made: Sequence[tuple[str, str, Applied]]) -> Iterator[Sequence[object]]:
    """One for each lever."""
    for machine, model, each in made:
        lever, saved = each.lever, each.saved
        yield (
            machine, model, lever.title, lever.way, _points(lever.gain), _points(saved),
            None if each.off is None else f"{each.off:+.1f}", f"{lever.price.area:.3f}",
        )  # fmt: skip


def _points(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"


def main(given: Sequence[str] | None = None) -> None:
    """Print the table, and how far levers are off in the middle and at most."""
    flags = [("bounds", "apply levers that have a bound alone too"),
             ("usual", "compile at the usual effort")]  # fmt: skip
    options = arguments(__doc__, given, flags)
    machines = MACHINES[:1] if options.quick else MACHINES
    models = MODELS[1:] if options.quick else MODELS
    made = []
    for arch in map(load_arch, machines):
        for model in models:
            if all(text in f"{arch.name} {model}" for text in options.only):
                made += [(arch.name, model, each) for each in applied(arch, model, options)]
                print(f"{arch.name} {model}", file=sys.stderr, flush=True)
    print(table("Levers, told and applied", COLUMNS, rows(made)))
    tried = [each for *_, each in made if each.off is not None and each.lever.way != AT_MOST]
    off = [abs(each.off or 0.0) for each in tried]
    if off:
        less = sum((each.saved or 0.0) <= 0 for each in tried)
        print(f"\n{len(off)} levers that were tried: off by {statistics.median(off):.1f} points in "
              f"the middle, {max(off):.1f} at most; {less} save nothing")  # fmt: skip


if __name__ == "__main__":
    main()
