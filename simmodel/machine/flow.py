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
from heapq import heappop, heappush
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


class Flow:
    """One engine's traffic; engines run one instruction at a time, so each has one flow."""

    __slots__ = ("alarm", "bound", "demand", "ended", "goal", "left", "lost", "narrow", "narrowed",
                 "since", "turn", "usage")  # fmt: skip

    def __init__(self) -> None:
        self.usage: Usage = ()
        self.narrow: Usage = ()
        """What of it was crowded when the fabric counted `narrowed` changes."""
        self.narrowed = -1
        self.left = 0.0
        """Cycles of work that were left at `since`."""
        self.since = 0
        self.bound: Resource | None = None
        self.demand = 0.0
        """Bytes per cycle of work through the resource that binds it."""
        self.goal = 0.0
        """Reading of that resource's counter at which it ends."""
        self.turn = 0
        """Counts each start and end of being bound, so that old entries are recognized."""
        self.alarm: Event | None = None
        """What its engine waits for."""
        self.ended = False
        self.lost = [0.0, 0.0]
        """Cycles lost to on-chip memories, and to DRAM and links."""

    @property
    def speed(self) -> float:
        """Cycles of work per cycle, 1.0 when free."""
        return 1.0 if self.bound is None else self.bound.level / self.demand


class Resource:
    """Something with a limit in bytes per cycle: DRAM, a link, memory ports, a bank."""

    __slots__ = ("_armed", "_due", "_moved", "_order", "_since", "_ways", "binding",
                 "bytes_per_cycle", "cause", "env", "flows", "level", "limit", "load", "name",
                 "penalty")  # fmt: skip

    def __init__(
        self,
        env: Clock,
        name: str,
        bytes_per_cycle: float,
        cause: int,
        conflicts: tuple[float, int] = (0.0, 1),
    ) -> None:
        """`conflicts`: penalty of flows that meet, and the number of banks they may meet in."""
        self.env = env
        self.name = name
        self.bytes_per_cycle = bytes_per_cycle
        """What a flow gets when there is no other."""
        self.cause = cause
        """What an instruction that this resource slows down is said to wait for."""
        self.flows: dict[Flow, float] = {}
        """Flow -> demand in bytes per cycle."""
        self.load = 0.0
        """Sum of all demands."""
        self.limit = bytes_per_cycle * SLACK
        self.level = 0.0
        """Bytes per cycle of each flow that it binds."""
        self.binding = 0
        """How many flows it binds."""
        self.penalty, self._ways = conflicts
        """Extra time, as a fraction, while flows meet."""
        self._moved = 0.0
        self._since = 0
        self._due: list[tuple[float, int, Flow, int]] = []
        self._armed = -1
        self._order = count()

    @property
    def crowded(self) -> bool:
        """Whether its flows demand more than there is."""
        return self.load > self.limit

    def meet(self) -> None:
        """A flow has come or gone: each that meets others here costs part of the penalty."""
        meeting = min(1.0, max(0, len(self.flows) - 1) / self._ways)
        self.limit = self.bytes_per_cycle * SLACK / (1 + self.penalty * meeting)

    def advance(self, now: int) -> None:
        """Bring the counter up to `now`."""
        if self.binding:
            self._moved += self.level * (now - self._since)
        else:
            self._moved = 0.0
        self._since = now

    def bind(self, flow: Flow, now: int) -> None:
        """From now on `flow`, which was free, moves at this resource's level."""
        flow.left -= now - flow.since
        flow.since = now
        flow.bound = self
        flow.demand = self.flows[flow]
        flow.goal = self._moved + flow.left * flow.demand
        flow.turn += 1
        self.binding += 1
        heappush(self._due, (flow.goal, next(self._order), flow, flow.turn))
        waited, flow.alarm = flow.alarm, Alarm(self.env)
        if waited is not None:
            flow.alarm.callbacks, waited.callbacks = waited.callbacks, []

    def release(self, flow: Flow, now: int) -> None:
        """Stop binding `flow`, and settle what it lost."""
        left = 0.0 if flow.ended else (flow.goal - self._moved) / flow.demand
        flow.lost[self.cause == BANDWIDTH] += (now - flow.since) - (flow.left - left)
        flow.left = left
        flow.since = now
        flow.bound = None
        flow.turn += 1
        self.binding -= 1

    def arm(self, now: int) -> None:
        """See to it that the next flow to end is woken in time."""
        due = self._due
        while due and due[0][2].turn != due[0][3]:
            heappop(due)
        if not due:
            return
        end = now + round_up_cycles((due[0][0] - self._moved) / self.level)
        if self._armed < now or end < self._armed:
            self._armed = end
            Timeout(self.env, end - now).callbacks.append(self._ring)

    def _ring(self, event: Event) -> None:
        """Wake the flows that have moved all their bytes; alarms that came too early are moved."""
        now = self.env.now
        if self._armed != now:
            return
        self._armed = -1
        self.advance(now)
        reached = self._moved + ROUNDING * self.level
        due = self._due
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

    @property
    def granted(self) -> float:
        """Bytes per cycle that flow now."""
        return sum(flow.speed * demand for flow, demand in self.flows.items())


Usage = tuple[tuple[Resource, float], ...]
"""Resources and the bytes per cycle that a free flow moves through each."""
