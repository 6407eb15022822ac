"""How fast a front end issues: the slower of issue width and instruction fetch, word by word.

The one idea: what a word takes is known before the run, as whether it has to be fetched depends on
the loops around it alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from simmodel.arch import Arch
from simmodel.encoding import fetched
from simmodel.expand import Expansion
from simmodel.isa import Item
from simmodel.loop_buffer import at_hand

_EXACT = 10**6
"""Largest denominator of the cycles that fetching a byte takes."""


@dataclass(frozen=True)
class Pace:
    """From the issue of a word, as far as it goes up to an instruction, to that of the next."""

    first: list[int]
    """Ticks, of every occurrence in program order; of bursts, from the first item on."""
    others: list[int]
    """Of each site, ticks from one item of a burst to the next behind that."""
    per_cycle: int
    """Ticks a cycle."""


def pace(arch: Arch, items: Sequence[Item], stream: Expansion, beside: Sequence[bool]) -> Pace:
    """The pace of one core's stream.

    Args:
        arch: the machine.
        items: the stream.
        stream: its sites and their order.
        beside: of each site, whether it is in the word of the one before.
    """
    front = arch.front_end
    width = Fraction(1, front.issue_width)
    if front.fetch_bandwidth is None:
        return Pace([1] * len(stream.order), [1] * len(stream.sites), front.issue_width)
    each = Fraction(1 / front.fetch_bandwidth.at(arch.clock)).limit_denominator(_EXACT)
    sizes = fetched(arch, stream.sites, beside)
    waits = [max(width, size * each) for size in sizes]
    per_cycle = math.lcm(*{wait.denominator for wait in (width, *waits)})
    ticks = np.array([int(wait * per_cycle) for wait in waits], np.int64)
    least = int(width * per_cycle)
    first = np.where(at_hand(items, stream, arch), least, ticks[stream.order])
    held = np.array(sizes) <= (front.loop_buffer or 0)
    others = np.where(held, least, ticks)
    return Pace(first.tolist(), others.tolist(), per_cycle)
