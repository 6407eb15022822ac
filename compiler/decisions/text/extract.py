"""The tree of a program: what its steps were made from, by names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import cast

from compiler.decisions.text.text import Remarked
from compiler.decisions.text.tree import (
    BufferAddress,
    Call,
    For,
    Home,
    Memory,
    ScheduleStep,
    Span,
    StepLayer,
    Tree,
)
from compiler.memory.on_chip import PlacedGroup
from compiler.memory.on_chip import Step as Made
from compiler.schedule.wording import loop_name, name_of
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Tiled
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.units import show_bytes

Part = Made | Group
"""A step of a program, or a group that is one step of it once it has a schedule."""


def extract_tree(network: str, parts: Sequence[Part], *, addresses: bool = False) -> Tree:
    """The tree of a network's groups, with plans and places or without, and calls of the host;
    `addresses`: it says where the buffers of every step lie."""
    steps = tuple(_tree_step(part, addresses) for part in parts)
    return Tree(network, steps, tuple(_residents(parts)))


def remarks_of(tree: Tree, parts: Sequence[Part]) -> dict[Remarked, str]:
    """What a reader of `tree`, which is that of `parts`, may want to know beside it."""
    found: dict[Remarked, str] = {}
    for step, part in zip(tree.steps, parts, strict=True):
        if isinstance(part, HostNode) or isinstance(step, Call):
            continue
        group = _group_of(part)
        found[step] = group.name
        for work, layer in zip(step.layers, group.layers, strict=True):
            kinds = "+".join(nest.kind or nest.function for nest in layer.nests)
            found[work] = f"{kinds} -> {layer.result.dtype}{[*layer.result.shape]}"
        if isinstance(part, Group):
            continue
        cycles = part.plan.schedule.estimate.total
        found[step] = f"{group.name}: {cycles:,.0f} cycles expected"
        for address in step.buffers:
            buffer = part.plan.buffers[address.buffer]
            found[address] = f"{buffer.role}, {buffer.slots} x {show_bytes(buffer.bytes)}"
    return found


def _group_of(part: PlacedGroup | Group) -> Group:
    return part if isinstance(part, Group) else part.plan.schedule.group


def _residents(parts: Sequence[Part]) -> Iterator[Home]:
    """What lies on chip between steps; tensors in the order in which they were given their place.

    Constants are given theirs without regard to their order: groups name them in that of their
    inputs.
    """
    order: TopologicalSorter[Home] = TopologicalSorter()
    groups = [_group_of(part) for part in parts if not isinstance(part, HostNode)]
    makers = {layer.result.name: layer for group in groups for layer in group.layers}
    for group in groups:
        kept = []
        for own in group.residents.values():  # with what every core keeps; nothing where it is one
            every = own.everywhere
            cores = tuple(() if every else _cut_spans(makers[own.whole], part) for part in own.cut)
            kept.append(Home(own.whole, "local", own.address, cores, own.passed))
        shared = [
            Home(group.tensors[name].storage.buffer, "shared", home.address)
            for name, home in group.shared.items()
        ]
        for name, pinned in group.pinned.items():
            order.add(Home(name, cast(Memory, pinned.memory), pinned.address))
        for homes in map(list, map(dict.fromkeys, (kept, shared))):
            for first, second in zip((None, *homes), homes, strict=False):
                order.add(second, *([first] if first is not None else []))
    yield from order.static_order()


def _tree_step(part: Part, addresses: bool) -> ScheduleStep | Call:
    if isinstance(part, HostNode):
        return Call(part.outputs)
    if isinstance(part, Group):
        return ScheduleStep(tuple(StepLayer(_nests(layer)) for layer in part.layers))
    schedule = part.plan.schedule
    last, cores = schedule.group.layers[-1], schedule.cores
    return ScheduleStep(
        layers=tuple(_work(tiled) for tiled in schedule.layers),
        cores=tuple(_cut_spans(last, box) for box in schedule.parts),
        among=(cores.start, cores.stop) if cores.start else None,
        loops=tuple(
            For(name_of(last, o.axis), o.size, o.rolling, stages=o.ahead) for o in schedule.loops
        ),
        slots=part.plan.slots,
        buffers=tuple(_addresses(part)) if addresses else (),
    )


def _nests(layer: Layer) -> tuple[str, ...]:
    return tuple(nest.tensor for nest in layer.nests)


def _cut_spans(layer: Layer, part: Box) -> tuple[Span, ...]:
    """A core's part of a layer's result along the dimensions that are cut."""
    return tuple(
        Span(name_of(layer, axis), start, start + size)
        for axis, ((start, size), extent) in enumerate(zip(part, layer.result.shape, strict=True))
        if size != extent
    )


def _work(tiled: Tiled) -> StepLayer:
    loops = tuple(
        For(loop_name(tiled.layer, loop), loop.size, ahead=loop.ahead) for loop in tiled.loops
    )
    return StepLayer(_nests(tiled.layer), loops, tiled.resident)


def _addresses(made: PlacedGroup) -> Iterator[BufferAddress]:
    """Buffers that are the step's to place, by memory and address."""
    own = [b for b in made.plan.buffers.values() if b.address is None]
    for buffer in sorted(own, key=lambda b: (b.role, made.places[b.name])):
        yield BufferAddress(buffer.name, *made.places[buffer.name])


# Instances of a step: their tensors are told apart by names.


def instance(name: str, number: int, count: int) -> str:
    """Name of one of so many of a tensor, buffer or composite."""
    return name if count == 1 else f"{name}@{number}of{count}"


INSTANCE = re.compile(r"@(\d+)of(\d+)")


def in_whole(tree: Tree) -> tuple[Tree, list[int]]:
    """What a tree of instances says of the whole network, in the first of them each, and the
    positions of their steps."""
    steps: dict[int, ScheduleStep | Call] = {}
    for position, step in enumerate(tree.steps):
        found = None if isinstance(step, Call) else INSTANCE.search(step.layers[0].nests[0])
        if isinstance(step, Call) or found is None:
            steps[position] = step
        elif found[1] == "0":
            steps[position] = renamed_step(replace(step, instances=int(found[2])), whole_name)
    homes = dict.fromkeys(replace(home, tensor=whole_name(home.tensor)) for home in tree.homes)
    return replace(tree, steps=tuple(steps.values()), homes=tuple(homes)), list(steps)


def whole_name(name: str) -> str:
    """Of a tensor, or of a buffer that holds some of it, the name without its instance."""
    return INSTANCE.sub("", name)


def renamed_step(step: ScheduleStep, own_name: Callable[[str], str]) -> ScheduleStep:
    """A step with other names for its tensors and buffers."""
    layers = tuple(replace(w, nests=tuple(map(own_name, w.nests))) for w in step.layers)
    buffers = tuple(replace(each, buffer=own_name(each.buffer)) for each in step.buffers)
    return replace(step, layers=layers, buffers=buffers)
