"""Which links a transfer takes on a mesh, torus or ring of cores: dimension by dimension.

        0 -> 1 -> 2    3         shape [2, 4]: cores are numbered along the last dimension, and a
                  |              transfer goes along that one first: 0 to 6 over 1 and 2
        4    5    6    7

A torus and a ring go round the shorter way, upward where both are as long. A broadcast takes each
link once, as far as its ways are the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

Hop = tuple[int, int]
"""A link between neighbours: the core that it leaves, and the one that it enters."""
End = Sequence[int] | None
"""Cores at one end of a transfer; None: a memory that belongs to no core, at all ports."""


@dataclass(frozen=True)
class Grid:
    """Cores at the nodes of a mesh or torus."""

    shape: tuple[int, ...]
    wraps: bool
    ports: tuple[int, ...] = ()
    """Cores at whose nodes memories that belong to no core join, each with an equal part of the
    bytes."""

    @property
    def cores(self) -> int:
        return math.prod(self.shape)

    @property
    def links(self) -> int:
        """From core to neighbour, in both directions."""
        extents = (n for n in self.shape if n > 1)
        return sum(self.cores // n * 2 * (n if self.wraps and n > 2 else n - 1) for n in extents)

    def crossed(self, source: End, target: End) -> tuple[Mapping[Hop, float], int]:
        """The links that a transfer takes, with the part of its bytes that each carries, and the
        most hops of any of its bytes."""
        ends = (None if end is None else tuple(end) for end in (source, target))
        return _crossed(self, *ends)

    def usual(self, source: End, target: End) -> tuple[float, float]:
        """Of transfers as big as each other, one for each core, of which either end may be the
        core's own (empty): what the busiest link carries of one's bytes, and the mean of hops."""
        ends = (None if end is None else tuple(end) for end in (source, target))
        return _usual(self, *ends)

    def snake(self, count: int) -> list[int]:
        """The first `count` cores in an order in which neighbours are neighbours on the grid."""
        last = self.shape[-1]
        rows = [range(first, first + last) for first in range(0, count, last)]
        order = [core for number, row in enumerate(rows) for core in row[:: (-1) ** number]]
        return [core for core in order if core < count]


@lru_cache(1 << 16)
def _route(shape: tuple[int, ...], wraps: bool, source: int, target: int) -> tuple[Hop, ...]:
    found, here, stride = list[Hop](), source, 1
    for extent in reversed(shape):
        at, goal = source // stride % extent, target // stride % extent
        ahead = (goal - at) % extent
        forward = 2 * ahead <= extent if wraps else goal > at
        for _ in range(ahead if forward else (at - goal) % extent):
            after = (at + (1 if forward else -1)) % extent
            found.append((here, here := here + (after - at) * stride))
            at = after
        stride *= extent
    return tuple(found)


_Cores = tuple[int, ...] | None


@lru_cache(1 << 14)
def _crossed(grid: Grid, source: _Cores, target: _Cores) -> tuple[Mapping[Hop, float], int]:
    parts, most = defaultdict[Hop, float](float), 0
    sources = grid.ports if source is None else source
    targets = [(port,) for port in grid.ports] if target is None else [target]
    share = 1 / (len(sources) if source is None else 1) / len(targets)
    for start in sources:
        for ends in targets:
            routes = [_route(grid.shape, grid.wraps, start, end) for end in ends]
            most = max(most, *map(len, routes))
            for hop in dict.fromkeys(hop for route in routes for hop in route):
                parts[hop] += share
    return parts, most


@lru_cache(1 << 8)
def _usual(grid: Grid, source: _Cores, target: _Cores) -> tuple[float, float]:
    loads, hops = defaultdict[Hop, float](float), 0
    for core in range(grid.cores):
        own = [(core,) if end == () else end for end in (source, target)]
        parts, most = _crossed(grid, *own)
        hops += most
        for hop, part in parts.items():
            loads[hop] += part
    return max(loads.values(), default=0.0), hops / grid.cores
