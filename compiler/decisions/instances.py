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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain

from compiler.cost.overlap import in_turn
from compiler.decisions.cache import NetworkDecision
from compiler.decisions.group_costs import GroupCosts
from compiler.decisions.text.extract import INSTANCE, instance, renamed_step
from compiler.decisions.text.tree import Call, Home, Part, ScheduleStep, Tree
from compiler.errors import UnsupportedModel
from compiler.numerics.recipe import Stage, VerificationPlan
from compiler.schedule.batch import BatchAxes, InstancedLayers, counts_of, most_often_that_pays
from compiler.schedule.fusion.dependence import passing
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.nest import Nest, NestGraph, Storage, Tensor
from simmodel.isa.region import cached_property


def _of_one(stage: Stage, nest: Nest) -> Stage:
    """What a stage does in one of its operators."""
    stored, kept = (tuple({nest.tensor} & {*names}) for names in (stage.stored, stage.kept))
    return replace(stage, nests=(nest,), stored=stored, kept=kept, alike=None)


def _in_order(counts: Sequence[int]) -> list[tuple[int, int]]:
    """What is done in so many instances, by position, and which of them, in turn: what is done in
    many goes as far as what is done in few needs it."""
    most = math.lcm(*counts)
    turns = ((p, number) for p, count in enumerate(counts) for number in range(count))
    return sorted(turns, key=lambda turn: ((turn[1] + 1) * most // counts[turn[0]], turn[0]))


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
    def of(cls, graph: NestGraph, parts: Sequence[Part], counts: Mapping[str, int]) -> Instances:
        """`counts` is by the tensors that layers make, where there is more than one instance.

        Raises UnsupportedModel where there can be none.
        """
        axes, layers = BatchAxes.of(graph, parts), [p for p in parts if isinstance(p, Layer)]
        if axes is None or any(map(INSTANCE.search, graph.tensors)):
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
        stride, counts = (
            1 + max(layer.index for layer in self.parts),
            [*map(self._count, self.parts)],
        )
        layers = tuple(
            self._layer(self.parts[position], number, counts[position], tensors, buffers, stride)
            for position, number in _in_order(counts)
        )
        used = {t.storage.buffer for t in tensors.values()}
        sizes = {
            instance(name, part, count): self.whole.buffers[name] // count
            for name, count in buffers.items()
            for part in range(count)
        }
        others = used - sizes.keys()
        sizes |= {name: size for name, size in self.whole.buffers.items() if name in others}
        steps = tuple(nest for layer in layers for nest in layer.nests)
        return replace(self.whole, tensors=tensors, buffers=sizes, steps=steps), layers

    def _buffer_counts(self) -> dict[str, int]:
        """Buffer -> how many there are of it: as many as instances of what sees it least often."""
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

    def in_order(self, steps: Sequence[ScheduleStep | Call]) -> list[tuple[int, int]]:
        """Steps of the whole network by position, and which instances of them, in turn."""
        return _in_order([s.instances if isinstance(s, ScheduleStep) else 1 for s in steps])

    def tree(self, tree: Tree) -> Tree:
        """The schedule `tree` of the whole network, whose steps are done in instances, as one of
        `network`."""
        steps = (self._step(tree.steps[at], number) for at, number in self.in_order(tree.steps))
        homes = tuple(each for home in tree.homes for each in self._home_in_instances(home))
        return replace(tree, steps=tuple(steps), homes=homes)

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
        return replace(graph, inputs=inputs, outputs=outputs), tuple(by_name[n] for n in made)

    @cached_property
    def _by_nest(self) -> dict[str, Layer]:
        return {nest.tensor: layer for layer in self.parts for nest in layer.nests}

    def _step(self, step: ScheduleStep | Call, number: int) -> ScheduleStep | Call:
        if isinstance(step, Call) or step.instances == 1:
            return step
        count = step.instances
        layers = [self._by_nest[work.nests[0]] for work in step.layers]
        seen = {n for layer in layers for n in (*layer.inputs, *(n.tensor for n in layer.nests))}

        def own_name(name: str) -> str:
            """Of a tensor, or of what a buffer holds of it."""
            tensor = max(filter(name.startswith, seen), key=len)
            if self.whole.tensors[tensor].data is not None:
                return name
            return instance(tensor, number, count) + name.removeprefix(tensor)

        return renamed_step(replace(step, instances=1), own_name)

    def _home_in_instances(self, home: Home) -> Iterator[Home]:
        """What stays on chip in each instance; constants and whole tensors once."""
        if home.memory == "shared":
            count = self._buffer_counts().get(home.tensor, 1)
        else:
            count = self.counts.get(home.tensor, 1)
        for number in range(count):
            yield replace(home, tensor=instance(home.tensor, number, count))


def in_instances(
    graph: NestGraph, parts: Sequence[Part], costs: GroupCosts,
    search: Callable[[NestGraph, tuple[Layer, ...]], NetworkDecision], limit: float,
) -> NetworkDecision | None:  # fmt: skip
    """The best schedule in instances, with what is `search`ed for parts of the network; None where
    it takes `limit` cycles or more."""
    choose = costs.stages.instances
    segments, counts = choose.segments(graph, parts, costs.arch)
    if not segments:
        return None

    @cache
    def searched(segment: InstancedLayers) -> tuple[float, NetworkDecision]:
        instances = Instances.of(graph, parts, counts_of(parts, [segment]))
        made = search(*instances.first(segment.begin, segment.end))
        once = sum(in_turn(each[0].step for each in made.expected if each is not None))
        return segment.count * once, made

    def cycles(way: Sequence[InstancedLayers]) -> float:
        return sum(searched(segment)[0] for segment in way)

    best = most_often_that_pays(segments, counts, cycles)
    if cycles(best) >= (1 - choose.worth) * limit:
        return None
    found = [searched(segment)[1] for segment in best]
    tree = Tree(
        graph.name, tuple(step for each in found for step in each.tree.steps),
        tuple(home for each in found for home in each.tree.homes),
    )  # fmt: skip
    return NetworkDecision(tree, tuple(e for each in found for e in each.expected), ())
