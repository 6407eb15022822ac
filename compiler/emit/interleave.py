"""Work of equal engines, in turns: each gets its next instruction before the queue of one is full.

    loop v0 8 { product vector }        loop v0 8 { product vector
    loop v1 8 { product vector1 }                   product vector1 }

The front end issues in stream order, so engines whose parts stood behind each other would wait for
one another's last instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

from simmodel.isa import Item, Loop, Sync
from simmodel.turns import renamed


def interleaved(streams: Sequence[Sequence[Item]]) -> list[Item]:
    """One stream of several, each of which keeps its order; none waits for another one of them."""
    if len(streams) == 1:
        return list(streams[0])
    ahead = [item for stream in streams for item in stream[: _syncs(stream)]]
    rest = [list(stream[_syncs(stream) :]) for stream in streams]
    made: list[Item] = []
    for place in range(max(map(len, rest))):
        items = [stream[place] for stream in rest if place < len(stream)]
        loops = [item for item in items if isinstance(item, Loop)]
        first = loops[0] if loops else None
        if first is not None and len(loops) == len(items) and _alike(loops):
            bodies = [
                [renamed(inner, loop.variable, first.variable) for inner in loop.body]
                for loop in loops
            ]
            made.append(Loop(first.variable, first.count, tuple(interleaved(bodies))))
        else:
            made += items
    return [*ahead, *made]


def _alike(loops: Sequence[Loop]) -> bool:
    return len({loop.count for loop in loops}) == 1


def _syncs(stream: Sequence[Item]) -> int:
    """What only waits or signals, before anything else."""
    return next((n for n, item in enumerate(stream) if not isinstance(item, Sync)), len(stream))
