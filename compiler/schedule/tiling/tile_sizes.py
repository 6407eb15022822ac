"""Candidates for a sum of products: the sizes of their tiles, as arrays over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from compiler.target.equal_engines import Columns, largest


@dataclass(frozen=True)
class TileSizes:
    """Tile sizes as arrays over candidates, or along an axis of their own where every one meets
    every other; what does not depend on a size is then worked out once for all of them."""

    b: Any
    y: Any
    x: Any
    n: Any
    k: Any
    i: Any
    """Rows of the kernel; all of them, or one."""
    order: Any
    """0: rows outside columns, 1: inside."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of an array over all candidates."""
        return np.broadcast_shapes(*map(np.shape, self._size_arrays))

    def one(self, index: int) -> TileSizes:
        """The sizes of one candidate, by its position among all."""
        return TileSizes(*each(self._size_arrays, self.shape, index))

    def some(self, order: Any) -> TileSizes:
        """The sizes of some candidates, by their positions among all."""
        return TileSizes(*chosen(self.shape, order, *self._size_arrays))

    def shared(self, sizes: Sequence[str], units: int, columns: Columns | None) -> TileSizes:
        """What the engine takes that has most to do, where `units` share a tile; `sizes` by name,
        that of the slowest dimension first."""
        place = columns and replace(columns, dim=sizes.index("n"))
        cut = largest([getattr(self, name) for name in sizes], range(len(sizes)), units, place)
        return replace(self, **dict(zip(sizes, cut, strict=True)))

    @property
    def _size_arrays(self) -> tuple[Any, ...]:
        return self.b, self.y, self.x, self.n, self.k, self.i, self.order

    @property
    def pixels(self) -> Any:
        """Output pixels of a tile."""
        return self.b * self.y * self.x

    @property
    def outputs(self) -> Any:
        """Result elements of a tile."""
        return self.pixels * self.n


def each(columns: Iterable[Any], shape: tuple[int, ...], index: int) -> list[Any]:
    """What columns say of one of `shape` candidates, by its position."""
    at = [int(place) for place in np.unravel_index(index, shape)]
    found = []
    for column in map(np.asarray, columns):
        skipped = len(shape) - column.ndim
        along = zip(at[skipped:], column.shape, strict=True)
        found.append(column[tuple([0 if extent == 1 else place for place, extent in along])])
    return found


def chosen(shape: tuple[int, ...], order: Any, *columns: Any) -> list[Any]:
    """What columns say of some of `shape` candidates, by their positions."""
    at = np.unravel_index(order, shape)
    return [np.broadcast_to(np.asarray(column), shape)[at] for column in columns]
