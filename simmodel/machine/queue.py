"""What engines wait for: entries of their queues, tokens and barriers; and the machine's clock.

A signal carries the reason why the waiting engine had to wait: the *cause* of its idle cycles.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from simpy import Environment, Event
from simpy.core import EmptySchedule
from simpy.events import NORMAL, Timeout


class Clock(Environment):
    """Starts at cycle `begin`; every delay is a whole number of cycles, so `now` is one too.

    Equal cores do much in the same cycles, so events are kept by cycle, in the order in which they
    were scheduled, instead of in one heap.
    """

    def __init__(self, begin: int = 0) -> None:
        super().__init__(begin)
        self.begin = begin
        """Cycle of the first issue: the host has prepared the inference."""
        self.skipped = 0
        """Cycles of repetitions that were not simulated: what is reported comes so much later."""
        self._today: deque[Event] = deque()
        self._late: list[tuple[int, int, Event]] = []
        """What happens behind all else in this cycle: priority, number."""
        self._days: dict[int, list[Event]] = {}
        """Later events by cycle."""
        self._times: list[int] = []
        """These cycles, as a heap."""

    @property
    def now(self) -> int:
        """The current cycle."""
        return self._now  # type: ignore[return-value]

    def schedule(self, event: Event, priority: int = NORMAL, delay: float = 0) -> None:
        """Let `event` happen `delay` cycles later, or with another priority behind this cycle."""
        if delay:
            when = int(self._now + delay)
            if when not in self._days:
                self._days[when] = []
                heappush(self._times, when)
            self._days[when].append(event)
        elif priority == NORMAL:
            self._today.append(event)
        else:
            heappush(self._late, (priority, next(self._eid), event))

    def step(self) -> None:
        """Let the next event happen."""
        if not self._today:
            if self._late:
                self._today.append(heappop(self._late)[2])
            elif self._times:
                self._now = heappop(self._times)
                self._today.extend(self._days.pop(self._now))
            else:
                raise EmptySchedule
        event = self._today.popleft()
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)

    def pending(self) -> Iterator[tuple[int, Event]]:
        """What is still to happen, and in how many cycles; -1: late in this one."""
        days = ((when - self.now, self._days[when]) for when in sorted(self._times))
        late = [event for *_, event in sorted(self._late)]
        for ahead, events in ((0, self._today), (-1, late), *days):
            yield from ((ahead, event) for event in events)


class Queue:
    """The finite instruction queue of one engine; a slot is free when its instruction starts."""

    __slots__ = ("bell", "blocked", "depth", "entries", "releases", "room")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.room = depth
        """Free slots now."""
        self.releases: deque[int] = deque()
        """Cycles, known ahead, at which the items of a running burst free further slots."""
        self.entries: deque[Any] = deque()
        self.blocked: deque[Callable[[], None]] = deque()
        """Wakes the front ends that wait for a slot, the first one first."""
        self.bell: Event | None = None
        """Rings when there is an entry again."""

    def push(self, entry: Any) -> None:
        """Append an entry, in a slot that was taken before."""
        self.entries.append(entry)
        bell = self.bell
        if bell is not None:
            self.bell = None
            bell.succeed()


class Token:
    """A counting semaphore; waiting engines are served first come, first served."""

    __slots__ = ("count", "env", "name", "waiters")

    def __init__(self, env: Clock, name: str, count: float = 0) -> None:
        self.env = env
        self.name = name
        self.count = count
        self.waiters: deque[tuple[int, Event]] = deque()

    def wait(self, count: int) -> Event:
        """An event whose value is the cause, once `count` have been taken for the caller."""
        event = Event(self.env)
        self.waiters.append((count, event))
        return event

    def signal(self, count: float, cause: int) -> None:
        """Add `count`, visible in this cycle."""
        self.count += count
        waiters = self.waiters
        while waiters and waiters[0][0] <= self.count:
            taken, event = waiters.popleft()
            self.count -= taken
            event.succeed(cause)

    def notify(self, count: int, cause: int, delay: int) -> None:
        """Add `count` from another core, visible `delay` cycles later."""
        if not delay:
            self.signal(count, cause)
            return
        arrival = Timeout(self.env, delay)
        arrival.callbacks.append(Arrival(self, count, cause))

    def __str__(self) -> str:
        return f"token {self.name} (has {self.count})"


@dataclass(frozen=True)
class Arrival:
    """A signal on its way to another core."""

    token: Token
    count: int
    cause: int

    def __call__(self, _: Event) -> None:
        """Arrive."""
        self.token.signal(self.count, self.cause)


class Barrier(Token):
    """Closed until all have arrived; an open barrier is a token that never runs out."""

    __slots__ = ("arrivals", "needed", "sites")

    def __init__(self, env: Clock, name: str, needed: int) -> None:
        super().__init__(env, name, math.inf if needed <= 0 else 0)
        self.needed = needed
        self.arrivals = 0
        self.sites: list[tuple[int, int]] = []
        """Core and number of each site that arrives."""

    def signal(self, count: float, cause: int) -> None:
        self.arrivals += int(count)
        if self.arrivals == self.needed:
            super().signal(math.inf, cause)

    def __str__(self) -> str:
        return f"barrier {self.name} ({self.arrivals} of {self.needed} arrived)"
