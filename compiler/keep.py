"""What stays on chip between groups: tensors that need not go through memory at all.

A result that lies in local memory from the group that makes it to the last one that reads it costs
space in every group between, and saves its store and all loads. Tensors are tried one by one, those
that save most for the space and time they take first; one stays if the groups around it are
expected to be quicker for it, with the smaller tiles that they may have to take.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.bind.facts import Unholdable
from compiler.geometry.needs import LayerNeeds
from compiler.group import Group, Kept
from compiler.hold.spans import GRAIN, Span, lowest
from compiler.layer import seen_through
from compiler.nest.border import raw_value
from compiler.nest.bounds import clipped
from compiler.nest.ir import HostNode, NestGraph, Tensor
from compiler.nest.rewrite import reads_of, writes_of
from compiler.options import Omittable, Share
from compiler.priced import Part, Place, PricedParts, Prices
from simmodel.arch import Memory
from simmodel.dtype import size_of


@dataclass(frozen=True)
class Candidate:
    """A tensor that could stay."""

    name: str
    first: int
    """Position of the group that makes it."""
    last: int
    """Position of the last group that reads it."""
    kept: Kept
    bytes: int
    """Space that it takes, border included."""
    saved: int
    """Bytes that need not be moved."""
    groups: frozenset[int]
    """Positions of the groups that make and read it."""

    @property
    def worth(self) -> float:
        """Bytes saved for each byte and group that it occupies."""
        return self.saved / (self.bytes * (self.last - self.first))


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


def candidates(parts: Sequence[Part], graph: NestGraph, fitter: Prices) -> Iterator[Candidate]:
    """Results of groups that only later groups read, with what their readers expect of them."""
    alone = _alone(graph)
    for first, part in enumerate(parts):
        if isinstance(part, HostNode):
            continue
        for name in part.results:
            if name not in alone:
                continue
            readers = {
                p: _reader(other, name)
                for p, other in enumerate(parts)
                if p != first and alone[name] & {*other.inputs}
            }
            groups = {p: group for p, group in readers.items() if group is not None}
            if not groups or len(groups) < len(readers):
                continue
            try:
                yield _candidate(name, first, {first: part, **groups}, fitter)
            except Unholdable:
                continue


def _alone(graph: NestGraph) -> dict[str, set[str]]:
    """Tensors that are all that is written in their buffers, where no port lies: with the names
    under which they are read."""
    ports = {graph.tensors[name].storage.buffer for name in (*graph.inputs, *graph.outputs)}
    written: dict[str, list[str]] = {}
    read: dict[str, set[str]] = {}
    for step in graph.steps:
        for name in writes_of(step):
            written.setdefault(graph.tensors[name].storage.buffer, []).append(name)
        for name in reads_of(step):
            read.setdefault(graph.tensors[name].storage.buffer, set()).add(name)
    return {
        names[0]: read.get(buffer, set())
        for buffer, names in written.items()
        if len(names) == 1 and buffer not in ports
    }


def _reader(part: Part, name: str) -> Group | None:
    """`part` as a reader of `name` itself, whatever names it uses; None where it cannot be."""
    if isinstance(part, HostNode):
        return None
    layers = []
    for layer in part.layers:
        for other in layer.inputs:
            same = part.tensors[other].storage.buffer == part.tensors[name].storage.buffer
            if same and other != name:
                found = seen_through(layer, other, name)
                if found is None:
                    return None
                layer = found
        layers.append(layer)
    same = all(a is b for a, b in zip(layers, part.layers, strict=True))
    return part if same else replace(part, layers=tuple(layers))


def _candidate(name: str, first: int, readers: Mapping[int, Group], fitter: Prices) -> Candidate:
    groups = tuple(readers.values())
    tensor = groups[0].tensors[name]
    together = Group(tuple(layer for group in groups for layer in group.layers), (name,))
    passing = fitter.facts.passing(together, name)
    before, after = _border(together, tensor)
    raw = _raw(together, tensor, passing.border)
    kept = Kept(tensor.shape, before, after, passing.order, raw, 0)
    item = size_of(tensor.dtype)
    loads = sum(name in layer.inputs for group in groups[1:] for layer in group.layers)
    size = math.prod(kept.padded) * item
    saved = tensor.elements * item * (1 + loads)
    return Candidate(name, first, max(readers), kept, size, saved, frozenset(readers))


def _border(group: Group, tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How far the readers of a tensor reach out of it, in front and behind."""
    before = after = (0,) * len(tensor.shape)
    for layer in group.layers:
        if tensor.name in layer.inputs:
            whole = tuple((0, extent) for extent in layer.result.shape)
            region = clipped(LayerNeeds(layer).of(whole)[tensor.name], tensor.shape)
            before = tuple(max(pair) for pair in zip(before, region.before, strict=True))
            after = tuple(max(pair) for pair in zip(after, region.after, strict=True))
    return before, after


def _raw(group: Group, tensor: Tensor, border: float | None) -> float:
    if border is None:
        return 0.0
    accesses = (a for layer in group.layers for nest in layer.nests for a in nest.reads)
    access = next(a for a in accesses if a.tensor == tensor.name and a.pad == border)
    return raw_value(border, tensor.dtype, access.scale, access.zero)


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
        kept = replace(candidate.kept, address=base)
        reserve = memory.size - base
        return (offset, span), {
            position: self._with(position, candidate, kept, reserve)
            for position in range(candidate.first, candidate.last + 1)
            if isinstance(self.program.parts[position], Group)
        }

    def _with(self, position: int, candidate: Candidate, kept: Kept, reserve: int) -> Group:
        """The group at `position` with one more tensor on the residents."""
        group = self.program.group(position)
        reserved = max(group.reserved, reserve)
        if position not in candidate.groups:
            return replace(group, reserved=reserved)
        reader = _reader(group, candidate.name)
        assert reader is not None
        return replace(reader, kept={**group.kept, candidate.name: kept}, reserved=reserved)
