"""Element types: their names in files, their sizes and their numpy equivalents.

A name is the only thing that travels: architecture files, programs and frames say `int8` or `fp16`;
everything else is looked up here.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

NUMPY: dict[str, np.dtype] = {
    "bool": np.dtype(np.bool_),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
}
NAMES = {dtype: name for name, dtype in NUMPY.items()}
SIZES = {name: dtype.itemsize for name, dtype in NUMPY.items()}
FLOATS = frozenset({"fp16", "bf16", "fp32", "fp64"})
EPSILON = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24, "fp64": 2.0**-53}
"""Unit round-off of each floating-point type."""


def size_of(name: str) -> int:
    """Bytes of one element of type `name`."""
    return SIZES[name]


def is_float(name: str) -> bool:
    """Whether `name` is a floating-point type."""
    return name in FLOATS


def accumulator_of(name: str) -> str:
    """The type in which a matrix engine adds up products of type `name`."""
    return "fp32" if is_float(name) else "int32"


def product_type(name: str) -> str:
    """The type whose matrix rate applies to products of type `name`: signed and unsigned alike."""
    return "int8" if name == "uint8" else name


def limits(name: str) -> tuple[int, int]:
    """Smallest and largest value of the integer type `name`."""
    info = np.iinfo(NUMPY[name])
    return int(info.min), int(info.max)
