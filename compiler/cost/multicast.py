"""Cores that load alike: how many, how one load serves all of them, and what that takes.

Parts of a result differ along the dimensions that are cut. Cores whose parts differ along no
dimension that an operand is indexed by load the same of it:

    4 cores, pixels x channels cut 2 x 2    map      indexed by pixels      2 copies, 2 cores each
                                            weights  indexed by channels    2 copies, 2 cores each

Each of these cores loads a part, and gives it to all: by a load that writes to all of them, by
copies between their memories, or through a memory that they share:

    DRAM -> local of each, a part -> shared memory, all parts -> local of each, the other parts

The search asks here what loads take, and emission asks here which loads to share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from compiler.cost.overlap import copy_rate, far_rate, network
from compiler.geometry.cuts import channel_axis
from compiler.geometry.tile_trace import TileTracer
from compiler.schedule_ir.group import Group
from compiler.tensor_ir.bounds import Box, empty, volume
from simmodel.arch.element_types import size_of
from simmodel.arch.record import PEER_TOKENS, Arch
from simmodel.isa.copy import link_latency

EARLY = 3
"""Slots of a buffer from which on cores may load their parts of what is passed on through shared
memory one load ahead: one slot is worked on, one is filled by others' parts, and one by their
own."""


@dataclass(frozen=True)
class MulticastRoute:
    """How one core's load reaches others."""

    load: str
    """Engine that loads from memory."""
    last: str
    """Engine that brings a part to where others have it: the same, one that copies between cores,
    or one that stores to the memory that they share."""
    gain: float
    """A load is shared where that is so many times as quick: cores that wait for each other lose
    some of it."""
    fetch: str = ""
    """Engine by which each takes the others' parts from shared memory; empty: they are given."""
    room: int = 0
    """Bytes of each shared memory that parts may take on their way."""
    seen_by: int = 0
    """Cores that see one shared memory, where parts go through it."""
    reach: int = 0
    """Neighbours that share loads, as far as tokens and memory go; 0: all."""

    @property
    def direct(self) -> bool:
        """Whether the load itself writes to all."""
        return self.load == self.last

    @property
    def staged(self) -> bool:
        """Whether parts go through shared memory."""
        return self.fetch != ""

    def reaches(self, memory: str, far: str = "dram") -> bool:
        """Whether what is loaded from `far` to `memory` can be given to other cores, and is better
        not taken by each of them from where it lies."""
        if self.staged and far == "shared":
            return False
        return self.direct or memory == "local"

    def holds(self, size: Any, cores: int, alike: Any) -> Any:
        """Whether `size` bytes find room on their way, of each `alike` of `cores` cores: beside
        those of the step before."""
        sets = np.maximum(min(cores, self.seen_by or cores) / alike, 1)
        return np.bool_(not self.staged) | (2 * size * sets <= self.room)

    def passing(self, size: Any, arch: Arch, cores: int = 1) -> Any:
        """Cycles until others can have a part of `size` bytes that was loaded, and know it, while
        all `cores` pass on theirs."""
        signal = arch.front_end.signal.cycles(arch.clock)
        if self.direct:
            return signal + size / network(arch, "dram", "local", everyone=True)[0]
        if self.staged:
            return signal + _shared_copy_cycles(size, arch, self.last, cores, store=True)
        engine = arch.copy_[self.last]
        far = arch.memories.local.latency.cycles(arch.clock) + link_latency(arch, "local", "local")
        rate, hops = network(arch, "local", "local")
        start = signal + engine.startup.cycles(arch.clock) + far + hops
        return start + size / min(engine.bandwidth.at(arch.clock), rate)

    def fetching(self, size: Any, arch: Arch, cores: int = 1) -> Any:
        """Cycles in which a core takes `size` bytes of others' parts from shared memory."""
        return _shared_copy_cycles(size, arch, self.fetch, cores) if self.staged else 0.0

    def pays(self, alone: Any, part: Any, passing: Any, fetching: Any = 0.0) -> Any:
        """Whether to load a part in `part` cycles, pass it on and fetch the others', rather than
        all in `alone`: one part is passed on while the next one is loaded."""
        quicker = np.maximum(part, passing) * self.gain < alone
        return quicker & (part + passing + fetching < alone)


def _shared_copy_cycles(
    size: Any, arch: Arch, engine: str, cores: int, *, store: bool = False
) -> Any:
    shared, copier = arch.memories.shared, arch.copy_[engine]
    assert shared is not None
    ends = ("local", "shared") if store else ("shared", "local")
    start = copier.startup.cycles(arch.clock) + shared.latency.cycles(arch.clock)
    rate = min(copy_rate(arch, copier, "shared"), far_rate(arch, "shared", cores, store=store))
    return start + link_latency(arch, *ends) + network(arch, *ends)[1] + size / rate


def find_multicast_route(arch: Arch, gain: float, room: float = 0.0) -> MulticastRoute | None:
    """How loads reach several cores; None where nothing does, or cores have too few tokens for
    each other. `room`: part of shared memory that may hold what is on its way."""
    load = arch.copy_engine("dram", "local")
    if load != arch.copy_engine(arch.constants, "local"):
        return None  # what several cores share are constants before all
    reach = _token_reach(arch, arch.core_count)
    if load is None or reach == 1:
        return None
    if arch.copy_[load].broadcast:
        return MulticastRoute(load, load, gain, reach=reach)
    between = arch.copy_engine("local", "local")
    if between is not None and arch.copy_[between].broadcast:
        return MulticastRoute(load, between, gain, reach=reach)
    # Through a memory that several cores see: an engine that loads from there as well has taken
    # what is there before it begins the next load.
    shared = arch.memories.shared
    store, fetch = arch.copy_engine("local", "shared"), arch.copy_engine("shared", "local")
    if shared is None or store is None or fetch != load:
        return None
    seen_by = arch.cores if shared.level == "cluster" else arch.core_count
    reach = _token_reach(arch, seen_by) or seen_by
    found = MulticastRoute(load, store, gain, fetch, int(room * shared.size), seen_by, reach)
    return found if reach > 1 and found.room else None


def _token_reach(arch: Arch, cores: int) -> int:
    """How many neighbours of `cores` have tokens for each other, in equal sets; 0: all have."""
    most = arch.token_peers
    return 0 if 1 < cores <= most else -(-cores // -(-cores // most))


@dataclass(frozen=True)
class Cores:
    """Cores that work on one part each of the same result."""

    count: int
    cuts: tuple[Any, ...] = ()
    """Parts along each of its dimensions; empty where it does not matter."""
    even: tuple[Any, ...] = ()
    """Whether all parts have one size along each of these."""
    looped: bool = False
    """Whether loops over tiles of the parts are around all that is loaded."""
    way: MulticastRoute | None = None
    """How loads are shared; None: they are not."""

    @classmethod
    def of(cls, parts: Sequence[Box], way: MulticastRoute | None) -> Cores:
        """The cores of `parts`, one for each; in what order they lie does not matter."""
        if way is None or len(parts) < 2:
            return cls(len(parts))
        spans = [frozenset(column) for column in zip(*parts, strict=True)]
        even = (len({size for _, size in column}) == 1 for column in spans)
        cuts = _within(parts, way.reach) if 0 < way.reach < len(parts) else map(len, spans)
        return cls(len(parts), tuple(cuts), tuple(even), way=way)

    @classmethod
    def of_group(
        cls, parts: Sequence[Box], same: Collection[int], way: MulticastRoute | None, *,
        looped: bool,
    ) -> Cores:  # fmt: skip
        """The same for parts of the results of a group: but for the axes along which all its layers
        have the `same` positions, parts of other layers have halos, and are taken to be uneven."""
        found = cls.of(parts, way)
        even = tuple(alike and d in same for d, alike in enumerate(found.even))
        return replace(found, even=even, looped=looped) if found.cuts else found

    def for_rank(self, rank: int) -> Cores:
        """The same for a layer of a group, whose result has `rank` dimensions: batch and rows are
        what groups cut, and where both lie in one dimension they cut that."""
        if not self.cuts or rank == len(self.cuts):
            return self
        channels = channel_axis(len(self.cuts))
        if channels is not None and self.cuts[channels] > 1:  # and nothing else is split
            axis, parts = channel_axis(rank) or 0, self.cuts[channels]
            cuts = [parts if d == axis else 1 for d in range(max(rank, 1))]
            even = tuple(d == axis and any(self.even) for d in range(len(cuts)))
            return replace(self, cuts=tuple(cuts), even=even)
        batch, rows = self.cuts[0], math.prod(self.cuts[1:])
        cuts = [1] * max(rank, 1)
        if rank < 3:
            cuts[0] = batch * rows
        else:
            cuts[0], cuts[2 if rank >= 4 else 1] = batch, rows
        alike = self.even[0] and (rank >= 3 or rows == 1)
        return replace(self, cuts=tuple(cuts), even=(alike, *[False] * (len(cuts) - 1)))

    def replication(
        self, follows: Callable[[int], bool], around: Mapping[int | None, Any],
        padded: Collection[int] = (),
    ) -> Any:  # fmt: skip
        """Cores that load the same at the same time, of each candidate.

        Args:
            follows: whether the load depends on the position along a dimension of the result.
            around: whether a loop over tiles along a dimension is around the load; default: yes.
            padded: dimensions along which tiles at the border are not like others.
        """
        found: Any = 1
        for d, (parts, even) in enumerate(zip(self.cuts, self.even, strict=True)):
            if follows(d) or np.all(parts == 1):
                continue
            # Loops that do not run alike keep cores from meeting in them.
            apart = np.logical_not(even) | (d in padded)
            inside = around.get(d, True) | self.looped
            found = found * np.where(apart & inside, 1, parts)
        return found

    def at_once(self, others: Sequence[Cores], among: Callable[[Sequence[Any]], Any]) -> Cores:
        """These and as many `others`, whose parts differ, in one: `among` makes arrays over all of
        their candidates."""
        cuts, even = (
            tuple(map(among, zip(*columns, strict=True)))
            for columns in zip(*((each.cuts, each.even) for each in others), strict=True)
        )
        return replace(self, cuts=cuts, even=even)


def _within(parts: Sequence[Box], reach: int) -> list[int]:
    """Cuts between `reach` cores that see one memory: the fewest of all that do."""
    least: list[int] = []
    for first in range(0, len(parts), reach):
        columns = zip(*parts[first : first + reach], strict=True)
        found = [len(frozenset(column)) for column in columns]
        least = [*map(min, least, found)] if least else found
    return least


# What cores hand to each other of a tensor that stays in slices: what is kept beyond what is made.


@dataclass(frozen=True)
class Handover:
    """One part of a tensor, from the core that makes it to those that keep it as well, all
    at the same place of their slices."""

    giver: int
    takers: tuple[int, ...]
    box: Box


def handovers(group: Group, parts: tuple[Box, ...], name: str) -> tuple[Handover, ...]:
    """What is handed on of the result `name`, which stays, when cores have done their `parts` of
    the group's results; by giver."""
    kept = group.residents[name]
    if not kept.passed:
        return ()
    walker = TileTracer(group, frozenset())
    return _handovers_among(tuple(walker.share(name, part) for part in parts), kept.slices)


@lru_cache(1024)
def _handovers_among(shares: tuple[Box, ...], slices: tuple[Box, ...]) -> tuple[Handover, ...]:
    found: dict[tuple[int, Box, tuple[int, ...]], tuple[int, ...]] = {}
    for giver, share in enumerate(shares):
        for taker, kept in enumerate(slices):
            box = _common(share, kept)
            if giver != taker and not empty(box):
                key = giver, box, tuple(start for start, _ in kept)
                found[key] = (*found.get(key, ()), taker)
    return tuple(Handover(giver, takers, box) for (giver, box, _), takers in found.items())


def _common(a: Box, b: Box) -> Box:
    """What lies in both."""
    spans = ((max(s, t), min(s + n, t + m)) for (s, n), (t, m) in zip(a, b, strict=True))
    return tuple((low, max(0, end - low)) for low, end in spans)


# What it takes until cores have handed each other what they keep of each other's results.


def between_cores(arch: Arch) -> str | None:
    """The engine by which cores hand each other parts of their results, if one does."""
    engine = arch.copy_engine("local", "local")
    if engine is None:
        return None
    found = arch.copy_[engine]
    return engine if found.peer or found.broadcast else None


def meets_at_barriers(arch: Arch) -> bool:
    """Whether cores that hand each other parts wait at barriers, as they have too few tokens for
    each other beside those of their engines."""
    return PEER_TOKENS * arch.core_count > arch.front_end.tokens // 4


def copies_of(arch: Arch, engine: str, one: Handover) -> tuple[tuple[int, ...], ...]:
    """The takers of each copy that hands `one` on: all at once where the engine reaches several,
    else one by one from the giver's neighbour on, so that givers do not meet at one taker."""
    if arch.copy_[engine].broadcast:
        return (one.takers,)
    away = [
        (_crossed(arch, one.giver, (taker,))[1], (taker - one.giver) % arch.core_count, taker)
        for taker in one.takers
    ]
    return tuple((taker,) for *_, taker in sorted(away))


def passed_cycles(arch: Arch, group: Group, parts: tuple[Box, ...]) -> float:
    """Cycles at the end of a group until cores have what they keep of each other's results, when
    they have done their `parts`."""
    cycles = 0.0
    for name in group.results:
        if name in group.residents:
            item, steps = size_of(group.tensors[name].dtype), group.residents[name].strides
            cycles += handover_cycles(arch, handovers(group, parts, name), item, steps)
    return cycles


def handover_cycles(
    arch: Arch, handed: Sequence[Handover], item: int, steps: Sequence[int] = ()
) -> float:
    """Cycles at the end of a group until all that is `handed` on is there, in elements of `item`
    bytes, `steps` of them apart along each axis, by default all side by side: the copies of a core
    one after another, those of all cores at once, as far as the links between them allow."""
    engine = between_cores(arch)
    if engine is None or not handed:
        return 0.0
    copy, clock = arch.copy_[engine], arch.clock
    once = copy.startup.cycles(clock) + arch.memories.local.latency.cycles(clock)
    once += link_latency(arch, "local", "local")
    rate, busy, lanes = copy.bandwidth.at(clock), dict[int, float](), dict[_Lane, float]()
    for one in handed:
        size = item * volume(one.box)
        own = max(size / rate, _pieces(one.box, steps))
        for takers in copies_of(arch, engine, one):
            lane_rates, hops = _crossed(arch, one.giver, takers)
            busy[one.giver] = busy.get(one.giver, 0.0) + once + hops + own
            for lane, wide in lane_rates.items():
                lanes[lane] = lanes.get(lane, 0.0) + size / wide
    # First the takers say that they have room, at last the givers that all is there.
    return max(*busy.values(), *lanes.values(), 0) + 2 * arch.front_end.signal.cycles(clock)


def _pieces(box: Box, steps: Sequence[int]) -> float:
    """Contiguous pieces of a box, of which an engine handles one in a cycle."""
    run = 1
    for step, (_, size) in sorted(zip(steps, box, strict=True)) if steps else ():
        if size > 1 and step != run:
            return volume(box) / run
        run *= size
    return 1


_Lane = tuple[str, int, int]
"""A link; the number of a bus's instance, and whether what goes out has one of its own there; of
other links, their two ends."""


def _crossed(arch: Arch, giver: int, takers: Sequence[int]) -> tuple[dict[_Lane, float], float]:
    """What a copy between local memories crosses, with the rate at which each carries its bytes,
    and the cycles of its hops: it leaves by the giver's instance of a bus and enters by the
    takers'."""
    found, late = dict[_Lane, float](), 0
    for name, link in arch.links.items():
        if "local" not in link.from_ or "local" not in link.to:
            continue
        rate = link.bandwidth.at(arch.clock)
        if (grid := arch.grid(link)) is not None:
            parts, hops = grid.crossed((giver,), takers)
            found |= {(name, *hop): rate / part for hop, part in parts.items()}
            late += hops * link.latency.cycles(arch.clock)
            continue
        cores = {"chip": arch.core_count, "cluster": arch.cores, "core": 1}[link.scope]
        left, entered = giver // cores, {taker // cores for taker in takers}
        found |= {(name, index, False): rate for index in sorted(entered)}
        if entered != {left}:
            found[name, left, link.duplex] = rate
    return found, late
