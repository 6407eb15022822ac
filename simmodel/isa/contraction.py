"""The arithmetic of the matrix family: one exact contraction of two strided views.

Every dimension of a product appears in two or three of (left, right, result): it is a row, a
column, a reduction or a batch dimension accordingly. Whatever loops surround an instruction only
add dimensions of these four kinds, so one routine serves a single tile and a whole loop nest.

Integers are multiplied in floating point, where BLAS is fast, and exactly: fp32 while every partial
sum stays below 2**24, else fp64.
"""

from __future__ import annotations

import math

import numpy as np

from simmodel.isa.base import Array


def contraction(left: Array, left_dims: str, right: Array, right_dims: str, out_dims: str) -> Array:
    """Sum of products over the dimensions that `out_dims` lacks, each of which both operands have.

    Args:
        left, right: operands whose axes are named, one letter each, by `left_dims`, `right_dims`.
        out_dims: axes of the result, in order.

    Returns:
        fp32 or fp64 array; exact for integer operands.
    """
    batch = [d for d in out_dims if d in left_dims and d in right_dims]
    rows = [d for d in out_dims if d not in right_dims]
    cols = [d for d in out_dims if d not in left_dims]
    inner = [d for d in left_dims if d in right_dims and d not in out_dims]
    extent = dict(zip(left_dims, left.shape, strict=True))
    extent |= dict(zip(right_dims, right.shape, strict=True))
    kind = exact_type(left, right, math.prod(extent[d] for d in inner))
    a = _arranged(left.astype(kind, copy=False), left_dims, (batch, rows, inner))
    b = _arranged(right.astype(kind, copy=False), right_dims, (batch, inner, cols))
    product = (a @ b).reshape([extent[d] for d in (*batch, *rows, *cols)])
    order = "".join((*batch, *rows, *cols))
    result: Array = product.transpose([order.index(d) for d in out_dims])
    return result


def _arranged(array: Array, dims: str, parts: tuple[list[str], ...]) -> Array:
    moved = array.transpose([dims.index(d) for part in parts for d in part])
    sizes = dict(zip(dims, array.shape, strict=True))
    return moved.reshape([math.prod(sizes[d] for d in part) for part in parts])


def exact_type(left: Array, right: Array, length: int) -> type:
    """The floating-point type in which sums of `length` products are exact (integers), or fp32."""
    if not (np.issubdtype(left.dtype, np.integer) and np.issubdtype(right.dtype, np.integer)):
        return np.float64 if np.float64 in (left.dtype, right.dtype) else np.float32
    if _bound(left) * _bound(right) * length < EXACT:
        return np.float32
    return np.float32 if _largest(left) * _largest(right) * length < EXACT else np.float64


EXACT = 2**24
"""Below it, fp32 holds every integer."""


def _bound(array: Array) -> int:
    return max(-int(np.iinfo(array.dtype).min), int(np.iinfo(array.dtype).max))


def _largest(array: Array) -> int:
    if array.size == 0:
        return 0
    return max(abs(int(array.max())), abs(int(array.min())))
