"""Bounds: which box of an input an output box needs, and what of it lies outside the tensor.

A box is one (start, size) per dimension. Everything about halos, borders and tiles follows from
these two functions, for any operator, because accesses are affine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.tensor_ir.nest import Access, Nest
from simmodel.arch.dtype import limits
from simmodel.arch.element_types import is_float
from simmodel.isa.region import cached_property

Box = tuple[tuple[int, int], ...]
"""(start, size) per dimension."""


@dataclass(frozen=True)
class TileWindow:
    """The part of a tensor that lies inside it, and the border around that part."""

    box: Box
    before: tuple[int, ...]
    """Positions needed in front of the tensor's start, per dimension."""
    after: tuple[int, ...]

    @cached_property
    def origin(self) -> tuple[int, ...]:
        """Position of its first element, border included."""
        return tuple(start - b for (start, _), b in zip(self.box, self.before, strict=True))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sizes with the border."""
        return tuple(
            b + n + a for (_, n), b, a in zip(self.box, self.before, self.after, strict=True)
        )

    @cached_property
    def form(self) -> object:
        """Key that is equal for windows of the same shape at any position."""
        return tuple([n for _, n in self.box]), self.before, self.after


def needed(access: Access, loops: Sequence[tuple[int, int]]) -> Box:
    """Box of positions that `access` touches while each loop runs over its (start, size)."""
    box = []
    for affine in access.index:
        low = high = affine.constant
        for dim, factor in affine.terms:
            start, size = loops[dim]
            first, last = factor * start, factor * (start + size - 1)
            low += first if first < last else last
            high += last if first < last else first
        box.append((low, high - low + 1 + affine.spare))
    return tuple(box)


def clipped(box: Box, shape: tuple[int, ...]) -> TileWindow:
    """The part of `box` inside a tensor of `shape`, and the border outside.

    A box entirely outside is empty, and its border keeps its position.
    """
    inside, before, after = [], [], []
    for (start, size), extent in zip(box, shape, strict=True):
        front = min(max(0, -start), size)
        left = max(min(start + size, extent) - (start + front), 0)
        before.append(front)
        after.append(size - left - front)
        inside.append((start + front, left))
    return TileWindow(tuple(inside), tuple(before), tuple(after))


def empty(box: Box) -> bool:
    """Whether a box has no position."""
    return min([size for _, size in box], default=1) <= 0


def volume(box: Box) -> int:
    """Elements of a box."""
    return math.prod(size for _, size in box)


def full(nest: Nest, out: Box) -> list[tuple[int, int]]:
    """Loop ranges of `nest` for the output box `out`: reductions run over everything."""
    return [*out, *((0, dim.extent) for dim in nest.dims[nest.rank :])]


def union(a: Box, b: Box) -> Box:
    """Smallest box that contains both; an empty one is ignored."""
    if a == b or empty(b):
        return a
    if empty(a):
        return b
    spans = [(min(s, t), max(s + n, t + m)) for (s, n), (t, m) in zip(a, b, strict=True)]
    return tuple([(low, high - low) for low, high in spans])


# Borders: what stands for the real value around a tensor in the elements that the tensor has.

CLOSE = 1e-3
"""Share of a step by which a border may miss its real value."""


def raw_value(value: float, dtype: str, scale: float | None, zero: int) -> float:
    """The number of type `dtype` that represents the real `value`, or is closest to it."""
    if is_float(dtype):
        return value
    low, high = limits(dtype)
    if math.isinf(value):
        return float(low if value < 0 else high)
    return float(min(max(round(value / (scale or 1.0)) + zero, low), high))


def representable(value: float, dtype: str, scale: float | None, zero: int) -> bool:
    """Whether `dtype` in this encoding represents the real `value` exactly."""
    if is_float(dtype):
        return True
    if not math.isfinite(value):
        return False
    steps = value / (scale or 1.0)
    return abs(steps + zero - raw_value(value, dtype, scale, zero)) <= CLOSE
