"""The order of independent branches for the smallest peak of live bytes.

A state is the set of parts that have run; what is live in it does not depend on their order. So of
all ways to a state only the one with the smallest peak matters, and a search from state to state,
one part at a time, finds the optimum. Where a network narrows to one part, all orders meet in one
state; in between, a part that frees at least what it makes, without a new peak, can only be right;
a state with the peak of a known order is given up, and of too many only the most promising stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from compiler.schedule.fusion.dependence import Dependences, Ties, members, union

# An order of the parts that runs down one branch after the other.


def chained(net: Ties) -> tuple[int, ...]:
    """Positions in an order in which the parts can run: the newest that is ready comes next.

    before:
        x a1 b1 a2 b2 join      with a1 -> a2 -> join, b1 -> b2 -> join
    after:
        x a1 a2 b1 b2 join
    """
    return newest_first(net.before)


def rechained(net: Dependences, groups: Sequence[int], late: bool) -> tuple[int, ...]:
    """The same with the parts of each of `groups` side by side; `late`: last branch first.

    The groups are disjoint, have all parts, and stand in an order in which they can run.
    """
    home = {part: index for index, group in enumerate(groups) for part in members(group)}
    needs = [union(net.before[i] for i in members(group)) & ~group for group in groups]
    before = [union(1 << home[part] for part in members(need)) for need in needs]
    return tuple(i for index in newest_first(before, late) for i in members(groups[index]))


def newest_first(before: Sequence[int], late: bool = False) -> tuple[int, ...]:
    """Positions so that each stands behind those in its `before`, and next to the newest."""
    step = 1 if late else -1
    missing = [needs.bit_count() for needs in before]
    users: list[list[int]] = [[] for _ in before]
    for user, needs in enumerate(before):
        for position in members(needs):
            users[position].append(user)
    ready = [position for position, count in enumerate(missing) if not count][::step]
    found: list[int] = []
    while ready:
        position = ready.pop()
        found.append(position)
        freed: list[int] = []
        for user in users[position]:
            missing[user] -= 1
            if not missing[user]:
                freed.append(user)
        ready += freed[::step]
    return tuple(found)


@dataclass(frozen=True)
class Order:
    """Positions in an order in which they can run."""

    positions: tuple[int, ...]
    peak: int
    """Most bytes of tensors between the parts that are live at once."""
    exact: bool
    """Whether no order has a smaller peak."""


@dataclass(frozen=True)
class Reorder:
    """Run independent branches in the order that needs the least memory.

    before:
        a b c d join     all of a, b read x, which is large; c shrinks a, d shrinks b
    after:
        a c b d join     only one large result at a time
    """

    width: int = 4096
    """States of equal length that are kept. Any 14 parts have fewer."""
    states: int = 100_000
    """States after which only a thirty-second of `width` is kept: a limit of time."""

    def apply(self, net: Ties, mask: int | None = None) -> Order:
        """The best order of the parts in `mask`, by default all.

        The order of `net` stays where none with a smaller peak is found. Bytes that come from
        outside of `mask` do not count; a result counts while it is made, and until its last reader
        in `mask` has run.
        """
        mask = (1 << len(net.before)) - 1 if mask is None else mask
        live = _Live(net, mask)
        simple = [tuple(members(mask)), tuple(i for i in chained(net) if mask >> i & 1)]
        known = min(simple, key=live.peak)  # the given order where both are alike
        best, whole = self._search_below_peak(live, live.peak(known))
        order = known if best is None else best.way
        peak = live.peak(order)
        return Order(order, peak, whole or peak == live.floor())

    def _search_below_peak(self, live: _Live, limit: int) -> tuple[_OrderState | None, bool]:
        """The best state with all parts and a peak below `limit`, and whether all were seen."""
        states = {0: _OrderState(0, 0, live.first(), ())}
        whole, spent = True, 0
        for _ in range(live.mask.bit_count()):
            states = _following(live, states, limit)
            spent += len(states)
            width = self.width if spent <= self.states else self.width // 32
            if len(states) > width:
                whole = False
                ranked = sorted(states.items(), key=lambda item: (item[1].peak, item[1].live))
                states = dict(ranked[:width])
        return states.get(live.mask), whole


@dataclass(frozen=True)
class _Live:
    """What is live in each state."""

    net: Ties
    mask: int

    @cached_property
    def produced_bytes(self) -> dict[int, int]:
        """Bytes that each part makes."""
        return {i: sum(size for size, _ in self.net.results[i]) for i in members(self.mask)}

    @cached_property
    def freed(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """For each part, the tensors whose last reader it may be: bytes and readers."""
        found: dict[int, list[tuple[int, int]]] = {i: [] for i in members(self.mask)}
        for writer in members(self.mask):
            for size, readers in self.net.results[writer]:
                for reader in members(readers & self.mask or 1 << writer):
                    found[reader].append((size, readers & self.mask))
        return {reader: tuple(tensors) for reader, tensors in found.items()}

    @cached_property
    def needs(self) -> dict[int, int]:
        """What has to run before each part."""
        return {i: self.net.ancestors[i] & self.mask for i in members(self.mask)}

    @cached_property
    def users(self) -> dict[int, int]:
        """What may be able to run once a part has: nothing in `mask` lies between."""
        down, up = self.net.descendants, self.net.ancestors
        return {
            i: union(
                1 << j for j in members(down[i] & self.mask) if not down[i] & up[j] & self.mask
            )
            for i in members(self.mask)
        }

    def first(self) -> int:
        """Parts that can run at once."""
        return union(1 << i for i, needs in self.needs.items() if not needs)

    def change(self, done: int, part: int) -> int:
        """Bytes that are live more once `part` has run after `done`."""
        done |= 1 << part
        gone = sum(size for size, readers in self.freed[part] if not readers & ~done)
        return self.produced_bytes[part] - gone

    def floor(self) -> int:
        """What no order can stay below: one part, what it makes and what it reads of the others."""
        taken = dict(self.produced_bytes)
        for writer in members(self.mask):
            for size, readers in self.net.results[writer]:
                for reader in members(readers & self.mask):
                    taken[reader] += size
        return max(taken.values(), default=0)

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
                freed = union(1 << i for i in users if not live.needs[i] & ~after)
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
