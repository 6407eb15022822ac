"""Tiles of a sum of products: their sizes, and what the vector engine takes for one of them.

    lanes along n, rows along x     x k ceil(n / lanes) multiply-adds, and the weights once for each
                                    set of rows whose sums there are registers for

Sizes are numbers, or arrays over candidates. What the array takes: `compiler.cost.work`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.cost.transfer import Flows
from compiler.target.array_mapping import Roles, roles
from compiler.target.equal_engines import Columns, largest
from compiler.target.loops.cover import startup_of
from compiler.tensor_ir.nest import Access, Nest, Tensor, order_of
from simmodel.arch.element_types import accumulator_of, size_of
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property

_PRODUCT, _CHAINED = "vector.product", "vector.ternary.fma"


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
    early: Any = False
    """Whether operands have slots in which cores load their own parts one tile ahead."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of an array over all candidates."""
        return np.broadcast_shapes(*map(np.shape, self.sizes))

    def some(self, order: Any) -> TileSizes:
        """The sizes of one or some candidates, by their positions among all."""
        return TileSizes(*chosen(self.shape, order, *self.sizes))

    def shared(self, sizes: Sequence[str], units: int, columns: Columns | None) -> TileSizes:
        """What the engine takes that has most to do, where `units` share a tile; `sizes` by name,
        that of the slowest dimension first."""
        place = columns and replace(columns, dim=sizes.index("n"))
        cut = largest([getattr(self, name) for name in sizes], range(len(sizes)), units, place)
        return replace(self, **dict(zip(sizes, cut, strict=True)))

    @property
    def sizes(self) -> tuple[Any, ...]:
        """All of them, the order, and whether own parts are early."""
        return self.b, self.y, self.x, self.n, self.k, self.i, self.order, self.early

    @cached_property
    def pixels(self) -> Any:
        """Output pixels of a tile."""
        return self.b * self.y * self.x

    @cached_property
    def outputs(self) -> Any:
        """Result elements of a tile."""
        return self.pixels * self.n


def chosen(shape: tuple[int, ...], order: Any, *columns: Any) -> list[Any]:
    """What columns say of one or some of `shape` candidates, by their positions."""
    at, places = np.unravel_index(order, shape), dict[tuple[int, ...], Any]()
    found = []
    for column in map(np.asarray, columns):  # without a copy of each for all candidates
        sizes = column.shape
        if sizes not in places:
            places[sizes] = 0 * np.asarray(order)
            for place, n in zip(at[len(at) - len(sizes) :], sizes, strict=True):
                places[sizes] = places[sizes] * n + (place if n > 1 else 0)
        found.append(column.ravel().take(places[sizes]))
    return found


def read_extents(access: Access, size: Callable[[int], Any]) -> list[Any]:
    """Positions along each axis that are read for `size` positions of each loop, border
    included."""
    return [
        1 + affine.spare + sum(abs(factor) * (size(dim) - 1) for dim, factor in affine.terms)
        for affine in access.index
    ]


@dataclass(frozen=True)
class VectorProducts:
    """What the vector engine adds up for one tile, or for one piece of its reduction."""

    nest: Nest
    tensors: Mapping[str, Tensor]
    arch: Arch
    units: int
    """Engines that do as much at the same time."""

    @cached_property
    def roles(self) -> Roles:
        """What its loops are for."""
        return roles(self.nest)

    @property
    def source(self) -> Tensor:
        """The left operand."""
        return self.tensors[self.nest.operands[0].tensor]

    def cycles(self, choice: TileSizes) -> Any:
        """Of all its instructions, start-ups included."""
        if not self.arch.vector.product_rows:
            return self._chained(choice)
        n, pixels = choice.n, choice.pixels
        rows = self._rows_per_instruction(choice)
        by_column = self._lane_cycles(choice, n, rows, pixels / rows)
        if self.roles.x is None:
            return by_column
        lanes = self.arch.vector.elements(self._item)
        idle, other = (np.ceil(e / lanes) / e for e in (n, choice.x))
        result = self.tensors[self.nest.tensor]
        order = order_of(result.shape, result.storage.strides)
        col = self.roles.col
        nearer = col is None or order.index(self.roles.x) > order.index(col)
        by_row = (other < idle) | (nearer & (other == idle) & np.greater(choice.x, 1))
        if not np.any(by_row):
            return by_column
        along = self._lane_cycles(choice, choice.x, np.maximum(n, choice.y), pixels / choice.x
                             * n / np.maximum(n, choice.y), columns=False)  # fmt: skip
        return np.where(by_row, along, by_column)

    @property
    def _item(self) -> int:
        return size_of(self.source.dtype)

    @property
    def _taps(self) -> list[int]:
        return [self.nest.dims[tap.dim].extent for tap in self.roles.taps]

    def _rows_per_instruction(self, choice: TileSizes) -> Any:
        """Pixels that an instruction walks: without windows all lie behind each other."""
        strided = any(tap.stride > 1 for tap in self.roles.taps)
        if math.prod(self._taps) == 1 and not strided:
            return choice.pixels
        return np.maximum(np.maximum(choice.x, choice.y), choice.b)

    def _deep(self, choice: TileSizes) -> Any:
        """Positions of the reduction that lie side by side in both operands."""
        taps = self._taps
        order = order_of(self.source.shape, self.source.storage.strides)
        k, index = self.roles.k, self.nest.operands[0].index
        near = k is not None and bool(order) and bool(index[order[-1]].coefficient(k))
        if near and taps and self.roles.taps[-1].dilation == 1:
            return choice.k * taps[-1]
        return np.maximum(choice.k, max(taps, default=1))

    def _lane_cycles(
        self, choice: TileSizes, lane: Any, rows: Any, more: Any, *, columns: bool = True
    ) -> Any:
        """Lanes along an extent of `lane`, an instruction for each of `more` sets of `rows`."""
        arch, vector = self.arch, self.arch.vector
        reach, limit = arch.reach(_PRODUCT)
        whole, deep = choice.k * math.prod(self._taps), self._deep(choice)
        if reach < 3:
            rows, more = np.ones_like(rows), more * rows
        if reach < 2:
            deep = np.ones_like(deep)
        pieces = whole / deep
        if reach > 2:  # where there are no rows, another dimension of the reduction
            pieces = np.where(np.equal(rows, 1) & (pieces > 1), np.ones_like(pieces), pieces)
        count = more * pieces * np.ceil(lane / (limit or lane))
        lanes = vector.elements(self._item)
        factor = arch.factor(_PRODUCT, "multiply")
        work = more * whole * rows * np.ceil(lane / lanes) * factor
        flows = Flows(arch)
        again = np.ceil(rows / vector.product_rows) * more
        flows.add("local", whole * lane * self._item, lane * self._item, times=again)
        steady = more * whole * rows * self._item
        flows.add("local", steady, deep * self._item, times=np.ceil(lane / lanes))
        sums = more * rows * lane * size_of(accumulator_of(self.source.dtype))
        flows.add("local", sums, sums, times=pieces, write=True)
        flows.add("local", sums, sums, times=np.where(pieces > 1, pieces, 0))
        cleared = np.where(pieces > 1, self._elements(more * rows * lane), 0)
        start = startup_of(arch)
        return count * start + np.maximum(work, self.units * flows.longest()) + cleared

    def _chained(self, choice: TileSizes) -> Any:
        """A multiply-add for each position of the reduction."""
        arch, wide = self.arch, size_of(accumulator_of(self.source.dtype))
        reach, limit = arch.reach(_CHAINED)
        lanes, factor = arch.vector.elements(wide), arch.factor(_CHAINED, "multiply")
        rows, n = choice.pixels, choice.n
        inner = self._rows_per_instruction(choice)
        once = rows / inner if reach > 1 else rows
        count = once * np.ceil(n / (limit or n))
        flows = Flows(arch)
        flows.add("local", rows * self._item, self._item)
        flows.add("local", n * self._item, n * self._item)
        flows.add("local", rows * n * wide, n * wide)
        flows.add("local", rows * n * wide, n * wide, write=True)
        work = rows * np.ceil(n / lanes) * factor
        times = choice.k * math.prod(self._taps)
        step = count * startup_of(arch) + np.maximum(work, self.units * flows.longest())
        return times * step + self._elements(rows * n)

    def _elements(self, count: Any) -> Any:
        """Cycles of an instruction that writes so many sums."""
        lanes = self.arch.vector.elements(4)
        return startup_of(self.arch, ()) + np.ceil(count / lanes)


def lanes_take(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> float:
    """Cycles of the vector engine for all of a sum of products in one piece."""
    found, units = roles(nest), arch.vector.units
    b, y, x, n, k = (
        1 if d is None else nest.dims[d].extent
        for d in (found.b, found.y, found.x, found.col, found.k)
    )
    whole, once = TileSizes(b, y, x, n, k, 1, 0), VectorProducts(nest, tensors, arch, units)
    walked = whole.outputs * whole.k * math.prod(nest.dims[tap.dim].extent for tap in found.taps)
    return float(nest.macs // walked * once.cycles(whole)) / units
