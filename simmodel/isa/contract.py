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


def contract(left: Array, left_dims: str, right: Array, right_dims: str, out_dims: str) -> Array:
    """Sum of products over the dimensions that `out_dims` lacks.

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
    kind = _exact_type(left, right, math.prod(extent[d] for d in inner))
    a = _arranged(left, left_dims, (batch, rows, inner), kind)
    b = _arranged(right, right_dims, (batch, inner, cols), kind)
    product = (a @ b).reshape([extent[d] for d in (*batch, *rows, *cols)])
    order = "".join((*batch, *rows, *cols))
    result: Array = product.transpose([order.index(d) for d in out_dims])
    return result


def _arranged(array: Array, dims: str, parts: tuple[list[str], ...], kind: type) -> Array:
    moved = array.transpose([dims.index(d) for part in parts for d in part])
    sizes = dict(zip(dims, array.shape, strict=True))
    shape = [math.prod(sizes[d] for d in part) for part in parts]
    result: Array = np.ascontiguousarray(moved, dtype=kind).reshape(shape)
    return result


def _exact_type(left: Array, right: Array, length: int) -> type:
    if not (np.issubdtype(left.dtype, np.integer) and np.issubdtype(right.dtype, np.integer)):
        return np.float64 if left.dtype == np.float64 else np.float32
    largest = _largest(left) * _largest(right) * length
    return np.float32 if largest < 2**24 else np.float64


def _largest(array: Array) -> int:
    if array.size == 0:
        return 0
    return max(abs(int(array.max())), abs(int(array.min())))
