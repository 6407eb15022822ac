"""Whole numbers on the vector engine: functions of integers and truth values, computed exactly.

The one idea: where all operands and the result are integers or truth values that stand for
themselves, without a scale or a zero point, the engine computes with integers instead of fp32.
Functions here take and give arrays of one wide type, int64 or, where an operand is uint64, that;
what leaves the type of the result keeps its low bits or saturates, as the function says. What is
divided by zero becomes 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simmodel.dtype import STORED, is_float
from simmodel.region import Operand

Array = NDArray[Any]
Whole = Callable[..., Array]
"""A function of arrays of int64 or uint64, all alike, and of its parameters."""


def stands_for_itself(operand: Operand) -> bool:
    """Whether the raw values of `operand` are the whole numbers or truth values that it means."""
    whole = not is_float(operand.dtype) and operand.dtype not in STORED
    return whole and operand.scale is None and operand.zero == 0


def widened(*raw: Array) -> list[Array]:
    """Raw values of integers and truth values in the type in which all of them are computed."""
    wide = np.uint64 if any(each.dtype == np.uint64 for each in raw) else np.int64
    return [each.astype(wide) for each in raw]


def stored(values: Array, dtype: np.dtype[Any], low: float, high: float, *, wraps: bool) -> Array:
    """Exact `values` as elements of `dtype`, clipped to [low, high].

    Args:
        values: int64, uint64 or bool.
        dtype: of the result: an integer type or bool, of which all but 0 is true.
        low, high: bounds of the result; infinite: none.
        wraps: whether numbers beyond `dtype` keep their low bits, else they saturate.
    """
    if values.dtype == np.bool_ or dtype == np.bool_:
        return values.astype(dtype)
    kept = values.astype(dtype) if wraps else values
    ranges = np.iinfo(dtype), np.iinfo(kept.dtype)
    least = max(int(each.min) for each in ranges)
    most = min(int(each.max) for each in ranges)
    bottom = least if low <= least else min(math.ceil(low), most)
    top = most if high >= most else max(math.floor(high), least)
    clipped: Array = np.clip(kept, bottom, top).astype(dtype, copy=False)
    return clipped


def divided(x: Array, y: Array) -> Array:
    """x / y, cut off towards zero."""
    whole = _nonzero(y)
    quotient = x // whole
    towards_zero = (x % whole != 0) & ((x < 0) != (whole < 0))
    return np.where(y == 0, 0, quotient + towards_zero).astype(x.dtype)


def modulo(x: Array, y: Array) -> Array:
    """What is left of x, with the sign of y."""
    return np.where(y == 0, 0, np.mod(x, _nonzero(y))).astype(x.dtype)


def remainder(x: Array, y: Array) -> Array:
    """What is left of x, with its sign."""
    return np.where(y == 0, 0, np.fmod(x, _nonzero(y))).astype(x.dtype)


def _nonzero(y: Array) -> Array:
    return np.where(y == 0, 1, y).astype(y.dtype)


def power(x: Array, y: Array) -> Array:
    """x to the power of y; with a negative y what is left of the fraction, cut off towards zero."""
    raised: Array = np.power(x, np.maximum(y, 0))
    fraction = np.where(np.abs(x) == 1, np.where(y % 2 == 0, 1, x), 0)
    return np.where(y < 0, fraction, raised).astype(x.dtype)


def shifted_left(x: Array, y: Array) -> Array:
    """The bits of x, y places to the left; 0 where y is negative or beyond the bits."""
    moved = np.left_shift(x, np.clip(y, 0, 63))
    return np.where((y < 0) | (y > 63), 0, moved).astype(x.dtype)


def shifted_right(x: Array, y: Array) -> Array:
    """The bits of x, y places to the right, filled up with its sign; nothing but that where y is
    negative or beyond the bits."""
    moved = np.right_shift(x, np.clip(y, 0, 63))
    return np.where((y < 0) | (y > 63), -(x < 0).astype(x.dtype), moved).astype(x.dtype)
