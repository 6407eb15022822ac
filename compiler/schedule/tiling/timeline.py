"""The time that a group takes, tile by tile: engines in order, each waiting for what it needs.

A coarse model of what the machine will do: an engine runs its share of one layer after another, a
product and the vector work behind it overlap by pieces, transfers run ahead. Of a run of equal
tiles a few are followed, the others take as long as the last of these.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from compiler.geometry.tile_trace import Repeat, TileStep, TileTrace
from compiler.schedule.tiling.problem import TilePrices

FOLLOWED = 3
"""Tiles of a run that are followed one by one."""


@dataclass(frozen=True)
class TileWork:
    """What the layers of one tile do."""

    shares: tuple[TilePrices | None, ...]
    loads: Mapping[str, float]
    """Held input -> cycles of its load for this tile."""
    moves: Mapping[int, float]
    """Layer -> cycles of the vector engine for borders and for what is handed on."""
    stores: Mapping[int, float]
    """Layer -> cycles of the store of its result, where the group stores it."""
    constants: Mapping[int, float] = field(default_factory=dict)
    """Layer -> cycles of the load of constants that stay, in the first tile."""
    bytes: float = 0.0
    """That DRAM moves for `loads` and `stores`."""
    flash: float = 0.0
    """The same of flash."""


@dataclass
class Total:
    """Sums over all tiles of one core."""

    arrays: tuple[str, ...]
    """By layer, the matrix engine of its products."""
    by_array: dict[str, float] = field(default_factory=dict)
    vector: float = 0.0
    load: float = 0.0
    store: float = 0.0
    bytes: float = 0.0
    flash: float = 0.0

    @property
    def matrix(self) -> float:
        """Of the busiest matrix engine."""
        return max(self.by_array.values(), default=0.0)

    def add(self, work: TileWork, times: int) -> None:
        """`times` tiles of this work."""
        self.vector += times * sum(work.moves.values())
        self.load += times * sum(work.loads.values())
        self.store += times * sum(work.stores.values())
        self.bytes += times * work.bytes
        self.flash += times * work.flash
        for array, share in zip(self.arrays, work.shares, strict=True):
            if share is not None:
                taken = self.by_array.get(array, 0.0)
                self.by_array[array] = taken + times * (share.matrix - share.gap)
                self.vector += times * share.vector
                self.load += times * share.load
                self.store += times * share.store
                self.bytes += times * share.bytes
                self.flash += times * share.flash


@dataclass
class GroupTimeline:
    """Engines of one core on their way through a group."""

    inputs: tuple[tuple[str, ...], ...]
    """By layer, held tensors that it reads."""
    results: tuple[str, ...]
    """By layer, what it makes."""
    slots: int
    """Of a layer's own buffers."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Held tensor -> slots of its buffer."""
    room: Mapping[int, int] = field(default_factory=dict)
    """Layer -> the layer with which its constants that stay find room; else they always do."""
    told: frozenset[int] = frozenset()
    """Layers that wait in every tile until all that it loads is there: the token for constants that
    stay stands behind these loads."""
    waiting: frozenset[int] = frozenset()
    """Layers whose own buffers find no room beside those of the layer before."""
    arrays: Mapping[int, str] = field(default_factory=dict)
    """Layer -> the matrix engine of its products; else `matrix`."""
    stages: tuple[range, ...] = ()
    """Layers that work on one tile at a time: those of each stage on the tile behind that of the
    stage before; none: all work on one."""
    room_ahead: int = 1 << 20
    """Layers before its first use at which what a tile loads finds room in the tile before."""
    come: bool = False
    """Whether the first constants that the group streams have come with the group before."""
    begun: float = 0.0
    """When the layer before started."""
    loaded: float = 0.0
    """When what this tile loads is there."""
    starts: dict[int, float] = field(default_factory=dict)
    """Layer -> when it started in this tile."""
    free: dict[str, float] = field(default_factory=dict)
    """Engine -> when it has done all that it was given."""
    ready: dict[str, float] = field(default_factory=dict)
    """Held tensor -> when its part of this tile is there."""
    used: dict[str, list[float]] = field(default_factory=dict)
    """Held tensor -> when the tiles so far were done with it."""
    stored: dict[str, float] = field(default_factory=dict)
    """Held tensor -> when its part of this tile was stored."""
    moved: dict[int, float] = field(default_factory=dict)
    """Layer -> when what it hands on was last moved."""

    def __post_init__(self) -> None:
        self.readers: dict[str, list[int]] = {name: [] for name in self.places}
        for position, read in enumerate(self.inputs):
            for name in self.readers.keys() & read:
                self.readers[name].append(position)
        self.stages = self.stages or (range(len(self.inputs)),)
        self.known: dict[str, float] = {}
        """`ready` when the stages began with their tiles."""
        self.users = defaultdict[str, tuple[int, int]](lambda: (0, 0))
        """Held tensor -> the stages that make or load it, and that use it last."""
        for name in {*self.places, *chain(*self.inputs)} if len(self.stages) > 1 else ():
            layers = enumerate(zip(self.inputs, self.results, strict=True))
            users = [p for p, (inputs, result) in layers if name in (*inputs, result)]
            used = [n for p in users for n, stage in enumerate(self.stages) if p in stage]
            self.users[name] = (min(used), max(used)) if used else (0, 0)
        # A tile is made before that of a later stage is over.
        self.places = {
            name: max(1, slots + self.users[name][0] - self.users[name][1])
            for name, slots in self.places.items()
        }

    def run(self, walked: TileTrace, work: Callable[[Repeat, TileStep], TileWork]) -> float:
        """Cycles from the first load to the last store."""
        tiles = deque[TileWork | None]([None] * len(self.stages), len(self.stages))
        for run in walked.alike:
            done = work(run, walked.moment(run.first))
            followed = min(run.count, FOLLOWED)
            before = 0.0
            for _ in range(followed):
                before = self.end
                tiles.appendleft(done)
                self._run_tiles(tiles)
            self._skip((run.count - followed) * (self.end - before))
        for _ in self.stages[1:]:
            tiles.appendleft(None)
            self._run_tiles(tiles)
        return self.end + (walked.repeats - 1) * self.end

    @property
    def end(self) -> float:
        """When everything so far is done."""
        return max(self.free.values(), default=0.0)

    def rest(self, *, looped: bool) -> float:
        """Cycles at the end in which the load engine is free for what the next group needs.

        What stands behind a loop is issued when its last layer is.
        """
        issued = max(self.starts.values(), default=0.0) if looped else 0.0
        return max(0.0, self.end - max(self.free.get("load", 0.0), issued))

    def _skip(self, cycles: float) -> None:
        for times in (self.free, self.ready, self.stored):
            for name in times:
                times[name] += cycles
        self.starts = {position: start + cycles for position, start in self.starts.items()}
        self.used = {name: [t + cycles for t in times] for name, times in self.used.items()}
        self.begun += cycles
        self.loaded += cycles

    def _take(self, engine: str, earliest: float, cycles: float) -> tuple[float, float]:
        start = max(self.free.get(engine, 0.0), earliest)
        self.free[engine] = start + cycles
        return start, start + cycles

    def _run_tiles(self, tiles: Iterable[TileWork | None]) -> None:
        """Each stage with its own tile."""
        self.known = dict(self.ready)
        for number, (stage, work) in enumerate(zip(self.stages, tiles, strict=True)):
            if work is None:
                continue
            for name, cycles in work.loads.items():
                if self.users[name][0] == number:
                    free = max(self._vacant(name), self._roomy(name))
                    self.ready[name] = self.loaded = self._take("load", free, cycles)[1]
            for position in stage:
                share = work.shares[position]
                if share is not None:
                    self._run_layer(position, share, work)
            for name in self.places:
                if self.users[name][1] == number:
                    self._release(name)

    def _there(self, position: int) -> float:
        """When all is there that a layer reads: of stages before, what they made last."""
        names = self.inputs[position]
        if len(self.stages) == 1:
            return max([self.ready.get(name, 0.0) for name in names], default=0.0)
        stage = next(number for number, stage in enumerate(self.stages) if position in stage)
        found = ((self.ready if self.users[n][0] == stage else self.known, n) for n in names)
        return max((times.get(name, 0.0) for times, name in found), default=0.0)

    def _vacant(self, name: str) -> float:
        """When a slot of a held tensor may be written."""
        used, slots = self.used.get(name, ()), self.places.get(name, self.slots)
        return used[-slots] if len(used) >= slots else 0.0

    def _roomy(self, name: str) -> float:
        """When the tile before leaves room for what this one loads: it shares bytes with what that
        still uses, or stores."""
        first = next((p for p, read in enumerate(self.inputs) if name in read), 0)
        layer = first + len(self.inputs) - self.room_ahead
        if layer < len(self.inputs):
            return self.starts.get(layer, 0.0) if layer > 0 else 0.0
        return max((end for engine, end in self.free.items() if engine != "load"), default=0.0)

    def _release(self, name: str) -> None:
        """Nothing of this tile needs a held tensor any more."""
        # A layer of which no tile has needed anything yet has not read it either.
        readers = self.readers[name]
        done = [self.ready.get(self.results[p], 0.0) for p in readers]
        done += [self.moved.get(p, 0.0) for p in readers]
        self.used.setdefault(name, []).append(max(*done, self.stored.get(name, 0.0), 0.0))

    def _run_layer(self, position: int, share: TilePrices, work: TileWork) -> None:
        there = self._there(position)
        there = max(there, self.loaded) if position in self.told else there
        pieces, arrivals = max(1.0, share.tiles), max(1.0, share.arrivals)
        first = arrived = 0.0
        if position in work.constants:
            free = self.starts.get(min(self.room.get(position, 0), position - 1), 0.0)
            first = self._take("load", free, work.constants[position])[1]
        if share.load:
            ended = self.ready.get(self.results[position - 1], 0.0)
            free = ended if position in self.waiting else self.begun
            begin, arrived = self._take("load", free, share.load)
            come = share.lead if self.come and not self.starts else 0.0
            first = max(first, begin + max(share.first - come, share.load / arrivals))
        begun = done = max(there, first)
        if share.load and arrivals > self.slots:
            # What has no slot yet is loaded while the layer is at work, in turns with one slot.
            taken = share.load + (share.matrix or share.vector) * (self.slots == 1)
            arrived = max(arrived, begun + taken * (1 - self.slots / arrivals))
            self.free["load"] = max(self.free["load"], arrived)
        room = self._vacant(self.results[position]) if self.results[position] in self.places else 0
        if share.matrix:
            # The array fills anew where products have waited, not right behind each other.
            array = self.arrays.get(position, "matrix")
            spared = share.gap if 0 < self.free.get(array, 0.0) >= done else 0.0
            products = share.matrix - spared
            start, done = self._take(array, done if share.vector else max(done, room), products)
            begun = start
            done = max(done, arrived + products / arrivals)
            self.free[array] = done
            behind = start + products / pieces
        else:
            behind = done
        if share.vector:
            _, end = self._take("vector", max(behind, room), share.vector)
            done = max(end, done + share.vector / pieces)
            self.free["vector"] = done
        if share.load and arrivals > 1:
            # A stream runs ahead of the work by what its buffers hold, and holds up what follows.
            paced = done - self.slots * (done - begun) / arrivals
            self.free["load"] = max(self.free["load"], paced)
        self.begun = self.starts[position] = begun
        if position in work.moves:
            self.moved[position] = self._take("vector", done, work.moves[position])[1]
        self.ready[self.results[position]] = done
        store = share.store + work.stores.get(position, 0.0)
        if store:
            begin = done - store * (1 - 1 / pieces) if share.store else done
            self.stored[self.results[position]] = self._take("store", begin, store)[1]
