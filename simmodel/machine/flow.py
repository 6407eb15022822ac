"""Flows and resources: bytes per cycle of running instructions through memories and links.

A `Flow` is one running instruction's traffic. Running *free* it does one cycle of work per cycle
and moves `demand` bytes per cycle through each resource that it uses. A resource whose flows
together demand more than its limit is *crowded*: it *binds* flows, which then all move the same
`level` of bytes per cycle through it. A flow that stays bound is not touched when the level
changes: the resource counts the bytes that each bound flow has moved since it began, and a flow
ends when that counter reaches its goal. So a start or an end costs the same for any number of
flows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from simpy import Event
from simpy.events import Timeout

from simmodel.machine.queue import Clock
from simmodel.trace import BANDWIDTH

SLACK = 1 + 1e-9
"""Demand may exceed a limit by this factor before the resource counts as crowded."""
ROUNDING = 1e-6
"""Cycles of work that float arithmetic may leave over."""


class Alarm(Event):
    """An event whose callbacks run at once when it rings, not as a further event of this cycle."""

    def ring(self) -> None:
        """Resume the waiting processes."""
        waiting, self.callbacks = self.callbacks, None  # type: ignore[assignment]
        self._ok, self._value = True, None
        for callback in waiting:
            callback(self)


def round_up_cycles(cycles: float) -> int:
    """Whole cycles, rounded up, not below zero."""
    return max(0, math.ceil(cycles - ROUNDING))


@dataclass(slots=True, eq=False)
class Flow:
    """One engine's traffic; engines run one instruction at a time, so each has one flow."""

    usage: Usage = ()
    left: float = 0.0
    """Cycles of work that were left at `since`."""
    since: int = 0
    bound: Resource | None = None
    demand: float = 0.0
    """Bytes per cycle of work through the resource that binds it."""
    goal: float = 0.0
    """Reading of that resource's counter at which it ends."""
    turn: int = 0
    """Counts each start and end of being bound, so that old entries are recognized."""
    alarm: Event | None = None
    """What its engine waits for."""
    ended: bool = False
    lost: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Cycles lost to on-chip memories, and to DRAM and links."""


@dataclass(slots=True, eq=False)
class Resource:
    """Something with a limit in bytes per cycle: DRAM, a link, memory ports, a bank."""

    env: Clock
    name: str
    bytes_per_cycle: float
    """What a flow gets when there is no other."""
    cause: int
    """What an instruction that this resource slows down is said to wait for."""
    penalty: float = 0.0
    """Extra time, as a fraction, while flows meet."""
    banks: int = 1
    """How many they may meet in."""
    flows: dict[Flow, float] = field(default_factory=dict)
    """Flow -> demand in bytes per cycle."""
    load: float = 0.0
    """Sum of all demands."""
    limit: float = 0.0
    level: float = 0.0
    """Bytes per cycle of each flow that it binds."""
    binding: int = 0
    """How many flows it binds."""
    moved: float = 0.0
    since: int = 0
    ends: list[tuple[float, int, Flow, int]] = field(default_factory=list)
    armed: int = -1
    _order: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.limit = self.bytes_per_cycle * SLACK

    @property
    def crowded(self) -> bool:
        """Whether its flows demand more than there is."""
        return self.load > self.limit

    def meet(self) -> None:
        """A flow has come or gone: each that meets others here costs part of the penalty."""
        meeting = min(1.0, max(0, len(self.flows) - 1) / self.banks)
        self.limit = self.bytes_per_cycle * SLACK / (1 + self.penalty * meeting)

    def advance(self, now: int) -> None:
        """Bring the counter up to `now`."""
        if self.binding:
            self.moved += self.level * (now - self.since)
        else:
            self.moved = 0.0
        self.since = now

    def bind(self, flow: Flow, now: int) -> None:
        """From now on `flow`, which was free, moves at this resource's level."""
        flow.left -= now - flow.since
        flow.since = now
        flow.bound = self
        flow.demand = self.flows[flow]
        flow.goal = self.moved + flow.left * flow.demand
        flow.turn += 1
        self.binding += 1
        heappush(self.ends, (flow.goal, next(self._order), flow, flow.turn))
        waited, flow.alarm = flow.alarm, Alarm(self.env)
        if waited is not None:
            flow.alarm.callbacks, waited.callbacks = waited.callbacks, []

    def release(self, flow: Flow, now: int) -> None:
        """Stop binding `flow`, and settle what it lost."""
        left = 0.0 if flow.ended else (flow.goal - self.moved) / flow.demand
        flow.lost[self.cause == BANDWIDTH] += (now - flow.since) - (flow.left - left)
        flow.left = left
        flow.since = now
        flow.bound = None
        flow.turn += 1
        self.binding -= 1

    def arm(self, now: int) -> None:
        """See to it that the next flow to end is woken in time."""
        # Counted from here on, so that equal states of the machine hold equal numbers.
        due = [
            (goal - self.moved, order, flow, turn)
            for goal, order, flow, turn in self.ends
            if flow.turn == turn
        ]
        self.ends, self.moved = due, 0.0
        if not due:
            return
        heapify(due)
        for goal, _, flow, _ in due:
            flow.goal = goal
        end = now + round_up_cycles(due[0][0] / self.level)
        if self.armed < now or end < self.armed:
            self.armed = end
            Timeout(self.env, end - now).callbacks.append(self._ring)

    def _ring(self, event: Event) -> None:
        """Wake the flows that have moved all their bytes; alarms that came too early are moved."""
        now = self.env.now
        if self.armed != now:
            return
        self.armed = -1
        self.advance(now)
        reached = self.moved + ROUNDING * self.level
        due = self.ends
        woken: list[Alarm] = []
        while due and due[0][0] <= reached:
            _, _, flow, turn = heappop(due)
            if flow.turn == turn and isinstance(flow.alarm, Alarm):
                flow.ended = True
                woken.append(flow.alarm)
        for alarm in woken:
            alarm.ring()
        if not woken:
            self.arm(now)


Usage = tuple[tuple[Resource, float], ...]
"""Resources and the bytes per cycle that a free flow moves through each."""
