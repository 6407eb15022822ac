"""Padding around dimensions whose length is known only at run time: rows of a buffer.

    y[l] = sum over k of x[l + k - 1] * w[k], 0 outside      x.bordered = 0, x[0 .. n - 1], 0
                                                        =>   y[l] = sum over k of
                                                                    x.bordered[l + k] * w[k]

The one idea: the end of the data moves with the length, as does the new row of a growing cache. So
padding is handled as such a row: a concatenation, into whose buffer the producer writes directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np

from compiler.symbolic.ceil_div import extents_at
from compiler.tensor_ir.bounds import needed, raw_value
from compiler.tensor_ir.build import NestGraphBuilder
from compiler.tensor_ir.join import JoinConcat
from compiler.tensor_ir.nest import Access, Nest, NestGraph, Step, Tensor, order_of
from compiler.tensor_ir.registers import Point
from compiler.tensor_ir.rewrite import writes_of
from simmodel.arch.dtype import NUMPY

Key = tuple[str, float]
"""A tensor, and the border's value in its element type."""


@dataclass
class _Wanted:
    """Border of one tensor."""

    first: int
    """Number of the first operator that reads the border, at any length."""
    order: tuple[int, ...]
    """Of the tensor's axes, slowest first, where all are as long as they get."""
    before: dict[int, int] = field(default_factory=dict)
    """Rows, by axis."""
    after: dict[int, int] = field(default_factory=dict)


def with_borders(graphs: Mapping[Point, NestGraph]) -> dict[Point, NestGraph]:
    """`graphs` of one network at several lengths with the same operators, in which windows that
    leave a dimension of varying length read rows of a border."""
    wanted: dict[Key, _Wanted] = {}
    readers: dict[tuple[int, int], Key] = {}
    for graph in graphs.values():
        nests = ((n, step) for n, step in enumerate(graph.steps) if isinstance(step, Nest))
        for number, step in nests:
            for position, access in enumerate(step.operands):
                for axis, before, after in _outside(step, access, graph, graphs):
                    dtype = graph.tensors[access.tensor].dtype
                    assert access.pad is not None
                    value = raw_value(access.pad, dtype, access.scale, access.zero)
                    key = (access.tensor, value)
                    same = [g.tensors[access.tensor] for g in graphs.values()]
                    longest = max(same, key=lambda tensor: tensor.elements)
                    order = order_of(longest.shape, longest.storage.strides)
                    border = wanted.setdefault(key, _Wanted(number, order))
                    border.first = min(border.first, number)
                    border.before[axis] = max(border.before.get(axis, 0), before)
                    border.after[axis] = max(border.after.get(axis, 0), after)
                    readers[number, position] = key
    if not wanted:
        return dict(graphs)
    return {point: _bordered(graph, wanted, readers) for point, graph in graphs.items()}


def _outside(
    nest: Nest, access: Access, graph: NestGraph, graphs: Mapping[Point, NestGraph]
) -> Iterator[tuple[int, int, int]]:
    """Varying axes that `access` leaves, and by how many rows in front and behind."""
    if access.pad is None:
        return
    box = needed(access, [(0, dim.extent) for dim in nest.dims])
    for axis, (start, size) in enumerate(box):
        extent = graph.tensors[access.tensor].shape[axis]
        differs = len({*extents_at(graphs, access.tensor, axis).values()}) > 1
        if differs and (start < 0 or start + size > extent):
            yield axis, max(0, -start), max(0, start + size - extent)


def _bordered(
    graph: NestGraph, wanted: Mapping[Key, _Wanted], readers: Mapping[tuple[int, int], Key]
) -> NestGraph:
    """One graph in which `readers` (number of the operator, its operand) read borders."""
    tensors, buffers = dict(graph.tensors), dict(graph.buffers)
    made: dict[int, list[Step]] = {}
    makers = {
        graph.buffer_of(name): step.origin for step in graph.steps for name in writes_of(step)
    }
    for key, border in wanted.items():
        # Of the node that makes what lies inside: its readers are given what it has stored.
        inner = graph.tensors[key[0]]
        origin = makers.get(inner.storage.buffer) or graph.steps[border.first].origin
        build = NestGraphBuilder(graph.name, inner.dtype, origin=origin, kind="Concat")
        _concatenate(build, key, border, inner)
        made.setdefault(border.first, []).extend(build.steps)
        tensors |= build.tensors
        buffers |= build.buffers
    steps = []
    for number, step in enumerate(graph.steps):
        steps += made.get(number, [])
        if isinstance(step, Nest):
            operands = list(step.operands)
            for position, access in enumerate(operands):
                if (read := readers.get((number, position))) is not None:
                    operands[position] = _bordered_access(access, wanted[read], read, tensors, step)
            step = replace(step, operands=tuple(operands))
        steps.append(step)
    changed = replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))
    return JoinConcat().apply(changed).ir


def _bordered_name(key: Key) -> str:
    return f"{key[0]}.bordered:{key[1]:g}"


def _concatenate(build: NestGraphBuilder, key: Key, border: _Wanted, inner: Tensor) -> None:
    """Append operators that write `inner` and its border into one tensor."""
    name = _bordered_name(key)
    starts = [border.before.get(axis, 0) for axis in range(len(inner.shape))]
    shape = tuple(
        before + extent + border.after.get(axis, 0)
        for axis, (before, extent) in enumerate(zip(starts, inner.shape, strict=True))
    )
    whole = build.create(name, shape, inner.dtype, border.order)
    done = [*zip(starts, inner.shape, strict=True)]
    boxes = {"inside": list(done)}
    for axis in border.before:
        ends = {"before": (0, starts[axis]), "after": (sum(done[axis]), border.after[axis])}
        for side, span in ends.items():
            if span[1]:
                boxes[f"{side}{axis}"] = [*done[:axis], span, *done[axis + 1 :]]
        done[axis] = (0, shape[axis])
    for part, box in boxes.items():
        extents = tuple(extent for _, extent in box)
        cut = tuple(slice(start, start + extent) for start, extent in box)
        source = inner
        if part != "inside":
            rows = np.full(extents, key[1], NUMPY[inner.dtype])
            source = build.constant(f"{name}.{part}.rows", rows, inner.dtype)
        build.copied(build.view(f"{name}.{part}", whole, itemgetter(cut)), source)


def _bordered_access(
    access: Access, border: _Wanted, key: Key, tensors: Mapping[str, Tensor], nest: Nest
) -> Access:
    """`access` to the tensor with its border; the pad value stays for axes that do not differ."""
    index = tuple(
        replace(affine, constant=affine.constant + border.before.get(axis, 0))
        for axis, affine in enumerate(access.index)
    )
    made = replace(access, tensor=_bordered_name(key), index=index)
    box = needed(made, [(0, dim.extent) for dim in nest.dims])
    spans = zip(box, tensors[made.tensor].shape, strict=True)
    inside = all(start >= 0 and start + size <= extent for (start, size), extent in spans)
    return replace(made, pad=None) if inside else made
