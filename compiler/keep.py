"""What stays on chip between groups: tensors that need not go through memory at all.

A result that lies in local memory from the group that makes it to the last one that reads it costs
space in every group between, and saves its store and all loads. Tensors are tried one by one, those
that save most for the space and time they take first; one stays if the groups around it are
expected to be quicker for it, with the smaller tiles that they may have to take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.group import Group
from compiler.hold.spans import GRAIN, Span, lowest
from compiler.keepable import Candidate, candidates
from compiler.nest.ir import NestGraph
from compiler.options import Omittable, Share
from compiler.priced import Part, Place, PricedParts, Prices
from simmodel.arch import Memory


@dataclass(frozen=True)
class KeepTensors(Omittable):
    """Decide which tensors stay on chip between groups.

    before:
        {a; b} stores t    {c} loads t    {d; e} loads t
    after:
        {a; b} makes t     {c} reads t    {d; e} reads t         t in local memory for three groups
    """

    share: Share = 0.75
    """Part of local memory that may be kept."""

    def apply(self, parts: Sequence[Part], graph: NestGraph, fitter: Prices) -> tuple[Part, ...]:
        """`parts` with what stays on chip marked in their groups."""
        if not self.enabled or fitter.arch.core_count > 1:
            return tuple(parts)  # other cores would have to reach what one of them keeps
        memory = fitter.arch.memories.local
        residents = _Residents(
            PricedParts(list(parts), fitter), memory, int(self.share * memory.size)
        )
        found = sorted(candidates(parts, graph, fitter), key=lambda c: -c.worth)
        for candidate in found:
            residents.program.offer(residents.placed_with(candidate))
        return tuple(residents.program.parts)


def kept_as_given(
    parts: Sequence[Part], graph: NestGraph, fitter: Prices, given: Mapping[str, int | None]
) -> tuple[Part, ...]:
    """`parts` with exactly the tensors that are `given` kept on chip.

    Args:
        parts: groups and calls of the host, in order.
        graph: the network.
        fitter: the machine, and what is true of groups.
        given: tensor -> address of its first byte; None: as near to the memory's end as is free.

    Raises:
        ValueError: a tensor cannot be kept, or not there; says which and why.
    """
    memory = fitter.arch.memories.local
    residents = _Residents(PricedParts(list(parts), fitter), memory, memory.size)
    able = {candidate.name: candidate for candidate in candidates(parts, graph, fitter)}
    for name, address in given.items():
        if fitter.arch.core_count > 1:
            raise ValueError(f"{name} cannot stay on chip: other cores could not reach it")
        if name not in able:
            raise ValueError(f"{name} cannot stay on chip between these steps")
        grain = math.lcm(memory.alignment, GRAIN)
        if address is not None and address % grain:
            raise ValueError(f"{name} at {address}: must be a multiple of {grain} B")
        found = residents.placed_with(able[name], address)
        if found is None:
            where = "anywhere" if address is None else f"at {address}"
            raise ValueError(f"{name}: {able[name].bytes} B are not free in local memory {where}")
        residents.program.settle(found)
    return tuple(residents.program.parts)


@dataclass
class _Residents:
    """The end of local memory, and what lies there from group to group."""

    program: PricedParts
    memory: Memory
    most: int
    """Bytes that it may take."""

    def placed_with(self, candidate: Candidate, address: int | None = None) -> Place | None:
        """Where the candidate can be kept, by its offset from the memory's end; None: nowhere."""
        memory = self.memory
        grain = math.lcm(memory.alignment, GRAIN)
        size = -(-candidate.bytes // grain) * grain
        span = Span(candidate.name, size, candidate.first, candidate.last)
        start = 0 if address is None else memory.size - size - address
        if start < 0:  # beyond the memory's end
            return None
        offset = lowest(span, self.program.placed, grain, start)
        base = (memory.size - offset - size) // grain * grain
        if offset + size > self.most or address not in (None, base):
            return None
        reserve = memory.size - base
        return (offset, span), {
            position: self._with(position, candidate, base, reserve)
            for position in range(candidate.first, candidate.last + 1)
            if isinstance(self.program.parts[position], Group)
        }

    def _with(self, position: int, candidate: Candidate, address: int, reserve: int) -> Group:
        """The group at `position` with one more tensor on the residents."""
        group = self.program.group(position)
        reserved = max(group.reserved, reserve)
        if position not in candidate.groups:
            return replace(group, reserved=reserved)
        found = candidate.joint.user(group)
        assert found is not None
        names = candidate.joint.names(found)
        kept = {name: replace(candidate.kept[name], address=address) for name in names}
        return replace(found, kept={**group.kept, **kept}, reserved=reserved)
