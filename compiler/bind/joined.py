"""Kernel columns that join the channels in one reduction, because strides can say so.

    a[y, x, j, c]  ->  a[y, x, (j, c)]        w[j, c, n]  ->  w[(j, c), n]

With its channels last, the positions of a kernel row lie side by side in the left operand, as they
do in packed weights: one product for each kernel row, in which neighbouring windows overlap,
instead of one for each position. That is what `im2col` means for engines that are told products or
tiles of them; a convolution instruction forms its windows itself.
"""

from __future__ import annotations

import math
from dataclasses import replace

from compiler.bind.roles import Tap, roles
from compiler.cost.transfer import Path
from compiler.nest.ir import Nest, Tensor, order_of
from simmodel.arch import Arch, Matrix
from simmodel.dtype import product_type
from simmodel.isa.cycles import product_cycles
from simmodel.region import Operand


def joining(nest: Nest, matrix: Matrix) -> Tap | None:
    """The kernel loop that joins the reduction of `nest` where the left operand lies for it, None
    where there is no such loop or the engine does not join."""
    if not matrix.im2col or matrix.granularity == "conv" or nest.depthwise:
        return None
    found = roles(nest)
    if len(found.inner) != 1 or not found.taps:
        return None
    tap = found.taps[-1]
    joins = tap.row == found.x and tap.dilation == 1 and nest.dims[tap.dim].extent > 1
    return tap if joins else None


def worth_turning(source: Tensor, nest: Nest, arch: Arch) -> bool:
    """Whether fewer products make up for a load of `source`, of few channels, with its channels
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


def side_by_side(operand: Operand, tap: int, k: int) -> bool:
    """Whether loop `tap` goes on in `operand` where loop `k` ends."""
    return operand.strides[tap] == operand.shape[k] * operand.strides[k]


def joined(operand: Operand, tap: int, k: int) -> Operand:
    """`operand` with the positions of loop `tap` as more of loop `k`."""
    shape = list(operand.shape)
    shape[k] *= shape[tap]
    shape[tap] = 1
    return replace(operand, shape=tuple(shape))
