"""How a product lies on the array: which loops are pixels, columns, the reduction, or steps.

    a[y, x, j, c]  ->  a[y, x, (j, c)]        w[j, c, n]  ->  w[(j, c), n]

With its channels last, the positions of a kernel row lie side by side in the left operand, as they
do in packed weights. Where its pixels may overlap, channels and kernel columns are one reduction:
a 7 x 7 kernel over 3 channels is seven steps of depth 21, not 49 of depth 3. Engines that are told
products or tiles have fewer of them then; a convolution instruction without `im2col`, which takes
kernel positions one after another, has fewer positions, where channels alone leave room for that.

Prices, emission and the report all ask here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from compiler.bind.roles import Tap, roles
from compiler.cost.transfer import Path
from compiler.nest.ir import Nest, Tensor, order_of
from simmodel.arch import Arch, Matrix
from simmodel.dtype import product_type
from simmodel.isa.cycles import product_cycles
from simmodel.region import Operand


@dataclass(frozen=True)
class Mapping:
    """Loops of one product by what the array does with them; positions in the nest's dims."""

    pixels: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    """Added up in one reduction, slowest first."""
    steps: tuple[int, ...]
    """Kernel loops whose positions come one after another."""
    joined: int | None = None
    """Kernel loop that is in the reduction because of how the operands lie."""

    def on(self, matrix: Matrix) -> dict[str, tuple[int, ...]]:
        """Dimension of the array, as its description calls it -> loops that lie along it."""
        if matrix.kind == "cube":
            return {"rows": self.pixels, "cols": self.columns, "depth": self.depth}
        if matrix.dataflow == "output-stationary":
            return {"rows": self.pixels, "cols": self.columns}
        stays = self.columns if matrix.dataflow == "weight-stationary" else self.pixels
        return {"rows": self.depth, "cols": stays}


def mapping(
    nest: Nest, matrix: Matrix, dtype: str, depth: int, strides: tuple[Sequence[int], Sequence[int]]
) -> Mapping:
    """How a tile of a sum of products lies on the array.

    Args:
        nest: the sum.
        matrix: the engine.
        dtype: of the operands.
        depth: positions of its reduction loop in the tile.
        strides: for both operands, bytes by which each loop moves them.
    """
    found = roles(nest)
    taps = tuple(tap.dim for tap in found.taps)
    if nest.beside is not None:
        return Mapping(found.rows, (nest.beside,), (nest.beside,), taps)
    if matrix.im2col and matrix.granularity == "conv":
        return Mapping(found.rows, found.cols, (*taps, *found.inner), ())
    tap = joining(nest, matrix)
    if tap is None or found.k is None:
        return Mapping(found.rows, found.cols, found.inner, taps)
    near = all(moves[tap.dim] == depth * moves[found.k] for moves in strides)
    if not near or not pays(matrix, dtype, depth, nest.dims[tap.dim].extent):
        return Mapping(found.rows, found.cols, found.inner, taps)
    apart = tuple(dim for dim in taps if dim != tap.dim)
    return Mapping(found.rows, found.cols, (tap.dim, *found.inner), apart, tap.dim)


def joining(nest: Nest, matrix: Matrix) -> Tap | None:
    """The kernel loop that may join the reduction of `nest` where the operands lie for it; None
    where there is no such loop, or the engine forms its windows itself or cannot read them."""
    forms = matrix.im2col and matrix.granularity == "conv"
    if forms or not matrix.overlap or nest.depthwise:
        return None
    found = roles(nest)
    if len(found.inner) != 1 or not found.taps:
        return None
    tap = found.taps[-1]
    joins = tap.row == found.x and tap.dilation == 1 and nest.dims[tap.dim].extent > 1
    return tap if joins else None


def kernel_rows(nest: Nest, matrix: Matrix) -> int | None:
    """The loop over kernel rows along which a sum may be split between instructions; None where
    there is none, or the engine takes a whole kernel in one."""
    if matrix.granularity == "conv" or nest.depthwise:
        return None
    taps = roles(nest).taps
    return taps[0].dim if len(taps) == 2 and nest.dims[taps[0].dim].extent > 1 else None


def pays(matrix: Matrix, dtype: str, depth: Any, wide: int) -> Any:
    """Whether `wide` kernel positions of `depth` channels are better one reduction: always where
    each would be an instruction, else where that takes fewer cycles of the array."""
    if matrix.granularity != "conv":
        return True
    kind = product_type(dtype)
    apart = product_cycles(matrix, kind, 1, 1, depth, wide)
    return product_cycles(matrix, kind, 1, 1, depth * wide) < apart


def worth_turning(source: Tensor, nest: Nest, arch: Arch) -> bool:
    """Whether fewer steps make up for a load of `source`, of few channels, with its channels
    last: its pieces are small, and weights wait for the same engine."""
    tap = joining(nest, arch.matrix)
    if tap is None:
        return False
    found = roles(nest)
    (k,) = found.inner
    far = order_of(source.shape, source.storage.strides)
    last = [axis for axis, at in enumerate(nest.operands[0].index) if at.coefficient(k)]
    near = (*(axis for axis in far if axis not in last), *last)
    way = Path(arch, 1, "dram", arch.matrix.input)
    apart, turned = (way.box(source, source.shape, order).cycles for order in (far, near))
    m, n, deep = (
        math.prod(nest.dims[d].extent for d in dims) for dims in (found.rows, found.cols, (k,))
    )
    dtype, wide = product_type(source.dtype), nest.dims[tap.dim].extent
    rows = math.prod(nest.dims[other.dim].extent for other in found.taps) // wide
    one = product_cycles(arch.matrix, dtype, m, n, deep)
    row = product_cycles(arch.matrix, dtype, m, n, deep * wide)
    return bool(rows * row + turned < rows * wide * one + apart)


@cache
def block(limit: int, batch: int, rows: int, cols: int) -> tuple[int, int, int]:
    """Extents of the pieces in which an engine takes pixels, at most `limit` at once: those of
    which there are fewest, and of these the widest.

        16 of 28 x 28 pixels    49 pieces of 4 x 4, not 56 of a line's 16 or 12
    """
    extents = batch, rows, cols
    sizes = (
        (deep, high, min(cols, limit // (deep * high)))
        for deep in range(1, min(batch, limit) + 1)
        for high in range(1, min(rows, limit // deep) + 1)
    )
    return min(sizes, key=lambda size: (pieces(size, extents), -size[2], -size[1], -size[0]))


def pieces(sizes: Sequence[int], extents: Sequence[int]) -> int:
    """Pieces of `sizes` in a box of `extents`."""
    return math.prod(-(-extent // size) for size, extent in zip(sizes, extents, strict=True))


def joined(operand: Operand, tap: int, k: int) -> Operand:
    """`operand` with the positions of loop `tap` as more of loop `k`."""
    shape = list(operand.shape)
    shape[k] *= shape[tap]
    shape[tap] = 1
    return replace(operand, shape=tuple(shape))
