"""Who walks positions of a tensor in steps of more than one, at several lengths.

The one idea: between two windows lie as many positions as a loop's factor in an access says, as a
view's strides say beside those of what it is a view of, and of what the host computes, as its
operators' strides say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx

from compiler.nest.ir import HostNode, Nest, NestGraph
from compiler.nest.registers import Point


@dataclass(frozen=True)
class Walk:
    """Windows along one dimension of a tensor."""

    windows: Mapping[Point, int]
    positions: Mapping[Point, int]
    step: int
    bordered: bool
    """Whether they may leave the tensor."""


def walks(graphs: Mapping[Point, NestGraph], edge: Point) -> Iterator[Walk]:
    """Those along dimensions that differ, in the order of operators."""
    for number, step in enumerate(graphs[edge].steps):
        if isinstance(step, Nest):
            for access in step.operands:
                yield from _of_view(graphs, edge, access.tensor)
            yield from _of_nest(graphs, edge, number)
        else:
            for name in step.inputs:
                yield from _of_view(graphs, edge, name)
            yield from _of_host(graphs, step)


def _of_view(graphs: Mapping[Point, NestGraph], edge: Point, name: str) -> Iterator[Walk]:
    """Of every so many positions of a tensor that are another one, as `Slice` with steps picks."""
    view = graphs[edge].tensors[name]
    for whole in graphs[edge].tensors.values():
        if whole.storage.buffer != view.storage.buffer or len(whole.shape) != len(view.shape):
            continue
        apart = zip(whole.storage.strides, view.storage.strides, strict=True)
        steps = [(a, v // w) for a, (w, v) in enumerate(apart) if w and v > w and v % w == 0]
        for axis, step in steps:
            windows = {point: graph.tensors[name].shape[axis] for point, graph in graphs.items()}
            positions = {
                point: graph.tensors[whole.name].shape[axis] for point, graph in graphs.items()
            }
            if len({*positions.values()}) > 1:
                yield Walk(windows, positions, step, bordered=False)


def _of_nest(graphs: Mapping[Point, NestGraph], edge: Point, number: int) -> Iterator[Walk]:
    nests = {p: n for p, g in graphs.items() if isinstance(n := g.steps[number], Nest)}
    for operand, access in enumerate(nests[edge].operands):
        tensors = {p: graphs[p].tensors[n.operands[operand].tensor] for p, n in nests.items()}
        for axis, affine in enumerate(access.index):
            positions = {point: tensor.shape[axis] for point, tensor in tensors.items()}
            for dim, factor in affine.terms:
                windows = {point: nest.dims[dim].extent for point, nest in nests.items()}
                if factor > 1 and dim < nests[edge].rank and len({*positions.values()}) > 1:
                    yield Walk(windows, positions, factor, access.pad is not None)


def _of_host(graphs: Mapping[Point, NestGraph], call: HostNode) -> Iterator[Walk]:
    strides = _strides(call)
    if not strides:
        return
    read, made = (
        {point: graph.tensors[names[0]].shape for point, graph in graphs.items()}
        for names in (call.inputs, call.outputs)
    )
    rank = min(len(shape) for shape in (*read.values(), *made.values()))
    for axis, step in enumerate(strides[: max(0, rank - _SPATIAL)], _SPATIAL):
        positions = {point: shape[axis] for point, shape in read.items()}
        windows = {point: shape[axis] for point, shape in made.items()}
        if step > 1 and len({*positions.values()}) > 1:
            yield Walk(windows, positions, step, bordered=False)


_SPATIAL = 2
"""The first dimension along which ONNX's windows go."""


def _strides(call: HostNode) -> list[int]:
    """Of what a call reads first, by dimension: the steps of all its operators together."""
    if call.pick is not None or not call.inputs:
        return []
    graph = onnx.load_model_from_string(call.payload).graph
    given = [
        list(attribute.ints)
        for node in graph.node
        for attribute in node.attribute
        if attribute.name == "strides"
    ]
    return [math.prod(steps) for steps in zip(*given, strict=False)]
