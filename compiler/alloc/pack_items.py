"""What is packed on chip: items with a size and a lifetime, and the addresses they were given.

The one idea: an item is a rectangle whose place along time is given; only its address is free. No
two rectangles may overlap, so in any step the items alive must fit side by side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """`size` bytes that are alive from step `first` to step `last`, both included."""

    name: str
    size: int
    first: int
    last: int
    align: int = 1
    """The address is a multiple of this many bytes."""

    def __post_init__(self) -> None:
        if self.size < 0 or self.last < self.first or self.align < 1:
            raise ValueError(f"{self} has a negative size, an empty life or no alignment")


@dataclass(frozen=True)
class Packing:
    """Addresses at which no two items that are alive together overlap."""

    addresses: dict[str, int]
    end: int
    """First byte above all items; the start where no item has a byte."""
    proven: bool
    """No packing ends lower: a bound is reached, or the search saw everything."""


def lower_bound(items: Sequence[Item]) -> int:
    """Largest sum of the sizes of the items alive in any one step, in bytes."""
    changes: Counter[int] = Counter()
    for item in items:
        changes[item.first] += item.size
        changes[item.last + 1] -= item.size
    alive = highest = 0
    for step in sorted(changes):
        alive += changes[step]
        highest = max(highest, alive)
    return highest


def grain_of(items: Sequence[Item]) -> int:
    """The largest number of bytes of which every address is a multiple."""
    return math.gcd(*(item.align for item in items))


def rounded_up(value: int, grain: int) -> int:
    """The first multiple of `grain` that is no less than `value`."""
    return -(-value // grain) * grain


def end_of(items: Sequence[Item], addresses: dict[str, int], start: int) -> int:
    """First byte above all items that have an address."""
    return max((addresses[i.name] + i.size for i in items if i.name in addresses), default=start)


def in_separate_times(items: Sequence[Item]) -> list[list[Item]]:
    """The items in groups such that no two items of different groups are ever alive together."""
    groups: list[list[Item]] = []
    until = 0
    for item in sorted(items, key=lambda i: (i.first, i.last, i.name)):
        if not groups or item.first > until:
            groups.append([])
            until = item.last
        groups[-1].append(item)
        until = max(until, item.last)
    return groups
