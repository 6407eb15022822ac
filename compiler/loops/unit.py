"""What an engine of elements costs for instructions of one form, read off the machine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from compiler.loops.cover import Port, Unit
from simmodel.arch import Arch
from simmodel.encoding import typical_bytes
from simmodel.isa.base import granule

_ENDLESS = 1 << 62


class Held(NamedTuple):
    """An operand, as far as its cost does not depend on how it is walked."""

    role: str
    """Of the memory that it lies in."""
    item: int
    """Bytes of an element."""


def startup_of(arch: Arch, read: Collection[str] = ("local",), engine: str = "vector") -> int:
    """Cycles before an instruction that reads these memories moves its first operand."""
    memories = arch.memories.on_chip()
    latency = max((memories[role].latency.cycles(arch.clock) for role in read), default=0)
    own = arch.scalar.startup if engine == "scalar" else arch.vector.startup
    return own.cycles(arch.clock) + latency


def unit_of(
    arch: Arch, form: tuple[str, str], operands: Sequence[Held], engine: str = "vector",
    beside: int = 1,
) -> Unit:  # fmt: skip
    """What `engine` costs.

    Args:
        arch: the machine.
        form: name of a form, and its cost class.
        operands: what is written, then what is read.
        engine: vector or scalar.
        beside: engines that move as much at the same time.
    """
    rank, longest = arch.reach(form[0])
    widest = max(operand.item for operand in operands)
    lanes = 1.0 if engine == "scalar" else arch.vector.elements(widest)
    ports = tuple(
        _port(arch, each, beside, write=not number) for number, each in enumerate(operands)
    )
    start = startup_of(arch, {operand.role for operand in operands[1:]}, engine)
    earlier = _port(arch, operands[0], beside, write=False)
    fetch = _interval(arch, form[0], rank)
    return Unit(rank, longest or _ENDLESS, lanes, arch.factor(*form), start, fetch, ports, earlier)


def _port(arch: Arch, operand: Held, beside: int, *, write: bool) -> Port:
    memory = arch.memories.on_chip()[operand.role]
    way = operand.role, write and memory.split_ports
    grain = granule(arch, operand.role)
    if memory.mapping == "interleaved":
        return Port(way, operand.item, grain, memory.bytes_per_cycle(write) / beside)
    rate = memory.port_bytes(write) / beside
    return Port(way, operand.item, grain, rate, memory.bank_size, memory.banks)


def _interval(arch: Arch, form: str, rank: int) -> float:
    """Cycles that the front end takes to fetch an instruction of this form, of operands of `rank`,
    in each turn of a loop; issuing one never takes longer than its work."""
    front, size = arch.front_end, typical_bytes(arch, form, rank)
    kept = size <= (front.loop_buffer or 0)
    fetch = None if kept else front.fetch_bandwidth
    return 0.0 if fetch is None else size / fetch.at(arch.clock)
