"""The arithmetic of the matrix family: one exact contraction of two strided views.

Every dimension of a product appears in two or three of (left, right, result): it is a row, a
column, a reduction or a batch dimension accordingly. Whatever loops surround an instruction only
add dimensions of these four kinds, so one routine serves a single tile and a whole loop nest.

Integers are multiplied in floating point, where BLAS is fast, and exactly: fp32 while every partial
sum stays below 2**24, else fp64.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from simmodel.arch.dtype import Array

Sizes = tuple[int, ...]


def contraction(left: Array, left_dims: str, right: Array, right_dims: str, out_dims: str) -> Array:
    """Sum of products over the dimensions that `out_dims`, the axes of the result, lacks; fp32 or
    fp64, exact for integer operands. Each axis has a letter."""
    left, left_dims = _sum_alone(left, left_dims, right_dims + out_dims)
    right, right_dims = _sum_alone(right, right_dims, left_dims + out_dims)
    inner = [d for d in left_dims if d in right_dims and d not in out_dims]
    kind = exact_type(left, right, math.prod(left.shape[left_dims.index(d)] for d in inner))
    # A dense product of a depthwise layer repeats each input once for every zero weight.
    for d in [d for d in inner if left.strides[left_dims.index(d)] == 0]:
        left = left[(slice(None),) * left_dims.index(d) + (0,)]
        right = right.sum(right_dims.index(d), dtype=kind)
        left_dims, right_dims = left_dims.replace(d, ""), right_dims.replace(d, "")
    way = _matrix_product(left_dims, left.shape, right_dims, right.shape, out_dims)
    a: Array = left.astype(kind, copy=False).transpose(way.left[0]).reshape(way.left[1])
    b: Array = right.astype(kind, copy=False).transpose(way.right[0]).reshape(way.right[1])
    result: Array = (a @ b).reshape(way.result[0]).transpose(way.result[1])
    return result


class _MatrixProduct(NamedTuple):
    """Which orders of axes and shapes make a contraction a stack of matrix products."""

    left: tuple[list[int], list[int]]
    """The order of its axes, then its shape."""
    right: tuple[list[int], list[int]]
    result: tuple[list[int], list[int]]
    """The shape of the product by axes, then their order in the result."""


@cache
def _matrix_product(
    left: str, left_shape: Sizes, right: str, right_shape: Sizes, out: str
) -> _MatrixProduct:
    """Executing a program asks it of each instruction again, with few answers."""
    batch = [d for d in out if d in left and d in right]
    rows = [d for d in out if d not in right]
    cols = [d for d in out if d not in left]
    inner = [d for d in left if d in right and d not in out]
    extent = dict(zip(left + right, left_shape + right_shape, strict=True))

    def grouped(dims: str, *parts: list[str]) -> tuple[list[int], list[int]]:
        order = [dims.index(d) for part in parts for d in part]
        return order, [math.prod(extent[d] for d in part) for part in parts]

    made = (*batch, *rows, *cols)
    return _MatrixProduct(
        grouped(left, batch, rows, inner), grouped(right, batch, inner, cols),
        ([extent[d] for d in made], [made.index(d) for d in out]),
    )  # fmt: skip


def _sum_alone(array: Array, dims: str, others: str) -> tuple[Array, str]:
    """The sum over dimensions that nothing else has."""
    alone = tuple(axis for axis, d in enumerate(dims) if d not in others)
    if not alone:
        return array, dims
    return array.astype(np.float64).sum(alone), "".join(d for d in dims if d in others)


def exact_type(left: Array, right: Array, length: int, most: int | None = None) -> type:
    """The floating-point type in which sums of `length` products are exact (integers), or fp32.
    `most`: of one product, where more is known than the types say."""
    if left.dtype.kind not in "iu" or right.dtype.kind not in "iu":
        return np.float64 if np.float64 in (left.dtype, right.dtype) else np.float32
    if (most or largest(left.dtype) * largest(right.dtype)) * length < EXACT:
        return np.float32
    once = (without_repeats(left), without_repeats(right))
    values = (max(abs(int(a.max(initial=0))), abs(int(a.min(initial=0)))) for a in once)
    return np.float32 if math.prod(values) * length < EXACT else np.float64


@cache
def largest(kind: np.dtype[Any], zero: int = 0) -> int:
    """How far an integer of a type may be from `zero`."""
    return max(zero - int(np.iinfo(kind).min), int(np.iinfo(kind).max) - zero)


EXACT = 2**24
"""Below it, fp32 holds every integer."""


def without_repeats(view: Array) -> Array:
    """`view` with one position on each axis along which it repeats its elements."""
    return view[tuple(slice(None) if stride else slice(1) for stride in view.strides)]
