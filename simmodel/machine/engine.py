"""An engine takes the next instruction of its queue, waits for operands, works, and signals.

Matrix, vector, scalar and copy engines and the host are all this block; they differ in the
start-up, cycles and traffic of their instructions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from simpy import Event
from simpy.events import Timeout

from simmodel.machine.fabric import Fabric
from simmodel.machine.flow import Flow, Usage
from simmodel.machine.queue import Clock, Queue
from simmodel.machine.recorder import Recorder
from simmodel.machine.scoreboard import Hazards
from simmodel.machine.token import Token
from simmodel.machine.work import Profile, Work
from simmodel.trace import BANDWIDTH, CONFLICT, CORE, FILL, FRONT_END

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
        self,
        env: Clock,
        name: str,
        core: int,
        depth: int,
        fabric: Fabric,
        recorder: Recorder | None,
    ) -> None:
        self.env = env
        self.name = name
        self.core = core
        self.queue: Queue[Entry] = Queue(depth)
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
            if hazards is not None and hazards.blocked:
                self.awaited = hazards
                since = env.now
                cause = yield hazards.clear()
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
                queue.resume()
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
            self._recorder.span(work, issued, start, now)
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
