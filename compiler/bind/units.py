"""How the work of a tile is shared by equal engines: by which dimension, and how much each takes.

    8 lines of 6 pixels x 24 channels, two arrays     4 lines each
    1 line of 6 pixels x 24 channels                  3 pixels each, or 12 channels where they
                                                      are planes

The slowest dimension that has more than one position is cut, so what engines write lies apart.
Prices and emission both ask here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def cut_dim(extents: Sequence[tuple[int, int]]) -> int | None:
    """The dimension that is cut; None: there is one position only.

    Args:
        extents: dimensions and their extents, slowest first.
    """
    return next((dim for dim, extent in extents if extent > 1), None)


def shares(extent: int, units: int) -> list[tuple[int, int]]:
    """First position and positions of each engine; the last ones may have none."""
    size = -(-extent // units)
    starts = [min(extent, number * size) for number in range(units)]
    return [(start, min(size, extent - start)) for start in starts]


def largest(sizes: Sequence[Any], order: Sequence[int], units: int) -> list[Any]:
    """What the first engine takes of a tile; sizes may be arrays over candidates.

    Args:
        sizes: positions by dimension.
        order: dimensions, slowest first.
        units: engines.
    """
    found = list(sizes)
    if units == 1:
        return found
    whole: Any = True
    for dim in order:
        cut = whole & np.greater(found[dim], 1)
        taken = np.where(cut, -(-np.asarray(found[dim]) // units), found[dim])
        found[dim] = int(taken) if np.ndim(taken) == 0 else taken
        whole = whole & ~cut
    return found
