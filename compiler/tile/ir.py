"""A tiled group: its loops with tile sizes, the part of each core, and what that was estimated at.

for loop in loops:            outermost first; each walks its range in steps of `size`
    ...one tile of the group's result (or, under a reduction loop, of its sums)
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.fuse.layer import Layer
from compiler.nest.bounds import Box


@dataclass(frozen=True)
class TileLoop:
    """One loop over tiles."""

    dim: int
    """Position in the head's dims: an output dim, or the reduction loop that is split."""
    size: int
    """Positions per tile; the last tile may have fewer."""
    reduction: bool = False


@dataclass(frozen=True)
class Estimate:
    """What the cost model expects, in cycles, for the busiest core."""

    total: float
    matrix: float
    vector: float
    memory: float
    bytes: float
    """DRAM bytes of all cores."""


@dataclass(frozen=True)
class Tiled:
    """A group with its loops."""

    group: Layer
    loops: tuple[TileLoop, ...]
    parts: tuple[Box, ...]
    """Part of the result for each core that takes part; the others idle."""
    estimate: Estimate
