"""The fabric: starts and ends flows, and shares crowded resources max-min fairly in bytes.

Who gets how much changes only when a flow starts or ends, and only among the flows that crowded
resources connect with it (the fluid model). Bandwidth is shared anew at the end of such a cycle,
once for all flows that start or end in it: equal cores start alike. One crowded resource alone, the
common case, is shared without looking at anything else.
"""

from __future__ import annotations

from collections import Counter

from simpy import Event
from simpy.events import EventPriority, Timeout

from simmodel.machine.flow import SLACK, Alarm, Flow, Resource, Usage, round_up_cycles
from simmodel.machine.queue import Clock

Binding = dict[Flow, Resource]
Levels = dict[Resource, float]
LAST = EventPriority(2)
"""Behind all else that happens in a cycle."""


class Fabric:
    """Starts and ends flows, and shares crowded resources among them."""

    def __init__(self, env: Clock) -> None:
        self._env = env
        self.crowded: dict[Resource, None] = {}
        self.seeds: dict[Resource, None] = {}
        """Resources to share at the end of this cycle."""

    def start(self, flow: Flow, usage: Usage, length: float, now: int) -> Event:
        """Begin `length` cycles of work; the event tells their end, after which call `end`.

        The bookkeeping of the resources stands here and in `end`, not in methods of theirs, because
        it is run for every instruction.
        """
        flow.usage = usage
        flow.left = length
        flow.since = now
        flow.ended = False
        flow.lost = [0.0, 0.0]
        shared = False
        for resource, demand in usage:
            resource.flows[flow] = demand
            resource.load += demand
            if resource.penalty:
                resource.meet()
            if resource.load > resource.limit:
                self.crowded[resource] = None
                shared = True
                self._share_later(resource)
        flow.alarm = Alarm(self._env) if shared else Timeout(self._env, round_up_cycles(length))
        return flow.alarm

    def end(self, flow: Flow, now: int) -> None:
        """Free the bandwidth of `flow` for others."""
        if flow.bound is not None:
            flow.bound.advance(now)
            flow.bound.release(flow, now)
        for resource, demand in flow.usage:
            crowded = resource.load > resource.limit
            flows = resource.flows
            del flows[flow]
            resource.load = resource.load - demand if flows else 0.0
            if resource.penalty:
                resource.meet()
            if crowded:
                self._share_later(resource)
                if resource.load <= resource.limit:
                    del self.crowded[resource]

    def _share_later(self, resource: Resource) -> None:
        if not self.seeds:
            event = Event(self._env)
            event._ok, event._value = True, None
            event.callbacks.append(self._share_bandwidth)
            self._env.schedule(event, LAST)
        self.seeds[resource] = None

    def _share_bandwidth(self, event: Event) -> None:
        seeds, now = [*self.seeds], self._env.now
        self.seeds.clear()
        if len(seeds) == 1 and len(self.crowded) <= (seeds[0] in self.crowded):
            self._share_alone(seeds[0], now)
            return
        flows, resources = self._connected(seeds)
        binding, levels = fill(flows, [r for r in resources if r in self.crowded])
        for resource in resources:
            resource.advance(now)
        for flow in flows:
            self._rebind(flow, binding.get(flow), now)
        for resource, level in levels.items():
            resource.level = level
            resource.arm(now)

    def _share_alone(self, resource: Resource, now: int) -> None:
        """Share the only resource that is, or was, crowded."""
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
                    self._rebind(flow, resource if demand > level else None, now)
        else:
            for flow in flows:
                self._rebind(flow, None, now)
        if level:
            resource.level = level
            resource.arm(now)

    def _rebind(self, flow: Flow, resource: Resource | None, now: int) -> None:
        if (flow.bound is resource and (resource or type(flow.alarm) is Timeout)) or flow.ended:
            return
        if flow.bound is not None:
            flow.bound.release(flow, now)
        if resource is not None:
            resource.bind(flow, now)
        else:
            self._free(flow)

    def _free(self, flow: Flow) -> None:
        """Let a flow run free: its engine's callbacks move to a new alarm."""
        waited = flow.alarm
        flow.alarm = Timeout(self._env, round_up_cycles(flow.left))
        if waited is not None:
            flow.alarm.callbacks, waited.callbacks = waited.callbacks, []

    def _connected(self, seeds: list[Resource]) -> tuple[list[Flow], list[Resource]]:
        """`seeds` and the crowded resources that flows connect with them, and all their flows."""
        flows: dict[Flow, None] = {}
        resources = dict.fromkeys(seeds)
        most = len(self.crowded.keys() | resources.keys())
        todo = list(seeds)
        while todo:
            for flow in todo.pop().flows:
                if flow in flows:
                    continue
                flows[flow] = None
                # A broadcast uses many resources, few of them crowded.
                for resource, _ in flow.usage if len(resources) < most else ():
                    if resource in self.crowded and resource not in resources:
                        resources[resource] = None
                        todo.append(resource)
        return list(flows), list(resources)


def _level(resource: Resource) -> float:
    """Equal rates for all flows of one crowded resource, each at most its demand."""
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
    narrow = {flow: tuple([use for use in flow.usage if use[0] in room]) for flow in flows}
    while left:
        offers = {r: levels.get(r, room[r] / waiting[r]) for r in crowded if waiting[r]}
        bounds = {flow: _limiting_resource(narrow[flow], offers) for flow in left}
        settled = _settled(bounds, waiting)
        for flow in settled:
            resource = bounds[flow][1]
            if resource is not None:
                binding[flow] = resource
                levels[resource] = offers[resource]
        if len(settled) == len(left):
            break
        for flow in settled:
            speed = bounds[flow][0]
            del left[flow]
            for used, demand in narrow[flow]:
                rest = room[used] - speed * demand
                room[used] = rest if rest > 0.0 else 0.0
                waiting[used] -= 1
    return binding, levels


Bounds = dict[Flow, tuple[float, Resource | None]]


def _limiting_resource(narrow: Usage, offers: Levels) -> tuple[float, Resource | None]:
    """Speed of a flow under `offers`, and the resource that holds it back."""
    speed = 1.0
    bound: Resource | None = None
    for resource, demand in narrow:
        offer = offers[resource]
        if offer < speed * demand:
            speed, bound = offer / demand, resource
    return speed, bound


def _settled(bounds: Bounds, waiting: dict[Resource, int]) -> list[Flow]:
    """The flows whose bounds are final; `waiting`: flows left of each resource."""
    free = [flow for flow, (_, bound) in bounds.items() if bound is None]
    if free:
        return free
    held = [(speed, bound.name, bound) for speed, bound in bounds.values() if bound is not None]
    count = Counter(bound for *_, bound in held)
    closed = {resource for resource, flows in count.items() if flows == waiting[resource]}
    if not closed:
        closed = {min(held, key=lambda entry: entry[:2])[2]}
    return [flow for flow, (_, bound) in bounds.items() if bound in closed]
