"""Packing by a single sweep over the items, in several orders: fast, and often good enough.

Two ways to read an order:

    first fit      each item in turn goes to the lowest free gap that is large enough
    lowest first   of all items, the one that can lie lowest on what is placed goes next; the
                   order decides among equals

First fit fills holes, lowest first leaves few: neither is always better.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from compiler.alloc.pack_items import Item, end_of, rounded_up

Neighbours = list[list[int]]
"""For each item, the indices of those alive together with it."""


def greedy(items: Sequence[Item], start: int, goal: int) -> dict[str, int]:
    """Addresses of the best of several sweeps, or of the first that ends at `goal` or below.

    Args:
        items: what to pack; at least one.
        start: the lowest address, in bytes.
        goal: an end that is good enough, in bytes.
    """
    neighbours = _neighbours(items)
    best: tuple[int, dict[str, int]] | None = None
    for order in _orders(items):
        for sweep in (_first_fit, _lowest_first):
            found = sweep(items, order, neighbours, start)
            addresses = {item.name: address for item, address in zip(items, found, strict=True)}
            end = end_of(items, addresses, start)
            if best is None or end < best[0]:
                best = end, addresses
            if end <= goal:
                return addresses
    assert best is not None, "there is at least one order"
    return best[1]


def _neighbours(items: Sequence[Item]) -> Neighbours:
    first = np.array([item.first for item in items])
    last = np.array([item.last for item in items])
    together = (first[:, None] <= last) & (first <= last[:, None])
    np.fill_diagonal(together, False)
    return [np.flatnonzero(row).tolist() for row in together]


def _orders(items: Sequence[Item]) -> Iterator[list[int]]:
    events = np.unique([item.first for item in items])
    low = np.searchsorted(events, [item.first for item in items])
    high = np.searchsorted(events, [item.last for item in items], side="right")
    lives = (high - low).tolist()
    keys: tuple[Callable[[int], int], ...] = (
        lambda i: items[i].size,
        lambda i: items[i].size * lives[i],
        lambda i: lives[i],
        lambda i: -items[i].first,
    )
    for key in keys:
        yield sorted(range(len(items)), key=lambda i: (-key(i), -items[i].size, items[i].name))


def _first_fit(
    items: Sequence[Item], order: list[int], neighbours: Neighbours, start: int
) -> list[int]:
    unplaced = -1
    addresses = [unplaced] * len(items)
    for index in order:
        item = items[index]
        busy = sorted(
            (addresses[other], addresses[other] + items[other].size)
            for other in neighbours[index]
            if addresses[other] != unplaced
        )
        address = rounded_up(start, item.align)
        for low, high in busy:
            if address + item.size <= low:
                break
            address = max(address, rounded_up(high, item.align))
        addresses[index] = address
    return addresses


def _lowest_first(
    items: Sequence[Item], order: list[int], neighbours: Neighbours, start: int
) -> list[int]:
    lowest = [rounded_up(start, item.align) for item in items]
    placed = [False] * len(items)
    heap = [(lowest[index], rank, index) for rank, index in enumerate(order)]
    heapq.heapify(heap)
    while heap:
        address, rank, index = heapq.heappop(heap)
        if address < lowest[index]:
            heapq.heappush(heap, (lowest[index], rank, index))
            continue
        placed[index] = True
        top = address + items[index].size
        for other in neighbours[index]:
            if not placed[other] and lowest[other] < top:
                lowest[other] = rounded_up(top, items[other].align)
    return lowest
