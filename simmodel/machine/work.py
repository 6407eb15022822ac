"""A site of the program bound to the machine's parts, prepared before the run.

Front end and engines read only this while they run, so whatever an instruction answers through a
method (cycles, traffic, address) is asked once, here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from simmodel.isa import Instruction
from simmodel.machine.flow import Usage
from simmodel.machine.queue import Queue
from simmodel.machine.token import Token
from simmodel.trace import CAUSES, CONFLICT

Span = tuple[int, int, int]
"""Memory instance, lowest byte, one past the highest byte."""
Waits = tuple[tuple[Token, int], ...]
Notices = tuple[tuple[Token, int, int], ...]
"""Tokens of whatever core, counts, and cycles until they arrive."""


class Station(Protocol):
    """What is known of an engine wherever its work is."""

    name: str
    core: int
    """-1 for the host."""
    queue: Queue[Any]


class Profile:
    """How long an instruction works alone, and what it moves per cycle meanwhile."""

    __slots__ = ("behind", "cause", "cycles", "length", "usage")

    def __init__(self, cycles: int, moved: Usage) -> None:
        """`moved` are bytes of the whole instruction through each resource, none of them 0."""
        slowest = max((amount / r.bytes_per_cycle for r, amount in moved), default=0.0)
        self.length = max(float(cycles), slowest)
        """Cycles after the start-up at the granted bandwidth of an otherwise silent machine."""
        self.cycles = math.ceil(self.length - 1e-6)
        self.cause = CONFLICT
        """What bounds it alone, where that is not its own cycles."""
        for resource, amount in moved:
            if amount / resource.bytes_per_cycle == slowest:
                self.cause = resource.cause
        self.usage: Usage = tuple((r, amount / self.length) for r, amount in moved)
        self.behind = self
        """The same instruction right behind its like, where the engine overlaps them."""


def _no_profile(occurrence: int) -> Profile:
    raise RuntimeError(f"occurrence {occurrence} of an instruction that is not connected")


class Work:
    """One site on one core, and what is counted about it."""

    __slots__ = ("cause", "core", "count", "cycles", "engine", "first", "gain", "gained",
                 "instruction", "issued", "last", "lost", "notices", "number", "profile",
                 "profile_at", "signals", "spans_at",
                 "startup", "times", "waits")  # fmt: skip

    def __init__(
        self,
        instruction: Instruction,
        place: tuple[int, int],
        engine: Station,
        costs: tuple[int, int, int],
        cause: int,
    ) -> None:
        self.instruction = instruction
        self.core, self.number = place
        self.engine = engine
        self.startup, self.cycles, self.times = costs
        """Cycles before the traffic, cycles of work, instructions issued per occurrence."""
        self.gain = 0
        """Cycles less where it follows its like without a gap (`Instruction.overlap`)."""
        self.gained = 0
        """Cycles that were saved so."""
        self.cause = cause
        """What an engine waits for that waits for this work."""
        self.waits: Waits = ()
        self.signals: Waits = ()
        self.notices: Notices = ()
        self.profile: Profile | None = None
        """The profile of every occurrence; None where the banks that it touches decide."""
        self.profile_at: Callable[[int], Profile] = _no_profile
        """Profile of an occurrence, where `profile` is None."""
        self.spans_at: Callable[[int], tuple[Sequence[Span], Sequence[Span]]] | None = None
        """Bytes read and written by an occurrence, where the interlock watches them."""
        self.issued = 0
        """Occurrences that the front end has sent to the queue."""
        self.count = 0
        """Occurrences that have ended."""
        self.first = -1
        self.last = 0
        self.lost = [0] * len(CAUSES)
        """Idle cycles of the engine before and during this work, by cause."""

    def __str__(self) -> str:
        times = f" x {self.times}" if self.times > 1 else ""
        return f"{self.instruction.MNEMONIC}{times}"
