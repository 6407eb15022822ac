"""The price of a group for one split and one set of loops: does it fit, and how long does it take?

The group's tensors are laid out for the sizes that the walk finds, every layer gets a share that
fits beside them, and the engines are followed in time. Only the parts of a core at the edge and of
one in the middle are walked: the others are like one of these. The plan walks them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from compiler.cost.multicast import Cores, MulticastRoute, passed_cycles
from compiler.cost.transfer import Path, Transfer
from compiler.geometry.cuts import channels_of, telling
from compiler.geometry.tile_trace import (
    Repeat,
    TileStep,
    TileTrace,
    TraceCache,
    largest,
    trace_parts,
    volume,
)
from compiler.schedule.residency.buffer import GroupBufferMaker, TileBuffer, alive, earliest, in_use
from compiler.schedule.tiling.bounds import LowerBounds
from compiler.schedule.tiling.layer_mapping import LayerMapping, MappingCache, ParetoFront, Sizes
from compiler.schedule.tiling.timeline import GroupTimeline, TileWork, Total
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate, OuterLoop, Schedule, Tiled
from compiler.target.group_facts import Facts, ResidentConstant
from compiler.target.vector import move_cycles
from compiler.tensor_ir.bounds import Box
from simmodel.arch.dtype import size_of
from simmodel.arch.record import Arch

TAIL = 0.05
"""Share of a group's constants from which on it matters how those of its last layer arrive."""
DENSE = 0.9
"""Share of a memory that can be filled with what is loaded ahead: gaps take the rest."""
NOTHING = Estimate(0, 0, 0, 0, 0)
Terms = tuple[tuple[str, int], ...]
"""What takes memory, and its bytes."""


@dataclass
class GroupPricer:
    """Prices of one group."""

    group: Group
    arch: Arch
    slots: int
    shares: Callable[[Cores], MappingCache]
    """Shares by the cores that work."""
    memory: TraceCache
    facts: Facts
    """Kept between groups."""
    whole: bool = True
    """Whether constants may be loaded as a whole where no loop reads them again."""
    transfers: dict[object, Transfer] = field(default_factory=dict)
    """Kept between groups: by the tensor's layout and the way that it goes."""
    arrivals: dict[tuple[int, int, bool], tuple[float, float]] = field(default_factory=dict)
    """By layer, the number of cores and whether constants of the group alone stay: cycles until
    its constants that stay are there, and the bytes that DRAM moves for them."""
    way: MulticastRoute | None = None
    """How loads reach several cores."""

    def __post_init__(self) -> None:
        self.count = len(self.group.layers)
        self._walks: dict[object, tuple[TileTrace, ...]] = {}
        memories = self.arch.memories.on_chip()
        room = self.group.room
        self.room = {role: float(room(role, memory.size)) for role, memory in memories.items()}
        self.bare = tuple(
            Tiled(layer, (), (tuple((0, n) for n in layer.result.shape),), NOTHING)
            for layer in self.group.layers
        )

    def own(self, layer: Layer) -> Iterator[ResidentConstant]:
        """Constants of a layer that can stay for this group alone."""
        pinned = self.group.pinned
        return (c for c in self.facts.layer(layer).constants if c.key[0] not in pinned)

    @cached_property
    def pinned(self) -> Mapping[int, tuple[ResidentConstant, ...]]:
        """Layer -> constants that it loads for this group and others."""
        found: dict[int, tuple[ResidentConstant, ...]] = {}
        left = {name for name, home in self.group.pinned.items() if home.loads}
        for position, layer in enumerate(self.group.layers if left else ()):
            read = left.intersection(layer.inputs)
            left -= read
            constants = self.facts.layer(layer).constants if read else ()
            if read:
                found[position] = tuple(c for c in constants if c.key[0] in read)
        return found

    @cached_property
    def constants(self) -> tuple[Mapping[str, int], ...]:
        """Per layer: memory role -> bytes of constants that can stay there."""
        found = []
        for layer in self.group.layers:
            sizes: dict[str, int] = {}
            for constant in self.own(layer):
                sizes[constant.role] = sizes.get(constant.role, 0) + constant.bytes
            found.append(sizes)
        return tuple(found)

    def transfer(
        self, name: str, sizes: Sizes, room: Sizes, cores: int, *, store: bool
    ) -> Transfer:
        """One load or store of `sizes` of what the group holds, in a buffer with `room`."""
        tensor, home = self.group.tensors[name], self.group.home(name)
        order = self.facts.passing(self.group, name).order
        lies = tensor.shape, tensor.dtype, tensor.storage.strides
        key = lies, home, order, sizes, room, cores, store
        if key not in self.transfers:
            way = Path(self.arch, cores, home, "local", store=store)
            self.transfers[key] = way.box(tensor, sizes, order, room)
        return self.transfers[key]

    @cached_property
    def constant_bytes(self) -> tuple[int, ...]:
        """Per layer, bytes of constants that can stay."""
        return tuple(sum(sizes.values()) for sizes in self.constants)

    def price(
        self, parts: tuple[Box, ...], loops: tuple[OuterLoop, ...], *, frugal: bool = False
    ) -> Schedule | None:
        """The schedule with its estimate; None where it does not fit.

        Args:
            parts: of the results, one for each core that takes part.
            loops: around the tiles of a part.
            frugal: take as little memory as the loops allow, and no constants that stay.

        Raises:
            Unwalkable, Unholdable: the group cannot be cut like this.
        """
        schedule = Schedule(self.group, self.bare, parts, NOTHING, loops)
        walked = self._part_traces(parts, loops)
        buffers = self._group_buffers(schedule, walked)
        left = self._left(list(buffers.values()))
        if any(size < 0 for room in left for size in room.values()):
            return None
        busiest = max(walked, key=_work_of)
        places = self._contended_slots(buffers, busiest)
        candidate = _Candidate(self, schedule, busiest, frugal, places)
        most = None
        if not frugal and (loops or self.whole):
            most = self._staying(candidate, left)
        if most is not None and loops:
            return most
        if most is not None:
            most = self._trickled(candidate, left, most)
        # Without loops, constants pass through once anyway: whole, or piece by piece.
        none = [False] * self.count
        rooms = self._rooms(left, none, looped=bool(loops))
        streamed = None if rooms is None else candidate.cut(rooms, none)
        found = [made for made in (most, streamed) if made is not None]
        return min(found, key=lambda made: made.estimate.total, default=None)

    def estimate(self, schedule: Schedule) -> Estimate:
        """What a schedule is expected to take whose layers have loops already, if it fits.

        Raises:
            Unwalkable, Unholdable: the group cannot be cut like this.
        """
        walked = trace_parts(
            self.group, schedule.loops, schedule.parts, self.memory, telling(schedule.parts)
        )
        buffers = self._group_buffers(schedule, walked)
        left = self._left(list(buffers.values()))
        busiest = max(walked, key=_work_of)
        places = self._contended_slots(buffers, busiest)
        candidate = _FixedCandidate(self, schedule, busiest, False, places)
        staying = [tiled.resident for tiled in schedule.layers]
        rooms = self._rooms(left, staying, looped=bool(schedule.loops))
        apart = self._rooms(left, staying, looped=True)
        made = None if rooms is None else candidate.cut(rooms, staying, apart)
        return NOTHING if made is None else made.estimate

    def least(self, parts: tuple[Box, ...], loops: tuple[OuterLoop, ...]) -> Terms:
        """What takes local memory where it is fullest, with the smallest buffers that the layers
        can do with; nothing where one can do with none.

        Raises:
            Unwalkable, Unholdable: the group cannot be cut like this.
        """
        schedule = Schedule(self.group, self.bare, parts, NOTHING, loops)
        walked = trace_parts(self.group, loops, parts, self.memory, telling(parts))
        held = self._group_buffers(schedule, walked).values()
        busiest = max(walked, key=_work_of)
        needs = _Candidate(self, schedule, busiest, frugal=True).least()
        if needs is None:
            return ()
        kept = ("what stays between groups", self.group.reserved.get("local", 0))
        sums = []
        for position, need in enumerate(needs):
            there = [b for b in held if alive(b, position, self.count - 1)]
            own = (f"buffers of {self.group.layers[position].name}", math.ceil(need))
            terms = (kept, *((b.name, b.bytes * b.slots) for b in there), own)
            sums.append(tuple(term for term in terms if term[1]))
        return max(sums, key=lambda terms: sum(size for _, size in terms))

    def again(self, parts: tuple[Box, ...], loops: tuple[OuterLoop, ...]) -> float:
        """DRAM bytes of constants that are loaded more than once, at least, in these loops or in
        any with smaller tiles: all cannot stay, and of those that do not every tile loads its own.

        Raises:
            Unwalkable: the group cannot be cut like this.
        """
        excess = sum(
            max(0.0, sum(own.get(role, 0) for own in self.constants) - size)
            for role, size in self.room.items()
        )
        if not excess or not loops:
            return 0.0
        # A smaller first tile does not do more than this one: what has two tiles here has two.
        times = min(
            walked.repeats * min(2, sum(moment.work[p] is not None for moment in walked.moments))
            for walked in self._part_traces(parts, loops)
            for p, size in enumerate(self.constant_bytes)
            if size
        )
        copies = 1 if self.way else len(parts)
        return excess * max(0, times * copies - 1)

    def floor(
        self, parts: tuple[Box, ...], loops: tuple[OuterLoop, ...], bounds: LowerBounds
    ) -> Estimate:
        """At most the estimate of `price`, without looking how shares are cut.

        Raises:
            Unwalkable: the group cannot be cut like this.
        """
        busiest = max(self._part_traces(parts, loops), key=_work_of)
        return bounds.in_tiles(self.group, busiest, len(parts), self.again(parts, loops))

    def edged(self, parts: tuple[Box, ...], loops: tuple[OuterLoop, ...], floor: Estimate) -> float:
        """At most the cycles of `price`, whose `floor` is given: the array rests during the first
        load and the last store. Those of smaller tiles are shorter."""
        if not loops:
            return floor.total
        busiest = max(self._part_traces(parts, loops), key=_work_of)
        ends = self._first_load(busiest, len(parts)) + self._last_store(busiest, len(parts))
        return max(floor.total, floor.matrix + ends)

    def _first_load(self, walked: TileTrace, cores: int) -> float:
        """Cycles of what the first layer waits for before any product runs."""
        first, group = walked.moments[0], self.group
        if first.work[0] is None or not self._runs_on_array(0):
            return 0.0
        sizes = {n: first.holds[n].sizes for n in group.layers[0].inputs if n in first.holds}
        loads = (
            float(self.transfer(name, size, size, cores, store=False).cycles)
            for name, size in sizes.items()
            if name not in group.residents
        )
        return max(loads, default=0.0)

    def _last_store(self, walked: TileTrace, cores: int) -> float:
        """Cycles of what is stored after the last layer, a product, has made it."""
        last, name = walked.moments[-1], self.group.layers[-1].result.name
        if name not in last.out or last.work[-1] is None or name in self.group.residents:
            return 0.0
        if name not in last.holds or not self._runs_on_array(self.count - 1):
            return 0.0
        sizes = tuple([size for _, size in last.out[name]])
        way = self.transfer(name, sizes, last.holds[name].sizes, cores, store=True)
        return float(way.cycles)

    def _runs_on_array(self, position: int) -> bool:
        return self.facts.layer(self.group.layers[position]).engines[0][0] == "matrix"

    def _part_traces(
        self, parts: tuple[Box, ...], loops: tuple[OuterLoop, ...]
    ) -> tuple[TileTrace, ...]:
        """The walks over the parts that stand for all."""
        key = parts, loops
        if key not in self._walks:
            self._walks[key] = trace_parts(self.group, loops, parts, self.memory, telling(parts))
        return self._walks[key]

    def _group_buffers(
        self, schedule: Schedule, walked: tuple[TileTrace, ...]
    ) -> dict[str, TileBuffer]:
        """The buffers of tensors that the group holds on chip."""
        holder = GroupBufferMaker(schedule, self.slots, self.facts)
        holder.tensors(walked)
        return holder.buffers

    def _contended_slots(
        self, buffers: Mapping[str, TileBuffer], walked: TileTrace
    ) -> dict[str, int]:
        """Slots of buffers in which a tile may have to wait for those before it."""
        apart = self.arch.front_end.sync == "interlock"
        return {
            name: buffer.slots
            for name, buffer in buffers.items()
            if buffer.address is None
            # Hardware sees that tiles write different parts of a tensor that is there as a whole.
            and (buffer.slots > 1 or name in walked.rolled or not apart)
        }

    def _staying(self, candidate: _Candidate, left: list[dict[str, float]]) -> Schedule | None:
        """With as many constants loaded as a whole as there is room for."""
        looped = bool(candidate.schedule.loops)
        staying = [True] * self.count
        if candidate.channels is not None:  # products would load those of all channels
            staying = [not layer.product for layer in self.group.layers]
        by_size = sorted(range(self.count), key=lambda p: -self.constant_bytes[p])
        for drop in (None, *by_size):
            if drop is not None:
                if not self.constant_bytes[drop]:
                    return None
                staying[drop] = False
            rooms = self._rooms(left, staying, looped=looped)
            apart = self._rooms(left, staying, looped=True)
            made = None if rooms is None else candidate.cut(rooms, staying, apart)
            if made is not None:
                return made
        return None

    def _trickled(
        self, candidate: _Candidate, left: list[dict[str, float]], most: Schedule
    ) -> Schedule:
        """`most`, or the same with the last constants in pieces: no work hides a whole load there.

        The pieces are worked on as they come.
        """
        staying = [tiled.resident for tiled in most.layers]
        sizes = [size * stays for size, stays in zip(self.constant_bytes, staying, strict=True)]
        last = max((p for p, size in enumerate(sizes) if size), default=None)
        if last is None or sizes[last] < TAIL * sum(sizes) or sum(map(bool, sizes)) == 1:
            return most
        staying[last] = False
        rooms = self._rooms(left, staying, looped=False)
        apart = self._rooms(left, staying, looped=True)
        made = None if rooms is None else candidate.cut(rooms, staying, apart)
        return most if made is None else min(most, made, key=lambda s: s.estimate.total)

    def _left(self, buffers: list[TileBuffer]) -> list[dict[str, float]]:
        """Per layer: memory role -> bytes that held tensors leave."""
        return [
            {role: size - there[role] for role, size in self.room.items()}
            for there in in_use(buffers, self.count, self.room)
        ]

    def _rooms(
        self, left: list[dict[str, float]], staying: list[bool], *, looped: bool
    ) -> list[float] | None:
        """Per layer, bytes of local memory that are left for its own buffers.

        In loops all constants that stay are there all the time, else those of the layer and of the
        next one, which arrive meanwhile.
        """
        sizes = {
            role: [c.get(role, 0) * s for c, s in zip(self.constants, staying, strict=True)]
            for role in self.room
        }
        whole = {role: sum(own) for role, own in sizes.items()}
        rooms = []
        for position, room in enumerate(left):
            for role, size in room.items():
                near = sizes[role][position : position + 2]
                stay = whole[role] if looped else sum(near)
                if size < stay:
                    return None
                if role == "local":
                    rooms.append(size - stay)
        return rooms


def _work_of(walked: TileTrace) -> int:
    return sum(volume(box) for m in walked.moments for box in m.work if box is not None)


@dataclass
class _Candidate:
    """One split and one set of loops of a group."""

    pricer: GroupPricer
    schedule: Schedule
    walked: TileTrace
    """Of the part that computes most."""
    frugal: bool
    places: Mapping[str, int] = field(default_factory=dict)
    """Held tensor -> slots of its buffer, where a tile may have to wait for one."""
    fronts: dict[tuple[int, tuple[int, ...], bool], ParetoFront] = field(default_factory=dict)
    """Shares by layer, sizes of its result, and whether its constants stay."""

    def __post_init__(self) -> None:
        held = frozenset(name for m in self.walked.moments for name in m.holds)
        self.held = held.union(self.pricer.group.pinned)
        parts, looped = self.schedule.parts, bool(self.schedule.loops)
        self.channels = channels_of(self.pricer.group, parts)
        self.cores = Cores.of_group(parts, self.channels, self.pricer.way, looped=looped)
        self.shares = self.pricer.shares(self.cores)
        self.sizes = [
            largest(self.walked.work_sizes(p), len(layer.result.shape))
            for p, layer in enumerate(self.pricer.group.layers)
        ]

    def _front(self, position: int, sizes: tuple[int, ...], *, resident: bool) -> ParetoFront:
        """The shares of a layer that are worth taking."""
        key = position, sizes, resident
        if key not in self.fronts:
            group = self.pricer.group
            self.fronts[key] = self.shares.front(
                group.layers[position], sizes, self.held, resident=resident, shared=group.shared
            )
        return self.fronts[key]

    def least(self) -> list[float] | None:
        """Per layer, the bytes that its own buffers take at least; None where one fits in none."""
        shares = [
            self._front(position, sizes, resident=False).smallest()
            for position, sizes in enumerate(self.sizes)
        ]
        return [s.need for s in shares if s is not None] if all(shares) else None

    def cut(
        self, rooms: list[float], staying: list[bool], apart: list[float] | None = None
    ) -> Schedule | None:
        """The schedule with loops for every layer, for the sizes of its largest share.

        Args:
            rooms: per layer, bytes for its own buffers.
            staying: whether its constants are loaded as a whole.
            apart: `rooms` where all constants that stay have places of their own; None: too many.
        """
        layers, used, needs = [], [], []
        least = min(rooms, default=0.0)
        for position, tiled in enumerate(self.schedule.layers):
            share = self._fitting(
                position, self.sizes[position], rooms[position], least, staying[position]
            )
            if share is None:
                return None
            layers.append(replace(tiled, loops=share.loops, resident=staying[position]))
            used.append(share.need - rooms[position])
            needs.append(share.need)
        size = self.pricer.arch.memories.local.size
        roomy = bool(self.schedule.loops) or (
            apart is not None and all(n <= room for n, room in zip(needs, apart, strict=True))
        )
        room = {} if roomy else self._begins(staying, needs, rooms)
        estimate = self._estimate(rooms, staying, need=size + max(used), room=room)
        return replace(self.schedule, layers=tuple(layers), estimate=estimate)

    def _begins(
        self, staying: list[bool], needs: list[float], rooms: list[float]
    ) -> dict[int, int]:
        """Layer -> the layer with which its constants that stay find room."""
        constants = self.pricer.constants
        sizes = [own.get("local", 0) * stays for own, stays in zip(constants, staying, strict=True)]
        free = [
            DENSE * (room + own + other - need)
            for room, own, other, need in zip(rooms, sizes, (*sizes[1:], 0), needs, strict=True)
        ]
        layers = [p for p, stays in enumerate(staying) if stays and constants[p]]
        begins = earliest(layers, [sizes[p] for p in layers], free)
        # In other memories there is room for the next layer's.
        near = (
            begin if constants[p].keys() == {"local"} else p
            for p, begin in zip(layers, begins, strict=True)
        )
        return dict(zip(layers, near, strict=True))

    def _fitting(
        self, position: int, sizes: tuple[int, ...], room: float, least: float, resident: bool
    ) -> LayerMapping | None:
        """The share of a layer in its `room`, with some to spare for its neighbours where that is
        possible, of which one has the `least`."""
        front = self._front(position, sizes, resident=resident)
        if self.frugal:
            share = front.smallest()
            return share if share is not None and share.need <= room else None
        found = map(front.within, (least / 2, least, room))
        return next((share for share in found if share is not None), None)

    def _estimate(
        self, rooms: list[float], staying: list[bool], need: float, *, room: dict[int, int]
    ) -> Estimate:
        group, arch, walked = self.pricer.group, self.pricer.arch, self.walked
        total, least = Total(), min(rooms, default=0.0)

        def share_of(position: int, box: Box | None) -> LayerMapping | None:
            if box is None:
                return None
            sizes = tuple([n for _, n in box])
            stays = staying[position]
            share = self._fitting(position, sizes, rooms[position], least, stays)
            return share or self._front(position, sizes, resident=stays).within(math.inf)

        def work(run: Repeat, moment: TileStep) -> TileWork:
            made = self._work(
                run, moment, tuple([share_of(p, box) for p, box in enumerate(moment.work)])
            )
            if run.first == 0:
                made = replace(made, constants=arriving)
            total.add(made, run.count * walked.repeats, self._dram_bytes(run, moment))
            return made

        stay = zip(self.pricer.constant_bytes, staying, strict=True)
        staying_bytes = {p: size for p, (size, stays) in enumerate(stay) if stays and size}
        moving = {*staying_bytes, *self.pricer.pinned}
        arrivals = {p: self._arriving(p, stays=p in staying_bytes) for p in sorted(moving)}
        arriving = {p: cycles for p, (cycles, _) in arrivals.items()}
        inputs = tuple(tuple(n for n in la.inputs if n in self.held) for la in group.layers)
        results = tuple(layer.result.name for layer in group.layers)
        told = frozenset(staying_bytes) if arch.front_end.sync == "tokens" else frozenset()
        timeline = GroupTimeline(inputs, results, self.pricer.slots, self.places, room, told)
        cycles = timeline.run(walked, work)
        total.load += sum(arriving.values())
        constants = sum(moved for _, moved in arrivals.values())
        everything = self.cores.count * total.bytes + constants
        memory = max(total.load, total.store, everything / arch.dram_bytes_per_cycle)
        busy = max(cycles, memory, total.matrix, total.vector)
        busy += passed_cycles(arch, group, self.schedule.parts)
        rest = timeline.rest(looped=bool(self.schedule.loops))
        lead = arriving.get(0, 0.0)
        return Estimate(busy, total.matrix, total.vector, memory, everything, need, lead, rest)

    def _arriving(self, position: int, *, stays: bool) -> tuple[float, float]:
        """Cycles of the loads of a layer's constants, those that stay for the group if they do and
        those that do for others too, and the bytes that they move: each is a transfer of its own,
        and engines that reach different memories work side by side."""
        pricer, cores = self.pricer, self.cores
        known = pricer.arrivals.get((position, cores.count, stays))
        if known is None:
            sums, moved = dict[int, float](), 0.0
            own = pricer.own(pricer.group.layers[position]) if stays else ()
            for constant in (*own, *pricer.pinned.get(position, ())):
                way = Path.load(pricer.arch, cores, "dram", constant.role, cores.count)
                once, engine = way.run(constant.loaded), id(way.engine)
                sums[engine] = sums.get(engine, 0.0) + float(once.busy)
                moved += cores.count * float(once.bytes)
            known = max(sums.values(), default=0.0), moved
            pricer.arrivals[position, cores.count, stays] = known
        return known

    def _work(
        self, run: Repeat, moment: TileStep, shares: tuple[LayerMapping | None, ...]
    ) -> TileWork:
        group = self.pricer.group
        loads = {
            name: float(moved.cycles) for name, moved in self._input_loads(run, moment).items()
        }
        moves: dict[int, float] = {}
        for name, handed in self.walked.handed(run.first).items():
            reader = group.internal_readers[name][-1]
            moves[reader] = moves.get(reader, 0.0) + self._handing(name, handed, moment)
        stores = {
            group.producer_positions[name]: float(t.cycles)
            for name, t in self._result_stores(moment).items()
        }
        return TileWork(shares, loads, moves, stores)

    def _handing(self, name: str, handed: tuple[int, int, int], moment: TileStep) -> float:
        """Cycles of moving what the next tile keeps to the front of its buffer."""
        pricer, hold, (dim, shift, overlap) = self.pricer, moment.holds[name], handed
        item = size_of(pricer.group.tensors[name].dtype)
        order = pricer.facts.passing(pricer.group, name).order
        pieces = -(-overlap // shift)
        sizes = tuple([n for _, n in hold.box])
        sizes = (*sizes[:dim], -(-overlap // pieces), *sizes[dim + 1 :])
        return pieces * move_cycles(pricer.arch, item, sizes, hold.sizes, order)

    def _input_loads(self, run: Repeat, moment: TileStep) -> dict[str, Transfer]:
        """The load of each held input that this tile loads."""
        before = self.walked.moments[run.first - 1] if run.first else None
        group = self.pricer.group
        return {
            name: self.pricer.transfer(name, hold.sizes, hold.sizes, self.cores.count, store=False)
            for name, hold in moment.holds.items()
            if name not in group.producer_positions
            and name not in group.residents
            and (before is None or before.holds.get(name) != hold)
        }

    def _result_stores(self, moment: TileStep) -> dict[str, Transfer]:
        """The store of each held result, from where it lies among what the group holds of it."""
        kept, cores = self.pricer.group.residents, self.cores.count
        out = {n: tuple([size for _, size in box]) for n, box in moment.out.items()}
        return {
            name: self.pricer.transfer(name, sizes, moment.holds[name].sizes, cores, store=True)
            for name, sizes in out.items()
            if name in moment.holds and name not in kept
        }

    def _dram_bytes(self, run: Repeat, moment: TileStep) -> float:
        """Bytes of held tensors that DRAM moves for one tile of one core."""
        shared = self.pricer.group.shared
        both = (*self._input_loads(run, moment).items(), *self._result_stores(moment).items())
        return sum(float(moved.bytes) for name, moved in both if name not in shared)


class _FixedCandidate(_Candidate):
    """One whose layers have their loops already."""

    def _fitting(
        self, position: int, sizes: tuple[int, ...], room: float, least: float, resident: bool
    ) -> LayerMapping | None:
        del room, least
        tiled, shared = self.schedule.layers[position], self.pricer.group.shared
        return self.shares.exactly(
            tiled.layer, sizes, self.held, tiled.loops, resident=resident, shared=shared
        )
