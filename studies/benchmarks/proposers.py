"""Partitions proposed by evolution against those of the guided search, at equal time.

    python studies/benchmarks/proposers.py [--quick] [--execute] [--jobs N] [--only TEXT]

The guided search (`partition`, Optimal) cuts orders of layers by dynamic programming. Here another
proposer stands behind the same interface: a population of partitions, changed by merging groups,
splitting them, moving a layer over a border, and crossing two parents, judged by the same prices of
groups. It gets as many CPU seconds as the guided search took, and four times as many; `guided` and
the others are cycles as simulated, each at best of two seeds for evolution. `gain`: guided over
evolved, above 1 where evolution finds the better program. `--quick`: one small network.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tables import QUICK, Case, Result, arguments, machines, mapped, ratio, run, table

from compiler.options import Stages
from compiler.schedule.fusion.dependence import members
from compiler.schedule.fusion.optimal import Optimal
from compiler.schedule.fusion.partition import PartitionCosts, PartitionStrategy

MODELS = ("resnet18", "squeezenet", "mobilenet_v2")
MACHINES = ("cocco-simba-1c", "cocco-simba-4c", "ascend-310-like")
SEEDS = (0, 1)
TIMES = (1, 4)
COLUMNS = (
    "machine", "network", "guided", "seconds", *(f"x {times}" for times in TIMES),
    *(f"gain x {times}" for times in TIMES), "executed",
)  # fmt: skip

Partition = tuple[int, ...]
"""Disjoint sets of layers that cover all of them."""


@dataclass(frozen=True)
class Timed(Optimal):
    """The guided search, which says how long it took."""

    spent: list[float] = field(default_factory=list, compare=False)
    """CPU seconds of each partition."""

    def groups(self, costs: PartitionCosts) -> list[int]:
        """As the guided search, timed."""
        begun = time.process_time()
        found = super().groups(costs)
        self.spent.append(time.process_time() - begun)
        return found


@dataclass(frozen=True)
class Evolve(PartitionStrategy):
    """The best partition that a population comes to.

    {a} {b} {c d}   ->   {a b} {c d}   {a} {b} {c} {d}   {a} {b c} {d}
    """

    seconds: float = 1.0
    """CPU seconds that it may take."""
    seed: int = 0
    """Of all its choices."""
    population: int = 16
    """Partitions that live at the same time."""

    def groups(self, costs: PartitionCosts) -> list[int]:
        """The best partition when the time is over."""
        return list(_Population(costs, self, random.Random(self.seed)).best())


class _Population:
    """Partitions, the cheapest first."""

    def __init__(self, costs: PartitionCosts, options: Evolve, chance: random.Random) -> None:
        self.costs, self.options, self.chance = costs, options, chance
        alone = tuple(1 << position for position in members(costs.net.layers))
        self.living = [(self._total(alone), alone)]

    def best(self) -> Partition:
        """The cheapest one when the time is over."""
        end = time.process_time() + self.options.seconds
        while time.process_time() < end:
            child = self._child()
            if child is None or any(child == known for _, known in self.living):
                continue
            self.living.append((self._total(child), child))
            self.living.sort()
            del self.living[self.options.population :]
        return self.living[0][1]

    def _total(self, groups: Partition) -> float:
        net = self.costs.net
        order = net.sequence(groups) or ()
        return self.costs.added(mask & net.layers for mask in order)

    def _child(self) -> Partition | None:
        """One parent with a few changes, or a crossing of two; None where it cannot run."""
        made = self._parent()
        if self.chance.random() < 0.3:
            made = self._crossed(made, self._parent())
        for _ in range(self.chance.randint(1, 3)):
            change = self.chance.choice((self._merged, self._merged, self._split, self._moved))
            made = change(made)
        return tuple(sorted(made)) if self._possible(made) else None

    def _possible(self, groups: Partition) -> bool:
        net = self.costs.net
        fused = [group for group in groups if group.bit_count() > 1]
        legal = all(net.legal(group) and net.convex(group) for group in fused)
        return legal and net.sequence(groups) is not None

    def _parent(self) -> Partition:
        """The better one of two."""
        return min(self.chance.choice(self.living), self.chance.choice(self.living))[1]

    def _merged(self, groups: Partition) -> Partition:
        """A group and one that reads what it makes, as one."""
        one = self.chance.choice(groups)
        readers = [g for g in groups if g != one and any(self._after(i) & g for i in members(one))]
        if not readers:
            return groups
        two = self.chance.choice(readers)
        return (*(group for group in groups if group not in (one, two)), one | two)

    def _after(self, position: int) -> int:
        return self.costs.net.after[position]

    def _split(self, groups: Partition) -> Partition:
        """A group as two."""
        one = self.chance.choice(groups)
        layers = list(members(one))
        if len(layers) < 2:
            return groups
        place = self.chance.randrange(1, len(layers))
        front = sum(1 << position for position in layers[:place])
        return (*(group for group in groups if group != one), front, one ^ front)

    def _moved(self, groups: Partition) -> Partition:
        """A group's last layer in the group of a layer that reads it."""
        one = self.chance.choice(groups)
        last = 1 << (one.bit_length() - 1)
        readers = [g for g in groups if g != one and self._after(last.bit_length() - 1) & g]
        if not readers or one == last:
            return groups
        two = self.chance.choice(readers)
        rest = (group for group in groups if group not in (one, two))
        return (*rest, one ^ last, two | last)

    def _crossed(self, one: Partition, two: Partition) -> Partition:
        """The groups of `one` before a place, those of `two` behind it, layers between alone."""
        place = self.chance.randrange(1, max(2, self.costs.net.layers.bit_length()))
        front = [group for group in one if group >> place == 0]
        back = [group for group in two if group & ((1 << place) - 1) == 0]
        covered = sum(front) | sum(back)
        alone = (1 << position for position in members(self.costs.net.layers & ~covered))
        return (*front, *back, *alone)


@dataclass(frozen=True)
class Compared:
    """One machine and network."""

    guided: Result
    seconds: float
    evolved: tuple[Result, ...]
    """The best for each of `TIMES`."""


def compared(case: Case) -> Compared:
    """The guided search, then evolution with the same time and more."""
    timed = Timed()
    guided = run(replace(case, stages=Stages(partition=timed)))
    seconds = sum(timed.spent)
    found = []
    for times in TIMES:
        tried = [
            run(replace(case, stages=Stages(partition=Evolve(seconds=times * seconds, seed=seed))))
            for seed in SEEDS
        ]
        found.append(min(tried, key=_cycles))
    return Compared(guided, seconds, tuple(found))


def _cycles(result: Result) -> float:
    return result.figures.cycles if result.figures else float("inf")


def row(case: Case, made: Compared) -> Sequence[object]:
    """Cycles beside each other."""
    guided = made.guided.figures
    if guided is None:
        return (case.arch.name, case.model, None, None, *[None] * 4, made.guided.reason)
    cycles = [found.figures.cycles if found.figures else None for found in made.evolved]
    gains = (ratio(guided.cycles, taken) for taken in cycles)
    head = (case.arch.name, case.model, guided.cycles, made.seconds)
    return (*head, *cycles, *gains, made.guided.matched)


def cases(quick: bool) -> Iterator[Case]:
    """Every machine with every network."""
    for arch in machines(MACHINES[:1] if quick else MACHINES):
        for model in MODELS[1:2] if quick else MODELS:
            yield Case(arch, model + QUICK if quick else model)


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = arguments(__doc__, given)
    chosen = [c for c in cases(options.quick) if all(word in c.label for word in options.only)]
    rows = map(row, chosen, mapped(compared, chosen, options.jobs))
    print(table("Guided search and evolution at equal time", COLUMNS, rows))


if __name__ == "__main__":
    main()
