"""Element types: their names in files, their sizes and their numpy equivalents.

A name is the only thing that travels: architecture files, programs and frames say `int8` or `fp16`;
everything else is looked up here. Types below a byte, and of eight bits beside int8, are what
memories hold: engines widen them on the way (`vector.types`, `widens` of a copy engine). Some are
types of ports alone: in memory such numbers lie in a larger type that holds all of them.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

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
SIZES = {name: dtype.itemsize for name, dtype in NUMPY.items()}
FLOATS = frozenset(name for name in NUMPY if name.startswith(("fp", "bf")))
EPSILON = {
    "fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24, "fp64": 2.0**-53,
    "fp8e4m3": 2.0**-4, "fp8e5m2": 2.0**-3, "fp8e4m3fnuz": 2.0**-4, "fp8e5m2fnuz": 2.0**-3,
    "fp8e8m0": 2.0**-1, "fp4e2m1": 2.0**-2,
}  # fmt: skip
"""Unit round-off of each floating-point type."""
PACKED = frozenset({"int4", "uint4"})
"""Types of which memory holds two elements in a byte, the first in its lower half."""
PORTS = frozenset({"int2", "uint2", "fp8e4m3fnuz", "fp8e5m2fnuz", "fp8e8m0", "fp4e2m1"})
"""Types of inputs and outputs alone: no memory holds them."""
STORED = frozenset({"int4", "uint4", "fp8e4m3", "fp8e5m2"})
"""Types that are only stored: no operator's result is one of them."""
WIDER = STORED | PORTS
"""Types whose numbers an operator computes with in a larger one."""
_REAL = ("fp16", "bf16", "fp32")
_WIDE = ("int16", "int32", *_REAL)
_HELD: dict[str, tuple[str, ...]] = {
    "int4": ("int8", *_WIDE), "uint4": ("int8", "uint8", *_WIDE), "int8": _WIDE, "uint8": _WIDE,
    "int2": ("int8", *_WIDE), "uint2": ("int8", "uint8", *_WIDE), "fp8e4m3": _REAL,
    "fp8e5m2": _REAL, "fp8e4m3fnuz": _REAL, "fp8e5m2fnuz": _REAL, "fp8e8m0": ("bf16", "fp32"),
    "fp4e2m1": _REAL,
}  # fmt: skip


def size_of(name: str) -> int:
    """Bytes of one element of type `name`; 1 for those below a byte."""
    return SIZES[name]


def per_byte(name: str) -> int:
    """Elements of type `name` that share a byte of memory."""
    return 2 if name in PACKED else 1


def bytes_for(name: str, elements: int) -> int:
    """Bytes of so many contiguous elements of type `name`."""
    return -(-elements * SIZES[name] // per_byte(name))


def widened(name: str) -> tuple[str, ...]:
    """Larger types that hold every number of type `name`, the smallest first."""
    return _HELD.get(name, ())


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


def is_float(name: str) -> bool:
    """Whether `name` is a floating-point type."""
    return name in FLOATS


def accumulator_of(name: str) -> str:
    """The type in which a matrix engine accumulates products of type `name`."""
    return "fp32" if is_float(name) else "int32"


def product_type(name: str) -> str:
    """The type whose matrix rate applies to products with a left operand of type `name`: signed and
    unsigned share one."""
    return {"uint8": "int8", "uint16": "int16"}.get(name, name)


def multiplies(left: str, right: str) -> bool:
    """Whether engines have products of these types: of one, or of 16-bit integers by 8-bit ones."""
    kinds = product_type(left), product_type(right)
    return kinds[0] == kinds[1] or kinds == ("int16", "int8")


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
