"""Software-pipelined issue of one loop: who is issued how many iterations ahead.

    Loop(v, n, [load, compute])  ->  load of 0
                                     Loop(v, n - 1, [load of v + 1, compute of v])
                                     compute of n - 1

A `SoftwarePipeline` is the kernel: the atoms of the body with the iterations that each runs ahead.
The order comes from a clock with unlimited queues: what starts first is issued first. Nothing
changes within a lane of an engine, so only tokens (`plays`) and, where the hardware interlocks,
operands restrict it.

Where cores pass on what they load through several places in shared memory, a core loads its own
part of the next tile amid others' parts of this one, which it may have to wait for:

    load own v, store it, fetch v  ->  fetch v below own, load own v + 1, store it, fetch v above
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from compiler.codegen.issue_order.access import Accesses, meet
from compiler.codegen.issue_order.clock import IssueClock, as_clocks_see, issued_by
from compiler.codegen.issue_order.units import Cost, IssueUnit, Pricer, far_loads, plays
from simmodel.arch.base import OFF_CHIP
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Item, Loop, Sync
from simmodel.isa.region import cached_property, replace

Entry = tuple[int, int]
"""Index into the body, and iterations ahead."""
GROWTH = 2048
"""Most instructions and loops that rotating one loop may add to the stream."""
WINDOW = 6
"""Iterations of each loop that are played to judge an order."""
PAYS = 200
"""A copy of a loop's body has to win one part in so many of the time of what is played."""


@dataclass(frozen=True)
class SoftwarePipeline:
    """The kernel of a rotated loop."""

    entries: tuple[Entry, ...]
    pace: int = 0
    """Cycles per iteration, once these are found."""

    @property
    def ahead(self) -> int:
        """Iterations that the first runs ahead of the last."""
        return max(shift for _, shift in self.entries)

    def turns(self, count: int, first: int, last: int) -> Iterator[Entry]:
        """Index and iteration of what kernel iterations `first` .. `last` - 1 stand for."""
        for turn in range(first, last):
            for index, shift in self.entries:
                if 0 <= turn + shift < count:
                    yield index, turn + shift

    def keeps_lanes(self, body: Sequence[IssueUnit], apart: Collection[int] = ()) -> bool:
        """Whether every engine sees the atoms of each of its lanes in their old order; those that
        are `apart` have a lane of their own."""
        place = {index: (-shift, at) for at, (index, shift) in enumerate(self.entries)}
        last: dict[str, tuple[int, int]] = {}
        first: dict[str, tuple[int, int]] = {}
        for index, atom in enumerate(body):
            for name in atom.cost.lanes:
                lane = f"{name}+apart" if index in apart else name
                if lane in last and place[index] <= last[lane]:
                    return False
                last[lane] = place[index]
                first.setdefault(lane, place[index])
        return all(last[lane] < (turn + 1, at) for lane, (turn, at) in first.items())


@dataclass
class LoopOrder:
    """One loop whose body is in atoms, ready to be rotated."""

    arch: Arch
    loop: Loop
    body: list[IssueUnit]
    counts: Mapping[str, int]
    """Tokens at its entry."""
    loops: Mapping[str, int]
    """Iterations of the loops around it, its own included."""
    users: Mapping[int, int] = field(default_factory=dict)
    """Origin -> cores that use memory off chip for it."""
    _touched: dict[Entry, Accesses] = field(default_factory=dict)
    _met: dict[tuple[int, int, int], bool] = field(default_factory=dict)

    def best(self, distance: int, known: dict[Hashable, SoftwarePipeline]) -> SoftwarePipeline:
        """The schedule that the coarse clock likes best, with own parts ahead of fetches where that
        is possible: the clock does not see that cores want DRAM one after another then. What it
        likes is `known` by all that it sees."""
        key = self.loop.count, as_clocks_see(self.judged, self.counts)
        if self.arch.front_end.sync == "interlock" or key not in known:  # there addresses decide
            known[key] = self._by_clock(distance)
        return self._ahead_of_fetches(known[key])

    @cached_property
    def judged(self) -> list[IssueUnit]:
        """The body as it is judged: the clock knows engines alone, and where loads meet stores at
        DRAM each is slowed down by what both want too much, as long as the shorter side lasts."""
        rates, moved, sides = self.arch.far_rates, 0.0, {True: 0, False: 0}
        far = set[IssueUnit]()
        for atom in self.body:
            if isinstance(item := atom.item, Copy) and (loads := far_loads(item, self.arch)):
                far.add(atom)
                sides[atom.cost.load] += atom.cost.cycles
                users = self.users.get(item.origin, 1)
                moved += users * sum(n / rates[role] for role, n in loads.items())
        excess = 2 * min(1.0, moved / max(1, sum(sides.values()))) - 1
        late = max(0.0, excess) * min(sides.values())

        def cost(atom: IssueUnit) -> Cost:
            cycles = atom.cost.cycles
            return replace(atom.cost, cycles=cycles + int(cycles * late / sides[atom.cost.load]))

        return [replace(a, cost=cost(a)) if late and a in far else a for a in self.body]

    def _fits(self, schedule: SoftwarePipeline) -> bool:
        size = sum(atom.cost.size for atom in self.body)
        return schedule.ahead < self.loop.count and schedule.ahead * size <= GROWTH

    def _by_clock(self, distance: int) -> SoftwarePipeline:
        """The schedule that the coarse clock likes best.

        Every further copy of the body has to pay: 1 / `PAYS` of the time of the iterations played.
        """
        plain = SoftwarePipeline(tuple((index, 0) for index in range(len(self.body))))
        cycles, pace = self._played(plain)
        choice, least = replace(plain, pace=pace), cycles * PAYS
        starts, period, bound = self._steady()
        if (cycles - bound) * PAYS <= cycles:
            return choice
        for schedule in self._candidates(starts, period, distance):
            if schedule == plain or not self._fits(schedule) or not self.legal(schedule):
                continue
            more = schedule.ahead * cycles
            end, pace = self._played(schedule, (least - more) / PAYS)
            if end * PAYS + more < least:
                choice, least = replace(schedule, pace=pace), end * PAYS + more
        return choice

    @property
    def signature(self) -> Hashable:
        """Loops that agree in it have the same best schedule, where that is legal."""
        costs = tuple(atom.cost for atom in self.judged)
        names = dict.fromkeys(n for cost in costs for n, _ in (*cost.waits, *cost.signals))
        return self.loop.count, costs, tuple(self.counts.get(name, 0) for name in names)

    def issue_units(self, schedule: SoftwarePipeline, pricer: Pricer) -> list[IssueUnit]:
        """The loop as its schedule says: what comes first, the kernel, what is left."""
        name, count, ahead = self.loop.variable, self.loop.count, schedule.ahead
        kernel = [self.body[index].shifted(name, shift) for index, shift in schedule.entries]
        items = tuple(atom.item for atom in kernel)
        return [
            *self._peeled(schedule.turns(count, -ahead, 0)),
            *([pricer.loop(Loop(name, count - ahead, items), kernel, schedule.pace)]
              if count - ahead > 1 else [atom.fixed(name, 0) for atom in kernel]),
            *self._peeled(schedule.turns(count, count - ahead, count)),
        ]  # fmt: skip

    def _peeled(self, turns: Iterator[Entry]) -> list[IssueUnit]:
        return [self.body[index].fixed(self.loop.variable, turn) for index, turn in turns]

    def _candidates(self, starts: list[int], period: int, distance: int) -> list[SoftwarePipeline]:
        """By when atoms start with unlimited queues, or by when the front end must be past them."""
        depth = self.arch.front_end.depth
        late = [
            issued_by(atom, start, depth) for atom, start in zip(self.judged, starts, strict=True)
        ]
        found: dict[SoftwarePipeline, None] = {}
        for times in (starts, late) if late != starts else (starts,):
            for ahead, behind in product(range(distance + 1), repeat=2):
                if ahead + behind > distance:
                    continue
                schedule = self._schedule(times, period, ahead, behind)
                if schedule.keeps_lanes(self.body):
                    found[schedule] = None
        return list(found)

    @cached_property
    def _owns(self) -> dict[int, tuple[int, ...]]:
        """Loads of own parts -> all that goes with them: the word ahead that there is room for
        others', the load, and the store for others."""
        found = dict[int, tuple[int, ...]]()
        word = -1
        for index, atom in enumerate(self.body if self._fetches else ()):
            own = atom.item
            if isinstance(own, Sync) and own.notifies:
                word = index
            elif isinstance(own, Copy) and own.src.memory in OFF_CHIP and word >= 0:
                behind = (
                    other
                    for other in range(index + 1, len(self.body))
                    if isinstance(store := self.body[other].item, Copy) and store.src == own.dst
                )
                found[index], word = (word, index, *list(behind)[:1]), -1
        return found

    @cached_property
    def _fetches(self) -> list[int]:
        """Loads that fetch others' parts."""
        return [index for index, atom in enumerate(self.body) if atom.cost.fetch]

    def _ahead_of_fetches(self, schedule: SoftwarePipeline) -> SoftwarePipeline:
        """`schedule`, where each core loads its parts and stores them for the others before it has
        fetched theirs of the load before, at its own place between these, wherever that may be."""
        for own in self._owns:
            made = self._own_ahead(schedule, own)
            if made is not None and self._fits(made) and self.legal(made):
                schedule = made
        return schedule

    def _own_ahead(self, schedule: SoftwarePipeline, own: int) -> SoftwarePipeline | None:
        """`schedule` with one part and its store ahead of fetches of the load before."""
        before = [index for index, _ in schedule.entries]
        at = before.index(own)
        taken = self._owns[own]
        # What stands before it in the kernel, or else at the end of the kernel before.
        around, wraps = before[:at], False
        if not any(self._one_buffer(own, index) for index in around):
            around, wraps = before[at + 1 :], True
        fetches = list[int]()
        for index in reversed(around):
            if self._one_buffer(own, index):
                if index not in self._fetches:
                    break
                fetches.append(index)
            elif isinstance(self.body[index].item, Loop) and self._loads(index):
                break
        if not fetches:
            return None
        begin = _begin(self.body[own])
        below = [index for index in fetches if _begin(self.body[index]) < begin]
        rest = [entry for entry in schedule.entries if entry[0] not in taken]
        places = {index: place for place, (index, _) in enumerate(rest)}
        place = places[below[0]] + 1 if below else places[fetches[-1]]
        shifts = dict(schedule.entries)
        rest[place:place] = [(index, shifts[index] + wraps) for index in taken]
        least = min(shift for _, shift in rest)
        entries = tuple((index, shift - least) for index, shift in rest)
        return replace(schedule, entries=entries)

    def _loads(self, index: int) -> bool:
        """Whether an atom works on an engine of the fetches."""
        engines = {engine for fetch in self._fetches for engine in self.body[fetch].cost.engines}
        return bool(engines & {*self.body[index].cost.engines})

    def _one_buffer(self, own: int, other: int) -> bool:
        """Whether another load of a part, own or fetched, is to the same buffer."""
        one, two = self.body[own].item, self.body[other].item
        if not (other in self._owns or other in self._fetches):
            return False
        assert isinstance(one, Copy)
        assert isinstance(two, Copy)
        mine, its = one.dst.address, two.dst.address
        if mine.ring is None or its.ring is None or mine.ring.pitch != its.ring.pitch:
            return False
        return abs(mine.base - its.base) < mine.ring.pitch

    def _may_run_ahead(self, schedule: SoftwarePipeline) -> bool:
        """Whether own parts alone go ahead of fetches, which touch other bytes and use other
        tokens."""
        if not schedule.keeps_lanes(self.body, self._fetches):
            return False
        place = {index: (-shift, at) for at, (index, shift) in enumerate(schedule.entries)}
        loads = [index for index in place if index not in self._fetches and self._loads(index)]
        turns = range(-schedule.ahead, schedule.ahead + 1)
        for other, fetch, by in product(loads, self._fetches, turns):
            turn, at = place[other]
            before, now = (by, other) < (0, fetch), (by + turn, at) < place[fetch]
            if before != now and (before or not self._independent(other, fetch, by)):
                return False
        return True

    def _independent(self, own: int, fetch: int, by: int) -> bool:
        """Whether the load of an own part, `by` iterations later, has no byte and no token in
        common with a fetch."""
        if not any(own in taken for taken in self._owns.values()):
            return False
        one, two = self.body[own], self.body[fetch]
        names, others = (
            {name for name, _ in (*atom.cost.waits, *atom.cost.signals)} for atom in (one, two)
        )
        name, counts = self.loop.variable, {**self.loops, self.loop.variable: self.loop.count - by}
        later = [access.later(name, by) for access in one.accesses]
        return not names & others and not meet(later, two.accesses, counts)

    def _steady(self) -> tuple[list[int], int, int]:
        """With unlimited queues: starts in a late iteration, its period, the end of all played."""
        clock = IssueClock(self.arch, self.counts, self.loops)
        starts = [
            [self._play(clock, index, turn)[0] for index in range(len(self.body))]
            for turn in range(min(self.loop.count, WINDOW))
        ]
        lead = self._lead()
        return starts[-1], max(1, starts[-1][lead] - starts[-2][lead]), clock.now

    def _lead(self) -> int:
        """The atom with which a kernel iteration begins: the first that does not load."""
        return next((i for i, atom in enumerate(self.body) if not atom.cost.load), 0)

    def _schedule(
        self, times: Sequence[int], period: int, ahead: int, behind: int
    ) -> SoftwarePipeline:
        """By time modulo the period; at most `ahead` or `behind` iterations from the first work."""
        origin = times[self._lead()]
        entries = []
        for index, atom in enumerate(self.body):
            turn, phase = divmod(times[index] - origin, period)
            entries.append((turn, phase, not atom.cost.load, index))
        clamped = []
        for turn, phase, rank, index in entries:
            if turn < -ahead:
                turn, phase = -ahead, -1
            elif turn > behind:
                turn, phase = behind, period
            clamped.append((phase, rank, index, -turn))
        least = min(shift for *_, shift in clamped)
        ordered = sorted(clamped)
        return SoftwarePipeline(tuple((index, shift - least) for _, _, index, shift in ordered))

    def _play(self, clock: IssueClock, index: int, turn: int) -> tuple[int, int]:
        if self.arch.front_end.sync == "interlock" and (index, turn) not in self._touched:
            found = (a.at(self.loop.variable, turn) for a in self.body[index].accesses)
            self._touched[index, turn] = tuple(found)
        return clock.play(self.judged[index], self._touched.get((index, turn)))

    def _played(self, schedule: SoftwarePipeline, limit: float = math.inf) -> tuple[int, int]:
        """End of a few iterations on the machine's queues, and cycles of each in between; where
        that cannot be before `limit`, something that is not."""
        clock = IssueClock(self.arch, self.counts, self.loops, queues=True)
        count = min(self.loop.count, WINDOW)
        left: dict[str, int] = defaultdict(int)
        for atom in self.judged:
            for engine in atom.cost.engines:
                left[engine] += count * atom.cost.cycles
        ends = [0]
        for first in range(-schedule.ahead, count):
            for index, turn in schedule.turns(count, first, first + 1):
                self._play(clock, index, turn)
                cost = self.judged[index].cost
                for engine in cost.engines:
                    left[engine] -= cost.cycles
            ends.append(clock.now)
            least = max(clock.free(engine) + cycles for engine, cycles in left.items())
            if least >= limit:
                return least, 1
        steady = ends[schedule.ahead + 1 : count + 1]
        pace = (steady[-1] - steady[0]) // max(1, len(steady) - 1) if len(steady) > 1 else ends[-1]
        return clock.now, max(1, pace)

    def legal(self, schedule: SoftwarePipeline) -> bool:
        """Whether `schedule` means the same and cannot deadlock, for every iteration."""
        if not schedule.keeps_lanes(self.body) and not self._may_run_ahead(schedule):
            return False
        if self.arch.front_end.sync == "interlock" and not self._swaps_are_independent(schedule):
            return False
        name, count, ahead = self.loop.variable, self.loop.count, schedule.ahead
        kernel = tuple(self.body[index].item for index, _ in schedule.entries)

        def peeled(first: int, last: int) -> list[Item]:
            return [self.body[index].item for index, _ in schedule.turns(count, first, last)]

        items = [
            *peeled(-ahead, 0),
            Loop(name, count - ahead, kernel),
            *peeled(count - ahead, count),
        ]
        return plays(items, self.counts)

    def _swaps_are_independent(self, schedule: SoftwarePipeline) -> bool:
        """Whether whatever changes places has no byte in common, in any iteration."""
        place = {index: (-shift, at) for at, (index, shift) in enumerate(schedule.entries)}
        return not any(
            self._meet(one, two, by)
            for one, (turn, at) in place.items()
            for by in range(schedule.ahead + 1)
            for two, other in place.items()
            if (by or two < one) and (turn + by, at) < other
        )

    def _meet(self, one: int, two: int, by: int) -> bool:
        """Whether the first of two atoms, `by` iterations later, has a byte in common with the
        second; those of one lane keep their order."""
        found = self._met.get((one, two, by))
        if found is None:
            name, (mine, other) = self.loop.variable, (self.body[one], self.body[two])
            found = False
            if not set(other.cost.lanes) & set(mine.cost.lanes):
                later = [access.later(name, by) for access in mine.accesses]
                counts = {**self.loops, name: self.loop.count - by}
                found = meet(later, other.accesses, counts)
            self._met[one, two, by] = found
        return found


def _begin(atom: IssueUnit) -> int:
    """First byte of what a copy writes, in the first slot."""
    assert isinstance(atom.item, Copy)
    return atom.item.dst.address.base
