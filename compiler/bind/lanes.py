"""How a sum of products lies on the vector engine: what goes along the lanes, and what loops walk.

    x, y, n of 7 x 7 x 512 on 64 lanes       n: 8 full vectors, not 7 lanes of 64
    b, y, (j k), n with three dimensions     b outside, an instruction walks y, (j k), n

Prices and emission both ask here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def lane_of(extents: Sequence[tuple[int, int]], lanes: float) -> int | None:
    """The dimension of a result that lies along the lanes: the one that leaves fewest of them
    empty, of several the one that moves on in memory least; None: the result is one element.

    Args:
        extents: dimensions and their extents, as they lie in memory, slowest first.
        lanes: elements of a vector.
    """
    moving = [(dim, extent) for dim, extent in extents if extent > 1]
    if not moving:
        return None
    best = min(reversed(moving), key=lambda each: math.ceil(each[1] / lanes) / each[1])
    return best[0]


def kept_dims(extents: Sequence[int], adds: Sequence[bool], rank: int) -> set[int]:
    """Dimensions that one instruction walks: the last, most of the reduction, most of the rows.

    Args:
        extents: of all dimensions, that of the lanes last.
        adds: whether a dimension is added up.
        rank: dimensions of an instruction.
    """
    last = len(extents) - 1
    others = sorted(range(last), key=lambda axis: -extents[axis])
    sums, rows = ([axis for axis in others if adds[axis] == added] for added in (True, False))
    wanted = dict.fromkeys([*sums[:1], *rows[:1], *others])
    return {last, *list(wanted)[: max(0, rank - 1)]}
