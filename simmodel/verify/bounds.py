"""Range and alignment, for all iterations: of operands, buffers, constants and ports."""

from __future__ import annotations

import math
from collections.abc import Iterator

from simmodel.arch import Arch, Memory
from simmodel.dtype import SIZES
from simmodel.isa.contract import sound
from simmodel.order import Ints, Timeline
from simmodel.program import Port, Program
from simmodel.verify.finding import Finding, found_at


def size_of_memory(arch: Arch, role: str) -> int:
    """Bytes of one instance of the memory in `role`; 0 where there is none."""
    memory = arch.memories.get(role)
    return memory.size if memory is not None else 0


def operand_bounds(line: Timeline, arch: Arch) -> Iterator[Finding]:
    """Operands that leave their memory or are not at a multiple of their element size."""
    for site, core in zip(line.sites, line.owners, strict=True):
        for operand, addresses in zip(site.operands, site.addresses, strict=True):
            lowest, highest, whole = _extremes(addresses, operand.itemsize)
            low, high = lowest + operand.span[0], highest + operand.span[1]
            size = size_of_memory(arch, operand.memory)
            if low < 0 or high > size:
                message = f"bytes {low}..{high} of {operand.memory}, which has {size}"
                yield found_at(line.program, "range", message, core, site.instruction)
            steps = [s for n, s in zip(*operand.bytewise, strict=True) if n > 1]
            if not whole or any(s % operand.itemsize for s in steps):
                message = f"{operand.memory} address is no multiple of {operand.itemsize}"
                yield found_at(line.program, "alignment", message, core, site.instruction)


def _extremes(addresses: Ints, itemsize: int) -> tuple[int, int, bool]:
    """Lowest and highest address, and whether all are multiples of `itemsize`.

    Most sites occur once, and plain numbers are much faster than arrays of one.
    """
    if len(addresses) == 1:
        only = int(addresses[0])
        return only, only, only % itemsize == 0
    return int(addresses.min()), int(addresses.max()), not (addresses % itemsize).any()


def storage_bounds(program: Program, arch: Arch) -> Iterator[Finding]:
    """Buffers, constants and ports that leave their memory or break its alignment."""
    for buffer in program.buffers:
        size = size_of_memory(arch, buffer.memory)
        name = f"buffer {buffer.name!r} at {buffer.address}"
        if buffer.address < 0 or buffer.address + buffer.size > size:
            yield Finding("range", f"{name} of {buffer.size} bytes, {buffer.memory} has {size}")
        memory = arch.memories.get(buffer.memory)
        if isinstance(memory, Memory) and buffer.address % memory.alignment:
            yield Finding("alignment", f"{name} is no multiple of {memory.alignment}")
    dram = arch.memories.dram.size
    for constant in program.constants:
        if constant.address < 0 or constant.address + constant.data.nbytes > dram:
            yield Finding("range", f"constant {constant.name!r} leaves dram, which has {dram}")
    for port in (*program.inputs, *program.outputs):
        yield from _port(port, dram)


def _port(port: Port, dram: int) -> Iterator[Finding]:
    operand, name = port.operand, f"port {port.name!r}"
    if port.dtype not in SIZES:
        yield Finding("port", f"{name} has no known element type")
    if 0 in operand.shape and 0 in port.shape:
        return
    broken = tuple(sound(operand))
    yield from (Finding(rule, f"{name}: {message}") for rule, message in broken)
    if broken:
        return
    if math.prod(port.shape) != operand.elements:
        stored = f"is stored as {operand.shape}, expected as many elements"
        yield Finding("shape", f"{name} of shape {port.shape} {stored}")
    low, high = (operand.address.base + edge for edge in operand.span)
    if operand.memory != "dram" or operand.address.terms or operand.address.ring:
        yield Finding("port", f"{name} is no fixed place in dram")
    if low < 0 or high > dram:
        yield Finding("range", f"{name}: bytes {low}..{high} of dram, which has {dram}")
