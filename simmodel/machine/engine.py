"""An engine takes the next instruction of its queue, waits for operands, works, and signals.

Matrix, vector, scalar and copy engines and the host are all this block; they differ in the
start-up, cycles and traffic of their instructions.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from simpy import Event
from simpy.events import Timeout

from simmodel.isa import Instruction
from simmodel.machine.fabric import Fabric
from simmodel.machine.flow import Flow, Usage
from simmodel.machine.queue import Clock, Queue, Token
from simmodel.trace import BANDWIDTH, CAUSES, CONFLICT, CORE, FILL, FRONT_END

Span = tuple[int, int, int]
"""Memory instance, lowest byte, one past the highest byte."""
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


Marks = dict[int, list[tuple[int, int, Hazards]]]
"""By memory instance: lowest byte, one past the highest, and whose they are."""


class Scoreboard:
    """Instructions of one core that were issued and have not ended, in program order."""

    def __init__(self) -> None:
        self._reads: Marks = {}
        self._writes: Marks = {}

    def issue(self, work: Work, occurrence: int) -> Hazards:
        """Note an instruction and find what it has to wait for."""
        hazards = Hazards(work)
        assert work.spans_at is not None
        reads, writes = work.spans_at(occurrence)
        for spans, marks in ((reads, self._writes), (writes, self._writes), (writes, self._reads)):
            for span in spans:
                _follow_conflicts(hazards, span, marks)
        for spans, marks in ((reads, self._reads), (writes, self._writes)):
            for memory, low, high in spans:
                marks.setdefault(memory, []).append((low, high, hazards))
        return hazards


def _follow_conflicts(hazards: Hazards, span: Span, marks: Marks) -> None:
    """Follow everyone in flight on another engine who marked bytes of `span`."""
    memory, low, high = span
    marked = marks.get(memory)
    if not marked:
        return
    engine, gone = hazards.work.engine, 0
    for start, end, other in marked:
        if other.ended:
            gone += 1
        elif (
            low < end
            and start < high
            and other.work.engine is not engine
            and other not in hazards.pending
        ):
            hazards.pending[other] = None
            other.behind.append(hazards)
    if gone > len(marked) // 2:
        marks[memory] = [mark for mark in marked if not mark[2].ended]


# A burst: n instructions of one site, issued one after another, as one entry of the queue.


class Burst:
    """State shared by front end and engine during one burst.

    Times of the front end are in ticks, `per_cycle` ticks a cycle: from the issue of the first item
    to the next, and `interval` ticks from issue to issue behind that.
    """

    __slots__ = ("_begun", "_first", "_late", "_pitch", "depth", "interval", "per_cycle", "stamps",
                 "started", "times")  # fmt: skip

    def __init__(self, times: int, depth: int, intervals: tuple[int, int], per_cycle: int) -> None:
        self.times = times
        self.depth = depth
        self._first, self.interval = intervals
        self.per_cycle = per_cycle
        self.stamps: list[int] = []
        """Ticks at which the first items were issued."""
        self.started = False
        self._begun = self._pitch = self._late = 0

    def start(self, now: int, pitch: int) -> None:
        """Item 0 starts at cycle `now`; each item takes `pitch` cycles."""
        self.started = True
        self._begun, self._pitch = now, pitch
        interval = self._first if len(self.stamps) == 1 else self.interval
        self._late = max(self.stamps[-1] + interval, now * self.per_cycle)

    def _issue(self, item: int) -> int:
        known = len(self.stamps)
        if item < known:
            return self.stamps[item]
        return self._late + (item - known) * self.interval

    def _start(self, item: int) -> int:
        return max(self._begun + item * self._pitch, self._issue(item) // self.per_cycle)

    @property
    def length(self) -> int:
        """Cycles from the start of the first item to the end of the last."""
        return self._start(self.times - 1) + self._pitch - self._begun

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


Steps = Generator[Event, int, None]
"""Yields events; the cause is sent to a process that waits for a token or for operands."""
Entry = tuple[Work, int, Burst | None, Hazards | None]
"""Work, the cycle of its issue, and, if any, the burst and the interlock's hazards."""


class Engine:
    """One engine of one core, or the host (core -1)."""

    def __init__(
        self, env: Clock, label: tuple[str, int], depth: int, fabric: Fabric,
        recorder: array[int] | None,
    ) -> None:  # fmt: skip
        self.env = env
        self.name, self.core = label
        self.queue = Queue(depth)
        self.free = 0
        """End of its last instruction."""
        self.started = False
        """Whether an instruction other than synchronization has started."""
        self.streaming = False
        """Whether its last instruction can overlap one that follows without a gap."""
        self.awaited: Token | Hazards | None = None
        """The token or hazard that it waits for, or last waited for."""
        self._fabric = fabric
        self._flow = Flow()
        self._recorder = recorder
        env.process(self._engine_process())

    def _engine_process(self) -> Steps:
        env, queue, fabric, flow = self.env, self.queue, self._fabric, self._flow
        entries = queue.entries
        while True:
            if not entries:
                queue.bell = Event(env)
                yield queue.bell
            work, issued, burst, hazards = entries[0]
            if issued > self.free:
                work.lost[FRONT_END] += issued - self.free
                self.streaming = False
                if issued > env.now:
                    yield Timeout(env, issued - env.now)
            for token, count in work.waits:
                if token.count >= count and not token.waiters:
                    token.count -= count
                    continue
                self.awaited = token
                since = env.now
                cause = yield token.wait(count)
                work.lost[cause if self.started else FILL] += env.now - since
            if hazards is not None and hazards.pending:
                self.awaited = hazards
                since = env.now
                cause = yield hazards.clear(env)
                work.lost[cause if self.started else FILL] += env.now - since

            entries.popleft()
            start = now = env.now
            profile = work.profile or work.profile_at(work.count)
            overlaps = self.streaming and start == self.free
            if burst is None:
                own = work.cycles
                if overlaps and work.gain:
                    profile = profile.behind
                    own -= work.gain
                    work.gained += work.gain
                usage, length, cycles = profile.usage, profile.length, profile.cycles
                work.lost[profile.cause] += cycles - own
                queue.room += 1
            else:
                usage, cycles = self._start_burst(work, profile, burst, overlaps)
                length = cycles
            if queue.blocked:
                queue.blocked.popleft()()
            if work.startup:
                yield Timeout(env, work.startup)
                now += work.startup
            if cycles:
                yield fabric.start(flow, usage, length, now)
                due = now + cycles
                now = env.now
                fabric.end(flow, now)
                if now > due:
                    self._charge(work, now - due)
            self._end(work, issued, start, now)
            if hazards is not None:
                hazards.end()

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

    def _charge(self, work: Work, late: int) -> None:
        """Divide the cycles lost by sharing among on-chip memories, and DRAM and links."""
        on_chip, off_chip = self._flow.lost
        bandwidth = round(late * off_chip / (on_chip + off_chip))
        work.lost[BANDWIDTH] += bandwidth
        work.lost[CONFLICT] += late - bandwidth

    def _end(self, work: Work, issued: int, start: int, now: int) -> None:
        if self._recorder is not None:
            self._recorder.extend(
                (work.core, work.number, work.count, issued, start, now, work.gained)
            )
        work.count += 1
        if work.first < 0:
            work.first = start
        work.last = self.free = now
        if work.startup or work.cycles:
            self.started = True
            self.streaming = work.gain > 0
        for token, count in work.signals:
            token.signal(count, work.cause)
        for token, count, delay in work.notices:
            token.notify(count, CORE if delay else work.cause, delay)
