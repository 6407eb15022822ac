"""Packing: addresses within a capacity for items with known live ranges.

Items whose live ranges do not overlap are packed separately. Each set is packed greedily first
(`greedy`); the exact search (`PackingSearch`) runs only where that exceeds the capacity.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compiler.schedule.residency.buffer import LiveRange, place


def lower_bound(items: Sequence[LiveRange]) -> int:
    """Largest sum of the sizes of the items alive in any one step, in bytes."""
    changes: Counter[int] = Counter()
    for item in items:
        changes[item.first] += item.size
        changes[item.last + 1] -= item.size
    return max(itertools.accumulate(changes[step] for step in sorted(changes)), default=0)


def in_separate_times(items: Sequence[LiveRange]) -> list[list[LiveRange]]:
    """The items in groups; items of different groups are never alive together."""
    groups: list[list[LiveRange]] = []
    until = 0
    for item in sorted(items, key=lambda i: (i.first, i.last, i.name)):
        if not groups or item.first > until:
            groups.append([])
            until = item.last
        groups[-1].append(item)
        until = max(until, item.last)
    return groups


# Packing by a single sweep over the items, in several orders: fast, and often good enough.


def greedy(items: Sequence[LiveRange], capacity: int) -> dict[str, int] | None:
    """First-fit addresses of at least one item, in the first of several orders that ends at
    `capacity` or below, if any does."""
    begins = sorted({item.first for item in items})

    def life(item: LiveRange) -> int:
        return bisect_right(begins, item.last) - bisect_left(begins, item.first)

    orders: tuple[Callable[[LiveRange], int], ...] = (
        lambda item: item.size,
        lambda item: item.size * life(item),
        life,
        lambda item: -item.first,
    )
    for order in orders:
        found, end = place(items, key=lambda i: (-order(i), -i.size, i.name))
        if end <= capacity:
            return found
    return None


# Packing by search: branch where fewest choices are left, and start anew with what was learnt.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NEVER = 1 << 60
"""Higher than any address."""
UNPLACED = -1
"""Not an address."""
NODES = 2_000
"""Search nodes, some 60 us each; at effort 1 ten times as many, and so on for each effort."""
PATIENCE = 50
"""Failures after which an early search starts anew."""
SLOWDOWN = 20
"""Restarts after which the patience grows by as much again."""
LAST_DIVE = 0.3
"""Part of the nodes that is kept for one search without restarts."""
FORGETTING = 0.95
"""What a restart leaves of the weights that failures gave to sections."""
NOISE = 0.2
"""Standard deviation of the noise on the logarithm of an item's priority."""


@dataclass
class _PackingState:
    heights: Ints
    """Per section, and one more that closes the last item's range."""
    remaining: Ints
    """Per section, bytes of the items not yet placed."""
    addresses: Ints
    """Per item; UNPLACED for items that have none yet."""
    lowest: Ints
    """Per item, the lowest address still possible; NEVER for items that are placed."""

    def copy(self) -> _PackingState:
        """A state to change; `lowest` is never changed in place."""
        heights, remaining, addresses = map(np.copy, (self.heights, self.remaining, self.addresses))
        return _PackingState(heights, remaining, addresses, self.lowest)


@dataclass
class _Choice:
    """A branching: the alternatives of a state that were not tried yet."""

    state: _PackingState
    section: int
    items: list[int]
    """Items that may lie at the section's height; the last is tried next."""
    risen: int
    """The section's height if none of them does, tried last; NEVER if that is out of question."""


class PackingSearch:
    """Exact search for a packing of at least one item, none of size 0."""

    def __init__(self, items: Sequence[LiveRange]) -> None:
        self._items = sorted(items, key=lambda i: (i.first, i.last, i.size, i.name))
        fields = ((i.first, i.last, i.size, i.align) for i in self._items)
        first, last, self._size, self._align = np.array(list(fields), np.int64).T
        grain = np.gcd.reduce(self._align)
        self._padded = -(-self._size // grain) * grain
        self._mixed = bool((self._align != grain).any())
        self._cut_time(first, last)
        # Only what lies topmost need not be padded up to the next address.
        self._spare = np.maximum.reduceat((self._padded - self._size)[self._alive], self._offsets)
        self._total = np.add.reduceat(self._padded[self._alive], self._offsets)
        shapes = np.stack([self._low, self._high, self._size, self._align], axis=1)
        self._kind = np.unique(shapes, axis=0, return_inverse=True)[1].ravel()
        self._weights: Floats = np.ones(self._sections)
        self._random = np.random.default_rng(0)

    @property
    def bound(self) -> int:
        """A lower bound of the end, in bytes, padding included."""
        return int((self._total - self._spare).max())

    def fit(self, limit: int, nodes: int) -> tuple[dict[str, int] | None, int]:
        """A packing that ends at `limit` or below, if one is found with so many nodes, and how many
        are left: counted in nodes, results do not depend on the computer."""
        self._nodes = nodes
        last_dive = int(nodes * LAST_DIVE)
        for restart in itertools.count():
            if self._nodes <= 0:
                break
            patience = PATIENCE * (1 + restart // SLOWDOWN) if self._nodes > last_dive else NEVER
            found, exhausted = self._dive(limit, self._priorities(restart), patience)
            if found is not None or exhausted:
                return found, self._nodes
            self._weights = 1 + (self._weights - 1) * FORGETTING
        return None, 0

    def _cut_time(self, first: Ints, last: Ints) -> None:
        """Sections, the items of each, and the range of sections of each item."""
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
        return rule + self._random.normal(0, NOISE, len(self._items))

    def _dive(
        self, limit: int, priorities: Floats, patience: int
    ) -> tuple[dict[str, int] | None, bool]:
        """Addresses, or none; and whether none is proven impossible."""
        count = len(self._items)
        state: _PackingState | None = _PackingState(
            np.zeros(self._sections + 1, np.int64),
            self._total.copy(),
            np.full(count, UNPLACED),
            np.zeros(count, np.int64),
        )
        stack: list[_Choice] = []
        while True:
            self._nodes -= 1
            if self._nodes < 0 or patience < 0:
                return None, False
            if state is not None and self._propagate(state, limit):
                if not state.remaining.any():
                    found = zip(self._items, state.addresses.tolist(), strict=True)
                    return {item.name: address for item, address in found}, False
                stack.append(self._branch(state, limit, priorities))
            elif state is not None:
                patience -= 1
            else:
                stack.pop()
            if not stack:
                return None, True
            state = self._next_state(stack[-1])

    def _propagate(self, state: _PackingState, limit: int) -> bool:
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

    def _branch(self, state: _PackingState, limit: int, priorities: Floats) -> _Choice:
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

    def _risen(self, state: _PackingState, section: int, valley: tuple[int, int]) -> int:
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
        ordered = items[np.argsort(-priorities[items], kind="stable")]
        first = np.unique(self._kind[ordered], return_index=True)[1]
        return [int(item) for item in ordered[np.sort(first)[::-1]]]

    def _next_state(self, choice: _Choice) -> _PackingState | None:
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


def pack(items: Sequence[LiveRange], capacity: int, effort: int = 1) -> dict[str, int] | None:
    """Addresses of all items, the same for the same arguments.

    Args:
        items: what to place; their names differ.
        capacity: first byte beyond the memory.
        effort: 0 sweeps greedily, in milliseconds. Where that does not do, 1, 2 and 3 search, for
            up to about one, ten and a hundred seconds.

    Returns:
        A packing, or None if none was found that ends at the capacity or below.

    Raises:
        ValueError: two items have the same name.
    """
    if len({item.name for item in items}) < len(items):
        raise ValueError("two items have the same name")
    nodes = NODES * 10**effort if effort else 0
    addresses = {item.name: 0 for item in items if not item.size}
    groups = in_separate_times([item for item in items if item.size])
    for group in sorted(groups, key=lower_bound, reverse=True):
        search = PackingSearch(group)
        if search.bound > capacity:
            return None
        found = greedy(group, capacity)
        if found is None:
            found, nodes = search.fit(capacity, nodes)
        if found is None:
            return None
        addresses |= found
    return addresses
