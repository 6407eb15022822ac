"""Candidates for a sum of products: rows x columns x reduction x loop order x split over cores.

All sizes of one split are priced at once; the few that are cheapest become tilings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from compiler.schedule.tiling.problem import TilePrices, TilingProblem
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import TileLoop
from compiler.target.array_mapping import roles
from compiler.target.equal_engines import columns_of
from compiler.target.product_tiles import TileSizes, chosen


def sizes(extent: int, grain: int, most: int = 14, *, halves: bool = False) -> list[int]:
    """Tile sizes worth trying for a loop of `extent`: even cuts, on multiples of `grain`, in 2, 3,
    5, 8, 12 .. pieces, or in 2, 3, 4, 6, 8, 12 .. ones with the `halves` of each."""
    found = {extent, 1}
    pieces = 2
    while pieces < 2 * extent and len(found) < most:
        size = -(-extent // pieces)
        on_grain = -(-size // grain) * grain
        found.add(on_grain if size > grain and on_grain < extent else max(1, size))
        pieces += 1 << pieces.bit_length() - 2 if halves else (pieces + 1) // 2
    return sorted(found | ({grain} if grain < extent else set()), reverse=True)


def cheapest(
    problem: TilingProblem, choice: TileSizes, priced: TilePrices, columns: Sequence[str], most: int
) -> Iterator[tuple[tuple[TileLoop, ...], TilePrices]]:
    """Loops and prices of the candidates of one split that fit by their sizes, failing that of the
    smallest: the `most` that are least by each of the `columns`."""
    shape = choice.shape
    fits = priced.fits & (priced.need <= problem.arch.memories.local.size)
    if not np.any(fits):
        fits = priced.need == np.min(priced.need)
    kept, loops = dict[int, None](), loop_maker(problem)
    for column in columns:
        by = np.where(fits, getattr(priced, column), np.full(shape, np.inf)).ravel()
        kept |= {int(i): None for i in np.argsort(by, kind="stable")[:most] if np.isfinite(by[i])}
    rows = zip(*chosen(shape, [*kept], *choice.sizes, *priced), strict=True)
    count = len(choice.sizes)
    for row in rows if kept else ():
        yield loops(TileSizes(*row[:count])), TilePrices(*row[count:])


def choices(problem: TilingProblem) -> TileSizes:
    """All combinations of sizes; pixels are cut within single rows, rows within one of a batch."""
    found, matrix = problem.roles, problem.arch.matrix
    deep = matrix.depth if matrix.kind == "cube" else matrix.rows
    extents = tuple(map(problem.extent, (found.b, found.y, found.x, found.col, found.k)))
    wide = columns_of(problem.layer.binding.engine, problem.arch)
    depth = None if stays_whole(problem.layer) else deep
    orders = 1 + (problem.loads_input or problem.loads_weights or len(problem.others) > 0)
    lines = problem.extent(problem.rows)
    ways = orders, 1 + problem.may_be_early
    return _combined(extents, lines, wide, depth, ways, found.y is None)


@lru_cache(4096)
def _combined(
    extents: tuple[int, ...], lines: int, wide: int, depth: int | None, ways: tuple[int, int],
    single: bool,
) -> TileSizes:  # fmt: skip
    """All combinations for loops of `extents`, the pixels' first, and of `lines` of a kernel, where
    an engine takes so many columns at once and so much of a reduction; in both orders or in one,
    where nothing is loaded, and with and without own parts that are early, or without: `ways`.
    `single`: rows have no columns."""
    *pixels, cols, summed = extents
    rows = [sizes(pixels[0], 1, 6), sizes(pixels[1], 1), sizes(pixels[2], 1, 14 if single else 5)]
    b, y, x = (a.ravel() for a in np.meshgrid(*rows, indexing="ij"))
    whole = x == pixels[2]
    keep = (whole | (y == 1)) & (whole & (y == pixels[1]) | (b == 1))
    wide_first = sizes(cols, wide)
    around = (np.repeat(a[keep], len(wide_first)) for a in (b, y, x))
    beside = np.tile(wide_first, np.count_nonzero(keep))
    inner = [
        [summed] if depth is None else sizes(summed, depth, 10, halves=True),
        [lines] if lines == 1 else [lines, 1],
        range(math.prod(ways)),
    ]
    k, i, way = np.ix_([0], *inner)[1:]
    first, second, third, fourth = (a.reshape(-1, 1, 1, 1) for a in (*around, beside))
    return TileSizes(first, second, third, fourth, k, i, way % ways[0], way >= ways[0])


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
        found = [
            TileLoop(dim, int(size), reduction)
            for several, reduction in ((nested, False), (summed, True))
            for dim, size in several
            if dim is not None and size < extents[dim]
        ]
        if found and one.early:
            found[-1] = replace(found[-1], ahead=True)
        return tuple(found)

    return loops
