"""From a schedule to its plan: what the group holds on chip, then the buffers of every layer.

What passes between layers is held by the group, with the borders that its readers expect. A layer
that is alone holds nothing: it loads what it reads and stores what it makes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from compiler.bind.facts import Facts
from compiler.errors import DoesNotFit
from compiler.geometry.walk import Memory, Walked, Walking, largest, walk_parts
from compiler.group import Group
from compiler.hold.buffer import Buffer, alive, engine_between, in_use
from compiler.hold.tensors import Held, Holder
from compiler.options import Count, Within
from compiler.plan.ir import LayerPlan, Plan
from compiler.plan.layer import LayerPlanner
from compiler.schedule import Schedule, Tiled
from simmodel.arch import Arch

DOUBLE = 2
"""Slots of a buffer that one engine fills while another empties it."""


def outer(level: int) -> str:
    """Name of the loop variable of a group's outer loop `level`."""
    return f"o{level}"


@dataclass(frozen=True)
class MakePlan:
    """Lay out buffers and steps for one schedule.

    before:
        for t0: for t1: tile of {conv; add}
    after:
        load w (1 level), load x (2 levels), conv on matrix, load r, add on vector, store y
    """

    slots: Annotated[int, Within(1, 16)] = DOUBLE
    """Slots of streamed buffers."""
    attempts: Count = 6
    """Schedules of a group that are planned and placed before it is given up."""
    walking: Walking = field(default_factory=Walking)
    """Which tiles are loops, and which buffers hold a whole tensor."""

    def apply(self, schedule: Schedule, arch: Arch) -> Plan:
        """The plan; DoesNotFit when buffers that are in use together are larger than a memory,
        Unwalkable or Unholdable where the group's layers do not go together like this."""
        plan = _GroupPlanner(schedule, arch, self.slots, self.walking).plan()
        for role, memory in arch.memories.on_chip().items():
            size = schedule.group.room(role, memory.size)
            if (demand := demand_of(plan, role)) > size:
                raise too_large(plan, role, demand, size)
        return plan


def demand_of(plan: Plan, role: str) -> int:
    """Most bytes of one memory that are in use at once."""
    buffers = [b for b in plan.buffers.values() if b.role == role]
    return max((there[role] for there in in_use(buffers, len(plan.layers), {role: 0})), default=0)


def too_large(plan: Plan, role: str, demand: int, bound: int) -> DoesNotFit:
    """The refusal that lists the buffers of the plan in one memory where it is fullest."""
    last = len(plan.layers) - 1
    buffers = [b for b in plan.buffers.values() if b.role == role]

    def live(position: int) -> list[Buffer]:
        return [b for b in buffers if alive(b, position, last)]

    fullest = max(range(last + 1), key=lambda p: sum(b.bytes * b.slots for b in live(p)))
    terms = [
        (f"{b.name} x {b.slots}" if b.slots > 1 else b.name, b.bytes * b.slots)
        for b in live(fullest)
    ]
    # Buffers lie below what stays on chip between groups.
    below = f" below {bound}" if plan.schedule.group.reserved.get(role) else ""
    return DoesNotFit(
        demand=demand,
        bound=bound,
        unit="B",
        terms=tuple(sorted(terms, key=lambda term: -term[1])),
        levers=(f"memories.{role}.size of at least {demand} B", "a smaller batch or input"),
        where=f"{plan.schedule.group.name}: {role} memory{below}",
    )


class _GroupPlanner:
    """Collects buffers: those of the group, then layer by layer."""

    def __init__(self, schedule: Schedule, arch: Arch, slots: int, walking: Walking) -> None:
        self.schedule = schedule
        self.group: Group = schedule.group
        self.arch = arch
        self.slots = slots
        self.walking = walking
        self.holder = Holder(schedule, slots, Facts(arch))
        self.buffers = self.holder.buffers

    def plan(self) -> Plan:
        """Everything, in order."""
        walked = self._walked()
        held = self.holder.held(walked)
        tensors = held.tensors
        layers = tuple(
            self._layer(tiled, position, held, walked)
            for position, tiled in enumerate(self.schedule.layers)
        )
        home = self.group.home
        stores = tuple(
            (tensors[name], engine_between("local", home(name), self.arch, self.group.name))
            for name in self.group.stored
            if name in tensors
        )
        loads = tuple(self.holder.loads)
        return Plan(self.schedule, self.buffers, layers, loads, stores, walked, tensors, self.slots)

    def _walked(self) -> tuple[Walked, ...]:
        if self.group.alone and not self.schedule.loops:
            return ()
        memory = Memory(self.walking)
        return walk_parts(self.group, self.schedule.loops, self.schedule.parts, memory)

    def _layer(
        self, tiled: Tiled, position: int, held: Held, walked: tuple[Walked, ...]
    ) -> LayerPlan:
        if walked:
            sizes = (size for w in walked for size in w.work_sizes(position))
            part = largest(sizes, len(tiled.layer.result.shape))
            tiled = replace(tiled, parts=(tuple((0, size) for size in part),))
        stored = tiled.layer.result.name in self.group.results
        planner = LayerPlanner(
            tiled, self.arch, self.slots, held, self.buffers, position, self.group.home,
            stored=stored, looped=bool(self.schedule.loops),
        )  # fmt: skip
        return planner.plan()
