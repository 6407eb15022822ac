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
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simmodel.arch.base import Latest
from simmodel.arch.record import Arch
from simmodel.isa import Arrive, Await
from simmodel.isa.region import Operand, cached_property
from simmodel.program.expand import Site, addresses, numbered
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
    legal: list[tuple[Arch, Dependencies]] = field(default_factory=list, repr=False)
    """What `simmodel.verify.overlap.legal_edges` has found on a machine: who proves a program and
    who executes it both ask."""

    @cached_property
    def members(self) -> tuple[Ints, ...]:
        """Per queue: its occurrences in order."""
        return _grouped(self.queue, len(self.queues))

    @cached_property
    def occurrences(self) -> tuple[Ints, ...]:
        """Per site: its occurrences in order."""
        return _grouped(self.site, len(self.sites))

    @cached_property
    def operands(self) -> OperandTable:
        """Every operand of every site."""
        return OperandTable.of(self)

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


@dataclass(frozen=True, eq=False)
class OperandTable:
    """Every operand of every site, site after site: what has to hold for each is asked in bulk."""

    kinds: tuple[tuple[Operand, int], ...]
    """Prototypes, each with a core that has operands of it."""
    kind: Ints
    """Per operand: index into `kinds`; so are the next ones."""
    site: Ints
    index: Ints
    """Place among the operands of its site."""
    write: NDArray[np.bool_]
    address: Ints
    """Of every occurrence in order of time, operand after operand."""
    counts: Ints
    """Per operand: how many these are."""

    @classmethod
    def of(cls, line: Timeline) -> OperandTable:
        kinds: dict[tuple[int, int], int] = {}
        known: list[tuple[Operand, int]] = []
        rows: list[tuple[int, int, int, int]] = []
        bases: list[int] = []
        moving: dict[int, Ints] = {}
        for number, (site, core) in enumerate(zip(line.sites, line.owners, strict=True)):
            reads = len(site.wide.reads())
            for index, operand in enumerate(site.operands):
                kind, at = operand.prototype, operand.address
                key = id(kind), core
                if key not in kinds:
                    kinds[key] = len(known)
                    known.append((kind, core))
                if site.loops or at.ring is not None:
                    moving[len(rows)] = addresses(at, site.loops)
                rows.append((kinds[key], number, index, index >= reads))
                bases.append(at.base)
        kind_of, site_of, index_of, write = np.array(rows, np.int64).reshape(-1, 4).T
        counts = np.ones(len(rows), np.int64)
        counts[list(moving)] = [len(own) for own in moving.values()]
        address = np.repeat(np.array(bases, np.int64), counts)
        ends = np.cumsum(counts).tolist()
        for number, own in moving.items():
            address[ends[number] - len(own) : ends[number]] = own
        return cls(
            tuple(known), kind_of, site_of, index_of, write.astype(np.bool_), address, counts
        )

    @cached_property
    def starts(self) -> Ints:
        """Per operand: where its addresses begin."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def reaches(self) -> tuple[Ints, Ints]:
        """Per operand: the lowest and one past the highest byte of all occurrences."""
        spans = np.array([kind.span for kind, _ in self.kinds], np.int64).reshape(-1, 2)
        first, last = spans[self.kind].T
        if not len(self.kind):
            return first, last
        low, high = (f.reduceat(self.address, self.starts) for f in (np.minimum, np.maximum))
        return low + first, high + last


def _grouped(key: Ints, count: int) -> tuple[Ints, ...]:
    order = np.argsort(key, kind="stable")
    edges = np.searchsorted(key[order], np.arange(count + 1))
    return tuple(order[a:b] for a, b in pairwise(edges))


def _timeline(program: Program) -> Timeline:
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


timeline = Latest(_timeline, most=1)
"""The nodes of a program: what is proved is executed next."""


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
        choose: picks the queue that makes the next step; default: whichever was freed last.
        arch: with it, each queue holds only as many entries as its depth, and the front end stops
            in front of a full one.

    Raises:
        Stuck: nothing can go on though work is left.
    """
    total = len(line.site)
    target, source = _all_edges(line, edges, arch)
    count = 2 * total  # behind the occurrences, the issue of each
    bounds = np.searchsorted(np.sort(source), np.arange(count + 1)).tolist()
    followers: list[int] = target[np.argsort(source, kind="stable")].tolist()
    missing = np.bincount(target, minlength=count)
    missing[[occurrence for occurrence, _ in edges.lacking]] += 1  # which never ends
    ready: list[int] = np.flatnonzero(missing[: total if arch is None else count] == 0).tolist()
    left: list[int] = missing.tolist()
    queue: list[int] = np.tile(line.queue, 2).tolist()
    found: list[int] = []
    while ready:
        if choose is not None:
            index = choose([queue[node] for node in ready])
            ready[index], ready[-1] = ready[-1], ready[index]
        node = ready.pop()
        found.append(node)
        for follower in followers[bounds[node] : bounds[node + 1]]:
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    order = np.array(found, np.int64)
    order = order[order < total]
    if len(order) < total:
        raise Stuck(_complaint(line, edges, order))
    return order


def _all_edges(line: Timeline, edges: Dependencies, arch: Arch | None) -> tuple[Ints, Ints]:
    """Targets and sources of `edges` and of the order within queues. With `arch` the issue of each
    occurrence, numbered behind all of them, comes after that before it in its core, and after the
    occurrence ended that was in its slot of the queue."""
    total = len(line.site)
    pairs = [(edges.target, edges.source), *((own[1:], own[:-1]) for own in line.members)]
    if arch is not None:
        every = np.arange(total)
        following = np.setdiff1d(every, line.starts)
        pairs += [(every, every + total), (following + total, following + total - 1)]
        for own, (_, engine) in zip(line.members, line.queues, strict=True):
            depth = arch.front_end.depth(engine)
            pairs.append((own[depth:] + total, own[:-depth]))
    target, source = zip(*pairs, strict=True)
    return np.concatenate(target), np.concatenate(source)


def _complaint(line: Timeline, edges: Dependencies, order: Ints) -> str:
    """What the first occurrence of each queue waits for that is not in `order`."""
    ended = np.zeros(len(line.site), np.bool_)
    ended[order] = True
    heads = [int(own[~ended[own]][0]) for own in line.members if not ended[own].all()]
    lacking, said = dict(edges.lacking), []
    for head in heads[:8]:
        sources = edges.source[edges.target == head]
        waited = sources[~ended[sources]]
        if head in lacking:
            why = f"waits for {lacking[head]}, which is never given"
        elif len(waited):
            why = f"waits for {line.where(int(waited[0]))}"
        else:
            why = "is not issued: the front end stands before a full queue"
        said.append(f"{line.where(head)} {why}")
    return "nothing can go on: " + "; ".join(said)


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
