"""A coarse clock: when atoms start, with queues of any depth or with those of the machine.

One pass over a stream, nothing is ever revisited: an atom starts when its engine, its tokens, its
barrier and (on machines that interlock) earlier conflicting atoms allow, and, with `queues`, when
the front end has issued it. Whatever is shared (memories, links) is left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from operator import itemgetter

from compiler.codegen.issue_order.access import Accesses, ByteAccess, conflict
from compiler.codegen.issue_order.units import IssueUnit
from simmodel.arch.record import Arch
from simmodel.isa import Arrive, Await
from simmodel.isa.region import replace

FLYING = 256
"""Most accesses in flight that are looked through where the hardware interlocks."""
_END = itemgetter(0)
Depth = Callable[[str], int]
"""Queue entries of an engine."""


class IssueClock:
    """The state of one core behind the atoms played so far."""

    def __init__(
        self, arch: Arch, tokens: Mapping[str, int], loops: Mapping[str, int], queues: bool = False
    ) -> None:
        self._depth = cache(arch.front_end.depth)
        self._interlock = arch.front_end.sync == "interlock"
        self._loops = loops
        self._queues = queues
        self._issue = 0
        """When the front end is free to issue."""
        self._entries: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
        """Engine -> start and number of instructions of the last atoms that may fill its queue."""
        self._waiting: dict[str, int] = defaultdict(int)
        """Engine -> all instructions of these."""
        self._free: dict[str, int] = defaultdict(int)
        self._given = {name: deque([0] * count) for name, count in tokens.items()}
        self._arrived: dict[str, int] = {}
        self._fence = 0
        self._flying: list[tuple[int, ByteAccess]] = []
        """By their ends."""
        self._floor = 0
        self.ready = 0
        """When all but its engine would let the last one start; where hardware interlocks, when it
        started."""
        self.now = 0
        """End of what has been played."""

    def free(self, engine: str) -> int:
        """When an engine is over with what has been played."""
        return self._free[engine]

    def play(self, atom: IssueUnit, at: Accesses | None = None) -> tuple[int, int]:
        """Start and end of `atom`, which touches what it always does, or in an iteration what is
        there `at` that time (machines that interlock)."""
        cost, touched = atom.cost, at
        if touched is None:
            touched = atom.accesses if self._interlock else ()
        # An engine does one thing after another in the order that is played, or, where an order is
        # still to be found, each of its lanes does.
        lanes, ready = cost.engines if self._queues else cost.lanes, 0
        free = self._free[lanes[0]] if len(lanes) == 1 else max([self._free[n] for n in lanes])
        if self._queues:
            for engine in cost.engines:
                if self._waiting[engine] >= self._depth(engine):
                    self._queued(engine, 1)
            ready = self._issue
        if cost.fence or cost.meets:
            ready = max(ready, self._fence)
        for name, count in cost.waits:
            given = self._given.get(name)
            while given and count:
                ready, count = max(ready, given.popleft()), count - 1
        if cost.fence and isinstance(atom.item, Await):
            ready = max(ready, self._arrived.get(atom.item.barrier, 0))
        start = max(free, ready)
        if self._interlock:
            start = ready = self._cleared(start, touched)
        self.ready = ready
        end = start + cost.cycles + (cost.gap if start > free else 0)
        for lane in lanes:
            self._free[lane] = end
        self._note(atom, start, end, touched)
        return start, end

    def _queued(self, engine: str, count: int) -> None:
        """The front end waits until `count` more instructions, or all that a queue takes, have
        slots: what was there before has started."""
        waiting, depth = self._waiting[engine], self._depth(engine)
        if waiting + count <= depth:
            return
        entries, room = self._entries[engine], depth - min(count, depth)
        while entries and waiting > room:  # one is free when its instruction starts
            start, times = entries.popleft()
            waiting -= times
            self._issue = max(self._issue, start)
        self._waiting[engine] = waiting

    def _cleared(self, start: int, touched: Accesses) -> int:
        start = max(start, self._floor)
        for end, access in reversed(self._flying):
            if end <= start:
                break
            for mine in touched:
                if conflict(access, mine, self._loops):
                    return end
        return start

    def _note(self, atom: IssueUnit, start: int, end: int, touched: Accesses) -> None:
        cost = atom.cost
        for name, count in cost.signals:
            given = self._given.get(name)
            if given is None:
                given = self._given[name] = deque()
            given.extend([end] * count)
        if cost.fence or cost.meets:
            self._fence = start + 1
        if cost.fence and isinstance(atom.item, Arrive):
            self._arrived[atom.item.barrier] = end
        if self._queues:
            self._passed(atom, start)
        if self._interlock:
            self._forget()
            place = bisect_right(self._flying, end, key=_END)
            self._flying[place:place] = [(end, access) for access in touched]
        self.now = max(self.now, end)

    def _forget(self) -> None:
        """Keep the list short: nothing starts any more before what is dropped has ended."""
        if len(self._flying) < FLYING:
            return
        self._floor = max(self._floor, self._flying[FLYING // 2 - 1][0])
        del self._flying[: FLYING // 2]

    def _passed(self, atom: IssueUnit, start: int) -> None:
        cost = atom.cost
        if cost.times > 1 or len(cost.engines) > 1:
            past = issued_by(atom, start, self._depth)
            if past > start:
                self._issue = max(self._issue, past)
        if len(cost.engines) == 1:
            engine = cost.engines[0]
            depth, times = self._depth(engine), cost.times
            if self._waiting[engine] + times > depth:
                self._queued(engine, times)
                times = min(times, depth)
            last = start + cost.cycles - cost.unit * times
            self._entries[engine].append((max(start, last), times))
            self._waiting[engine] += times


def as_clocks_see(atoms: Sequence[IssueUnit], tokens: Mapping[str, int]) -> Hashable:
    """All of `atoms` that decides how clocks with these initial counts play them where nothing
    interlocks: tokens and barriers by number, as cores name those that they give each other by
    theirs."""
    numbers = dict[str, tuple[int, int | None]]()

    def number(name: str) -> tuple[int, int | None]:
        return numbers.setdefault(name, (len(numbers), tokens.get(name)))

    return tuple(
        (
            replace(atom.cost, waits=(), signals=()),
            *[(number(name), count) for name, count in atom.cost.waits], None,
            *[(number(name), count) for name, count in atom.cost.signals],
            *([type(atom.item), number(f"={atom.item.barrier}")]
              if isinstance(atom.item, Arrive | Await) else ()),
        )
        for atom in atoms
    )  # fmt: skip


def issued_by(atom: IssueUnit, start: int, depth: Depth) -> int:
    """When the front end is past `atom`: of its last instructions one runs, the queue has the
    others."""
    cost = atom.cost
    if len(cost.engines) > 1:
        return start + cost.cycles - cost.unit
    return start + max(0, cost.cycles - cost.unit * (depth(cost.engines[0]) + 1))
