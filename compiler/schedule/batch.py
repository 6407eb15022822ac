"""How often layers are done: for as much of a batch at a time as has room on chip.

    all 64 images through a, b and c        8 images through a and b, 8 times, then all 64 through c

Early layers of a network make large tensors of few weights, late ones small tensors of many: the
first had better be done for few images at a time, so that what they make stays on chip, the last
ones for many, so that weights are loaded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from compiler.passes import Omittable, Share
from compiler.schedule.fusion.dependence import Part
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.nest import Access, HostNode, Nest, NestGraph, Tensor, at
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class BatchAxes:
    """Where a network has its batch: the slowest axis of every tensor that is no constant, along
    which each operator walks by one loop of its results and all that it reads in step."""

    axes: Mapping[str, int]
    """By tensor; of one that a nest makes, also the nest's loop."""
    size: int
    """Parts into which all of them can be cut."""

    @classmethod
    def of(cls, graph: NestGraph, parts: Iterable[Part]) -> BatchAxes | None:
        """None where there is no such axis."""
        if graph.registers or any(isinstance(part, HostNode) for part in parts):
            return None
        axes, size = dict[str, int](), 0
        nests = [n for p in parts if isinstance(p, Layer) for n in p.nests]
        names = {*graph.inputs, *graph.outputs}
        names |= {name for nest in nests for name in (nest.tensor, *_read(nest, graph))}
        for name in sorted(names):
            axis = _slowest(graph, graph.tensors[name])
            if axis is None:
                return None
            axes[name], size = axis, math.gcd(size, graph.tensors[name].shape[axis])
        for nest in nests:
            loop = axes[nest.tensor]
            if not all(_in_step(a, axes.get(a.tensor), loop) for a in nest.reads):
                return None
            extents = {graph.tensors[n].shape[axes[n]] for n in _read(nest, graph)}
            if extents - {nest.dims[loop].extent}:
                return None
        return cls(axes, size)


def _read(nest: Nest, graph: NestGraph) -> list[str]:
    """What it reads that is no constant."""
    return [a.tensor for a in nest.reads if graph.tensors[a.tensor].data is None]


def _slowest(graph: NestGraph, tensor: Tensor) -> int | None:
    """The axis of which each position has bytes of the buffer of its own, which follow each other;
    None: there is none."""
    if tensor.data is not None or tensor.picked or tensor.placed:
        return None
    size, (low, high) = graph.buffers[tensor.storage.buffer], tensor.span
    for axis, (extent, stride) in enumerate(zip(tensor.shape, tensor.storage.strides, strict=True)):
        if extent > 1 and stride * extent == size and high - (extent - 1) * stride < stride:
            return axis if low >= 0 else None
    return None


def _in_step(access: Access, axis: int | None, loop: int) -> bool:
    """Whether what is read lies along `axis` where the loop is, and nowhere else depends on it."""
    others = [index for each, index in enumerate(access.index) if each != axis]
    apart = not any(index.coefficient(loop) for index in others)
    return apart and (axis is None or access.index[axis] == at(loop))


@dataclass(frozen=True)
class ChooseInstances(Omittable):
    """Do layers for one part of the batch at a time where more would not stay on chip.

    before:
        all 64 images through a, b and c; what passes between them lies in DRAM
    after:
        8 images through a and b, eight times, then all 64 through c
    """

    share: Share = 0.5
    """Part of local and shared memories that what a layer reads and makes should have room in."""
    worth: Share = 0.03
    """Part of the cycles that must be saved, as expected: what is nearly equal stays together."""

    def segments(
        self, graph: NestGraph, parts: Sequence[Part], arch: Arch
    ) -> tuple[list[InstancedLayers], list[int]]:
        """Layers in a row that are done equally often, and how often layers can be; nothing where
        all are done once."""
        axes = BatchAxes.of(graph, parts) if self.enabled else None
        layers = [part for part in parts if isinstance(part, Layer)]
        if axes is None or axes.size == 1 or not layers:
            return [], []
        counts, on_chip = _divisors(axes.size), arch.memories.on_chip()
        roles = [role for role in ("local", "shared") if role in on_chip]
        room = self.share * sum(on_chip[role].size * arch.instances(role) for role in roles)

        def fewest(begin: int, end: int) -> int:
            most = max(map(_bytes, layers[begin:end]))
            return next((count for count in counts if most <= room * count), axes.size)

        stretches = _uncrossed_stretches(graph, layers)
        least = [*accumulate((fewest(*each) for each in reversed(stretches)), max)][::-1]
        found = (InstancedLayers(*each, n) for each, n in zip(stretches, least, strict=True))
        return (_merged(found), counts) if least[0] > 1 else ([], [])


@dataclass(frozen=True)
class InstancedLayers:
    """Layers in a row that are done in so many instances."""

    begin: int
    end: int
    count: int


def counts_of(parts: Sequence[Part], segments: Iterable[InstancedLayers]) -> dict[str, int]:
    """By tensor that a nest makes, in how many instances."""
    layers = ((part, s.count) for s in segments for part in parts[s.begin : s.end])
    return {n.tensor: count for p, count in layers if isinstance(p, Layer) for n in p.nests}


def most_often_that_pays(
    segments: Sequence[InstancedLayers], counts: Sequence[int],
    cycles: Callable[[Sequence[InstancedLayers]], float],
) -> list[InstancedLayers]:  # fmt: skip
    """The same layers, each in as many instances or in more of `counts`, no more than those before
    them, as long as all take fewer `cycles`: equal ones in a row are one segment, in which nothing
    need go through memory."""
    way, least = list(segments), cycles(segments)
    for position, segment in enumerate(segments):
        for count in counts[counts.index(segment.count) + 1 :]:
            if position and count > way[position - 1].count:
                break
            other = [*way[:position], replace(segment, count=count), *way[position + 1 :]]
            taken = cycles(_merged(other))
            if taken >= least:
                break
            way, least = other, taken
    return _merged(way)


def _merged(segments: Iterable[InstancedLayers]) -> list[InstancedLayers]:
    """Neighbours that are done equally often as one segment."""
    groups = (list(own) for _, own in groupby(segments, key=lambda segment: segment.count))
    return [replace(own[0], end=own[-1].end) for own in groups]


def _divisors(size: int) -> list[int]:
    """Of `size`, each a divisor of the next."""
    found = [1]
    for factor in range(2, size + 1):
        while size % (found[-1] * factor) == 0:
            found.append(found[-1] * factor)
    return found


def _bytes(layer: Layer) -> int:
    """Of what a layer reads and makes, without constants."""
    names = (*layer.inputs, layer.result.name)
    return sum(t.stored for n in names if (t := layer.tensors[n]).data is None)


def _uncrossed_stretches(graph: NestGraph, layers: Sequence[Layer]) -> list[tuple[int, int]]:
    """Stretches of layers at whose ends nothing is made that both these and others read: a group
    cannot hand on bytes that others see as parts of another tensor."""
    made = {graph.buffer_of(layer.result.name): n for n, layer in enumerate(layers)}
    first: dict[str, int] = {}
    inside: set[int] = set()
    """Layers before which something is used on both sides."""
    for position, layer in enumerate(layers):
        for buffer in map(graph.buffer_of, layer.inputs):
            if buffer in made:
                start = first.setdefault(buffer, position)
                inside |= {*range(start + 1, max(position, made[buffer]) + 1)}
    cuts = (position for position in range(1, len(layers)) if position not in inside)
    return list(pairwise((0, *cuts, len(layers))))
