"""An engine takes the next instruction of its queue, waits for operands, works, and signals.

Matrix, vector, scalar and copy engines and the host are all this block; they differ in the
start-up, cycles and traffic of their instructions.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from simpy import Event
from simpy.events import Timeout

from simmodel.isa import Instruction
from simmodel.machine.fabric import Fabric
from simmodel.machine.flow import Flow, Usage
from simmodel.machine.queue import Barrier, Clock, Queue, Token
from simmodel.trace import BANDWIDTH, CAUSES, CONFLICT, CORE, FILL, FRONT_END

Span = tuple[tuple[int, ...], int, int]
"""Memory instances, of a broadcast several; lowest byte, one past the highest byte."""
Waits = tuple[tuple[Token, int], ...]
Notices = tuple[tuple[Token, int, int], ...]
"""Tokens of whatever core, counts, and cycles until they arrive."""


class Profile:
    """How long an instruction works alone, and what it moves per cycle meanwhile."""

    __slots__ = ("behind", "cause", "cycles", "length", "usage")

    def __init__(self, cycles: int, moved: Usage) -> None:
        """`moved` are bytes of the whole instruction through each resource, none of them 0."""
        slowest = max((amount / r.bytes_per_cycle for r, amount in moved), default=0.0)
        self.length = max(float(cycles), slowest)
        """Cycles after the start-up at the granted bandwidth of an otherwise silent machine."""
        self.cycles = math.ceil(self.length - 1e-6)
        self.cause = CONFLICT
        """What bounds it alone, where that is not its own cycles."""
        for resource, amount in moved:
            if amount / resource.bytes_per_cycle == slowest:
                self.cause = resource.cause
        self.usage: Usage = tuple((r, amount / self.length) for r, amount in moved)
        self.behind = self
        """The same instruction right behind its like, where the engine overlaps them."""


@dataclass(slots=True, eq=False)
class Work:
    """One site on one core, bound to the machine's parts, and what is counted about it.

    Front end and engines read only this while they run, so whatever an instruction answers through
    a method (cycles, traffic, address) is asked once, before.
    """

    instruction: Instruction
    core: int
    number: int
    """Of its site, in its core's stream."""
    engine: Engine
    startup: int
    """Cycles before the traffic."""
    cycles: int
    """Cycles of work."""
    gain: int
    """Cycles less where it follows its like without a gap (`Instruction.overlap`)."""
    times: int
    """Instructions issued per occurrence."""
    cause: int
    """What an engine waits for that waits for this work."""
    waits: Waits
    signals: Waits
    notices: Notices
    profile: Profile | None = None
    """The profile of every occurrence; None where the banks that it touches decide."""
    profile_at: Callable[[int], Profile] | None = None
    """Profile of an occurrence, where `profile` is None."""
    spans_at: Callable[[int], tuple[Sequence[Span], Sequence[Span]]] | None = None
    """Bytes read and written by an occurrence, where the interlock watches them."""
    barrier: Barrier | None = None
    """Where it arrives, or what it awaits."""
    alike: int = -1
    """Number that all works have that do the same, barriers aside (`simmodel.machine.seams`)."""
    issued: int = 0
    """Occurrences that the front end has sent to the queue."""
    count: int = 0
    """Occurrences that have ended."""
    gained: int = 0
    """Cycles that were saved by overlapping."""
    first: int = -1
    last: int = 0
    lost: list[int] = field(default_factory=lambda: [0] * len(CAUSES))
    """Idle cycles of the engine before and during this work, by cause."""

    @property
    def executed(self) -> int:
        """Instructions that have ended."""
        return self.count * self.times

    @property
    def busy(self) -> int:
        """Cycles that its engine was busy with it."""
        return self.executed * (self.startup + self.cycles) - self.gained

    def __str__(self) -> str:
        times = f" x {self.times}" if self.times > 1 else ""
        return f"{self.instruction.MNEMONIC}{times}"


# The interlock: one scoreboard per core, on machines without tokens. It learns of an instruction
# when that is issued, so each knows all that it has to wait for, and merely counts down as
# those end.


@dataclass(slots=True, eq=False)
class Hazards:
    """What one issued instruction still waits for, and who waits for it."""

    work: Work
    occurrence: int
    number: int
    """In order of issue."""
    pending: dict[Hazards, None] = field(default_factory=dict)
    """Earlier instructions that are in the way."""
    behind: list[Hazards] = field(default_factory=list)
    _bell: Event | None = None
    ended: bool = False

    def clear(self, env: Clock) -> Event:
        """An event whose value is the cause, once nothing is in the way any more."""
        self._bell = Event(env)
        return self._bell

    def end(self) -> None:
        """The instruction has ended: let those go that waited for it alone."""
        self.ended = True
        for later in self.behind:
            del later.pending[self]
            if not later.pending and later._bell is not None:
                later._bell.succeed(self.work.cause)

    def __str__(self) -> str:
        origins = ", ".join(str(h.work) for h in self.pending)
        return f"operands of {origins}"


Marks = deque[tuple[int, int, Hazards]]
"""Lowest byte, one past the highest, and whose they are: of one engine, which works in order, so
that those which have ended are the first."""


class Scoreboard:
    """Instructions of one core that were issued and have not ended, in program order."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, ...], dict[Engine, tuple[Marks, Marks]]] = {}
        """By memory instances (all those of a broadcast together) and engine: what is written and
        what is read there."""
        self._near: dict[tuple[int, ...], list[dict[Engine, tuple[Marks, Marks]]]] = {}
        """By instances, the marks of all that have one in common with them."""
        self._issued = 0

    def issue(self, work: Work, occurrence: int) -> Hazards:
        """Note an instruction and find everyone in flight on another engine that is in its way."""
        self._issued += 1
        hazards, engine = Hazards(work, occurrence, self._issued), work.engine
        pending = hazards.pending
        assert work.spans_at is not None
        for written, spans in enumerate(work.spans_at(occurrence)):
            for memories, low, high in spans:
                for marks in self._near.get(memories) or self._among(memories):
                    for other_engine, (writes, reads) in marks.items():
                        if other_engine is engine or not (writes or (written and reads)):
                            continue
                        for own in (writes, reads) if written else (writes,):
                            while own and own[0][2].ended:
                                own.popleft()
                            for start, end, other in own:
                                if low < end and start < high:
                                    pending[other] = None
                self._mark(memories, engine, written, (low, high, hazards))
        for other in pending:
            other.behind.append(hazards)
        return hazards

    def _among(self, memories: tuple[int, ...]) -> list[dict[Engine, tuple[Marks, Marks]]]:
        """Marks near `memories`, which are new."""
        marks, mine = self._marks.setdefault(memories, {}), {*memories}
        near = self._near[memories] = [marks]
        for other, its in self._near.items():
            if other is not memories and not mine.isdisjoint(other):
                near.append(self._marks[other])
                its.append(marks)
        return near

    def _mark(
        self, memories: tuple[int, ...], engine: Engine, written: int,
        mark: tuple[int, int, Hazards],
    ) -> None:  # fmt: skip
        marks = self._marks[memories].setdefault(engine, (deque(), deque()))[1 - written]
        while marks and marks[0][2].ended:
            marks.popleft()
        marks.append(mark)

    def replace(self, flying: list[Hazards]) -> None:
        """Mark what these have at their occurrences, and nothing else."""
        for engines in self._marks.values():
            for marked in chain.from_iterable(engines.values()):
                marked.clear()
        for hazards in sorted(flying, key=lambda each: each.number):
            work = hazards.work
            assert work.spans_at is not None
            for written, spans in enumerate(work.spans_at(hazards.occurrence)):
                for memories, low, high in spans:
                    self._mark(memories, work.engine, written, (low, high, hazards))


# A burst: n instructions of one site, issued one after another, as one entry of the queue.


class Burst:
    """State shared by front end and engine during one burst.

    Times of the front end are in ticks, `per_cycle` ticks a cycle: from the issue of the first item
    to the next, and `interval` ticks from issue to issue behind that.
    """

    __slots__ = ("_first", "begun", "depth", "interval", "late", "per_cycle", "pitch", "stamps",
                 "started", "times")  # fmt: skip

    def __init__(self, times: int, depth: int, intervals: tuple[int, int], per_cycle: int) -> None:
        self.times = times
        self.depth = depth
        self._first, self.interval = intervals
        self.per_cycle = per_cycle
        self.stamps: list[int] = []
        """Ticks at which the first items were issued."""
        self.started = False
        self.begun = self.pitch = self.late = 0

    def start(self, now: int, pitch: int) -> None:
        """Item 0 starts at cycle `now`; each item takes `pitch` cycles."""
        self.started = True
        self.begun, self.pitch = now, pitch
        interval = self._first if len(self.stamps) == 1 else self.interval
        self.late = max(self.stamps[-1] + interval, now * self.per_cycle)

    def _issue(self, item: int) -> int:
        known = len(self.stamps)
        if item < known:
            return self.stamps[item]
        return self.late + (item - known) * self.interval

    def _start(self, item: int) -> int:
        return max(self.begun + item * self.pitch, self._issue(item) // self.per_cycle)

    @property
    def length(self) -> int:
        """Cycles from the start of the first item to the end of the last."""
        return self._start(self.times - 1) + self.pitch - self.begun

    @property
    def next_issue(self) -> int:
        """Ticks at which the front end can issue the next instruction."""
        last = self._issue(self.times - 1)
        if self.times > len(self.stamps):
            last = max(last, self._start(self.times - 1 - self.depth) * self.per_cycle)
        return last + self.interval

    def releases(self) -> Iterator[int]:
        """Cycles at which items start and free their queue slots."""
        taken = self.times - len(self.stamps)
        return (self._start(item) for item in range(taken, self.times))


Entry = tuple[Work, int, Burst | None, Hazards | None]
"""Work, the cycle of its issue, and, if any, the burst and the interlock's hazards."""

IDLE, ISSUE, TOKEN, OPERANDS, STARTUP, TRAFFIC = range(6)
"""What an engine waits for: an entry, its issue, a token, the interlock, the start-up's end, the
end of the work."""


class Engine:
    """One engine of one core, or the host (core -1).

    Between two events all that it knows is in its attributes, so a state of the machine can be
    compared with another one.
    """

    __slots__ = ("_fabric", "_recorder", "awaited", "begun", "core", "cycles", "due", "env",
                 "flow", "free", "length", "name", "next_wait", "phase", "queue", "running",
                 "since", "started", "streaming", "usage")  # fmt: skip

    def __init__(
        self, env: Clock, label: tuple[str, int], depth: int, fabric: Fabric,
        recorder: array[int] | None,
    ) -> None:  # fmt: skip
        self.env = env
        self.name, self.core = label
        self.queue = Queue(depth)
        self.phase = IDLE
        self.free = env.now
        """End of its last instruction; before the first, the cycle in which the run begins."""
        self.started = False
        """Whether an instruction other than synchronization has started."""
        self.streaming = False
        """Whether its last instruction can overlap one that follows without a gap."""
        self.awaited: Token | Hazards | None = None
        """The token or hazard that it waits for, or last waited for."""
        self.since = 0
        """When that wait began."""
        self.next_wait = 0
        """How many of the waits of the head of the queue it has come to."""
        self.running: Entry | None = None
        self.begun = 0
        """When what runs has started."""
        self.due = 0
        """When it ends if nothing slows it down."""
        self.flow = Flow()
        self.usage: Usage = ()
        self.length: float = 0.0
        self.cycles = 0
        """Resources, length and cycles of the work behind the start-up."""
        self._fabric = fabric
        self._recorder = recorder

    def attend(self, _: Event | None = None) -> None:
        """Work through the queue until there is something to wait for."""
        entries = self.queue.entries
        while entries:
            work, issued, _, _ = entries[0]
            self.next_wait = 0
            if issued > self.free:
                work.lost[FRONT_END] += issued - self.free
                self.streaming = False
                if issued > self.env.now:
                    self.phase = ISSUE
                    Timeout(self.env, issued - self.env.now).callbacks.append(self._issued)
                    return
            if not self._start_when_clear():
                return
        self.phase = IDLE
        bell = self.queue.bell = Event(self.env)
        bell.callbacks.append(self.attend)

    def _issued(self, _: Event) -> None:
        if self._start_when_clear():
            self.attend()

    def _start_when_clear(self) -> bool:
        """Start the head of the queue unless it has to wait; whether it has ended as well."""
        work, _, _, hazards = self.queue.entries[0]
        waits = work.waits
        for index in range(self.next_wait, len(waits)):
            token, count = waits[index]
            if token.count >= count and not token.waiters:
                token.count -= count
                continue
            self.next_wait = index + 1
            self._await(TOKEN, token, token.wait(count))
            return False
        self.next_wait = len(waits)
        if hazards is not None and hazards.pending:
            self._await(OPERANDS, hazards, hazards.clear(self.env))
            return False
        return self._start()

    def _await(self, phase: int, what: Token | Hazards, event: Event) -> None:
        self.phase, self.awaited, self.since = phase, what, self.env.now
        event.callbacks.append(self._cleared)

    def _cleared(self, event: Event) -> None:
        """The event's value is the cause."""
        cause = event._value if self.started else FILL
        self.queue.entries[0][0].lost[cause] += self.env.now - self.since
        if self._start_when_clear():
            self.attend()

    def _start(self) -> bool:
        """Start the head of the queue; whether it has ended as well."""
        queue = self.queue
        self.running = work, _, burst, _ = queue.entries.popleft()
        self.begun = now = self.env.now
        profile = work.profile or work.profile_at(work.count)
        overlaps = self.streaming and now == self.free
        if burst is None:
            own = work.cycles
            if overlaps and work.gain:
                profile = profile.behind
                own -= work.gain
                work.gained += work.gain
            self.usage, self.length, self.cycles = profile.usage, profile.length, profile.cycles
            work.lost[profile.cause] += profile.cycles - own
            queue.room += 1
        else:
            self.usage, self.cycles = self._start_burst(work, profile, burst, overlaps)
            self.length = self.cycles
        if queue.blocked:
            queue.blocked.popleft()()
        if not work.startup:
            return self._move(now)
        self.phase = STARTUP
        Timeout(self.env, work.startup).callbacks.append(self._started_up)
        return False

    def _started_up(self, _: Event) -> None:
        if self._move(self.env.now):
            self.attend()

    def _move(self, now: int) -> bool:
        """Begin the traffic; whether there is none, and the instruction has ended."""
        if not self.cycles:
            self._end(now)
            return True
        self.phase, self.due = TRAFFIC, now + self.cycles
        alarm = self._fabric.start(self.flow, self.usage, self.length, now)
        alarm.callbacks.append(self._traffic_ended)
        return False

    def _traffic_ended(self, _: Event) -> None:
        now = self.env.now
        self._fabric.end(self.flow, now)
        if now > self.due:
            self._charge(now - self.due)
        self._end(now)
        self.attend()

    def _start_burst(
        self, work: Work, profile: Profile, burst: Burst, overlaps: bool
    ) -> tuple[Usage, int]:
        """Resources of the whole burst, and its cycles after the first start-up.

        All but the first item follow one of their kind; the extra time of the first comes on top.
        """
        behind = profile.behind
        pitch = work.startup + behind.cycles
        first = 0 if overlaps else profile.cycles - behind.cycles
        burst.start(self.env.now + first, pitch)
        self.queue.releases.extend(burst.releases())
        times, length = burst.times, burst.length + first - work.startup
        work.lost[FRONT_END] += burst.length - times * pitch
        own = work.cycles - work.gain
        work.lost[profile.cause] += times * (behind.cycles - own) + (
            0 if overlaps else first - work.gain
        )
        work.gained += (times if overlaps else times - 1) * work.gain
        scale = times * behind.length / max(1, length)
        return tuple((resource, demand * scale) for resource, demand in profile.usage), length

    def _charge(self, late: int) -> None:
        """Divide the cycles lost by sharing among on-chip memories, and DRAM and links."""
        assert self.running is not None
        lost = self.running[0].lost
        on_chip, off_chip = self.flow.lost
        bandwidth = round(late * off_chip / (on_chip + off_chip))
        lost[BANDWIDTH] += bandwidth
        lost[CONFLICT] += late - bandwidth

    def _end(self, now: int) -> None:
        assert self.running is not None
        work, issued, _, hazards = self.running
        skipped = self.env.skipped
        if self._recorder is not None:
            times = issued + skipped, self.begun + skipped, now + skipped
            self._recorder.extend((work.core, work.number, work.count, *times, work.gained))
        work.count += 1
        if work.first < 0:
            work.first = self.begun + skipped
        work.last = now + skipped
        self.free = now
        if work.startup or work.cycles:
            self.started = True
            self.streaming = work.gain > 0
        for token, count in work.signals:
            token.signal(count, work.cause)
        for token, count, delay in work.notices:
            token.notify(count, CORE if delay else work.cause, delay)
        if hazards is not None:
            hazards.end()
