"""Products with a constant band matrix, such as that of an interpolation, as windows.

Each result of such a product adds up a few neighbours, whose first place moves on by `q` for every
`p` results. The array multiplies by the zeros around the band in the same instruction; the vector
engine does better to read the neighbours alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from compiler.target.machine import no_products, vector_lacks
from compiler.tensor_ir.nest import (
    Access,
    Affine,
    Array,
    Dim,
    Nest,
    Storage,
    Tensor,
    at,
    row_major,
)
from simmodel.arch.record import Arch

WORTH = 2
"""The window has to be so many times shorter than the sum."""


def as_window(
    nest: Nest, tensors: dict[str, Tensor], buffers: dict[str, int], arch: Arch
) -> Nest | None:
    """`nest` as a sum over a window, with its weights and its result, seen in periods, added to the
    graph's tensors; None where it is no product with a band, or the array multiplies.

    before:
        y[c=32, i=42] = sum over k=28 of mul(x[c, k], w[i, k])
    after:
        y[c=32, m=14, r=3] = sum over t=4 of mul(x[c, 2 m + t - 1], v[m, r, t])
    """
    axis = _row_axis(nest, tensors)
    if axis is None or no_products(nest, tensors, arch) is None:
        return None
    left, right = nest.operands
    found = _band(np.asarray(tensors[right.tensor].data))
    if found is None:
        return None
    weights, step, first = found
    shape = weights.shape
    _, period, width = shape

    def shifted(affine: Affine) -> Affine:
        return replace(affine, terms=tuple((d + (d > axis), f) for d, f in affine.terms))

    tap = nest.rank + 1
    place = Affine(((axis, step), (tap, 1)), first)
    walked = next(n for n, each in enumerate(left.index) if each.coefficient(nest.rank))
    index = tuple(place if n == walked else shifted(each) for n, each in enumerate(left.index))
    band, result = f"{nest.tensor}.band", tensors[nest.tensor]
    storage = result.storage
    inner = storage.strides[axis]
    ends = slice(None, axis), slice(axis + 1, None)
    split, strides = (
        (*values[ends[0]], *parts, *values[ends[1]])
        for values, parts in ((result.shape, shape[:2]), (storage.strides, (period * inner, inner)))
    )
    window = replace(
        nest,
        tensor=f"{nest.tensor}.periods",
        dims=(*(Dim(f"d{d}", n) for d, n in enumerate(split)), Dim("t", width)),
        rank=nest.rank + 1,
        operands=(
            replace(left, index=index, pad=0.0),
            Access(band, (at(axis), at(axis + 1), at(tap))),
        ),
    )
    constant = replace(
        tensors[right.tensor], name=band, shape=shape, storage=Storage(band, 0, row_major(shape)),
        data=weights, exact=None,
    )  # fmt: skip
    seen = replace(
        result, name=window.tensor, shape=split, storage=replace(storage, strides=strides)
    )
    new = {band: constant, window.tensor: seen}
    if vector_lacks(window, {**tensors, **new}, arch, finishing=False) is not None:
        return None
    tensors.update(new)
    buffers[band] = constant.elements
    return window


def _band(matrix: Array) -> tuple[Array, int, int] | None:
    """What stands in the rows of a matrix around a diagonal, as [period, row, place], how many
    columns a period moves on, and where the first begins; None where that is most of it."""
    made, given = matrix.shape
    count = math.gcd(made, given)
    period, step = made // count, given // count
    rows, columns = np.nonzero(matrix)
    reach = columns - rows // period * step
    if not rows.size or (width := int(reach.max() - reach.min()) + 1) * WORTH > given:
        return None
    weights = np.zeros((made, width), matrix.dtype)
    weights[rows, reach - reach.min()] = matrix[rows, columns]
    return weights.reshape(count, period, width), step, int(reach.min())


def _row_axis(nest: Nest, tensors: Mapping[str, Tensor]) -> int | None:
    """The output loop over the rows of a constant matrix, whose columns one loop adds up; None
    where `nest` is no such product."""
    if nest.function != "mul" or nest.reduce != "sum" or len(nest.dims) != nest.rank + 1:
        return None
    left, right = nest.operands
    weights, late = tensors[right.tensor], (nest.bias, nest.multiplier)
    plain = weights.data is not None and (right.scale, right.zero) == (None, 0) and left.pad is None
    if not plain or any(late) or len(right.index) != 2 or right.index[1] != at(nest.rank):
        return None
    rows, inside = right.index[0], sum(each == at(nest.rank) for each in left.index)
    alone = [d for d in range(nest.rank) if rows == at(d) and not left.uses(d)]
    once = inside == 1 and sum(each.coefficient(nest.rank) != 0 for each in left.index) == 1
    return alone[0] if once and alone else None
