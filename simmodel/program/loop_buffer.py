"""Loop buffer: which instructions a front end need not fetch again.

    loop_buffer 64 B, instructions of 16 B          fetched               in the buffer
      a                                             a
      loop t 3:  b  c                               b c                   b c  b c
      loop s 2:  d  e  f  g  h                      d e f g h  d e f g h

The one idea: if a loop's whole body fits, later iterations fetch nothing; if not, every iteration
fetches all of it, as the one before leaves only the end of the body in the buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from simmodel.arch.record import Arch
from simmodel.isa import Item, Loop
from simmodel.program.encoding import stream_bytes
from simmodel.program.expand import Expansion, Site

Flags = NDArray[np.bool_]
_FETCHED = np.zeros(1, np.bool_)


def at_hand(items: Sequence[Item], stream: Expansion, arch: Arch) -> Flags:
    """Whether each occurrence of a stream's sites, in program order, needs no fetch.

    Args:
        items: the stream, which `stream` is the expansion of.
        stream: its sites; of one that repeats, this is about its first turn only.
        arch: the machine.
    """
    size = arch.front_end.loop_buffer
    if size is None:
        return np.zeros(len(stream.order), np.bool_)
    return _flags(items, iter(stream.sites), arch, size)


def _flags(items: Sequence[Item], sites: Iterator[Site], arch: Arch, size: int) -> Flags:
    parts = [_FETCHED[:0]]
    for item in items:
        if not isinstance(item, Loop):
            next(sites)
            parts.append(_FETCHED)
            continue
        first, turns, body = _turns(item, sites, arch, size)
        others = np.ones_like(first) if stream_bytes(body, arch) <= size else first
        parts += [first, np.tile(others, turns - 1)]
    return np.concatenate(parts)


def _turns(
    loop: Loop, sites: Iterator[Site], arch: Arch, size: int
) -> tuple[Flags, int, Sequence[Item]]:
    """The first iteration of a loop, the number of iterations, and the loops; loops around a single
    instruction count as one, without the iterations that its site repeats."""
    inner, loops = loop.body, 1
    while len(inner) == 1 and isinstance(inner[0], Loop):
        inner, loops = inner[0].body, loops + 1
    if len(inner) != 1:
        return _flags(loop.body, sites, arch, size), loop.count, loop.body
    site = next(sites)
    walked = loops - len(site.repeats)
    around = site.loops[len(site.loops) - walked :]
    return _FETCHED, math.prod(count for _, count in around), inner
