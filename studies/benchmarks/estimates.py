"""How well the cost model predicts the simulator: error and rank over many schedules.

    python studies/benchmarks/estimates.py [--quick] [--jobs N] [--only TEXT]

Every shipped machine compiles eight networks, fused and layer by layer. Of each program some groups
are taken, from the longest to the shortest, and of each group several of the schedules that the
search came across, from the best by its estimate on: each is planned, placed and emitted as a
program of this group alone and simulated, so that both figures are of the same thing.

    median, p95   |estimate - simulated| / simulated of groups alone, per cent
    bias          median of estimate / simulated; below 1 the estimates are too low
    within        Spearman's rank correlation over the schedules of one group, which is what a
                  search asks of estimates: the mean over groups of which at least four schedules
                  were simulated and differ by more than `SAME`
    lost          by how many per cent the schedule that the estimates like best is slower than the
                  best simulated, mean over the same groups
    network       median error of a whole program, calls of the host included, per cent: constants
                  of a group are taken to arrive while the group before is at work

Look for a median below 5 %, a 95th percentile below 15 %, `within` of 0.8. The furthest off follow.
`--quick`: few machines and networks, small images. `--only` takes machines, networks or variants.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from tables import Case, arguments, compiled, machines, mapped, table

from archgen.schema import shipped_names
from compiler.context import CompileResult, ScheduledNetwork, ScheduleSearch
from compiler.decisions.group_costs import GroupCosts
from compiler.errors import CompilerError
from compiler.estimate.estimate import expected
from compiler.geometry.tile_trace import Unwalkable
from compiler.memory.on_chip import PlacedGroup
from compiler.options import Stages, stages_for
from compiler.pipeline import emit_program
from compiler.schedule.fusion.strategies import STRATEGIES
from compiler.schedule.tiling.objective import SCORES
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Schedule, single
from compiler.target.group_facts import Unholdable
from simmodel.machine.run import simulate

MODELS = (
    "resnet18:image=32", "mobilenet_v2:image=32", "squeezenet:image=32", "googlenet:image=32",
    "densenet121:image=32", "vgg16:image=32,width=0.25,hidden=512",
    "vit_tiny:image=64,layers=2", "bert_base:sequence=16,layers=2,hidden=256,heads=4",
)  # fmt: skip
QUICK = (("gemmini-16-loop", "stcp920", "cocco-simba-2c"), ("resnet18:image=32", MODELS[-1]))
WAYS = {"fused": stages_for(0), "apart": Stages(partition=STRATEGIES["none"]())}
GROUPS = 2
"""Groups of a program of which schedules are simulated."""
PLACES = (0, 1, 2, 4, 8)
"""Positions in the list of a group's schedules, the best by its estimate first."""
ENOUGH = 4
SAME = 0.01
"""Simulated schedules of a group that differ by less have no order to be predicted."""
WORST = 12
COLUMNS = (
    "machine", "schedules", "median %", "p95 %", "bias", "groups", "within", "lost %", "network %",
)  # fmt: skip
FAR = ("machine", "network", "way", "group", "estimate", "simulated", "quotient")


@dataclass(frozen=True)
class Pair:
    """One schedule of a group: expected and simulated."""

    arch: str
    model: str
    way: str
    group: str
    place: int
    """In the list of the group's schedules."""
    estimate: float
    cycles: int


@dataclass(frozen=True)
class Measured:
    """A program, and schedules of some of its groups."""

    case: Case
    pairs: tuple[Pair, ...]
    estimate: float
    cycles: int
    """0: there is no program, for `reason`."""
    reason: str = ""
    seconds: float = 0.0


def measured(case: Case) -> Measured:
    """Compile and simulate a program, then schedules of its groups alone."""
    begun = time.perf_counter()
    result, made = compiled(case)
    if result.figures is None or made is None or made.search is None:
        return Measured(case, (), 0.0, 0, result.reason)
    whole = expected(made, case.arch)
    found = tuple(pairs(case, made))
    took = time.perf_counter() - begun
    return Measured(case, found, whole, result.figures.cycles, seconds=took)


def pairs(case: Case, made: CompileResult) -> Iterator[Pair]:
    """Estimated and simulated cycles of schedules of some groups of a program, each once."""
    assert made.search is not None
    costs = made.search.costs
    for group in sampled([decision.group for decision in made.decisions], costs):
        listed = schedules(group, costs)
        seen: set[tuple[float, int]] = set()
        for place in PLACES:
            if place >= len(listed):
                break
            cycles = alone(listed[place], made.search)
            figures = listed[place].estimate.total, cycles
            if cycles and figures not in seen:
                seen.add(figures)
                name = f"{group.name} #{group.index}"
                yield Pair(case.arch.name, case.model, case.variant, name, place, *figures)


def sampled(groups: Sequence[Group], costs: GroupCosts) -> list[Group]:
    """Groups of different kinds, from the dearest to the cheapest."""
    kinds = {costs.search.outlines.of(group): group for group in reversed(groups)}
    ordered = sorted(kinds.values(), key=costs.price, reverse=True)
    chosen = np.linspace(0, len(ordered) - 1, min(GROUPS, len(ordered)))
    return [ordered[round(position)] for position in chosen]


def schedules(group: Group, costs: GroupCosts) -> list[Schedule]:
    """What the search has to choose from, the best first."""
    if len(group.layers) > 1 or group.residents:
        return costs.schedules(group)
    score = SCORES[costs.stages.tile.objective]
    found = sorted(costs.candidates(group), key=lambda tiled: score(tiled.estimate))
    return [single(tiled, group) for tiled in found]


def alone(schedule: Schedule, search: ScheduleSearch) -> int:
    """Simulated cycles of a program of this schedule only; 0 where it finds no place."""
    try:
        step = PlacedGroup(*search.costs.place(schedule, None))
        code = emit_program(ScheduledNetwork(search, (step,)), search.context)
    except (CompilerError, Unwalkable, Unholdable):
        return 0
    return simulate(code.program, search.costs.arch).cycles


def rank_correlation(frame: pd.DataFrame) -> float:
    """Spearman's coefficient of estimate and cycles; NaN where one of them is constant."""
    ranks = frame[["estimate", "cycles"]].rank().to_numpy()
    if (ranks.std(axis=0) == 0).any():
        return float("nan")
    return float(np.corrcoef(ranks.T)[0, 1])


def within(frame: pd.DataFrame) -> tuple[int, float, float]:
    """How many groups have enough schedules that differ, their mean rank correlation, and the mean
    per cent that the best by its estimate is behind the best simulated."""
    several = [
        own
        for _, own in frame.groupby(["arch", "model", "way", "group"])
        if len(own) >= ENOUGH and own["cycles"].max() > (1 + SAME) * own["cycles"].min()
    ]
    if not several:
        return 0, float("nan"), float("nan")
    ranks = [value for value in map(rank_correlation, several) if not np.isnan(value)]
    lost = [
        float(own["cycles"].loc[own["estimate"].idxmin()] / own["cycles"].min()) for own in several
    ]
    return len(several), float(np.mean(ranks)), 100 * float(np.mean(lost) - 1)


def row(name: str, frame: pd.DataFrame, whole: Sequence[float]) -> Sequence[object]:
    """The figures of one machine; `whole`: quotients of its programs."""
    quotient = frame["estimate"] / frame["cycles"]
    error = 100 * (quotient - 1).abs()
    count, inside, lost = within(frame)
    network = 100 * float(np.median(np.abs(np.array(whole) - 1)))
    return (
        name, len(frame), f"{error.median():.1f}", f"{error.quantile(0.95):.1f}",
        float(quotient.median()), count, inside, f"{lost:.1f}", f"{network:.1f}",
    )  # fmt: skip


def worst(frame: pd.DataFrame) -> Iterator[Sequence[object]]:
    """Where the estimate of a best schedule is furthest off, as a quotient."""
    best = frame[frame["place"] == 0]
    far = np.log(best["estimate"] / best["cycles"]).abs().sort_values(ascending=False)
    for entry in best.loc[far.index[:WORST]].to_dict("records"):
        estimate, cycles = float(entry["estimate"]), float(entry["cycles"])
        head = (entry["arch"], entry["model"], entry["way"], str(entry["group"])[:48])
        yield (*head, round(estimate), round(cycles), estimate / cycles)


def cases(options: argparse.Namespace) -> list[Case]:
    """What the options ask for."""
    names, models = QUICK if options.quick else (shipped_names(), MODELS)
    found = [
        Case(arch, model, 1, stages, way)
        for model in models
        for arch in machines(names)
        for way, stages in WAYS.items()
    ]
    return [case for case in found if all(word in case.label for word in options.only)]


def main(given: Sequence[str] | None = None) -> None:
    """Print a row for each machine, and the worst groups."""
    options = arguments(__doc__, given)
    chosen = cases(options)
    results: list[Measured] = []
    for number, result in enumerate(mapped(measured, chosen, options.jobs), 1):
        results.append(result)
        said = f"{result.estimate / result.cycles:.3f}" if result.cycles else result.reason
        line = f"[{number}/{len(chosen)}] {result.case.label}: {said} ({result.seconds:.0f} s)"
        print(line, file=sys.stderr, flush=True)
    frame = pd.DataFrame([pair for result in results for pair in result.pairs])
    whole: dict[str, list[float]] = defaultdict(list)
    for result in results:
        if result.cycles:
            whole[result.case.arch.name].append(result.estimate / result.cycles)
    rows = [row(str(name), own, whole[str(name)]) for name, own in frame.groupby("arch")]
    if len(rows) > 1:
        rows.append(row("all", frame, [each for some in whole.values() for each in some]))
    print(table("Estimated against simulated cycles of groups alone", COLUMNS, rows))
    print(table("The furthest off, of the schedules that estimates like best", FAR, worst(frame)))
    failed = [(result.case.label, result.reason) for result in results if not result.cycles]
    if failed:
        print(table("No program", ("case", "reason"), failed))


if __name__ == "__main__":
    main()
