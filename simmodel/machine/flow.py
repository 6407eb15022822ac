"""Bandwidth: flows over resources, shared max-min fairly in bytes (the fluid model).

A `Flow` is one running instruction's traffic. At full speed 1.0 it does one cycle of work per cycle
and moves `demand` bytes per cycle through each resource it uses. A resource whose flows together
demand more than its limit is *crowded*, and its flows slow down. Only flows that crowded resources
connect have to be looked at when one starts or ends; everything else keeps its speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from simpy import Environment, Event
from simpy.events import Timeout

from simmodel.machine.recorder import Recorder
from simmodel.trace import BANDWIDTH, CONFLICT

SLACK = 1 + 1e-9
"""Demand may exceed a limit by this factor before the resource counts as crowded."""
ROUNDING = 1e-6
"""Cycles of work that float arithmetic may leave over."""


class Resource:
    """Something with a limit in bytes per cycle: DRAM, a link, memory ports, a bank."""

    __slots__ = ("_bytes_per_cycle", "_penalty", "_ways", "cause", "flows", "limit", "load", "name")

    def __init__(
        self, name: str, bytes_per_cycle: float, cause: int, penalty: float = 0.0, ways: int = 1
    ) -> None:
        self.name = name
        self.cause = cause
        """What an instruction that this resource slows down is said to wait for."""
        self.flows: dict[Flow, float] = {}
        """Flow -> demand in bytes per cycle."""
        self.load = 0.0
        """Sum of all demands."""
        self._bytes_per_cycle = bytes_per_cycle
        self._penalty = penalty
        self._ways = ways
        self.limit = bytes_per_cycle * SLACK

    def enter(self, flow: Flow, demand: float) -> bool:
        """Add a flow; whether the resource is crowded with it."""
        self.flows[flow] = demand
        self.load += demand
        if self._penalty:
            self.limit = self._limit()
        return self.load > self.limit

    def leave(self, flow: Flow) -> bool:
        """Remove a flow; whether the resource was crowded with it."""
        crowded = self.load > self.limit
        self.load -= self.flows.pop(flow)
        if not self.flows:
            self.load = 0.0
        if self._penalty:
            self.limit = self._limit()
        return crowded

    def _limit(self) -> float:
        """Limit with the flows that meet here now: each further one costs part of the penalty."""
        meeting = min(1.0, max(0, len(self.flows) - 1) / self._ways)
        return self._bytes_per_cycle * SLACK / (1 + self._penalty * meeting)

    @property
    def limit_alone(self) -> float:
        """Bytes per cycle that one flow gets when there is no other."""
        return self._bytes_per_cycle

    @property
    def granted(self) -> float:
        """Bytes per cycle that flow now."""
        return sum(flow.speed * demand for flow, demand in self.flows.items())


Usage = tuple[tuple[Resource, float], ...]
"""Resources and the bytes per cycle that a flow at full speed moves through each."""


class Flow:
    """One engine's traffic; engines run one instruction at a time, so each has one flow."""

    __slots__ = ("_alarm", "_armed", "_cause", "_since", "env", "finish", "left", "lost", "speed",
                 "usage")  # fmt: skip

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.usage: Usage = ()
        self.left = 0.0
        """Cycles of work left at full speed."""
        self.speed = 1.0
        self.finish = 0
        """Cycle in which it ends if no speed changes."""
        self.lost = [0.0, 0.0]
        """Cycles lost to on-chip memories, and to DRAM and links."""
        self._since = 0
        self._cause = CONFLICT
        self._alarm: Event | None = None
        self._armed = 0

    def begin(self, usage: Usage, length: float) -> None:
        """Start `length` cycles of work now, at full speed."""
        now = self.env.now
        self.usage = usage
        self.left = length
        self.speed = 1.0
        self._since = int(now)
        self.finish = int(now) + math.ceil(length - ROUNDING)
        self._alarm = None
        if self.lost[0] or self.lost[1]:
            self.lost = [0.0, 0.0]

    def alarm(self) -> Event:
        """An event at the present finish; the flow may be late then, but it is never early."""
        self._armed = self.finish
        self._alarm = Timeout(self.env, self.finish - self.env.now)
        return self._alarm

    def pace(self, speed: float, cause: int) -> None:
        """Go on at `speed`, bounded by a resource of `cause`."""
        self._account()
        self.speed = speed
        self._cause = cause
        self.finish = self._since + max(0, math.ceil(self.left / speed - ROUNDING))
        late = self._alarm
        if late is None or self.finish >= self._armed or late.callbacks is None:
            return
        # SimPy cannot take back the late alarm: its callbacks move to a new one, and it rings idly.
        waiting, late.callbacks = late.callbacks, []
        self.alarm().callbacks = waiting

    def stop(self) -> None:
        """The work is done: settle what was lost."""
        if self.speed < 1.0:
            self._account()

    def _account(self) -> None:
        now = int(self.env.now)
        passed = now - self._since
        self.left -= passed * self.speed
        if self.speed < 1.0:
            self.lost[self._cause == BANDWIDTH] += passed * (1.0 - self.speed)
        self._since = now


class Fabric:
    """Starts and ends flows, and shares crowded resources among them."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder

    def start(self, flow: Flow) -> None:
        """Let `flow` take its share from now on."""
        crowded = [r for r, demand in flow.usage if r.enter(flow, demand)]
        if crowded:
            self._share(crowded)
        if self._recorder is not None:
            self._record(self._recorder, flow)

    def end(self, flow: Flow) -> None:
        """Give what `flow` used to the others."""
        freed = [resource for resource, _ in flow.usage if resource.leave(flow)]
        if freed:
            self._share(freed)
        if self._recorder is not None:
            self._record(self._recorder, flow)

    def _share(self, seeds: list[Resource]) -> None:
        flows, crowded = _connected(seeds)
        if len(crowded) == 1:
            speeds = _fill_one(crowded[0])
        else:
            speeds = _fill(flows, crowded)
        for flow in flows:
            speed, cause = speeds.get(flow, (1.0, CONFLICT))
            if speed != flow.speed:
                flow.pace(speed, cause)

    def _record(self, recorder: Recorder, flow: Flow) -> None:
        used = [resource for resource, _ in flow.usage]
        flows, _ = _connected(used)
        touched = dict.fromkeys([*used, *(r for f in flows for r, _ in f.usage)])
        recorder.levels_of(touched, int(flow.env.now))


Speeds = dict[Flow, tuple[float, int]]
"""Flow -> speed and the cause that bounds it."""


def _connected(seeds: list[Resource]) -> tuple[Iterable[Flow], list[Resource]]:
    """Flows that `seeds` and further crowded resources connect, and the crowded ones of these."""
    flows: dict[Flow, None] = {}
    seen = dict.fromkeys(seeds)
    todo = list(seeds)
    while todo:
        for flow in todo.pop().flows:
            if flow in flows:
                continue
            flows[flow] = None
            for resource, _ in flow.usage:
                if resource not in seen and resource.load > resource.limit:
                    seen[resource] = None
                    todo.append(resource)
    return flows, [resource for resource in seen if resource.load > resource.limit]


def _fill_one(resource: Resource) -> Speeds:
    """Equal bytes for all flows of the only crowded resource, but none more than it demands."""
    speeds: Speeds = {}
    room, count = resource.limit / SLACK, len(resource.flows)
    for flow, demand in sorted(resource.flows.items(), key=_demand):
        share = room / count
        speed = 1.0 if demand <= share else share / demand
        speeds[flow] = (speed, resource.cause)
        room -= speed * demand
        count -= 1
    return speeds


def _demand(item: tuple[Flow, float]) -> float:
    return item[1]


def _fill(flows: Iterable[Flow], crowded: list[Resource]) -> Speeds:
    """Progressive filling over several crowded resources.

    In each round every resource offers its room in equal parts. Flows that can run at full speed
    are settled first; then a resource that bounds all of its flows settles them; where none does,
    the slowest flow is settled.
    """
    speeds: Speeds = {}
    room = {resource: resource.limit / SLACK for resource in crowded}
    count = {resource: len(resource.flows) for resource in crowded}
    waiting = dict.fromkeys(flows)
    while waiting:
        offers = {flow: _offer(flow, room, count) for flow in waiting}
        for flow in _settled(offers, crowded):
            speed, bound = offers[flow]
            speeds[flow] = (speed, CONFLICT if bound is None else bound.cause)
            del waiting[flow]
            for resource, demand in flow.usage:
                if resource in room:
                    room[resource] = max(0.0, room[resource] - speed * demand)
                    count[resource] -= 1
    return speeds


Offers = dict[Flow, tuple[float, Resource | None]]


def _offer(
    flow: Flow, room: dict[Resource, float], count: dict[Resource, int]
) -> tuple[float, Resource | None]:
    speed, bound = 1.0, None
    for resource, demand in flow.usage:
        if resource in room and room[resource] < speed * demand * count[resource]:
            speed, bound = room[resource] / (count[resource] * demand), resource
    return speed, bound


def _settled(offers: Offers, crowded: list[Resource]) -> list[Flow]:
    free = [flow for flow, (_, bound) in offers.items() if bound is None]
    if free:
        return free
    for resource in crowded:
        mine = [flow for flow in resource.flows if flow in offers]
        if mine and all(offers[flow][1] is resource for flow in mine):
            return mine
    return [min(offers, key=lambda flow: offers[flow][0])]
