"""What constants stay on chip over several groups: those that several layers read.

The steps of a recurrent layer read the same weights one after another; so do layers that share
theirs. A constant that stays from its first use to its last is loaded once, as a whole on every
core that works on it, and takes its bytes at the end of its memory from every group between. Those
that save most loads for the space and the groups that they take come first. It is hoped for when
groups are formed, and comes true where these are expected to be quicker for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.passes import Omittable, Share
from compiler.schedule.residency.buffer import GRAIN, LiveRange, lowest
from compiler.schedule.residency.placement_state import Part, PlacementState, Prices
from compiler.schedule_ir.group import Group, Pinned, reserving
from compiler.schedule_ir.layer import Layer
from compiler.target.group_facts import Facts, ResidentConstant
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.record import Arch, Memory


@dataclass(frozen=True)
class SharedConstantCandidate:
    """A constant that several layers read alike."""

    constant: ResidentConstant
    first: int
    """Position of the first part that reads it."""
    last: int
    reader: int
    """Number of the first layer that reads it."""
    uses: int
    """Layers that read it."""

    @property
    def name(self) -> str:
        """Of the constant."""
        return self.constant.key[0]

    @property
    def saved(self) -> int:
        """Bytes that need not be loaded."""
        return self.constant.loaded * (self.uses - 1)

    @property
    def worth(self) -> float:
        """Bytes saved for each byte and part that it occupies."""
        return self.saved / (self.constant.bytes * (1 + self.last - self.first))


@dataclass(frozen=True)
class ConstantPlacement:
    """Where a candidate can lie."""

    candidate: SharedConstantCandidate
    offset: int
    """Bytes between its end and the memory's, to a grain."""
    size: int
    """Bytes, in whole grains."""
    home: Pinned

    @property
    def span(self) -> tuple[int, LiveRange]:
        """For what is placed beside it."""
        candidate = self.candidate
        return self.offset, LiveRange(candidate.name, self.size, candidate.first, candidate.last)


@dataclass(frozen=True)
class PinConstants(Omittable):
    """Decide which constants stay on chip over several groups.

    before:
        {a} loads w    {b} loads w    {c} loads w
    after:
        {a} loads w    {b} finds w    {c} finds w        w in local memory for three groups
    """

    share: Share = 0.5
    """Part of each memory that may be taken."""
    worth: Share = 0.02
    """Of the bytes of constants that layers load, the part that must be saved."""

    def optimistic_costs(
        self, parts: Sequence[Layer | HostNode], prices: Prices
    ) -> Iterator[tuple[Prices, float]]:
        """What groups may be expected to cost when they are formed: with what could stay, if there
        is anything, then without; with each the cycles that those behind it surely take."""
        alone = [p if isinstance(p, HostNode) else Group((p,), ()) for p in parts]
        places = self.places(alone, prices)
        if places:
            hoped = _Hoped(prices, {place.candidate.name: place for place in places})
            again = sum(place.candidate.saved + place.candidate.constant.loaded for place in places)
            yield hoped, again / prices.arch.dram_bytes_per_cycle
        yield prices, math.inf

    def apply(self, parts: Sequence[Part], prices: Prices) -> tuple[Part, ...]:
        """`parts` with the constants that stay marked in their groups: all for which there is room,
        or those of them that pay by themselves."""
        places = self.places(parts, prices)
        program = PlacementState(list(parts), prices)
        for some in (places, *([place] for place in places if len(places) > 1)):
            if some and not program.placed:
                program.try_place(_groups_with_constants(some, program.parts, prices.arch))
        return tuple(program.parts)

    def places(self, parts: Sequence[Part], prices: Prices) -> list[ConstantPlacement]:
        """Candidates with their places, those worth most first, as far as there is room."""
        if not self.enabled:
            return []
        found: list[ConstantPlacement] = []
        by_worth = sorted(candidates(parts, prices.facts), key=lambda c: (-c.worth, c.first))
        for candidate in by_worth:
            role = candidate.constant.role
            memory = prices.arch.memories.on_chip()[role]
            there = [place.span for place in found if place.home.role == role]
            place = _lowest_placement(candidate, memory, there)
            if place.offset + place.size <= self.share * memory.size:
                found.append(place)
        saved = sum(place.candidate.saved for place in found)
        return found if saved >= self.worth * _constant_load_bytes(parts) else []


def _constant_load_bytes(parts: Sequence[Part]) -> int:
    """Bytes of the constants that layers load, each as often as layers read it."""
    groups = (part for part in parts if not isinstance(part, HostNode))
    layers = (layer for group in groups for layer in group.layers)
    tensors = (layer.tensors[name] for layer in layers for name in layer.inputs)
    return sum(tensor.stored for tensor in tensors if tensor.data is not None)


def candidates(parts: Sequence[Part], facts: Facts) -> Iterator[SharedConstantCandidate]:
    """Constants that several layers read, all of them laid out in the same way."""
    readers: dict[str, list[tuple[int, Layer]]] = {}
    for position, part in enumerate(parts):
        for layer in () if isinstance(part, HostNode) else part.layers:
            for name in layer.inputs:
                if layer.tensors[name].data is not None:
                    readers.setdefault(name, []).append((position, layer))
    for name, found in readers.items():
        if len(found) < 2:
            continue
        ways = {
            tuple(c for c in facts.layer(layer).constants if c.key[0] == name)
            for _, layer in found
        }  # fmt: skip
        way = ways.pop()
        if ways or len(way) != 1 or facts.arch.copy_engine("dram", way[0].role) is None:
            continue
        (first, layer), (last, _) = found[0], found[-1]
        yield SharedConstantCandidate(way[0], first, last, layer.index, len(found))


def pinned_as_given(
    parts: Sequence[Part], prices: Prices, given: Mapping[str, tuple[str, int | None]]
) -> tuple[Part, ...]:
    """`parts` with exactly the constants that are `given` on chip over several groups.

    Args:
        parts: groups and calls of the host, in order.
        prices: the machine, and what is true of groups.
        given: constant -> memory, and address of its first byte; None: as near to the memory's end
            as is free.

    Raises:
        ValueError: a constant cannot stay, or not there; says which and why.
    """
    able = {candidate.name: candidate for candidate in candidates(parts, prices.facts)}
    found: list[ConstantPlacement] = []
    for name, (role, address) in given.items():
        if name not in able or able[name].constant.role != role:
            raise ValueError(f"{name} cannot stay in {role} memory for these steps")
        memory = prices.arch.memories.on_chip()[role]
        there = [place.span for place in found if place.home.role == role]
        place = _lowest_placement(able[name], memory, there, address)
        if place.home.address < 0 or address not in (None, place.home.address):
            where = "anywhere" if address is None else f"at {address}"
            raise ValueError(f"{name}: {place.size} B are not free in {role} memory {where}")
        found.append(place)
    return tuple(
        {**dict(enumerate(parts)), **_groups_with_constants(found, parts, prices.arch)[1]}.values()
    )


def spans(parts: Sequence[Part], role: str, memory: Memory) -> list[tuple[int, LiveRange]]:
    """What lies at the end of a memory for constants that stay, by the offset from there."""
    found: dict[str, tuple[int, LiveRange]] = {}
    grain = math.lcm(memory.alignment, GRAIN)
    for position, part in enumerate(parts):
        for name, home in () if isinstance(part, HostNode) else part.pinned.items():
            if home.role != role:
                continue
            size = -(-home.bytes // grain) * grain
            offset = (memory.size - home.address - size) // grain * grain
            first = found[name][1].first if name in found else position
            found[name] = offset, LiveRange(name, size, first, position)
    return list(found.values())


def _lowest_placement(
    candidate: SharedConstantCandidate, memory: Memory, there: Sequence[tuple[int, LiveRange]],
    address: int | None = None,
) -> ConstantPlacement:  # fmt: skip
    """Where a candidate can lie beside what is `there`, however little room there is."""
    constant = candidate.constant
    grain = math.lcm(memory.alignment, GRAIN)
    size = -(-constant.bytes // grain) * grain
    span = LiveRange(candidate.name, size, candidate.first, candidate.last)
    start = 0 if address is None else max(0, memory.size - size - address) // grain * grain
    offset = lowest(span, there, grain, start)
    base = (memory.size - offset - size) // grain * grain
    return ConstantPlacement(candidate, offset, size, Pinned(constant.role, base, constant.bytes))


def _groups_with_constants(
    places: Sequence[ConstantPlacement], parts: Sequence[Part], arch: Arch
) -> tuple[list[tuple[int, LiveRange]], dict[int, Group]]:
    """The groups of `parts` that change if all of `places` are taken."""
    by_name = {place.candidate.name: place for place in places}
    changed: dict[int, Group] = {}
    for position, part in enumerate(parts):
        over = [p for p in places if p.candidate.first <= position <= p.candidate.last]
        if over and isinstance(part, Group):
            near = {p.candidate.name: by_name[p.candidate.name] for p in over}
            firsts = {name for name, p in near.items() if p.candidate.first == position}
            changed[position] = _beside_constants(part, near, firsts, arch)
    return [place.span for place in places], changed


def _beside_constants(
    group: Group, places: Mapping[str, ConstantPlacement], firsts: set[str], arch: Arch
) -> Group:
    """A group beside what lies at `places`; of that, it is the first to read `firsts`."""
    memories = arch.memories.on_chip()
    homes = [place.home for place in places.values()]
    ends: Iterator[dict[str, int]] = (
        {home.role: memories[home.role].size - home.address} for home in homes
    )
    pinned = {
        name: replace(places[name].home, loads=name in firsts)
        for name in group.inputs
        if name in places
    }
    reserved = reserving(group.reserved, *ends)
    return replace(group, pinned={**group.pinned, **pinned}, reserved=reserved)


@dataclass(frozen=True)
class _Hoped:
    """Prices of groups if all that could stay does."""

    real: Prices
    places: Mapping[str, ConstantPlacement]

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
        return self.real.price(self._beside(group))

    def cost_below(self, group: Group, limit: float) -> float:
        return self.real.cost_below(self._beside(group), limit)

    def overlap_ends(self, group: Group) -> tuple[float, float]:
        return self.real.overlap_ends(self._beside(group))

    def lower_bound(self, group: Group) -> float:
        return self.real.lower_bound(self._beside(group))

    def _beside(self, group: Group) -> Group:
        layers = {layer.index for layer in group.layers}
        firsts = {name for name, p in self.places.items() if p.candidate.reader in layers}
        return _beside_constants(group, self.places, firsts, self.arch)
