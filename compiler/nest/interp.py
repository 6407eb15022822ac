"""The numpy meaning of nests: what a nest graph computes, before any machine is in sight.

Buffers are flat arrays and tensors strided views of them, so aliasing is real: a nest that writes
a slice of a concatenation changes the whole. Every access becomes one array whose axes are the
nest's loops, with the pad value where positions fall outside; then the function, the reduction and
the encoding are exactly those of the machine's instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided

from compiler.nest.bounds import clipped, needed
from compiler.nest.ir import Access, Array, HostNode, Nest, NestGraph, Tensor
from simmodel.dtype import NUMPY
from simmodel.isa.base import decode, encode
from simmodel.isa.contraction import contraction
from simmodel.isa.functions import BINARY, REDUCE, TERNARY, UNARY, Function
from simmodel.region import Address, Operand

Host = Callable[[bytes, list[Array]], list[Array]]
"""Runs a payload on arrays as stored, gives its outputs."""


def run(
    graph: NestGraph, inputs: Mapping[str, Array], host: Host | None = None
) -> dict[str, Array]:
    """Outputs of `graph` by name, in their shapes and in the element types of its ports.

    Args:
        graph: what to run.
        inputs: one array for each graph input, in its shape.
        host: runs host nodes; needed when there are any.

    Raises:
        ValueError: an input is missing or has another shape, or a host node has no host.
    """
    tensors = views(graph)
    for name in graph.inputs:
        given = np.asarray(inputs[name]) if name in inputs else None
        if given is None or given.shape != graph.tensors[name].shape:
            raise ValueError(f"input {name} needs an array of {graph.tensors[name].shape}")
        tensors[name][...] = given
    for step in graph.steps:
        if isinstance(step, Nest):
            run_nest(step, tensors)
        else:
            _run_host(step, tensors, host)
    return {name: _read(graph, name, tensors[name]) for name in graph.outputs}


def views(graph: NestGraph) -> dict[str, Array]:
    """Every tensor as a writable view of its buffer; buffers are zero but for constants."""
    kinds = {t.storage.buffer: t.dtype for t in graph.tensors.values()}
    buffers = {name: np.zeros(n, NUMPY[kinds[name]]) for name, n in graph.buffers.items()}
    result = {name: _view(t, buffers[t.storage.buffer]) for name, t in graph.tensors.items()}
    for name, tensor in graph.tensors.items():
        if tensor.data is not None:
            result[name][...] = tensor.data
    return result


def _view(tensor: Tensor, buffer: Array) -> Array:
    if tensor.elements == 0:
        return np.zeros(tensor.shape, buffer.dtype)
    strides = tuple(s * buffer.itemsize for s in tensor.storage.strides)
    return np.ndarray(
        tensor.shape, buffer.dtype, buffer, tensor.storage.offset * buffer.itemsize, strides
    )


def _read(graph: NestGraph, name: str, values: Array) -> Array:
    return values.astype(NUMPY[graph.ports.get(name, graph.tensors[name].dtype)])


def _run_host(step: HostNode, tensors: Mapping[str, Array], host: Host | None) -> None:
    if host is None:
        raise ValueError(f"{step.origin} ({step.kind}) runs on the host, and none is given")
    results = host(step.payload, [tensors[name] for name in step.inputs])
    for name, values in zip(step.outputs, results, strict=True):
        tensors[name][...] = values


def run_nest(nest: Nest, tensors: Mapping[str, Array], fine: bool = False) -> None:
    """Compute `nest` into `tensors[nest.tensor]`, which is written in place.

    Args:
        nest: what to compute.
        tensors: arrays as stored.
        fine: whether floats are added up in fp64: a machine adds up fp32, in an order of its own.

    Raises:
        ValueError: a read outside a tensor has no pad.
    """
    out = tensors[nest.tensor]
    if out.size == 0:
        return
    if _raw_move(nest, tensors[nest.operands[0].tensor].dtype, out.dtype):
        out[...] = _over_loops(tensors[nest.operands[0].tensor], nest.operands[0], nest).copy()
        return
    with np.errstate(all="ignore"):
        values = _values(nest, tensors, fine)
    encode(values, _code(nest.scale, nest.zero), out)


def _raw_move(nest: Nest, source: np.dtype[np.generic], target: np.dtype[np.generic]) -> bool:
    """Whether bytes are copied as they are."""
    access = nest.operands[0]
    plain = (access.scale, access.zero) == (nest.scale, nest.zero) and access.pad is None
    unclipped = nest.low == -math.inf and nest.high == math.inf
    untouched = nest.bias is None and nest.multiplier is None and nest.reduce is None
    return nest.function == "move" and source == target and plain and unclipped and untouched


def _values(nest: Nest, tensors: Mapping[str, Array], fine: bool) -> Array:
    """Real values of the result, before they are encoded."""
    if nest.function == "mul" and nest.reduce == "sum":
        values = _products(nest, tensors, fine)
    else:
        operands = [
            _over_loops(_real(tensors[access.tensor], access), access, nest)
            for access in nest.operands
        ]
        values = _function(nest).apply(*operands, *nest.parameters)
        if nest.reduce is not None:
            axes = tuple(range(nest.rank, len(nest.dims)))
            wide = values.astype(np.float64) if fine else values
            values = REDUCE[nest.reduce].apply(wide, axis=axes).astype(values.dtype)
    if nest.bias is not None:
        values = values + _per_output(nest.bias, nest, tensors).astype(values.dtype)
    if nest.multiplier is not None:
        values = values.astype(np.float32) * _per_output(nest.multiplier, nest, tensors)
    if nest.low > -math.inf or nest.high < math.inf:
        values = np.clip(values, nest.low, nest.high)
    return values


def _function(nest: Nest) -> Function:
    return (UNARY, BINARY, TERNARY)[len(nest.operands) - 1][nest.function]


def _products(nest: Nest, tensors: Mapping[str, Array], fine: bool) -> Array:
    """The exact sum of products; fp32 of floats, fp64 of integers."""
    left, right = nest.operands
    arrays, names = [], []
    used = [{d for d in range(len(nest.dims)) if access.uses(d)} for access in nest.operands]
    neither = set(range(len(nest.dims))) - used[0] - used[1]
    inner = set(range(nest.rank, len(nest.dims)))
    for access, own in ((left, used[0] | inner | neither), (right, used[1] | inner)):
        raw = tensors[access.tensor]
        values = _over_loops(_centred(raw, access), access, nest)
        loops = sorted(own)
        index = tuple(slice(None) if d in own else 0 for d in range(len(nest.dims)))
        arrays.append(values[index])
        names.append("".join(chr(ord("a") + d) for d in loops))
    out = "".join(chr(ord("a") + d) for d in range(nest.rank))
    floats = fine and np.issubdtype(arrays[0].dtype, np.floating)
    wide = [values.astype(np.float64) for values in arrays] if floats else arrays
    total = contraction(wide[0], names[0], wide[1], names[1], out)
    exact = np.float32 if np.issubdtype(arrays[0].dtype, np.floating) else np.float64
    factor = (left.scale or 1.0) * (right.scale or 1.0)
    total = total.astype(exact, copy=False)
    return total if factor == 1.0 else total * np.float32(factor)


def _centred(raw: Array, access: Access) -> Array:
    """raw - zero; padded positions become the pad value in raw steps."""
    if np.issubdtype(raw.dtype, np.integer):
        values: Array = raw.astype(np.int32) - access.zero
    else:
        values = raw.astype(np.float32)
    return values


def _real(raw: Array, access: Access) -> Array:
    return decode(raw, _code(access.scale, access.zero))


def _code(scale: float | None, zero: int) -> Operand:
    """An operand that carries nothing but its encoding."""
    return Operand("", Address(0), (), (), "fp32", scale, zero)


def _per_output(access: Access, nest: Nest, tensors: Mapping[str, Array]) -> Array:
    raw = tensors[access.tensor]
    exact = np.issubdtype(raw.dtype, np.integer) and (access.scale, access.zero) == (None, 0)
    values = raw if exact else _real(raw, access)
    seen = _over_loops(values, access, nest)
    first: Array = seen[tuple(slice(None) if d < nest.rank else 0 for d in range(seen.ndim))]
    return first


def _over_loops(values: Array, access: Access, nest: Nest) -> Array:
    """`values` at the positions of `access`: one axis per loop, none of them copied."""
    loops = [(0, dim.extent) for dim in nest.dims]
    box = needed(access, loops)
    region = clipped(box, values.shape)
    outside = any(region.before) or any(region.after)
    if outside and access.pad is None:
        raise ValueError(f"{nest.tensor}: reads outside {access.tensor}, which has no pad value")
    inside = values[tuple(slice(start, start + size) for start, size in region.box)]
    if outside:
        pads = list(zip(region.before, region.after, strict=True))
        inside = np.pad(inside, pads, constant_values=_pad_value(access, values.dtype))
    first = tuple(
        affine.constant - start for affine, (start, _) in zip(access.index, box, strict=True)
    )
    strides = [
        sum(
            affine.coefficient(d) * stride
            for affine, stride in zip(access.index, inside.strides, strict=True)
        )
        for d in range(len(nest.dims))
    ]
    return as_strided(inside[tuple(slice(f, None) for f in first)], [n for _, n in loops], strides)


def _pad_value(access: Access, dtype: np.dtype[np.generic]) -> float:
    """The pad in the steps of `dtype`: real values, or integers that a product centred."""
    if np.issubdtype(dtype, np.floating) or access.scale is None or not access.pad:
        return access.pad or 0.0
    return round(access.pad / access.scale)
