"""The interlock: holds an instruction back while its operands overlap those of an earlier one.

One per core, on machines without tokens. It learns of every instruction when that is issued, so an
instruction knows all that it has to wait for, and merely counts down as those end.
"""

from __future__ import annotations

from collections.abc import Sequence

from simpy import Event

from simmodel.machine.queue import Clock
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

    def follow(self, earlier: Hazards) -> None:
        """Do not start before `earlier` has ended."""
        if earlier not in self._pending:
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


Marks = dict[int, list[tuple[int, int, Hazards]]]
"""By memory instance: lowest byte, one past the highest, and whose they are."""


class Scoreboard:
    """Instructions of one core that were issued and have not ended, in program order."""

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._flying: dict[Hazards, None] = {}
        self._reads: Marks = {}
        self._writes: Marks = {}

    def issue(self, work: Work, occurrence: int) -> Hazards:
        """Note an instruction and find what it has to wait for."""
        hazards = Hazards(self._env, work, occurrence, self._flying)
        self._flying[hazards] = None
        for span in hazards.reads:
            self._follow_conflicts(hazards, span, self._writes)
        for span in hazards.writes:
            self._follow_conflicts(hazards, span, self._writes)
            self._follow_conflicts(hazards, span, self._reads)
        for spans, marks in ((hazards.reads, self._reads), (hazards.writes, self._writes)):
            for memory, low, high in spans:
                marks.setdefault(memory, []).append((low, high, hazards))
        return hazards

    def _follow_conflicts(self, hazards: Hazards, span: Span, marks: Marks) -> None:
        """Follow everyone in flight on another engine who marked bytes of `span`."""
        memory, low, high = span
        marked = marks.get(memory)
        if not marked:
            return
        engine, flying = hazards.work.engine, self._flying
        gone = 0
        for start, end, other in marked:
            if other not in flying:
                gone += 1
            elif low < end and start < high and other.work.engine is not engine:
                hazards.follow(other)
        if gone > len(marked) // 2:
            marks[memory] = [mark for mark in marked if mark[2] in flying]
