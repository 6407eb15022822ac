"""Links: the buses and networks that copies between two sets of memories cross."""

from __future__ import annotations

from simmodel.arch import Arch, Link
from simmodel.isa import Copy
from simmodel.machine.clock import Clock
from simmodel.machine.flow import Resource, Usage
from simmodel.trace import BANDWIDTH

OUTWARD = {"accumulators": 0, "weights": 1, "local": 1, "shared": 2, "dram": 3}
"""How far from the engines a memory is; copies to farther ones are stores."""


def is_store(copy: Copy) -> bool:
    """Whether a copy brings data away from the engines."""
    return OUTWARD[copy.dst.memory] > OUTWARD[copy.src.memory]


def crossed(arch: Arch, copy: Copy) -> tuple[str, ...]:
    """Names of the links between the memories of `copy`."""
    source, target = copy.src.memory, copy.dst.memory
    return tuple(n for n, link in arch.links.items() if source in link.from_ and target in link.to)


Crossing = tuple[int, bool]
"""Number of a link's instance, and whether it is crossed outward."""


def crossings(arch: Arch, name: str, copy: Copy, core: int) -> tuple[Crossing, ...]:
    """Where `copy`, issued by `core`, crosses link `name`: a broadcast crosses each lane once.

    What is stored leaves through the instance of the core that it lies in, what is loaded enters
    through those of the cores that receive it; from core to core it does both.
    """
    outward = is_store(copy)
    size = {"chip": arch.core_count, "cluster": arch.cores, "core": 1}[arch.links[name].scope]
    senders = dict.fromkeys(owner // size for owner in copy.src.cores or (core,))
    receivers = dict.fromkeys(owner // size for owner in copy.dst.cores or (core,))
    if outward:
        return tuple((index, True) for index in senders)
    entered = tuple((index, False) for index in receivers)
    if OUTWARD[copy.dst.memory] < OUTWARD[copy.src.memory]:
        return entered
    left = tuple((index, True) for index in senders if tuple(receivers) != (index,))
    return (*left, *entered)


class Links:
    """All instances of all links, in both directions."""

    def __init__(self, env: Clock, arch: Arch) -> None:
        self._env = env
        self._arch = arch
        self._lanes: dict[tuple[str, int, bool], Resource] = {}
        for name, link in arch.links.items():
            for index in range(self._count(link)):
                self._add(name, link, index)

    def _count(self, link: Link) -> int:
        counts = {"chip": 1, "cluster": self._arch.clusters, "core": self._arch.core_count}
        return counts[link.scope]

    def _add(self, name: str, link: Link, index: int) -> None:
        rate = link.bandwidth.at(self._arch.clock)
        label = f"link.{name}" if link.scope == "chip" else f"link.{name}{index}"
        if not link.duplex:
            both = Resource(self._env, label, rate, BANDWIDTH)
            self._lanes[name, index, False] = self._lanes[name, index, True] = both
            return
        for outward, suffix in ((False, "in"), (True, "out")):
            self._lanes[name, index, outward] = Resource(
                self._env, f"{label}.{suffix}", rate, BANDWIDTH
            )

    def moved(self, copy: Copy, core: int) -> Usage:
        """Bytes of one `copy` issued by `core` through each lane that it crosses."""
        lanes = {
            self._lanes[name, index, outward]: float(copy.moved)
            for name in crossed(self._arch, copy)
            for index, outward in crossings(self._arch, name, copy, core)
        }
        return tuple(lanes.items())
