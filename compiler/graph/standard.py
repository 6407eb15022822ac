"""Operators of ONNX that others of ONNX say in a few words: BitCast of whole numbers, MaxUnpool."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from compiler.graph.body import Body, Declined, Tensor
from compiler.graph.operators import rewrite_of


@rewrite_of("", "BitCast")
def bit_cast(b: Body, x: Tensor, *, to: int) -> Tensor:
    """The bits of whole numbers, signed or not: a conversion keeps them."""
    wanted = ir.DataType(to)
    if x.ir.dtype == wanted:
        return b.one("Identity", x)
    if x.dtype.kind not in "biu" or np.dtype(wanted.numpy()).kind not in "iu":
        raise Declined(f"the bits of {x.dtype} as {wanted.name.lower()}")
    return b.one("Cast", x, to=to)


@rewrite_of("", "MaxUnpool")
def max_unpool(
    b: Body,
    x: Tensor,
    index: Tensor,
    shape: Tensor | None = None,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
) -> Tensor:
    """Each element at its place among zeros. Several for one place, which are of windows that
    overlap, are all the same number there."""
    rank = len(kernel_shape)
    strides, pads = [*strides] or [1] * rank, [*pads] or [0] * (2 * rank)
    inner = [
        (n - 1) * s + k - p - q
        for n, s, k, p, q in zip(
            x.shape[2:], strides, kernel_shape, pads[:rank], pads[rank:], strict=True
        )
    ]
    whole = (*x.shape[:2], *inner)
    wanted = whole if shape is None else shape.value
    if wanted is None:
        raise Declined("its result has a computed shape")
    if any(n < m for n, m in zip(wanted, whole, strict=True)):
        raise Declined("its result is smaller than what is unpooled")
    places, updates = b.reshape(index, (x_size := prod(x.shape),)), b.reshape(x, (x_size,))
    nothing, lowest = (b.constant(np.full(prod(whole), n), x.dtype) for n in (0, -np.inf))
    ones = b.constant(np.ones(x_size), x.dtype)
    hit = b.one("ScatterElements", nothing, places, ones, axis=0, reduction="max")
    found = b.one("ScatterElements", lowest, places, updates, axis=0, reduction="max")
    chosen = b.one("Where", b.one("Equal", hit, 1.0), found, nothing)
    pads_behind = [int(n) - m for n, m in zip(wanted, whole, strict=True)]
    result = b.reshape(chosen, whole)
    return b.one("Pad", result, [0] * len(whole) + pads_behind) if any(pads_behind) else result


TABLE = (bit_cast, max_unpool)
