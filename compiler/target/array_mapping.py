"""Mapping of a product to the array: which loops are pixels, columns, reduction, or steps.

    a[y, x, j, c]  ->  a[y, x, (j, c)]        w[j, c, n]  ->  w[(j, c), n]

With channels last, the positions of a kernel row are contiguous in the left operand, as they are in
packed weights. If windows may overlap, channels and kernel columns are one reduction: a 7 x 7
kernel over 3 channels is seven steps of depth 21, not 49 of depth 3. With `gemm` and `tile`
instructions there are then fewer instructions; a `conv` instruction without `im2col`, which takes
one kernel position after another, has fewer positions if channels alone do not fill the depth.

Cost model, emission and report use this mapping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from compiler.tensor_ir.nest import Access, Nest
from simmodel.arch.element_types import product_type
from simmodel.arch.matrix_cycles import product_cycles, whole_tiles
from simmodel.arch.record import Matrix
from simmodel.isa.region import Operand


@dataclass(frozen=True)
class Tap:
    """A kernel loop and the row loop that it slides along."""

    dim: int
    row: int
    stride: int
    dilation: int
    axis: int
    """Axis of the input tensor that both move along."""


@dataclass(frozen=True)
class Roles:
    """Loops of a nest by role; indices into the nest's dims."""

    rows: tuple[int, ...]
    cols: tuple[int, ...]
    batch: tuple[int, ...]
    taps: tuple[Tap, ...]
    inner: tuple[int, ...]
    y: int | None
    """Row loop that an instruction walks as its second: lines."""
    x: int | None
    """Row loop that an instruction walks as its last: columns."""

    @property
    def b(self) -> int | None:
        """Row loop that an instruction walks as its first, where there is a third: the batch."""
        others = [d for d in self.rows if d not in (self.y, self.x)]
        return others[-1] if others else None

    @property
    def col(self) -> int | None:
        return self.cols[0] if self.cols else None

    @property
    def k(self) -> int | None:
        return self.inner[0] if self.inner else None


@lru_cache(maxsize=4096)
def roles(nest: Nest) -> Roles:
    """Roles of the loops of a sum of products, or of a window (which has no weights)."""
    left = nest.operands[0]
    right = nest.operands[1] if len(nest.operands) > 1 else None
    out = range(nest.rank)
    taps = tuple(tap for dim in range(nest.rank, len(nest.dims)) for tap in _taps(left, dim))
    sliding = {tap.dim for tap in taps}
    inner = tuple(
        d for d in range(nest.rank, len(nest.dims)) if d not in sliding and d != nest.beside
    )
    free = tuple(d for d in out if not left.uses(d))
    cols = free[-1:]  # of others, broadcast on the left, each has a product of its own
    shared = tuple(d for d in out if left.uses(d) and right is not None and right.uses(d))
    batch = tuple(sorted((*shared, *free[:-1])))
    rows = tuple(d for d in out if d not in cols and d not in batch)
    y, x = _instruction_row_loops(nest, rows, taps)
    return Roles(rows, cols, batch, taps, inner, y, x)


def _taps(access: Access, dim: int) -> list[Tap]:
    found = []
    for axis, affine in enumerate(access.index):
        dilation = affine.coefficient(dim)
        others = [(d, c) for d, c in affine.terms if d != dim]
        if dilation and others:
            row, stride = others[0]
            found.append(Tap(dim, row, stride, dilation, axis))
    return found


def _instruction_row_loops(
    nest: Nest, rows: tuple[int, ...], taps: tuple[Tap, ...]
) -> tuple[int | None, int | None]:
    """The two row loops of one instruction: those with taps, else the last ones that move."""
    slid = tuple(dict.fromkeys(tap.row for tap in taps))
    if len(slid) == 2:
        return slid[0], slid[1]
    moving = [d for d in rows if nest.dims[d].extent > 1 and d not in slid]
    if len(slid) == 1:
        return None, slid[0]
    if len(moving) >= 2:
        return moving[-2], moving[-1]
    return None, (moving[-1] if moving else (rows[-1] if rows else None))


@dataclass(frozen=True)
class Mapping:
    """Loops of a product by their place on the array; indices into the nest's dims."""

    pixels: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    """Reduced in one step, slowest first."""
    steps: tuple[int, ...]
    """Kernel loops whose positions are steps, one after another."""
    joined: int | None = None
    """Kernel loop that joins the reduction, because the operands are contiguous along it."""

    def on(self, matrix: Matrix) -> dict[str, tuple[int, ...]]:
        """Dimension of the array, as in its description -> loops along it."""
        if matrix.kind == "cube":
            return {"rows": self.pixels, "cols": self.columns, "depth": self.depth}
        if matrix.dataflow == "output-stationary":
            return {"rows": self.pixels, "cols": self.columns}
        stays = self.columns if matrix.dataflow == "weight-stationary" else self.pixels
        return {"rows": self.depth, "cols": stays}


def mapping(
    nest: Nest, matrix: Matrix, dtype: str, depth: int, strides: tuple[Sequence[int], Sequence[int]]
) -> Mapping:
    """Mapping of a tile of a sum of products to the array, with `depth` positions of its reduction
    loop; each loop moves both operands by so many bytes."""
    found = roles(nest)
    taps = tuple(tap.dim for tap in found.taps)
    if nest.beside is not None:
        return Mapping(found.rows, (nest.beside,), (nest.beside,), taps)
    if matrix.im2col and matrix.granularity == "conv":
        return Mapping(found.rows, found.cols, (*taps, *found.inner), ())
    for tap in joining(nest, matrix):
        near = all(moves[tap.dim] == depth * moves[found.inner[0]] for moves in strides)
        if near and pays(matrix, dtype, depth, nest.dims[tap.dim].extent):
            apart = tuple(dim for dim in taps if dim != tap.dim)
            return Mapping(found.rows, found.cols, (tap.dim, *found.inner), apart, tap.dim)
    return Mapping(found.rows, found.cols, found.inner, taps)


def pixels_together(nest: Nest) -> int:
    """Pixels of a line that a product of `nest` computes side by side, in columns of their own: its
    weights have an axis that no loop moves along, with a kernel for each (`FillColumns`)."""
    right = nest.operands[1].index if nest.contraction else ()
    return max((1 + affine.spare for affine in right if not affine.terms), default=1)


def on_columns(nest: Nest, sizes: Sequence[Any]) -> list[Any]:
    """Sizes of the loops of `nest` as products take them: where several pixels stand side by side,
    fewer pixels, more columns, and a kernel that covers the windows of all of them; as they are
    where a line is no whole number of these. Sizes may be arrays over candidates."""
    made, each, found = list(sizes), pixels_together(nest), roles(nest)
    if each == 1:
        return made
    assert found.x is not None and found.col is not None
    whole = sizes[found.x] % each == 0
    wider = {a.terms[0][0]: a.spare for a in nest.operands[1].index if a.terms and a.spare}
    made[found.x] = np.where(whole, sizes[found.x] // each, sizes[found.x])
    made[found.col] = np.where(whole, sizes[found.col] * each, sizes[found.col])
    for dim, more in wider.items():
        made[dim] = np.where(whole, sizes[dim] + more, sizes[dim])
    return made if np.ndim(whole) else [int(size) for size in made]


def axis_of(access: Access, dim: int | None) -> int | None:
    """The first axis of a tensor that loop `dim` moves along; None: there is none."""
    axes = enumerate(access.index)
    return next((n for n, each in axes if dim is not None and each.coefficient(dim)), None)


def joining(nest: Nest, matrix: Matrix) -> tuple[Tap, ...]:
    """The kernel loops of which one may join the reduction of `nest`, that over columns first,
    given operands that lie side by side along it; none if the engine forms its windows itself or
    cannot read them. An engine that slides joins columns alone."""
    slides = matrix.granularity == "conv"
    if (matrix.im2col and slides) or not matrix.overlap or nest.depthwise:
        return ()
    found = roles(nest)
    if len(found.inner) != 1:
        return ()
    rows = (found.x,) if slides else (found.x, found.y)
    extents = on_columns(nest, [dim.extent for dim in nest.dims])
    able = [tap for tap in found.taps if tap.dilation == 1 and extents[tap.dim] > 1]
    return tuple(tap for row in rows for tap in able if row is not None and tap.row == row)


def kernel_rows(nest: Nest, matrix: Matrix) -> int | None:
    """The loop over kernel rows along which a sum may be split between instructions; None if there
    is none, or the engine takes a whole kernel at once."""
    if matrix.granularity == "conv" or nest.depthwise:
        return None
    taps = roles(nest).taps
    return taps[0].dim if len(taps) == 2 and nest.dims[taps[0].dim].extent > 1 else None


def pays(matrix: Matrix, dtype: str, depth: Any, wide: int) -> Any:
    """Whether `wide` kernel positions of `depth` channels are better as one reduction: always if
    each would be an instruction, else if that takes fewer cycles of the array."""
    if matrix.granularity != "conv":
        return True
    kind = product_type(dtype)
    apart = product_cycles(matrix, kind, 1, 1, depth, wide)
    return product_cycles(matrix, kind, 1, 1, depth * wide) < apart


@cache
def block(limit: int, batch: int, rows: int, cols: int) -> tuple[int, int, int]:
    """Extents of the pieces in which an engine takes pixels, at most `limit` at once: the fewest
    pieces, of these the widest.

        16 of 28 x 28 pixels    49 pieces of 4 x 4, not 56 of a line's 16 or 12
    """
    extents = batch, rows, cols
    sizes = (
        (deep, high, min(cols, limit // (deep * high)))
        for deep in range(1, min(batch, limit) + 1)
        for high in range(1, min(rows, limit // deep) + 1)
    )
    return min(sizes, key=lambda size: (pieces(size, extents), -size[2], -size[1], -size[0]))


def pixel_blocks(limit: int | None, extents: Sequence[int], dtype: str = "") -> tuple[int, int]:
    """Pixels of the largest block, and blocks of batch, lines and columns of `extents`; of products
    of type `dtype`, those of whole tiles."""
    batch, y, x = once = block(limit or math.prod(extents), *extents)
    return batch * whole_tiles(dtype, y, x), pieces(once, extents)


def pieces(sizes: Sequence[int], extents: Sequence[int]) -> int:
    """Number of pieces of `sizes` in a box of `extents`."""
    return math.prod(-(-extent // size) for size, extent in zip(sizes, extents, strict=True))


def merge_tap_loop(operand: Operand, tap: int, k: int) -> Operand:
    """`operand` with loop `tap` merged into loop `k`."""
    shape = list(operand.shape)
    shape[k] *= shape[tap]
    shape[tap] = 1
    return replace(operand, shape=tuple(shape))
