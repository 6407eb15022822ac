"""Element types as numpy has them, by their names (`simmodel.arch.element_types`)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from simmodel.arch.element_types import (
    COMPRESSED,
    MX,
    MX_BITS,
    MX_BLOCK,
    PACKED,
    SIZES,
    SPARSE,
    per_item,
)

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
NUMPY |= {name: np.dtype(f"V{SIZES[name]}") for name in COMPRESSED}  # `per_item` of them
NUMPY |= {name: np.dtype([(name, np.uint8, (SIZES[name],))]) for name in MX_BITS}  # a block
NAMES = {dtype: name for name, dtype in NUMPY.items()}


def pack(values: Array, name: str) -> Array:
    """`values` as bytes in memory, packed along the last axis; of an odd number of elements below a
    byte the last half byte is 0."""
    if name in SPARSE:
        return _compressed(values.astype(NUMPY[SPARSE[name]]))
    if name in MX:
        return _encoded(values, name.partition("_")[2])
    if name not in PACKED:
        return np.ascontiguousarray(values.astype(NUMPY[name])).view(np.uint8)
    halves = values.astype(np.int8).view(np.uint8) & 15
    if halves.shape[-1] % 2:
        halves = np.concatenate([halves, np.zeros_like(halves[..., :1])], axis=-1)
    packed: Array = halves[..., 0::2] | halves[..., 1::2] << 4
    return packed


def unpack(raw: Array, name: str, count: int) -> Array:
    """`count` elements along the last axis of the bytes `raw`, of a type below a byte: int8 or
    uint8 numbers; of compressed weights all, as what the array multiplies."""
    if name in SPARSE:
        return _decompressed(raw, NUMPY[SPARSE[name]])[..., :count]
    if name in MX:
        return _decoded(raw, name.partition("_")[2]).astype(NUMPY[MX[name]])[..., :count]
    halves = np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], -1)[..., :count]
    if name == "uint4":
        return halves
    signed: Array = (halves ^ 8).view(np.int8) - np.int8(8)
    return signed


# Sparse weights: of each four elements two, the first not 0, in order, and two bits of the place of
# each; of eight elements the numbers come first, then a byte of their places, first ones lowest.

_SHIFTS = np.arange(0, 8, 2, dtype=np.uint8)


def holds(name: str, values: Array, axis: int) -> bool:
    """Whether weights of the compressed type `name`, whole blocks along `axis`, are just `values`:
    two of each four at most are not 0, or all are numbers of a microscaling format."""
    rows = np.moveaxis(values, axis, -1)
    if rows.shape[-1] % per_item(name):
        return False
    if name in SPARSE:
        return bool(((rows.reshape(*rows.shape[:-1], -1, 4) != 0).sum(-1) <= 2).all())
    kind, first = name.partition("_")[2], rows[(0,) * (rows.ndim - 1)]  # most end at the first row
    return all(np.array_equal(microscaled(each, kind), each) for each in (first, rows))


def _compressed(values: Array) -> Array:
    fours = values.reshape(*values.shape[:-1], -1, 4)
    places = np.sort(np.argsort(fours == 0, -1, "stable")[..., :2], -1)
    kept = np.take_along_axis(fours, places, -1)
    shape = (*values.shape[:-1], values.shape[-1] // 8)
    bits = (places.reshape(*shape, 4).astype(np.uint8) << _SHIFTS).sum(-1, dtype=np.uint8)
    numbers = np.ascontiguousarray(kept).reshape(*shape, 4).view(np.uint8)
    packed = np.concatenate([numbers, bits[..., None]], -1)
    return packed.reshape(*values.shape[:-1], -1)


def _decompressed(raw: Array, base: np.dtype[Any]) -> Array:
    items = raw.reshape(*raw.shape[:-1], -1, 4 * base.itemsize + 1)
    numbers = np.ascontiguousarray(items[..., :-1]).view(base)
    places = (items[..., -1:] >> _SHIFTS & 3).reshape(*items.shape[:-1], 2, 2)
    fours = np.zeros((*places.shape[:-1], 4), base)
    np.put_along_axis(fours, places.astype(np.intp), numbers.reshape(places.shape), -1)
    return fours.reshape(*raw.shape[:-1], -1)


# Microscaling formats (Open Compute Project, MX specification 1.0, 5 and 6.3): the byte behind the
# numbers of a block is the exponent of their scale and 127; a scale is the power of two in the
# largest, over that of the largest number of the element type, which is the limit of what is
# rounded to it. Block floating point of Tenstorrent (bfp8) has 16 signs and magnitudes of 7 bits.

_ELEMENTS: dict[str, tuple[Any, int, float]] = {
    "mxfp8": (ml_dtypes.float8_e4m3fn, 8, 448), "mxfp6": (ml_dtypes.float6_e2m3fn, 2, 7.5),
    "mxfp4": (ml_dtypes.float4_e2m1fn, 2, 6), "mxint8": (np.int8, 6, 127),
    "bfp8": (np.int8, 6, 127),
}  # fmt: skip
"""Format -> element type, exponent of its largest number, and that number; of int8 in 64ths."""


def microscaled(values: Array, kind: str, largest: Array | None = None) -> Array:
    """The numbers of microscaling format `kind` next to `values`, whole blocks along the last axis,
    in fp32; scales are those of the `largest` of each block, or of `values`."""
    numbers, power = _scaled(values, kind, largest)
    made: Array = numbers.astype(np.float32) * _power_of_2(power)
    return made.reshape(values.shape)


def _scaled(values: Array, kind: str, largest: Array | None = None) -> tuple[Array, Array]:
    """Numbers of the element type, a block in a row, and the exponent of their scale."""
    element, top, most = _ELEMENTS[kind]
    shape = *values.shape[:-1], values.shape[-1] // MX_BLOCK[kind], MX_BLOCK[kind]
    blocks = values.astype(np.float32, copy=False).reshape(shape)
    sizes = abs(blocks).max(-1, initial=0) if largest is None else largest
    power = np.frexp(sizes[..., None])[1] - 1 - top
    power = np.clip(power, -127, 127)
    steps = np.clip(blocks * _power_of_2(-power), -most, most)
    return (np.rint(steps, out=steps) if element is np.int8 else steps).astype(element), power


def _power_of_2(power: Array) -> Array:
    made: Array = np.ldexp(np.float32(1), power)
    return made


def _encoded(values: Array, kind: str) -> Array:
    numbers, power = _scaled(values, kind)
    fours = numbers.view(np.uint8).reshape(*numbers.shape[:-1], -1, 4).astype("<u4")
    joined = (fours << MX_BITS[kind] * _FOUR).sum(-1, dtype="<u4")[..., None].view(np.uint8)
    packed = joined[..., : MX_BITS[kind] // 2].reshape(*power.shape[:-1], -1)
    flat = np.concatenate([packed, (power + 127).astype(np.uint8)], -1)
    return flat.reshape(*values.shape[:-1], -1)


def _decoded(raw: Array, kind: str) -> Array:
    bits = MX_BITS[kind]
    fours = MX_BLOCK[kind] // 4
    items = raw.reshape(*raw.shape[:-1], -1, fours * bits // 2 + 1)
    joined = np.zeros((*items.shape[:-1], fours, 4), np.uint8)
    joined[..., : bits // 2] = items[..., :-1].reshape(*items.shape[:-1], fours, -1)
    codes = (joined.view("<u4") >> bits * _FOUR & (1 << bits) - 1).astype(np.uint8)
    numbers = codes.reshape(*items.shape[:-1], -1).view(_ELEMENTS[kind][0]).astype(np.float32)
    made: Array = numbers * _power_of_2(items[..., -1:].astype(np.int32) - 127)
    return made.reshape(*raw.shape[:-1], -1)


def to_blocks(values: Array, kind: str) -> Array:
    """`values`, whole blocks along the last axis, as elements of the block type `kind`."""
    raw, made = _encoded(values, kind), NUMPY[kind]
    return raw.reshape(*values.shape[:-1], -1, made.itemsize).view(made)[..., 0]


def from_blocks(blocks: Array) -> Array:
    """The numbers of elements of a block type, in fp32, with an axis for those of a block."""
    kind = NAMES[blocks.dtype]
    return _decoded(np.ascontiguousarray(blocks[kind]), kind)


_FOUR = np.arange(4, dtype="<u4")
"""Numbers that are packed together: in as many bytes as half of them has bits."""


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
