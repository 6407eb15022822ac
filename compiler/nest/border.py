"""Borders: what stands for the real value around a tensor in the elements that the tensor has.

A border is stored beside the elements that it surrounds, so it has their type and their encoding:

    0.0 around int8 elements of 0.1 a step, zero at 3      raw 3
    -2.0 around the same                                   raw -17
    -20.0 around the same                                  none: below the lowest, -13.1
"""

from __future__ import annotations

import math

from simmodel.dtype import is_float, limits

CLOSE = 1e-3
"""Share of a step by which a border may miss its real value."""


def raw_value(value: float, dtype: str, scale: float | None, zero: int) -> float:
    """What stands for the real `value` in elements of `dtype`, or comes closest to it."""
    if is_float(dtype):
        return value
    low, high = limits(dtype)
    if math.isinf(value):
        return float(low if value < 0 else high)
    return float(min(max(round(value / (scale or 1.0)) + zero, low), high))


def representable(value: float, dtype: str, scale: float | None, zero: int) -> bool:
    """Whether elements of `dtype` in this encoding can say the real `value`."""
    if is_float(dtype):
        return True
    if not math.isfinite(value):
        return False
    steps = value / (scale or 1.0)
    return abs(steps + zero - raw_value(value, dtype, scale, zero)) <= CLOSE
