"""Relocation: inputs and outputs at addresses of the caller's choice.

    port           base   bytes
    x              0x0    12288          dram[0x40 + 64*t] is of x, and moves with it
    y, y_before    0x3000 4096           these share one place

The one idea: an address in DRAM belongs to the port in whose bytes its base lies. All that it
reaches in any iteration of its loops lies there as well, so moving a port adds one number to these
bases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from simmodel.errors import UserError
from simmodel.isa.base import instructions
from simmodel.isa.region import Operand
from simmodel.program.program import Program
from simmodel.program.substitute import map_operands

MEMORY, ALIGNMENT = "dram", 64
Span = tuple[int, int]
"""First byte, and one past the last."""


class PlaceError(UserError, ValueError):
    """Ports that cannot be placed as asked; a line for each reason."""


@dataclass(frozen=True)
class PortBytes:
    """Bytes of a port in DRAM."""

    name: str
    memory: str
    base: int
    size: int
    movable: bool
    """Whether no command accesses them together with other bytes."""


def ports_of(program: Program) -> tuple[PortBytes, ...]:
    """Bytes of inputs and outputs, in their order; those of one name once."""
    areas = _areas(program)
    ports = {port.name: port.operand for port in (*program.inputs, *program.outputs)}
    stuck = {
        area
        for base, (low, high) in _dram_accesses(program)
        for own in [_area(base, areas.values())]
        if low < own[0] or own[1] < high
        for area in areas.values()
        if _meet(area, (low, high))
    }
    return tuple(
        PortBytes(name, each.memory, low, high - low, name in areas and areas[name] not in stuck)
        for name, each in ports.items()
        for low, high in (each.bounds,)
    )


def relocate(program: Program, places: Mapping[str, int]) -> Program:
    """`program` with ports at these addresses in DRAM; ports that share a place still do.

    Raises:
        PlaceError: there is no such port, it cannot be moved, or it would lie where others do.
    """
    if not places:
        return program
    ports, areas = {port.name: port for port in ports_of(program)}, _areas(program)
    sizes = {p.name: p.operand.itemsize for p in (*program.inputs, *program.outputs)}
    wrong: list[str] = []
    moves: dict[Span, int] = {}
    for name, at in places.items():
        if name not in ports:
            wrong.append(f"there is no port {name!r}; there are {', '.join(ports) or 'none'}")
        elif at < 0:
            wrong.append(f"{name}: expected an address from 0 on, found {at}")
        elif at % sizes[name]:
            wrong.append(f"{name}: expected a multiple of {sizes[name]}, the bytes of an element")
        elif not ports[name].movable:
            wrong.append(f"{name} stays where it is: a command reaches from its bytes to others")
        elif moves.setdefault(areas[name], at - ports[name].base) != at - ports[name].base:
            others = " and ".join(n for n, area in areas.items() if area == areas[name])
            wrong.append(f"{name}: {others} lie in one place, which is asked to be in two")
    wrong = wrong or list(_meetings(program, areas, moves))
    if wrong:
        raise PlaceError("\n".join(wrong))
    return _move_ports(program, moves)


def _areas(program: Program) -> dict[str, Span]:
    """By port in DRAM the area that moves with it: its bytes, and those of ports that overlap
    them."""
    both = (*program.inputs, *program.outputs)
    ports = {each.name: each.operand.bounds for each in both if each.operand.memory == MEMORY}
    found: list[Span] = []
    for low, high in sorted(ports.values()):
        if found and low < found[-1][1]:
            low, before = found.pop()
            high = max(high, before)
        found.append((low, high))
    return {name: _area(low, found) for name, (low, _) in ports.items()}


def _area(base: int, areas: Collection[Span]) -> Span:
    """The area of an address; an empty one if there is none."""
    return next((area for area in areas if area[0] <= base < area[1]), (base, base))


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _dram_accesses(program: Program) -> Iterator[tuple[int, Span]]:
    """The base of every operand in DRAM, and the bytes that it covers over all iterations;
    registers have the maximum of their lengths."""
    for stream in program.cores:
        for instruction, loops in instructions(stream):
            for operand in instruction.operands():
                if operand.memory == MEMORY:
                    yield operand.address.base, operand.reach(dict(loops))


def _meetings(
    program: Program, areas: Mapping[str, Span], moves: Mapping[Span, int]
) -> Iterator[str]:
    """Where a placed port would overlap something else."""
    names = {a: ", ".join(n for n, own in areas.items() if own == a) for a in areas.values()}
    placed = {
        name: (low + moves.get((low, high), 0), high + moves.get((low, high), 0))
        for (low, high), name in names.items()
    }
    there = [*placed.items()]
    there += [
        (f"constant {each.name}", (each.address, each.address + each.data.nbytes))
        for each in program.constants
        if each.memory == MEMORY
    ]
    there += [
        ("what lies between layers", reach)
        for base, reach in _dram_accesses(program)
        if _area(base, names) not in names
    ]
    free = -(-max(high for _, (_, high) in there) // ALIGNMENT) * ALIGNMENT
    for name in map(names.__getitem__, moves):
        now = placed[name]
        for whose, span in there:
            if whose != name and _meet(span, now):
                yield (
                    f"{name}: bytes {_span_text(now)} are those of {whose}, {_span_text(span)}; "
                    f"all from {free:#x} on are free"
                )
                break


def _span_text(span: Span) -> str:
    return f"{span[0]:#x} .. {span[1]:#x}"


def _move_ports(program: Program, moves: Mapping[Span, int]) -> Program:
    def by(memory: str, base: int) -> int:
        return moves.get(_area(base, moves), 0) if memory == MEMORY else 0

    def operand(each: Operand) -> Operand:
        more = by(each.memory, each.address.base)
        return replace(each, address=each.address.plus(more)) if more else each

    inputs, outputs = (
        tuple(replace(each, operand=operand(each.operand)) for each in ports)
        for ports in (program.inputs, program.outputs)
    )
    cores = tuple(tuple(map_operands(item, operand) for item in stream) for stream in program.cores)
    buffers = tuple(
        replace(each, address=each.address + by(each.memory, each.address))
        for each in program.buffers
    )
    return replace(program, cores=cores, buffers=buffers, inputs=inputs, outputs=outputs)
