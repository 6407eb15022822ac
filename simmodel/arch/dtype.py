"""Element types as numpy has them, by their names (`simmodel.arch.element_types`)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from simmodel.arch.element_types import PACKED

Array = NDArray[Any]

NUMPY: dict[str, np.dtype] = {
    name: np.dtype(kind)
    for name, kind in {
        "bool": np.bool_, "int8": np.int8, "uint8": np.uint8, "int16": np.int16,
        "uint16": np.uint16, "int32": np.int32, "uint32": np.uint32, "int64": np.int64,
        "uint64": np.uint64, "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32,
        "fp64": np.float64, "int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4,
        "fp8e4m3": ml_dtypes.float8_e4m3fn, "fp8e5m2": ml_dtypes.float8_e5m2,
        "int2": ml_dtypes.int2, "uint2": ml_dtypes.uint2,
        "fp8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "fp8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
        "fp8e8m0": ml_dtypes.float8_e8m0fnu, "fp4e2m1": ml_dtypes.float4_e2m1fn,
    }.items()
}  # fmt: skip
NAMES = {dtype: name for name, dtype in NUMPY.items()}


def pack(values: Array, name: str) -> Array:
    """`values` as bytes in memory, packed along the last axis; of an odd number of elements below a
    byte the last half byte is 0."""
    if name not in PACKED:
        return np.ascontiguousarray(values.astype(NUMPY[name])).view(np.uint8)
    halves = values.astype(np.int8).view(np.uint8) & 15
    if halves.shape[-1] % 2:
        halves = np.concatenate([halves, np.zeros_like(halves[..., :1])], axis=-1)
    packed: Array = halves[..., 0::2] | halves[..., 1::2] << 4
    return packed


def unpack(raw: Array, name: str, count: int) -> Array:
    """`count` elements along the last axis of the bytes `raw`, of a type below a byte: int8 or
    uint8 numbers."""
    halves = np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], -1)[..., :count]
    if name == "uint4":
        return halves
    signed: Array = (halves ^ 8).view(np.int8) - np.int8(8)
    return signed


@cache
def limits(name: str) -> tuple[int, int]:
    """Smallest and largest value of the integer type `name`; of bool false and true."""
    if name == "bool":
        return 0, 1
    info = ml_dtypes.iinfo(NUMPY[name])  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


@cache
def real_limits(name: str) -> tuple[float, float]:
    """Smallest and largest double that the integer type `name` represents."""
    low, high = limits(name)
    most = float(high)
    return float(low), most if most <= high else math.nextafter(most, 0.0)


@cache
def largest(name: str) -> float:
    """Largest finite value of the floating-point type `name`."""
    return float(ml_dtypes.finfo(NUMPY[name]).max)  # type: ignore[no-untyped-call]
