"""The front end of a core: issues its stream in order into the engines' queues.

It runs ahead in bookkeeping time: entries carry the cycle of their issue, and only a full queue
stops it. Its clock counts ticks, a fraction of a cycle, so that the issue interval is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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


class FrontEndProcess:
    """Walks one core's stream."""

    __slots__ = ("_env", "burst", "due", "joins", "order", "pace", "position", "scoreboard",
                 "stuck", "ticks", "watch", "works")  # fmt: skip

    def __init__(
        self, env: Clock, works: list[Work], order: list[int], joined: list[bool], pace: Pace,
        scoreboard: Scoreboard | None,
    ) -> None:  # fmt: skip
        """
        Args:
            works, joined: of each site its work, and whether it is in the word of the one before.
            order: position in `works` of every occurrence, in program order.
        """
        self._env, self.joins = env, joined
        self.works, self.order, self.pace = works, order, pace
        self.position = 0
        """Occurrences issued, a burst as soon as its first item is."""
        self.ticks = env.now * pace.per_cycle
        """When the next instruction can be issued."""
        self.burst: Burst | None = None
        """The burst that has items to issue yet."""
        self.scoreboard = scoreboard
        self.stuck: Work | None = None
        """The instruction that has no free slot."""
        self.due: float = math.inf
        """Position from which on `watch` is to be told when no slot is free."""
        self.watch: Callable[[FrontEndProcess], None] | None = None

    @property
    def next_site(self) -> int:
        """Position in `works` of the next occurrence; behind all when there is none."""
        return self.order[self.position] if self.position < len(self.order) else len(self.works)

    def advance(self) -> None:
        """Issue until a queue is full or the stream ends."""
        works, order, joined, pace = self.works, self.order, self.joins, self.pace
        scoreboard, per_cycle = self.scoreboard, pace.per_cycle
        resumed = self.stuck is not None
        if resumed:
            self.stuck = None
            self.ticks = max(self.ticks, self._env.now * per_cycle)
        if self.burst is not None:
            if not self._issue_rest(self.burst, resumed):
                return
            resumed = False
        position = self.position
        while position < len(order):
            index = order[position]
            work = works[index]
            if not resumed and joined[index] and position and order[position - 1] == index - 1:
                self.ticks -= pace.first[position - 1]  # in the word of the one before it
            queue = work.engine.queue
            if queue.room:
                queue.room -= 1
                ticks = self.ticks
            elif resumed or queue.releases:
                ticks = self._take(queue)
            else:
                self.position = position
                self._block(queue, work)
                return
            resumed = False
            interval = pace.first[position]
            position += 1
            hazards = None
            if scoreboard is not None:
                hazards = scoreboard.issue(work, work.issued)
                work.issued += 1
            self.ticks = ticks + interval
            if work.times == 1:
                queue.push((work, ticks // per_cycle, None, hazards))
                continue
            burst = Burst(work.times, queue.depth, (interval, pace.others[index]), per_cycle)
            burst.stamps.append(ticks)
            queue.push((work, ticks // per_cycle, burst, hazards))
            self.position = position
            if not self._issue_rest(burst, False):
                return
        self.position = position

    def _issue_rest(self, burst: Burst, resumed: bool) -> bool:
        """Issue the items of a burst behind the first while slots are free before it starts;
        whether there are none left."""
        work = self.works[self.order[self.position - 1]]
        queue = work.engine.queue
        if resumed and burst.started:
            self.ticks = burst.next_issue
            self.burst = None
            return True
        while len(burst.stamps) < burst.times:
            if not resumed and not queue.room and not queue.releases:
                self.burst = burst
                self._block(queue, work)
                return False
            resumed = False
            ticks = self._take(queue)
            burst.stamps.append(ticks)
            self.ticks = ticks + burst.interval
        self.burst = None
        return True

    def _block(self, queue: Queue, work: Work) -> None:
        """Ask `queue` to resume this front end when it has a free slot."""
        self.stuck = work
        queue.blocked.append(self.advance)
        if self.position >= self.due and self.watch is not None:
            self.watch(self)

    def _take(self, queue: Queue) -> int:
        """Take a slot that is free, or will be; the ticks of the issue into it."""
        if queue.room:
            queue.room -= 1
            return self.ticks
        return max(self.ticks, queue.releases.popleft() * self.pace.per_cycle)
