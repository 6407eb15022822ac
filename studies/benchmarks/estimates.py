"""How well the cost model predicts the simulator: rank and error over many schedules.

    python studies/benchmarks/estimates.py [--quick] [--execute] [--jobs N] [--only TEXT]

Networks are compiled layer by layer and fused, with the schedules that the search likes best, and
with ones further down its list, halos kept or computed again. Every group of every program gives a
pair: its estimated cycles, and the cycles by which its end is behind the end of all before it.

    rank     Spearman's rank correlation over all schedules of a machine
    within   the same over the schedules of one group, which is what a search asks of estimates;
             the mean over groups of which at least four schedules were simulated
    error    |estimate - simulated| / simulated: median and 90th percentile
    bias     median of estimate / simulated; below 1 the estimates are too low
    network  median error of the sum over a network

Look for a rank above 0.9 and a median error below 10 %. The worst groups follow. `--quick`: two
machines, one network, small images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from tables import QUICK, Case, Result, arguments, machines, run_all, table

from compiler.fuse.strategies import STRATEGIES
from compiler.group import Group
from compiler.layer import Layer
from compiler.schedule import Schedule, Tiled
from compiler.stages import Stages
from compiler.tile.choose_group import GroupSearch
from compiler.tile.choose_tiles import ChooseTiles
from compiler.tile.objective import SCORES
from simmodel.arch import Arch

MACHINES = (
    "soma-edge", "cocco-simba-2c", "stream-32x32", "nvdla-2048", "k230-like", "stcp920",
    "gemmini-16-loop",
)  # fmt: skip
MODELS = ("resnet18", "mobilenet_v2", "googlenet")
SKIPS = (0, 2, 6, 14)
"""How many of the best schedules of every group are passed over."""
COLUMNS = (
    "machine", "schedules", "rank", "within", "groups", "error %", "p90 %", "bias", "network %",
)  # fmt: skip
FAR = ("machine", "network", "variant", "group", "estimate", "simulated", "quotient")
ENOUGH = 4
WORST = 10


@dataclass
class Further(GroupSearch):
    """A search whose best schedules are hidden."""

    skip: int = 0

    def schedules(self, group: Group) -> list[Schedule]:
        """Schedules behind the best `skip`, the last one at least."""
        found = super().schedules(group)
        return found[min(self.skip, len(found) - 1) :] if found else found


@dataclass(frozen=True)
class FurtherTiles(ChooseTiles):
    """Chooses tiles that are not the best by the estimate: something to hold estimates against."""

    skip: int = 0

    def together(self, arch: Arch, slots: int) -> GroupSearch:
        """The search for groups of several layers."""
        usual = super().together(arch, slots)
        return Further(
            arch, slots, usual.cores, self.rolling, breadth=self.breadth, objective=self.objective,
            skip=self.skip,
        )  # fmt: skip

    def candidates(self, layer: Layer, arch: Arch, slots: int) -> Iterator[Tiled]:
        """Schedules of one layer behind the best `skip`."""
        score = SCORES[self.objective]
        found = sorted(super().candidates(layer, arch, slots), key=lambda t: score(t.estimate))
        yield from found[min(self.skip, max(len(found) - 1, 0)) :]


def ways(skips: Sequence[int]) -> Iterator[tuple[Stages, str]]:
    """Passes whose schedules differ."""
    for skip in skips:
        tile = FurtherTiles(skip=skip)
        yield Stages(partition=STRATEGIES["none"](), tile=tile), f"none {skip}"
        yield Stages(partition=STRATEGIES["optimal"](), tile=tile), f"optimal {skip}"
        yield Stages(partition=STRATEGIES["line"](), tile=tile), f"line {skip}"
    for rolling, name in ((True, "rolling"), (False, "recompute")):
        stages = Stages(partition=STRATEGIES["line"]())
        yield replace(stages, tile=ChooseTiles(rolling=rolling)), f"line {name}"


def pairs(results: Sequence[Result]) -> pd.DataFrame:
    """Machine, network, group, estimated and simulated cycles, each schedule once."""
    found = [
        {
            "arch": result.case.arch.name,
            "model": result.case.model,
            "variant": result.case.variant,
            "group": " ".join(group.layers),
            "estimate": group.estimate.total,
            "cycles": group.advance,
        }
        for result in results
        if result.figures is not None
        for group in result.figures.groups
        if group.advance > 0
    ]
    frame = pd.DataFrame(found, columns=["arch", "model", "variant", "group", "estimate", "cycles"])
    frame = frame.astype({"estimate": float, "cycles": float})
    return frame.drop_duplicates(["arch", "model", "group", "estimate", "cycles"])


def rank_correlation(frame: pd.DataFrame) -> float:
    """Spearman's coefficient of estimate and cycles; NaN where one of them is constant."""
    ranks = frame[["estimate", "cycles"]].rank().to_numpy()
    if (ranks.std(axis=0) == 0).any():
        return float("nan")
    return float(np.corrcoef(ranks.T)[0, 1])


def within(frame: pd.DataFrame) -> tuple[float, int]:
    """Mean rank correlation over groups with enough schedules, and how many groups those are."""
    several = [g for _, g in frame.groupby(["arch", "model", "group"]) if len(g) >= ENOUGH]
    known = [value for value in map(rank_correlation, several) if not np.isnan(value)]
    return (float(np.mean(known)) if known else float("nan")), len(known)


def networks(results: Sequence[Result]) -> dict[str, list[float]]:
    """Machine -> relative error of the sum of all groups, for each program."""
    errors: dict[str, list[float]] = defaultdict(list)
    for result in results:
        made = result.figures
        if made is not None:
            estimate = sum(group.estimate.total for group in made.groups)
            errors[result.case.arch.name].append(abs(estimate / made.cycles - 1))
    return errors


def row(name: str, frame: pd.DataFrame, whole: Sequence[float]) -> Sequence[object]:
    """The figures of one machine."""
    quotient = frame["estimate"] / frame["cycles"]
    error = (quotient - 1).abs()
    inside, groups = within(frame)
    return (
        name, len(frame), rank_correlation(frame), inside, groups, f"{100 * error.median():.1f}",
        f"{100 * error.quantile(0.9):.1f}", float(quotient.median()),
        f"{100 * float(np.median(whole)):.1f}",
    )  # fmt: skip


def worst(frame: pd.DataFrame) -> Iterator[Sequence[object]]:
    """Where estimates of the usual schedules are furthest off, in cycles."""
    usual = frame[frame["variant"].isin(["none 0", "optimal 0"])]
    far = (usual["estimate"] - usual["cycles"]).abs().sort_values(ascending=False).index[:WORST]
    for entry in usual.loc[far].to_dict("records"):
        first, *others = str(entry["group"]).split(" ")
        name = f"{first[:40]} and {len(others)} more" if others else first[:40]
        estimate, cycles = float(entry["estimate"]), float(entry["cycles"])
        head = (entry["arch"], entry["model"], entry["variant"], name)
        yield (*head, round(estimate), round(cycles), estimate / cycles)


def main(given: Sequence[str] | None = None) -> None:
    """Print a row for each machine, and the worst groups."""
    options = arguments(__doc__, given)
    archs = machines(MACHINES[:2] if options.quick else MACHINES)
    models = [f"{MODELS[0]}{QUICK}"] if options.quick else list(MODELS)
    chosen = list(ways(SKIPS[:3] if options.quick else SKIPS))
    cases = [
        Case(arch, model, 1, stages, variant)
        for model in models
        for arch in archs
        for stages, variant in chosen
    ]
    results = run_all(cases, options)
    frame, whole = pairs(results), networks(results)
    rows = [row(str(name), own, whole[str(name)]) for name, own in frame.groupby("arch")]
    if len(rows) > 1:
        rows.append(row("all", frame, [error for errors in whole.values() for error in errors]))
    print(table("Estimated against simulated cycles of groups", COLUMNS, rows))
    title = "The furthest off, of the schedules that are usually taken"
    print(table(title, FAR, worst(frame)))
    executed = sorted({result.matched for result in results if result.figures})
    print(f"\nprograms: {len(results)}; executed and matched: {', '.join(executed)}")
    failed = [(r.case.label, r.reason) for r in results if r.figures is None]
    if failed:
        print(table("No program", ("case", "reason"), failed))


if __name__ == "__main__":
    main()
