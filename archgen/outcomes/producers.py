"""Who made what a command reads: the last one that wrote any of its bytes, in one run.

The one idea: each memory is a line of bytes that ends of commands paint and starts of commands look
at, in the order of time. An operand counts from its first to its last byte, gaps included.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simmodel.arch import Arch
from simmodel.isa import Claim
from simmodel.order import Timeline
from simmodel.places import Place, places

Ints = NDArray[np.int64]


@dataclass
class _Painted:
    """Who wrote the bytes of one memory last; -1: nobody."""

    starts: list[int] = field(default_factory=lambda: [0])
    owners: list[int] = field(default_factory=lambda: [-1])

    def paint(self, low: int, high: int, owner: int) -> None:
        """Bytes low .. high are of `owner`."""
        if low == high:
            return
        first = bisect_left(self.starts, low)
        last = bisect_right(self.starts, high)
        behind = self.owners[last - 1]
        self.starts[first:last] = [low, high]
        self.owners[first:last] = [owner, behind]

    def seen(self, low: int, high: int) -> set[int]:
        """Whose bytes low .. high are."""
        first, last = bisect_right(self.starts, low) - 1, bisect_left(self.starts, high)
        return {owner for owner in self.owners[first:last] if owner >= 0}


@dataclass(frozen=True)
class _Touch:
    """One operand of a site."""

    memories: tuple[_Painted, ...]
    lows: Ints
    """By occurrence."""
    size: int

    def span(self, turn: int) -> tuple[int, int]:
        """First byte and end in one occurrence."""
        low = int(self.lows[turn])
        return low, low + self.size


def producers(line: Timeline, arch: Arch, start: Ints, end: Ints) -> Ints:
    """For each occurrence, the one whose write of what it reads ended last; -1: it reads nothing
    that was written in the run.

    Args:
        line: the program's occurrences.
        arch: the machine that it ran on.
        start, end: of each occurrence, in cycles.
    """
    reads, writes = _touches(line, arch)
    count = len(line.site)
    who = np.tile(np.arange(count), 2)
    begins = np.repeat([True, False], count)
    time = np.concatenate([start, end])
    found = np.full(count, -1, np.int64)
    sites, turns, ends = line.site.tolist(), line.turn.tolist(), end.tolist()
    for event in np.lexsort((who, begins, time)).tolist():  # ends before starts
        one = int(who[event])
        site, turn = sites[one], turns[one]
        if begins[event]:
            made = {
                owner
                for touch in reads[site]
                for memory in touch.memories
                for owner in memory.seen(*touch.span(turn))
            }
            found[one] = max(made, key=lambda owner: (ends[owner], owner), default=-1)
            continue
        for touch in writes[site]:
            for memory in touch.memories:
                memory.paint(*touch.span(turn), one)
    return found


def _touches(line: Timeline, arch: Arch) -> tuple[list[list[_Touch]], list[list[_Touch]]]:
    """By site, what it reads and what it writes."""
    memories: defaultdict[Place, _Painted] = defaultdict(_Painted)
    reads: list[list[_Touch]] = []
    writes: list[list[_Touch]] = []
    for site, core in zip(line.sites, line.owners, strict=True):
        own: list[_Touch] = []
        if not isinstance(site.instruction, Claim):
            for operand, addresses in zip(site.operands, site.addresses, strict=True):
                low, high = operand.span
                spots = tuple(memories[spot] for spot in places(arch, operand, core))
                own.append(_Touch(spots, addresses + low, high - low))
        count = len(site.wide.reads()) if own else 0
        reads.append(own[:count])
        writes.append(own[count:])
    return reads, writes
