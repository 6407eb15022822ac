"""What cores hand to each other of a tensor that stays in slices: what is kept beyond what is made.

2 cores, rows 0:16      core 0 makes 0:8, keeps 0:9       core 1 makes 8:16, keeps 7:16
                        core 1 hands row 8 to core 0      core 0 hands row 7 to core 1

Where all keep all of it, each hands on all that it has made:

2 cores, channels 0:64  core 0 makes 0:32, keeps 0:64     core 1 makes 32:64, keeps 0:64
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from compiler.geometry.walk import Walker
from compiler.group import Group
from compiler.nest.bounds import Box, empty


@dataclass(frozen=True)
class Handover:
    """One part of a tensor, from the core that makes it to those that keep it as well, all
    at the same place of their slices."""

    giver: int
    takers: tuple[int, ...]
    box: Box


def handovers(group: Group, parts: tuple[Box, ...], name: str) -> tuple[Handover, ...]:
    """What is handed on of the result `name`, which stays, when cores have done their `parts` of
    the group's results; by giver."""
    kept = group.kept[name]
    if not kept.passed:
        return ()
    walker = Walker(group, frozenset())
    return _between(tuple(walker.share(name, part) for part in parts), kept.slices)


@lru_cache(1024)
def _between(shares: tuple[Box, ...], slices: tuple[Box, ...]) -> tuple[Handover, ...]:
    found: dict[tuple[int, Box, tuple[int, ...]], tuple[int, ...]] = {}
    for giver, share in enumerate(shares):
        for taker, kept in enumerate(slices):
            box = _common(share, kept)
            if giver != taker and not empty(box):
                key = giver, box, tuple(start for start, _ in kept)
                found[key] = (*found.get(key, ()), taker)
    return tuple(Handover(giver, takers, box) for (giver, box, _), takers in found.items())


def _common(a: Box, b: Box) -> Box:
    """What lies in both."""
    spans = ((max(s, t), min(s + n, t + m)) for (s, n), (t, m) in zip(a, b, strict=True))
    return tuple((low, max(0, end - low)) for low, end in spans)
