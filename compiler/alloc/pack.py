"""The placer of on-chip buffers: addresses for items whose lifetimes are known.

Items that are never alive together with others are packed apart. Each group is swept greedily
first (`pack_greedy`); only what that leaves too high is searched (`exact`). The one idea: an end
that is good enough, the capacity or the bound, stops the work at once, so easy cases stay fast.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from compiler.alloc.exact import Budget, Packer, Search
from compiler.alloc.pack_greedy import greedy
from compiler.alloc.pack_items import (
    Item,
    Packing,
    end_of,
    grain_of,
    in_separate_times,
    lower_bound,
    rounded_up,
)

__all__ = ["Item", "Packing", "lower_bound", "pack"]

_USUAL = Packer()


def pack(
    items: Sequence[Item],
    capacity: int | None,
    effort: int = 1,
    start: int = 0,
    seconds: float = 600.0,
    how: Packer = _USUAL,
) -> Packing | None:
    """Addresses for all items between `start` and `capacity`, the same for the same arguments.

    Args:
        items: what to place; their names differ.
        capacity: first byte beyond the memory. None: there is room, but the end shall be low.
        effort: 0 sweeps greedily, in milliseconds. Where that does not do, 1, 2 and 3 search, for
            up to about one, ten and a hundred seconds.
        start: the lowest address, in bytes.
        seconds: a safety net: a search that lasts longer ends, whatever else it might do.
        how: how long the search goes on, and when it starts anew.

    Returns:
        A packing, or None if none was found that ends at the capacity or below.

    Raises:
        ValueError: two items have the same name.
    """
    if len({item.name for item in items}) < len(items):
        raise ValueError("two items have the same name")
    budget = Budget(how.nodes * 10**effort if effort else 0, time.monotonic() + seconds)
    solid = [item for item in items if item.size]
    addresses = {i.name: rounded_up(start, i.align) for i in items if not i.size}
    end = bound = start
    # The group with the highest bound first: its end is low enough for all others.
    for group in sorted(in_separate_times(solid), key=lower_bound, reverse=True):
        goal = end if capacity is None else capacity
        found, least = _pack_group(group, capacity, goal, start, budget, how)
        addresses |= found
        end, bound = max(end, end_of(group, found, start)), max(bound, least)
        if capacity is not None and end > capacity:
            return None
    return Packing(addresses, end, proven=end <= bound)


def _pack_group(
    group: list[Item], capacity: int | None, goal: int, start: int, budget: Budget, how: Packer
) -> tuple[dict[str, int], int]:
    """Addresses that end at `goal`, or as low as was found; and an end that none can go below."""
    search = Search(group, start, how)
    goal = max(goal, search.bound)
    addresses = greedy(group, start, goal)
    end = end_of(group, addresses, start)
    if end <= goal or budget.nodes <= 0 or (capacity is not None and search.bound > capacity):
        return addresses, search.bound
    if capacity is not None:
        return search.fit(capacity, budget).addresses or addresses, search.bound
    return _lowered(group, addresses, goal, search, start, budget)


def _lowered(
    group: list[Item],
    addresses: dict[str, int],
    goal: int,
    search: Search,
    start: int,
    budget: Budget,
) -> tuple[dict[str, int], int]:
    """Search for the lowest end from `goal` on: there first, then by bisection."""
    unit = math.gcd(grain_of(group), *(item.size for item in group))
    share = int(budget.nodes * search.how.per_limit)
    limit = low = goal
    least = search.bound
    while low < (end := end_of(group, addresses, start)) and budget.nodes > 0:
        part = Budget(min(share, budget.nodes), budget.deadline)
        budget.nodes -= part.nodes
        outcome = search.fit(limit, part)
        budget.nodes += max(0, part.nodes)
        if outcome.addresses is not None:
            addresses = outcome.addresses
            end = end_of(group, addresses, start)
        else:
            low = rounded_up(limit + 1, unit)
            least = low if outcome.exhausted else least
        limit = low + (end - unit - low) // unit // 2 * unit
    return addresses, least
