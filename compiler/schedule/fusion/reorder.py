"""The order of independent branches for the smallest peak of live bytes.

A state is the set of parts that have run; what is live in it does not depend on their order. So of
all ways to a state only the one with the smallest peak matters, and a search from state to state,
one part at a time, finds the optimum. Where a network narrows to one part, all orders meet in one
state; in between, a part that frees at least what it makes, without a new peak, can only be right;
a state with the peak of a known order is given up, and of too many only the most promising stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compiler.schedule.fusion.dependence import Dependences, Ties, members, union
from simmodel.isa.region import cached_property

# An order of the parts that runs down one branch after the other.


def chained(net: Ties, late: bool = False) -> tuple[int, ...]:
    """Positions in an order in which the parts can run: the newest that is ready comes next;
    `late`: last branch first.

    before:
        x a1 b1 a2 b2 join      with a1 -> a2 -> join, b1 -> b2 -> join
    after:
        x a1 a2 b1 b2 join
    """
    step = 1 if late else -1
    missing = [needs.bit_count() for needs in net.before]
    ready = [position for position, count in enumerate(missing) if not count][::step]
    found: list[int] = []
    while ready:
        position = ready.pop()
        found.append(position)
        freed: list[int] = []
        for user in members(net.after[position]):
            missing[user] -= 1
            if not missing[user]:
                freed.append(user)
        ready += freed[::step]
    return tuple(found)


def by_need(net: Ties) -> tuple[int, ...]:
    """Positions in an order in which the parts can run: what a part needs stands right before it.

    before:
        x a1 b1 a2 b2 y      with a1 -> a2 and b1 -> b2, y -> a2 and y -> b2
    after:
        x a1 y a2 b1 b2      where `chained` has both b1 and y behind a1
    """
    found: dict[int, None] = {}
    waiting = [position for position, users in enumerate(net.after) if not users][::-1]
    while waiting:
        needed = (each for each in members(net.before[waiting[-1]]) if each not in found)
        if (first := next(needed, None)) is None:
            found.setdefault(waiting.pop())
        else:
            waiting.append(first)
    return tuple(found)


def reordered(
    net: Dependences, groups: Sequence[int], order: Callable[[Ties], tuple[int, ...]]
) -> tuple[int, ...]:
    """The same with the parts of each of `groups` side by side.

    The groups are disjoint, have all parts, and stand in an order in which they can run.
    """
    return tuple(i for index in order(net.steps(groups)) for i in members(groups[index]))


@dataclass(frozen=True)
class Order:
    """Positions in an order in which they can run."""

    positions: tuple[int, ...]
    peak: int
    """Most bytes of tensors between the parts that are live at once."""


WIDTH = 4096
"""States of equal length that are kept. Any 14 parts have fewer."""
STATES = 100_000
"""States after which only a thirty-second of the width is kept: a limit of time."""


def least_memory_order(net: Ties, width: int = WIDTH) -> Order:
    """The order of independent branches that needs the least memory; that of `net` where none with
    a smaller peak is found. A result counts while it is made, and until its last reader has run.

    before:
        a b c d join     all of a, b read x, which is large; c shrinks a, d shrinks b
    after:
        a c b d join     only one large result at a time
    """
    live = _Live(net)
    given = min((tuple(range(len(net.before))), chained(net)), key=live.peak)
    limit, spent = live.peak(given), 0
    states = {0: _OrderState(0, 0, union(1 << i for i, n in enumerate(net.before) if not n), ())}
    for _ in net.before:
        states = _following(live, states, limit)
        spent += len(states)
        most = width if spent <= STATES else width // 32
        if len(states) > most:
            ranked = sorted(states.items(), key=lambda item: (item[1].peak, item[1].live))
            states = dict(ranked[:most])
    best = states.get((1 << len(net.before)) - 1)
    return Order(given, limit) if best is None else Order(best.way, best.peak)


@dataclass(frozen=True)
class _Live:
    net: Ties

    @cached_property
    def produced_bytes(self) -> list[int]:
        """Bytes that each part makes."""
        return [sum(size for size, _ in results) for results in self.net.results]

    @cached_property
    def freed(self) -> list[list[tuple[int, int]]]:
        """For each part, the tensors whose last reader it may be: bytes and readers."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.net.results]
        for writer, results in enumerate(self.net.results):
            for size, readers in results:
                for reader in members(readers or 1 << writer):
                    found[reader].append((size, readers))
        return found

    @cached_property
    def users(self) -> list[int]:
        """What may be able to run once a part has: nothing lies between."""
        up, parts = self.net.ancestors, zip(self.net.after, self.net.descendants, strict=True)
        return [union(1 << j for j in members(own) if not down & up[j]) for own, down in parts]

    def change(self, done: int, part: int) -> int:
        """Bytes that are live more once `part` has run after `done`."""
        done |= 1 << part
        gone = sum(size for size, readers in self.freed[part] if not readers & ~done)
        return self.produced_bytes[part] - gone

    def peak(self, order: Sequence[int]) -> int:
        """Most bytes that are live in `order`."""
        done = live = peak = 0
        for part in order:
            peak = max(peak, live + self.produced_bytes[part])
            live += self.change(done, part)
            done |= 1 << part
        return peak


@dataclass(frozen=True)
class _OrderState:
    """The best way to a set of parts."""

    peak: int
    live: int
    ready: int
    """Parts that can run next."""
    way: tuple[int, ...]


def _following(live: _Live, states: dict[int, _OrderState], limit: int) -> dict[int, _OrderState]:
    """Every state below `limit` that one more part leads to, each with its best way."""
    found: dict[int, _OrderState] = {}
    for done, state in states.items():
        for part in _runnable_parts(live, done, state):
            after = done | 1 << part
            peak = max(state.peak, state.live + live.produced_bytes[part])
            if peak < (found[after].peak if after in found else limit):
                grown = state.live + live.change(done, part)
                users = members(live.users[part])
                freed = union(1 << i for i in users if not live.net.ancestors[i] & ~after)
                ready = state.ready & ~(1 << part) | freed
                found[after] = _OrderState(peak, grown, ready, (*state.way, part))
    return found


def _runnable_parts(live: _Live, done: int, state: _OrderState) -> Iterator[int]:
    """Parts that can run after `done`: one alone where it is surely right, else all."""
    for part in members(state.ready):
        calm = state.live + live.produced_bytes[part] <= state.peak
        if calm and live.change(done, part) <= 0:
            return iter((part,))
    return members(state.ready)
