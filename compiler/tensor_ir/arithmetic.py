"""Error intervals of stored values: clipping, rounding, overflow of the type.

The one idea: both ends of the interval are stored as the value itself is, so a value far from any
rounding tie keeps its integer exactly, and one that may overflow may be infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import EllipsisType
from typing import Any

import ml_dtypes
import numpy as np

from compiler.tensor_ir.nest import Array, Nest
from simmodel.isa.base import encode
from simmodel.isa.functions import BINARY, TERNARY, UNARY, Function, exact
from simmodel.isa.region import Address, Operand


def function_of(nest: Nest) -> Function:
    """The function that a nest applies to its one, two or three operands."""
    return (UNARY, BINARY, TERNARY)[len(nest.operands) - 1][nest.function]


@lru_cache(maxsize=1 << 12)
def code(scale: float | None, zero: int, dtype: str = "fp32") -> Operand:
    """An operand that only states an encoding."""
    return Operand("", Address(0), (), (), dtype, scale, zero)


def computes_exactly(nest: Nest, kinds: Mapping[str, str]) -> bool:
    """Whether all of `nest` is computed in integers, where its operands and its result have these
    `kinds` of elements, by tensor."""
    if nest.contraction or nest.bias is not None or nest.multiplier is not None:
        return False
    read = (code(access.scale, access.zero, kinds[access.tensor]) for access in nest.operands)
    return exact(function_of(nest), code(nest.scale, nest.zero, kinds[nest.tensor]), *read)


def encoded(nest: Nest, values: Array, error: Array, out: Array) -> Array | None:
    """Largest change of the stored result of `nest` when its real `values` change within `error`,
    in steps of stored values. None: there is none."""
    largest, kind = np.zeros(out.shape, np.float32), out.dtype
    values, error = (np.broadcast_to(each, out.shape) for each in (values, error))
    for cut in blocks(out.shape):
        largest[cut] = _largest_change(nest, values[cut], error[cut], kind)
    return largest if largest.any() else None


Cut = tuple[slice | EllipsisType, ...]
_BLOCK = 1 << 15
"""Elements of which several doubles each lie in a processor's cache."""


def blocks(shape: Sequence[int]) -> Iterator[Cut]:
    """Where parts of an array lie, along its longest axis, that are worked on one by one: element
    by element is much faster so, and takes no memory for all of it."""
    longest = max(shape, default=0)
    if longest < 2 or 0 in shape:
        yield (...,)
        return
    lead = [slice(None)] * list(shape).index(longest)
    step = max(1, _BLOCK * longest // math.prod(shape))
    for start in range(0, longest, step):
        yield (*lead, slice(start, start + step), ...)


def _largest_change(nest: Nest, values: Array, error: Array, kind: np.dtype[Any]) -> Array:
    """As `encoded`, as fp64."""
    middle = _as_stored(nest, values, kind)
    largest = np.zeros(values.shape)
    for end in (values - error, values + error):
        change = _as_stored(nest, end, kind)
        change -= middle
        np.maximum(largest, np.abs(change, out=change), out=largest)
    if kind.kind not in "iu":
        np.copyto(largest, np.inf, where=np.isnan(largest))
        np.copyto(largest, 0.0, where=np.isnan(middle) & (error == 0))
    np.copyto(largest, np.inf, where=np.isnan(error))
    return largest


def _as_stored(nest: Nest, values: Array, kind: np.dtype[Any]) -> Array:
    """`values` as the type `kind` stores them, as fp64.

    Real values are fp32 before they are stored: a value beside a tie of `kind` is a tie there.
    """
    integral = kind.kind in "iu" and nest.scale is None and nest.multiplier is None
    if kind != np.float64 and not integral:
        values = values.astype(np.float32).astype(np.float64)
    if not nest.unclipped:
        values = np.clip(values, nest.low, nest.high)
    stored = np.empty(values.shape, kind)
    encode(values, code(nest.scale, nest.zero), stored)
    return infinities_to_limit(stored)


def infinities_to_limit(values: Array) -> Array:
    """`values` in fp64, with infinities replaced by the first number beyond the type: a value that
    overflows is near one that just does not."""
    wide = values.astype(np.float64)
    if values.dtype.kind in "iu":
        return wide
    infinite = np.isinf(wide)
    if not infinite.any():
        return wide
    limits = ml_dtypes.finfo(values.dtype)  # type: ignore[no-untyped-call]
    first = float(limits.max) * (1 + float(limits.eps) / 2)
    return np.where(infinite, np.copysign(first, wide), wide)


def beyond_fp32(values: Array) -> Array:
    """Whether doubles exceed fp32, in which programs compute."""
    if values.dtype != np.float64:
        return np.zeros(values.shape, bool)
    large: Array = np.isfinite(values) & (np.abs(values) > np.finfo(np.float32).max)
    return large


def in_type(values: Array, error: Array | None, kind: np.dtype[np.generic]) -> Array | None:
    """Error of values when they are converted to `kind`."""
    if error is None or kind == values.dtype:
        return None if error is None else error.copy()
    moved = np.empty(values.shape)
    for cut in blocks(values.shape):
        wide, off = values[cut].astype(np.float64), error[cut]
        middle = wide.astype(kind).astype(np.float64)
        with np.errstate(all="ignore"):
            ends = ((wide + sign * off).astype(kind).astype(np.float64) for sign in (-1, 1))
            widest = np.fmax(*(np.abs(end - middle) for end in ends))
        unsure = np.isnan(widest) & (off > 0)
        moved[cut] = np.where(unsure, np.inf, np.nan_to_num(widest, nan=0.0, posinf=np.inf))
    return moved
