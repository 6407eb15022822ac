"""Work of a tile shared by equal engines of a core: along which dimension, and how much each takes.

    8 lines of 6 pixels x 24 channels, two arrays     4 lines each
    8 lines of 6 pixels x 24 channels, of 8 columns   12 channels each: half of the weights to
                                                      load for each

Products are cut by columns if each engine's columns stay full, everything else by the slowest
dimension with more than one position, so engines write disjoint ranges. Cost model and emission
use this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.schedule_ir.layer import Binding
from compiler.target.array_mapping import roles
from compiler.tensor_ir.nest import Nest
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class Columns:
    """The column loop of a product."""

    dim: int
    full: int
    """Columns that one engine computes at once."""


def columns_of(engine: str, arch: Arch) -> int:
    """Output channels that an engine computes at once."""
    return arch.matrix.cols if engine == "matrix" else arch.vector.lanes


def columns(nest: Nest, way: Binding, arch: Arch) -> Columns | None:
    """The column loop of `nest` as engines may share it, those that multiply and those that finish;
    None if there is none, or if the hardware needs parts that are interleaved in memory."""
    if not way.product or nest.depthwise or arch.front_end.sync == "interlock":
        return None
    dim = roles(nest).col
    return None if dim is None else Columns(dim, columns_of(way.engine, arch))


def cut_dim(
    extents: Sequence[tuple[int, int]], units: int, columns: Columns | None = None
) -> int | None:
    """The dimension to cut between `units` engines, of `extents` by dimension, slowest first; None:
    there is one position only."""
    if columns is not None and dict(extents)[columns.dim] >= units * columns.full:
        return columns.dim
    return next((dim for dim, extent in extents if extent > 1), None)


def shares(extent: int, units: int) -> list[tuple[int, int]]:
    """First position and number of positions of each engine; the last ones may be empty."""
    size = -(-extent // units)
    starts = [min(extent, number * size) for number in range(units)]
    return [(start, min(size, extent - start)) for start in starts]


def largest(
    sizes: Sequence[Any], order: Sequence[int], units: int, columns: Columns | None = None
) -> list[Any]:
    """The first engine's share of a tile of `sizes` by dimension, which may be arrays over
    candidates; `order` has the dimensions, slowest first."""
    found = list(sizes)
    if units == 1:
        return found
    cuts: list[tuple[int, Any]] = [(dim, np.greater(found[dim], 1)) for dim in order]
    if columns is not None:
        full = np.greater_equal(found[columns.dim], units * columns.full)
        cuts.insert(0, (columns.dim, full))
    whole: Any = True
    for dim, able in cuts:
        taken = np.where(whole & able, -(-np.asarray(found[dim]) // units), found[dim])
        found[dim] = int(taken) if np.ndim(taken) == 0 else taken
        whole = whole & ~np.asarray(able)
    return found
