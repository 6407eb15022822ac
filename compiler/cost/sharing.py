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
from typing import Any

import numpy as np

from compiler.cost.rates import copy_rate, far_rate
from compiler.geometry.cuts import channel_axis
from compiler.nest.bounds import Box
from simmodel.arch import Arch
from simmodel.isa.copy import link_latency

TOKENS = 2
"""That each core takes: its part is there, and it has room for the others'."""


@dataclass(frozen=True)
class Way:
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
    reach: int = 0
    """Cores that see one shared memory; 0: all can be reached."""

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
        if self.staged and far != "dram":
            return False
        return self.direct or memory == "local"

    def holds(self, size: Any, cores: int, alike: Any) -> Any:
        """Whether `size` bytes find room on their way, of each `alike` of `cores` cores: beside
        those of the step before."""
        sets = np.maximum(min(cores, self.reach or cores) / alike, 1)
        return np.bool_(not self.staged) | (2 * size * sets <= self.room)

    def passing(self, size: Any, arch: Arch, cores: int = 1) -> Any:
        """Cycles until others can have a part of `size` bytes that was loaded, and know it, while
        all `cores` pass on theirs."""
        signal = arch.front_end.signal.cycles(arch.clock)
        if self.direct:
            return signal
        if self.staged:
            return signal + _moved(size, arch, self.last, cores, store=True)
        engine = arch.copy_[self.last]
        far = arch.memories.local.latency.cycles(arch.clock) + link_latency(arch, "local", "local")
        return (
            signal
            + engine.startup.cycles(arch.clock)
            + far
            + size / engine.bandwidth.at(arch.clock)
        )

    def fetching(self, size: Any, arch: Arch, cores: int = 1) -> Any:
        """Cycles in which a core takes `size` bytes of others' parts from shared memory."""
        return _moved(size, arch, self.fetch, cores) if self.staged else 0.0

    def pays(self, alone: Any, part: Any, passing: Any, fetching: Any = 0.0) -> Any:
        """Whether to load a part in `part` cycles, pass it on and fetch the others', rather than
        all in `alone`: one part is passed on while the next one is loaded."""
        quicker = np.maximum(part, passing) * self.gain < alone
        return quicker & (part + passing + fetching < alone)


def _moved(size: Any, arch: Arch, engine: str, cores: int, *, store: bool = False) -> Any:
    """Cycles of one of `cores` copies from or to shared memory."""
    shared, copier = arch.memories.shared, arch.copy_[engine]
    assert shared is not None
    ends = ("local", "shared") if store else ("shared", "local")
    start = copier.startup.cycles(arch.clock) + shared.latency.cycles(arch.clock)
    rate = min(copy_rate(arch, copier, "shared"), far_rate(arch, "shared", cores, store=store))
    return start + link_latency(arch, *ends) + size / rate


def way_to_all(arch: Arch, gain: float, room: float = 0.0) -> Way | None:
    """How loads reach several cores; None where nothing does, or cores have too few tokens for
    each other.

    Args:
        arch: the machine.
        gain: see `Way`.
        room: part of shared memory that may hold what is on its way.
    """
    load = arch.copy_engine("dram", "local")
    if load is None or not 2 <= arch.core_count <= arch.front_end.tokens // TOKENS:
        return None
    if arch.copy_[load].broadcast:
        return Way(load, load, gain)
    between = arch.copy_engine("local", "local")
    if between is not None and arch.copy_[between].broadcast:
        return Way(load, between, gain)
    return _through_shared(arch, load, gain, room)


def _through_shared(arch: Arch, load: str, gain: float, room: float) -> Way | None:
    """The way through a memory that several cores see, if there is one: an engine that loads from
    there as well has taken what is there before it begins the next load."""
    shared = arch.memories.shared
    store, fetch = arch.copy_engine("local", "shared"), arch.copy_engine("shared", "local")
    if shared is None or store is None or fetch != load:
        return None
    reach = arch.cores if shared.level == "cluster" else arch.core_count
    found = Way(load, store, gain, fetch, int(room * shared.size), reach)
    return found if reach > 1 and found.room else None


@dataclass(frozen=True)
class Cores:
    """Cores that work on one part each of the same result."""

    count: int
    cuts: tuple[int, ...] = ()
    """Parts along each of its dimensions; empty where it does not matter."""
    even: frozenset[int] = frozenset()
    """Dimensions along which all parts have one size."""
    looped: bool = False
    """Whether loops over tiles of the parts are around all that is loaded."""
    way: Way | None = None
    """How loads are shared; None: they are not."""

    @classmethod
    def of(cls, parts: Sequence[Box], way: Way | None) -> Cores:
        """The cores of `parts`, one for each; in what order they lie does not matter."""
        if way is None or len(parts) < 2:
            return cls(len(parts))
        spans = [frozenset(column) for column in zip(*parts, strict=True)]
        even = (d for d, column in enumerate(spans) if len({size for _, size in column}) == 1)
        cuts = _within(parts, way.reach) if 0 < way.reach < len(parts) else map(len, spans)
        return cls(len(parts), tuple(cuts), frozenset(even), way=way)

    @classmethod
    def of_group(
        cls, parts: Sequence[Box], channels: int | None, way: Way | None, *, looped: bool
    ) -> Cores:
        """The same for parts of the results of a group: those of other layers have halos, so but
        for the batch and the axis of `channels` they are taken to be uneven."""
        found = cls.of(parts, way)
        even = found.even & {0, channels}
        return replace(found, even=even, looped=looped) if found.cuts else found

    def seen(self, rank: int) -> Cores:
        """The same for a layer of a group, whose result has `rank` dimensions: batch and rows are
        what groups cut, and where both lie in one dimension they cut that."""
        if not self.cuts or rank == len(self.cuts):
            return self
        channels = channel_axis(len(self.cuts))
        if channels is not None and self.cuts[channels] > 1:
            return self._seen_by_channels(rank, self.cuts[channels])
        batch, rows = self.cuts[0], math.prod(self.cuts[1:])
        cuts = [1] * max(rank, 1)
        if rank < 3:
            cuts[0] = batch * rows
        else:
            cuts[0], cuts[2 if rank >= 4 else 1] = batch, rows
        even = self.even & {0} if rank >= 3 or rows == 1 else frozenset[int]()
        return replace(self, cuts=tuple(cuts), even=even)

    def _seen_by_channels(self, rank: int, parts: int) -> Cores:
        """The same for cores that split channels, and nothing else."""
        axis = channel_axis(rank) or 0
        cuts = tuple(parts if d == axis else 1 for d in range(max(rank, 1)))
        return replace(self, cuts=cuts, even=frozenset({axis} if self.even else ()))

    def alike(
        self,
        follows: Callable[[int], bool],
        around: Mapping[int | None, Any],
        padded: Collection[int] = (),
    ) -> Any:
        """Cores that load the same at the same time, of each candidate.

        Args:
            follows: whether the load depends on the position along a dimension of the result.
            around: whether a loop over tiles along a dimension is around the load; default: yes.
            padded: dimensions along which tiles at the border are not like others.
        """
        found: Any = 1
        for d, parts in enumerate(self.cuts):
            if parts == 1 or follows(d):
                continue
            # Loops that do not run alike keep cores from meeting in them.
            apart = d not in self.even or d in padded
            inside = around.get(d, True) | self.looped
            found = found * np.where(apart & inside, 1, parts)
        return found


def _within(parts: Sequence[Box], reach: int) -> list[int]:
    """Cuts between `reach` cores that see one memory: the fewest of all that do."""
    least: list[int] = []
    for first in range(0, len(parts), reach):
        columns = zip(*parts[first : first + reach], strict=True)
        found = [len(frozenset(column)) for column in columns]
        least = [*map(min, least, found)] if least else found
    return least
