"""Candidates for a sum of products: rows x columns x reduction x loop order x split over cores.

All sizes of one split are priced at once; the few that are cheapest become tilings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from compiler.schedule.tiling.layer_price import TilePrices, TilingProblem, price
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import TileLoop
from compiler.target.array_mapping import roles
from compiler.target.equal_engines import columns_of
from compiler.target.product_tiles import TileSizes, chosen


def sizes(extent: int, grain: int, most: int = 14) -> list[int]:
    """Tile sizes worth trying for a loop of `extent`: even cuts, on multiples of `grain`."""
    found = {extent, 1}
    pieces = 2
    while pieces < 2 * extent and len(found) < most:
        size = -(-extent // pieces)
        on_grain = -(-size // grain) * grain
        found.add(on_grain if size > grain and on_grain < extent else max(1, size))
        pieces = math.ceil(pieces * 1.5)
    return sorted(found | ({grain} if grain < extent else set()), reverse=True)


def cheapest(
    problem: TilingProblem, columns: Sequence[str], most: int
) -> Iterator[tuple[tuple[TileLoop, ...], TilePrices]]:
    """Loops and prices of the candidates of one split that fit by their sizes, failing that of the
    smallest: the `most` that are least by each of the `columns`."""
    choice = choices(problem)
    priced, shape = price(problem, choice), choice.shape
    fits = priced.fits & (priced.need <= problem.arch.memories.local.size)
    if not np.any(fits):
        fits = priced.need == np.min(priced.need)
    kept, loops = dict[int, None](), loop_maker(problem)
    for column in columns:
        by = np.where(fits, getattr(priced, column), np.full(shape, np.inf)).ravel()
        kept |= {int(i): None for i in np.argsort(by, kind="stable")[:most] if np.isfinite(by[i])}
    for index in kept:
        yield loops(choice.some(index)), TilePrices(*chosen(shape, index, *priced))


def choices(problem: TilingProblem) -> TileSizes:
    """All combinations of sizes; pixels are cut within single rows, rows within one of a batch."""
    found, matrix = problem.found, problem.arch.matrix
    deep = matrix.depth if matrix.kind == "cube" else matrix.rows
    rows = [
        sizes(problem.extent(found.b), 1, 6),
        sizes(problem.extent(found.y), 1),
        sizes(problem.extent(found.x), 1, 14 if found.y is None else 5),
    ]
    b, y, x = (a.ravel() for a in np.meshgrid(*rows, indexing="ij"))
    wide = x == problem.extent(found.x)
    keep = (wide | (y == 1)) & (wide & (y == problem.extent(found.y)) | (b == 1))
    lines, summed = problem.extent(problem.rows), problem.extent(found.k)
    inner = [
        sizes(problem.extent(found.col), columns_of(problem.layer.binding.engine, problem.arch)),
        [summed] if stays_whole(problem.layer) else sizes(summed, deep, 6),
        [lines] if lines == 1 else [lines, 1],
        [0, 1],
    ]
    pixels = (a[keep].reshape(-1, 1, 1, 1, 1) for a in (b, y, x))
    return TileSizes(*pixels, *np.ix_([0], *inner)[1:])


def stays_whole(layer: Layer) -> bool:
    """Whether the reduction stays whole: it may end before its last piece, which finishes it."""
    k = roles(layer.head).k
    short = k is not None and layer.head.dims[k].count is not None
    return short and layer.binding.direct


def loop_maker(problem: TilingProblem) -> Callable[[TileSizes], tuple[TileLoop, ...]]:
    """The loops of one candidate, outermost first; what makes them keeps neither network nor
    machine."""
    dims = problem.dims
    extents = {dim: problem.extent(dim) for dim in (*dims, *problem.lead)}
    lead = [(d, 1) for d in problem.lead]
    # Weights that the lead loops do not move are kept across them when columns come first.
    between = problem.lead_moves_weights

    def loops(one: TileSizes) -> tuple[TileLoop, ...]:
        sizes = [*zip(dims, one.sizes, strict=False)]
        rows, cols, summed = sizes[:3], sizes[3:4], sizes[4:]
        if one.order == 0:
            nested = [*lead, *rows, *cols]
        else:
            nested = [*lead, *cols, *rows] if between else [*cols, *lead, *rows]
        return tuple(
            TileLoop(dim, int(size), reduction)
            for several, reduction in ((nested, False), (summed, True))
            for dim, size in several
            if dim is not None and size < extents[dim]
        )

    return loops
