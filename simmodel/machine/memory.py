"""Memories as resources: what an access to some bytes of a memory's instance goes through.

DRAM is one resource, and so is flash. An on-chip memory with interleaved banks is one too (per
direction where reads and writes have ports of their own), because neighbouring words lie in
different banks and any access of some length meets all of them. With blocked banks each bank is a
resource of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from simmodel.arch.memories import FarMemory, Memory
from simmodel.arch.record import Arch, Link
from simmodel.isa import Copy
from simmodel.isa.region import Operand
from simmodel.machine.flow import Resource, Usage
from simmodel.machine.queue import Clock
from simmodel.program.program import places
from simmodel.trace import BANDWIDTH, CONFLICT


class Ports:
    """One instance of a memory."""

    def __init__(self, env: Clock, name: str, memory: Memory | FarMemory, rate: float) -> None:
        self.banked = isinstance(memory, Memory) and memory.mapping == "blocked"
        self.bank_size = memory.size
        if isinstance(memory, Memory) and self.banked:
            self.bank_size = memory.bank_size
        if isinstance(memory, FarMemory):
            penalty = memory.conflict_penalty
            one = Resource(env, name, rate, BANDWIDTH, penalty, memory.channels)
            self._read = self._write = [one]
        elif memory.split_ports:
            self._read = _directed(env, f"{name}.read", memory, False)
            self._write = _directed(env, f"{name}.write", memory, True)
        else:
            self._read = self._write = _directed(env, name, memory, False)

    def through(self, write: bool, low: int, high: int) -> list[Resource]:
        """Resources that an access to bytes `low` up to `high` uses, in equal parts."""
        resources = self._write if write else self._read
        if not self.banked:
            return resources
        first = low // self.bank_size
        last = min(max(first, (high - 1) // self.bank_size), len(resources) - 1)
        return resources[min(first, last) : last + 1]


def _directed(env: Clock, name: str, memory: Memory, write: bool) -> list[Resource]:
    if memory.mapping == "interleaved":
        bandwidth = memory.bytes_per_cycle(write)
        return [Resource(env, name, bandwidth, CONFLICT, memory.conflict_penalty, memory.banks)]
    one = memory.port_bytes(write)
    return [
        Resource(env, f"{name}.bank{bank}", one, CONFLICT, memory.conflict_penalty)
        for bank in range(memory.banks)
    ]


class MemoryInstances:
    """All instances of all memories of the chip."""

    def __init__(self, env: Clock, arch: Arch) -> None:
        self._arch = arch
        self._instances: dict[tuple[str, int], int] = {}
        self._known: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
        """Instances by role and cores."""
        self._ports: list[Ports] = []
        for role in arch.memories.roles():
            memory = arch.memories.get(role)
            assert memory is not None
            for index in range(count := arch.instances(role)):
                self._instances[role, index] = len(self._ports)
                name = role if count == 1 else f"{role}{index}"
                self._ports.append(Ports(env, name, memory, arch.far_rates.get(role, 0.0)))

    def instances(self, operand: Operand, core: int) -> tuple[int, ...]:
        """Numbers of the instances that `operand` of an instruction of `core` lies in."""
        key = operand.memory, operand.cores or (core,)
        found = self._known.get(key)
        if found is None:
            found = tuple(self._instances[spot] for spot in places(self._arch, operand, core))
            self._known[key] = found
        return found

    def banked(self, operand: Operand, core: int) -> bool:
        """Whether the address of `operand` decides which resources it uses."""
        return any(self._ports[number].banked for number in self.instances(operand, core))

    def bank_size(self, operand: Operand, core: int) -> int:
        """Bytes in one bank of the memory of `operand`; in all, where banks are interleaved."""
        return self._ports[self.instances(operand, core)[0]].bank_size

    def resource_bytes(
        self, operand: Operand, core: int, write: bool, amount: float, address: int
    ) -> Usage:
        """Bytes through each resource when `amount` bytes of `operand` at `address` are moved."""
        low, high = operand.prototype.span
        usage: list[tuple[Resource, float]] = []
        for number in self.instances(operand, core):
            through = self._ports[number].through(write, address + low, address + high)
            usage += [(resource, amount / len(through)) for resource in through]
        return tuple(usage)


# Links: the buses and networks that copies between two sets of memories cross.

OUTWARD = {"accumulators": 0, "weights": 1, "local": 1, "shared": 2, "dram": 3, "flash": 3}
"""How far from the engines a memory is; copies to farther ones are stores."""


def is_store(copy: Copy) -> bool:
    """Whether a copy brings data away from the engines."""
    return OUTWARD[copy.dst.memory] > OUTWARD[copy.src.memory]


def crossed(arch: Arch, copy: Copy) -> tuple[str, ...]:
    """Names of the links between the memories of `copy`."""
    source, target = copy.src.memory, copy.dst.memory
    return tuple(n for n, link in arch.links.items() if source in link.from_ and target in link.to)


Crossing = tuple[int, int]
"""Number of a bus's instance, and whether it is crossed outward; of other links, their two ends.
Where both directions share a lane, that of one of them."""


def crossings(arch: Arch, name: str, copy: Copy, core: int) -> tuple[Mapping[Crossing, float], int]:
    """Where `copy`, issued by `core`, crosses link `name`, with the part of its bytes that crosses
    there, and the hops on its way: a broadcast crosses each lane once.

    What is stored leaves a bus through the instance of the core that it lies in, what is loaded
    enters through those of the cores that receive it; from core to core it does both.
    """
    link = arch.links[name]
    grid, hops = arch.grid(link), 0
    if grid is not None:
        far = OUTWARD["local"]
        found, hops = grid.crossed(*(
            None if OUTWARD[end.memory] > far else end.cores or (core,)
            for end in (copy.src, copy.dst)
        ))  # fmt: skip
    else:
        found = dict.fromkeys(_bus_crossings(arch, link, copy, core), 1.0)
    if link.duplex:
        return found, hops
    joined: dict[Crossing, float] = {}
    for (first, last), part in found.items():
        lane = (first, False) if grid is None else (min(first, last), max(first, last))
        joined[lane] = joined.get(lane, 0.0) + part
    return joined, hops


def _bus_crossings(arch: Arch, link: Link, copy: Copy, core: int) -> Iterator[Crossing]:
    size = arch.core_count // arch.scopes(link.scope)
    senders = dict.fromkeys(owner // size for owner in copy.src.cores or (core,))
    receivers = dict.fromkeys(owner // size for owner in copy.dst.cores or (core,))
    far = OUTWARD[copy.dst.memory] - OUTWARD[copy.src.memory]
    if far >= 0:
        yield from ((n, True) for n in senders if far or tuple(receivers) != (n,))
    if far <= 0:
        yield from ((n, False) for n in receivers)


def hop_latency(arch: Arch, copy: Copy, core: int) -> int:
    """Cycles of latency of all hops on the way of `copy`, issued by `core`."""
    return sum(
        arch.links[name].latency.cycles(arch.clock) * crossings(arch, name, copy, core)[1]
        for name in crossed(arch, copy)
        if arch.links[name].topology != "bus"  # a bus has none
    )


class Links:
    """All instances of all links, in both directions."""

    def __init__(self, env: Clock, arch: Arch) -> None:
        self._env, self._arch = env, arch
        self._lanes: dict[tuple[str, Crossing], Resource] = {}
        """Those that a copy has crossed."""

    def _lane(self, name: str, crossing: Crossing) -> Resource:
        if (name, crossing) not in self._lanes:
            link, (first, last) = self._arch.links[name], crossing
            label = f"link.{name}{'' if link.scope == 'chip' else first}"
            if link.topology != "bus":
                label = f"link.{name}.{first}-{last}"
            elif link.duplex:
                label += ".out" if last else ".in"
            rate = link.bandwidth.at(self._arch.clock)
            self._lanes[name, crossing] = Resource(self._env, label, rate, BANDWIDTH)
        return self._lanes[name, crossing]

    def lane_bytes(self, copy: Copy, core: int) -> Usage:
        """Bytes of one `copy` issued by `core` through each lane that it crosses."""
        return tuple(
            (self._lane(name, crossing), copy.source_bytes * part)
            for name in crossed(self._arch, copy)
            for crossing, part in crossings(self._arch, name, copy, core)[0].items()
        )
