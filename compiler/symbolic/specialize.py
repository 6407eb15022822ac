"""Specialize a symbolic nest graph to concrete sizes; buffers keep the strides of the maximum.

scores[m=4, n=1 + past]  at past=7   ->   scores[m=4, n=8], strides and buffers of the edge
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from compiler.tensor_ir.nest import (
    Affine,
    Array,
    Dim,
    HostNode,
    Nest,
    NestGraph,
    Tensor,
    with_sources,
)
from compiler.tensor_ir.registers import below, lengths_among, values_at
from simmodel.arch.lazy_array import transformed
from simmodel.isa.region import Register


def at_length(graph: NestGraph, values: Mapping[str, int]) -> NestGraph:
    """`graph` specialized to lengths of `values`.

    Raises ValueError with every value that is missing, unknown or outside of its range.
    """
    check_values(graph.registers, values)
    values = values_at(graph.registers, values)
    tensors = {name: _tensor(t, graph.registers, values) for name, t in graph.tensors.items()}
    for name, tensor in graph.tensors.items():
        if tensor.data is not None and tensor.storage.registers:
            tensors[name] = _constant_from_table(tensors[name], tensors[tensor.storage.buffer])
    steps = tuple(
        step if isinstance(step, HostNode) else nest_at(step, graph.registers, values)
        for step in graph.steps
    )
    return replace(graph, tensors=tensors, steps=steps, registers=())


def check_values(registers: Sequence[Register], values: Mapping[str, int]) -> None:
    """Raise ValueError with every value that is missing, unknown or outside of its range."""
    lengths = lengths_among(registers)
    known = {register.name for register in lengths}
    wrong = [f"{name} is no length of it" for name in values if name not in known]
    for register in lengths:
        value, span = values.get(register.name), f"{register.low}..{register.high}"
        if value is None:
            wrong.append(f"{register.name} needs a value of {span}")
        elif not register.low <= value <= register.high:
            wrong.append(f"{register.name}={value} is outside of {span}")
    if wrong:
        raise ValueError("; ".join(wrong))


def _tensor(tensor: Tensor, registers: Sequence[Register], values: Mapping[str, int]) -> Tensor:
    counts = tensor.counts or (None,) * len(tensor.shape)
    shape = tuple(
        extent if count is None else count.at(values)
        for extent, count in zip(tensor.shape, counts, strict=True)
    )
    moved = below(tensor.storage.registers, registers, values)
    storage = replace(tensor.storage, offset=tensor.storage.offset - moved, registers=())
    tensor = with_sources(tensor, lambda each: _tensor(each, registers, values))
    uncertain = tensor.uncertain

    def begin(values: Array) -> Array:
        return values[tuple(map(slice, shape))]

    if isinstance(uncertain, np.ndarray):
        uncertain = begin(np.broadcast_to(uncertain, tensor.shape))
    return replace(
        tensor, shape=shape, storage=storage, counts=(),
        data=None if tensor.data is None else transformed(tensor.data, begin),
        exact=None if tensor.exact is None else transformed(tensor.exact, begin),
        uncertain=uncertain, narrow=tensor.narrow if shape == tensor.shape else None,
    )  # fmt: skip


def _constant_from_table(tensor: Tensor, table: Tensor) -> Tensor:
    if table.data is None:
        raise ValueError(f"{table.name} is no constant")

    def row(values: Array) -> Array:
        first = values.reshape(-1)[tensor.storage.offset :]
        steps = [step * values.itemsize for step in tensor.storage.strides]
        return np.ascontiguousarray(as_strided(first, tensor.shape, steps))

    exact = None if table.exact is None else row(np.asarray(table.exact))
    return replace(tensor, data=row(np.asarray(table.data)), exact=exact, narrow=None)


def nest_at(nest: Nest, registers: Sequence[Register], values: Mapping[str, int]) -> Nest:
    """`nest` specialized to `values` of the registers."""

    def affine(given: Affine) -> Affine:
        moved = below(given.registers, registers, values)
        return replace(given, constant=given.constant - moved, registers=())

    reads = [replace(read, index=tuple(map(affine, read.index))) for read in nest.reads]
    dims = tuple(
        dim if dim.count is None else Dim(dim.name, dim.count.at(values)) for dim in nest.dims
    )
    return replace(nest.with_reads(reads), dims=dims)
