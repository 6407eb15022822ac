"""Tensors that share a buffer, at several lengths: are they the same boxes of it?

    present[2, 33, 8] by (264, 8, 1)      new row: + 256 by (264, 1, 1)     position 32 along axis 1
    present[2, 32, 8] by (256, 8, 1)      new row: + 248 by (256, 1, 1)     position 31 along axis 1

A buffer has the layout of the greatest length at every length. So offsets and strides are compared
as positions along the axes of the tensor that fills the buffer: the start of a view may depend on a
length, its steps may not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from compiler.tensor_ir.interpreter import at_first, over_loops, view_of
from compiler.tensor_ir.join import address_digits
from compiler.tensor_ir.nest import Access, Array, Nest, NestGraph, Tensor, dense
from compiler.tensor_ir.registers import Point, edge_of, fitted
from compiler.tensor_ir.rewrite import writes_of
from simmodel.isa.region import Register, Terms


class OtherBox(Exception):
    """A tensor is not the same box of its buffer at all lengths; args: tensor, reason."""


class _Scale(NamedTuple):
    """Mixed-radix form of a buffer position: one digit per run of axes."""

    strides: tuple[int, ...]
    """Elements between neighbours, slowest first."""
    extents: tuple[int, ...]

    def digits(self, elements: int) -> tuple[int, ...]:
        """Digits of a number of elements; all negative if it is."""
        sign = -1 if elements < 0 else 1
        return tuple(sign * step for step in address_digits(abs(elements), self.strides))


def moves(
    views: Mapping[Point, Sequence[Tensor]],
    sizes: Mapping[Point, int],
    registers: Sequence[Register],
) -> dict[str, Terms]:
    """Terms by which the offset of each tensor of a buffer decreases with each register, in
    elements of the layout at the maximum.

    Args:
        views: the tensors in the buffer at each point, the upper edge among them; the same and in
            the same order at all.
        sizes: elements of the buffer at each point.

    Raises OtherBox for a tensor that is no such box.
    """
    edge = edge_of(registers)
    filling = [
        position
        for position in range(len(views[edge]))
        if all(_fills(tensors[position], sizes[point]) for point, tensors in views.items())
    ]
    refusal = OtherBox(views[edge][0].name, "no tensor fills the buffer that it shares with others")
    for number, position in enumerate(filling):
        try:
            scales = _scales({point: tensors[position] for point, tensors in views.items()}, edge)
            return {
                tensor.name: _offset_terms(
                    {point: (scales[point], views[point][i]) for point in views}, registers
                )
                for i, tensor in enumerate(views[edge])
            }
        except OtherBox as why:
            refusal = refusal if number else why
    raise refusal


def _fills(tensor: Tensor, size: int) -> bool:
    """Whether `tensor` covers a buffer of `size` elements, each once."""
    packed = dense(tensor.shape, _order(tensor))
    return not tensor.storage.offset and tensor.elements == size and tensor.has_strides(packed)


def _order(tensor: Tensor) -> tuple[int, ...]:
    """Axes from slowest to fastest; those of one position first."""
    strides = tensor.storage.strides
    axes = range(len(tensor.shape))
    return tuple(sorted(axes, key=lambda a: (tensor.shape[a] > 1, -strides[a])))


def _scales(filling: Mapping[Point, Tensor], edge: Point) -> dict[Point, _Scale]:
    """Digits of a buffer at each point: an axis joins the faster ones behind it if those have the
    same extent at all points."""
    order = _order(filling[edge])
    stretches: list[list[int]] = []
    for axis in reversed(order):
        fixed = stretches and all(
            len({tensor.shape[inner] for tensor in filling.values()}) == 1 for inner in stretches[0]
        )
        if fixed:
            stretches[0].insert(0, axis)
        else:
            stretches.insert(0, [axis])
    made: dict[Point, _Scale] = {}
    for point, tensor in filling.items():
        strides = dense(tensor.shape, order)
        if not tensor.has_strides(strides):
            raise OtherBox(tensor.name, "its axes lie in another order at another length")
        sizes = tuple(math.prod(tensor.shape[axis] for axis in stretch) for stretch in stretches)
        made[point] = _Scale(tuple(strides[stretch[-1]] for stretch in stretches), sizes)
    return made


def _offset_terms(
    views: Mapping[Point, tuple[_Scale, Tensor]], registers: Sequence[Register]
) -> Terms:
    """The offset's terms of one tensor; raises OtherBox."""
    scale, tensor = views[edge_of(registers)]
    if not tensor.elements:
        return ()
    steps = [scale.digits(stride) for stride in tensor.storage.strides]
    starts: dict[Point, tuple[int, ...]] = {}
    for point, (own, seen) in views.items():
        if not seen.elements:
            continue
        _check_inside(own, seen)
        for axis, (extent, stride) in enumerate(zip(seen.shape, seen.storage.strides, strict=True)):
            if extent > 1 and own.digits(stride) != steps[axis]:
                raise OtherBox(tensor.name, f"its axis {axis} {_SPLIT}")
        starts[point] = own.digits(seen.storage.offset)
    total: dict[str, int] = {}
    for stretch, stride in enumerate(scale.strides):
        terms = fitted({point: start[stretch] for point, start in starts.items()}, registers)
        if terms is None:
            raise OtherBox(tensor.name, "where it begins is no sum of multiples of the lengths")
        for name, factor in terms:
            total[name] = total.get(name, 0) + factor * stride
    return tuple((name, factor) for name, factor in total.items() if factor)


_SPLIT = "walks positions that lie elsewhere at another length"


def _check_inside(scale: _Scale, tensor: Tensor) -> None:
    """Raise OtherBox if `tensor` crosses from one digit to the next: its steps then depend on a
    length."""
    start = scale.digits(tensor.storage.offset)
    ends = [
        tuple(step * (extent - 1) for step in scale.digits(stride))
        for extent, stride in zip(tensor.shape, tensor.storage.strides, strict=True)
        if extent > 1
    ]
    for stretch, extent in enumerate(scale.extents):
        along = [end[stretch] for end in ends]
        low = start[stretch] + sum(end for end in along if end < 0)
        high = start[stretch] + sum(end for end in along if end > 0)
        if low < 0 or high >= extent:
            raise OtherBox(tensor.name, "it walks a dimension that varies as one with another")


def unwritten(graph: NestGraph) -> str | None:
    """The first step, or output, of `graph` at one length that reads unwritten elements."""
    buffers = {name: np.zeros(size, np.bool_) for name, size in graph.buffers.items()}
    written = {n: view_of(t, buffers[t.storage.buffer]) for n, t in graph.tensors.items()}
    for name, tensor in graph.tensors.items():
        if tensor.data is not None or name in graph.inputs:
            written[name][...] = True
    for step in graph.steps:
        if isinstance(step, Nest):
            accesses = () if 0 in step.shape else step.reads
            read = [(each.tensor, _written_positions(each, step, written)) for each in accesses]
        else:
            read = [(name, written[name]) for name in step.inputs]
        missing = next((name for name, positions in read if not positions.all()), None)
        if missing is not None:
            return f"{step.origin} reads positions of {missing} that are not there"
        for name in writes_of(step):
            written[name][...] = True
    missing = next((name for name in graph.outputs if not written[name].all()), None)
    return None if missing is None else f"parts of the output {missing} are never made"


def _written_positions(access: Access, nest: Nest, written: Mapping[str, Array]) -> Array:
    """Whether all positions that `access` reads are written."""
    values = written[access.tensor].astype(np.float32)  # what lies outside has a value
    plain = replace(access, pad=None if access.pad is None else 1.0, scale=None, zero=0)
    loops = [d for d in range(len(nest.dims)) if access.uses(d)]
    return at_first(over_loops(values, plain, nest), loops) > 0
