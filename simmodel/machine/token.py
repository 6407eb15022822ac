"""Tokens: counting semaphores of a core, which other cores may signal too; and barriers.

A signal carries the reason why the waiting engine had to wait: the *cause* of its idle cycles.
"""

from __future__ import annotations

import math
from collections import deque

from simpy import Event
from simpy.events import Timeout

from simmodel.machine.queue import Clock


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
        arrival.callbacks.append(lambda _: self.signal(count, cause))

    def __str__(self) -> str:
        return f"token {self.name} (has {self.count})"


class Barrier(Token):
    """Closed until all have arrived; an open barrier is a token that never runs out."""

    __slots__ = ("arrivals", "needed")

    def __init__(self, env: Clock, name: str, needed: int) -> None:
        super().__init__(env, name, math.inf if needed <= 0 else 0)
        self.needed = needed
        self.arrivals = 0

    def signal(self, count: float, cause: int) -> None:
        self.arrivals += int(count)
        if self.arrivals == self.needed:
            super().signal(math.inf, cause)

    def __str__(self) -> str:
        return f"barrier {self.name} ({self.arrivals} of {self.needed} arrived)"
