"""Products with a constant band matrix, such as that of an interpolation, as windows.

Each result of such a product adds up a few neighbours, whose first place moves on by `q` for every
`p` results, or nearly so; results in front of the first whole period and behind the last have
windows of their own. The array multiplies by the zeros around the band in the same instruction; the
vector engine does better to read the neighbours alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from compiler.target.machine import no_products, on_its_array, vector_lacks
from compiler.tensor_ir.nest import Access, Affine, Array, Dim, Nest, Storage, Tensor, at, row_major
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch

WORTH = 2
"""The window has to be so many times shorter than the sum."""
LONGEST = 64
"""Results of a period at most."""
SHARE = 2
"""What a product reads and makes stays on chip if so many times as much has room there."""


def as_windows(
    nest: Nest, tensors: dict[str, Tensor], buffers: dict[str, int], arch: Arch
) -> tuple[Nest, ...]:
    """`nest` as sums over windows, with their weights and their results, seen in periods, added to
    the graph's tensors; none where it is no product with a band, or the array multiplies.

    before:
        y[c=32, i=43] = sum over k=28 of mul(x[c, k], w[i, k])
    after:
        y[c=32, m=1, r=1] = sum over t=1 of mul(x[c, t], v[m, r, t])
        y[c=32, m=13, r=3] = sum over t=3 of mul(x[c, 2 m + t], v[m, r, t])
        y[c=32, m=1, r=3] = sum over t=3 of mul(x[c, t + 25], v[m, r, t])
    """
    axis = _row_axis(nest, tensors)
    if axis is None or no_products(nest, tensors, on_its_array(nest, tensors, arch)) is None:
        return ()
    matrix = np.asarray(tensors[nest.operands[1].tensor].data)
    ends = (tensors[name] for name in (nest.operands[0].tensor, nest.tensor))
    size = sum(each.elements * size_of(each.dtype) for each in ends)
    stays = size * SHARE <= arch.memories.local.size
    found = _bands(matrix, inside=stays)
    new: dict[str, Tensor] = {}
    # One border for all: what is read with two stays in no place on chip.
    pad = None if all(band.inside(matrix.shape[1]) for band in found) else 0.0
    windows = tuple(_band_window(nest, axis, band, pad, {**tensors, **new}, new) for band in found)
    known = {**tensors, **new}
    if any(vector_lacks(each, known, arch, finishing=False) is not None for each in windows):
        return ()
    tensors.update(new)
    buffers.update({name: new[name].elements for name in new if new[name].storage.buffer == name})
    return windows


@dataclass(frozen=True)
class _Band:
    """Rows of a matrix from `row` to `last`, whose windows of `width` begin at `first` and move on
    by `step` each `period`."""

    row: int
    last: int
    period: int
    step: int
    first: int
    width: int

    @classmethod
    def around(cls, ends: Array, row: int, last: int, period: int, step: int) -> _Band:
        """The narrowest that holds all between both `ends` of each row."""
        moved = np.arange(last - row) // period * step
        first, end = (ends[0, row:last] - moved).min(), (ends[1, row:last] - moved).max() + 1
        return cls(row, last, period, step, int(first), max(1, int(end - first)))

    @property
    def products(self) -> int:
        return (self.last - self.row) * self.width

    def inside(self, given: int) -> bool:
        """Whether no window reaches out of so many columns."""
        moved = ((self.last - self.row) // self.period - 1) * self.step
        return self.first >= 0 and self.first + moved + self.width <= given

    def weights(self, matrix: Array) -> Array:
        """What stands in the windows, as [period, row, place]."""
        part = matrix[self.row : self.last]
        rows, columns = np.nonzero(part)
        found = np.zeros((len(part), self.width), matrix.dtype)
        found[rows, columns - rows // self.period * self.step - self.first] = part[rows, columns]
        return found.reshape(-1, self.period, self.width)


def _band_window(
    nest: Nest, axis: int, band: _Band, pad: float | None,
    tensors: Mapping[str, Tensor], new: dict[str, Tensor],
) -> Nest:  # fmt: skip
    """The part of `nest` that `band` makes, over a border of `pad`; its weights and its result go
    into `new`."""
    left, right = nest.operands
    data = band.weights(np.asarray(tensors[right.tensor].data))
    shape = data.shape
    _, period, width = shape

    def shifted(affine: Affine) -> Affine:
        return replace(affine, terms=tuple((d + (d > axis), f) for d, f in affine.terms))

    tap = nest.rank + 1
    place = Affine(((axis, band.step), (tap, 1)), band.first)
    walked = next(n for n, each in enumerate(left.index) if each.coefficient(nest.rank))
    index = tuple(place if n == walked else shifted(each) for n, each in enumerate(left.index))
    weights, result = f"{nest.tensor}.band{band.row}", tensors[nest.tensor]
    storage = result.storage
    inner = storage.strides[axis]
    ends = slice(None, axis), slice(axis + 1, None)
    split, strides = (
        (*values[ends[0]], *parts, *values[ends[1]])
        for values, parts in ((result.shape, shape[:2]), (storage.strides, (period * inner, inner)))
    )
    window = replace(
        nest,
        tensor=f"{nest.tensor}.periods{band.row}",
        dims=(*(Dim(f"d{d}", n) for d, n in enumerate(split)), Dim("t", width)),
        rank=nest.rank + 1,
        operands=(
            replace(left, index=index, pad=pad),
            Access(weights, (at(axis), at(axis + 1), at(tap))),
        ),
    )
    new[weights] = replace(
        tensors[right.tensor], name=weights, shape=shape,
        storage=Storage(weights, 0, row_major(shape)), data=data, exact=None,
    )  # fmt: skip
    offset = storage.offset + band.row * inner
    new[window.tensor] = replace(
        result, name=window.tensor, shape=split,
        storage=replace(storage, offset=offset, strides=strides),
    )  # fmt: skip
    return window


def _bands(matrix: Array, *, inside: bool) -> list[_Band]:
    """`matrix` as periods of the length that leaves the fewest products, and the rows in front and
    behind whose windows would begin elsewhere; none where that is most of the products.

    No window of those `inside` reaches out of the matrix where that can be had: a border keeps what
    is made in parts from staying on chip, where through memory each part would go apart.
    """
    made, given = matrix.shape
    filled = matrix != 0
    found = np.stack([filled.argmax(1), given - 1 - filled[:, ::-1].argmax(1)])
    ends = np.where(filled.any(1), found, [[given], [-1]])

    def cut(head: int, end: int, *way: int) -> list[_Band]:
        parts = (0, head, head, 0), (head, end, *way), (end, made, made - end, 0)
        return [_Band.around(ends, *part) for part in parts if part[0] < part[1]]

    cuts = [
        cut(0, made // period * period, period, step)
        for period in range(1, min(made, LONGEST) + 1)
        for step in {period * given // made, -(-period * given // made)}
    ]
    widest = min(cuts, key=lambda bands: sum(band.products for band in bands))
    period, step = widest[0].period, widest[0].step
    cuts = [
        cut(head, made - (made - head) % period - less * period, period, step)
        for head in range(min(2 * period, made))
        for less in range(3)
        if head + (less + 1) * period <= made
    ]
    whole = [bands for bands in cuts if inside and all(band.inside(given) for band in bands)]
    best = min(whole or [widest], key=lambda bands: sum(band.products for band in bands))
    return best if sum(band.products for band in best) * WORTH <= matrix.size else []


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
