"""Where tensors lie between groups: DRAM, or a memory that cores share.

Only the step from memory to memory depends on the home of a tensor, so any group can load one input
from DRAM and another from shared memory. Space there is scarce: buffers are offered one by one,
those that save most DRAM traffic for the bytes and steps they take first; one stays if there is
room for it as long as it lives, and if the groups around it are expected to be quicker for it.

What the network's user or the host reads or writes lies in DRAM. Where every cluster has a shared
memory of its own, a buffer is cut into slices, and groups are split over the cores such that no
cluster needs another one's slice (`compiler.geometry.clusters`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.geometry.clusters import slices
from compiler.passes import Share
from compiler.schedule.residency.buffer import GRAIN, LiveRange, lowest
from compiler.schedule.residency.placement_state import Part, Place, PlacementState, Prices
from compiler.schedule_ir.group import Group, Shared
from compiler.target.group_facts import Facts
from compiler.tensor_ir.nest import HostNode, NestGraph
from simmodel.arch.dtype import size_of
from simmodel.arch.record import Arch, SharedMemory


@dataclass(frozen=True)
class SharedMemoryCandidate:
    """A buffer that could lie in shared memory."""

    span: LiveRange
    """Its bytes in one shared memory, and the positions of the first and last part that use it."""
    names: Mapping[int, tuple[str, ...]]
    """Position -> tensors of the buffer that the group there reads or stores."""
    saved: int
    """DRAM bytes that need not be moved."""
    slices: int
    """Clusters that have a slice each."""

    @property
    def worth(self) -> float:
        """Bytes saved for each byte and step that it occupies."""
        return self.saved / (self.span.size * self.slices * (1 + self.span.last - self.span.first))


@dataclass(frozen=True)
class ChooseHomes:
    """Decide which tensors pass from group to group through shared memory.

    before:
        {a; b} stores t in DRAM              {c} loads t from DRAM
    after:
        {a; b} stores t in shared memory     {c} loads t from there
    """

    shared: bool = True
    """Whether shared memory is used; without it, everything lies in DRAM."""
    part: Share = 1.0
    """Part of shared memory that may be used."""
    ahead: bool = True
    """Whether groups are formed as if what passes between them found room there."""

    def optimistic_costs(self, graph: NestGraph, prices: Prices) -> Iterator[Prices]:
        """What groups may be expected to cost when they are formed: at best, then at worst."""
        memory = prices.arch.memories.shared
        if self.shared and self.ahead and memory is not None:
            yield _Optimistic(prices, _rooms(graph, prices.arch, self._most(memory, prices)))
        yield prices

    def apply(self, parts: Sequence[Part], graph: NestGraph, prices: Prices) -> tuple[Part, ...]:
        """`parts` with what lies in shared memory marked in their groups."""
        memory = prices.arch.memories.shared
        if not self.shared or memory is None:
            return tuple(parts)
        chosen = _Chosen(PlacementState(list(parts), prices), memory, self._most(memory, prices))
        for candidate in sorted(candidates(parts, graph, prices), key=lambda c: -c.worth):
            place = chosen.placed_with(candidate)
            chosen.program.try_place(*([] if place is None else [place]))
        return tuple(chosen.program.parts)

    def _most(self, memory: SharedMemory, prices: Prices) -> int:
        """Bytes that may be used, beside what is on its way between cores."""
        return min(int(self.part * memory.size), memory.size - prices.staging)


def candidates(
    parts: Sequence[Part], graph: NestGraph, prices: Prices
) -> Iterator[SharedMemoryCandidate]:
    """Buffers that only groups use, which can all reach shared memory with them."""
    count = slices(prices.arch)
    barred = _ports(graph)
    used: dict[str, dict[int, list[str]]] = {}
    for position, part in enumerate(parts):
        for name in _touched(part):
            tensor = graph.tensors[name]
            buffer = tensor.storage.buffer
            used.setdefault(buffer, {}).setdefault(position, []).append(name)
            if isinstance(part, HostNode) or tensor.data is not None or name in part.kept:
                barred.add(buffer)
    for buffer, names in used.items():
        elements = graph.buffers[buffer]
        if buffer in barred or elements % count or not _all_reachable(parts, names, prices):
            continue
        tensors = [graph.tensors[name] for found in names.values() for name in found]
        item = size_of(tensors[0].dtype)
        span = LiveRange(buffer, elements // count * item, min(names), max(names))
        saved = sum(tensor.elements * item for tensor in tensors)
        if saved and span.size:
            frozen = {position: tuple(found) for position, found in names.items()}
            yield SharedMemoryCandidate(span, frozen, saved, count)


def _ports(graph: NestGraph) -> set[str]:
    """Buffers that the network's user reads or writes."""
    return {graph.tensors[name].storage.buffer for name in (*graph.inputs, *graph.outputs)}


def _rooms(graph: NestGraph, arch: Arch, most: int) -> dict[str, Shared]:
    """Buffers that could lie in shared memory if nothing else did."""
    count = slices(arch)
    barred = _ports(graph)
    for step in graph.steps:
        if isinstance(step, HostNode):
            names = (*step.inputs, *step.outputs)
            barred |= {graph.tensors[name].storage.buffer for name in names}
    found = {}
    for tensor in graph.tensors.values():
        buffer = tensor.storage.buffer
        size, odd = divmod(graph.buffers.get(buffer, 0) * size_of(tensor.dtype), count)
        if tensor.data is None and buffer not in barred and not odd and 0 < size <= most:
            found[buffer] = Shared(0, size, count)
    return found


@dataclass(frozen=True)
class _Optimistic:
    """Prices of groups if all that they read and store had room in shared memory."""

    real: Prices
    rooms: Mapping[str, Shared]

    @property
    def arch(self) -> Arch:
        return self.real.arch

    @property
    def cores(self) -> int:
        return self.real.cores

    @property
    def facts(self) -> Facts:
        return self.real.facts

    @property
    def staging(self) -> int:
        return self.real.staging

    def price(self, group: Group) -> float:
        hoped = self._hoped(group)
        found = self.real.price(hoped)
        # Slices bar some splits over the cores.
        if math.isinf(found) or any(home.slices > 1 for home in hoped.shared.values()):
            return min(found, self.real.price(group))
        return found

    def cost_below(self, group: Group, limit: float) -> float:
        hoped = self._hoped(group)
        found = self.real.cost_below(hoped, limit)
        if found >= limit or any(home.slices > 1 for home in hoped.shared.values()):
            return min(found, self.real.cost_below(group, min(found, limit)))
        return found

    def overlap_ends(self, group: Group) -> tuple[float, float]:
        hoped = self._hoped(group)
        return self.real.overlap_ends(
            hoped if self.real.price(hoped) <= self.price(group) else group
        )

    def lower_bound(self, group: Group) -> float:
        return self.real.lower_bound(self._hoped(group))

    def _hoped(self, group: Group) -> Group:
        homes = {
            name: self.rooms[buffer]
            for name in _touched(group)
            if (buffer := group.tensors[name].storage.buffer) in self.rooms
        }
        return replace(group, shared=homes) if _reaches(group, homes, self) else group


def _touched(part: Part) -> tuple[str, ...]:
    if isinstance(part, HostNode):
        return (*part.inputs, *part.outputs)
    return tuple(dict.fromkeys((*part.inputs, *part.results)))


def _all_reachable(
    parts: Sequence[Part], names: Mapping[int, Sequence[str]], prices: Prices
) -> bool:
    """Whether copy engines lead from shared memory to where groups read, and from where they
    write."""
    groups = {position: parts[position] for position in names}
    return all(
        isinstance(group, Group) and _reaches(group, names[position], prices)
        for position, group in groups.items()
    )


def _reaches(group: Group, names: Collection[str], prices: Prices) -> bool:
    arch = prices.arch
    if not {*group.results}.isdisjoint(names) and arch.copy_engine("local", "shared") is None:
        return False
    for layer in group.layers:
        roles = prices.facts.layer(layer).roles
        wanted = {role for key, role in roles.items() if key[0] in names}
        if any(arch.copy_engine("shared", role) is None for role in wanted):
            return False
    return True


def homes_as_given(
    parts: Sequence[Part], graph: NestGraph, prices: Prices, given: Mapping[str, int | None]
) -> tuple[Part, ...]:
    """`parts` with exactly the buffers that are `given` in shared memory.

    Args:
        parts: groups and calls of the host, in order.
        graph: the network.
        prices: the machine, and what is true of groups.
        given: buffer -> address of its first byte; None: the lowest that is free.

    Raises:
        ValueError: a buffer cannot lie in shared memory, or not there; says which and why.
    """
    memory = prices.arch.memories.shared
    if not given:
        return tuple(parts)
    if memory is None:
        raise ValueError(f"{next(iter(given))}: {prices.arch.name} has no shared memory")
    chosen = _Chosen(PlacementState(list(parts), prices), memory, memory.size)
    able = {found.span.name: found for found in candidates(parts, graph, prices)}
    items = {t.storage.buffer: size_of(t.dtype) for t in graph.tensors.values()}
    for name, address in given.items():
        if name not in able:
            raise ValueError(f"{name} cannot lie in shared memory between these steps")
        grain = math.lcm(memory.alignment, items[name])
        if address is not None and address % grain:
            raise ValueError(f"{name} at {address}: must be a multiple of {grain} B")
        found = chosen.placed_with(able[name], address)
        if found is None:
            where = "anywhere" if address is None else f"at {address}"
            raise ValueError(f"{name}: {able[name].span.size} B are not free there {where}")
        chosen.program.commit(found)
    return tuple(chosen.program.parts)


@dataclass
class _Chosen:
    """What lies in shared memory so far."""

    program: PlacementState
    memory: SharedMemory
    most: int
    """Bytes that may be used."""

    def placed_with(
        self, candidate: SharedMemoryCandidate, wanted: int | None = None
    ) -> Place | None:
        """Where the candidate can lie; None: nowhere."""
        grain = math.lcm(self.memory.alignment, GRAIN)
        address = lowest(candidate.span, self.program.placed, grain, wanted or 0)
        if address + candidate.span.size > self.most or wanted not in (None, address):
            return None
        home = Shared(address, candidate.span.size, candidate.slices)
        return ((address, candidate.span),), {
            position: self._with_shared(position, dict.fromkeys(names, home))
            for position, names in candidate.names.items()
        }

    def _with_shared(self, position: int, homes: Mapping[str, Shared]) -> Group:
        group = self.program.group(position)
        return replace(group, shared={**group.shared, **homes})
