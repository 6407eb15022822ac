"""Tensors that share a buffer, at several lengths: whether they mean the same boxes of it.

    present[2, 33, 8] by (264, 8, 1)      new row: + 256 by (264, 1, 1)     position 32 along axis 1
    present[2, 32, 8] by (256, 8, 1)      new row: + 248 by (256, 1, 1)     position 31 along axis 1

At every length a buffer is laid out as at the upper edge. So what counts of a tensor is not its
offset and strides but its positions along the axes of the tensor that fills the buffer: where it
begins may move with a length, its steps may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.nest.ir import Tensor, dense
from compiler.nest.registers import Point, edge_of, fitted
from simmodel.region import Register, Terms


class OtherBox(Exception):
    """Why a tensor is no box of its buffer that all lengths share; args: tensor, reason."""


@dataclass(frozen=True)
class _Scale:
    """A position of the buffer as numbers, as it were digits: one for each stretch of it."""

    strides: tuple[int, ...]
    """Elements between neighbours, slowest first."""
    extents: tuple[int, ...]

    def digits(self, elements: int) -> tuple[int, ...]:
        """Steps along each stretch that are so many elements together; all negative where these
        are."""
        left, sign = abs(elements), -1 if elements < 0 else 1
        found = []
        for stride in self.strides:
            steps, left = divmod(left, stride)
            found.append(sign * steps)
        return tuple(found)


def moves(
    views: Mapping[Point, Sequence[Tensor]],
    sizes: Mapping[Point, int],
    registers: Sequence[Register],
) -> dict[str, Terms]:
    """How much less the offset of each tensor of a buffer is for each step of a register below its
    edge, in elements of the edge's layout.

    Args:
        views: the tensors in the buffer at each point, the upper edge among them; the same and in
            the same order at all.
        sizes: elements of the buffer at each point.
        registers: the lengths.

    Raises:
        OtherBox: a tensor that is no such box.
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
                tensor.name: _moved(
                    {point: (scales[point], views[point][i]) for point in views}, registers
                )
                for i, tensor in enumerate(views[edge])
            }
        except OtherBox as why:
            refusal = refusal if number else why
    raise refusal


def _fills(tensor: Tensor, size: int) -> bool:
    """Whether `tensor` has every element of a buffer of `size` once."""
    return not tensor.storage.offset and tensor.elements == size and _packed(tensor)


def _packed(tensor: Tensor) -> bool:
    order = _order(tensor)
    strides = dense(tensor.shape, order)
    return all(
        extent <= 1 or given == made
        for extent, given, made in zip(tensor.shape, tensor.storage.strides, strides, strict=True)
    )


def _order(tensor: Tensor) -> tuple[int, ...]:
    """Axes from slowest to fastest; those of one position first."""
    strides = tensor.storage.strides
    axes = range(len(tensor.shape))
    return tuple(sorted(axes, key=lambda a: (tensor.shape[a] > 1, -strides[a])))


def _scales(filling: Mapping[Point, Tensor], edge: Point) -> dict[Point, _Scale]:
    """The stretches of a buffer at each point: an axis goes with the faster ones behind it as long
    as these are as long at all points."""
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
        shown = zip(tensor.shape, tensor.storage.strides, strides, strict=True)
        if any(extent > 1 and given != stride for extent, given, stride in shown):
            raise OtherBox(tensor.name, "its axes lie in another order at another length")
        sizes = []
        for stretch in stretches:
            size = 1
            for axis in stretch:
                size *= tensor.shape[axis]
            sizes.append(size)
        made[point] = _Scale(tuple(strides[stretch[-1]] for stretch in stretches), tuple(sizes))
    return made


def _moved(views: Mapping[Point, tuple[_Scale, Tensor]], registers: Sequence[Register]) -> Terms:
    """The offset's terms of one tensor; raises OtherBox."""
    edge = edge_of(registers)
    scale, tensor = views[edge]
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
    """Raise OtherBox where `tensor` runs from one position of a stretch over to the next: it walks
    a dimension that varies as one with another."""
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
