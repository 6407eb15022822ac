"""The interlock: holds an instruction back while its operands overlap those of an earlier one.

One per core, on machines without tokens. It learns of every instruction when that is issued, so an
instruction knows all that it has to wait for, and merely counts down as those end.
"""

from __future__ import annotations

from collections.abc import Sequence

from simpy import Event

from simmodel.machine.clock import Clock
from simmodel.machine.work import Span, Work


class Hazards:
    """What one issued instruction still waits for, and who waits for it."""

    __slots__ = ("_behind", "_bell", "_flying", "_pending", "env", "reads", "work", "writes")

    def __init__(
        self, env: Clock, work: Work, occurrence: int, flying: dict[Hazards, None]
    ) -> None:
        self.env = env
        self._flying = flying
        self.work = work
        self.reads: Sequence[Span] = ()
        self.writes: Sequence[Span] = ()
        if work.spans_at is not None:
            self.reads, self.writes = work.spans_at(occurrence)
        self._pending: dict[Hazards, None] = {}
        self._behind: list[Hazards] = []
        self._bell: Event | None = None

    @property
    def blocked(self) -> bool:
        """Whether an earlier instruction is in the way."""
        return bool(self._pending)

    def clear(self) -> Event:
        """An event whose value is the cause, once nothing is in the way any more."""
        self._bell = Event(self.env)
        return self._bell

    def conflicts(self, earlier: Hazards) -> bool:
        """Whether both touch the same bytes and one of them writes."""
        return (
            _overlap(self.reads, earlier.writes)
            or _overlap(self.writes, earlier.writes)
            or _overlap(self.writes, earlier.reads)
        )

    def follow(self, earlier: Hazards) -> None:
        """Do not start before `earlier` has ended."""
        self._pending[earlier] = None
        earlier._behind.append(self)

    def end(self) -> None:
        """The instruction has ended: let those go that waited for it alone."""
        del self._flying[self]
        for later in self._behind:
            del later._pending[self]
            if not later._pending and later._bell is not None:
                later._bell.succeed(self.work.cause)

    def __str__(self) -> str:
        origins = ", ".join(str(h.work) for h in self._pending)
        return f"operands of {origins}"


class Scoreboard:
    """Instructions of one core that were issued and have not ended, in program order."""

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._flying: dict[Hazards, None] = {}

    def issue(self, work: Work, occurrence: int) -> Hazards:
        """Note an instruction and find what it has to wait for."""
        hazards = Hazards(self._env, work, occurrence, self._flying)
        for earlier in self._flying:
            if earlier.work.engine is not work.engine and hazards.conflicts(earlier):
                hazards.follow(earlier)
        self._flying[hazards] = None
        return hazards


def _overlap(these: Sequence[Span], those: Sequence[Span]) -> bool:
    for memory, low, high in these:
        for other, start, end in those:
            if memory == other and low < end and start < high:
                return True
    return False
