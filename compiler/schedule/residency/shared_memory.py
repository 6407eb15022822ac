"""Where tensors lie between groups: DRAM, or a memory that cores share.

Only the step from memory to memory depends on the home of a tensor, so any group can load one input
from DRAM and another from shared memory. Space there is scarce: see `residency.table`.

What the network's user or the host reads or writes lies in DRAM. Where every cluster has a shared
memory of its own, a buffer is cut into slices, and groups are split over the cores such that no
cluster needs another one's slice (`compiler.geometry.clusters`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from compiler.geometry.clusters import slices
from compiler.schedule.residency.table import (
    OptimisticPrices,
    Part,
    Prices,
    ResidencyCandidate,
    ResidencyTable,
    Row,
    Slicing,
)
from compiler.schedule_ir.group import Group, Shared
from compiler.tensor_ir.nest import HostNode, NestGraph
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch
from simmodel.isa.region import replace


@dataclass(frozen=True)
class SharedBuffer(ResidencyCandidate):
    """A buffer that could lie in shared memory."""

    names: Mapping[int, tuple[str, ...]]
    """Position -> tensors of the buffer that the group there reads or stores."""

    def groups_beside(self, row: Row, table: ResidencyTable, slicing: Slicing) -> dict[int, Group]:
        """The groups that read or store it: others have nothing in shared memory to be moved."""
        del slicing
        home = Shared(row.address, self.bytes, self.instances)
        return {
            position: table.group(position).beside(dict.fromkeys(names, home), {})
            for position, names in self.names.items()
        }


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
    ahead: bool = True
    """Whether groups are formed as if what passes between them found room there."""

    def optimistic_costs(self, graph: NestGraph, prices: Prices) -> Iterator[Prices]:
        """What groups may be expected to cost when they are formed: at best, then at worst."""
        memory = prices.arch.memories.shared
        if self.shared and self.ahead and memory is not None:
            rooms = _rooms(graph, prices.arch, memory.size - prices.staging)
            yield OptimisticPrices(prices, partial(_with_rooms, rooms, prices), optional=True)
        yield prices

    def apply(self, parts: Sequence[Part], graph: NestGraph, prices: Prices) -> tuple[Part, ...]:
        """`parts` with what lies in shared memory marked in their groups."""
        memory = prices.arch.memories.shared
        if not self.shared or memory is None:
            return tuple(parts)
        # Beside what is on its way between cores.
        table, limit = ResidencyTable(list(parts), prices), memory.size - prices.staging
        for candidate in sorted(candidates(parts, graph, prices), key=lambda c: -c.worth):
            table.try_place(*candidate.places(table, limit))
        return tuple(table.parts)


def candidates(parts: Sequence[Part], graph: NestGraph, prices: Prices) -> Iterator[SharedBuffer]:
    """Buffers that only groups use, which can all reach shared memory with them."""
    count = slices(prices.arch)
    barred = _ports(graph)
    used: dict[str, dict[int, list[str]]] = {}
    for position, part in enumerate(parts):
        for name in _touched(part):
            tensor = graph.tensors[name]
            buffer = tensor.storage.buffer
            used.setdefault(buffer, {}).setdefault(position, []).append(name)
            if isinstance(part, HostNode) or tensor.data is not None or name in part.residents:
                barred.add(buffer)
    for buffer, names in used.items():
        elements = graph.buffers[buffer]
        if buffer in barred or elements % count:
            continue
        if not all(_reaches(parts[position], found, prices) for position, found in names.items()):
            continue
        tensors = [graph.tensors[name] for found in names.values() for name in found]
        item = size_of(tensors[0].dtype)
        size, saved = elements // count * item, sum(tensor.elements * item for tensor in tensors)
        if saved and size:
            frozen = {position: tuple(found) for position, found in names.items()}
            ends = min(names), max(names)
            yield SharedBuffer(buffer, "shared", count, size, *ends, saved, frozen)


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


def _with_rooms(rooms: Mapping[str, Shared], prices: Prices, group: Group) -> Group:
    """A group all of whose tensors that could have room in shared memory lie there."""
    homes = {
        name: rooms[buffer]
        for name in _touched(group)
        if (buffer := group.tensors[name].storage.buffer) in rooms
    }
    if not _reaches(group, homes, prices):
        return group
    return replace(group, residency={**group.residency, **homes})


def _touched(part: Part) -> tuple[str, ...]:
    if isinstance(part, HostNode):
        return (*part.inputs, *part.outputs)
    return tuple(dict.fromkeys((*part.inputs, *part.results)))


def _reaches(group: Part, names: Collection[str], prices: Prices) -> bool:
    """Whether copy engines lead from shared memory to where a group reads `names`, and from where
    it writes them."""
    arch = prices.arch
    if isinstance(group, HostNode):
        return False
    if not {*group.results}.isdisjoint(names) and arch.copy_engine("local", "shared") is None:
        return False
    for layer in group.layers:
        roles = prices.facts.layer(layer).roles
        wanted = {role for key, role in roles.items() if key[0] in names}
        if any(arch.copy_engine("shared", role) is None for role in wanted):
            return False
    return True
