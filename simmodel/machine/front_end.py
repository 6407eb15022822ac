"""The front end of a core: issues its stream in order into the engines' queues.

It runs ahead in bookkeeping time: entries carry the cycle of their issue, and only a full queue
stops it. Its clock counts ticks, a fraction of a cycle, so that the issue interval is exact.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from simmodel.arch.record import Arch
from simmodel.isa import Item
from simmodel.machine.engine import Burst, Scoreboard, Work
from simmodel.machine.queue import Clock, Queue
from simmodel.program.encoding import at_hand, fetched
from simmodel.program.expand import Expansion

# How fast a front end issues: the slower of issue width and instruction fetch, word by word.

_EXACT = 10**6
"""Largest denominator of the cycles that fetching a byte takes."""


@dataclass(frozen=True)
class Pace:
    """From the issue of a word, as far as it goes up to an instruction, to that of the next."""

    first: list[int]
    """Ticks, of every occurrence in program order; of bursts, from the first item on."""
    others: list[int]
    """Of each site, ticks from one item of a burst to the next behind that."""
    per_cycle: int
    """Ticks a cycle."""


def pace(arch: Arch, items: Sequence[Item], stream: Expansion, beside: Sequence[bool]) -> Pace:
    """The pace of one core's stream; `beside`: of each site, whether it is in the word of the one
    before."""
    front = arch.front_end
    width = Fraction(1, front.issue_width)
    if front.fetch_bandwidth is None:
        return Pace([1] * len(stream.order), [1] * len(stream.sites), front.issue_width)
    each = Fraction(1 / front.fetch_bandwidth.at(arch.clock)).limit_denominator(_EXACT)
    sizes = fetched(arch, stream.sites, beside)
    waits = [max(width, size * each) for size in sizes]
    per_cycle = math.lcm(*{wait.denominator for wait in (width, *waits)})
    ticks = np.array([int(wait * per_cycle) for wait in waits], np.int64)
    least = int(width * per_cycle)
    first = np.where(at_hand(items, stream, arch), least, ticks[stream.order])
    held = np.array(sizes) <= (front.loop_buffer or 0)
    others = np.where(held, least, ticks)
    return Pace(first.tolist(), others.tolist(), per_cycle)


Blocking = Generator[Queue, None, None]
"""Yields each full queue that it has to wait for."""


class FrontEndProcess:
    """Walks one core's stream."""

    def __init__(
        self, env: Clock, works: list[Work], order: list[int], joined: list[bool], pace: Pace,
        scoreboard: Scoreboard | None,
    ) -> None:  # fmt: skip
        """
        Args:
            works, joined: of each site its work, and whether it is in the word of the one before.
            order: position in `works` of every occurrence, in program order.
        """
        self._env = env
        self._works, self._order, self._joined, self._pace = works, order, joined, pace
        self._ticks = 0
        """When the next instruction can be issued."""
        self._scoreboard = scoreboard
        self.stuck: Work | None = None
        """The instruction that has no free slot."""
        self._walk = self._issue_all()

    def advance(self) -> None:
        """Issue until a queue is full or the stream ends."""
        next(self._walk, None)

    def _issue_all(self) -> Blocking:
        pace, per_cycle = self._pace, self._pace.per_cycle
        works, scoreboard = self._works, self._scoreboard
        joined, before, interval = self._joined, -1, 0
        for index, following in zip(self._order, pace.first, strict=True):
            work = works[index]
            if joined[index] and before == index - 1:
                self._ticks -= interval  # in the word of the one before it
            before, interval = index, following
            queue = work.engine.queue
            if queue.room:
                queue.room -= 1
                ticks = self._ticks
            else:
                if not queue.releases:
                    yield self._blocked(queue, work)
                    self._resumed()
                ticks = self._take(queue)
            hazards = None
            if scoreboard is not None:
                hazards = scoreboard.issue(work, work.issued)
                work.issued += 1
            self._ticks = ticks + interval
            if work.times == 1:
                queue.push((work, ticks // per_cycle, None, hazards))
                continue
            burst = Burst(work.times, queue.depth, (interval, pace.others[index]), per_cycle)
            burst.stamps.append(ticks)
            queue.push((work, ticks // per_cycle, burst, hazards))
            yield from self._issue_rest(queue, work, burst)

    def _issue_rest(self, queue: Queue, work: Work, burst: Burst) -> Blocking:
        """Issue the items of a burst behind the first while slots are free before it starts."""
        while len(burst.stamps) < burst.times:
            if not queue.room and not queue.releases:
                yield self._blocked(queue, work)
                self._resumed()
                if burst.started:
                    self._ticks = burst.next_issue
                    return
            ticks = self._take(queue)
            burst.stamps.append(ticks)
            self._ticks = ticks + burst.interval

    def _blocked(self, queue: Queue, work: Work) -> Queue:
        """Ask `queue` to resume this front end when it has a free slot."""
        self.stuck = work
        queue.blocked.append(self.advance)
        return queue

    def _resumed(self) -> None:
        self.stuck = None
        self._ticks = max(self._ticks, self._env.now * self._pace.per_cycle)

    def _take(self, queue: Queue) -> int:
        """Take a slot that is free, or will be; the ticks of the issue into it."""
        if queue.room:
            queue.room -= 1
            return self._ticks
        return max(self._ticks, queue.releases.popleft() * self._pace.per_cycle)
