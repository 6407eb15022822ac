"""The time that a group takes, tile by tile: engines in order, each waiting for what it needs.

A coarse model of what the machine will do: an engine runs its share of one layer after another, a
product and the vector work behind it overlap by pieces, transfers run ahead. Of a run of equal
tiles a few are followed, the others take as long as the last of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from compiler.geometry.walk import Moment, Run, Walked
from compiler.tile.share import Share

FOLLOWED = 3
"""Tiles of a run that are followed one by one."""


@dataclass(frozen=True)
class Work:
    """What the layers of one tile do."""

    shares: tuple[Share | None, ...]
    loads: Mapping[str, float]
    """Held input -> cycles of its load for this tile."""
    moves: Mapping[int, float]
    """Layer -> cycles of the vector engine for borders and for what is handed on."""
    stores: Mapping[int, float]
    """Layer -> cycles of the store of its result, where the group stores it."""
    constants: Mapping[int, float] = field(default_factory=dict)
    """Layer -> cycles of the load of constants that stay, in the first tile."""


@dataclass
class Timeline:
    """Engines of one core on their way through a group."""

    inputs: tuple[tuple[str, ...], ...]
    """By layer, held tensors that it reads."""
    results: tuple[str, ...]
    """By layer, what it makes."""
    slots: int
    room: Mapping[int, int] = field(default_factory=dict)
    """Layer -> the layer with which its constants that stay find room; else they always do."""
    begun: float = 0.0
    """When the layer before started."""
    starts: dict[int, float] = field(default_factory=dict)
    """Layer -> when it started in this tile."""
    free: dict[str, float] = field(default_factory=dict)
    """Engine -> when it has done all that it was given."""
    ready: dict[str, float] = field(default_factory=dict)
    """Held tensor -> when its part of this tile is there."""
    used: dict[str, list[float]] = field(default_factory=dict)
    """Held input -> when the tiles so far were done with it."""

    def run(self, walked: Walked, work: Callable[[Run, Moment], Work]) -> float:
        """Cycles from the first load to the last store."""
        for run in walked.alike:
            moment = walked.moments[run.first]
            done = work(run, moment)
            followed = min(run.count, FOLLOWED)
            before = 0.0
            for _ in range(followed):
                before = self.end
                self._tile(done)
            self._skip((run.count - followed) * (self.end - before))
        once = self.end
        if walked.repeats > 1:
            busiest = max(self.free.values(), default=0.0)
            return once + (walked.repeats - 1) * busiest
        return once

    @property
    def end(self) -> float:
        """When everything so far is done."""
        return max(self.free.values(), default=0.0)

    def _skip(self, cycles: float) -> None:
        for times in (self.free, self.ready):
            for name in times:
                times[name] += cycles
        self.used = {name: [t + cycles for t in times] for name, times in self.used.items()}
        self.begun += cycles

    def _take(self, engine: str, earliest: float, cycles: float) -> tuple[float, float]:
        start = max(self.free.get(engine, 0.0), earliest)
        self.free[engine] = start + cycles
        return start, start + cycles

    def _tile(self, work: Work) -> None:
        for name, cycles in work.loads.items():
            used = self.used.get(name, [])
            earliest = used[-self.slots] if len(used) >= self.slots else 0.0
            self.ready[name] = self._take("load", earliest, cycles)[1]
        for position, share in enumerate(work.shares):
            if share is not None:
                self._layer(position, share, work)
        for name in work.loads:
            # A layer of which no tile has needed anything yet has not read it either.
            readers = (p for p, read in enumerate(self.inputs) if name in read)
            last = max((self.ready.get(self.results[p], 0.0) for p in readers), default=0.0)
            self.used.setdefault(name, []).append(last)

    def _layer(self, position: int, share: Share, work: Work) -> None:
        there = max((self.ready.get(name, 0.0) for name in self.inputs[position]), default=0.0)
        pieces, arrivals = max(1.0, share.pieces), max(1.0, share.arrivals)
        first = arrived = 0.0
        if position in work.constants:
            free = self.starts.get(min(self.room.get(position, 0), position - 1), 0.0)
            first = self._take("load", free, work.constants[position])[1]
        if share.load:
            begin, arrived = self._take("load", self.begun, share.load)
            first = max(first, begin + share.load / arrivals)
        begun = done = max(there, first)
        if share.matrix:
            start, done = self._take("matrix", done, share.matrix)
            begun = start
            done = max(done, arrived + share.matrix / arrivals)
            self.free["matrix"] = done
            behind = start + share.matrix / pieces
        else:
            behind = done
        if share.vector:
            _, end = self._take("vector", behind, share.vector)
            done = max(end, done + share.vector / pieces)
            self.free["vector"] = done
        if share.load and arrivals > 1:
            # A stream runs ahead of the work by what its buffers hold, and holds up what follows.
            paced = done - self.slots * (done - begun) / arrivals
            self.free["load"] = max(self.free["load"], paced)
        self.begun = self.starts[position] = begun
        if position in work.moves:
            self._take("vector", done, work.moves[position])
        self.ready[self.results[position]] = done
        store = share.store + work.stores.get(position, 0.0)
        if store:
            self._take("store", done - store * (1 - 1 / pieces) if share.store else done, store)
