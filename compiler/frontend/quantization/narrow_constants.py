"""A constant as memory holds it: narrow numbers, with scales that make real values of them.

    real[k, n] = (values[k, n] - zeros[k // 32, n]) * scales[k // 32, n]        blocks (32, 1)

The tensor that it belongs to keeps its own type: that is what engines multiply. On chip a tile of
it is first narrow and then wide, in one place:

    | wide, from the front ...                       | slack | scales | zeros |
                                 | narrow, to the end of the slack |

Units of rows are widened one after the other, the first one first; what a unit writes ends before
the narrow bytes of the next one begin, as the slack holds the narrow bytes of a unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.frontend.rewrite import Array, const, input_of, ints_attr, is_op, required
from simmodel.arch.dtype import NAMES, NUMPY
from simmodel.arch.element_types import COMPRESSED, bytes_for, is_float, per_item, size_of
from simmodel.isa.region import cached_property

UNITS = 8
"""Units into which a tile is cut at least, where its blocks let it."""
GRAIN = 8
"""Scales begin at multiples of so many bytes."""


@dataclass(frozen=True, eq=False)
class Narrow:
    """Raw values, scales and zero points of a constant."""

    dtype: str
    """Element type in memory."""
    values: Array
    """Raw values, in the shape of the tensor."""
    scales: Array
    """fp32 or fp16; along each axis as many as the tensor has, one for each block, or one."""
    zeros: Array | None = None
    """Whole numbers in the shape of `scales`; None: `zero` for all."""
    zero: int = 0
    landing: str = ""
    """Element type on chip, where the copy engine widens a part of the way; empty: `dtype`."""

    @property
    def compressed(self) -> bool:
        """Whether the array reads it as it is: without zeros, or in a microscaling format."""
        return self.dtype in COMPRESSED

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Elements along each axis that share a scale."""
        pairs = zip(self.values.shape, self.scales.shape, strict=True)
        return tuple(n // m for n, m in pairs)

    @property
    def outline(self) -> tuple[object, ...]:
        """What matters of it to a schedule: all but the numbers."""
        scales = str(self.scales.dtype), self.scales.shape
        return self.dtype, self.landing, self.blocks, *scales, self.zeros is not None

    @property
    def bytes(self) -> int:
        """Bytes that memory holds of it."""
        extra = 0 if self.zeros is None else self.zeros.size
        scales = 0 if self.scales.size == 1 else self.scales.nbytes
        return bytes_for(self.dtype, self.values.size) + scales + extra

    @property
    def scale(self) -> float | None:
        """The one scale of all; None where there are several."""
        return float(self.scales.reshape(-1)[0]) if self.scales.size == 1 else None

    def wide(self, dtype: str) -> Array:
        """The real values as engines make them, in fp32, and store them."""
        values = self.values.astype(np.float32) - np.float32(self.zero)
        if self.zeros is not None:
            values -= self._spread(self.zeros.astype(np.float32))
        values *= self._spread(self.scales.astype(np.float32))
        return values.astype(NUMPY[dtype])

    def _spread(self, values: Array) -> Array:
        """One value for each element."""
        for axis, block in enumerate(self.blocks):
            if block > 1 and values.shape[axis] > 1:
                values = values.repeat(block, axis)
        return values

    def transposed(self, order: Sequence[int]) -> Narrow:
        """The same with its axes in another order."""
        zeros = None if self.zeros is None else self.zeros.transpose(order)
        return replace(
            self, values=self.values.transpose(order), scales=self.scales.transpose(order),
            zeros=zeros,
        )  # fmt: skip

    def stored_as(self, dtype: str) -> Narrow:
        """The same numbers in a wider type."""
        return replace(self, dtype=dtype, values=self.values.astype(NUMPY[dtype]))

    def scaled(self, sizes: Sequence[Any]) -> list[Any]:
        """Along each axis, the scales for so many elements from the first of a block on; extents
        may be arrays over candidates."""
        pairs = zip(sizes, self.blocks, self.scales.shape, strict=True)
        return [1 if count == 1 else -(-size // block) for size, block, count in pairs]

    def loaded(self, sizes: Sequence[Any]) -> Any:
        """Bytes of memory that a box of these sizes takes."""
        return _packed_bytes(self.dtype, math.prod(sizes)) + sum(self._parameters(sizes))

    def places(self, sizes: Sequence[Any], row: int, item: int) -> tuple[Any, Any, Any, Any]:
        """Where narrow numbers, scales and zero points of a box begin on chip, and where all ends.

        Args:
            sizes: of the box, along each axis; may be arrays over candidates.
            row: the axis along which units are cut: the reduction.
            item: bytes of a wide number.
        """
        elements, landing = math.prod(sizes), self.landing or self.dtype
        if self.compressed:  # for all of it, as tiles that are no whole blocks come as they are
            return 0, 0, 0, elements * item
        slack = _packed_bytes(landing, elements // sizes[row] * self.unit(row, sizes[row]))
        scales = _up(elements * item + slack)
        narrow = scales - _packed_bytes(landing, elements)
        scaled, pointed = (_up(size) for size in self._parameters(sizes))
        return narrow, scales, scales + scaled, scales + scaled + pointed

    def unit(self, row: int, size: Any) -> Any:
        """Positions along axis `row`, of `size`, that are widened at once: whole blocks, or parts
        of the one block that there is."""
        block, wanted = self.blocks[row], -(-size // UNITS)
        blocked = -(-wanted // block) * block
        return np.minimum(size, np.where(block < size, blocked, wanted))

    def _parameters(self, sizes: Sequence[Any]) -> tuple[Any, Any]:
        """Bytes of scales and of zero points of a box."""
        count = math.prod(self.scaled(sizes))
        scales = 0 if self.scales.size == 1 else count * self.scales.dtype.itemsize
        return scales, 0 if self.zeros is None else count

    @property
    def scale_type(self) -> str:
        return NAMES[self.scales.dtype]

    @property
    def zero_type(self) -> str:
        return "int8" if self.zeros is None else NAMES[self.zeros.dtype]


def _packed_bytes(dtype: str, elements: Any) -> Any:
    return -(-elements * size_of(dtype) // per_item(dtype))


def _up(size: Any) -> Any:
    return -(-size // GRAIN) * GRAIN


# What a folded DequantizeLinear was made of: remembered beside the constant, for machines that
# keep the narrow numbers in memory.

NARROW = "archgen.narrow"
"""Key in the metadata of a constant."""
TYPES = ("int4", "uint4", "int8", "uint8", "fp8e4m3", "fp8e5m2")
"""Element types of constants that memory may hold in the place of real values."""


def narrow_of(value: ir.Value) -> Narrow | None:
    """The narrow numbers that constant `value` was made of, where they are known."""
    found: Narrow | None = value.meta.get(NARROW)
    return found


def narrow_result(node: ir.Node) -> Narrow | None:
    """The narrow numbers behind the result of `node`, whose inputs are constants."""
    if is_op(node, "DequantizeLinear"):
        return _dequantized(node)
    source = node.inputs[0] if node.inputs else None
    known = None if source is None else narrow_of(source)
    if known is None or not is_op(node, "Transpose"):
        return None
    reverse = tuple(range(known.values.ndim))[::-1]
    return known.transposed(ints_attr(node, "perm") or reverse)


def _dequantized(node: ir.Node) -> Narrow | None:
    values, scales = const(required(node, 0)), const(required(node, 1))
    zeros = const(input_of(node, 2))
    if values is None or scales is None or values.ndim < 2:
        return None
    kind = NAMES.get(values.dtype, "")
    if kind not in TYPES or NAMES.get(scales.dtype) not in ("fp32", "fp16"):
        return None
    axis = node.attributes.get_int("axis", 1) % values.ndim
    shaped = _shaped(scales, values, axis, node.attributes.get_int("block_size", 0))
    points = None if zeros is None else _shaped(zeros, values, axis, 1)
    if shaped is None or (points is not None and points.shape != shaped.shape):
        return None
    if points is None or not np.any(points.astype(np.float32)):
        return Narrow(kind, values, shaped)
    if is_float(kind):
        return None
    whole = points.astype(np.uint8 if kind.startswith("u") else np.int8)
    if np.all(whole == whole.reshape(-1)[0]):
        return Narrow(kind, values, shaped, None, int(whole.reshape(-1)[0]))
    return Narrow(kind, values, shaped, whole)


def _shaped(scales: Array, values: Array, axis: int, block: int) -> Array | None:
    """Scales with an axis for each of the values'; None where blocks do not divide them."""
    if scales.size == 1:
        return scales.reshape((1,) * values.ndim)
    if scales.ndim == 1:
        shape = [1] * values.ndim
        shape[axis] = scales.size
        return scales.reshape(shape) if scales.size == values.shape[axis] else None
    fits = scales.ndim == values.ndim and block > 0
    if not fits or any(n % m for n, m in zip(values.shape, scales.shape, strict=True)):
        return None
    return scales
