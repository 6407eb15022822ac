"""What it takes until cores have handed each other what they keep of each other's results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.geometry.handover import Handover, handovers
from compiler.group import Group
from compiler.nest.bounds import Box
from simmodel.arch import Arch
from simmodel.dtype import size_of
from simmodel.isa.copy import link_latency

TOKENS = 2
"""That each core takes: what it hands on is there, and it has room for what others do."""


def between_cores(arch: Arch) -> str | None:
    """The engine by which cores hand each other parts of their results; None where none does, or
    cores have too few tokens for it beside those of their engines."""
    engine = arch.copy_engine("local", "local")
    if engine is None or TOKENS * arch.core_count > arch.front_end.tokens // 4:
        return None
    found = arch.copy_[engine]
    return engine if found.peer or found.broadcast else None


def passed_cycles(arch: Arch, group: Group, parts: tuple[Box, ...]) -> float:
    """Cycles at the end of a group until cores have what they keep of each other's results, when
    they have done their `parts`."""
    return sum(
        handover_cycles(arch, handovers(group, parts, name), size_of(group.tensors[name].dtype))
        for name in group.results
        if name in group.kept
    )


def handover_cycles(arch: Arch, handed: Sequence[Handover], item: int) -> float:
    """Cycles at the end of a group until all that is `handed` on is there, in elements of `item`
    bytes: the copies of a core one after another, those of all cores at once."""
    engine = between_cores(arch)
    if engine is None or not handed:
        return 0.0
    copy, clock = arch.copy_[engine], arch.clock
    once = copy.startup.cycles(clock) + arch.memories.local.latency.cycles(clock)
    once += link_latency(arch, "local", "local")
    rate, busy = copy.bandwidth.at(clock), dict[int, float]()
    for one in handed:
        size = item * math.prod(size for _, size in one.box)
        busy[one.giver] = busy.get(one.giver, 0.0) + once + size / rate
    # First the takers say that they have room, at last the givers that all is there.
    return max(busy.values()) + 2 * arch.front_end.signal.cycles(clock)
