"""The order of independent branches for the smallest peak of live bytes.

A state is the set of parts that have run; what is live in it does not depend on their order. So of
all ways to a state only the one with the smallest peak matters, and a search from state to state,
one part at a time, finds the optimum. Where a network narrows to one part, all orders meet in one
state; in between, a part that frees at least what it makes, without a new peak, can only be right,
and of too many states the search keeps the most promising.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from compiler.fuse.dependence import Dependences, members


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

    def apply(self, net: Dependences, mask: int | None = None) -> Order:
        """The best order of the parts in `mask`, by default all.

        The order of `net` stays where none with a smaller peak is found. Bytes that come from
        outside of `mask` do not count; a result counts while it is made, and until its last reader
        in `mask` has run.
        """
        mask = (1 << len(net.parts)) - 1 if mask is None else mask
        live = _Live(net, mask)
        given = tuple(members(mask))
        peak = live.peak(given)
        found = _search(live, self.width)
        return found if found.peak < peak else Order(given, peak, found.exact)


@dataclass(frozen=True)
class _Live:
    """What is live in each state."""

    net: Dependences
    mask: int

    @cached_property
    def made(self) -> dict[int, int]:
        """Bytes that each part makes."""
        return {i: sum(size for size, _ in self.net.made(i)) for i in members(self.mask)}

    @cached_property
    def freed(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """For each part, the tensors whose last reader it may be: bytes and readers."""
        found: dict[int, list[tuple[int, int]]] = {i: [] for i in members(self.mask)}
        for writer in members(self.mask):
            for size, readers in self.net.made(writer):
                for reader in members(readers & self.mask) or (writer,):
                    found[reader].append((size, readers & self.mask))
        return {reader: tuple(tensors) for reader, tensors in found.items()}

    @cached_property
    def needs(self) -> dict[int, int]:
        """What has to run before each part."""
        return {i: self.net.ancestors[i] & self.mask for i in members(self.mask)}

    def change(self, done: int, part: int) -> int:
        """Bytes that are live more once `part` has run after `done`."""
        done |= 1 << part
        gone = sum(size for size, readers in self.freed[part] if not readers & ~done)
        return self.made[part] - gone

    def peak(self, order: Sequence[int]) -> int:
        """Most bytes that are live in `order`."""
        done = live = peak = 0
        for part in order:
            peak = max(peak, live + self.made[part])
            live += self.change(done, part)
            done |= 1 << part
        return peak


@dataclass(frozen=True)
class _State:
    """The best way to a set of parts."""

    peak: int
    live: int
    way: tuple[int, ...]


def _search(live: _Live, width: int) -> Order:
    states = {0: _State(0, 0, ())}
    exact = True
    for _ in range(live.mask.bit_count()):
        states = _following(live, states)
        if len(states) > width:
            exact = False
            kept = sorted(states.items(), key=lambda item: (item[1].peak, item[1].live))[:width]
            states = dict(kept)
    best = states[live.mask]
    return Order(best.way, best.peak, exact)


def _following(live: _Live, states: dict[int, _State]) -> dict[int, _State]:
    """Every state that one more part leads to, each with its best way."""
    found: dict[int, _State] = {}
    for done, state in states.items():
        for part in _next(live, done, state):
            after = done | 1 << part
            peak = max(state.peak, state.live + live.made[part])
            if after not in found or peak < found[after].peak:
                grown = state.live + live.change(done, part)
                found[after] = _State(peak, grown, (*state.way, part))
    return found


def _next(live: _Live, done: int, state: _State) -> list[int]:
    """Parts that can run after `done`: one alone where it is surely right, else all."""
    ready = [i for i in members(live.mask & ~done) if not live.needs[i] & ~done]
    for part in ready:
        calm = state.live + live.made[part] <= state.peak
        if calm and live.change(done, part) <= 0:
            return [part]
    return ready
