"""Demand of a network's outputs: which elements of every tensor they need, and how many products.

From the outputs backwards, a nest computes the elements of its result that are read, and needs the
elements that these read. Elements are marked in their buffers, so slices, transposes and
concatenations need no rules of their own. Marked elements are decomposed into products of index
sets, one set per dimension; affine accesses map such a product to another one.

A program may do more than that: its own work and traffic are counted when it runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from compiler.tensor_ir.nest import Access, Nest, NestGraph, Step, Tensor
from compiler.tensor_ir.rewrite import writes_of
from simmodel.arch.base import Latest
from simmodel.arch.element_types import size_of

Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]
Sets = tuple[Indices, ...]
"""Positions along each dimension; together they stand for all combinations."""


@dataclass(frozen=True)
class Demanded:
    """The least work that computes all outputs, whatever the schedule."""

    macs: dict[str, int]
    """Result of a nest -> multiply-accumulates; 0 if it is no sum of products."""
    results: dict[str, int]
    """Result of a nest -> its elements."""
    read: int
    """Bytes of inputs and constants that nests read, each once."""
    written: int
    """Bytes of outputs that nests compute, each once."""
    constants: int = 0
    """Of `read`, those of constants."""

    def transfers(self, constants: str) -> dict[tuple[str, bool], int]:
        """Bytes by memory off chip and whether it is written, where that of `constants` has
        those."""
        found = {("dram", False): self.read, ("dram", True): self.written}
        if constants != "dram":
            found |= {
                ("dram", False): self.read - self.constants,
                (constants, False): self.constants,
            }
        return found


class Marks:
    """A set of elements of each buffer."""

    def __init__(self, graph: NestGraph) -> None:
        self._sizes = graph.buffers
        self._marks: dict[str, Bools] = {}

    def tensor_marks(self, tensor: Tensor) -> Bools | None:
        """Marks of `tensor`, in its shape; None: its buffer has none."""
        marks = self._marks.get(tensor.storage.buffer)
        return None if marks is None else _view(marks, tensor)

    def add(self, tensor: Tensor, sets: Sets) -> None:
        """Mark a product of positions of `tensor`."""
        buffer, size = tensor.storage.buffer, self._sizes[tensor.storage.buffer]
        marks = self._marks.get(buffer)
        if marks is not None and marks.strides == (0,):
            return
        full = all(len(chosen) == n for chosen, n in zip(sets, tensor.shape, strict=True))
        strides = zip(tensor.shape, tensor.storage.strides, strict=True)
        if full and math.prod(n for n, stride in strides if stride) == size:
            self._marks[buffer] = np.broadcast_to(np.True_, (size,))  # takes no memory
            return
        if marks is None:
            marks = self._marks[buffer] = np.zeros(size, np.bool_)
        _view(marks, tensor)[_box(sets)] = True

    def common(self, other: Marks, buffer: str) -> int:
        """Number of elements of `buffer` that are marked in both."""
        mine, theirs = self._marks.get(buffer), other._marks.get(buffer)
        if mine is None or theirs is None:
            return 0
        some = [marks for marks in (mine, theirs) if marks.strides != (0,)]
        return int(np.count_nonzero(some[0] & some[-1])) if some else mine.size


def _box(sets: Sets) -> tuple[Any, ...]:
    """`sets` as an index: slices, where each is one stretch, for which numpy has no list to
    follow."""
    if all(len(chosen) and chosen[-1] - chosen[0] + 1 == len(chosen) for chosen in sets):
        return tuple(slice(chosen[0], chosen[-1] + 1) for chosen in sets)
    return np.ix_(*sets)


def _view(marks: Bools, tensor: Tensor) -> Bools:
    storage, step = tensor.storage, marks.strides[0]
    strides = [stride * step for stride in storage.strides]
    return as_strided(marks[storage.offset :], tensor.shape, strides)


def _demanded(graph: NestGraph) -> Demanded:
    wanted, loaded, made, ends = (Marks(graph) for _ in range(4))
    for name in graph.outputs:
        for marks in (wanted, ends):
            marks.add(graph.tensors[name], _all_positions(graph.tensors[name]))
    macs: dict[str, int] = {}
    results: dict[str, int] = {}
    for step in reversed(graph.steps):
        if isinstance(step, Nest):
            results[step.tensor] = count = _computed(step, graph, wanted, loaded, made)
            macs[step.tensor] = count * (step.macs // step.sparse // max(1, math.prod(step.shape)))
            continue
        made_here = (wanted.tensor_marks(graph.tensors[name]) for name in step.outputs)
        if any(marks is not None and marks.any() for marks in made_here):
            for name in step.inputs:
                wanted.add(graph.tensors[name], _all_positions(graph.tensors[name]))
    own = Marks(graph)  # a cache is read with the rows that the network itself has written there
    for name in graph.inputs:
        own.add(graph.tensors[name], _all_positions(graph.tensors[name]))
    given = {n for n, t in graph.tensors.items() if t.data is not None or t.picked is not None}
    given -= {*graph.inputs}
    constant = {name for name in given if graph.tensors[name].constant}
    constants = _common_bytes(graph, constant, loaded, wanted)
    read = constants + _common_bytes(graph, given - constant, loaded, wanted)
    read += _common_bytes(graph, graph.inputs, loaded, own)
    shown = {graph.buffer_of(name) for name in graph.outputs}
    rows = (graph.tensors[n] for n in results)  # those that nests store into outputs
    put = (t for t in rows if t.placed is not None and t.placed.table.storage.buffer in shown)
    written = math.ceil(sum(results[tensor.name] * _each(tensor) for tensor in put))
    written += _common_bytes(graph, graph.outputs, made, ends)
    return Demanded(macs, results, read, written, constants)


demanded = Latest(_demanded, most=1)
"""Demand of the outputs of a graph: all programs of a search are of one."""


def _common_bytes(graph: NestGraph, names: Sequence[str] | set[str], one: Marks, two: Marks) -> int:
    tensors = [graph.tensors[name] for name in names]
    sizes = {tensor.storage.buffer: _each(tensor) for tensor in tensors}
    return sum(math.ceil(one.common(two, buffer) * size) for buffer, size in sizes.items())


def _each(tensor: Tensor) -> float:
    """Bytes in memory per element, its part of scales included."""
    return tensor.stored / tensor.elements if tensor.narrow else size_of(tensor.dtype)


def _all_positions(tensor: Tensor) -> Sets:
    return tuple(map(np.arange, tensor.shape))


def _computed(nest: Nest, graph: NestGraph, wanted: Marks, loaded: Marks, made: Marks) -> int:
    """Mark the reads of `nest` for the marked elements of its result; returns their number."""
    target = graph.tensors[nest.tensor]
    marks = wanted.tensor_marks(target)
    if marks is None:
        return 0
    inner = tuple(np.arange(dim.extent) for dim in nest.dims[nest.rank :])
    results = 0
    for piece in pieces(marks):
        results += math.prod(map(len, piece))
        made.add(target, piece)
        for access in nest.reads:
            source = graph.tensors[access.tensor]
            sets = needed(access, (*piece, *inner), source.shape)
            wanted.add(source, sets)
            loaded.add(source, sets)
    return results


def needed(access: Access, loops: Sets, shape: tuple[int, ...]) -> Sets:
    """Positions of a tensor of `shape` that `access` reads for these loop values."""
    found = []
    for affine, extent in zip(access.index, shape, strict=True):
        at = np.array([affine.constant])
        for dim, factor in affine.terms:
            if (affine.constant, len(affine.terms), factor) == (0, 1, 1):
                at = loops[dim]
                continue
            at = at[:, None] + factor * loops[dim]
            at = at[0] if len(affine.terms) == 1 and factor > 0 else np.unique(at)
        inside = not len(at) or (at[0] >= 0 and at[-1] < extent)  # positions rise
        found.append(at if inside else at[(at >= 0) & (at < extent)])
    return tuple(found)


def pieces(marks: Bools) -> Iterator[Sets]:
    """Disjoint products of index sets that cover all marks."""
    different = marks[tuple(slice(None if step else 1) for step in marks.strides)]
    if different.all():
        yield tuple(np.arange(extent) for extent in marks.shape)
        return
    axes = range(marks.ndim)
    sets = tuple(np.flatnonzero(marks.any(axis=tuple(a for a in axes if a != b))) for b in axes)
    if not all(map(len, sets)):
        return
    if marks[np.ix_(*sets)].all():
        yield sets
        return
    alike: dict[bytes, list[int]] = {}
    for place, row in enumerate(np.packbits(marks.reshape(marks.shape[0], -1), axis=1)):
        alike.setdefault(row.tobytes(), []).append(place)
    for places in alike.values():
        for rest in pieces(marks[places[0]]):
            yield (np.array(places), *rest)


Shares = NDArray[np.float64]
"""By step, how much of its work is over, 0 to 1."""


class Precedence:
    """What must be over before a product can be done with any of its weights."""

    def __init__(self, graph: NestGraph, least: Demanded) -> None:
        self.graph = graph
        self._least = least
        self._makers: dict[str, list[str]] = defaultdict(list)
        """Buffer -> tensors that steps write into it."""
        for step in graph.steps:
            for name in writes_of(step):
                self._makers[graph.buffer_of(name)].append(name)
        self._whole: list[Shares] = []
        for number, step in enumerate(graph.steps):
            self._whole.append(self._all_of(number, step))

    def before(self, number: int) -> Shares:
        """Fractions of all steps that must be done before product `number` can use some element of
        its weights."""
        nest = self.graph.steps[number]
        assert isinstance(nest, Nest)
        weights, loops = nest.operands[1], [np.arange(dim.extent) for dim in nest.dims]
        # Of the positions of a kernel those at its ends read least: the rest falls in the border.
        first, last = (
            self._before(
                number, tuple(n[[end]] if weights.uses(dim) else n for dim, n in enumerate(loops))
            )
            for end in (0, -1)
        )
        return np.minimum(first, last)

    def _all_of(self, number: int, step: Step) -> Shares:
        if isinstance(step, Nest) and self._least.results[step.tensor] < math.prod(step.shape):
            return np.zeros(len(self.graph.steps))  # nobody needs all of it
        dims = step.dims if isinstance(step, Nest) else ()
        shares = self._before(number, tuple(np.arange(dim.extent) for dim in dims))
        shares[number] = 1.0
        return shares

    def _before(self, number: int, loops: Sets) -> Shares:
        """Fractions of all steps that are done before step `number` at these loop positions."""
        found = np.zeros(len(self.graph.steps))
        wanted: dict[str, Sets] = {}
        self._add_reads(number, loops, wanted)
        for at in range(number - 1, -1, -1):
            if not wanted:
                break
            step = self.graph.steps[at]
            if not isinstance(step, Nest):
                if any(wanted.pop(name, None) is not None for name in step.outputs):
                    found = np.maximum(found, self._whole[at])
                continue
            sets = wanted.pop(step.tensor, None)
            if sets is None or found[at] == 1:  # then so is all that it reads
                continue
            share = math.prod(map(len, sets)) / math.prod(step.shape)
            if share >= 1:
                found = np.maximum(found, self._whole[at])
                continue
            found[at] = max(found[at], share)
            inner = (np.arange(dim.extent) for dim in step.dims[step.rank :])
            self._add_reads(at, (*sets, *inner), wanted)
        return found

    def _add_reads(self, number: int, loops: Sets, wanted: dict[str, Sets]) -> None:
        """Add to `wanted` the reads of step `number` at these loop positions."""
        step, tensors = self.graph.steps[number], self.graph.tensors
        if not isinstance(step, Nest):
            for name in step.inputs:
                self._want(tensors[name], _all_positions(tensors[name]), wanted)
            return
        for access in step.reads:
            source = tensors[access.tensor]
            if source.storage.buffer in self._makers:
                self._want(source, needed(access, loops, source.shape), wanted)

    def _want(self, tensor: Tensor, sets: Sets, wanted: dict[str, Sets]) -> None:
        """Add positions of `tensor` to those `wanted` of its producer, if these can be
        determined."""
        makers = self._makers.get(tensor.storage.buffer, [])
        if tensor.name in makers:
            _more(tensor.name, sets, wanted)
            return
        size = self.graph.buffers[tensor.storage.buffer]
        full = math.prod(map(len, sets)) == tensor.elements == size
        for name in makers:
            made = self.graph.tensors[name]
            if full:
                _more(name, _all_positions(made), wanted)
            elif _offset_and_strides(made) == _offset_and_strides(tensor):
                seen = iter([s for s, n in zip(sets, tensor.shape, strict=True) if n > 1])
                only = np.arange(1)
                _more(name, tuple(next(seen) if n > 1 else only for n in made.shape), wanted)


def _more(name: str, sets: Sets, wanted: dict[str, Sets]) -> None:
    """The larger of two products of positions, in place of both."""
    if name not in wanted or math.prod(map(len, sets)) > math.prod(map(len, wanted[name])):
        wanted[name] = sets


def _offset_and_strides(tensor: Tensor) -> tuple[int, list[tuple[int, int]]]:
    """Offset and strides of a tensor, without dimensions of extent 1."""
    pairs = zip(tensor.shape, tensor.storage.strides, strict=True)
    return tensor.storage.offset, [pair for pair in pairs if pair[0] > 1]
