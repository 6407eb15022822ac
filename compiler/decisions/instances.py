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
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from compiler.cost.overlap import in_turn
from compiler.decisions.cache import NetworkDecision
from compiler.decisions.group_costs import GroupCosts
from compiler.decisions.text.apply import Expected
from compiler.decisions.text.extract import INSTANCE, instance, renamed_step
from compiler.decisions.text.tree import Call, Home, Part, ScheduleStep, Tree
from compiler.errors import UnsupportedModel
from compiler.numerics.recipe import Stage, VerificationPlan
from compiler.schedule.batch import BatchAxes, InstancedLayers, counts_of, most_often_that_pays
from compiler.schedule.fusion.dependence import passing
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.nest import Access, Nest, NestGraph, Storage, Tensor
from simmodel.isa.region import cached_property


def _of_one(stage: Stage, nest: Nest) -> Stage:
    """What a stage does in one of its operators."""
    stored, kept = (tuple({nest.tensor} & {*names}) for names in (stage.stored, stage.kept))
    return replace(stage, nests=(nest,), stored=stored, kept=kept, alike=None)


def _turns(counts: Sequence[int]) -> list[tuple[int, int]]:
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
            for name in found._values(layer):
                users.setdefault(graph.buffer_of(name), set()).add(found._count(layer))
        wrong |= {max(each) for each in users.values() if any(max(each) % one for one in each)}
        if wrong:
            raise UnsupportedModel(
                f"{graph.name}: {max(wrong)} instances of a batch that can be cut into {axes.size}"
            )
        return found

    def _count(self, layer: Layer) -> int:
        return self.counts[layer.nests[-1].tensor]

    def _values(self, layer: Layer) -> Iterator[str]:
        """What a layer reads and makes that is no constant."""
        names = dict.fromkeys((*layer.inputs, *(nest.tensor for nest in layer.nests)))
        return (name for name in names if self.whole.tensors[name].data is None)

    @cached_property
    def _layers(self) -> list[tuple[Layer, int, int]]:
        """Layers of which number, of how many instances, each behind what it needs."""
        counts = [self._count(layer) for layer in self.parts]
        return [(self.parts[place], number, counts[place]) for place, number in _turns(counts)]

    @cached_property
    def sources(self) -> dict[str, tuple[str, int, int]]:
        """Tensor of an instance -> the whole one, the number of the instance, and their count."""
        return {
            instance(name, number, count): (name, number, count)
            for layer, number, count in self._layers
            for name in self._values(layer)
        }

    @cached_property
    def _buffer_counts(self) -> dict[str, int]:
        """Buffer -> how many there are of it: as many as instances of what sees it least often."""
        ports = (*self.whole.inputs, *self.whole.outputs)
        found = {self.whole.buffer_of(name): 1 for name in ports}
        for layer in self.parts:
            count = self._count(layer)
            for buffer in map(self.whole.buffer_of, self._values(layer)):
                found[buffer] = min(found.get(buffer, count), count)
        return found

    @cached_property
    def network(self) -> tuple[NestGraph, tuple[Layer, ...]]:
        """Its instances as a network: what is done in many instances is as far as what is done in
        few of them needs it."""
        whole, counts = self.whole, self._buffer_counts
        ports = dict.fromkeys((*whole.inputs, *whole.outputs))
        tensors = {n: t for n, t in whole.tensors.items() if t.data is not None}
        tensors |= {name: whole.tensors[name] for name in ports}
        for name, (source, number, count) in self.sources.items():
            buffers = counts[whole.buffer_of(source)]
            tensors[name] = self._tensor(whole.tensors[source], number, count, buffers)
        layers = tuple(self._layer(*each, tensors) for each in self._layers)
        sizes = {
            instance(name, part, count): whole.buffers[name] // count
            for name, count in counts.items()
            for part in range(count)
        }
        others = {t.storage.buffer for t in tensors.values()} - sizes.keys()
        sizes |= {name: size for name, size in whole.buffers.items() if name in others}
        steps = tuple(nest for layer in layers for nest in layer.nests)
        return replace(whole, tensors=tensors, buffers=sizes, steps=steps), layers

    def _layer(self, layer: Layer, number: int, count: int, tensors: dict[str, Tensor]) -> Layer:
        """An instance of a layer, with a number that no other layer has."""
        nests = tuple(self._nest(nest, number, count) for nest in layer.nests)
        index = layer.index + number * (1 + max(each.index for each in self.parts))
        return replace(layer, index=index, nests=nests, tensors=tensors)

    def _nest(self, nest: Nest, number: int, count: int) -> Nest:
        if count == 1:
            return nest

        def own(access: Access) -> Access:
            name, constant = access.tensor, self.whole.tensors[access.tensor].data is not None
            return access if constant else replace(access, tensor=instance(name, number, count))

        loop, dims = self.axes.axes[nest.tensor], list(nest.dims)
        dims[loop] = replace(dims[loop], extent=dims[loop].extent // count)
        composite = nest.composite and instance(nest.composite, number, count)
        name = instance(nest.tensor, number, count)
        made = replace(nest, tensor=name, dims=tuple(dims), composite=composite)
        return made.with_reads(map(own, nest.reads))

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
        for name, (whole, number, count) in self.sources.items():
            tensors[name] = self._tensor(self.whole.tensors[whole], number, count, 1)
        stages: dict[str, list[Stage]] = {}
        for stage in recipe.stages:
            for nest in stage.nests:
                whole, *_ = self.sources[nest.tensor]
                stages.setdefault(whole, []).append(_of_one(stage, nest))
        graph, ordered = replace(self.whole, tensors=tensors), chain.from_iterable(stages.values())
        return replace(recipe, graph=graph, stages=tuple(ordered))

    def tree(
        self, tree: Tree, expected: Sequence[Expected | None] | None
    ) -> tuple[Tree, Sequence[Expected | None] | None]:
        """The schedule `tree` of the whole network, whose steps are done in instances, as one of
        `network`; with what is `expected` of each of its steps."""
        turns = _turns([s.instances if isinstance(s, ScheduleStep) else 1 for s in tree.steps])
        steps = tuple(self._step(tree.steps[place], number) for place, number in turns)
        homes = tuple(each for home in tree.homes for each in self._home_in_instances(home))
        known = None if expected is None else [expected[place] for place, _ in turns]
        return replace(tree, steps=steps, homes=homes), known

    def first(self, begin: int, end: int) -> tuple[NestGraph, tuple[Layer, ...]]:
        """The first instance of the layers from `begin` to before `end`, of which there are equally
        many, as a network."""
        count, (graph, layers) = self._count(self.parts[begin]), self.network
        made = [instance(p.nests[-1].tensor, 0, count) for p in self.parts[begin:end]]
        by_name = {layer.nests[-1].tensor: layer for layer in layers}
        inputs, outputs = (
            tuple(each for name in names if (each := instance(name, 0, count)) in self.sources)
            for names in passing(self.whole, self.parts, begin, end)
        )
        return replace(graph, inputs=inputs, outputs=outputs), tuple(by_name[n] for n in made)

    def _step(self, step: ScheduleStep | Call, number: int) -> ScheduleStep | Call:
        if isinstance(step, Call) or step.instances == 1:
            return step
        made = {work.nests[0] for work in step.layers}
        layers = [p for p in self.parts if any(nest.tensor in made for nest in p.nests)]
        seen = {n for layer in layers for n in (*layer.inputs, *(n.tensor for n in layer.nests))}

        def own_name(name: str) -> str:
            """Of a tensor, or of what a buffer holds of it."""
            tensor = max(filter(name.startswith, seen), key=len)
            if self.whole.tensors[tensor].data is not None:
                return name
            return instance(tensor, number, step.instances) + name.removeprefix(tensor)

        return renamed_step(replace(step, instances=1), own_name)

    def _home_in_instances(self, home: Home) -> Iterator[Home]:
        """What stays on chip in each instance; constants and whole tensors once."""
        counts = self._buffer_counts if home.memory == "shared" else self.counts
        count = counts.get(home.tensor, 1)
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
