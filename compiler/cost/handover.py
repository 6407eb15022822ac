"""What it takes until cores have handed each other what they keep of each other's results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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


def copies_of(arch: Arch, engine: str, one: Handover) -> tuple[tuple[int, ...], ...]:
    """The takers of each copy that hands `one` on: all at once where the engine reaches several,
    else one by one from the giver's neighbour on, so that givers do not meet at one taker."""
    if arch.copy_[engine].broadcast:
        return (one.takers,)
    away = sorted(one.takers, key=lambda taker: (taker - one.giver) % arch.core_count)
    return tuple((taker,) for taker in away)


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
    bytes: the copies of a core one after another, those of all cores at once, as far as the links
    between them allow."""
    engine = between_cores(arch)
    if engine is None or not handed:
        return 0.0
    copy, clock = arch.copy_[engine], arch.clock
    once = copy.startup.cycles(clock) + arch.memories.local.latency.cycles(clock)
    once += link_latency(arch, "local", "local")
    rate, busy, lanes = copy.bandwidth.at(clock), dict[int, float](), dict[_Lane, float]()
    for one in handed:
        size = item * math.prod(size for _, size in one.box)
        for takers in copies_of(arch, engine, one):
            busy[one.giver] = busy.get(one.giver, 0.0) + once + size / rate
            for lane, wide in _crossed(arch, one.giver, takers):
                lanes[lane] = lanes.get(lane, 0.0) + size / wide
    # First the takers say that they have room, at last the givers that all is there.
    return max(*busy.values(), *lanes.values(), 0) + 2 * arch.front_end.signal.cycles(clock)


_Lane = tuple[str, int, bool]
"""A link, the number of its instance, and whether what goes out has one of its own there."""


def _crossed(arch: Arch, giver: int, takers: Sequence[int]) -> Iterator[tuple[_Lane, float]]:
    """What a copy between local memories crosses, and the bytes that each carries in a cycle: it
    leaves by the giver's instance of a link and enters by the takers'."""
    for name, link in arch.links.items():
        if "local" not in link.from_ or "local" not in link.to:
            continue
        cores = {"chip": arch.core_count, "cluster": arch.cores, "core": 1}[link.scope]
        left, entered = giver // cores, {taker // cores for taker in takers}
        lanes = [(name, index, False) for index in sorted(entered)]
        if entered != {left}:
            lanes.append((name, left, link.duplex))
        rate = link.bandwidth.at(arch.clock)
        yield from ((lane, rate) for lane in lanes)
