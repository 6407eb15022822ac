"""A layer's share of one tile of its group: how it is cut further, and what that takes.

What the group holds costs the layer neither transfers nor space. All ways to cut a share are priced
at once and remembered, since groups that are tried one after another have most shares in common.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from compiler.cost.multicast import Cores
from compiler.schedule.fusion.partition import Outlined, Outlines
from compiler.schedule.tiling.candidates import choices, loop_maker
from compiler.schedule.tiling.elementwise_tiling import price_elementwise, priced_slabs
from compiler.schedule.tiling.layer_price import price
from compiler.schedule.tiling.problem import TilePrices, TilingProblem
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import TileLoop
from compiler.target.product_tiles import TileSizes, chosen
from compiler.target.tracking import Hashed, TrackedArch, TrackedCache
from simmodel.arch.record import Arch

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class ParetoFront:
    """Ways to do one share: each next one is slower and needs less memory."""

    needs: list[float]
    """Negated bytes of local memory, ascending."""
    make: Callable[[int], TilePrices]
    """The share at a position."""

    def within(self, room: float) -> TilePrices | None:
        """The quickest one that needs at most `room` bytes."""
        position = bisect_left(self.needs, -room)
        return None if position == len(self.needs) else self.make(position)

    def up_to(self, size: int) -> ParetoFront:
        """The ways that need at most `size` bytes."""
        first = bisect_left(self.needs, -size)
        return ParetoFront(self.needs[first:], lambda position: self.make(first + position))

    def smallest(self) -> TilePrices | None:
        """The one that needs least memory."""
        return self.within(-self.needs[-1]) if self.needs else None


@dataclass
class MappingCache:
    """Shares on one machine, each worked out once."""

    arch: Arch
    slots: int
    cores: Cores
    """That use memory at the same time, by parts of a group's results."""
    held_up: float = 0.0
    """Cycles that a layer costs its successor, for each cycle of its own loads that cannot run
    ahead of its work: the successor is taken to load as much."""
    outlines: Outlines = field(default_factory=Outlines)
    fronts: dict[object, ParetoFront] = field(default_factory=dict)
    """Of all layers that are alike."""
    shared: dict[object, ParetoFront] = field(default_factory=dict)
    """Of all of this machine whose layers and cores are alike."""
    known: TrackedCache[ParetoFront] | None = None
    """Fronts of any machines."""
    hidden: float = 0.0
    """Share of what follows a layer's last load that is taken to be hidden: `Estimate.visible`."""
    standing: dict[int, Hashed] = field(default_factory=dict)
    """What stands in fields of this one, for `known`."""
    problems: dict[object, tuple[TrackedArch, TilingProblem]] = field(default_factory=dict)
    """Of fronts that differ in sizes alone the first, and what was read for them."""

    def front(
        self, layer: Layer, sizes: Sizes, held: frozenset[str], *, shared: Collection[str] = ()
    ) -> ParetoFront:
        """All ways worth taking for `sizes` of a layer's result, while the tensors `held` are on
        chip, constants that stay among them, and `shared` ones in shared memory."""
        outlined = self.outlines.layer(layer)
        mine = outlined.renamed(held)
        near = outlined.renamed(shared) - mine  # where what is held lies does not matter
        key = (outlined.number, sizes, mine, near)
        front = self.fronts.get(key)
        if front is None:
            front = self._cached_front(outlined, sizes, mine, near)
            if outlined.first.product:
                front = front.up_to(self.arch.memories.local.size)
            self.fronts[key] = front
        return front

    def _cached_front(
        self, outlined: Outlined, sizes: Sizes, mine: frozenset[str], near: frozenset[str]
    ) -> ParetoFront:
        """A front, whatever the size of local memory: this machine's, or that of one like it."""
        alike = outlined.number, mine, near
        if alike not in self.problems:
            seen = TrackedArch(self.arch)
            arch = self.arch if self.known is None else seen.machine
            problem = self._problem(outlined.first, sizes, mine, near, arch)
            problem = problem.on_alike_cores() if outlined.first.product else problem
            self.problems[alike] = seen, problem
        seen, first = self.problems[alike]

        def make(_: Arch) -> ParetoFront:
            ways = self._product_front if outlined.first.product else _elementwise_front
            return ways(first.of(sizes))

        own = *alike, sizes, first.cores, self.held_up, self.hidden
        if own in self.shared:
            return self.shared[own]
        if self.known is None:
            front = make(self.arch)
        else:
            named = (tuple(p for p, n in enumerate(outlined.names.values()) if n in some)
                     for some in (mine, near))  # fmt: skip
            key = outlined.outline, sizes, *named, self.slots, *own[-3:]
            front = self.known.of(key, self.arch, self.standing, make, seen)
        self.shared[own] = front
        return front

    def exactly(
        self, layer: Layer, sizes: Sizes, held: frozenset[str], loops: tuple[TileLoop, ...], *,
        shared: Collection[str] = (),
    ) -> TilePrices:  # fmt: skip
        """The share with these loops; of a product, with the nearest order that is priced."""
        problem = self._problem(layer, sizes, held, shared, self.arch)
        tiles = {loop.dim: loop.size for loop in loops}
        if not layer.product:
            pieces = [min(tiles.get(dim, size), size) for dim, size in enumerate(sizes)]
            return price_elementwise(problem, pieces).of_core(loops, self.cores.count)
        found, dims = problem.roles, [loop.dim for loop in loops]
        extents = ((dim, problem.extent(dim)) for dim in problem.dims)
        cut = [n if dim is None else min(tiles.get(dim, n), n) for dim, n in extents]
        rows = [dims.index(dim) for dim in problem.dims[:3] if dim in dims]
        late = found.col in dims and bool(rows) and dims.index(found.col) < min(rows)
        early = any(loop.ahead for loop in loops)
        choice = TileSizes(*(np.array([column]) for column in (*cut, int(late), early)))
        priced = TilePrices(*(np.ravel(column)[0] for column in price(problem, choice)))
        return priced.of_core(loops, self.cores.count)

    def _problem(
        self, layer: Layer, sizes: Sizes, held: frozenset[str], shared: Collection[str], arch: Arch
    ) -> TilingProblem:
        cores = self.cores.for_rank(len(layer.result.shape))
        return TilingProblem(layer, arch, sizes, cores, self.slots, held, frozenset(shared))

    def _product_front(self, problem: TilingProblem) -> ParetoFront:
        choice = choices(problem)
        priced, shape = price(problem, choice), choice.shape
        if self.held_up:
            # Small pieces hold the loads of the layer behind this one up until its last pieces.
            ahead = self.slots * priced.matrix / priced.arrivals
            late = priced.total + self.held_up * np.maximum(priced.load - ahead, 0.0)
        else:  # what the last load brings is worked on behind it: several tiles, if it serves these
            work = np.maximum(priced.matrix, priced.vector) / priced.arrivals
            late = np.maximum(priced.total, priced.load + work)
        loads = priced.load >= np.maximum(priced.matrix, priced.vector)
        ways = late - self.hidden * priced.rest * loads, priced.need, priced.fits
        total, need, fits = (np.broadcast_to(column, shape).ravel() for column in ways)
        order = np.argsort(np.where(fits, total, np.inf), kind="stable")
        order = order[: int(fits.sum())]
        least = np.minimum.accumulate(need[order])
        order = order[np.append(True, need[order][1:] < least[:-1])] if len(order) else order

        # What is kept is the front alone, of all candidates, and neither network nor machine.
        taken, loops, cores = choice.some(order), loop_maker(problem), problem.cores.count
        columns = chosen(shape, order, *priced)

        @cache
        def make(position: int) -> TilePrices:
            prices = TilePrices(*(column[position] for column in columns))
            sizes = TileSizes(*(column[position] for column in taken.sizes))
            return prices.of_core(loops(sizes), cores)

        return ParetoFront((-need[order].astype(float)).tolist(), make)


def _elementwise_front(problem: TilingProblem) -> ParetoFront:
    """Shares in more and more pieces, the quickest first."""
    most = 4096 // max(1, problem.arch.core_count)
    front: list[TilePrices] = []
    for loops, priced in sorted(priced_slabs(problem, most), key=lambda slab: slab[1].total):
        if not front or priced.need < front[-1].need:
            front.append(priced.of_core(loops, problem.cores.count))
    return ParetoFront([-share.need for share in front], front.__getitem__)
