"""Tiles of a group of several layers: split over cores, tile size, halos, constants that stay.

Larger tiles mean fewer halos and fewer loads of weights, smaller ones less memory and a quicker
start. For each split and halo policy the largest tiles that fit are followed in time, and the
quickest are taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from compiler.cost import copy_cycles
from compiler.fuse.group import Group
from compiler.nest.bounds import Box
from compiler.plan.facts import Facts, Unholdable
from compiler.plan.ir import Buffer
from compiler.plan.make_plan import alive, held_tensors, walks
from compiler.tile.ir import Estimate, OuterLoop, Schedule, Tiled
from compiler.tile.partition import boxes, grids
from compiler.tile.share import Share, Shares
from compiler.tile.timeline import Timeline, Work
from compiler.tile.walk import Moment, Run, Unwalkable, Walked, volume
from simmodel.arch import Arch
from simmodel.dtype import size_of

NOTHING = Estimate(0, 0, 0, 0, 0)
SMALLEST = 5
"""Tile sizes that are tried after the largest one that fits."""


@dataclass
class GroupSearch:
    """Schedules of groups on one machine; what layers take is remembered between groups."""

    arch: Arch
    slots: int
    cores: int
    rolling: bool | None = None
    """Halo policy: keep, compute again; None: whichever is quicker."""
    fill: float = 1.0
    """Share of each memory that groups may use."""
    shares: dict[int, Shares] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.facts = Facts(self.arch)

    def schedules(self, group: Group) -> list[Schedule]:
        """Schedules that fit by their sizes, the quickest first."""
        found: list[Schedule] = []
        for parts in self._splits(group):
            for loops in self._loops(group, parts):
                found += self._fitting(group, parts, loops)
        return sorted(found, key=lambda schedule: schedule.estimate.total)

    def _splits(self, group: Group) -> Iterator[tuple[Box, ...]]:
        """Parts for the cores, along the axes that all results can be cut."""
        last = group.tensors[group.results[-1]].shape
        axes = [a for a in cut_axes(last) if all(_has(group, n, a, last) for n in group.results)]
        best = 0
        for grid in grids(last, axes, self.cores):
            parts = boxes(last, grid, {})
            if len(parts) * 2 <= best:
                continue
            best = max(best, len(parts))
            yield parts

    def _loops(
        self, group: Group, parts: Sequence[Box]
    ) -> Iterator[list[tuple[OuterLoop, ...]]]:
        """Families of loops, each from large tiles to small ones."""
        last = group.tensors[group.results[-1]].shape
        part = parts[0]
        axes = [
            a
            for a in cut_axes(last)
            if part[a][1] > 1 and all(_has(group, n, a, last) for n in group.results)
        ]
        yield [()]
        batch = OuterLoop(0, 1)
        around = (batch,) if 0 in axes and len(last) > 2 else ()
        if around:
            yield [(OuterLoop(0, n),) for n in _halves(part[0][1])]
        for axis in axes:
            if axis == 0 and around:
                continue
            sizes = _halves(max(p[axis][1] for p in parts))
            for rolling in (True, False) if self.rolling is None else (self.rolling,):
                yield [(*around, OuterLoop(axis, n, rolling=rolling)) for n in sizes]

    def _fitting(
        self, group: Group, parts: tuple[Box, ...], family: list[tuple[OuterLoop, ...]]
    ) -> Iterator[Schedule]:
        """The largest tiles of a family that fit, and some smaller ones."""
        tried = 0
        for loops in family:
            if tried == SMALLEST:
                return
            bare = Schedule(group, tuple(_bare(group)), parts, NOTHING, loops)
            try:
                schedule = _Fitter(self, bare).schedule()
            except (Unwalkable, Unholdable):
                return
            if schedule is None:
                continue
            tried += 1
            yield schedule

    def shares_on(self, cores: int) -> Shares:
        """What layers take while `cores` cores work."""
        if cores not in self.shares:
            self.shares[cores] = Shares(self.arch, self.slots, cores)
        return self.shares[cores]


def _bare(group: Group) -> Iterator[Tiled]:
    for layer in group.layers:
        yield Tiled(layer, (), (tuple((0, n) for n in layer.result.shape),), NOTHING)


def cut_axes(shape: tuple[int, ...]) -> list[int]:
    """Axes of a result that tiles and cores may cut: batch, rows; tokens; never channels."""
    if len(shape) >= 4:
        axes = [0, 2]
    elif len(shape) == 3:
        axes = [0, 1]
    else:
        axes = [0]
    return [axis for axis in axes if axis < len(shape) and shape[axis] > 1]


def _has(group: Group, name: str, axis: int, last: tuple[int, ...]) -> bool:
    shape = group.tensors[name].shape
    return axis < len(shape) and shape[axis] == last[axis]


def _halves(extent: int) -> list[int]:
    """Sizes of even cuts of `extent`, largest first, the whole excluded."""
    found = []
    pieces = 2
    while pieces < 2 * extent:
        size = -(-extent // pieces)
        if size < extent and size not in found:
            found.append(size)
        pieces = max(pieces + 1, math.ceil(pieces * 1.34))
    return found


@dataclass
class _Fitter:
    """One split and one set of loops of a group: does it fit, and how long does it take?"""

    search: GroupSearch
    bare: Schedule

    @property
    def group(self) -> Group:
        return self.bare.group

    @property
    def arch(self) -> Arch:
        return self.search.arch

    @cached_property
    def walked(self) -> tuple[Walked, ...]:
        return walks(self.bare)

    @cached_property
    def busiest(self) -> Walked:
        """The part that computes most."""
        return max(
            self.walked,
            key=lambda w: sum(volume(b) for m in w.moments for b in m.work if b is not None),
        )

    @cached_property
    def held(self) -> frozenset[str]:
        return frozenset(name for m in self.busiest.moments for name in m.holds)

    def schedule(self) -> Schedule | None:
        """The schedule with its estimate; None where it does not fit."""
        tensors = held_tensors(self.bare, self.search.slots, self.walked, self.search.facts)
        count = len(self.group.layers)
        bare = [self._left(list(tensors.values()), position) for position in range(count)]
        staying = [bool(self.bare.loops)] * count
        by_size = sorted(range(count), key=lambda p: -self._constant_bytes(p))
        for drop in (None, *by_size):
            if drop is not None:
                if not staying[drop] or not self._constant_bytes(drop):
                    return None
                staying[drop] = False
            rooms = self._rooms(bare, staying)
            if rooms is None:
                continue
            layers = tuple(
                replace(tiled, resident=stays)
                for tiled, stays in zip(self.bare.layers, staying, strict=True)
            )
            made = self._cut(replace(self.bare, layers=layers), rooms)
            if made is not None:
                return made
        return None

    def _left(self, buffers: list[Buffer], position: int) -> dict[str, float]:
        """Memory role -> bytes that held tensors leave while layer `position` runs."""
        last = len(self.group.layers) - 1
        left = {}
        for role, memory in self.arch.memories.on_chip().items():
            live = (b for b in buffers if b.role == role and alive(b, position, last))
            left[role] = memory.size * self.search.fill - sum(b.bytes * b.slots for b in live)
        return left

    def _rooms(self, bare: list[dict[str, float]], staying: list[bool]) -> list[float] | None:
        """Per layer, bytes of local memory that are left for its own buffers."""
        stay: dict[str, int] = {}
        for layer, stays in zip(self.group.layers, staying, strict=True):
            for constant in self.search.facts.layer(layer).constants if stays else ():
                stay[constant.role] = stay.get(constant.role, 0) + constant.bytes
        rooms = [
            {role: size - stay.get(role, 0) for role, size in left.items()} for left in bare
        ]
        if any(size < 0 for room in rooms for size in room.values()):
            return None
        return [room["local"] for room in rooms]

    def _constant_bytes(self, position: int) -> int:
        """Bytes of a layer's constants that can stay."""
        facts = self.search.facts.layer(self.group.layers[position])
        return sum(constant.bytes for constant in facts.constants)

    def _cut(self, schedule: Schedule, rooms: list[float]) -> Schedule | None:
        """`schedule` with loops for every layer, for the sizes of its largest share."""
        shares = self.search.shares_on(len(self.bare.parts))
        least = min(rooms)
        layers = []
        for position, tiled in enumerate(schedule.layers):
            sizes = self.busiest.largest_work(position)
            for room in (least / 2, least, rooms[position]):
                share = shares.of(tiled.layer, sizes, self.held, room, resident=tiled.resident)
                if share is not None:
                    break
            if share is None:
                return None
            layers.append(replace(tiled, loops=share.loops))
        schedule = replace(schedule, layers=tuple(layers))
        return replace(schedule, estimate=self._estimate(schedule, rooms))

    def _estimate(self, schedule: Schedule, rooms: list[float]) -> Estimate:
        group, arch, walked = self.group, self.arch, self.busiest
        shares = self.search.shares_on(len(self.bare.parts))
        cores = len(self.bare.parts)
        total = dict.fromkeys(("matrix", "vector", "load", "store", "bytes"), 0.0)
        least = min(rooms)

        def share_of(position: int, box: Box | None) -> Share | None:
            if box is None:
                return None
            tiled = schedule.layers[position]
            sizes = tuple(n for _, n in box)
            for room in (least / 2, least, rooms[position], math.inf):
                found = shares.of(tiled.layer, sizes, self.held, room, resident=tiled.resident)
                if found is not None:
                    return found
            return None

        def work(run: Run, moment: Moment) -> Work:
            made = self._work(run, moment, tuple(map(share_of, _count(group), moment.work)))
            if run.first == 0:
                made = replace(made, constants=constants)
            times = run.count * walked.repeats
            for share in made.shares:
                if share is not None:
                    for name in ("matrix", "vector", "load", "store", "bytes"):
                        total[name] += times * getattr(share, name)
            total["vector"] += times * sum(made.moves.values())
            total["load"] += times * sum(made.loads.values())
            total["store"] += times * sum(made.stores.values())
            total["bytes"] += times * self._moved(run, moment)
            return made

        engine = arch.copy_[arch.copy_engine("dram", "local") or next(iter(arch.copy_))]
        staying = {p: self._constant_bytes(p) for p, t in enumerate(schedule.layers) if t.resident}
        constants = {
            p: float(copy_cycles(arch, engine, n, cores)) for p, n in staying.items() if n
        }
        inputs = tuple(tuple(n for n in la.inputs if n in self.held) for la in group.layers)
        results = tuple(layer.result.name for layer in group.layers)
        cycles = Timeline(inputs, results, self.search.slots).run(walked, work)
        total["load"] += sum(constants.values())
        total["bytes"] += sum(staying.values())
        everything = cores * total["bytes"]
        memory = max(total["load"], total["store"], everything / arch.dram_bytes_per_cycle)
        busy = max(cycles, memory, total["matrix"], total["vector"])
        return Estimate(busy, total["matrix"], total["vector"], memory, everything)

    def _work(self, run: Run, moment: Moment, shares: tuple[Share | None, ...]) -> Work:
        arch, group, cores = self.arch, self.group, len(self.bare.parts)
        load = arch.copy_[arch.copy_engine("dram", "local") or next(iter(arch.copy_))]
        store = arch.copy_[arch.copy_engine("local", "dram") or next(iter(arch.copy_))]
        lanes = arch.vector.lanes
        startup = arch.vector.startup.cycles(arch.clock)
        loads = {
            name: float(copy_cycles(arch, load, size, cores))
            for name, size in self._loaded(run, moment).items()
        }
        moves: dict[int, float] = {}
        for name, (dim, shift, overlap) in self.busiest.handed(run.first).items():
            hold = moment.holds[name]
            row = volume(hold.box) / max(1, hold.box[dim][1])
            pieces = -(-overlap // shift)
            reader = group.held[name][-1]
            moves[reader] = moves.get(reader, 0.0) + pieces * startup + overlap * row / lanes
        stores = {}
        for name, box in moment.out.items():
            if name in group.held:
                size = volume(box) * size_of(group.tensors[name].dtype)
                stores[group.made[name]] = float(copy_cycles(arch, store, size, cores))
        return Work(shares, loads, moves, stores)

    def _loaded(self, run: Run, moment: Moment) -> dict[str, int]:
        """Bytes of each held input that this tile loads."""
        before = self.busiest.moments[run.first - 1] if run.first else None
        return {
            name: volume(hold.box) * size_of(self.group.tensors[name].dtype)
            for name, hold in moment.holds.items()
            if name not in self.group.made
            and (before is None or before.holds.get(name) != hold)
        }

    def _moved(self, run: Run, moment: Moment) -> float:
        """Bytes of held tensors that one tile moves, off chip, of one core."""
        stored = sum(
            volume(box) * size_of(self.group.tensors[name].dtype)
            for name, box in moment.out.items()
            if name in self.group.held
        )
        return sum(self._loaded(run, moment).values()) + stored


def _count(group: Group) -> range:
    return range(len(group.layers))
