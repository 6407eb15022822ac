"""An engine: takes the next instruction of its queue, waits for what it needs, works, signals.

Matrix, vector and scalar engine, copy engines and the host are all this block; what differs between
them is what their instructions answer (start-up, cycles, traffic).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING

from simpy import Environment, Event
from simpy.events import Timeout

from simmodel.machine.burst import Burst
from simmodel.machine.flow import Fabric, Flow, Usage
from simmodel.machine.recorder import Recorder
from simmodel.machine.scoreboard import Hazards, Scoreboard
from simmodel.machine.token import Token
from simmodel.machine.work import Profile, Work
from simmodel.trace import BANDWIDTH, CONFLICT, FILL, FRONT_END

if TYPE_CHECKING:
    from simmodel.machine.front_end import FrontEnd

Steps = Generator[Event, object, None]
Entry = tuple[Work, int, Burst | None, Hazards | None]
"""Work, the cycle of its issue, and where it applies the burst and the interlock's hazards."""


class Queue:
    """The finite instruction queue of one engine; a slot is free when its instruction starts."""

    __slots__ = ("bell", "blocked", "depth", "entries", "releases", "room")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.room = depth
        """Free slots now."""
        self.releases: deque[int] = deque()
        """Cycles, known ahead, at which the items of a running burst free further slots."""
        self.entries: deque[Entry] = deque()
        self.blocked: deque[FrontEnd] = deque()
        """Front ends that wait for a slot."""
        self.bell: Event | None = None
        """Rings when there is an entry again."""

    def push(self, entry: Entry) -> None:
        """Append an entry, in a slot that was taken before."""
        self.entries.append(entry)
        bell = self.bell
        if bell is not None:
            self.bell = None
            bell.succeed()

    def resume(self) -> None:
        """A slot is free: let the front end go on that waited first."""
        self.blocked.popleft().advance()


class Engine:
    """One engine of one core, or the host (core -1)."""

    def __init__(
        self,
        env: Environment,
        name: str,
        core: int,
        depth: int,
        fabric: Fabric,
        recorder: Recorder | None,
    ) -> None:
        self.env = env
        self.name = name
        self.core = core
        self.queue = Queue(depth)
        self.free = 0
        """End of its last instruction."""
        self.started = False
        """Whether an instruction other than synchronization has started."""
        self.awaited: Token | Hazards | None = None
        """What the head of the queue waits for."""
        self._fabric = fabric
        self._flow = Flow(env)
        self._recorder = recorder
        self._scoreboard: Scoreboard | None = None
        env.process(self._run())

    def watch(self, scoreboard: Scoreboard) -> None:
        """Report ends of instructions to the core's interlock."""
        self._scoreboard = scoreboard

    def _run(self) -> Steps:
        env, queue = self.env, self.queue
        entries = queue.entries
        while True:
            if not entries:
                queue.bell = Event(env)
                yield queue.bell
            work, issued, burst, hazards = entries[0]
            if issued > env.now:
                yield Timeout(env, issued - env.now)
            if issued > self.free:
                work.lost[FRONT_END] += issued - self.free
            for token, count in work.waits:
                if token.count >= count and not token.waiters:
                    token.count -= count
                else:
                    yield from self._wait(work, token, token.wait(count))
            if hazards is not None and hazards.blocked:
                yield from self._wait(work, hazards, hazards.clear())

            entries.popleft()
            start = int(env.now)
            if burst is None:
                queue.room += 1
                if queue.blocked:
                    queue.resume()
                profile = work.shared
                if profile is None and work.profile_at is not None:
                    profile = work.profile_at(work.count)
                if work.startup:
                    yield Timeout(env, work.startup)
                if profile is not None:
                    yield from self._move(work, profile.usage, profile.length, profile)
                elif work.cycles:
                    yield Timeout(env, work.cycles)
            else:
                yield from self._run_burst(work, burst, start)
            self._end(work, start, hazards)

    def _wait(self, work: Work, awaited: Token | Hazards, event: Event) -> Steps:
        since = self.env.now
        self.awaited = awaited
        cause = yield event
        self.awaited = None
        assert isinstance(cause, int)
        work.lost[cause if self.started else FILL] += int(self.env.now - since)

    def _run_burst(self, work: Work, burst: Burst, start: int) -> Steps:
        queue = self.queue
        profile = work.shared
        if profile is None and work.profile_at is not None:
            profile = work.profile_at(work.count)
        alone = work.cycles if profile is None else profile.cycles
        pitch = work.startup + alone
        burst.start(start, pitch)
        queue.releases.extend(burst.releases())
        if queue.blocked:
            queue.resume()
        length = burst.length - work.startup
        work.lost[FRONT_END] += burst.length - work.times * pitch
        if work.startup:
            yield Timeout(self.env, work.startup)
        if profile is None:
            yield Timeout(self.env, length)
            return
        times = work.times
        scale = times * profile.length / length
        usage = tuple((resource, demand * scale) for resource, demand in profile.usage)
        work.lost[profile.cause] += (times - 1) * (alone - work.cycles)
        yield from self._move(work, usage, length, profile)

    def _move(self, work: Work, usage: Usage, length: float, profile: Profile) -> Steps:
        """Work for `length` cycles, or longer where the granted bandwidth asks for it."""
        env, flow = self.env, self._flow
        flow.begin(usage, length)
        planned = flow.finish
        self._fabric.start(flow)
        while flow.finish > env.now:
            yield flow.alarm()
        self._fabric.end(flow)
        if profile.cycles > work.cycles:
            work.lost[profile.cause] += profile.cycles - work.cycles
        if env.now > planned:
            flow.stop()
            self._charge(work, int(env.now) - planned)

    def _charge(self, work: Work, late: int) -> None:
        """Split the cycles that sharing cost between on-chip memories, and DRAM and links."""
        on_chip, off_chip = self._flow.lost
        bandwidth = round(late * off_chip / (on_chip + off_chip))
        work.lost[BANDWIDTH] += bandwidth
        work.lost[CONFLICT] += late - bandwidth

    def _end(self, work: Work, start: int, hazards: Hazards | None) -> None:
        now = int(self.env.now)
        if self._recorder is not None:
            self._recorder.span(self, work, start, now)
        work.count += 1
        if work.first < 0:
            work.first = start
        work.last = now
        self.free = now
        if work.startup or work.cycles:
            self.started = True
        for token, count in work.signals:
            token.signal(count, work.cause)
        if hazards is not None and self._scoreboard is not None:
            self._scoreboard.end(hazards)
