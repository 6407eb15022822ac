"""Constants that depend on a length: rows of a table with one row per length.

    cosines of position p, for past=p of 1..512    ->    table[512, 1, 64], row past - 1

A value that an exporter computes from the length of a cache, such as the embedding of the next
position, is a constant once that length is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.tensor_ir.build import within
from compiler.tensor_ir.nest import (
    Array,
    Dim,
    HostNode,
    Nest,
    NestGraph,
    Storage,
    Tensor,
    row_major,
)
from compiler.tensor_ir.registers import Point, edge_of
from simmodel.arch.dtype import NAMES, NUMPY
from simmodel.arch.lazy_array import AnyArray
from simmodel.isa.region import Register

Constants = Callable[[Collection[str], Mapping[str, int]], Mapping[str, Array]]
"""Values of some constants of a network, by name, at one length of each register; unknown ones are
left out."""

_LARGEST_TABLE = 1 << 26
"""Elements of a table."""
_MOST_ROWS = 1 << 12
"""Of a table for several lengths, each of which the network is looked at for."""


TableRow = tuple[Tensor, Storage]
"""A table, and where a constant lies in it."""


def _table_row(
    name: str, data: Array, exact: Array | None, on: Sequence[Register], shape: tuple[int, ...],
    dtype: str,
) -> TableRow:  # fmt: skip
    """A table over the ranges of lengths `on` with rows of `shape`; its row at the maximum, which
    moves with the lengths."""
    label = f"{name}@{'@'.join(register.name for register in on)}"
    strides = row_major(data.shape)
    table = Tensor(label, data.shape, dtype, Storage(label, 0, strides), data, exact)
    steps = [*zip(on, strides, strict=False)]
    start = sum((register.high - register.low) * step for register, step in steps)
    terms = tuple((register.name, step) for register, step in steps)
    return table, Storage(label, start, row_major(shape), terms)


def tables_of(
    varying: Mapping[str, Mapping[Point, Tensor]], edge: NestGraph, registers: Sequence[Register],
    constants: Constants | None,
) -> dict[str, TableRow | str]:  # fmt: skip
    """For each constant of `varying` the table and its row, or a reason in words."""
    found: dict[str, TableRow | str] = {}
    wanted: dict[tuple[Register, ...], list[str]] = {}
    for name, seen in varying.items():
        on = _depends(seen, registers)
        why = _refusal(seen, edge, on)
        if why is None:
            wanted.setdefault(on, []).append(name)
        else:
            found[name] = why
    for on, names in wanted.items():
        rows = _values_per_size(names, on, registers, constants)
        for name in names:
            found[name] = _constant_table(varying[name], rows[name], on, registers)
    return found


def _depends(seen: Mapping[Point, Tensor], registers: Sequence[Register]) -> tuple[Register, ...]:
    """Registers on which a constant depends, other than by being a prefix of its value at the
    maximum."""
    edge = edge_of(registers)
    whole = seen[edge]
    return tuple(
        register
        for position, register in enumerate(registers)
        if any(
            not begins_alike(tensor.data, whole.data)
            for point, tensor in seen.items()
            if all((point[i] == edge[i]) != (i == position) for i in range(len(point)))
        )
    )


def _refusal(seen: Mapping[Point, Tensor], edge: NestGraph, on: Sequence[Register]) -> str | None:
    """Reason why a constant has no table; None: it has one."""
    tensor = next(iter(seen.values()))
    names = " and ".join(register.name for register in on)
    if not on:
        return "depends on several lengths at once"
    shared = [t for t in edge.tensors.values() if t.storage.buffer == tensor.storage.buffer]
    if len(shared) > 1:
        return f"has other values for another {names}, and views"
    rows = math.prod(register.high - register.low + 1 for register in on)
    size = tensor.elements * rows
    if size > _LARGEST_TABLE or (len(on) > 1 and rows > _MOST_ROWS):
        return f"has other values for each {names}, which are {size} in {rows} rows"
    return None


def _values_per_size(
    names: Sequence[str], on: Sequence[Register], registers: Sequence[Register],
    constants: Constants | None,
) -> dict[str, list[Array | None]]:  # fmt: skip
    """Values of each constant at each length of `on`, the last of which changes first."""
    edge = {each.name: each.high for each in registers}
    found: dict[str, list[Array | None]] = {name: [] for name in names}
    for lengths in product(*(range(each.low, each.high + 1) for each in on)):
        at = dict(zip((each.name for each in on), lengths, strict=True))
        made = {} if constants is None else constants(names, edge | at)
        for name in names:
            found[name].append(made.get(name))
    return found


def _constant_table(
    seen: Mapping[Point, Tensor], rows: Sequence[Array | None], on: Sequence[Register],
    registers: Sequence[Register],
) -> TableRow | str:  # fmt: skip
    """The table of one constant, if it has what is known of it."""
    tensor = seen[edge_of(registers)]
    lengths = " and ".join(register.name for register in on)
    other = f"has other values for another {lengths}, not just fewer"
    given = [_as_at_edge(row, tensor.shape) for row in rows]
    whole = [row for row in given if row is not None]
    if len(whole) < len(rows):
        return other
    spans = tuple(register.high - register.low + 1 for register in on)
    exact = np.stack(whole).reshape(*spans, *tensor.shape)
    data = np.asarray(within(exact, tensor.dtype), NUMPY[tensor.dtype])
    places = [list(registers).index(register) for register in on]
    for point, each in seen.items():
        row = tuple(point[place] - registers[place].low for place in places)
        known = all(0 <= index < span for index, span in zip(row, spans, strict=True))
        fits = all(n <= m for n, m in zip(each.shape, tensor.shape, strict=True))
        if known and fits and not begins_alike(each.data, data[row]):
            return other
    kept = None if tensor.exact is None else exact
    return _table_row(tensor.name, data, kept, on, tensor.shape, tensor.dtype)


def _as_at_edge(row: Array | None, shape: tuple[int, ...]) -> Array | None:
    """Values in the shape at the maximum, zeros behind; None if they have another rank."""
    if row is None or row.size == math.prod(shape):
        return None if row is None else row.reshape(shape)
    if row.ndim != len(shape) or any(n > m for n, m in zip(row.shape, shape, strict=True)):
        return None
    return np.pad(row, [(0, m - n) for n, m in zip(row.shape, shape, strict=True)])


def begins_alike(ours: AnyArray | None, right: AnyArray | None) -> bool:
    """Whether one of two constants of equal rank is a prefix of the other along every axis."""
    if ours is None or right is None:
        return ours is right
    if ours.dtype != right.dtype:
        return False
    both = tuple(slice(0, min(n, m)) for n, m in zip(ours.shape, right.shape, strict=True))
    return np.asarray(ours)[both].tobytes() == np.asarray(right)[both].tobytes()


def with_host_constants(graphs: Mapping[Point, NestGraph]) -> dict[Point, NestGraph]:
    """`graphs` of one network at several lengths with the same operators: constants that differ
    inside payloads become inputs of the host calls."""
    made = dict(graphs)
    for number, step in enumerate(next(iter(graphs.values())).steps):
        if isinstance(step, HostNode) and step.pick is None:
            calls = {p: s for p, g in made.items() if isinstance(s := g.steps[number], HostNode)}
            names = _differing([call.payload for call in calls.values()])
            made |= {p: _handed(made[p], number, call, names) for p, call in calls.items()}
    return made


def _differing(payloads: Sequence[bytes]) -> list[str]:
    """Constants of payloads that differ and that memory can hold."""
    if len({*payloads}) == 1:
        return []
    known: dict[str, set[bytes]] = {}
    for payload in payloads:
        for tensor in onnx.load_model_from_string(payload).graph.initializer:
            data = tensor.SerializeToString(deterministic=True)
            if numpy_helper.to_array(tensor).dtype in NAMES:
                known.setdefault(tensor.name, set()).add(data)
    return [name for name, seen in known.items() if len(seen) > 1]


def _handed(graph: NestGraph, number: int, step: HostNode, names: Sequence[str]) -> NestGraph:
    """`graph` with constants of a host call as its inputs."""
    proto = onnx.load_model_from_string(step.payload)
    held = {tensor.name: tensor for tensor in proto.graph.initializer}
    if not names or not {*names} <= held.keys():
        return graph
    tensors, buffers = dict(graph.tensors), dict(graph.buffers)
    for name in names:
        data = numpy_helper.to_array(held[name])
        storage = Storage(name, 0, row_major(data.shape))
        if name not in tensors:
            tensors[name] = Tensor(name, data.shape, NAMES[data.dtype], storage, data)
            buffers[name] = data.size
        kind = held[name].data_type
        proto.graph.input.append(helper.make_tensor_value_info(name, kind, data.shape))
        proto.graph.initializer.remove(held[name])
    call = replace(
        step, inputs=(*step.inputs, *names), payload=proto.SerializeToString(deterministic=True)
    )
    steps = (*graph.steps[:number], call, *graph.steps[number + 1 :])
    return replace(graph, tensors=tensors, buffers=buffers, steps=steps)


# Means over a dimension whose length is known only when a program runs.

_LARGEST_COUNT = 1 << 20
"""Rows of a table."""
_NEAR = 1e-6
"""Of a factor, how far it may be off where it is 1 / n."""


def is_mean(seen: Mapping[Point, Nest]) -> bool:
    """Whether a nest divides by a number of elements that differs between points."""
    if any((n.reduce, n.function, n.multiplier) != ("sum", "move", None) for n in seen.values()):
        return False
    scales = [nest.operands[0].scale or 0 for nest in seen.values()]
    sizes = (math.prod(dim.extent for dim in nest.dims[nest.rank :]) for nest in seen.values())
    totals = [scale * size for scale, size in zip(scales, sizes, strict=True)]
    near = max(totals) - min(totals) <= _NEAR * max(totals)
    return all(scales) and len({*scales}) > 1 and near


def mean_scale_of(
    name: str, dims: Sequence[Dim], registers: Sequence[Register], real: str
) -> tuple[Tensor, Tensor] | str:
    """Elements at the maximum over actual elements of a mean over `dims`, which corrects it at
    shorter lengths: a table of type `real` called after `name`, and its row; or a reason in
    words."""
    used = {term for dim in dims if dim.count is not None for term, _ in dim.count.terms}
    on = [register for register in registers if register.name in used]
    spans = [np.arange(register.low, register.high + 1) for register in on]
    rows = math.prod(span.size for span in spans)
    if rows > _LARGEST_COUNT:
        return f"its mean is over {rows} different numbers of positions"
    lengths = dict(zip((r.name for r in on), np.meshgrid(*spans, indexing="ij"), strict=True))
    over = np.ones([span.size for span in spans])
    for dim in dims:
        if dim.count is not None:
            over = over * (dim.count.base + sum(f * lengths[n] for n, f in dim.count.terms))
    if (over <= 0).any():
        return "its mean is over nothing at some lengths"
    exact = (over[tuple([-1] * over.ndim)] / over)[..., np.newaxis].astype(np.float32)
    data = exact.astype(NUMPY[real])
    kept = None if exact.dtype == data.dtype else exact
    table, row = _table_row(f"{name}.share", data, kept, on, (1,), real)
    return table, Tensor(f"{name}.share", (1,), real, row, data.reshape(-1)[-1:])
