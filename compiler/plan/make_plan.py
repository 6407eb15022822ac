"""From a schedule to its plan: what the group holds on chip, then the buffers of every layer.

What passes between layers is held by the group, with the borders that its readers expect. A layer
that is alone holds nothing: it loads what it reads and stores what it makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.errors import DoesNotFit
from compiler.fuse.group import Group
from compiler.nest.ir import dense
from compiler.plan.facts import Facts
from compiler.plan.ir import Buffer, LayerPlan, Plan
from compiler.plan.layer import Held, LayerPlanner, engine_between, make_buffer, unused
from compiler.plan.ranges import Key
from compiler.tile.ir import Schedule, Tiled
from compiler.tile.walk import Memory, Walked, largest, walk_parts
from simmodel.arch import Arch
from simmodel.dtype import size_of

DOUBLE = 2
"""Slots of a buffer that one engine fills while another empties it."""


def outer(level: int) -> str:
    """Name of the loop variable of a group's outer loop `level`."""
    return f"o{level}"


def shares_loads(schedule: Schedule, arch: Arch, engine: str) -> bool:
    """Whether one core loads constants that stay for all that take part.

    Where the hardware interlocks, it would have to look after bytes that another core writes.
    """
    tokens = arch.front_end.sync == "tokens"
    return tokens and arch.copy_[engine].broadcast and len(schedule.parts) > 1


@dataclass(frozen=True)
class MakePlan:
    """Lay out buffers and steps for one schedule.

    before:
        for t0: for t1: tile of {conv; add}
    after:
        load w (1 level), load x (2 levels), conv on matrix, load r, add on vector, store y
    """

    slots: int = DOUBLE
    """Slots of streamed buffers."""

    def apply(self, schedule: Schedule, arch: Arch) -> Plan:
        """The plan; DoesNotFit when buffers that are in use together are larger than a memory,
        Unwalkable or Unholdable where the group's layers do not go together like this."""
        plan = _GroupPlanner(schedule, arch, self.slots).plan()
        for role, memory in arch.memories.on_chip().items():
            size = memory.size - (schedule.group.reserved if role == "local" else 0)
            if (demand := demand_of(plan, role)) > size:
                raise too_large(plan, role, demand, size)
        return plan


def held_tensors(
    schedule: Schedule, slots: int, walked: tuple[Walked, ...], facts: Facts
) -> dict[str, Buffer]:
    """The buffers of tensors that a group holds on chip."""
    planner = _GroupPlanner(schedule, facts.arch, slots, facts)
    planner.tensors(walked)
    return planner.buffers


def demand_of(plan: Plan, role: str) -> int:
    """Most bytes of one memory that are in use at once."""
    buffers = [b for b in plan.buffers.values() if b.role == role]
    last = len(plan.layers) - 1
    return max(
        (
            sum(b.bytes * b.slots for b in buffers if alive(b, position, last))
            for position in range(last + 1)
        ),
        default=0,
    )


def alive(buffer: Buffer, position: int, last: int) -> bool:
    """Whether `buffer` takes space of its own while layer `position` of 0 .. `last` runs."""
    if buffer.address is not None:
        return False
    return buffer.lasting or buffer.first <= position <= buffer.last


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
    return DoesNotFit(
        demand=demand,
        bound=bound,
        unit="B",
        terms=tuple(sorted(terms, key=lambda term: -term[1])),
        levers=(f"memories.{role}.size of at least {demand} B", "a smaller batch or input"),
        where=f"{plan.schedule.group.name}: {role} memory",
    )


class _GroupPlanner:
    """Collects buffers: those of the group, then layer by layer."""

    def __init__(
        self, schedule: Schedule, arch: Arch, slots: int, facts: Facts | None = None
    ) -> None:
        self.facts = facts or Facts(arch)
        self.schedule = schedule
        self.group: Group = schedule.group
        self.arch = arch
        self.slots = slots
        self.buffers: dict[str, Buffer] = {}
        self.loads: list[tuple[str, str]] = []

    def plan(self) -> Plan:
        """Everything, in order."""
        walked = self._walked()
        held = self.held(walked)
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
        loads = tuple(self.loads)
        return Plan(self.schedule, self.buffers, layers, loads, stores, walked, held.tensors)

    def held(self, walked: tuple[Walked, ...]) -> Held:
        """Makes the buffers of what the group holds."""
        return Held(self.tensors(walked), self._residents())

    def _walked(self) -> tuple[Walked, ...]:
        alone = len(self.group.layers) == 1 and not self.schedule.loops
        if alone and not self.group.kept:
            return ()
        return walk_parts(self.group, self.schedule.loops, self.schedule.parts, Memory())

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

    def tensors(self, walked: tuple[Walked, ...]) -> dict[str, str]:
        """Buffers for the tensors that the walk holds."""
        names = dict.fromkeys(name for w in walked for m in w.moments for name in m.holds)
        return {name: self._hold(name, walked).name for name in names}

    def _kept(self, name: str) -> Buffer:
        """The place of a tensor that is on chip before or after the group."""
        kept = self.group.kept[name]
        dtype = self.group.tensors[name].dtype
        strides = tuple(size_of(dtype) * s for s in dense(kept.padded, kept.order))
        buffer = make_buffer(
            self.arch, unused(name, self.buffers), "local", dtype, kept.padded, strides,
            slots=1, level=len(self.schedule.loops), last=len(self.group.layers) - 1,
            address=kept.address,
        )  # fmt: skip
        self.buffers[buffer.name] = buffer
        return buffer

    def _hold(self, name: str, walked: tuple[Walked, ...]) -> Buffer:
        if name in self.group.kept:
            return self._kept(name)
        tensor = self.group.tensors[name]
        passing = self.facts.passing(self.group, name)
        shape = largest((size for w in walked for size in w.hold_sizes(name)), len(tensor.shape))
        strides = tuple(size_of(tensor.dtype) * s for s in dense(shape, passing.order))
        made = self.group.made.get(name)
        readers = self.group.held.get(name) or _readers(self.group, name)
        again = any(len(w.moments) * w.repeats > 1 for w in walked)
        stays = any(_stays(w, name) for w in walked)
        rolled = any(name in w.rolled for w in walked)
        if rolled:
            self.facts.movable(tensor)
        crossing = made is None or len(passing.engines) > 1
        single = rolled or stays or not again or not crossing
        key = (name, passing.border, False) if made is None else None
        bordered = made is not None and any(w.bordered(name) for w in walked)
        last = len(self.group.layers) - 1 if name in self.group.results else max(readers)
        buffer = make_buffer(
            self.arch, unused(name, self.buffers), "local", tensor.dtype, shape, strides,
            slots=1 if single else self.slots, level=len(self.schedule.loops), key=key,
            first=0 if made is None else made, last=last,
            lasting=again and (rolled or stays or bordered),
        )  # fmt: skip
        self.buffers[buffer.name] = buffer
        if made is None:
            home = self.group.home(name)
            engine = engine_between(home, "local", self.arch, self.group.name)
            self.loads.append((buffer.name, engine))
        return buffer

    def _residents(self) -> dict[tuple[int, Key], str]:
        """Constants that stay: one load for the whole group."""
        found = {}
        for position, tiled in enumerate(self.schedule.layers):
            if not tiled.resident:
                continue
            for constant in self.facts.layer(tiled.layer).constants:
                buffer = make_buffer(
                    self.arch, unused(constant.key[0], self.buffers), constant.role,
                    constant.dtype, constant.shape, constant.strides, slots=1, level=0,
                    key=constant.key, first=position, last=position,
                    lasting=bool(self.schedule.loops),
                )  # fmt: skip
                self.buffers[buffer.name] = buffer
                engine = engine_between("dram", constant.role, self.arch, tiled.layer.name)
                self.loads.append((buffer.name, engine))
                found[position, constant.key] = buffer.name
        return found


def _stays(walked: Walked, name: str) -> bool:
    """Whether a tensor's buffer keeps its place in the tensor over several tiles."""
    origins = {m.holds[name].origin for m in walked.moments if name in m.holds}
    return len(walked.moments) > 1 and len(origins) == 1


def _readers(group: Group, name: str) -> tuple[int, ...]:
    return tuple(p for p, layer in enumerate(group.layers) if name in layer.inputs)
