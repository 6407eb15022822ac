"""Happens-before: which occurrences of a program's instructions must end before others start.

The nodes are *occurrences* (see `simmodel.program.expand`), numbered core after core in program
order. The edges say "the source has ended when the target starts":

    queue     an engine of a core executes its occurrences one after another (not stored: implied)
    token     FIFO counting over the one queue that signals it, of this core or another: the wait
              that brings the taken count to W needs the signal that brings initial + given to W or
              more
    barrier   every arrival before every await
    hardware  on interlock machines, operands of one core that conflict, in program order

`Timeline` lists the nodes, `dependencies` the edges, `sequence` gives one legal order of execution,
and `Clocks` answers whether two occurrences are ordered.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simmodel.arch.record import Arch
from simmodel.isa import Arrive, Await
from simmodel.program.expand import Site, numbered
from simmodel.program.program import Program

Queue = tuple[int, str]
"""Core and engine."""
Ints = NDArray[np.int64]
Choose = Callable[[Sequence[int]], int]
"""Picks one of the queues that may advance, by its index among them."""


class Stuck(RuntimeError):
    """No queue can advance; the message lists what each waits for."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """Every occurrence of every site of a program, and its queue."""

    program: Program
    sites: tuple[Site, ...]
    """Of all cores, one core after another."""
    owners: tuple[int, ...]
    """Core of each site."""
    site: Ints
    """Per occurrence: its site."""
    turn: Ints
    """Per occurrence: which occurrence of its site it is."""
    queues: tuple[Queue, ...]
    queue: Ints
    """Per occurrence: index of its queue."""
    position: Ints
    """Per occurrence: place in its queue."""

    @cached_property
    def members(self) -> tuple[Ints, ...]:
        """Per queue: its occurrences in order."""
        return _grouped(self.queue, len(self.queues))

    @cached_property
    def occurrences(self) -> tuple[Ints, ...]:
        """Per site: its occurrences in order."""
        return _grouped(self.site, len(self.sites))

    @cached_property
    def starts(self) -> Ints:
        """Per core: number of its first occurrence; one more entry for the end."""
        owners = np.array(self.owners, np.int64)[self.site]
        return np.searchsorted(owners, np.arange(len(self.program.cores) + 1)).astype(np.int64)

    @cached_property
    def token_uses(self) -> tuple[TokenUse, ...]:
        """Use of every token that is declared, waited for or signalled."""
        return tuple(_token_uses(self))

    def where(self, occurrence: int) -> str:
        """Core, engine and mnemonic of an occurrence, for messages."""
        core, engine = self.queues[self.queue[occurrence]]
        mnemonic = self.sites[self.site[occurrence]].instruction.MNEMONIC
        return f"core {core} {engine} #{self.position[occurrence]} ({mnemonic})"


def _grouped(key: Ints, count: int) -> tuple[Ints, ...]:
    order = np.argsort(key, kind="stable")
    edges = np.searchsorted(key[order], np.arange(count + 1))
    return tuple(order[a:b] for a, b in pairwise(edges))


def timeline(program: Program) -> Timeline:
    """The nodes of `program`."""
    sites: list[Site] = []
    owners: list[int] = []
    queues: dict[Queue, int] = {}
    site, turn = _NONE, _NONE
    for core, expansion in enumerate(program.expanded):
        site = np.concatenate([site, expansion.order.astype(np.int64) + len(sites)])
        turn = np.concatenate([turn, expansion.occurrence])
        sites += expansion.sites
        owners += [core] * len(expansion.sites)
    of_site = [
        queues.setdefault((core, site.instruction.engine), len(queues))
        for core, site in zip(owners, sites, strict=True)
    ]
    queue = np.array(of_site, np.int64)[site]
    return Timeline(
        program, tuple(sites), tuple(owners), site, turn, tuple(queues), queue, numbered(queue)
    )


@dataclass(frozen=True)
class TokenUse:
    """Signals and waits of one token of one core, from any core, in program order."""

    core: int
    name: str
    initial: int
    givers: Ints
    given: Ints
    """Per signal: the count."""
    takers: Ints
    taken: Ints

    @cached_property
    def needed(self) -> Ints:
        """Per taker: index into `givers` of the signal it needs; -1: none; len(givers): lacking."""
        total = np.cumsum(self.given) + self.initial
        wanted = np.cumsum(self.taken)
        index = np.searchsorted(total, wanted).astype(np.int64)
        return np.where(wanted <= self.initial, -1, index)


Token = tuple[int, str]
"""Core and name."""
_NONE = np.empty(0, np.int64)


def _by_token(line: Timeline, uses: list[tuple[Token, int, int]]) -> dict[Token, tuple[Ints, Ints]]:
    """Per token its uses in program order: occurrences, and the count of each; from those of each
    site. Programs with multicast have thousands of tokens."""
    numbers: dict[Token, int] = {}
    rows = [(numbers.setdefault(token, len(numbers)), site, count) for token, site, count in uses]
    token, site, count = np.array(rows, np.int64).reshape(-1, 3).T
    times = np.array([len(found) for found in line.occurrences], np.int64)[site]
    where = np.concatenate([_NONE, *(line.occurrences[s] for s in site.tolist())])
    token, count = np.repeat(token, times), np.repeat(count, times)
    order = np.lexsort((where, token))
    edges = np.searchsorted(token[order], np.arange(len(numbers) + 1)).tolist()
    where, count = where[order], count[order]
    parts = zip(numbers, pairwise(edges), strict=True)
    return {name: (where[a:b], count[a:b]) for name, (a, b) in parts}


def _token_uses(line: Timeline) -> Iterator[TokenUse]:
    gives, takes = list[tuple[Token, int, int]](), list[tuple[Token, int, int]]()
    for number, (site, owner) in enumerate(zip(line.sites, line.owners, strict=True)):
        instruction = site.instruction
        gives += [((owner, name), number, count) for name, count in instruction.signals]
        takes += [((owner, name), number, count) for name, count in instruction.waits]
        for name, count, cores in instruction.notifies:
            gives += [((core, name), number, count) for core in cores]
    declared = {(c, n): k for c, names in enumerate(line.program.tokens) for n, k in names.items()}
    given, taken = _by_token(line, gives), _by_token(line, takes)
    for key in dict.fromkeys([*declared, *given, *taken]):
        signals, waits = given.get(key, (_NONE, _NONE)), taken.get(key, (_NONE, _NONE))
        yield TokenUse(*key, declared.get(key, 0), *signals, *waits)


@dataclass(frozen=True, eq=False)
class Dependencies:
    """Edges between occurrences of different queues, sorted by target."""

    target: Ints
    source: Ints
    lacking: tuple[tuple[int, str], ...]
    """Occurrences that wait for a signal that never comes, and its name."""

    def plus(self, target: Ints, source: Ints) -> Dependencies:
        """The union with more edges."""
        targets = np.concatenate([self.target, target])
        order = np.argsort(targets, kind="stable")
        return Dependencies(
            targets[order], np.concatenate([self.source, source])[order], self.lacking
        )


def dependencies(line: Timeline) -> Dependencies:
    """Edges from tokens and barriers; each token must be signalled by one queue alone."""
    lacking: list[tuple[int, str]] = []
    targets, sources = [_NONE], [_NONE]
    for use in line.token_uses:
        queues = line.queue[use.givers]
        if (queues != queues[:1]).any():
            raise ValueError(f"core {use.core}: token {use.name} is signalled by several queues")
        needed = use.needed
        lacking += [(int(o), use.name) for o in use.takers[needed == len(use.givers)]]
        found = (needed >= 0) & (needed < len(use.givers))
        targets.append(use.takers[found])
        sources.append(use.givers[needed[found]])
    for name, (arrivals, awaits) in barrier_uses(line).items():
        if not arrivals and awaits:
            lacking += [(o, name) for o in awaits]
        # The last in each queue implies those before it.
        latest = {int(line.queue[occurrence]): occurrence for occurrence in sorted(arrivals)}
        last = np.array(sorted(latest.values()), np.int64)
        targets.append(np.repeat(np.array(awaits, np.int64), len(last)))
        sources.append(np.tile(last, len(awaits)))
    empty = Dependencies(_NONE, _NONE, tuple(lacking))
    return empty.plus(np.concatenate(targets), np.concatenate(sources))


def barrier_uses(line: Timeline) -> dict[str, tuple[list[int], list[int]]]:
    """Barrier -> occurrences that arrive (once per arrival) and that await."""
    uses: dict[str, tuple[list[int], list[int]]] = {}
    for site, found in zip(line.sites, line.occurrences, strict=True):
        instruction = site.instruction
        if isinstance(instruction, Arrive | Await):
            arrivals, awaits = uses.setdefault(instruction.barrier, ([], []))
            where = np.repeat(found, site.times).tolist()
            (arrivals if isinstance(instruction, Arrive) else awaits).extend(where)
    return uses


def sequence(
    line: Timeline, edges: Dependencies, choose: Choose | None = None, arch: Arch | None = None
) -> Ints:
    """One legal order of all occurrences.

    Args:
        choose: picks the queue that makes the next step; default: each runs until it blocks.
        arch: with it, each queue holds only as many entries as its depth, and the front end stops
            in front of a full one.

    Raises:
        Stuck: nothing can go on though work is left.
    """
    return _Game(line, edges, choose, arch).play()


def random_order(seed: int) -> Choose:
    """Picks queues at random, the same for the same `seed`."""
    generator = random.Random(seed)
    return lambda queues: generator.randrange(len(queues))


def starving_order(seed: int) -> Choose:
    """Advances a queue only if none before it can advance; the order of queues is drawn from
    `seed`. So some run as far ahead as possible, and others as late."""
    generator = random.Random(seed)
    ranks: defaultdict[int, float] = defaultdict(generator.random)
    return lambda queues: max(range(len(queues)), key=lambda place: ranks[queues[place]])


class _Game:
    """Plays the queues against each other, one occurrence at a time, without cycles."""

    def __init__(
        self, line: Timeline, edges: Dependencies, choose: Choose | None, arch: Arch | None
    ) -> None:
        self.line, self.choose = line, choose
        count = len(line.site)
        self.bounds = np.searchsorted(edges.target, np.arange(count + 1)).tolist()
        self.sources: list[int] = edges.source.tolist()
        self.lacking = dict(edges.lacking)
        self.members = [m.tolist() for m in line.members]
        self.queue: list[int] = line.queue.tolist()
        self.head = [0] * len(self.members)
        self.done = bytearray(count)
        self.blocked: dict[int, list[int]] = defaultdict(list)
        self.fetched = line.starts[:-1].tolist() if arch else line.starts[1:].tolist()
        self.ends: list[int] = line.starts[1:].tolist()
        self.room = [arch.front_end.depth(e) if arch else count + 1 for _, e in line.queues]
        self.waiting_fetch: dict[int, list[int]] = defaultdict(list)
        self.awake = list(range(len(self.members)))

    def play(self) -> Ints:
        for core in range(len(self.ends)):
            self._fetch(core)
        result: list[int] = []
        while self.awake:
            if self.choose is not None:
                index = self.choose(self.awake)
                self.awake[index], self.awake[-1] = self.awake[-1], self.awake[index]
            queue = self.awake.pop()
            self._run_queue(queue, 1 if self.choose else len(self.members[queue]), result)
        if len(result) < len(self.queue):
            raise Stuck(self._complaint())
        return np.array(result, np.int64)

    def _run_queue(self, queue: int, steps: int, result: list[int]) -> None:
        members, head = self.members[queue], self.head[queue]
        core = self.line.queues[queue][0]
        while head < len(members):
            occurrence = members[head]
            if steps == 0:
                self.awake.append(queue)
                break
            if occurrence >= self.fetched[core]:
                self.waiting_fetch[core].append(queue)
                break
            if self._must_wait(occurrence, queue):
                break
            result.append(occurrence)
            head, steps = head + 1, steps - 1
            self._finish(occurrence, queue, core)
        self.head[queue] = head

    def _must_wait(self, occurrence: int, queue: int) -> bool:
        """Whether it must wait; if so, it is registered where the wait will end."""
        if occurrence in self.lacking:
            return True
        for index in range(self.bounds[occurrence], self.bounds[occurrence + 1]):
            source = self.sources[index]
            if not self.done[source]:
                self.blocked[source].append(queue)
                return True
        return False

    def _finish(self, occurrence: int, queue: int, core: int) -> None:
        self.done[occurrence] = 1
        if occurrence in self.blocked:
            self.awake += self.blocked.pop(occurrence)
        if self.fetched[core] < self.ends[core]:
            self.room[queue] += 1
            self._fetch(core)

    def _fetch(self, core: int) -> None:
        """Issue until a queue is full."""
        at, end, before = self.fetched[core], self.ends[core], self.fetched[core]
        while at < end and self.room[self.queue[at]] > 0:
            self.room[self.queue[at]] -= 1
            at += 1
        self.fetched[core] = at
        if at > before and core in self.waiting_fetch:
            self.awake += self.waiting_fetch.pop(core)

    def _complaint(self) -> str:
        heads = zip(self.members, self.head, strict=True)
        lines = [self._why(members[head]) for members, head in heads if head < len(members)]
        return "nothing can go on: " + "; ".join(lines[:8])

    def _why(self, occurrence: int) -> str:
        where = self.line.where(occurrence)
        if occurrence in self.lacking:
            return f"{where} waits for {self.lacking[occurrence]}, which is never given"
        edges = range(self.bounds[occurrence], self.bounds[occurrence + 1])
        for source in (self.sources[index] for index in edges):
            if not self.done[source]:
                return f"{where} waits for {self.line.where(source)}"
        return f"{where} is not issued: the front end stands before a full queue"


class Clocks:
    """Vector clocks: per occurrence, how many of each queue's occurrences must have ended before.

    Rows are stored only where they differ from that of the queue's previous occurrence.
    """

    def __init__(self, line: Timeline, edges: Dependencies, order: Ints) -> None:
        self.line = line
        rows: list[NDArray[np.int32]] = [np.zeros(len(line.queues), np.int32)]
        row_of = [0] * len(line.site)
        current = [0] * len(line.queues)
        bounds = np.searchsorted(edges.target, np.arange(len(line.site) + 1)).tolist()
        sources: list[int] = edges.source.tolist()
        queue: list[int] = line.queue.tolist()
        position: list[int] = line.position.tolist()
        for occurrence in order.tolist():
            own = queue[occurrence]
            row, known = current[own], rows[current[own]]
            for source in sources[bounds[occurrence] : bounds[occurrence + 1]]:
                if known[queue[source]] > position[source] or queue[source] == own:
                    continue
                # One row, however many it waits for: cores that meet wait for all others.
                more = None if known is rows[row] else known
                known = np.maximum(known, rows[row_of[source]], out=more)
                known[queue[source]] = position[source] + 1
            if known is not rows[row]:
                rows.append(known)
                row = len(rows) - 1
            current[own] = row_of[occurrence] = row
        self._rows = np.array(rows)
        self._row_of = np.array(row_of, np.int64)

    def ended(self, occurrence: Any, queue: Any) -> Ints:
        """How many occurrences of `queue` have ended when `occurrence` starts (arrays)."""
        result: Ints = self._rows[self._row_of[occurrence], queue].astype(np.int64)
        return result

    def before(self, first: Any, second: Any) -> NDArray[np.bool_]:
        """Whether `first` ends before `second` starts; both of different queues (arrays)."""
        ended = self.ended(second, self.line.queue[first])
        result: NDArray[np.bool_] = ended > self.line.position[first]
        return result
