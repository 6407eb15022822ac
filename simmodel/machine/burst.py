"""A burst: n instructions of one site, issued one after another, as one entry of the queue.

With d cycles per instruction, item k starts at

    start(k) = max(s + k d, issue(k))        s: start of item 0

and is issued at `issue(k)`: the front end stamps the first items while slots of the queue are free
(at most as many as the queue is deep); the rest follow one issue interval after another, from the
start of the burst on. Both are arithmetic, so no event is spent on the items in between.
"""

from __future__ import annotations

from collections.abc import Iterator


class Burst:
    """What the front end and the engine tell each other about one burst.

    Times of the front end are in ticks, `per_cycle` ticks a cycle: from the issue of the first item
    to the next, and `interval` ticks from issue to issue behind that.
    """

    __slots__ = ("_begun", "_first", "_late", "_pitch", "depth", "interval", "per_cycle", "stamps",
                 "started", "times")  # fmt: skip

    def __init__(self, times: int, depth: int, intervals: tuple[int, int], per_cycle: int) -> None:
        self.times = times
        self.depth = depth
        self._first, self.interval = intervals
        self.per_cycle = per_cycle
        self.stamps: list[int] = []
        """Ticks at which the first items were issued."""
        self.started = False
        self._begun = self._pitch = self._late = 0

    def start(self, now: int, pitch: int) -> None:
        """Item 0 starts at cycle `now`; each item takes `pitch` cycles."""
        self.started = True
        self._begun, self._pitch = now, pitch
        interval = self._first if len(self.stamps) == 1 else self.interval
        self._late = max(self.stamps[-1] + interval, now * self.per_cycle)

    def _issue(self, item: int) -> int:
        known = len(self.stamps)
        if item < known:
            return self.stamps[item]
        return self._late + (item - known) * self.interval

    def _start(self, item: int) -> int:
        return max(self._begun + item * self._pitch, self._issue(item) // self.per_cycle)

    @property
    def length(self) -> int:
        """Cycles from the start of the first item to the end of the last."""
        return self._start(self.times - 1) + self._pitch - self._begun

    @property
    def next_issue(self) -> int:
        """Ticks at which the front end can issue what follows."""
        last = self._issue(self.times - 1)
        if self.times > len(self.stamps):
            last = max(last, self._start(self.times - 1 - self.depth) * self.per_cycle)
        return last + self.interval

    def releases(self) -> Iterator[int]:
        """Cycles at which items start whose slots are left to what follows in the queue."""
        taken = self.times - len(self.stamps)
        return (self._start(item) for item in range(taken, self.times))
