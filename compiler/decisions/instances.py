"""A network in instances: layers that are done for one part of the batch at a time.

    whole                       a b c
    a and b in 4 instances      a@0 b@0 a@1 b@1 a@2 b@2 a@3 b@3 c

Each instance is layers of its own, which are like those of the others but for names: what passes
between them has buffers of its own, and what others see is a slice of their buffer. So everything
behind this page knows nothing of instances. Where something depends on several parts of the batch
at once, or the host computes, there are none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from compiler.decisions.text.tree import Call, Home, Part, ScheduleStep, Tree
from compiler.errors import UnsupportedModel
from compiler.numerics.recipe import Stage, VerificationPlan
from compiler.schedule.fusion.dependence import passing
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.nest import Access, HostNode, Nest, NestGraph, Storage, Tensor, at
from simmodel.isa.region import cached_property


@dataclass(frozen=True)
class BatchAxes:
    """Where a network has its batch: the slowest axis of every tensor that is no constant, along
    which each operator walks by one loop of its results and all that it reads in step."""

    axes: Mapping[str, int]
    """By tensor."""
    loops: Mapping[str, int]
    """By the tensor that a nest makes."""
    size: int
    """Parts into which all of them can be cut."""

    @classmethod
    def of(cls, graph: NestGraph, parts: Iterable[Part]) -> BatchAxes | None:
        """None where there is no such axis."""
        axes: dict[str, int] = {}
        loops: dict[str, int] = {}
        size = 0
        nests = [n for p in parts if isinstance(p, Layer) for n in p.nests]
        if graph.registers or any(isinstance(part, HostNode) for part in parts):
            return None
        names = {*graph.inputs, *graph.outputs}
        names |= {name for nest in nests for name in (nest.tensor, *_read(nest, graph))}
        for name in sorted(names):
            axis = _slowest(graph, graph.tensors[name])
            if axis is None:
                return None
            axes[name], size = axis, math.gcd(size, graph.tensors[name].shape[axis])
        for nest in nests:
            loop = loops[nest.tensor] = axes[nest.tensor]
            if not all(_in_step(a, axes.get(a.tensor), loop) for a in nest.reads):
                return None
            extents = {graph.tensors[n].shape[axes[n]] for n in _read(nest, graph)}
            if extents - {nest.dims[loop].extent}:
                return None
        return cls(axes, loops, size)


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


def instance(name: str, number: int, count: int) -> str:
    """Name of one of so many of a tensor, buffer or composite."""
    return name if count == 1 else f"{name}@{number}.{count}"


_INSTANCE = re.compile(r"@\d+\.\d+")


def whole_name(name: str) -> str:
    """Of a tensor, or of a buffer that holds some of it, the name without its instance."""
    return _INSTANCE.sub("", name)


def _renamed(step: ScheduleStep, named: Callable[[str], str]) -> ScheduleStep:
    layers = tuple(replace(w, nests=tuple(map(named, w.nests))) for w in step.layers)
    buffers = tuple(replace(each, buffer=named(each.buffer)) for each in step.buffers)
    return replace(step, layers=layers, buffers=buffers)


def _of_one(stage: Stage, nest: Nest) -> Stage:
    """What a stage does in one of its operators."""
    stored, kept = (tuple({nest.tensor} & {*names}) for names in (stage.stored, stage.kept))
    return replace(stage, nests=(nest,), stored=stored, kept=kept, alike=None)


@dataclass(frozen=True)
class Instances:
    """A network of which layers are done in instances."""

    whole: NestGraph
    parts: tuple[Layer, ...]
    """Its layers."""
    axes: BatchAxes
    counts: Mapping[str, int]
    """By tensor that a nest makes, how many instances there are."""
    named: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Tensor of an instance -> the whole one, the number of the instance, and their count."""

    @classmethod
    def of(
        cls, graph: NestGraph, parts: Sequence[Part], counts: Mapping[str, int]
    ) -> Instances:
        """`counts` is by the tensors that layers make, where there is more than one instance.

        Raises UnsupportedModel where there can be none.
        """
        axes, layers = BatchAxes.of(graph, parts), [p for p in parts if isinstance(p, Layer)]
        if axes is None:
            raise UnsupportedModel(f"{graph.name} has no batch that could be done in instances")
        by_nest = {n.tensor: counts.get(p.nests[-1].tensor, 1) for p in layers for n in p.nests}
        found = cls(graph, tuple(layers), axes, by_nest)
        wrong = {count for count in by_nest.values() if axes.size % count}
        users: dict[str, set[int]] = {}
        for layer in layers:
            for name in (*layer.inputs, *(n.tensor for n in layer.nests)):
                if graph.tensors[name].data is None:
                    users.setdefault(graph.buffer_of(name), set()).add(found._count(layer))
        wrong |= {max(each) for each in users.values() if any(max(each) % one for one in each)}
        if wrong:
            raise UnsupportedModel(
                f"{graph.name}: {max(wrong)} instances of a batch that can be cut into {axes.size}"
            )
        return found

    def _count(self, layer: Layer) -> int:
        return self.counts[layer.nests[-1].tensor]

    @cached_property
    def network(self) -> tuple[NestGraph, tuple[Layer, ...]]:
        """Its instances as a network, each behind what it needs: what is done in many instances is
        as far as what is done in few of them needs it."""
        buffers = self._buffer_counts()
        tensors = {n: t for n, t in self.whole.tensors.items() if t.data is not None}
        ports = dict.fromkeys((*self.whole.inputs, *self.whole.outputs))
        tensors |= {name: self.whole.tensors[name] for name in ports}
        most, order = math.lcm(*self.counts.values()), dict[tuple[int, int], Layer]()
        stride = 1 + max(layer.index for layer in self.parts)
        for position, layer in enumerate(self.parts):
            count = self._count(layer)
            for number in range(count):
                end = (number + 1) * most // count
                order[end, position] = self._layer(layer, number, count, tensors, buffers, stride)
        layers = tuple(order[key] for key in sorted(order))
        used = {t.storage.buffer for t in tensors.values()}
        sizes = {
            instance(name, part, count): self.whole.buffers[name] // count
            for name, count in buffers.items()
            for part in range(count)
        }
        sizes |= {name: size for name, size in self.whole.buffers.items() if name in used - {*sizes}}
        steps = tuple(nest for layer in layers for nest in layer.nests)
        return replace(self.whole, tensors=tensors, buffers=sizes, steps=steps), layers

    def _buffer_counts(self) -> dict[str, int]:
        """Buffer -> how many there are of it: as many as instances of whatever sees it least often."""
        ports = (*self.whole.inputs, *self.whole.outputs)
        found = {self.whole.buffer_of(name): 1 for name in ports}
        for layer in self.parts:
            count = self._count(layer)
            for name in (*layer.inputs, *(n.tensor for n in layer.nests)):
                if self.whole.tensors[name].data is None:
                    buffer = self.whole.buffer_of(name)
                    found[buffer] = min(found.get(buffer, count), count)
        return found

    def _layer(
        self, layer: Layer, number: int, count: int, tensors: dict[str, Tensor],
        buffers: Mapping[str, int], stride: int,
    ) -> Layer:  # fmt: skip
        """An instance of a layer, whose tensors are added to those that there are."""
        names: dict[str, str] = {}
        for name in dict.fromkeys((*layer.inputs, *(n.tensor for n in layer.nests))):
            whole = self.whole.tensors[name]
            if whole.data is not None:
                continue
            part = self._tensor(whole, number, count, buffers[whole.storage.buffer])
            names[name], self.named[part.name] = part.name, (name, number, count)
            tensors.setdefault(part.name, part)
        nests = tuple(self._nest(nest, number, count, names) for nest in layer.nests)
        index = layer.index + number * stride
        return replace(layer, index=index, nests=nests, tensors=tensors)

    def _nest(self, nest: Nest, number: int, count: int, names: Mapping[str, str]) -> Nest:
        if count == 1:
            return replace(nest, tensor=names[nest.tensor])
        loop, dims = self.axes.loops[nest.tensor], list(nest.dims)
        dims[loop] = replace(dims[loop], extent=dims[loop].extent // count)
        reads = (replace(a, tensor=names.get(a.tensor, a.tensor)) for a in nest.reads)
        composite = nest.composite and instance(nest.composite, number, count)
        made = replace(nest, tensor=names[nest.tensor], dims=tuple(dims), composite=composite)
        return made.with_reads(reads)

    def _tensor(self, whole: Tensor, number: int, count: int, buffers: int) -> Tensor:
        """What an instance has of a tensor, of whose buffer there are so many."""
        if count == 1:
            return whole
        axis, storage = self.axes.axes[whole.name], whole.storage
        extent = whole.shape[axis] // count
        shape = (*whole.shape[:axis], extent, *whole.shape[axis + 1 :])
        within = number % (count // buffers) * extent * storage.strides[axis]
        buffer = instance(storage.buffer, number * buffers // count, buffers)
        place = Storage(buffer, storage.offset + within, storage.strides)
        name = instance(whole.name, number, count)
        return replace(whole, name=name, shape=shape, storage=place)

    def by_layers(self, recipe: VerificationPlan) -> VerificationPlan:
        """The `recipe` of a program of `network`, with what instances have of tensors as parts of
        the whole ones: all instances of an operator, then all of the next, so that each value of
        the model is complete before others read it."""
        tensors = dict(self.whole.tensors)
        for name, (whole, number, count) in self.named.items():
            tensors[name] = self._tensor(self.whole.tensors[whole], number, count, 1)
        stages: dict[str, list[Stage]] = {}
        for stage in recipe.stages:
            for nest in stage.nests:
                whole, *_ = self.named[nest.tensor]
                stages.setdefault(whole, []).append(_of_one(stage, nest))
        graph, ordered = replace(self.whole, tensors=tensors), chain.from_iterable(stages.values())
        return replace(recipe, graph=graph, stages=tuple(ordered))

    def tree(self, tree: Tree) -> Tree:
        """The schedule `tree` of the whole network, whose steps are done in instances, as one of
        `network`."""
        most, order = math.lcm(*self.counts.values()), dict[tuple[int, int], ScheduleStep | Call]()
        for position, step in enumerate(tree.steps):
            assert isinstance(step, ScheduleStep)
            count = step.instances
            for number in range(count):
                order[(number + 1) * most // count, position] = self._step(step, number, count)
        homes = tuple(each for home in tree.homes for each in self._homes(home))
        return replace(tree, steps=tuple(order[key] for key in sorted(order)), homes=homes)

    def first(self, begin: int, end: int) -> tuple[NestGraph, tuple[Layer, ...]]:
        """The first instance of the layers from `begin` to before `end`, of which there are equally
        many, as a network."""
        count, (graph, layers) = self._count(self.parts[begin]), self.network
        made = [instance(p.nests[-1].tensor, 0, count) for p in self.parts[begin:end]]
        by_name = {layer.nests[-1].tensor: layer for layer in layers}
        seen = self.named.keys()
        ports = (
            tuple(each for name in names if (each := instance(name, 0, count)) in seen)
            for names in passing(self.whole, self.parts, begin, end)
        )
        inputs, outputs = ports
        return replace(graph, inputs=inputs, outputs=outputs), tuple(map(by_name.get, made))

    def whole_tree(self, tree: Tree) -> Tree:
        """What `tree` of `network` says of the whole one: of the instances of a step the first; of
        buffers where they lie if that is the same in all."""
        steps: dict[ScheduleStep, None] = {}
        for step in tree.steps:
            assert isinstance(step, ScheduleStep)
            _, number, count = self.named[step.layers[0].nests[0]]
            if number == 0:
                steps[_renamed(replace(step, instances=count), whole_name)] = None
        homes = dict.fromkeys(replace(h, tensor=whole_name(h.tensor)) for h in tree.homes)
        return replace(tree, steps=tuple(steps), homes=tuple(homes))

    @cached_property
    def _by_nest(self) -> dict[str, Layer]:
        return {nest.tensor: layer for layer in self.parts for nest in layer.nests}

    def _step(self, step: ScheduleStep, number: int, count: int) -> ScheduleStep:
        layers = [self._by_nest[work.nests[0]] for work in step.layers]
        seen = {n for layer in layers for n in (*layer.inputs, *(n.tensor for n in layer.nests))}

        def named(name: str) -> str:
            """Of a tensor, or of what a buffer holds of it."""
            tensor = max(filter(name.startswith, seen), key=len)
            if self.whole.tensors[tensor].data is not None:
                return name
            return instance(tensor, number, count) + name.removeprefix(tensor)

        return step if count == 1 else _renamed(replace(step, instances=1), named)

    def _homes(self, home: Home) -> Iterator[Home]:
        """What stays on chip in each instance; constants and whole tensors once."""
        if home.memory == "shared":
            count = self._buffer_counts().get(home.tensor, 1)
        else:
            count = self.counts.get(home.tensor, 1)
        for number in range(count):
            yield replace(home, tensor=instance(home.tensor, number, count))
