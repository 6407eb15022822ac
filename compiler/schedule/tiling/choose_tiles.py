"""Tile sizes, loop order, the split over cores, halos and constants that stay, by the cost model.

Of a layer alone that is a sum of products all candidates are priced at once with numpy: rows,
columns, reduction and both loop orders; another one walks its result in slabs. Groups have larger
tiles with fewer halos and fewer loads of weights, or smaller ones with less memory and a quicker
start: for each split and halo policy the largest tiles that fit are followed in time, then smaller
ones while that pays, and the best are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, product

from compiler.cost.multicast import Cores, MulticastRoute
from compiler.cost.transfer import Transfer
from compiler.errors import DoesNotFit
from compiler.geometry.clusters import keeps_apart
from compiler.geometry.cuts import (
    boxes,
    dividing,
    grain_of,
    grids,
    heads,
    splits,
    tiled_channels,
    worth_cutting,
)
from compiler.geometry.tile_trace import Unwalkable
from compiler.passes import Count, Factor, Share
from compiler.schedule.fusion.partition import Outlines
from compiler.schedule.tiling.bounds import LowerBounds
from compiler.schedule.tiling.candidates import cheapest, choices
from compiler.schedule.tiling.elementwise_tiling import free_dims, priced_slabs, together
from compiler.schedule.tiling.group_price import GroupPricer, Loops, Parts, Terms
from compiler.schedule.tiling.layer_mapping import MappingCache, ParetoFront
from compiler.schedule.tiling.layer_price import prices_of
from compiler.schedule.tiling.objective import COLUMNS, SCORES, Objective, charge_of
from compiler.schedule.tiling.problem import TilingProblem
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate, OuterLoop, Schedule, Tiled, TileLoop, single
from compiler.target.array_mapping import roles
from compiler.target.equal_engines import columns_of
from compiler.target.group_facts import Facts, Unholdable
from compiler.target.tracking import TrackedCache
from compiler.tensor_ir.nest import order_of
from simmodel.arch.record import Arch

PRICED = 1 << 14
"""Candidates of groups whose prices are kept."""
HIDDEN = 0.25
"""`hidden` where it is used by default."""
STAGED = 0.97
"""Part of the time that layers that are ahead may leave of what a group takes without."""
MORE = range(1, 4)
"""Tiles more that are tried then: two places of a tensor ask for smaller ones."""
Way = tuple[tuple[TileLoop, ...], Estimate]
"""Loops of a layer alone, and what they take."""


@dataclass(frozen=True)
class Breadth:
    """How much is tried."""

    sizes: Count = 5
    """Tile sizes of one kind of loop, from the largest that fits on."""
    patience: Count = 2
    """Sizes in a row that are no better than the best of their kind before the kind is left."""
    growth: tuple[float, ...] = (1.34,)
    """From one tile size to the next, the number of tiles grows by this factor."""
    splits: Count = 64
    """Ways to split the results over the cores."""
    kept: Count = 8
    """Cheapest candidates of each split of a single product that are looked at closely."""
    tiles: Count = 2048
    """Most tiles of one core where a single layer without a product is cut into slabs."""
    tries: Count = 24
    """Candidates of a single layer that are planned before it is refused, the cheapest ones and as
    many of the smallest tiles."""


@dataclass(frozen=True)
class ChooseTiles:
    """Choose loops and cores for each group.

    before:
        {conv 56x56x64 -> 56x56x64; add}
    after:
        for rows in steps of 14: for columns in steps of 32: {conv; add}   on 2 cores by rows
    """

    cores: Count | None = None
    """Most cores to use; default all."""
    rolling: bool | None = None
    """Whether groups keep what neighbouring tiles share, or compute it again; default: by cost."""
    objective: Objective = "latency"
    """What schedules are compared by; see `objective`."""
    breadth: Breadth = field(default_factory=Breadth)
    """How many schedules of groups are tried."""

    whole: bool = True
    """Whether constants of groups without loops may be loaded as a whole."""
    held_up: Factor = 0.5
    """Weight of loads that hold up those of the next layer, where pieces are chosen."""
    hidden: Share | None = None
    """Share of what a group does behind its last load that does not count where its schedules are
    compared; default 0.25 for those of groups that are formed, in networks whose constants take
    longer to arrive than it takes to compute with them, as the next group loads then, else 0."""
    short_inputs: Factor = 0.05
    """In programs for a range of lengths: share by which a group may take longer at the upper edge,
    so that at shorter lengths all its cores have something to do."""

    def together(self, arch: Arch, slots: int, way: MulticastRoute | None) -> GroupSearch:
        """The search on one machine, which is worth keeping over many groups. Loads reach several
        cores by `way`."""
        return GroupSearch(self, arch, slots, way)


@dataclass
class GroupSearch:
    """Schedules of groups on one machine; what layers take is remembered between groups."""

    tiles: ChooseTiles
    arch: Arch
    slots: int
    way: MulticastRoute | None = None
    """How loads reach several cores."""
    fronts: TrackedCache[ParetoFront] | None = None
    """Shares of layers on any machines."""

    def __post_init__(self) -> None:
        count = self.arch.core_count
        self.cores = min(self.tiles.cores or count, count)
        self.score: Callable[[Estimate], float] = SCORES[self.tiles.objective]
        self.facts, self.outlines = Facts(self.arch), Outlines()
        self.bounds = LowerBounds(self.arch, self.slots, self.outlines, self.facts, self.way)
        self.transfers: dict[object, Transfer] = {}
        self.moves: dict[object, float] = {}
        self.shares: dict[tuple[Cores, float], MappingCache] = {}
        self.alike: dict[object, ParetoFront] = {}
        """Fronts of layers on cores that are alike."""
        self.ways: dict[Hashable, list[Way]] = {}
        """Of layers that are alike, by what lies in shared memory, by breadth, and by split."""
        self.prices: dict[Hashable, list[Schedule]] = {}
        """Of groups that are alike, by parts and loops: none where they do not fit."""

    @property
    def asks(self) -> Hashable:
        """What decides, on one machine, what a group that is cut in some way takes."""
        tiles = self.tiles
        return tiles.objective, tiles.whole, tiles.held_up, tiles.hidden, self.slots, self.way

    @property
    def measures(self) -> Hashable:
        """What decides what a layer alone takes that is cut in some way, loads and moves."""
        return self.tiles.objective, self.slots, self.way

    def trying(self, tiles: ChooseTiles) -> GroupSearch:
        """One with the same `measures`, which shares what is known."""
        other = copy(self)
        other.tiles = tiles
        if other.asks != self.asks:
            other.shares, other.prices = {}, {}
        other.cores = min(tiles.cores or self.arch.core_count, self.arch.core_count)
        return other

    def alone(self, group: Group, planned: Callable[[Schedule, Arch], object]) -> Schedule:
        """The cheapest schedule of one layer for which `planned` finds room; DoesNotFit with the
        smallest sum otherwise."""
        candidates, tries = (
            sorted(self.candidates(group), key=self._visible),
            self.tiles.breadth.tries,
        )
        refusal: DoesNotFit | None = None
        smallest = sorted(candidates[tries:], key=_tile_volume)
        for schedule in (*candidates[:tries], *smallest[:tries]):
            try:
                planned(schedule, self.arch)
            except DoesNotFit as why:
                refusal = why if refusal is None or why.demand < refusal.demand else refusal
                continue
            return schedule
        raise refusal or DoesNotFit(1, 0, "tile", (), (), group.name)

    def candidates(self, group: Group) -> Iterator[Schedule]:
        """Of a group of one layer, in no order; not all of them may fit."""
        (layer,) = group.layers
        splits, outlined = self._layer_splits(layer, group), self.outlines.layer(layer)
        breadth = self.tiles.breadth
        key = outlined.number, outlined.renamed(group.shared), breadth.kept, breadth.tiles
        missing = [parts for parts in splits if (*key, parts) not in self.ways]
        for parts, found in zip(missing, self._priced_loops(group, missing), strict=True):
            self.ways[*key, parts] = list(found)
        for parts in splits:
            for loops, estimate in self.ways[*key, parts]:
                yield single(Tiled(layer, loops, parts, estimate), group)

    def _priced_loops(self, group: Group, splits: Sequence[Parts]) -> Iterator[Iterator[Way]]:
        """Of each split of a layer, loops that are worth a look, and what they take."""
        breadth, columns = self.tiles.breadth, COLUMNS[self.tiles.objective]
        (layer,), problems = group.layers, []
        for parts in splits:
            box = tuple(max(size for _, size in column) for column in zip(*parts, strict=True))
            cores, shared = Cores.of(parts, self.way), frozenset(group.shared)
            problems.append(TilingProblem(layer, self.arch, box, cores, self.slots, shared=shared))
        if not layer.product:
            for problem in problems:
                yield ((n, prices.estimate) for n, prices in priced_slabs(problem, breadth.tiles))
            return
        asked = [(problem, choices(problem)) for problem in problems]
        for one, priced in zip(asked, prices_of(asked), strict=True):
            found = cheapest(*one, priced, columns, breadth.kept)
            yield ((loops, prices.estimate) for loops, prices in found)

    def _layer_splits(self, layer: Layer, group: Group) -> list[Parts]:
        """Parts of a layer's result: every split of a product, of others the one of most parts."""
        if layer.product:
            shape, column = layer.head.shape, roles(layer.head).col
            free = [d for d, extent in enumerate(shape) if extent > 1]
            wide = columns_of(layer.binding.engine, self.arch)
            grain = {} if column is None else {column: min(wide, shape[column])}
        else:
            shape, free = layer.result.shape, free_dims(layer)
            last = order_of(shape, layer.result.storage.strides)[-1:]
            grain = {d: min(self.arch.vector.lanes, shape[d]) for d in last} | together(layer)
        ways = grids(shape, free, self.cores)
        splits = ((grid, boxes(shape, grid, grain, self.arch)) for grid in ways)
        able = [(g, parts) for g, parts in splits if keeps_apart(group, parts, self.arch)]
        if able and not layer.product:
            able = [max(able, key=lambda split: math.prod(split[0].values()))]
        return [parts for _, parts in able]

    def schedules(self, group: Group) -> list[Schedule]:
        """Schedules that fit by their sizes, the best first."""
        pricer = self.pricer(group)
        found: list[Schedule] = []
        best = math.inf
        for parts in self._splits(group):
            if best <= self.score(self.bounds.least(group, len(parts))):
                continue
            for family in self._loops(group, parts):
                found += self._fitting(pricer, parts, family)
            best = min(map(self.weighed, found), default=best)
        found.sort(key=self._visible)
        # Prices may be those of a group that is alike, under its names.
        return [*self._in_stages(pricer, found[0].of(group)), *found] if found else []

    def _in_stages(self, pricer: GroupPricer, schedule: Schedule) -> list[Schedule]:
        """The same with layers that work tiles ahead of others, in tiles as large or a few more, if
        that is quicker: one border between such stages, the best, and another one if that pays
        again. Borders are where products and other work meet, which different engines do."""
        if not schedule.loops:
            return []
        work = [layer.product for layer in pricer.group.layers]
        cuts = [n for n, pair in enumerate(pairwise(work), 1) if len({*pair}) > 1]
        busy = schedule.estimate
        least, best = max(busy.matrix, busy.vector, busy.memory), schedule
        extent = max(part[schedule.loops[-1].axis][1] for part in schedule.parts)
        tiles = -(-extent // schedule.loops[-1].size)
        sizes = {schedule.loops[-1].size, *(-(-extent // (tiles + n)) for n in MORE)}
        while best.estimate.total * STAGED > least:
            now, made = best.loops[-1], list[Schedule]()
            for cut, size in product({*cuts} - {*now.ahead}, sizes):
                loop = replace(now, size=size, ahead=tuple(sorted((*now.ahead, cut))))
                staged = replace(best, loops=(*best.loops[:-1], loop))
                with suppress(Unwalkable, Unholdable):
                    staged = replace(staged, estimate=pricer.estimate(staged))
                    made += [staged] * (staged.estimate.total > 0)
            found = min(made, key=self.weighed, default=best)
            if self.weighed(found) >= self.weighed(best):
                break
            best = found
        return [best] if self.weighed(best) < STAGED * self.weighed(schedule) else []

    def weighed(self, schedule: Schedule) -> float:
        """The score of a schedule among others of its group, with what it costs short inputs."""
        return self.score(schedule.estimate) * charge_of(schedule, self.tiles.short_inputs)

    def _visible(self, schedule: Schedule) -> float:
        """The same of a schedule whose neighbours are at work on what they have while it loads."""
        if not self.tiles.hidden:
            return self.weighed(schedule)
        total = schedule.estimate.visible(self.tiles.hidden)
        return self.weighed(replace(schedule, estimate=replace(schedule.estimate, total=total)))

    def below(self, group: Group, limit: float) -> Estimate | None:
        """Of the best schedule if its score is below `limit`, else None."""
        pricer, best = self.pricer(group), None
        for parts in self._splits(group):
            if limit <= self.score(self.bounds.least(group, len(parts))):
                continue
            for family in self._loops(group, parts):
                for schedule in self._fitting(pricer, parts, family, limit):
                    score = self.weighed(schedule)
                    if score < limit:
                        limit, best = score, schedule.estimate
        return best

    def estimate(self, schedule: Schedule) -> Estimate:
        """What a schedule that need not be the search's own is expected to take."""
        return self.pricer(schedule.group).estimate(schedule)

    def refusal(self, group: Group) -> DoesNotFit:
        """Why a group has no schedules: the bytes of the way that takes the fewest."""
        found = min(self._demands(group), key=_total, default=())
        size = self.arch.memories.local.size
        if (demand := _total(found)) > size:
            levers = (f"memories.local.size of at least {demand} B", "a smaller batch or input")
            where = f"{group.name}: local memory"
            return DoesNotFit(demand, size, "B", found, levers, where)
        terms = ((f"way to cut it beside {len(group.residents)} tensors that stay on chip", 1),)
        return DoesNotFit(1, 0, "tile", terms, (), group.name)

    def _demands(self, group: Group) -> Iterator[Terms]:
        """Of every way to cut a group, the bytes of local memory that it takes at least."""
        pricer = self.pricer(group)
        for parts in self._splits(group):
            for loops in (loops for family in self._loops(group, parts) for loops in family):
                with suppress(Unwalkable, Unholdable):
                    found = pricer.least(parts, loops)
                    if found:
                        yield found

    def pricer(self, group: Group) -> GroupPricer:
        """Prices of one group's schedules."""
        followed = self.tiles.held_up if len(group.layers) > 1 else 0.0
        shares = partial(self._shares_on, held_up=followed)
        return GroupPricer(
            group, self.arch, self.slots, shares, self.facts, self.tiles.whole, self.transfers,
            self.moves, self.way, self.tiles.hidden or 0.0,
        )  # fmt: skip

    def _shares_on(self, cores: Cores, held_up: float) -> MappingCache:
        """What layers take while `cores` work, if those behind them in the group are `held_up`."""
        if (cores, held_up) not in self.shares:
            self.shares[cores, held_up] = MappingCache(
                self.arch, self.slots, cores, held_up, self.outlines, shared=self.alike,
                known=self.fronts, hidden=self.tiles.hidden or 0.0,
            )  # fmt: skip
        return self.shares[cores, held_up]

    def _splits(self, group: Group) -> Iterator[Parts]:
        """Parts for the cores, along the axes that all results can be cut; most cores first."""
        lies = {len(kept.slices) for kept in group.residents.values()}
        ways = [
            parts
            for parts in splits(group, self.arch, self.cores)
            if lies <= {len(parts)} and keeps_apart(group, parts, self.arch)
        ]
        ways.sort(key=len, reverse=True)
        yield from ways[: self.tiles.breadth.splits]

    def _loops(self, group: Group, parts: Parts) -> Iterator[list[Loops]]:
        """Families of loops, each from large tiles to small ones."""
        last = group.tensors[group.results[-1]].shape
        part, growth = parts[0], self.tiles.breadth.growth
        axes = [axis for axis in worth_cutting(group) if part[axis][1] > 1]
        yield [()]
        around = (OuterLoop(0, 1),) if 0 in axes and len(last) > 2 else ()
        if around:
            yield [(OuterLoop(0, n),) for n in cuts(part[0][1], growth)]
        even = [axis for axis in dividing(group) if axis in axes]
        for axis in axes:
            if axis == 0 and around:
                continue
            sizes = cuts(max(p[axis][1] for p in parts), growth)
            # Where tiles share nothing, there is nothing to keep.
            ways = (False,) if axis in even else (True, False)
            for rolling in ways if self.tiles.rolling is None else (self.tiles.rolling,):
                yield [(*around, OuterLoop(axis, n, rolling=rolling)) for n in sizes]
        channels = tiled_channels(group)
        if channels is not None and part[channels][1] > 1:
            grain = grain_of(last, channels, self.arch)
            wide = {-(-n // grain) * grain for n in cuts(part[channels][1], growth)}
            yield [(OuterLoop(channels, n),) for n in sorted(wide - {part[channels][1]})[::-1]]
        for head, inner in product(heads(group), even):
            if head in axes and inner != head:
                sizes = cuts(max(p[inner][1] for p in parts), growth)
                yield [(OuterLoop(head, 1), OuterLoop(inner, n)) for n in sizes]

    def _fitting(
        self, pricer: GroupPricer, parts: Parts, family: list[Loops],
        limit: float | None = None,
    ) -> Iterator[Schedule]:  # fmt: skip
        """The largest tiles of a family that fit, and some smaller ones; with a `limit`, only those
        that may be below it and better than the ones before."""
        tried = worse = 0
        best = math.inf
        for loops in family:
            if tried == self.tiles.breadth.sizes or worse == self.tiles.breadth.patience:
                return
            try:
                if limit is not None:
                    limit = min(limit, best)
                    floor = pricer.floor(parts, loops, self.bounds)
                    if limit <= self.score(floor):
                        return  # smaller tiles do no less
                    ends = pricer.edged(parts, loops, floor)
                    if limit <= self.score(replace(floor, total=ends)):
                        # What may be too large counts as a try once something has fitted.
                        tried, worse = tried + (tried > 0), worse + (tried > 0)
                        continue
                made = self._priced(pricer, parts, loops)
            except (Unwalkable, Unholdable):
                return
            if not made:
                continue
            tried += 1
            score = min(self.score(schedule.estimate) for schedule in made)
            worse = worse + 1 if score >= best else 0
            best = min(best, score)
            yield from made

    def _priced(self, pricer: GroupPricer, parts: Parts, loops: Loops) -> list[Schedule]:
        key = self.outlines.of(pricer.group), parts, loops
        if key not in self.prices:
            ways = (False, True) if self.tiles.objective == "memory" else (False,)
            made = [pricer.price(parts, loops, frugal=frugal) for frugal in ways]
            if len(self.prices) >= PRICED:
                del self.prices[next(iter(self.prices))]
            self.prices[key] = [schedule for schedule in made if schedule is not None]
        return self.prices[key]


def _total(terms: Terms) -> int:
    return sum(size for _, size in terms)


def _tile_volume(schedule: Schedule) -> int:
    """Positions of a layer's result in a tile."""
    (tiled,) = schedule.layers
    sizes = {loop.dim: loop.size for loop in tiled.loops}
    return math.prod(sizes.get(dim, extent) for dim, (_, extent) in enumerate(tiled.parts[0]))


def cuts(extent: int, growth: Sequence[float]) -> list[int]:
    """Sizes of even cuts of `extent`, largest first, the whole excluded: for each factor of
    `growth`, the number of pieces grows by it from 2 on."""
    found: set[int] = set()
    for factor in growth:
        pieces = 2
        while pieces < 2 * extent:
            found.add(-(-extent // pieces))
            pieces = max(pieces + 1, math.ceil(pieces * factor))
    return sorted(found - {extent}, reverse=True)
