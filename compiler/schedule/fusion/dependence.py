"""Which parts of a network depend on which, through the bytes that they share.

Two tensors may lie in one buffer: a concatenation is written in slices and read as a whole. So a
part depends on an earlier one where one of them writes bytes that the other touches, whatever the
names. Sets of parts are bit masks of their positions, since a search asks for many thousands of
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import numpy as np

from compiler.schedule_ir.group import Group, grouped
from compiler.schedule_ir.layer import Layer, seen_through
from compiler.tensor_ir.nest import HostNode, NestGraph, Tensor
from simmodel.arch.element_types import size_of
from simmodel.isa.region import cached_property

Part = Layer | HostNode

_WORK = 10_000
"""Steps that one exact test of two views may take before they count as overlapping."""


def members(mask: int) -> Iterator[int]:
    """Positions in the set `mask`, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def union(masks: Iterable[int]) -> int:
    """All positions of `masks`."""
    return reduce(or_, masks, 0)


def made_by(part: Part) -> tuple[str, ...]:
    """Tensors that `part` leaves for others."""
    return part.outputs if isinstance(part, HostNode) else (part.result.name,)


def passing(
    graph: NestGraph, parts: Sequence[Part], first: int, end: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Inputs and outputs of the parts from `first` to before `end` as a network: those of `graph`,
    and what passes between these parts and the rest."""
    some, rest = parts[first:end], (*parts[:first], *parts[end:])

    def buffers(name: str) -> set[str]:
        return {source.storage.buffer for source in graph.tensors[name].sources}

    def passed(makers: Sequence[Part], readers: Sequence[Part]) -> list[str]:
        read = {buffer for part in readers for name in part.inputs for buffer in buffers(name)}
        return [name for part in makers for name in made_by(part) if buffers(name) & read]

    inputs = dict.fromkeys((*graph.inputs, *passed(rest, some)))
    return (*inputs,), (*dict.fromkeys((*graph.outputs, *passed(some, rest))),)


def _placed_by(part: Part) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tensors of which `part` changes rows, which are known at run time only, and those in memory
    that say which."""
    placed = None if isinstance(part, HostNode) else part.result.placed
    return ((), ()) if placed is None else ((placed.table.name,), (placed.index.name,))


@dataclass(frozen=True, kw_only=True)
class Ties:
    """Parts of anything, in an order in which they can run, and who waits for whom."""

    before: tuple[int, ...]
    """For each part: the parts that must run before it, directly."""
    results: tuple[tuple[tuple[int, int], ...], ...]
    """For each part: of each tensor that it makes for others, bytes and readers."""

    @cached_property
    def after(self) -> tuple[int, ...]:
        """For each part: the parts that wait for it, directly."""
        found = [0] * len(self.before)
        for position, needs in enumerate(self.before):
            for need in members(needs):
                found[need] |= 1 << position
        return tuple(found)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """For each part: everything that must have run before it."""
        found: list[int] = []
        for needs in self.before:
            found.append(needs | union(found[need] for need in members(needs)))
        return tuple(found)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """For each part: everything that can run only after it."""
        found = [0] * len(self.before)
        for position in reversed(range(len(self.before))):
            users = self.after[position]
            found[position] = users | union(found[user] for user in members(users))
        return tuple(found)

    def hull(self, mask: int) -> int:
        """`mask` with all that lies on a path between two of its parts."""
        below = union(self.descendants[i] for i in members(mask))
        return mask | (below & union(self.ancestors[i] for i in members(mask)))

    def convex(self, mask: int) -> bool:
        """Whether no path leaves `mask` and comes back."""
        return self.hull(mask) == mask


@dataclass(frozen=True, kw_only=True)
class Dependences(Ties):
    """The parts of a network in an order in which they can run, and what ties them together."""

    parts: tuple[Part, ...]
    apart: tuple[int, ...]
    """For each part: those that it exchanges bytes with which only memory can hand over."""
    readers: dict[str, int]
    """Tensor that a part makes -> parts that read any of its bytes, under whatever name."""
    shown: frozenset[str]
    """Tensors made here whose bytes the network gives."""
    others: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """Part -> parts that make what it reads under another name, and that name."""
    _through: dict[tuple[int, int], Part] = field(default_factory=dict, compare=False)
    """Part, and those inside that it reads under other names -> what it looks like then: the same
    layer each time, by which what is known of it is found again."""

    @cached_property
    def layers(self) -> int:
        """Every part that is not a host node."""
        return union(1 << i for i, part in enumerate(self.parts) if isinstance(part, Layer))

    def steps(self, groups: Sequence[int]) -> Ties:
        """Disjoint `groups` that cover all parts, in an order in which they can run, as parts."""
        home = {part: 1 << index for index, mask in enumerate(groups) for part in members(mask)}

        def groups_with(mask: int) -> int:
            return union(home[part] for part in members(mask))

        needs = [union(self.before[i] for i in members(mask)) & ~mask for mask in groups]
        results = (
            tuple(
                (size, groups_with(readers & ~mask))
                for i in members(mask)
                for size, readers in self.results[i]
                if readers & ~mask
            )
            for mask in groups
        )
        return Ties(before=tuple(map(groups_with, needs)), results=tuple(results))

    def legal(self, mask: int) -> bool:
        """Whether `mask` may keep on chip what passes between its parts.

        It may not where a layer reads bytes that another writes, unless the tensor that is read is
        the one that was written, alone in its buffer. Every superset of an illegal set is illegal.
        """
        return not mask & ~self.layers and not any(self.apart[i] & mask for i in members(mask))

    def built(self, mask: int) -> Group | HostNode:
        part = self.parts[mask.bit_length() - 1]
        return part if isinstance(part, HostNode) else self.group(mask)

    def group(self, mask: int) -> Group:
        """The layers of `mask` as a group, in the order of the parts."""
        layers = (self._part_without_views(i, mask) for i in members(mask))
        return grouped(
            [part for part in layers if isinstance(part, Layer)], self._results_of_readers
        )

    def _part_without_views(self, position: int, mask: int) -> Part:
        """A part among those of `mask`, whose results it reads under their own names."""
        part = self.parts[position]
        inside = [found for found in self.others.get(position, ()) if mask >> found[0] & 1]
        if not inside:
            return part
        key = position, union(1 << writer for writer, _ in inside)
        if key not in self._through:
            for writer, view in inside:
                assert isinstance(part, Layer)
                part = seen_through(part, view, made_by(self.parts[writer])[0]) or part
            self._through[key] = part
        return self._through[key]

    @cached_property
    def _results_of_readers(self) -> dict[str, frozenset[str]]:
        """Tensor -> what its readers make, and itself where the network gives it."""
        made = [made_by(part) for part in self.parts]
        given = {name: {""} for name in self.shown}
        return {
            name: frozenset(other for i in members(mask) for other in made[i])
            | given.get(name, set())
            for name, mask in self.readers.items()
        }

    def sequence(self, groups: Iterable[int]) -> tuple[int, ...] | None:
        """Disjoint `groups`, and every other part on its own, in an order in which they can run, or
        None where there is none.

        Of those that can run, the one with the earliest part comes first.
        """
        groups, every = [*groups], (1 << len(self.parts)) - 1
        alone = (1 << i for i in members(every & ~union(groups)))
        waiting = sorted((*groups, *alone), key=lambda mask: mask & -mask)
        needs = {mask: union(self.before[i] for i in members(mask)) & ~mask for mask in waiting}
        done, found = 0, []
        while waiting:
            ready = next((g for g in waiting if not needs[g] & ~done), None)
            if ready is None:
                return None
            waiting.remove(ready)
            found.append(ready)
            done |= ready
        return tuple(found)

    def possible(self, mask: int, others: Iterable[int] = ()) -> bool:
        """Whether `mask` may be a group, which waits for none of `others` that waits for it."""
        legal = self.legal(mask) and self.convex(mask)
        return legal and (not others or self.sequence((*others, mask)) is not None)


def dependences(parts: Sequence[Part], graph: NestGraph) -> Dependences:
    """What ties `parts` of `graph`, given in an order in which they can run."""
    before, apart = [0] * len(parts), [0] * len(parts)
    read_by: dict[str, int] = defaultdict(int)
    views = _Views(parts, graph)
    others: dict[int, list[tuple[int, str]]] = defaultdict(list)

    def part_from(position: int, other: int) -> None:
        apart[position] |= 1 << other
        apart[other] |= 1 << position

    for position, part in enumerate(parts):
        reads, makes, (changes, lists) = part.inputs, made_by(part), _placed_by(part)
        for tensor in (*reads, *makes):
            for name, writer in views.writers(tensor, position):
                before[position] |= 1 << writer
                if tensor in reads:
                    read_by[name] |= 1 << position
                if views.readable(part, tensor, name, writer):
                    others[position].append((writer, tensor))
                elif tensor != name or not views.single(name) or tensor in makes:
                    part_from(position, writer)
        for tensor in (*makes, *changes):
            # Bytes that are overwritten must have been read.
            for reader in views.readers(tensor, position):
                before[position] |= 1 << reader
                part_from(position, reader)
        for tensor in (*changes, *lists):
            for name, writer in views.writers(tensor, position):
                before[position] |= 1 << writer
                part_from(position, writer)
                if tensor in lists:
                    read_by[name] |= 1 << position
    made = [[(name, graph.tensors[name]) for name in made_by(part)] for part in parts]
    names = [name for own in made for name, _ in own]
    return Dependences(
        parts=tuple(parts),
        before=tuple(before),
        results=tuple(
            tuple((t.elements * size_of(t.dtype), read_by[name]) for name, t in own) for own in made
        ),
        apart=tuple(apart),
        readers={name: read_by[name] for name in names},
        shown=frozenset(n for n in names if any(views.overlap(n, out) for out in graph.outputs)),
        others=others,
    )


_Touch = tuple[str, int, int, int]
"""A tensor, the part that touches it, and its extent in its buffer."""


class _Views:
    """The tensors that parts touch, by the buffers that they lie in."""

    def __init__(self, parts: Sequence[Part], graph: NestGraph) -> None:
        self.tensors, self.sizes = graph.tensors, graph.buffers
        self.written: dict[str, list[_Touch]] = defaultdict(list)
        self.read: dict[str, list[_Touch]] = defaultdict(list)
        self.known: dict[tuple[str, str], bool] = {}
        self.parts = parts
        self.ports: dict[str, set[str]] = defaultdict(set)
        """Ports of the network by buffer."""
        for name in (*graph.inputs, *graph.outputs):
            self.ports[self.buffer(name)].add(name)
        for position, part in enumerate(parts):
            for name in (*part.inputs, *_placed_by(part)[1]):
                self.read[self.buffer(name)].append((name, position, *self.extent(name)))
            for name in made_by(part):
                self.written[self.buffer(name)].append((name, position, *self.extent(name)))

    def buffer(self, name: str) -> str:
        return self.tensors[name].storage.buffer

    def single(self, name: str) -> bool:
        """Whether `name` is all that is written in its buffer, once, and no port lies there."""
        buffer = self.buffer(name)
        return len(self.written[buffer]) == 1 and not self.ports[buffer] - {name}

    def readable(self, part: Part, tensor: str, name: str, writer: int) -> bool:
        """Whether `part`, which reads `tensor`, could read `name` that lies in the same place."""
        if tensor == name or isinstance(part, HostNode) or not self.single(name):
            return False
        if tensor not in part.inputs or isinstance(self.parts[writer], HostNode):
            return False
        return seen_through(part, tensor, name) is not None

    def writers(self, name: str, end: int) -> Iterator[tuple[str, int]]:
        """Tensors that share bytes with `name`, with the parts before `end` that write them."""
        return self._touching(name, end, self.written)

    def readers(self, name: str, end: int) -> Iterator[int]:
        """Parts before `end` that read bytes of `name`."""
        return (reader for _, reader in self._touching(name, end, self.read))

    def extent(self, name: str) -> tuple[int, int]:
        """The first element of its buffer that a tensor has, and one past the last."""
        tensor = self.tensors[name]
        offset, strides = tensor.storage.offset, tensor.storage.strides
        ends = [step * (n - 1) for n, step in zip(tensor.shape, strides, strict=True) if n > 1]
        low = sum(end for end in ends if end < 0)
        return offset + low, offset + sum(ends) - low + 1

    def _touching(
        self, name: str, end: int, found: dict[str, list[_Touch]]
    ) -> Iterator[tuple[str, int]]:
        low, high = self.extent(name)
        for other, position, start, stop in found.get(self.buffer(name), ()):
            if position >= end:
                return
            if start < high and low < stop and self.overlap(name, other):
                yield other, position

    def overlap(self, first: str, second: str) -> bool:
        """Whether the tensors share a byte; two views that are too hard to compare do."""
        if first == second:
            return True
        if self.buffer(first) != self.buffer(second):
            return False
        key = (min(first, second), max(first, second))
        if key not in self.known:
            self.known[key] = self._shares_bytes(self.tensors[first], self.tensors[second])
        return self.known[key]

    def _shares_bytes(self, first: Tensor, second: Tensor) -> bool:
        if not first.elements or not second.elements:
            return False
        memory = np.empty(self.sizes[first.storage.buffer], np.uint8)  # never touched
        one, two = (_view(tensor, memory) for tensor in (first, second))
        try:
            # NumPy's stub admits only the two special amounts of work.
            return np.shares_memory(one, two, max_work=_WORK)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True


def _view(
    tensor: Tensor, memory: np.ndarray[tuple[int], np.dtype[np.uint8]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The elements of `tensor`, a byte each, as a view of its buffer."""
    storage = tensor.storage
    return np.ndarray(tensor.shape, np.uint8, memory, storage.offset, storage.strides)
