"""Candidates for a sum of products: rows x columns x reduction x loop order x split over cores.

Every size below is an array over all candidates of one split, so the whole search is a handful of
numpy expressions; the few that are cheapest become tilings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.cost import overlapped, rounded, transfer
from compiler.fuse.group import Group
from compiler.nest.bounds import Box
from compiler.nest.ir import Nest
from compiler.plan.make_plan import vector_steps
from compiler.tile.ir import Estimate, TileLoop
from compiler.tile.machine import Route, route, temporary_type
from compiler.tile.partition import boxes, grids
from compiler.tile.roles import Roles, roles
from simmodel.arch import Arch
from simmodel.dtype import accumulator_of, product_type, size_of
from simmodel.isa.cycles import fold_interval, product_cycles
from simmodel.isa.functions import BINARY, TERNARY, UNARY
from simmodel.isa.matrix import tile_limits

KEPT = 8
"""Cheapest candidates of each split that are looked at closely."""


@dataclass(frozen=True)
class Candidate:
    """Loops, parts and estimate of one choice."""

    loops: tuple[TileLoop, ...]
    parts: tuple[Box, ...]
    estimate: Estimate


def sizes(extent: int, grain: int, most: int = 14) -> list[int]:
    """Tile sizes worth trying for a loop of `extent`: even cuts, on multiples of `grain`."""
    found = {extent}
    pieces = 2
    while pieces < 2 * extent and len(found) < most:
        size = -(-extent // pieces)
        size = -(-size // grain) * grain if size > grain else size
        if size >= extent:
            size = -(-extent // pieces)
        found.add(max(1, size))
        pieces = math.ceil(pieces * 1.5)
    return sorted(found | ({grain} if grain < extent else set()) | {1}, reverse=True)


def search(group: Group, arch: Arch, cores: int, slots: int) -> Iterator[Candidate]:
    """Candidates for `group`, whose head is a sum of products, on up to `cores` cores."""
    head = group.head
    found = roles(head)
    extents = head.shape
    grain = {} if found.col is None else {found.col: min(arch.matrix.cols, extents[found.col])}
    allowed = [d for d in range(head.rank) if extents[d] > 1]
    for grid in grids(extents, allowed, cores):
        parts = boxes(extents, grid, grain)
        yield from _Search(group, arch, slots, found, parts).candidates()


class _Search:
    """The search for one split; `box` is the largest part."""

    def __init__(
        self, group: Group, arch: Arch, slots: int, found: Roles, parts: tuple[Box, ...]
    ) -> None:
        self.group, self.arch, self.slots = group, arch, slots
        self.found, self.parts = found, parts
        self.head: Nest = group.head
        self.way: Route = route(self.head, group.tensors, arch)
        self.box = [max(part[d][1] for part in parts) for d in range(self.head.rank)]
        self.source = group.tensors[self.head.operands[0].tensor]
        self.weight = group.tensors[self.head.operands[1].tensor]
        self.lead = [
            d
            for d in range(self.head.rank)
            if d not in (found.y, found.x, found.col) and self.box[d] > 1
        ]

    def _extent(self, dim: int | None) -> int:
        if dim is None:
            return 1
        return self.box[dim] if dim < self.head.rank else self.head.dims[dim].extent

    def candidates(self) -> Iterator[Candidate]:
        """The cheapest candidates that fit by their sizes."""
        found, matrix = self.found, self.arch.matrix
        deep = matrix.depth if matrix.kind == "cube" else matrix.rows
        axes = [
            sizes(self._extent(found.y), 1),
            sizes(self._extent(found.x), 1, 5),
            sizes(self._extent(found.col), matrix.cols),
            sizes(self._extent(found.k), deep, 6),
            [0, 1],
        ]
        y, x, n, k, order = (a.ravel() for a in np.meshgrid(*axes, indexing="ij"))
        keep = (x == self._extent(found.x)) | (y == 1)
        limit = matrix.max_pixels
        if limit is not None and matrix.granularity != "tile":
            keep &= y * x <= limit
        y, x, n, k, order = (a[keep] for a in (y, x, n, k, order))
        price = self._price(y, x, n, k, order)
        fits = price["fits"]
        if not fits.any():
            fits = price["need"] == price["need"].min()
        total = np.where(fits, price["total"], np.inf)
        for index in np.argsort(total, kind="stable")[:KEPT]:
            if not np.isfinite(total[index]):
                break
            choice = (int(y[index]), int(x[index]), int(n[index]), int(k[index]), int(order[index]))
            yield Candidate(self._loops(*choice), self.parts, self._estimate(price, index))

    def _estimate(self, price: dict[str, Any], index: int) -> Estimate:
        fields = ("total", "matrix", "vector", "memory", "bytes")
        return Estimate(*(float(price[name][index]) for name in fields))

    def _loops(self, y: int, x: int, n: int, k: int, order: int) -> tuple[TileLoop, ...]:
        found = self.found
        loops = [TileLoop(d, 1) for d in self.lead]
        rows = [(found.y, y), (found.x, x)]
        cols = [(found.col, n)]
        for dim, size in rows + cols if order == 0 else cols + rows:
            if dim is not None and size < self._extent(dim):
                loops.append(TileLoop(dim, size))
        if found.k is not None and k < self._extent(found.k):
            loops.append(TileLoop(found.k, k, reduction=True))
        return tuple(loops)

    def _price(self, y: Any, x: Any, n: Any, k: Any, order: Any) -> dict[str, Any]:
        """Memory needed and cycles expected, for arrays of candidates."""
        found, arch = self.found, self.arch
        ny, nx = -(-self._extent(found.y) // y), -(-self._extent(found.x) // x)
        nn, nk = -(-self._extent(found.col) // n), -(-self._extent(found.k) // k)
        lead = math.prod(self.box[d] for d in self.lead)
        taps = math.prod(self.head.dims[t.dim].extent for t in found.taps)
        a_bytes = self._input_rows(y, found.y) * self._input_rows(x, found.x) * k
        a_bytes = a_bytes * size_of(self.source.dtype)
        w_bytes = taps * n * k * size_of(self.weight.dtype)
        tiles, split = ny * nx * nn, nk > 1
        a_loads = np.where(
            split, tiles * nk, np.where(order == 0, ny * nx, ny * nx * np.where(ny * nx > 1, nn, 1))
        )
        w_loads = np.where(
            split, tiles * nk, np.where(order == 1, nn, nn * np.where(nn > 1, ny * nx, 1))
        )
        w_lead = lead if self._moves_weights() else np.where(w_loads == 1, 1, lead)
        pixels = y * x * n
        tail = self._tail(y, x, n)
        local, accumulators, weights = self._memory(
            a_bytes, w_bytes, pixels, tail, (a_loads, w_loads, tiles, split, taps)
        )
        need = local
        fits = local <= arch.memories.local.size
        for role, amount in (("accumulators", accumulators), ("weights", weights)):
            memory = arch.memories.get(role)
            if memory is not None:
                fits = fits & (amount <= memory.size)
        cycles = self._product(y * x, n, k, taps)
        startup = arch.matrix.startup.cycles(arch.clock)
        matrix = lead * tiles * nk * (cycles + startup)
        vector = lead * tiles * tail["cycles"]
        cores = len(self.parts)
        load_name = arch.copy_engine("dram", arch.matrix.input) or next(iter(arch.copy_))
        store_name = arch.copy_engine("local", "dram") or next(iter(arch.copy_))
        load_engine, store_engine = arch.copy_[load_name], arch.copy_[store_name]
        run = self._input_run(x, k)
        a_moved = rounded(arch, a_bytes, run)
        load = transfer(arch, load_engine, lead * a_loads, a_moved, cores)
        load = load + transfer(arch, load_engine, w_lead * w_loads, w_bytes, cores)
        load = load + transfer(
            arch, load_engine, lead * tiles * (tail["loads"] > 0), tail["loads"], cores
        )
        out_bytes = pixels * size_of(self.group.result.dtype)
        out_run = np.where(n < self._extent(found.col), n, n * x) * size_of(self.group.result.dtype)
        stored = rounded(arch, out_bytes, out_run)
        store = transfer(arch, store_engine, lead * tiles, stored, cores)
        shared = cores * (
            lead * a_loads * a_moved
            + w_lead * w_loads * w_bytes
            + lead * tiles * (stored + tail["loads"])
        )
        first = transfer(arch, load_engine, 2, (a_moved + w_bytes) / 2, cores)
        last = transfer(arch, store_engine, 1, stored, cores) + tail["cycles"] + cycles
        memory = np.maximum(np.maximum(load, store), shared / arch.dram_bytes_per_cycle)
        total = overlapped(matrix, vector, memory, 0.0 * memory, first + last)
        return {
            "total": total, "matrix": matrix, "vector": vector, "memory": memory,
            "bytes": shared, "fits": fits, "need": need,
        }  # fmt: skip

    def _moves_weights(self) -> bool:
        return any(self.head.operands[1].uses(d) for d in self.lead)

    def _input_rows(self, size: Any, dim: int | None) -> Any:
        if dim is None:
            return 1
        for tap in self.found.taps:
            if tap.row == dim:
                window = (self.head.dims[tap.dim].extent - 1) * tap.dilation
                return (size - 1) * tap.stride + window + 1
        return size

    def _input_run(self, x: Any, k: Any) -> Any:
        item = size_of(self.source.dtype)
        strides = self.source.storage.strides
        if 1 in strides and self.found.k is not None:
            return np.where(k < self._extent(self.found.k), k, k * x) * item
        return x * item

    def _tail(self, y: Any, x: Any, n: Any) -> dict[str, Any]:
        """Vector cycles, loaded bytes and buffer bytes of the group's tail per tile."""
        arch = self.arch
        wide = temporary_type(arch)
        elements = y * x * n
        cycles: Any = 0.0 * elements
        loads: Any = 0 * elements
        space: Any = 0 * elements
        late = vector_steps(self.head, self.way, arch)
        lanes = arch.vector.wide_lanes or arch.vector.lanes
        startup = arch.vector.startup.cycles(arch.clock)
        if late:
            cycles = cycles + late * (startup + y * x * np.ceil(n / lanes))
            space = space + (size_of(wide) * elements if late > 1 else 0)
        for nest in self.group.nests[1:]:
            cost = _cost_class(nest)
            cycles = cycles + startup + y * x * np.ceil(n / lanes) * getattr(arch.vector.cost, cost)
            space = space + elements * size_of(wide)
            for access in nest.operands:
                if access.tensor in self.group.inside:
                    continue
                spread = self.group.tensors[access.tensor].elements > elements.max() / 8
                if spread:
                    item = size_of(self.group.tensors[access.tensor].dtype)
                    loads = loads + elements * item
                    space = space + self.slots * elements * item
        return {"cycles": cycles, "loads": loads, "space": space}

    def _memory(
        self, a_bytes: Any, w_bytes: Any, pixels: Any, tail: dict[str, Any],
        turns: tuple[Any, Any, Any, Any, int],
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        a_loads, w_loads, tiles, split, taps = turns
        arch, slots = self.arch, self.slots
        tiles = tiles * (2 if self.lead else 1)
        local = a_bytes * np.where(np.maximum(a_loads, tiles * bool(self.lead)) > 1, slots, 1)
        w_space = w_bytes * np.where(np.maximum(w_loads, 2 * bool(self.lead)) > 1, slots, 1)
        kind = size_of(accumulator_of(self.source.dtype))
        kept = split | (taps > 1 and arch.matrix.granularity != "conv")
        kept = kept | (arch.matrix.granularity == "tile") | (not self.way.direct)
        sums = pixels * kind * np.where(kept, slots if not self.way.direct else 1, 0)
        local = local + pixels * size_of(self.group.result.dtype) * slots + tail["space"]
        if len(self.group.nests) > 1:
            local = local + pixels * size_of(temporary_type(arch)) * slots
        local = local + 4096 * 0
        weights = 0 * pixels
        accumulators = 0 * pixels
        if arch.matrix.weights == "weights":
            weights = w_space
        else:
            local = local + w_space
        if self.way.sums == "accumulators":
            accumulators = sums
        else:
            local = local + sums
        return local, accumulators, weights

    def _product(self, pixels: Any, n: Any, k: Any, taps: int) -> Any:
        matrix = self.arch.matrix
        dtype = product_type(self.source.dtype)
        if matrix.granularity == "conv":
            return product_cycles(matrix, dtype, pixels, n, k, taps)
        if matrix.granularity == "gemm":
            return product_cycles(matrix, dtype, pixels, n, k) * taps
        rows, cols = tile_limits(self.arch)
        limit = matrix.max_pixels or 1 << 30
        length = np.minimum(pixels, limit)
        count = -(-pixels // length) * -(-n // cols) * -(-k // rows) * taps
        startup = matrix.startup.cycles(self.arch.clock)
        inner = np.array([fold_interval(matrix, dtype, int(m), cols, rows) for m in length])
        once = product_cycles(matrix, dtype, length, cols, rows)
        return count * (inner + startup) + taps * (once - inner)


def _cost_class(nest: Nest) -> str:
    for table in (UNARY, BINARY, TERNARY):
        if nest.function in table:
            return table[nest.function].cost
    return "simple"
