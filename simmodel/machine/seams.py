"""Equal groups once: where the machine is between two groups as it was between two before them.

A program of equal layers is a loop in all but name: its sites recur, at other addresses and with
barriers of their own. Where a group ends, the state of the machine (`simmodel.machine.steady`), in
which sites and barriers count from where each core is, is compared with those at earlier ends. If
it is equal, and what lies ahead does what the stretch between did, so many stretches are skipped.

    sites      load 3 | work 4 | arrive 5 | load 6 | work 7 | arrive 8 | load 9 ..
    barriers                     b0                           b1
    site 3 of a stretch counts for site 3 + 3 i, b0 for b1 ..
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simmodel.arch.base import OFF_CHIP
from simmodel.isa import Arrive
from simmodel.machine.build import Machine
from simmodel.machine.engine import STARTUP, TOKEN, TRAFFIC, Entry, Work
from simmodel.machine.front_end import FrontEndProcess
from simmodel.machine.queue import Barrier
from simmodel.program.expand import Expansion, turns_around

State = tuple[Any, ...]
Past = list[tuple[int, int]]
"""Reported times up to now, in ticks, and ticks a cycle."""
AHEAD = 32
"""Sites behind a seam that have to recur for it to be looked at."""
OFTEN = 3
"""How often they have to."""


def repeated(old: Past, new: Past, period: int) -> bool:
    """Whether each time in the past is as long ago in an equal state, or untouched."""
    return all(
        after == before or after - before == period * unit
        for (before, unit), (after, _) in zip(old, new, strict=True)
    )


@dataclass(frozen=True)
class _Look:
    """The machine behind a group, and what it has counted so far."""

    cycle: int
    past: Past
    positions: list[int]
    bases: list[int]
    """Of each core, its next site."""
    counted: list[tuple[int, list[list[int]]]]
    """Of each core, the first site that may count yet, and its and later ones' counters; none
    behind those has counted."""
    arrivals: list[int]
    rows: int
    """Numbers recorded so far."""


@dataclass(frozen=True)
class Skipped:
    """Stretches that need no simulation."""

    past: Past
    """When the first equal state was seen."""
    late: int
    """Cycles."""


Move = tuple[int, int]
"""Occurrences and sites from a stretch of a core to the next."""


class Seams:
    """Looks at the machine where groups end, and skips those that are like earlier ones."""

    def __init__(self, machine: Machine, streams: Sequence[Expansion]) -> None:
        self._machine = machine
        self._streams = streams
        self._orders = [stream.order.astype(np.int64) for stream in streams]
        self._paces = [np.array(each.pace.first) for each in machine.front_ends]
        self._looks: dict[State, _Look] = {}
        self._barriers: dict[object, Barrier] = {}
        """By the number and the sites of their arrivals."""
        self._alike: list[NDArray[np.int64]] = []
        """Of each core, numbers of its works."""
        self._leader: FrontEndProcess | None = None
        """With the longest stream: its seams are looked at."""
        self._places: list[int] = []
        """Of these, the occurrences behind them."""
        # Addresses decide too much there.
        if machine.barriers and machine.arch.front_end.sync != "interlock":
            self._find()

    def _find(self) -> None:
        machine, streams = self._machine, self._streams
        leader = max(range(len(streams)), key=lambda core: len(streams[core].order))
        arrives = [isinstance(s.instruction, Arrive) for s in streams[leader].sites]
        ends = [now and not then for now, then in zip(arrives, [*arrives[1:], False], strict=True)]
        places = np.flatnonzero(np.array(ends, np.bool_)[self._orders[leader]]) + 1
        if len(places) < OFTEN:
            return
        numbers: dict[object, int] = {}
        for core, (works, stream) in enumerate(zip(machine.works, streams, strict=True)):
            front_end = machine.front_ends[core]
            for work, joined in zip(works, front_end.joins, strict=True):
                pace = front_end.pace.others[work.number] if work.times > 1 else 0
                key = _behaviour(work, stream), joined, pace
                work.alike = numbers.setdefault(key, len(numbers))
            self._alike.append(np.array([work.alike for work in works], np.int64))
        ahead = self._alike[leader][self._orders[leader]]
        contexts = [ahead[place : place + AHEAD].tobytes() for place in places.tolist()]
        often = Counter(contexts)
        found = zip(places.tolist(), contexts, strict=True)
        self._places = [place for place, context in found if often[context] >= OFTEN]
        self._leader = machine.front_ends[leader]
        self._barriers = {_key(b.needed, b.sites): b for b in machine.barriers}

    def due(self, front_end: FrontEndProcess) -> float:
        """Position of a front end from which on there is something to look at."""
        if front_end is not self._leader or not self._places:
            return math.inf
        return self._places[0]

    def passed(self, position: int) -> None:
        """The leader has come to `position`."""
        del self._places[: bisect_right(self._places, position)]

    def look(self, known: State, past: Past) -> Skipped | None:
        """Skip what repeats what happened since a state like that which is `known`; None: nothing
        does."""
        new, bases = self._current(past), [each.next_site for each in self._machine.front_ends]
        # Banks that an occurrence meets depend on its number.
        flying = [(w.core, w.number - bases[w.core], w.count) for w, *_ in in_flight(self._machine)]
        known = *known, *flying
        old = self._looks.get(known)
        self._looks[known] = new
        if old is None or not repeated(old.past, past, new.cycle - old.cycle):
            return None
        moves = [
            (end - start, there - here)
            for start, end, here, there in zip(
                old.positions, new.positions, old.bases, new.bases, strict=True
            )
        ]
        count = self._count(old, new, moves)
        if count < 1:
            return None
        late = count * (new.cycle - old.cycle)
        self._expand(old, new, moves, count)
        self._move(moves, count)
        self._looks.clear()
        return Skipped(old.past, late)

    def _current(self, past: Past) -> _Look:
        machine = self._machine
        flying: list[list[int]] = [[each.next_site] for each in machine.front_ends]
        for work, *_ in in_flight(machine):
            flying[work.core].append(work.number)
        counted = []
        for core, (front_end, works) in enumerate(
            zip(machine.front_ends, machine.works, strict=True)
        ):
            turns, _ = turns_around(self._streams[core].loops, front_end.position)
            around = turns[0][0].sites if turns else range(front_end.next_site, front_end.next_site)
            first, last = min(*flying[core], around.start), max(*flying[core], around.stop)
            counted.append((first, [counters(work) for work in works[first : last + 1]]))
        rows = 0 if machine.recorder is None else len(machine.recorder)
        positions = [front_end.position for front_end in machine.front_ends]
        bases = [front_end.next_site for front_end in machine.front_ends]
        arrivals = [barrier.arrivals for barrier in machine.barriers]
        cycle = machine.env.now + machine.env.skipped
        return _Look(cycle, past, positions, bases, counted, arrivals, rows)

    # How many of the next stretches are like the last.

    def _count(self, old: _Look, new: _Look, moves: list[Move]) -> int:
        counts: list[int] = []
        for core, (step, sites) in enumerate(moves):
            if not step:
                continue
            if sites <= 0:
                return 0  # inside a loop
            order, alike = self._orders[core], self._alike[core]
            before, end = max(0, old.positions[core] - 1), new.positions[core]
            here, there = slice(before, len(order) - step), slice(before + step, None)
            same = order[there] == order[here] + sites
            same &= alike[order[there]] == alike[order[here]]
            for each in (self._paces[core], self._streams[core].occurrence):
                same &= each[there] == each[here]
            unlike = np.flatnonzero(~same)
            upto = before + (int(unlike[0]) if len(unlike) else len(same)) - 1
            counts.append((upto - end) // step + 1)
        count = min(counts, default=0)
        machine = self._machine
        for barrier, arrived in zip(machine.barriers, old.arrivals, strict=True):
            if barrier.arrivals != arrived or barrier.waiters:
                count = self._images(barrier, moves, count)
        opened = {
            id(barrier)
            for barrier, arrived in zip(machine.barriers, old.arrivals, strict=True)
            if arrived >= barrier.needed
        }
        for core, (step, sites) in enumerate(moves):
            works, end = machine.works[core], new.positions[core]
            for number in np.unique(self._orders[core][end - step : end]).tolist():
                barrier = works[number].barrier
                if barrier is None:
                    continue
                for turn in range(1, count + 1):
                    image = works[number + turn * sites].barrier
                    assert image is not None
                    both = id(barrier) in opened and image.count
                    if not both and image is not self._image(barrier, moves, turn):
                        count = turn - 1
                        break
        return count

    def _images(self, barrier: Barrier, moves: list[Move], count: int) -> int:
        """In how many of `count` stretches there is a barrier for this one."""
        turns = range(1, count + 1)
        return next((n - 1 for n in turns if self._image(barrier, moves, n) is None), count)

    def _image(self, barrier: Barrier, moves: list[Move], turn: int) -> Barrier | None:
        """What `barrier` is so many stretches later."""
        sites = [(core, number + turn * moves[core][1]) for core, number in barrier.sites]
        return self._barriers.get(_key(barrier.needed, sites))

    # What so many stretches leave behind.

    def _expand(self, old: _Look, new: _Look, moves: list[Move], count: int) -> None:
        """Let all count what they do in the stretches."""
        machine, period = self._machine, new.cycle - old.cycle
        gained: list[tuple[Work, list[int]]] = []
        before: dict[tuple[int, int], list[int]] = {}
        for core, works in enumerate(machine.works):
            first, known = old.counted[core]
            start, later = new.counted[core]
            for work in works[first : start + len(later)]:
                index, now = work.number - first, counters(work)
                was = known[index] if index < len(known) else [0] * len(now)
                before[core, work.number] = was
                own = [a - b for a, b in zip(now, was, strict=True)]
                if any(own):
                    gained.append((work, own))
        arrived = [
            (barrier, barrier.arrivals - was)
            for barrier, was in zip(machine.barriers, old.arrivals, strict=True)
            if barrier.arrivals > was
        ]
        rows = np.empty((0, 7), np.int64)
        if machine.recorder is not None:
            rows = np.array(machine.recorder[old.rows :], np.int64).reshape(-1, 7)
        for turn in range(1, count + 1):
            self._record(rows, before, moves, turn, period)
            for work, own in gained:
                image = machine.works[work.core][work.number + turn * moves[work.core][1]]
                done, issued, overlapped, *lost = own
                if done and not before[work.core, work.number][0]:
                    image.first = work.first + turn * period
                image.count += done
                image.issued += issued
                image.gained += overlapped
                image.lost = [a + b for a, b in zip(image.lost, lost, strict=True)]
                if done:
                    image.last = work.last + turn * period
            for barrier, more in arrived:
                later_one = self._image(barrier, moves, turn)
                assert later_one is not None
                later_one.arrivals += more
                if later_one.arrivals == later_one.needed:
                    later_one.count = math.inf

    def _record(
        self, rows: NDArray[np.int64], before: dict[tuple[int, int], list[int]],
        moves: list[Move], turn: int, period: int,
    ) -> None:  # fmt: skip
        """Record what happens in stretch number `turn`."""
        if not len(rows):
            return
        machine = self._machine
        assert machine.recorder is not None
        made = rows.copy()
        made[:, 3:6] += turn * period
        for row in made:
            core, number = row[:2].tolist()
            was, row[1] = before[core, number], number + turn * moves[core][1]
            image = machine.works[core][row[1]]
            row[2] += image.count - was[0]
            row[6] += image.gained - was[2]
        machine.recorder.frombytes(made.tobytes())

    def _move(self, moves: list[Move], count: int) -> None:
        """Put all that is issued or waits so many stretches further."""
        machine = self._machine

        def image(work: Work) -> Work:
            return machine.works[work.core][work.number + count * moves[work.core][1]]

        waiting = [(barrier, [*barrier.waiters]) for barrier in machine.barriers if barrier.waiters]
        images = {id(b): self._image(b, moves, count) for b, _ in waiting}
        for barrier, _ in waiting:
            barrier.waiters.clear()
        for barrier, waiters in waiting:
            later = images[id(barrier)]
            assert later is not None
            later.waiters.extend(waiters)
        for engine in machine.all_engines:
            entries = engine.queue.entries
            for index, (work, *rest) in enumerate(entries):
                entries[index] = (image(work), *rest)
            if engine.phase in (STARTUP, TRAFFIC) and engine.running is not None:
                engine.running = (image(engine.running[0]), *engine.running[1:])
            if engine.phase == TOKEN and id(engine.awaited) in images:
                engine.awaited = images[id(engine.awaited)]
        for front_end, (step, _) in zip(machine.front_ends, moves, strict=True):
            if front_end.stuck is not None:
                front_end.stuck = image(front_end.stuck)
            front_end.position += step * count
            machine.skipped += step * count


def _key(needed: int, sites: Iterable[tuple[int, int]]) -> object:
    return needed, *sites


def counters(work: Work) -> list[int]:
    """What has been counted of a work."""
    return [work.count, work.issued, work.gained, *work.lost]


def in_flight(machine: Machine) -> Iterator[Entry]:
    """What was issued and has not ended, in an order that equal states share."""
    for engine in machine.all_engines:
        if engine.phase in (STARTUP, TRAFFIC) and engine.running is not None:
            yield engine.running
        yield from engine.queue.entries


def _behaviour(work: Work, stream: Expansion) -> object:
    """All that a work does but for barriers, and where it is."""
    site = stream.sites[work.number]
    plain = (
        tuple([each for each in tokens if not isinstance(each[0], Barrier)])
        for tokens in (work.waits, work.signals)
    )
    banks = () if work.profile_at is None else tuple(
        [at.tobytes() for operand, at in zip(site.operands, site.addresses, strict=True)
         if operand.memory not in OFF_CHIP]
    )  # fmt: skip
    return (
        work.engine, work.startup, work.cycles, work.gain, work.times, work.cause, work.notices,
        id(work.instruction.prototype) if work.profile is None else work.profile,
        type(work.instruction), *plain, banks,
    )  # fmt: skip
