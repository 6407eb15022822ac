"""What stays on chip between groups: tensors that need not go through memory at all.

A result that lies in local memory from the group that makes it to the last one that reads it costs
space in every group between, and saves its store and all loads. Tensors are tried one by one, those
that save most for the space and time they take first; one stays if the groups around it are
expected to be quicker for it, with the smaller tiles that they may have to take. Where several
cores work, each keeps a slice (`compiler.slices`), and the groups around it are cut so that no core
needs another one's when they run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from compiler.cost.handover import between_cores
from compiler.group import Group, Kept, reserving
from compiler.hold.spans import GRAIN, Span, lowest
from compiler.keepable import Candidate, candidates
from compiler.nest.ir import NestGraph
from compiler.options import Omittable, Share
from compiler.pin import spans
from compiler.priced import Part, Place, PricedParts, Prices
from compiler.slices import Slicing, slicings
from simmodel.arch import Memory
from simmodel.dtype import size_of


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
        if not self.enabled:
            return tuple(parts)
        memory = fitter.arch.memories.local
        residents = _Residents(_beside_pinned(parts, fitter), memory, int(self.share * memory.size))
        found = sorted(candidates(parts, graph, fitter), key=lambda c: -c.worth)
        for _, alike in groupby(found, key=lambda c: (c.worth, c.groups)):
            residents.offer(tuple(alike))
        return tuple(residents.program.parts)


@dataclass(frozen=True)
class Given:
    """Where a tensor is to stay."""

    address: int | None = None
    """Of its first byte; None: as near to the memory's end as is free."""
    slicing: Slicing | None = None
    """None: as is quickest."""


def kept_as_given(
    parts: Sequence[Part], graph: NestGraph, fitter: Prices, given: Mapping[str, Given]
) -> tuple[Part, ...]:
    """`parts` with exactly the tensors that are `given` kept on chip.

    Args:
        parts: groups and calls of the host, in order.
        graph: the network.
        fitter: the machine, and what is true of groups.
        given: tensor -> where.

    Raises:
        ValueError: a tensor cannot be kept, or not there; says which and why.
    """
    memory = fitter.arch.memories.local
    residents = _Residents(_beside_pinned(parts, fitter), memory, memory.size)
    able = {candidate.name: candidate for candidate in candidates(parts, graph, fitter)}
    for name, wanted in given.items():
        if name not in able:
            raise ValueError(f"{name} cannot stay on chip between these steps")
        address, grain = wanted.address, math.lcm(memory.alignment, GRAIN)
        if address is not None and address % grain:
            raise ValueError(f"{name} at {address}: must be a multiple of {grain} B")
        ways = residents.ways(able[name]) if wanted.slicing is None else [wanted.slicing]
        if not ways:
            raise ValueError(f"{name} cannot stay on chip: these steps cannot be cut alike")
        found = [
            place
            for way in ways
            if (place := residents.placed_with(able[name], way, address)) is not None
        ]
        if not found:
            where = "anywhere" if address is None else f"at {address}"
            least = min(residents.size(able[name], way) for way in ways)
            raise ValueError(f"{name}: {least} B are not free in local memory {where}")
        best = found[0] if len(found) == 1 else residents.program.best(found)
        residents.program.settle(best or found[0])
    return tuple(residents.program.parts)


def _beside_pinned(parts: Sequence[Part], prices: Prices) -> PricedParts:
    """`parts`, with the constants that lie at the memory's end."""
    return PricedParts(list(parts), prices, spans(parts, "local", prices.arch.memories.local))


@dataclass
class _Residents:
    """The end of local memory, and what lies there from group to group."""

    program: PricedParts
    memory: Memory
    most: int
    """Bytes that it may take."""

    def offer(self, alike: Sequence[Candidate]) -> None:
        """Keep candidates that save as much as each other between the same groups, as the steps of
        a recurrent layer do: all of them if that is expected to be quicker, as prices of long
        groups are dear, else those that are by themselves."""
        if len(alike) > 1:
            ways = self.ways(alike[0])
            together = [place for way in ways if (place := self._together(alike, way)) is not None]
            if self.program.offer(*together):
                return
        for candidate in alike:
            self.program.offer(*self.places(candidate))

    def _together(self, alike: Sequence[Candidate], way: Slicing) -> Place | None:
        """Where candidates can be kept, as far as there is room; None where one cannot be so."""
        program = self.program
        beside = PricedParts(list(program.parts), program.prices, list(program.placed))
        trial = replace(self, program=beside)
        changed: dict[int, Group] = {}
        for candidate in alike:
            if way not in trial.ways(candidate):
                return None
            place = trial.placed_with(candidate, way)
            if place is not None:
                beside.settle(place)
                changed |= place[1]
        return (beside.placed[len(program.placed) :], changed) if changed else None

    def ways(self, candidate: Candidate) -> list[Slicing]:
        """How cores can keep the candidate for its readers, as these are now."""
        prices = self.program.prices
        if prices.arch.core_count == 1:
            return [Slicing()]
        if [*candidate.kept] != [candidate.name]:
            return []  # slices of a concatenation would be cut twice
        readers = []
        for position in sorted(candidate.groups - {candidate.first}):
            reader = candidate.joint.user(self.program.group(position))
            assert reader is not None
            readers.append(reader)
        passing = between_cores(prices.arch) is not None
        return list(slicings(candidate.name, readers, prices.arch, prices.cores, passing=passing))

    def places(self, candidate: Candidate) -> Iterator[Place]:
        """Where it can be kept, for all ways for which there is room."""
        for way in self.ways(candidate):
            place = self.placed_with(candidate, way)
            if place is not None:
                yield place

    def size(self, candidate: Candidate, way: Slicing) -> int:
        """Bytes that a core needs, border included."""
        if not way.slices:
            return candidate.bytes
        kept = candidate.kept[candidate.name]
        return math.prod(replace(kept, cut=way.slices).padded) * size_of(
            candidate.joint.whole.dtype
        )

    def placed_with(
        self, candidate: Candidate, way: Slicing, address: int | None = None
    ) -> Place | None:
        """Where the candidate can be kept, by its offset from the memory's end; None: nowhere."""
        memory = self.memory
        grain = math.lcm(memory.alignment, GRAIN)
        size = -(-self.size(candidate, way) // grain) * grain
        span = Span(candidate.name, size, candidate.first, candidate.last)
        start = 0 if address is None else memory.size - size - address
        if start < 0:  # beyond the memory's end
            return None
        offset = lowest(span, self.program.placed, grain, start)
        base = (memory.size - offset - size) // grain * grain
        if offset + size > self.most or address not in (None, base):
            return None
        reserve = memory.size - base
        return ((offset, span),), {
            position: self._with(position, candidate, way, base, reserve)
            for position in range(candidate.first, candidate.last + 1)
            if isinstance(self.program.parts[position], Group)
        }

    def _with(
        self, position: int, candidate: Candidate, way: Slicing, address: int, reserve: int
    ) -> Group:
        """The group at `position` with one more tensor on the residents."""
        group = self.program.group(position)
        reserved = reserving(group.reserved, {"local": reserve})
        if position not in candidate.groups:
            return replace(group, reserved=reserved)
        found = candidate.joint.user(group)
        assert found is not None
        names = candidate.joint.names(found)
        kept = {name: _placed(candidate.kept[name], way, address) for name in names}
        return replace(found, kept={**group.kept, **kept}, reserved=reserved)


def _placed(kept: Kept, way: Slicing, address: int) -> Kept:
    """A tensor in its place; where cores keep slices, there is room for the largest."""
    kept = replace(kept, address=address)
    if not way.slices:
        return kept
    cut = replace(kept, cut=way.slices, passed=way.passed)
    return replace(cut, room=cut.padded)
