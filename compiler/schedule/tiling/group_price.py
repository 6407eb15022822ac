"""The price of a group for one split and one set of loops: does it fit, and how long does it take?

The group's tensors are laid out for the sizes that the walk finds, every layer gets a share that
fits beside them, and the engines are followed in time. Only the parts of a core at the edge and of
one in the middle are walked: the others are like one of these. The plan walks them all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

from compiler.cost.multicast import Cores, MulticastRoute, between_cores, passed_cycles
from compiler.cost.overlap import startup_bytes
from compiler.cost.transfer import Path, Transfer
from compiler.geometry.cuts import axes_without_halo, channels_of, telling, tiled_channels
from compiler.geometry.tile_trace import Repeat, TileStep, TileTrace, largest, trace_parts
from compiler.schedule.residency.buffer import GroupBufferMaker, alive, earliest, in_use
from compiler.schedule.tiling.bounds import LowerBounds
from compiler.schedule.tiling.layer_mapping import MappingCache, ParetoFront, Sizes
from compiler.schedule.tiling.problem import TilePrices
from compiler.schedule.tiling.timeline import GroupTimeline, TileWork, Total
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import NOTHING, Estimate, OuterLoop, Schedule, uncut
from compiler.target.group_facts import Facts, ResidentConstant
from compiler.target.vector import move_cycles
from compiler.tensor_ir.bounds import Box
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property, replace

TAIL = 0.05
"""Share of a group's constants from which on it matters how those of its last layer arrive."""
DENSE = 0.9
"""Share of a memory that can be filled with what is loaded ahead: gaps take the rest."""
Parts = tuple[Box, ...]
"""Of the results, one for each core that takes part."""
Loops = tuple[OuterLoop, ...]
"""Around the tiles of a part."""
Terms = tuple[tuple[str, int], ...]
"""What takes memory, and its bytes."""
Spared = tuple[float, ...]
"""Bytes with which a layer makes do if it can, for the sake of its neighbours."""


@dataclass
class GroupPricer:
    """Prices of one group; all of them raise Unwalkable or Unholdable for parts and loops along
    which the group cannot be cut."""

    group: Group
    arch: Arch
    slots: int
    shares: Callable[[Cores], MappingCache]
    """Shares by the cores that work."""
    facts: Facts
    """Kept between groups."""
    whole: bool = True
    """Whether constants may be loaded as a whole where no loop reads them again."""
    transfers: dict[object, Transfer] = field(default_factory=dict)
    """Kept between groups: by the tensor's layout and the way that it goes."""
    moves: dict[object, float] = field(default_factory=dict)
    """The same for moves on chip: cycles by item size, sizes, room and order."""
    way: MulticastRoute | None = None
    """How loads reach several cores."""
    hidden: float = 0.0
    """Share of a group's rest that does not count where its schedules are compared."""

    def __post_init__(self) -> None:
        self.count = len(self.group.layers)
        self.arrivals: dict[object, tuple[float, float]] = {}
        self._traces: dict[tuple[Parts, Loops], tuple[TileTrace, ...]] = {}
        self.room = {
            role: float(self.group.room(role, memory.size))
            for role, memory in self.arch.memories.on_chip().items()
        }
        self.bare = uncut(self.group)

    def own(self, position: int, walks: Sequence[TileTrace] = ()) -> tuple[ResidentConstant, ...]:
        """Constants of a layer that can stay for this group alone, in loops over the tiles of
        `walks`."""
        facts, pinned = self.facts.layer(self.group.layers[position]), self.group.pinned
        found = facts.constants_of(walks, position) if walks else facts.constants
        return tuple([c for c in found if c.key[0] not in pinned]) if pinned else found

    @cached_property
    def pinned(self) -> Mapping[int, tuple[ResidentConstant, ...]]:
        """Layer -> constants that it loads for this group and others."""
        found: dict[int, tuple[ResidentConstant, ...]] = {}
        left = {name for name, home in self.group.pinned.items() if home.loads}
        for position, layer in enumerate(self.group.layers if left else ()):
            if read := left.intersection(layer.inputs):
                constants = self.facts.layer(layer).constants
                found[position] = tuple(c for c in constants if c.key[0] in read)
                left -= read
        return found

    @cached_property
    def constants(self) -> tuple[Mapping[str, int], ...]:
        """Per layer, what constants take that all tiles need alike, along whatever they are cut."""
        return tuple(_by_role(self.own(position)) for position in range(self.count))

    def transfer(
        self, name: str, sizes: Sizes, room: Sizes, cores: int, *, store: bool
    ) -> Transfer:
        """One load or store of `sizes` of what the group holds, in a buffer with `room`."""
        tensor, home = self.group.tensors[name], self.group.home(name, self.arch)
        order = self.facts.passing(self.group, name).order
        lies = tensor.shape, tensor.dtype, tensor.storage.strides
        key = lies, home, order, sizes, room, cores, store
        if key not in self.transfers:
            way = Path(self.arch, cores, home, "local", store=store)
            self.transfers[key] = way.box(tensor, sizes, order, room)
        return self.transfers[key]

    def price(self, parts: Parts, loops: Loops, *, frugal: bool = False) -> Schedule | None:
        """The schedule with its estimate; None where it does not fit. `frugal`: in as little memory
        as the loops allow, without constants that stay."""
        candidate = _Candidate(self, self._uncut(parts, loops), frugal)
        if any(size < 0 for room in candidate.left for size in room.values()):
            return None
        most = candidate.staying() if not frugal and (loops or self.whole) else None
        if most is not None and loops:
            return most
        # Without loops, constants pass through once anyway: whole, or piece by piece.
        streamed = candidate.cut([False] * self.count)
        if most is not None:
            most = candidate.trickled(most)
        found = [made for made in (most, streamed) if made is not None]
        return min(found, key=self.visible, default=None)

    def visible(self, schedule: Schedule) -> float:
        """What schedules of the group are compared by."""
        return schedule.estimate.visible(self.hidden)

    def estimate(self, schedule: Schedule) -> Estimate:
        """What a schedule is expected to take whose layers have loops already, if it fits."""
        candidate = _Candidate(self, schedule, fixed=True)
        made = candidate.cut([tiled.resident for tiled in schedule.layers])
        return NOTHING if made is None else made.estimate

    def least(self, parts: Parts, loops: Loops) -> Terms:
        """What takes local memory where it is fullest, with the smallest buffers that the layers
        can do with; nothing where one can do with none."""
        candidate = _Candidate(self, self._uncut(parts, loops))
        shares = [
            candidate.front(position, sizes, resident=False).smallest()
            for position, sizes in enumerate(candidate.sizes)
        ]
        kept = ("what stays between groups", self.group.reserved.get("local", 0))
        sums: list[Terms] = []
        for position, share in enumerate(shares):
            if share is None:
                return ()
            held = candidate.buffers.values()
            there = [b for b in held if alive(b, position, self.count - 1)]
            own = (f"buffers of {self.group.layers[position].name}", math.ceil(share.need))
            terms = (kept, *((b.name, b.bytes * b.slots) for b in there), own)
            sums.append(tuple(term for term in terms if term[1]))
        return max(sums, key=lambda terms: sum(size for _, size in terms))

    def again(self, parts: Parts, loops: Loops) -> float:
        """DRAM bytes of constants that are loaded more than once, at least, in these loops or in
        any with smaller tiles: all cannot stay, and of those that do not every tile loads its
        own."""
        if not self.excess or not loops or self.moves_channels(loops):
            return 0.0
        # A smaller first tile does not do more than this one: what has two tiles here has two.
        times = min(
            walked.repeats * min(2, sum(box is not None for box in walked.work[p].boxes))
            for walked in self.traces(parts, loops)
            for p, sizes in enumerate(self.constants)
            if any(sizes.values())
        )
        copies = 1 if self.way else len(parts)
        return self.excess * max(0, times * copies - 1)

    def moves_channels(self, loops: Loops) -> bool:
        """Whether each tile has weights of its own, which are loaded once."""
        channels = tiled_channels(self.group) if loops else None
        return any(loop.axis == channels for loop in loops)

    @cached_property
    def excess(self) -> float:
        """Bytes of constants for which memories have no room."""
        return sum(
            max(0.0, sum(own.get(role, 0) for own in self.constants) - size)
            for role, size in self.room.items()
        )

    def floor(self, parts: Parts, loops: Loops, bounds: LowerBounds) -> Estimate:
        """At most the estimate of `price`, without looking how shares are cut."""
        busiest = self.busiest(parts, loops)
        return bounds.in_tiles(self.group, busiest, len(parts), self.again(parts, loops))

    def edged(self, parts: Parts, loops: Loops, floor: Estimate) -> float:
        """At most the cycles of `price`, whose `floor` is given: the array rests during the first
        load and the last store. Those of smaller tiles are shorter."""
        if not loops:
            return floor.total
        busiest = self.busiest(parts, loops)
        ends = self._first_load(busiest, len(parts)) + self._last_store(busiest, len(parts))
        return max(floor.total, floor.matrix + ends)

    def _first_load(self, walked: TileTrace, cores: int) -> float:
        """Cycles of what the first layer waits for before any product runs."""
        first, group = walked.moment(0), self.group
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
        last, name = walked.moment(-1), self.group.layers[-1].result.name
        if name not in last.out or last.work[-1] is None or name in self.group.residents:
            return 0.0
        if name not in last.holds or not self._runs_on_array(self.count - 1):
            return 0.0
        sizes = tuple([size for _, size in last.out[name]])
        way = self.transfer(name, sizes, last.holds[name].sizes, cores, store=True)
        return float(way.cycles)

    def _runs_on_array(self, position: int) -> bool:
        return self.group.layers[position].binding.engine == "matrix"

    def traces(self, parts: Parts, loops: Loops) -> tuple[TileTrace, ...]:
        """Over the parts that stand for all."""
        key = parts, loops
        if key not in self._traces:
            shown = self.telling(parts)
            self._traces[key] = trace_parts(self.group, loops, parts, self.facts.walks, shown)
        return self._traces[key]

    def telling(self, parts: Parts) -> tuple[int, ...]:
        """Numbers of the parts that stand for all."""
        kept = self.group.residents.values()
        return telling(parts, sliced=any(own.cut and not own.everywhere for own in kept))

    def busiest(self, parts: Parts, loops: Loops) -> TileTrace:
        """The trace of the part with most to do."""
        return max(self.traces(parts, loops), key=lambda w: sum(own.volume for own in w.work))

    def _uncut(self, parts: Parts, loops: Loops) -> Schedule:
        return Schedule(self.group, self.bare, parts, NOTHING, loops)


def _by_role(constants: Sequence[ResidentConstant]) -> Mapping[str, int]:
    """Memory role -> bytes of constants there."""
    found = Counter[str]()
    for constant in constants:
        found[constant.role] += constant.bytes
    return found


@dataclass
class _Candidate:
    """One split and one set of loops of a group."""

    pricer: GroupPricer
    schedule: Schedule
    frugal: bool = False
    """Shares that take as little memory as they can."""
    fixed: bool = False
    """Shares with the loops that the layers of the schedule have already."""
    fronts: dict[tuple[int, Sizes, bool], ParetoFront] = field(default_factory=dict)
    """Shares by layer, sizes of its result, and whether its constants stay."""

    def __post_init__(self) -> None:
        pricer, schedule = self.pricer, self.schedule
        walks = pricer.traces(schedule.parts, schedule.loops)
        self.walked = pricer.busiest(schedule.parts, schedule.loops)
        holder = GroupBufferMaker(schedule, pricer.slots, pricer.facts)
        holder.tensors(walks)
        self.buffers = holder.buffers
        self.left = [
            {role: size - there[role] for role, size in pricer.room.items()}
            for there in in_use(self.buffers.values(), pricer.count, pricer.room)
        ]
        """Per layer: memory role -> bytes that held tensors leave."""

    @cached_property
    def own(self) -> tuple[tuple[ResidentConstant, ...], ...]:
        """Per layer, constants that can stay for this group alone."""
        pricer, schedule = self.pricer, self.schedule
        walks = pricer.traces(schedule.parts, schedule.loops) if schedule.loops else ()
        return tuple(pricer.own(position, walks) for position in range(pricer.count))

    @cached_property
    def constants(self) -> tuple[Mapping[str, int], ...]:
        """Per layer: memory role -> bytes of these."""
        return tuple(map(_by_role, self.own)) if self.schedule.loops else self.pricer.constants

    @cached_property
    def constant_bytes(self) -> tuple[int, ...]:
        """Per layer, bytes of these."""
        return tuple(sum(sizes.values()) for sizes in self.constants)

    def found_on_chip(self, position: int, *, resident: bool) -> frozenset[str]:
        """What a layer finds on chip, with its constants if it is `resident`."""
        own = self.own[position] if resident else ()
        return self.on_chip.union(c.key[0] for c in own) if own else self.on_chip

    @cached_property
    def on_chip(self) -> frozenset[str]:
        """Tensors that the group keeps on chip."""
        return frozenset(self.walked.holds).union(self.pricer.group.pinned)

    @cached_property
    def sizes(self) -> list[Sizes]:
        """Per layer, the largest tile of its result."""
        return [
            largest([self.walked.work[p]], len(layer.result.shape))
            for p, layer in enumerate(self.pricer.group.layers)
        ]

    @cached_property
    def channels(self) -> int | None:
        """The axis of channels, where cores split it."""
        return channels_of(self.pricer.group, self.schedule.parts)

    @cached_property
    def cores(self) -> Cores:
        """Those that work."""
        pricer, parts, loops = self.pricer, self.schedule.parts, self.schedule.loops
        same = {0} if self.channels is None else {0, self.channels}
        if pricer.way is not None and len(parts) > 1:
            shown = [parts[number] for number in pricer.telling(parts)]
            same |= axes_without_halo(pricer.group, shown, pricer.traces(parts, loops))
        return Cores.of_group(parts, same, pricer.way, looped=bool(loops))

    @cached_property
    def shares(self) -> MappingCache:
        """What layers take on these cores."""
        return self.pricer.shares(self.cores)

    def front(self, position: int, sizes: Sizes, *, resident: bool) -> ParetoFront:
        """The shares of a layer that are worth taking."""
        key = position, sizes, resident
        if key not in self.fronts:
            group = self.pricer.group
            held = self.found_on_chip(position, resident=resident)
            self.fronts[key] = self.shares.front(
                group.layers[position], sizes, held, shared=group.shared
            )
        return self.fronts[key]

    def staying(self) -> Schedule | None:
        """With as many constants loaded as a whole as there is room for."""
        count, sizes = self.pricer.count, self.constant_bytes
        staying = [True] * count
        if self.channels is not None or self.pricer.moves_channels(self.schedule.loops):
            # Products would load weights of all channels.
            weights = (any(c.key[2] for c in own) for own in self.own)
            layers = zip(self.pricer.group.layers, weights, strict=True)
            staying = [not (layer.product and loads) for layer, loads in layers]
        made = self.cut(staying)
        for drop in sorted(range(count), key=lambda p: -sizes[p]):
            if made is not None or not sizes[drop]:
                return made
            staying[drop] = False
            made = self.cut(staying)
        return made

    def trickled(self, most: Schedule) -> Schedule:
        """`most`, or the same with the last constants in pieces, which are worked on as they come:
        no work hides a whole load there."""
        staying = [tiled.resident for tiled in most.layers]
        constants = self.constant_bytes
        sizes = [size * stays for size, stays in zip(constants, staying, strict=True)]
        last = max((p for p, size in enumerate(sizes) if size), default=None)
        if last is None or sizes[last] < TAIL * sum(sizes) or sum(map(bool, sizes)) == 1:
            return most
        staying[last] = False
        made = self.cut(staying)
        return most if made is None else min(most, made, key=self.pricer.visible)

    def cut(self, staying: list[bool]) -> Schedule | None:
        """The schedule with loops for every layer, for the sizes of its largest share, where the
        constants of those layers that are `staying` are loaded as a whole; None: it does not fit.
        Shares leave room for those of their neighbours or, where no loop brings these again, are
        the quickest, and neighbours wait for their room: whichever is expected to be quicker."""
        looped = bool(self.schedule.loops)
        rooms = self._rooms(staying, apart=looped)
        if rooms is None:
            return None
        least, found = min(rooms, default=0.0), dict[tuple[TilePrices, ...], Spared]()
        for spared in ((least / 2, least), ())[: 1 if looped or self.fixed else 2]:
            shares = list[TilePrices]()
            for position, (sizes, room) in enumerate(zip(self.sizes, rooms, strict=True)):
                share = self._fitting(position, sizes, room, spared, staying[position])
                if share is None:
                    return None
                shares.append(share)
            if self._fits_ahead(shares, rooms):
                found.setdefault(tuple(shares), spared)
        made = (self._with_shares(*each, staying, rooms) for each in found.items())
        return min(made, key=self.pricer.visible, default=None)

    def _fits_ahead(self, shares: Sequence[TilePrices], rooms: Sequence[float]) -> bool:
        """Whether the buffers of layers that are ahead fit beside those of every other layer."""
        early = [share.need * (self.schedule.ahead(p) > 0) for p, share in enumerate(shares)]
        if not any(early):
            return True
        each = zip(shares, early, rooms, strict=True)
        return all(share.need + sum(early) - own <= room for share, own, room in each)

    def _with_shares(
        self, shares: Sequence[TilePrices], spared: Spared, staying: list[bool], rooms: list[float]
    ) -> Schedule:
        """The schedule in which layers have these `shares`, and those of smaller tiles leave what
        is `spared`."""
        looped, needs = bool(self.schedule.loops), [share.need for share in shares]
        apart = rooms if looped else self._rooms(staying, apart=True)
        roomy = apart is not None and all(n <= room for n, room in zip(needs, apart, strict=True))
        begins = {} if looped or roomy else self._begins(staying, needs, rooms)
        excess = max(need - room for need, room in zip(needs, rooms, strict=True))
        need = self.pricer.arch.memories.local.size + excess
        pairs = () if looped else zip(pairwise(needs), pairwise(rooms), strict=True)
        waiting = frozenset(p for p, (two, room) in enumerate(pairs, 1) if sum(two) > min(room))
        estimate = self._estimate(rooms, shares, spared, staying, need, begins, waiting)
        every = zip(self.schedule.layers, shares, staying, strict=True)
        layers = (replace(tiled, loops=own.loops, resident=stays) for tiled, own, stays in every)
        return replace(self.schedule, layers=tuple(layers), estimate=estimate)

    def _rooms(self, staying: list[bool], *, apart: bool) -> list[float] | None:
        """Per layer, bytes of local memory for its own buffers, beside all constants that stay, if
        these have places of their own, as in loops, else beside those of the layer and of the next
        one, which arrive meanwhile; None: there is less than none."""
        pairs = tuple(zip(self.constants, staying, strict=True))
        sizes = {role: [c.get(role, 0) * s for c, s in pairs] for role in self.pricer.room}
        whole = {role: sum(own) for role, own in sizes.items()}
        rooms = []
        for position, room in enumerate(self.left):
            for role, size in room.items():
                stay = whole[role] if apart else sum(sizes[role][position : position + 2])
                if size < stay:
                    return None
                if role == "local":
                    rooms.append(size - stay)
        return rooms

    def _begins(
        self, staying: list[bool], needs: list[float], rooms: list[float]
    ) -> dict[int, int]:
        """Layer -> the layer with which its constants that stay find room."""
        constants = self.constants
        sizes = [own.get("local", 0) * stays for own, stays in zip(constants, staying, strict=True)]
        free = [
            DENSE * (room + own + other - need)
            for room, own, other, need in zip(rooms, sizes, (*sizes[1:], 0), needs, strict=True)
        ]
        layers = [p for p, stays in enumerate(staying) if stays and constants[p]]
        begins = earliest(layers, [sizes[p] for p in layers], free)
        # In other memories there is room for the next layer's.
        return {
            p: begin if constants[p].keys() == {"local"} else p
            for p, begin in zip(layers, begins, strict=True)
        }

    def _fitting(
        self, position: int, sizes: Sizes, room: float, spared: Spared, resident: bool
    ) -> TilePrices | None:
        """The share of a layer in its `room`, or in what is `spared` where that is possible."""
        if self.fixed:
            tiled, shared = self.schedule.layers[position], self.pricer.group.shared
            held = self.found_on_chip(position, resident=resident)
            return self.shares.exactly(tiled.layer, sizes, held, tiled.loops, shared=shared)
        front = self.front(position, sizes, resident=resident)
        if self.frugal:
            share = front.smallest()
            return share if share is not None and share.need <= room else None
        found = map(front.within, (*spared, room))
        return next((share for share in found if share is not None), None)

    def _estimate(
        self, rooms: list[float], shares: Sequence[TilePrices], spared: Spared, staying: list[bool],
        need: float, begins: dict[int, int], waiting: frozenset[int],
    ) -> Estimate:  # fmt: skip
        pricer, group, arch, walked = self.pricer, self.pricer.group, self.pricer.arch, self.walked
        arrays = tuple(layer.binding.array for layer in group.layers)
        total = Total(arrays)

        @cache
        def share_of(position: int, sizes: Sizes | None) -> TilePrices | None:
            if sizes is None:
                return None
            stays = staying[position]
            share = self._fitting(position, sizes, rooms[position], spared, stays)
            return share or self.front(position, sizes, resident=stays).within(math.inf)

        def work(run: Repeat, moment: TileStep) -> TileWork:
            own = tuple([share_of(p, w.sizes[run.first]) for p, w in enumerate(walked.work)])
            made = self._work(run, moment, own, arriving if run.first == 0 else {})
            total.add(made, run.count * walked.repeats)
            return made

        sizes = enumerate(zip(self.constant_bytes, staying, strict=True))
        stay = frozenset(p for p, (size, stays) in sizes if stays and size)
        arrivals = {p: self._arriving(p, stays=p in stay) for p in sorted(stay | {*pricer.pinned})}
        arriving = {p: cycles for p, (cycles, _) in arrivals.items()}
        inputs = tuple(tuple(n for n in la.inputs if n in self.on_chip) for la in group.layers)
        results = tuple(layer.result.name for layer in group.layers)
        told = stay if arch.front_end.sync == "tokens" else frozenset[int]()
        ways = pricer.slots, self._slots(), begins, told, waiting
        arrays_of, stages = dict(enumerate(arrays)), self.schedule.stages
        ahead = self._room_ahead([share.need for share in shares], rooms)
        streams_first = pricer.count == 1 or group.residents.keys() & group.layers[0].inputs
        come = not streams_first  # else they are the group's `lead`
        timeline = GroupTimeline(inputs, results, *ways, arrays_of, stages, ahead, come)
        cycles = timeline.run(walked, work)
        constants = sum(moved for _, moved in arrivals.values())
        moved = {"dram": self.cores.count * total.bytes}
        off_chip = constants + self.cores.count * total.flash
        moved[arch.constants] = moved.get(arch.constants, 0.0) + off_chip
        load = total.load + sum(arriving.values())
        memory = max(load, total.store, *(moved[far] / arch.far_rates[far] for far in moved))
        busy = max(cycles, memory, total.matrix, total.vector)
        passed = passed_cycles(arch, group, self.schedule.parts)
        rest = timeline.rest(looped=bool(self.schedule.loops))
        if between_cores(arch) != arch.copy_engine("dram", "local"):
            rest += passed  # no engine that loads has work meanwhile
        lead = arriving.get(0, 0.0)
        if not lead and streams_first:
            share = share_of(0, walked.work[0].sizes[0])
            lead = share.lead if share is not None else 0.0
        everything = sum(moved.values())
        return Estimate(
            busy + passed, total.matrix, total.vector, memory, everything, need, lead, rest
        )

    def _room_ahead(self, needs: Sequence[float], rooms: Sequence[float]) -> int:
        """Layers before its first use at which what a tile loads finds room, beside what the tile
        before uses then, or stores for one layer more."""
        count, stored = self.pricer.count, self.walked.moment(-1).out
        if not self.schedule.loops:
            return count
        spare = [room - need for room, need in zip(rooms, needs, strict=True)]
        found = self.buffers.values()
        turning = [b for b in found if b.address is None and b.role == "local" and not b.lasting]
        for ahead in range(count + 1):
            for buffer in turning:
                begins = buffer.first - ahead if buffer.key is not None else buffer.last + 1
                taken = ahead > 0 if buffer.key is not None else not ahead and buffer.name in stored
                if taken and buffer.last - buffer.first + max(1, ahead) < count:
                    spare[begins % count] -= buffer.bytes * buffer.slots
            if min(spare) < 0:
                return max(0, ahead - 1)
        return count

    def _slots(self) -> dict[str, int]:
        """Slots of buffers in which a tile may have to wait for those before it."""
        apart = self.pricer.arch.front_end.sync == "interlock"
        return {
            name: buffer.slots
            for name, buffer in self.buffers.items()
            if buffer.address is None
            # Hardware sees that tiles write different parts of a tensor that is there as a whole.
            and (buffer.slots > 1 or name in self.walked.rolled or not apart)
        }

    def _arriving(self, position: int, *, stays: bool) -> tuple[float, float]:
        """Cycles of the loads of a layer's constants, those that stay for the group if they do and
        those that do for others too, and the bytes that they move. Each is a transfer of its own;
        without a loop over tiles small ones come with those before (`join_small_loads`). Engines
        that reach different memories work side by side."""
        pricer, cores, arch = self.pricer, self.cores, self.pricer.arch
        own = self.own[position] if stays else ()
        key = position, cores, own, bool(self.schedule.loops)
        if key not in pricer.arrivals:
            cycles, moved = dict[int, float](), 0.0
            cuts = cores.for_rank(len(pricer.group.layers[position].result.shape)).cuts
            sizes = dict[tuple[str, int], list[float]]()
            for constant in (*own, *pricer.pinned.get(position, ())):
                parts = (n for d, n in enumerate(cuts) if d in constant.follows)
                alike = cores.count // math.prod(parts)
                way = Path.load(arch, cores, arch.constants, constant.role, alike)
                most = startup_bytes(arch, way.engine)
                found = sizes.setdefault((constant.role, alike), [])
                joined = alike == cores.count and not self.schedule.loops
                if found and joined and min(found[-1], constant.loaded) <= most:
                    found[-1] += constant.loaded
                else:
                    found.append(constant.loaded)
            for (role, alike), each in sizes.items():
                way = Path.load(arch, cores, arch.constants, role, alike)
                for size in each:
                    asked, engine = (size, role, alike), id(way.engine)
                    if asked not in pricer.transfers:
                        pricer.transfers[asked] = way.run(size)
                    once = pricer.transfers[asked]
                    cycles[engine] = cycles.get(engine, 0.0) + float(once.busy)
                    moved += cores.count * float(once.bytes)
            pricer.arrivals[key] = max(cycles.values(), default=0.0), moved
        return pricer.arrivals[key]

    def _work(
        self, run: Repeat, moment: TileStep, shares: tuple[TilePrices | None, ...],
        arriving: Mapping[int, float],
    ) -> TileWork:  # fmt: skip
        """What one tile does; it loads what is not there from the tile before."""
        group, walked, cores = self.pricer.group, self.walked, self.cores.count
        there = walked.moment(run.first - 1).holds if run.first else {}
        loads, stores = dict[str, Transfer](), dict[str, Transfer]()
        for name, hold in moment.holds.items():
            if name in group.residents:
                continue
            if name not in group.producer_positions and there.get(name) != hold:
                size = hold.sizes
                loads[name] = self.pricer.transfer(name, size, size, cores, store=False)
        for name, box in moment.out.items():
            if name in moment.holds and name not in group.residents:
                size, room = tuple([size for _, size in box]), moment.holds[name].sizes
                stores[name] = self.pricer.transfer(name, size, room, cores, store=True)
        moves = dict[int, float]()
        for name, handed in walked.handed[run.first].items():
            reader = group.internal_readers[name][-1]
            moves[reader] = moves.get(reader, 0.0) + self._handing(name, handed, moment)
        both, homes = (*loads.items(), *stores.items()), dict.fromkeys(("dram", "flash"), 0.0)
        for name, moved in both:
            if name not in group.shared:
                homes[group.home(name, self.pricer.arch)] += float(moved.bytes)
        return TileWork(
            shares,
            {name: float(load.cycles) for name, load in loads.items()},
            moves,
            {group.producer_positions[name]: float(s.cycles) for name, s in stores.items()},
            arriving,
            *homes.values(),
        )

    def _handing(self, name: str, handed: tuple[int, int, int], moment: TileStep) -> float:
        """Cycles of moving what the next tile keeps to the front of its buffer."""
        pricer, hold, (dim, shift, overlap) = self.pricer, moment.holds[name], handed
        item = size_of(pricer.group.tensors[name].dtype)
        order = pricer.facts.passing(pricer.group, name).order
        pieces = -(-overlap // shift)
        sizes = tuple([n for _, n in hold.box])
        sizes = (*sizes[:dim], -(-overlap // pieces), *sizes[dim + 1 :])
        key = item, sizes, hold.sizes, order
        if key not in pricer.moves:
            pricer.moves[key] = move_cycles(pricer.arch, *key)
        return pieces * pricer.moves[key]
