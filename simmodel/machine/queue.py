"""A finite instruction queue between the front end and one engine."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from simpy import Environment, Event

Entry = TypeVar("Entry")


class Waiting(Protocol):
    """Who waits for a slot."""

    def advance(self) -> None:
        """Go on: a slot is free."""


class Queue(Generic[Entry]):
    """The finite instruction queue of one engine; a slot is free when its instruction starts."""

    __slots__ = ("bell", "blocked", "depth", "entries", "releases", "room")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.room = depth
        """Free slots now."""
        self.releases: deque[int] = deque()
        """Cycles, known ahead, at which the items of a running burst free further slots."""
        self.entries: deque[Entry] = deque()
        self.blocked: deque[Waiting] = deque()
        """Front ends that wait for a slot."""
        self.bell: Event | None = None
        """Rings when there is an entry again."""

    def push(self, entry: Entry) -> None:
        """Append an entry, in a slot that was taken before."""
        self.entries.append(entry)
        bell = self.bell
        if bell is not None:
            self.bell = None
            bell.succeed()

    def resume(self) -> None:
        """A slot is free: let the front end go on that waited first."""
        self.blocked.popleft().advance()


# The machine's clock: SimPy's environment with time in whole cycles.


class Clock(Environment):
    """Starts at cycle 0; every delay is a whole number of cycles, so `now` is one too."""

    @property
    def now(self) -> int:
        """The current cycle."""
        return self._now  # type: ignore[return-value]
