"""Relocation: inputs and outputs at addresses of the caller's choice.

    port           base   bytes
    x              0x0    12288          dram[0x40 + 64*t] is of x, and moves with it
    y, y_before    0x3000 4096           these share one place

The one idea: an address in DRAM belongs to the port in whose bytes its base lies. All that it
reaches in any iteration of its loops lies there as well, so moving a port adds one number to these
bases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from simmodel.isa.base import instructions
from simmodel.isa.region import Operand
from simmodel.program.program import Port, Program
from simmodel.program.substitute import map_operands

MEMORY, ALIGNMENT = "dram", 64
Span = tuple[int, int]
"""First byte, and one past the last."""


class PlaceError(ValueError):
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
    spans = _port_spans(program)
    areas = _areas(spans.values())
    crossed = [
        reach
        for operand, reach in _dram_accesses(program)
        if not _within(reach, _area(operand.address.base, areas))
    ]
    stuck = {area for area in areas if any(_meet(each, area) for each in crossed)}
    return tuple(
        PortBytes(name, MEMORY, low, high - low, _area(low, areas) not in stuck)
        for name, (low, high) in spans.items()
    )


def relocate(program: Program, places: Mapping[str, int]) -> Program:
    """`program` with ports at these addresses in DRAM; ports that share a place still do.

    Raises:
        PlaceError: there is no such port, it cannot be moved, or it would lie where others do.
    """
    if not places:
        return program
    ports = {port.name: port for port in ports_of(program)}
    sizes = {p.name: p.operand.itemsize for p in (*program.inputs, *program.outputs)}
    areas = _areas(_port_spans(program).values())
    wrong: list[str] = []
    moves: dict[Span, int] = {}
    for name, at in places.items():
        port = ports.get(name)
        if port is None:
            wrong.append(f"there is no port {name!r}; there are {', '.join(ports) or 'none'}")
        elif at < 0:
            wrong.append(f"{name}: expected an address from 0 on, found {at}")
        elif at % sizes[name]:
            wrong.append(f"{name}: expected a multiple of {sizes[name]}, the bytes of an element")
        elif not port.movable:
            wrong.append(f"{name} stays where it is: a command reaches from its bytes to others")
        else:
            area, by = _area(port.base, areas), at - port.base
            if moves.setdefault(area, by) != by:
                others = " and ".join(n for n, p in ports.items() if _area(p.base, areas) == area)
                wrong.append(f"{name}: {others} lie in one place, which is asked to be in two")
    wrong = wrong or list(_meetings(program, areas, moves))
    if wrong:
        raise PlaceError("\n".join(wrong))
    return _move_ports(program, moves)


def _port_spans(program: Program) -> dict[str, Span]:
    """The bytes of each port."""
    return {port.name: port.operand.bounds for port in (*program.inputs, *program.outputs)}


def _areas(spans: Iterable[Span]) -> list[Span]:
    """Areas that move together: overlapping ports."""
    found: list[Span] = []
    for low, high in sorted(spans):
        if found and low < found[-1][1]:
            low, before = found.pop()
            high = max(high, before)
        found.append((low, high))
    return found


def _area(base: int, areas: Iterable[Span]) -> Span:
    """The area of an address; an empty one if there is none."""
    return next((area for area in areas if area[0] <= base < area[1]), (base, base))


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _within(one: Span, area: Span) -> bool:
    return area[0] <= one[0] and one[1] <= area[1]


def _dram_accesses(program: Program) -> Iterator[tuple[Operand, Span]]:
    """Every operand in DRAM, with the bytes that it covers over all iterations; registers have the
    maximum of their lengths."""
    for stream in program.cores:
        for instruction, loops in instructions(stream):
            for operand in instruction.operands():
                if operand.memory == MEMORY:
                    yield operand, operand.reach(dict(loops))


def _meetings(program: Program, areas: Iterable[Span], moves: Mapping[Span, int]) -> Iterator[str]:
    """Where a placed port would overlap something else."""
    spans = _port_spans(program)
    names = {
        area: ", ".join(n for n, span in spans.items() if _within(span, area)) for area in areas
    }
    there = [(name, _by(area, moves.get(area, 0))) for area, name in names.items()]
    there += [
        (f"constant {each.name}", (each.address, each.address + each.data.nbytes))
        for each in program.constants
    ]
    there += [
        ("what lies between layers", reach)
        for operand, reach in _dram_accesses(program)
        if _area(operand.address.base, names) not in names
    ]
    free = -(-max(high for _, (_, high) in there) // ALIGNMENT) * ALIGNMENT
    for area, by in moves.items():
        now, name = _by(area, by), names[area]
        for whose, span in there:
            if whose != name and _meet(span, now):
                yield (
                    f"{name}: bytes {_span_text(now)} are those of {whose}, {_span_text(span)}; "
                    f"all from {free:#x} on are free"
                )
                break


def _by(span: Span, by: int) -> Span:
    return span[0] + by, span[1] + by


def _span_text(span: Span) -> str:
    return f"{span[0]:#x} .. {span[1]:#x}"


def _move_ports(program: Program, moves: Mapping[Span, int]) -> Program:
    def by(memory: str, base: int) -> int:
        own = (by for (low, end), by in moves.items() if memory == MEMORY and low <= base < end)
        return next(own, 0)

    def operand(each: Operand) -> Operand:
        more = by(each.memory, each.address.base)
        return replace(each, address=each.address.plus(more)) if more else each

    def ports(several: Iterable[Port]) -> tuple[Port, ...]:
        return tuple(replace(each, operand=operand(each.operand)) for each in several)

    return replace(
        program,
        cores=tuple(
            tuple(map_operands(item, operand) for item in stream) for stream in program.cores
        ),
        buffers=tuple(
            replace(each, address=each.address + by(each.memory, each.address))
            for each in program.buffers
        ),
        inputs=ports(program.inputs),
        outputs=ports(program.outputs),
    )
