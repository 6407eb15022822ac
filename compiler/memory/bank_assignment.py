"""Bank assignment: a local search that moves buffers to other banks to save cycles.

The cost of a placement is the cycles that engines lose to bank conflicts (`BankTraffic`) and to
waits for a slot that is used again (`BankedMemory`). A step changes one buffer's address or the
distance between its slots, or exchanges two buffers; only steps that lower the cost are taken, so
the result never costs more than the start. Contiguity needs no term: slots stay contiguous, and the
speed of a copy does not depend on its address.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from compiler.memory.steady_state import SAMPLES, Phase, Stream
from compiler.schedule.residency.buffer import Place, Places, TileBuffer
from simmodel.arch.memories import Memory
from simmodel.isa.region import cached_property

# What a placement costs in cycles: engines that meet in the banks of one memory.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RARE = 0.02
"""Probability below which a task, or a combination of tasks, is left out."""
SETTLING = 2
"""Rounds until it is known how often tasks meet that slow each other down."""
HIDDEN = 0.1
"""Cycles that one costs that an engine loses while another one is busier."""
ROUNDS = 3
"""Times that every buffer is tried elsewhere."""
WORTH = 1.0
"""Cycles that a step must save."""
EXCHANGED = 3
"""Buffers, where most cycles are lost, that are exchanged with others in the end."""


@dataclass(frozen=True)
class BankTraffic:
    """Traffic of one phase in one memory."""

    phase: Phase
    memory: Memory
    streams: tuple[tuple[int, Stream], ...]
    """(task, stream) of the streams in this memory."""
    states: NDArray[np.bool_]
    """Combination x task: which tasks run."""
    chances: Floats
    """Probability of each combination."""
    times: Floats
    """Cycles of each task, all its turns in one phase."""
    engines: Floats
    """Engine x task: 1 where the engine runs the task."""

    @cached_property
    def buffers(self) -> frozenset[str]:
        return frozenset(stream.buffer for _, stream in self.streams)

    @cached_property
    def ports(self) -> Floats:
        """Bytes per cycle of each bank's port, or of those to read and then of those to write."""
        directions = (False, True) if self.memory.split_ports else (False,)
        rates = [float(self.memory.port_bytes(write=write)) for write in directions]
        return np.repeat(rates, self.memory.banks)

    def demands(self, buffer: str, addresses: Ints, pitches: Ints) -> Floats:
        """Bytes per cycle (placement x task x moment x port) of one buffer's streams, by address
        and pitch of each placement."""
        found = np.zeros((len(addresses), len(self.times), SAMPLES, len(self.ports)))
        size, banks = self.memory.bank_size, self.memory.banks
        bank = np.arange(banks)
        for task, stream in self.streams:
            if stream.buffer != buffer:
                continue
            low = addresses[:, None] + pitches[:, None] * np.array(stream.slot)
            low = low + np.array(stream.low)
            first, last = (
                np.minimum(end // size, banks - 1) for end in (low, low + stream.length - 1)
            )
            rate = stream.bytes / max(1.0, self.phase.tasks[task].cycles)
            inside = (bank >= first[..., None]) & (bank <= last[..., None])
            start = banks if stream.write and self.memory.split_ports else 0
            part = rate / (last - first + 1)
            found[:, task, :, start : start + banks] += inside * part[..., None]
        return found

    def lost(self, demands: Floats) -> Floats:
        """Cycles that each placement loses over all tiles, see `demands`."""
        before = self.engines @ self.times
        after: Floats = (self.times * self.slowness(demands)) @ self.engines.T
        longer = after.max(axis=1) - before.max()
        lost: Floats = longer + HIDDEN * (after - before).sum(axis=1)
        return self.phase.times * lost

    def settled(self, demands: Floats) -> BankTraffic:
        """The same, after the times of tasks have adapted to these demands (task x moment x port):
        a task that is slowed down meets others less often."""
        found = self
        for _ in range(SETTLING):
            slowed = self.times * found.slowness(demands[None])[0]
            states, chances = _states(self.phase, slowed)
            found = replace(found, states=states, chances=chances)
        return found

    def slowness(self, demands: Floats) -> Floats:
        """Average slow-down of each task (placement x task)."""
        touching = demands > 0
        penalty = self.memory.conflict_penalty
        total = np.zeros((demands.shape[0], demands.shape[1]))
        weight = np.zeros(demands.shape[1])
        for state, chance in zip(self.states, self.chances, strict=True):
            tasks = np.flatnonzero(state)
            together = demands[:, tasks]
            crowd = touching[:, tasks].sum(axis=1, keepdims=True)
            room = self.ports / np.where(crowd > 1, 1 + penalty, 1.0)
            others = together.sum(axis=1, keepdims=True) - together
            # Each gets an equal share, and what the others leave of theirs.
            level = np.maximum(room / np.maximum(crowd, 1), room - others)
            slow = np.maximum(1.0, (together / level).max(axis=3)).mean(axis=2)
            total[:, tasks] += chance * slow
            weight[tasks] += chance
        return np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), 1.0)


def traffic(phases: Sequence[Phase], names: Collection[str], memory: Memory) -> list[BankTraffic]:
    """The phases in one memory, which holds the buffers `names`."""
    found = []
    for whole in phases:
        least = RARE * whole.period
        phase = Phase(tuple(t for t in whole.tasks if t.time > least), whole.times)
        streams = tuple(
            (number, stream)
            for number, task in enumerate(phase.tasks)
            for stream in task.streams
            if stream.buffer in names
        )
        if streams:
            owner = [[float(t.engine == e) for t in phase.tasks] for e in phase.engines]
            times = np.array([task.time for task in phase.tasks])
            states, chances = _states(phase, times)
            found.append(
                BankTraffic(phase, memory, streams, states, chances, times, np.array(owner))
            )
    return found


def _states(phase: Phase, times: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Probabilities of the combinations of tasks that run together, if all their turns take these
    `times`; combinations below `RARE` are left out."""
    busy = [
        [number for number, task in enumerate(phase.tasks) if task.engine == engine]
        for engine in phase.engines
    ]
    period = max(1.0, *(float(times[mine].sum()) for mine in busy))
    states, chances = [], []
    for combination in itertools.product(*([*mine, None] for mine in busy)):
        chance = 1.0
        for number, mine in zip(combination, busy, strict=True):
            idle = max(0.0, 1.0 - float(times[mine].sum()) / period)
            chance *= idle if number is None else float(times[number]) / period
        running = [number for number in combination if number is not None]
        if running and chance >= RARE:
            states.append([number in running for number in range(len(phase.tasks))])
            chances.append(chance)
    found = np.array(states, dtype=bool).reshape(-1, len(phase.tasks))
    return found, np.array(chances)


@dataclass(frozen=True)
class BankedMemory:
    """One memory during the search, and cycles lost by waiting for bytes that several buffers
    share."""

    size: int
    """Bytes that buffers may take, from address 0."""
    bank_size: int
    grain: Callable[[TileBuffer], int]
    """Buffers, and their slots, start at multiples of this."""
    between: Callable[[TileBuffer, TileBuffer], float]
    """Infinity for those in use together."""
    busy: Sequence[tuple[int, int]] = ()
    """Bytes that the previous group still needs."""
    ahead: Callable[[TileBuffer], float] = lambda buffer: 0.0
    """Cost of a buffer in busy bytes."""


def separate(
    places: Places, buffers: Sequence[TileBuffer], traffics: Sequence[BankTraffic],
    space: BankedMemory,
) -> tuple[Places, float]:  # fmt: skip
    """Places that cost at most as much as the given ones, and their cycles: of `buffers`, which may
    be moved, and of others that stay where they are."""
    search = _Search(places, buffers, traffics, space)
    if search.lost.sum() >= WORTH:
        search.run()
    return search.places, search.cost


class _Search:
    def __init__(
        self, places: Places, buffers: Sequence[TileBuffer], traffics: Sequence[BankTraffic],
        space: BankedMemory,
    ) -> None:  # fmt: skip
        self.places, self.buffers, self.space = dict(places), buffers, space
        self.index = {b.name: n for n, b in enumerate(buffers)}
        count = len(buffers)
        self.price = np.zeros((count, count + len(space.busy)))
        for n, a in enumerate(buffers):
            for m, b in enumerate(buffers[:n]):
                self.price[n, m] = self.price[m, n] = space.between(a, b)
            self.price[n, count:] = space.ahead(a)
        spans = [*(b.span(places[b.name]) for b in buffers), *space.busy]
        # First and last bytes of all buffers, then of what is busy.
        self.lows, self.highs = np.array(spans, dtype=np.int64).reshape(-1, 2).T.copy()
        # Per traffic, demands of each buffer's streams.
        self.demands = [
            {
                name: traffic.demands(name, *_addresses_and_pitches([places[name]]))[0]
                for name in sorted(traffic.buffers)
            }
            for traffic in traffics
        ]
        self.traffics = [
            traffic.settled(np.add.reduce(list(demands.values())))
            for traffic, demands in zip(traffics, self.demands, strict=True)
        ]
        self.lost = np.array([self._lost(n) for n in range(len(traffics))])

    def _lost(self, number: int) -> float:
        total = np.add.reduce(list(self.demands[number].values()))
        return float(self.traffics[number].lost(total[None])[0])

    @property
    def cost(self) -> float:
        """Cycles lost to bank conflicts and to waits for shared bytes."""
        shared = (self._sharing(b, [self.places[b.name]], *self.buffers[:n])[0]
                  for n, b in enumerate(self.buffers))  # fmt: skip
        return float(self.lost.sum() + sum(shared))

    def run(self) -> None:
        for _ in range(ROUNDS):
            if sum(self._move(buffer) for buffer in self._hot()) < WORTH:
                break
        self._exchange()

    def _hot(self) -> list[TileBuffer]:
        """Buffers that lose cycles, the worst first."""
        found: dict[str, float] = {}
        for traffic, lost in zip(self.traffics, self.lost, strict=True):
            for name in traffic.buffers if lost >= WORTH else ():
                found[name] = found.get(name, 0.0) + lost
        mine = [b for b in self.buffers if b.name in found]
        return sorted(mine, key=lambda b: (-found[b.name], b.name))

    def _move(self, buffer: TileBuffer) -> float:
        """Gives `buffer` its best place; returns what that saves."""
        offered = self._offers(buffer)
        if not offered:
            return 0.0
        costs = self._costs(buffer, [self.places[buffer.name], *offered])
        best = int(np.argmin(costs))
        saved = float(costs[0] - costs[best])
        if saved < WORTH:
            return 0.0
        self._put(buffer, offered[best - 1])
        return saved

    def _exchange(self) -> None:
        """Pairs of buffers that take each other's address, one of them among the worst."""
        for a in self._hot()[:EXCHANGED]:
            for b in self.buffers:
                if a is not b:
                    self._swap(a, b)

    def _swap(self, a: TileBuffer, b: TileBuffer) -> None:
        start = {x.name: self.places[x.name] for x in (a, b)}
        swapped = {x.name: (start[y.name][0], start[x.name][1]) for x, y in ((a, b), (b, a))}
        for x, other in ((a, b), (b, a)):
            place = swapped[x.name]
            if place[0] % self.space.grain(x) or x.span(place)[1] > self.space.size:
                return
            if not np.isfinite(self._sharing(x, [place], other)[0]):
                return
        before = self._total(a, b)
        self._put(a, swapped[a.name])
        self._put(b, swapped[b.name])
        if not before - self._total(a, b) >= WORTH:
            self._put(a, start[a.name])
            self._put(b, start[b.name])

    def _total(self, *moved: TileBuffer) -> float:
        shared = sum(self._sharing(b, [self.places[b.name]])[0] for b in moved)
        return float(self.lost.sum() + shared)

    def _put(self, buffer: TileBuffer, place: Place) -> None:
        self.places[buffer.name] = place
        index = self.index[buffer.name]
        self.lows[index], self.highs[index] = buffer.span(place)
        for number, traffic in enumerate(self.traffics):
            if buffer.name in traffic.buffers:
                demands = traffic.demands(buffer.name, *_addresses_and_pitches([place]))[0]
                self.demands[number][buffer.name] = demands
                self.lost[number] = self._lost(number)

    def _costs(self, buffer: TileBuffer, offered: list[Place]) -> Floats:
        """Cycles that depend on the address of `buffer`, for each place."""
        cost = self._sharing(buffer, offered)
        columns = _addresses_and_pitches(offered)
        for traffic, demands in zip(self.traffics, self.demands, strict=True):
            if buffer.name not in traffic.buffers:
                continue
            rest = np.add.reduce([d for n, d in demands.items() if n != buffer.name], initial=0.0)
            cost = cost + traffic.lost(rest + traffic.demands(buffer.name, *columns))
        return cost

    def _sharing(self, buffer: TileBuffer, offered: list[Place], *without: TileBuffer) -> Floats:
        """Cycles waited because `buffer` shares bytes with all but some, for each place."""
        number = self.index[buffer.name]
        addresses, pitches = _addresses_and_pitches(offered)
        ends = addresses + pitches * (buffer.slots - 1) + buffer.bytes
        meet = (addresses[:, None] < self.highs) & (self.lows < ends[:, None])
        meet[:, [number, *(self.index[b.name] for b in without)]] = False
        return np.asarray(np.where(meet, self.price[number], 0.0).sum(axis=1))

    def _offers(self, buffer: TileBuffer) -> list[Place]:
        """Places to try: beside other buffers, at and across borders of banks."""
        grain, bank, size = self.space.grain(buffer), self.space.bank_size, self.space.size
        tight = -(-buffer.bytes // grain) * grain
        bank = math.lcm(bank, grain)
        apart = -(-tight // bank) * bank
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
        free = np.isfinite(self._sharing(buffer, found))
        return [place for place, is_free in zip(found, free, strict=True) if is_free]


def _addresses_and_pitches(places: Sequence[Place]) -> tuple[Ints, Ints]:
    both: NDArray[np.int64] = np.array(places, dtype=np.int64)
    return both[:, 0], both[:, 1]
