"""Packing by search: branch where fewest choices are left, and start anew with what was learnt.

The one idea: time is cut into sections, the largest sets of items that are alive together, and a
state is a height for each section below which nothing more can lie. The items that remain in a
section must fit between its height and the limit.

    propagate   no item lies below the largest height in its sections, and no section's height is
                below the lowest of its remaining items: repeat until nothing rises
    branch      take a section at the bottom of a valley of heights. Either one of its items lies
                exactly there, or its height rises to the next one at which an item could lie

In a valley nothing can come to lie beneath an item, so the two branches miss no packing in which
every item rests on another: a search that ends without one proves that there is none. Sections
where searches failed weigh more when the next section is chosen, over all restarts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from compiler.alloc.pack_items import Item, grain_of, rounded_up
from compiler.options import Count, Factor, Share, Within

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NEVER = 1 << 60
"""Higher than any address."""
UNPLACED = -1
"""Not an address."""


@dataclass(frozen=True)
class Packer:
    """How long the search goes on, and when it starts anew."""

    nodes: Annotated[int, Within(1, 1_000_000)] = 2_000
    """Search nodes, some 60 us each; at effort 1 ten times as many, and so on for each effort."""
    patience: Count = 50
    """Failures after which an early search starts anew."""
    slowdown: Count = 20
    """Restarts after which the patience grows by as much again."""
    last_dive: Share = 0.3
    """Part of the nodes that is kept for one search without restarts."""
    per_limit: Share = 0.125
    """Part of the nodes that one limit may cost, where the end shall be low."""
    forgetting: Share = 0.95
    """What a restart leaves of the weights that failures gave to sections."""
    noise: Factor = 0.2
    """Standard deviation of the noise on the logarithm of an item's priority."""


@dataclass
class Budget:
    """What a search may cost; it counts nodes, so that answers do not depend on the computer."""

    nodes: int
    deadline: float
    """In seconds of `time.monotonic`: a safety net, which a sound budget never meets."""

    def spend(self) -> bool:
        """Take one node, if there is one."""
        self.nodes -= 1
        return self.nodes >= 0 and (self.nodes % 256 > 0 or time.monotonic() < self.deadline)


@dataclass(frozen=True)
class Outcome:
    """Addresses, or none; and whether that none is a proof."""

    addresses: dict[str, int] | None
    exhausted: bool


@dataclass
class _State:
    heights: Ints
    """Per section, and one more that closes the last item's range."""
    remaining: Ints
    """Per section, bytes of the items not yet placed."""
    addresses: Ints
    """Per item; UNPLACED for items that have none yet."""
    lowest: Ints
    """Per item, the lowest address still possible; NEVER for items that are placed."""

    def copy(self) -> _State:
        """A state to change; `lowest` is never changed in place."""
        heights, remaining, addresses = map(np.copy, (self.heights, self.remaining, self.addresses))
        return _State(heights, remaining, addresses, self.lowest)


@dataclass
class _Choice:
    """A branching: the ways to go on from a state that were not tried yet."""

    state: _State
    section: int
    items: list[int]
    """Those that may lie at the section's height; the last is tried next."""
    risen: int
    """The section's height if none of them does, tried last; NEVER if that is out of question."""


class Search:
    """Packings of the same items under different limits; it learns from one to the next."""

    def __init__(self, items: Sequence[Item], start: int, how: Packer = Packer()) -> None:
        """Prepare a search.

        Args:
            items: what to pack; at least one, none of size 0.
            start: the lowest address, in bytes.
            how: when the search starts anew.
        """
        self.how = how
        self._items = sorted(items, key=lambda i: (i.first, i.last, i.size, i.name))
        self._grain = grain_of(items)
        self._start = rounded_up(start, self._grain)
        self._size = _array(item.size for item in self._items)
        self._padded = _array(rounded_up(item.size, self._grain) for item in self._items)
        self._align = _array(item.align for item in self._items)
        self._mixed = bool((self._align != self._grain).any())
        self._cut_time()
        # Only what lies topmost need not be padded up to the next address.
        self._spare = np.maximum.reduceat((self._padded - self._size)[self._alive], self._offsets)
        self._total = np.add.reduceat(self._padded[self._alive], self._offsets)
        kinds: dict[tuple[int, ...], int] = {}
        shapes = np.stack([self._low, self._high, self._size, self._align], axis=1).tolist()
        self._kind = [kinds.setdefault(tuple(shape), len(kinds)) for shape in shapes]
        self._weights: Floats = np.ones(self._sections)
        self._random = np.random.default_rng(0)

    @property
    def bound(self) -> int:
        """An end below which no packing can be, in bytes; it knows of padding."""
        return self._start + int((self._total - self._spare).max())

    def fit(self, limit: int, budget: Budget) -> Outcome:
        """Look for a packing that ends at `limit` or below, until the budget is spent."""
        kept = int(budget.nodes * self.how.last_dive)
        restart = 0
        while budget.nodes > 0 and time.monotonic() < budget.deadline:
            again = 1 + restart // self.how.slowdown
            patience = self.how.patience * again if budget.nodes > kept else NEVER
            outcome = self._dive(limit, self._priorities(restart), patience, budget)
            if outcome.addresses is not None or outcome.exhausted:
                return outcome
            self._weights = 1 + (self._weights - 1) * self.how.forgetting
            restart += 1
        return Outcome(None, exhausted=False)

    def _cut_time(self) -> None:
        """Sections, the items of each, and the range of sections of each item."""
        first, last = (_array(getattr(i, at) for i in self._items) for at in ("first", "last"))
        begins = np.unique(first)
        # Between two beginnings where no life ends, the earlier set is part of the later one.
        ended = np.searchsorted(np.sort(last), begins)
        begins = begins[np.append(ended[1:] > ended[:-1], True)]
        self._low = np.searchsorted(begins, first)
        self._high = np.searchsorted(begins, last, side="right") - 1
        self._sections = len(begins)
        spans = (self._low[:, None] <= np.arange(self._sections)) & (
            np.arange(self._sections) <= self._high[:, None]
        )
        self._section_of, self._alive = (part.astype(np.int64) for part in np.nonzero(spans.T))
        self._offsets = np.searchsorted(self._section_of, np.arange(self._sections))
        self._ends = np.append(self._offsets, len(self._alive))
        self._ranges = np.stack([self._low, self._high + 1], axis=1).ravel()

    def _priorities(self, restart: int) -> Floats:
        """Per item; the largest is tried first. Restarts take turns in what matters."""
        life = (self._high - self._low + 1).astype(np.float64)
        rules = (life * self._size, life, life * np.sqrt(self._size))
        rule = np.log(rules[(restart + 1) % len(rules)])
        if restart < len(rules):
            return rule
        return rule + self._random.normal(0, self.how.noise, len(self._items))

    def _dive(self, limit: int, priorities: Floats, patience: int, budget: Budget) -> Outcome:
        count = len(self._items)
        state: _State | None = _State(
            np.full(self._sections + 1, self._start),
            self._total.copy(),
            np.full(count, UNPLACED),
            np.zeros(count, np.int64),
        )
        stack: list[_Choice] = []
        while True:
            if not budget.spend() or patience < 0:
                return Outcome(None, exhausted=False)
            if state is not None and self._propagate(state, limit):
                if not state.remaining.any():
                    return Outcome(self._named(state), exhausted=False)
                stack.append(self._branch(state, limit, priorities))
            elif state is not None:
                patience -= 1
            else:
                stack.pop()
            if not stack:
                return Outcome(None, exhausted=True)
            state = self._next(stack[-1])

    def _propagate(self, state: _State, limit: int) -> bool:
        """Raise heights and items as far as they must; False if a section overflows."""
        heights, remaining = state.heights[:-1], state.remaining
        placed = state.addresses != UNPLACED
        unfinished = remaining > 0
        room = limit + self._spare - remaining
        while True:
            lowest = np.maximum.reduceat(state.heights, self._ranges)[::2]
            if self._mixed:
                lowest = -(-lowest // self._align) * self._align
            lowest[placed] = NEVER
            floors = np.minimum.reduceat(lowest[self._alive], self._offsets)
            overflowing = unfinished & (floors > room)
            if overflowing.any():
                self._weights[overflowing] += 1
                return False
            rising = unfinished & (floors > heights)
            if not rising.any():
                state.lowest = lowest
                return True
            heights[rising] = floors[rising]

    def _branch(self, state: _State, limit: int, priorities: Floats) -> _Choice:
        """The choice at the section of a valley where little choice is left and much failed."""
        heights = np.where(state.remaining > 0, state.heights[:-1], NEVER)
        begins = np.append(0, np.flatnonzero(np.diff(heights)) + 1)
        widths = np.diff(np.append(begins, self._sections))
        walls = np.concatenate(([NEVER], heights[begins], [NEVER]))
        inner = walls[1:-1]
        valleys = (inner < NEVER) & (walls[:-2] >= inner) & (walls[2:] >= inner)
        ready = state.lowest[self._alive] == heights[self._section_of]
        slack = limit + self._spare - state.remaining - heights
        choices = np.add.reduceat(ready, self._offsets, dtype=np.int64) + (slack > 0)
        cost = (choices - 0.999) / self._weights + slack / (1 + limit) * 1e-3
        section = int(np.where(np.repeat(valleys, widths), cost, np.inf).argmin())
        own = slice(self._ends[section], self._ends[section + 1])
        items = self._alive[own][ready[own]]
        items = items[heights[section] + self._size[items] <= limit]
        valley = int(np.searchsorted(begins, section, side="right")) - 1
        low, high = int(begins[valley]), int(begins[valley] + widths[valley]) - 1
        risen = self._risen(state, section, (low, high)) if slack[section] > 0 else NEVER
        if risen - heights[section] > slack[section]:
            risen = NEVER
        return _Choice(state, section, self._distinct(items, priorities), risen)

    def _risen(self, state: _State, section: int, valley: tuple[int, int]) -> int:
        """The next address in a section if nothing lies at its height, which a valley shares."""
        height, lowest = state.heights[section], state.lowest
        covering = (self._low <= section) & (section <= self._high)
        later = lowest[covering & (lowest > height)]
        # What could lie at the height lies higher only on top of an item beside the section.
        beside = ~covering & (self._low <= valley[1]) & (valley[0] <= self._high)
        tops = (lowest + self._padded)[beside]
        return int(min(later.min(initial=NEVER), tops.min(initial=NEVER)))

    def _distinct(self, items: Ints, priorities: Floats) -> list[int]:
        """Items by rising priority, of those that are alike only one."""
        kept: dict[int, int] = {}
        for item in items[np.argsort(-priorities[items], kind="stable")].tolist():
            kept.setdefault(self._kind[item], item)
        return list(kept.values())[::-1]

    def _next(self, choice: _Choice) -> _State | None:
        """The state after the next way to go on, not propagated yet; None if all were tried."""
        if not choice.items and choice.risen == NEVER:
            return None
        state = choice.state.copy()
        if not choice.items:
            state.heights[choice.section] = choice.risen
            choice.risen = NEVER
            return state
        item = choice.items.pop()
        sections = slice(self._low[item], self._high[item] + 1)
        state.addresses[item] = state.lowest[item]
        state.heights[sections] = state.lowest[item] + self._padded[item]
        state.remaining[sections] -= self._padded[item]
        return state

    def _named(self, state: _State) -> dict[str, int]:
        return {
            item.name: address
            for item, address in zip(self._items, state.addresses.tolist(), strict=True)
        }


def _array(values: Iterable[int]) -> Ints:
    return np.array(list(values), np.int64)
