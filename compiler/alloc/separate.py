"""Moves buffers to other banks where that costs fewer cycles: a local search from a placement.

What a placement costs is what its engines lose in the banks (`conflicts`), and what they wait where
bytes are used again (`Waits`). A step gives one buffer another address or another distance between
its slots, or exchanges two buffers; only steps that make it cheaper are taken, so the result never
costs more than the start. Contiguity needs no term of its own: slots stay whole, and how fast a
copy runs does not depend on where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from compiler.alloc.conflicts import Banks, Floats, Ints, Traffic
from compiler.hold.buffer import Buffer

Place = tuple[int, int]
Places = dict[str, Place]
_USUAL = Banks()


@dataclass(frozen=True)
class Space:
    """One memory, as the search sees it."""

    size: int
    """Bytes that buffers may take, from address 0."""
    bank_size: int
    grain: Callable[[Buffer], int]
    """Buffers, and their slots, start at multiples of this."""


@dataclass(frozen=True)
class Waits:
    """Cycles that are lost where buffers share bytes."""

    between: Callable[[Buffer, Buffer], float]
    """Infinity for those in use together."""
    busy: Sequence[tuple[int, int]] = ()
    """Bytes that the work before still needs."""
    ahead: Callable[[Buffer], float] = lambda buffer: 0.0
    """What it costs that a buffer lies in busy bytes."""


def separate(
    places: Places, buffers: Sequence[Buffer], traffics: Sequence[Traffic], space: Space,
    waits: Waits, banks: Banks = _USUAL,
) -> tuple[Places, float]:  # fmt: skip
    """Places that cost at most as much as the given ones, and the cycles that they cost; `traffics`
    may touch others as well.

    Args:
        places: of `buffers`, and of others that stay where they are.
        buffers: those that may be moved.
        traffics: what goes on in this memory.
        space: the memory.
        waits: the price of bytes that are used again.
        banks: how much is tried.
    """
    search = _Search(dict(places), list(buffers), list(traffics), space, waits, banks)
    if search.lost.sum() >= banks.worth:
        search.run()
    return search.places, search.cost


@dataclass
class _Search:
    places: Places
    buffers: list[Buffer]
    traffics: list[Traffic]
    space: Space
    waits: Waits
    banks: Banks
    demands: list[dict[str, Floats]] = field(default_factory=list)
    """Per traffic, what each buffer's streams demand."""

    def __post_init__(self) -> None:
        self.index = {b.name: n for n, b in enumerate(self.buffers)}
        count = len(self.buffers)
        self.price = np.zeros((count, count + len(self.waits.busy)))
        for n, a in enumerate(self.buffers):
            for m, b in enumerate(self.buffers[:n]):
                self.price[n, m] = self.price[m, n] = self.waits.between(a, b)
            self.price[n, count:] = self.waits.ahead(a)
        spans = [*(_span(self.places[b.name], b) for b in self.buffers), *self.waits.busy]
        bounds = np.array(spans, dtype=np.int64).reshape(-1, 2)
        # First and last bytes of all buffers, then of what is busy.
        self.lows, self.highs = bounds[:, 0].copy(), bounds[:, 1].copy()
        self.demands = [
            {
                name: traffic.demands(name, *_columns([self.places[name]]))[0]
                for name in sorted(traffic.buffers)
            }
            for traffic in self.traffics
        ]
        self.traffics = [
            traffic.settled(np.add.reduce(list(demands.values())))
            for traffic, demands in zip(self.traffics, self.demands, strict=True)
        ]
        self.lost = np.array([self._lost(n) for n in range(len(self.traffics))])

    def _lost(self, number: int) -> float:
        total = np.add.reduce(list(self.demands[number].values()))
        return float(self.traffics[number].lost(total[None])[0])

    @property
    def cost(self) -> float:
        """Cycles lost in banks, and waited where bytes are used again."""
        shared = (self._sharing(b, [self.places[b.name]], self.buffers[:n])[0]
                  for n, b in enumerate(self.buffers))  # fmt: skip
        return float(self.lost.sum() + sum(shared))

    def run(self) -> None:
        """Steps until none is worth it."""
        for _ in range(self.banks.rounds):
            if sum(self._move(buffer) for buffer in self._hot()) < self.banks.worth:
                break
        self._exchange()

    def _hot(self) -> list[Buffer]:
        """Buffers where cycles are lost, the worst first."""
        found: dict[str, float] = {}
        for traffic, lost in zip(self.traffics, self.lost, strict=True):
            for name in traffic.buffers if lost >= self.banks.worth else ():
                found[name] = found.get(name, 0.0) + lost
        mine = [b for b in self.buffers if b.name in found]
        return sorted(mine, key=lambda b: (-found[b.name], b.name))

    def _move(self, buffer: Buffer) -> float:
        """Gives `buffer` its best place; returns what that saves."""
        offered = self._offers(buffer, without=())
        if not offered:
            return 0.0
        costs = self._costs(buffer, [self.places[buffer.name], *offered])
        best = int(np.argmin(costs))
        saved = float(costs[0] - costs[best])
        if saved < self.banks.worth:
            return 0.0
        self._put(buffer, offered[best - 1])
        return saved

    def _exchange(self) -> None:
        """Pairs of buffers that take each other's address, one of them among the worst."""
        for a in self._hot()[: self.banks.exchanged]:
            for b in self.buffers:
                if a is not b:
                    self._swap(a, b)

    def _swap(self, a: Buffer, b: Buffer) -> None:
        start = {x.name: self.places[x.name] for x in (a, b)}
        swapped = {x.name: (start[y.name][0], start[x.name][1]) for x, y in ((a, b), (b, a))}
        for x, other in ((a, b), (b, a)):
            place = swapped[x.name]
            if place[0] % self.space.grain(x) or _span(place, x)[1] > self.space.size:
                return
            if not np.isfinite(self._sharing(x, [place], (other,))[0]):
                return
        before = self._total(a, b)
        self._put(a, swapped[a.name])
        self._put(b, swapped[b.name])
        if not before - self._total(a, b) >= self.banks.worth:
            self._put(a, start[a.name])
            self._put(b, start[b.name])

    def _total(self, *moved: Buffer) -> float:
        shared = sum(self._sharing(b, [self.places[b.name]])[0] for b in moved)
        return float(self.lost.sum() + shared)

    def _put(self, buffer: Buffer, place: Place) -> None:
        self.places[buffer.name] = place
        index = self.index[buffer.name]
        self.lows[index], self.highs[index] = _span(place, buffer)
        for number, traffic in enumerate(self.traffics):
            if buffer.name in traffic.buffers:
                demands = traffic.demands(buffer.name, *_columns([place]))[0]
                self.demands[number][buffer.name] = demands
                self.lost[number] = self._lost(number)

    def _costs(self, buffer: Buffer, offered: list[Place]) -> Floats:
        """Cycles that depend on where `buffer` lies, for each place."""
        cost = self._sharing(buffer, offered)
        columns = _columns(offered)
        for traffic, demands in zip(self.traffics, self.demands, strict=True):
            if buffer.name not in traffic.buffers:
                continue
            rest = np.add.reduce([d for n, d in demands.items() if n != buffer.name], initial=0.0)
            cost = cost + traffic.lost(rest + traffic.demands(buffer.name, *columns))
        return cost

    def _sharing(
        self, buffer: Buffer, offered: list[Place], without: Sequence[Buffer] = ()
    ) -> Floats:
        """Cycles that are waited where `buffer` shares bytes, for each place."""
        number = self.index[buffer.name]
        addresses, pitches = _columns(offered)
        ends = addresses + pitches * (buffer.slots - 1) + buffer.bytes
        meet = (addresses[:, None] < self.highs) & (self.lows < ends[:, None])
        meet[:, [number, *(self.index[b.name] for b in without)]] = False
        return np.asarray(np.where(meet, self.price[number], 0.0).sum(axis=1))

    def _offers(self, buffer: Buffer, without: Sequence[Buffer]) -> list[Place]:
        """Places worth a try: beside others, at the borders of banks and across them."""
        grain, bank, size = self.space.grain(buffer), self.space.bank_size, self.space.size
        tight = _up(buffer.bytes, grain)
        bank = math.lcm(bank, grain)
        apart = _up(tight, bank)
        found: list[Place] = []
        for pitch in sorted({tight, apart, apart + bank} if buffer.slots > 1 else {tight}):
            extent = pitch * (buffer.slots - 1) + buffer.bytes
            if extent > size:
                continue
            quarters = np.arange(0, 4 * size, bank) // 4
            points = np.concatenate(
                (
                    -(-self.highs // grain) * grain,
                    (self.lows - extent) // grain * grain,
                    -(-quarters // grain) * grain,
                    (quarters - buffer.bytes // 2) // grain * grain,
                )
            )
            points = np.unique(points)
            points = points[(points >= 0) & (points + extent <= size)]
            found += [(int(p), pitch) for p in points]
        if not found:
            return []
        free = np.isfinite(self._sharing(buffer, found, without))
        return [place for place, is_free in zip(found, free, strict=True) if is_free]


def _columns(places: Sequence[Place]) -> tuple[Ints, Ints]:
    both: NDArray[np.int64] = np.array(places, dtype=np.int64)
    return both[:, 0], both[:, 1]


def _up(value: int, grain: int) -> int:
    return -(-value // grain) * grain


def _span(place: Place, buffer: Buffer) -> tuple[int, int]:
    return place[0], place[0] + place[1] * (buffer.slots - 1) + buffer.bytes
