"""Equal iterations once: where the machine's state repeats at a loop's boundary, whole periods of
it are not simulated.

`state` is the one place that lists what the future of a run depends on; `PARTS` names the other
attributes of the machine's parts. All that is in it is compared exactly, times
relative to now. A time in the past may instead be the same cycle as before: nothing has touched it
since, so nothing that is skipped does either.

What lies ahead must repeat too: positions stay inside one loop, and where addresses decide
something (banks, the interlock) they decide the same one period later. Then the clock, all
counters and the recorded rows advance by period x count, and positions move on in their streams.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from simpy import Event
from simpy.events import EventPriority

from simmodel.machine.build import Machine
from simmodel.machine.engine import (
    OPERANDS,
    STARTUP,
    TOKEN,
    TRAFFIC,
    Burst,
    Engine,
    Hazards,
    Scoreboard,
    Work,
)  # fmt: skip
from simmodel.machine.fabric import LAST, Fabric
from simmodel.machine.flow import Flow, Resource
from simmodel.machine.front_end import FrontEndProcess
from simmodel.machine.queue import Barrier, Clock, Queue, Token
from simmodel.machine.seams import Past, Seams, State, counters, in_flight, repeated
from simmodel.program.expand import Expansion, LoopPlace, Turn, turns_around

AFTER = EventPriority(LAST + 1)
"""When bandwidth has been shared for what happens in a cycle."""
LOOKS = 8.0
"""States that are looked at on credit."""
PRICE = 1 / 100
"""Looks that are earned by an occurrence: each takes the time of a few."""
WORTH = 40
"""Occurrences that have to be left of a loop: fewer are simulated as fast as looked at."""

Time = tuple[Any, "str | int", int, int]
"""A time's owner, its attribute or index there, value, and ticks a cycle."""
Moving = tuple[int, int, "int | None", bool]
"""Site, number of its operand, bytes by which this moves in a period if that is fixed, and whether
it is written."""
Counts = list[list[int]]
"""Of each site, what its work has counted."""


def times(machine: Machine) -> Iterator[Time]:
    """Every time that a part of the machine remembers, events aside, in an order that equal states
    share."""
    for engine in machine.all_engines:
        yield engine, "free", engine.free, 1
        phase, queue = engine.phase, engine.queue
        if phase in (TOKEN, OPERANDS):
            yield engine, "since", engine.since, 1
        elif phase in (STARTUP, TRAFFIC):
            assert engine.running is not None
            yield engine, "running", engine.running[1], 1
            yield engine, "begun", engine.begun, 1
            if phase == TRAFFIC:
                yield engine, "due", engine.due, 1
                yield engine.flow, "since", engine.flow.since, 1
        for index, (_, issued, burst, _) in enumerate(queue.entries):
            yield queue.entries, index, issued, 1
            if burst is not None:
                for item, stamp in enumerate(burst.stamps):
                    yield burst.stamps, item, stamp, burst.per_cycle
        for index, release in enumerate(queue.releases):
            yield queue.releases, index, release, 1
    for front_end in machine.front_ends:
        yield front_end, "ticks", front_end.ticks, front_end.pace.per_cycle
        if front_end.burst is not None and front_end.burst.started:
            yield front_end.burst, "begun", front_end.burst.begun, 1
            yield front_end.burst, "late", front_end.burst.late, front_end.burst.per_cycle


def state(machine: Machine) -> tuple[State, State, Past]:
    """All that the future of the run depends on besides the streams: equal ones go on alike. The
    first part says where it is: from one of equal groups to another only the rest is equal."""
    now, skipped = machine.env.now, machine.env.skipped
    bases = [front_end.next_site for front_end in machine.front_ends]
    key: list[Any] = []
    past: Past = []
    for _, _, value, unit in times(machine):
        ahead = value - now * unit
        if ahead <= 0:
            past.append((value + skipped * unit, unit))
            ahead = 0
        key.append(ahead)
    numbers: dict[Hazards, int] = {}
    if machine.arch.front_end.sync == "interlock":
        flying = (hazards for *_, hazards in in_flight(machine) if hazards is not None)
        numbers = {hazards: number for number, hazards in enumerate(flying)}
    resources: dict[Resource, None] = {}
    tokens: dict[Token, None] = {}
    for engine in machine.all_engines:
        key.append(_of_engine(engine, bases, numbers))
        if engine.phase == TRAFFIC:
            resources.update(dict.fromkeys(resource for resource, _ in engine.flow.usage))
        elif engine.phase == TOKEN:
            assert isinstance(engine.awaited, Token)
            tokens[engine.awaited] = None
    key += [_of_front_end(front_end, bases) for front_end in machine.front_ends]
    key += [token.count for token in machine.tokens[len(machine.barriers) :]]
    key += [
        _of_barrier(barrier, bases) for barrier in machine.barriers
        if 0 < barrier.arrivals < barrier.needed
    ]  # fmt: skip
    for token in tokens:
        waiters = [(count, *event.callbacks) for count, event in token.waiters]
        key.append((_of_token(token, bases), *waiters))
    for ahead, event in machine.env.pending():
        key.append((ahead, event._value, *event.callbacks))
        for callback in event.callbacks:
            owner = getattr(callback, "__self__", None)
            if isinstance(owner, Resource):
                resources[owner] = None
    key += [_of_resource(resource, now) for resource in resources]
    where = (*bases, *[barrier.arrivals for barrier in machine.barriers])
    return where, (*key, *machine.fabric.crowded, -1, *machine.fabric.seeds), past


def _glance(machine: Machine) -> State:
    """Part of the state: equal states have equal ones."""
    now = machine.env.now
    return tuple([
        (engine.phase, len(engine.queue.entries),
         max(0, engine.due - now) if engine.phase == TRAFFIC else 0)
        for engine in machine.all_engines
    ])  # fmt: skip


def _of_work(work: Work, bases: list[int]) -> State:
    """Which one it is, from where its core is."""
    barrier = None if work.barrier is None else _of_token(work.barrier, bases)
    return work.core, work.number - bases[work.core], work.alike, barrier


def _of_token(token: Token, bases: list[int]) -> Any:
    return _of_barrier(token, bases) if isinstance(token, Barrier) else token


def _of_barrier(barrier: Barrier, bases: list[int]) -> State:
    """Which one it is, by who arrives; all that are open are alike."""
    if barrier.count:
        return ()
    sites = [(core, number - bases[core]) for core, number in barrier.sites]
    return barrier.needed, barrier.arrivals, *sites


def _of_engine(engine: Engine, bases: list[int], numbers: dict[Hazards, int]) -> State:
    queue, phase = engine.queue, engine.phase
    entries = [
        (
            _of_work(work, bases),
            burst and (len(burst.stamps), burst.started),
            _waiting(hazards, numbers),
        )
        for work, _, burst, hazards in queue.entries
    ]
    key = (
        phase, engine.started, engine.streaming, queue.room, len(queue.releases),
        queue.bell is None, *queue.blocked, *entries,
    )  # fmt: skip
    if phase == TOKEN:
        assert isinstance(engine.awaited, Token)
        return (*key, _of_token(engine.awaited, bases), engine.next_wait)
    if phase not in (STARTUP, TRAFFIC):
        return key
    assert engine.running is not None
    work, *_, hazards = engine.running
    key = (*key, _of_work(work, bases), _waiting(hazards, numbers))
    if phase == STARTUP:
        return (*key, engine.usage, engine.length, engine.cycles)
    flow = engine.flow
    key = (*key, flow.usage, flow.left, flow.ended, *flow.lost, flow.bound)
    return key if flow.bound is None else (*key, flow.demand, flow.goal)


def _waiting(hazards: Hazards | None, numbers: dict[Hazards, int]) -> State | None:
    if hazards is None:
        return None
    return (*[numbers[h] for h in hazards.pending], -1, *[numbers[h] for h in hazards.behind])


def _of_front_end(front_end: FrontEndProcess, bases: list[int]) -> State:
    order, position, burst = front_end.order, front_end.position, front_end.burst
    stuck = front_end.stuck
    return (
        stuck and _of_work(stuck, bases),
        position > 0, position < len(order),
        front_end.next_site - order[max(0, position - 1)] if order else 0,
        burst and (burst.started, burst.pitch, len(burst.stamps)),
    )  # fmt: skip


def _of_resource(resource: Resource, now: int) -> State:
    key = resource, *resource.flows.items(), resource.limit, max(-1, resource.armed - now)
    if not resource.flows:
        return key
    if not resource.binding:
        return (*key, resource.load)
    due = [flow for _, _, flow, turn in sorted(resource.ends) if flow.turn == turn]
    return (
        *key, resource.load, resource.level, resource.binding, resource.moved,
        now - resource.since, *due,
    )  # fmt: skip


PARTS: dict[type, tuple[str, str]] = {
    Clock: ("_days _late _times _today", "_active_proc _eid _now _queue begin skipped"),
    Queue: ("bell blocked entries releases room", "depth"),
    Token: ("count waiters", "env name"),
    Barrier: ("arrivals count waiters", "env name needed sites"),
    Scoreboard: ("", "_issued _marks _near"),
    Hazards: ("behind pending", "_bell ended number occurrence work"),
    Burst: ("begun late pitch stamps started", "_first depth interval per_cycle times"),
    Engine: (
        "awaited begun cycles due free length next_wait phase running since started streaming "
        "usage", "_fabric _recorder core env flow name queue",
    ),
    FrontEndProcess: (
        "burst position stuck ticks", "_env due joins order pace scoreboard watch works",
    ),
    Fabric: ("crowded seeds", "_env"),
    Flow: ("bound demand ended goal left lost since usage", "alarm turn"),
    Resource: (
        "armed binding ends flows level limit load moved since",
        "_order banks bytes_per_cycle cause env name penalty",
    ),
    Work: (
        "", "alike barrier core count cause cycles engine first gain gained instruction issued "
        "last lost notices number profile profile_at signals spans_at startup times waits",
    ),
}  # fmt: skip
"""Attributes of what the machine is made of: those in the state, and those that are fixed, only
count, or follow from others. Where interlock and banks look at addresses, `Repetitions` does."""


@dataclass(frozen=True)
class Look:
    """The machine at a loop's boundary, and what it has counted so far."""

    cycle: int
    past: Past
    turns: list[tuple[Turn, ...]]
    """Of each core, the loops that its front end is in."""
    positions: list[int]
    counted: list[tuple[int, Counts]]
    """Of each core, the first site that is counted, and its and all later ones' counters."""
    rows: int
    """Numbers recorded so far."""

    def repeated(self, later: Look) -> bool:
        """Whether each time in the past is as long ago in an equal state, or untouched."""
        return repeated(self.past, later.past, later.cycle - self.cycle)


def watch_loops(machine: Machine, streams: Sequence[Expansion]) -> None:
    """Skip what repeats while `machine`, which is connected to `streams`, runs."""
    seams = Seams(machine, streams)
    repetitions = Repetitions(machine, streams, seams)
    for front_end, stream in zip(machine.front_ends, streams, strict=True):
        due = min([loop.start for loop in stream.loops[:1]] + [seams.due(front_end)])
        if due < math.inf:
            front_end.watch, front_end.due = repetitions.passed, due


class Repetitions:
    """Looks at the machine at boundaries of loops, and skips what repeats."""

    def __init__(self, machine: Machine, streams: Sequence[Expansion], seams: Seams) -> None:
        self._machine = machine
        self._streams = streams
        self._seams = seams
        self._leader: FrontEndProcess | None = None
        """Whose loops are watched: of the front end with the longest loop left."""
        self._until = 0
        """Where the outermost loop that the leader is in ends."""
        self._turns: tuple[Turn, ...] = ()
        """Of the leader, at its last boundary."""
        self._credit = LOOKS
        self._earned = 0
        """Occurrences that the credit has been raised for."""
        self._looks: dict[LoopPlace, tuple[int, dict[State, Look]]] = {}
        """Of each loop where it begins, and what was seen since."""
        self._wanted: tuple[list[int], tuple[Turn, ...], bool] | None = None
        """Levels of the loops that a look is due for, these, and whether a group has ended."""
        self._glances = set[int]()
        """What was seen of the state when a look was due."""
        self._unlike: dict[tuple[int, LoopPlace, int, frozenset[int]], list[list[Moving]]] = {}

    def passed(self, front_end: FrontEndProcess) -> None:
        """A front end has passed the boundary of a loop, and waits for a slot."""
        core = front_end.works[0].core
        position = front_end.position
        seam = position >= self._seams.due(front_end)
        if seam:
            self._seams.passed(position)
        turns, due = turns_around(self._streams[core].loops, position)
        front_end.due = min(due, self._seams.due(front_end))
        levels = self._levels(front_end, turns) if turns else []
        if levels or seam:
            if self._wanted is None:
                # When all that happens now has happened, and no part is in the midst of something.
                event = Event(self._machine.env)
                event._ok, event._value = True, None
                event.callbacks.append(self._look)
                self._machine.env.schedule(event, AFTER)
                self._wanted = [], (), False
            if levels:
                self._wanted = levels, turns, self._wanted[2]
            self._wanted = *self._wanted[:2], seam or self._wanted[2]

    def _levels(self, front_end: FrontEndProcess, turns: tuple[Turn, ...]) -> list[int]:
        """Levels of the loops around a front end that are worth a look."""
        loop, start, _ = turns[0]
        until = start + loop.count * loop.length
        if front_end is not self._leader:
            left = 0 if self._leader is None else self._until - self._leader.position
            if until - front_end.position <= 2 * left:
                return []
            self._leader, self._turns = front_end, ()
        self._until = until
        levels = self._worth_a_look(turns, front_end.position)
        self._turns = turns
        return levels

    def _worth_a_look(self, turns: tuple[Turn, ...], position: int) -> list[int]:
        """Levels of the loops that a turn other than the first has begun of, and enough is left
        of. Long ones pay for a look by themselves, short ones as far as others were worth it."""
        self._credit = min(10 * LOOKS, self._credit + max(0, position - self._earned) * PRICE)
        self._earned = max(self._earned, position)
        levels: list[int] = []
        for level, turn in enumerate(turns):
            if level < len(self._turns) and self._turns[level] == turn:
                continue
            loop, _, number = turn
            if number and loop.count - number > 2 and (loop.count - number) * loop.length > WORTH:
                if levels or loop.length * PRICE >= 2:
                    levels.append(level)
                elif self._credit >= 1:
                    self._credit -= 1
                    levels.append(level)
        return levels

    def _look(self, _: Event) -> None:
        assert self._wanted is not None
        (levels, turns, seam), self._wanted = self._wanted, None
        # The state of many cores takes long: it is looked at where a part of it was like this once.
        if (seen := hash(_glance(self._machine))) not in self._glances:
            self._glances.add(seen)
            return
        where, known, past = state(self._machine)
        if seam and (again := self._seams.look(known, past)) is not None:
            self._pass_time(again.past, past, again.late)
            return
        if not levels:
            return
        known, look = (*where, *known), self._take(levels[0], past)
        for level in levels:
            loop, start = turns[level][:2]
            if loop not in self._looks or self._looks[loop][0] != start:
                self._looks[loop] = start, {}
            looks = self._looks[loop][1]
            earlier = looks.setdefault(known, look)
            if earlier is look:
                continue
            if not earlier.repeated(look):
                looks[known] = look
            elif self._skip(level, earlier, look):
                return

    def _take(self, level: int, past: Past) -> Look:
        machine = self._machine
        turns = [
            turns_around(stream.loops, front_end.position)[0]
            for stream, front_end in zip(self._streams, machine.front_ends, strict=True)
        ]
        counted = []
        for works, own in zip(machine.works, turns, strict=True):
            sites = own[min(level, len(own) - 1)][0].sites if own else range(0)
            counted.append(
                (sites.start, [counters(work) for work in works[sites.start : sites.stop]])
            )
        rows = 0 if machine.recorder is None else len(machine.recorder)
        positions = [front_end.position for front_end in machine.front_ends]
        cycle = machine.env.now + machine.env.skipped
        return Look(cycle, past, turns, positions, counted, rows)

    def _skip(self, level: int, old: Look, new: Look) -> bool:
        """Skip as many periods as repeat what happened between two equal states; whether there
        are any."""
        times_left: list[int] = []
        moved: list[tuple[int, Turn, int]] = []
        for core, (front_end, start, end) in enumerate(
            zip(self._machine.front_ends, old.positions, new.positions, strict=True)
        ):
            if start == end:
                continue
            was, own = old.turns[core], new.turns[core]
            if not was or not own:
                return False
            turn = loop, first, _ = own[min(level, len(own) - 1)]
            if was[min(level, len(was) - 1)][:2] != (loop, first) or (end - start) % loop.length:
                return False
            pace, step = front_end.pace.first, end - start
            before = max(0, start - 1)
            if pace[before : end - 1] != pace[before + step : end - 1 + step]:
                return False
            times_left.append((first + loop.count * loop.length - 1 - end) // step)
            moved.append((core, turn, step))
        count = min(times_left, default=0)
        if count < 1:
            return False
        for core, turn, step in moved:
            count = self._same_banks(core, turn[0], old, new, count)
            if count < 1 or not self._same_order(core, turn, step, old):
                return False
        self._advance(moved, old, new, count)
        return True

    def _same_banks(self, core: int, loop: LoopPlace, old: Look, new: Look, count: int) -> int:
        """How many of the next `count` periods meet the same banks as the one before."""
        for site in loop.sites:
            work = self._machine.works[core][site]
            begun, ended = (_counted(look, core, site)[0] for look in (old, new))
            step = ended - begun
            if work.profile_at is None or not step:
                continue
            total = math.prod(turns for _, turns in self._streams[core].sites[site].loops)
            for occurrence in range(begun, min(begun + step * count + 1, total - step)):
                if work.profile_at(occurrence) is not work.profile_at(occurrence + step):
                    count = max(0, (occurrence - begun - 1) // step)
                    break
        return count

    def _same_order(self, core: int, turn: Turn, step: int, old: Look) -> bool:
        """Whether the interlock goes on to find the same conflicts: what is in flight and what is
        issued moves by the same bytes, or two operands meet always, or never."""
        machine, (loop, first, _) = self._machine, turn
        if machine.front_ends[core].scoreboard is None:
            return True
        order, sites = self._streams[core].order, loop.sites
        sent, each = (
            np.bincount(order[first:end], minlength=sites.stop)[sites.start :].tolist()
            for end in (old.positions[core], first + loop.length)
        )
        within: dict[int, slice] = {}
        for index, site in enumerate(sites):
            ended, issued, *_ = _counted(old, core, site)
            begin = issued - sent[index]
            if ended < begin:
                return False  # some are in flight from before the loop
            within[site] = slice(ended, begin + each[index] * loop.count)
        for work, *_ in in_flight(machine):
            if work.core == core and work.number not in sites:
                within[work.number] = slice(work.count, work.issued)
        key = core, loop, step, frozenset(within)
        if key not in self._unlike:
            self._unlike[key] = self._unlike_steps(core, loop, step // loop.length, within)
        return all(self._same_conflicts(core, own, within) for own in self._unlike[key])

    def _unlike_steps(
        self, core: int, loop: LoopPlace, turns: int, numbers: Iterable[int]
    ) -> list[list[Moving]]:
        """Of each memory whose operands do not all move by the same bytes, these operands."""
        machine = self._machine
        found: dict[int, list[Moving]] = defaultdict(list)
        for number in numbers:
            site = self._streams[core].sites[number]
            reads = len(site.wide.reads())
            for index, operand in enumerate(site.operands):
                inside = number in loop.sites
                step = operand.address.after(loop.variable, turns) if inside else 0
                for instance in machine.memories.instances(operand, core):
                    found[instance].append((number, index, step, index >= reads))
        steps = {instance: {step for _, _, step, _ in own} for instance, own in found.items()}
        return [own for it, own in found.items() if len(steps[it]) > 1 or None in steps[it]]

    def _same_conflicts(self, core: int, own: list[Moving], within: dict[int, slice]) -> bool:
        works, sites = self._machine.works[core], self._streams[core].sites
        rows: list[tuple[float, ...]] = []
        for number, index, step, write in own:
            at = sites[number].addresses[index][within[number]]
            if len(at):
                low, high = sites[number].operands[index].span
                moved = math.nan if step is None else step
                engine = id(works[number].engine)
                rows.append((at.min() + low, at.max() + low, high - low, moved, write, engine))
        first, last, size, moved, write, engine = np.array(rows).reshape(-1, 6).T[:, :, None]
        never = first >= (last + size).T
        always = last < (first + size).T
        fixed = never | never.T | (always & always.T) | (moved == moved.T)
        return bool(np.all(fixed | (write == 0) | (engine == engine.T)))

    def _advance(
        self, moved: list[tuple[int, Turn, int]], old: Look, new: Look, count: int
    ) -> None:
        machine = self._machine
        late = (new.cycle - old.cycle) * count
        self._credit += LOOKS
        if machine.recorder is not None and new.rows > old.rows:
            machine.recorder.frombytes(self._rows(old, new, count).tobytes())
        for core, (loop, _, _), step in moved:
            machine.front_ends[core].position += step * count
            machine.skipped += step * count
            further: dict[Work, int] = {}
            for site in loop.sites:
                work = machine.works[core][site]
                gained = np.subtract(_counted(new, core, site), _counted(old, core, site)) * count
                done, issued, overlapped, *lost = gained.tolist()
                further[work] = issued
                work.count += done
                work.issued += issued
                work.gained += overlapped
                work.lost = [a + b for a, b in zip(work.lost, lost, strict=True)]
                if done:
                    work.last += late
            board = machine.front_ends[core].scoreboard
            if board is not None:
                flying = [
                    h for *_, h in in_flight(machine) if h is not None and h.work.core == core
                ]
                for hazards in flying:
                    hazards.occurrence += further.get(hazards.work, 0)
                board.replace(flying)
        self._pass_time(old.past, new.past, late)

    def _pass_time(self, old: Past, new: Past, late: int) -> None:
        machine = self._machine
        # What nothing has touched stays where it was while the clock goes on.
        untouched = iter([a == b for (a, _), (b, _) in zip(old, new, strict=True)])
        for owner, place, value, unit in list(times(machine)):
            if value <= machine.env.now * unit and next(untouched):
                _set(owner, place, value - late * unit)
        machine.env.skipped += late

    def _rows(self, old: Look, new: Look, count: int) -> Any:
        """What the recorder would have noted in `count` more periods."""
        recorder = self._machine.recorder
        assert recorder is not None
        rows = np.array(recorder[old.rows : new.rows], np.int64).reshape(-1, 7)
        step = np.zeros_like(rows)
        step[:, 3:6] = new.cycle - old.cycle
        for index, (core, site) in enumerate(rows[:, :2].tolist()):
            before, after = _counted(old, core, site), _counted(new, core, site)
            step[index, 2], step[index, 6] = after[0] - before[0], after[2] - before[2]
        return rows + step * np.arange(1, count + 1)[:, None, None]


def _counted(look: Look, core: int, site: int) -> list[int]:
    first, counts = look.counted[core]
    return counts[site - first]


def _set(owner: Any, place: str | int, value: int) -> None:
    """Replace a time that `times` named; in an entry it is the second item."""
    current = getattr(owner, place) if isinstance(place, str) else owner[place]
    changed = (current[0], value, *current[2:]) if isinstance(current, tuple) else value
    if isinstance(place, str):
        setattr(owner, place, changed)
    else:
        owner[place] = changed
