"""A network in segments on cores of their own, through which inferences flow.

    cores 0:4    A0  A1  A2  A3           A: layers of the first segment, B of the second; while
    cores 4:8        B0  B1  B2  B3       cores 4:8 are at one inference, 0:4 are at the next

Each core sees the weights of its own layers only: where they fit beside what the layers need, one
load does for all inferences. Small maps give work to few cores, and fewer of them share a layer.
The slowest segment says how often an inference ends; so layers are cut where that is least, as they
take alone on so many cores (dynamic programming over layers and cores). Each segment is then
compiled like a network of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

from compiler.context import Context, Network
from compiler.decisions.group_costs import GroupCosts
from compiler.errors import DoesNotFit
from compiler.geometry.tile_trace import Unwalkable
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.pipeline import search_schedule
from compiler.schedule.fusion.dependence import passing
from compiler.schedule.residency.shared_memory import ChooseHomes
from compiler.schedule.residency.table import ResidencyTable
from compiler.schedule.residency.weights import PinConstants
from compiler.schedule_ir.group import Group, reserving
from compiler.schedule_ir.layer import Layer
from compiler.search.best_program import JUDGED
from compiler.target.group_facts import Unholdable
from compiler.tensor_ir.nest import HostNode, NestGraph

SHARE = 0.75
"""Part of a memory that constants may take between inferences."""
ROUNDS = 3
"""Times that a network is cut at most."""
BISECTIONS = 12
"""Steps in which the time of the slowest segment is found."""


@dataclass(frozen=True)
class Segment:
    """Parts of a network in a row, and how many cores they have."""

    first: int
    end: int
    cores: int


def layer_pipeline(
    network: Network[Layer], ctx: Context, inferences: int
) -> tuple[Step, ...] | None:
    """The steps of a network whose segments work on cores of their own; None where one segment
    does best, or they do not fit.

    Layers are quicker together than alone, by how much shows when a segment is compiled: then the
    network is cut again.
    """
    if ctx.costs.cores == 1 or len(network.parts) < 2 or ctx.stages.tile.objective not in JUDGED:
        return None
    cuts = _Cuts.of(network, ctx.costs, inferences)
    pin = replace(ctx.stages.pin, share=SHARE, inferences=inferences)
    stages = replace(ctx.stages, pin=pin, homes=ChooseHomes(shared=False))

    @cache
    def compiled(segment: Segment) -> tuple[Step, ...]:
        some = replace(stages, tile=replace(stages.tile, cores=segment.cores))
        own = replace(ctx.with_stages(some), known=ctx.costs)
        return search_schedule(_network(network, segment), own).steps

    best, least = list[Segment](), math.inf
    for _ in range(ROUNDS):
        segments = cuts.balanced()
        try:
            cycles = [_cycles(compiled(segment)) for segment in segments]
        except (DoesNotFit, Unwalkable, Unholdable):
            break
        if max(cycles) >= least:
            break
        best, least = segments, max(cycles)
        for segment, taken in zip(segments, cycles, strict=True):
            cuts.note(segment, taken)
    firsts = _first_cores(best)
    placed = ((step, firsts[each.first]) for each in best for step in compiled(each))
    steps = (s.from_core(first) if isinstance(s, PlacedGroup) else s for s, first in placed)
    return tuple(steps) if len(best) > 1 else None


def _cycles(steps: Sequence[Step]) -> float:
    """Of groups one after another."""
    groups = (step for step in steps if isinstance(step, PlacedGroup))
    return sum(step.plan.schedule.estimate.total for step in groups)


def _first_cores(segments: Sequence[Segment]) -> dict[int, int]:
    """Of each segment the first core, by its first part: larger ones first, so that those of equal
    sizes share clusters."""
    order = sorted(segments, key=lambda each: -each.cores)
    starts = accumulate((each.cores for each in order), initial=0)
    return {each.first: start for each, start in zip(order, starts, strict=False)}


def _network(network: Network[Layer], segment: Segment) -> Network[Layer]:
    """A segment as a network: what passes between it and others is its input and output."""
    inputs, outputs = passing(network.graph, network.parts, segment.first, segment.end)
    graph = replace(network.graph, inputs=inputs, outputs=outputs)
    return Network(graph, network.parts[segment.first : segment.end])


# Where a network is cut.


@dataclass
class _Part:
    """A part by itself: cycles by number of cores, and what its constants take of memories."""

    loading: Mapping[int, float]
    """Where it loads its constants."""
    loaded: Mapping[int, float]
    """Where they are there."""
    held: Mapping[str, int]
    """Memory -> bytes of its constants."""
    together: float = 1.0
    """What it takes beside its neighbours, as a part of that."""


@dataclass
class _Cuts:
    """Finds the segments of a network."""

    parts: Sequence[_Part]
    counts: Sequence[int]
    """Cores that a segment may have."""
    total: int
    """Cores of the machine."""
    rooms: Mapping[str, float]
    """Memory -> bytes of each core that constants may take."""

    @classmethod
    def of(cls, network: Network[Layer], costs: GroupCosts, inferences: int) -> _Cuts:
        counts = [1 << bit for bit in range(costs.cores.bit_length())]
        by_count = {count: costs.on_cores(count) for count in counts}
        pin = replace(costs.stages.pin, share=1.0, worth=0.0, inferences=inferences)
        parts = [_alone(part, by_count, network.graph, pin) for part in network.parts]
        rooms = {role: SHARE * m.size for role, m in costs.arch.memories.on_chip().items()}
        return cls(parts, counts, costs.cores, rooms)

    def balanced(self) -> list[Segment]:
        """The segments of which the slowest takes least, on all cores together."""
        *_, (whole, high) = self._ending_at(len(self.parts))
        found, low = [whole], 0.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            within = self._within(middle)
            found, low, high = (within, low, middle) if within else (found, middle, high)
        return found

    def _within(self, limit: float) -> list[Segment]:
        """The segments on fewest cores of which none takes longer than `limit`; nothing where they
        are too few."""
        best: list[tuple[float, list[Segment]]] = [(0, [])]
        for end in range(1, len(self.parts) + 1):
            least, last = math.inf, None
            for segment, cycles in self._ending_at(end, limit):
                cores = best[segment.first][0] + segment.cores
                if cycles <= limit and cores < least:
                    least, last = cores, segment
            before = [] if last is None else best[last.first][1]
            best.append((least, [] if last is None else [*before, last]))
        return best[-1][1] if best[-1][0] <= self.total else []

    def _ending_at(self, end: int, limit: float = math.inf) -> Iterator[tuple[Segment, float]]:
        """Segments that end before a part, shorter ones and those on few cores first, with their
        cycles; as far as on most cores they take no longer than `limit`."""
        held = dict.fromkeys(self.rooms, 0)
        loading, loaded = dict.fromkeys(self.counts, 0.0), dict.fromkeys(self.counts, 0.0)
        cycles = 0.0
        for first in reversed(range(end)):
            if cycles > limit:
                return
            part = self.parts[first]
            for role, size in part.held.items():
                held[role] += size
            fits = all(size <= self.rooms[role] for role, size in held.items())
            for count in self.counts:
                loading[count] += part.together * part.loading[count]
                loaded[count] += part.together * part.loaded[count]
                yield Segment(first, end, count), (loaded if fits else loading)[count]

    def note(self, segment: Segment, cycles: float) -> None:
        """Say what a segment takes, of which that of its parts alone was an estimate."""
        guess = next(guess for each, guess in self._ending_at(segment.end) if each == segment)
        for part in self.parts[segment.first : segment.end]:
            part.together *= cycles / (guess or 1.0)


def _alone(
    part: Layer | HostNode, costs: Mapping[int, GroupCosts], graph: NestGraph, pin: PinConstants
) -> _Part:
    if isinstance(part, HostNode):
        nothing = dict.fromkeys(costs, 0.0)
        return _Part(nothing, nothing, {})
    group, prices = Group((part,), (part.result.name,)), next(iter(costs.values()))
    rows, table = pin.rows([group], graph, prices), ResidencyTable([], prices)
    there = group.beside(
        {constant.name: constant.pinned(row, loads=False) for constant, row in rows},
        reserving(*(table.reserve(row) for _, row in rows)),
    )
    loading = {count: own.price(group) for count, own in costs.items()}
    loaded = {count: min(loading[count], own.price(there)) for count, own in costs.items()}
    held: dict[str, int] = {}
    for constant, _ in rows:
        held[constant.memory] = held.get(constant.memory, 0) + constant.bytes
    return _Part(loading, loaded, held)
