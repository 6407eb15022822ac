"""Bandwidth: flows over resources, shared max-min fairly in bytes (the fluid model).

A `Flow` is one running instruction's traffic. Running *free* it does one cycle of work per cycle
and moves `demand` bytes per cycle through each resource that it uses. A resource whose flows
together demand more than its limit is *crowded*: it *binds* flows, which then all move the same
`level` of bytes per cycle through it. A flow that stays bound is not touched when the level
changes: the resource counts the bytes that each bound flow has moved since it began, and a flow
ends when that counter reaches its goal. So a start or an end costs the same however many share.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from itertools import count

from simpy import Event
from simpy.events import Timeout

from simmodel.machine.clock import Clock
from simmodel.machine.recorder import Recorder
from simmodel.trace import BANDWIDTH

SLACK = 1 + 1e-9
"""Demand may exceed a limit by this factor before the resource counts as crowded."""
ROUNDING = 1e-6
"""Cycles of work that float arithmetic may leave over."""


class Alarm(Event):
    """An event whose callbacks run at once when it rings, not as one more event of this cycle."""

    def ring(self) -> None:
        """Resume who waits for it."""
        waiting, self.callbacks = self.callbacks, None  # type: ignore[assignment]
        self._ok, self._value = True, None
        for callback in waiting:
            callback(self)


def whole(cycles: float) -> int:
    """Whole cycles, rounded up, not below zero."""
    return max(0, math.ceil(cycles - ROUNDING))


class Flow:
    """One engine's traffic; engines run one instruction at a time, so each has one flow."""

    __slots__ = ("alarm", "bound", "demand", "ended", "goal", "left", "lost", "since", "turn",
                 "usage")  # fmt: skip

    def __init__(self) -> None:
        self.usage: Usage = ()
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
        end = now + whole((due[0][0] - self._moved) / self.level)
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
Binding = dict[Flow, Resource]
Levels = dict[Resource, float]


class Fabric:
    """Starts and ends flows, and shares crowded resources among them."""

    def __init__(self, env: Clock, recorder: Recorder | None = None) -> None:
        self._env = env
        self._recorder = recorder
        self._crowded: dict[Resource, None] = {}

    def start(self, flow: Flow, usage: Usage, length: float, now: int) -> Event:
        """Begin `length` cycles of work; the event tells their end, after which call `end`.

        The bookkeeping of the resources stands here and in `end`, not in methods of theirs, because
        it is run for every instruction.
        """
        flow.usage = usage
        flow.left = length
        flow.since = now
        flow.alarm = None
        flow.ended = False
        flow.lost = [0.0, 0.0]
        seeds: list[Resource] | None = None
        for resource, demand in usage:
            resource.flows[flow] = demand
            resource.load += demand
            if resource.penalty:
                resource.meet()
            if resource.load > resource.limit:
                self._crowded[resource] = None
                seeds = [resource] if seeds is None else [*seeds, resource]
        if seeds is not None:
            self._share(seeds, now)
        if self._recorder is not None:
            self._record(self._recorder, flow)
        alarm = flow.alarm
        if alarm is None:
            alarm = flow.alarm = Timeout(self._env, whole(length))
        return alarm

    def end(self, flow: Flow, now: int) -> None:
        """Give what `flow` used to the others."""
        if flow.bound is not None:
            flow.bound.advance(now)
            flow.bound.release(flow, now)
        seeds: list[Resource] | None = None
        for resource, demand in flow.usage:
            crowded = resource.load > resource.limit
            flows = resource.flows
            del flows[flow]
            resource.load = resource.load - demand if flows else 0.0
            if resource.penalty:
                resource.meet()
            if crowded:
                seeds = [resource] if seeds is None else [*seeds, resource]
                if resource.load <= resource.limit:
                    del self._crowded[resource]
        if seeds is not None:
            self._share(seeds, now)
        if self._recorder is not None:
            self._record(self._recorder, flow)

    def _share(self, seeds: list[Resource], now: int) -> None:
        if len(seeds) == 1 and len(self._crowded) <= (seeds[0] in self._crowded):
            self._share_alone(seeds[0], now)
            return
        flows, resources = _connected(seeds)
        binding, levels = fill(flows, [r for r in resources if r.crowded])
        for resource in resources:
            resource.advance(now)
        for flow in flows:
            self._rebind(flow, binding.get(flow), now)
        for resource, level in levels.items():
            resource.level = level
            resource.arm(now)

    def _share_alone(self, resource: Resource, now: int) -> None:
        """Share the only resource that is crowded, or was."""
        resource.advance(now)
        flows = resource.flows
        level = 0.0
        if resource.crowded:
            level = resource.limit / SLACK / len(flows)
            least = min(flows.values())
            if least <= level:
                level = _level(resource)
            if least <= level or resource.binding < len(flows):
                for flow, demand in flows.items():
                    binding = resource if demand > level else None
                    if flow.bound is not binding:
                        self._rebind(flow, binding, now)
        elif resource.binding:
            for flow in flows:
                self._rebind(flow, None, now)
        if level:
            resource.level = level
            resource.arm(now)

    def _rebind(self, flow: Flow, resource: Resource | None, now: int) -> None:
        if flow.bound is resource or flow.ended:
            return
        if flow.bound is not None:
            flow.bound.release(flow, now)
            if resource is None:
                self._free(flow)
        if resource is not None:
            resource.bind(flow, now)

    def _free(self, flow: Flow) -> None:
        """Let a flow that was bound end by itself: its engine's callbacks move to a new alarm."""
        waited = flow.alarm
        flow.alarm = Timeout(self._env, whole(flow.left))
        if waited is not None:
            flow.alarm.callbacks, waited.callbacks = waited.callbacks, []

    def _record(self, recorder: Recorder, flow: Flow) -> None:
        flows, _ = _connected([resource for resource, _ in flow.usage])
        touched = dict.fromkeys(r for f in (flow, *flows) for r, _ in f.usage)
        recorder.levels_of(touched, self._env.now)


def _connected(seeds: list[Resource]) -> tuple[list[Flow], list[Resource]]:
    """`seeds` and the crowded resources that flows connect with them, and all their flows."""
    flows: dict[Flow, None] = {}
    resources = dict.fromkeys(seeds)
    todo = list(seeds)
    while todo:
        for flow in todo.pop().flows:
            if flow in flows:
                continue
            flows[flow] = None
            for resource, _ in flow.usage:
                if resource.load > resource.limit and resource not in resources:
                    resources[resource] = None
                    todo.append(resource)
    return list(flows), list(resources)


def _level(resource: Resource) -> float:
    """Equal bytes for all flows of one crowded resource, but none more than it demands."""
    room, waiting = resource.limit / SLACK, len(resource.flows)
    for demand in sorted(resource.flows.values()):
        if demand > room / waiting:
            break
        room -= demand
        waiting -= 1
    return room / waiting


def fill(flows: list[Flow], crowded: list[Resource]) -> tuple[Binding, Levels]:
    """Progressive filling: which crowded resource binds which flow, and their levels.

    In each round every resource offers its room in equal parts. Flows that no offer holds back are
    free. Then each resource that holds back all of its remaining flows binds them at its offer;
    where there is none, the one that holds back the slowest flow does, and its level is final.
    """
    binding: Binding = {}
    levels: Levels = {}
    room = {resource: resource.limit / SLACK for resource in crowded}
    waiting = {resource: len(resource.flows) for resource in crowded}
    left = dict.fromkeys(flows)
    while left:
        offers = {r: levels.get(r, room[r] / waiting[r]) for r in crowded if waiting[r]}
        bounds = {flow: _bound(flow, offers) for flow in left}
        for flow in _settled(bounds):
            speed, resource = bounds[flow]
            del left[flow]
            if resource is not None:
                binding[flow] = resource
                levels[resource] = offers[resource]
            for used, demand in flow.usage:
                if used in room:
                    room[used] = max(0.0, room[used] - speed * demand)
                    waiting[used] -= 1
    return binding, levels


Bounds = dict[Flow, tuple[float, Resource | None]]


def _bound(flow: Flow, offers: Levels) -> tuple[float, Resource | None]:
    """Speed of `flow` under `offers`, and the resource that holds it back."""
    speed = 1.0
    bound: Resource | None = None
    for resource, demand in flow.usage:
        offer = offers.get(resource)
        if offer is not None and offer < speed * demand:
            speed, bound = offer / demand, resource
    return speed, bound


def _settled(bounds: Bounds) -> list[Flow]:
    """The flows whose bounds are final."""
    free = [flow for flow, (_, bound) in bounds.items() if bound is None]
    if free:
        return free
    # Resources that hold back some flow which another holds back more.
    open_ones: set[Resource] = set()
    for flow, (_, bound) in bounds.items():
        for resource, _ in flow.usage:
            if resource is not bound:
                open_ones.add(resource)
    closed = [flow for flow, (_, bound) in bounds.items() if bound not in open_ones]
    if closed:
        return closed
    held = [(speed, bound.name, bound) for speed, bound in bounds.values() if bound is not None]
    slowest = min(held, key=lambda entry: entry[:2])[2]
    return [flow for flow, (_, bound) in bounds.items() if bound is slowest]
