"""Cover: which of a nest's loops one instruction walks, and which are loops around it.

    sum over 49 rows of 512 channels   512 x ...     on an engine of one dimension
        walks the rows       512 instructions of 4 vectors
        walks the channels   49 times 2 instructions of 16 vectors, each adds to the partial sum

Every cover is priced by the instruction's own cycles: start-up, then the longer of its vectors and
its operands' traffic. The fastest is taken, of equal ones that with the fewest instructions.
`collapse` of `compiler.target.loops.split` orders the loops for this.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from compiler.target.loops.split import Loops, StridedLoop
from compiler.target.tracking import once
from simmodel.arch.record import Arch
from simmodel.isa.base import granule
from simmodel.isa.vector import row_of
from simmodel.program.encoding import typical_bytes


class OperandPort(NamedTuple):
    """Transfer of an operand to the engine."""

    way: tuple[str, bool]
    """A memory, and whether its write ports are separate: operands of one port share its rate."""
    item: int
    """Bytes of an element."""
    grain: int
    """Least bytes moved per contiguous run."""
    rate: float
    """Bytes per cycle; of one bank in memory mapped in blocks."""
    bank: int = 0
    """Bytes of a bank where memory is mapped in blocks; else 0."""
    banks: int = 1


class Unit(NamedTuple):
    """Cycles of instructions of one form, with operands of given types in given memories."""

    rank: int
    longest: int
    lanes: float
    factor: float
    """Cycles per vector of lanes."""
    startup: int
    interval: float
    """Cycles from one issue to the next."""
    ports: tuple[OperandPort, ...]
    """Of the result and of each operand read."""
    earlier: OperandPort
    """Of the previous result, if a piece of a reduction adds to it."""


class ReductionKind(NamedTuple):
    """Whether and how the form reduces."""

    reduces: bool = False
    """Whether loops that do not move the result are reduced."""
    joins: bool = True
    """Whether a piece of a reduction may add to the pieces before it."""


PLAIN = ReductionKind()


class CoverProblem(NamedTuple):
    """Input of the search for covers."""

    unit: Unit
    loops: Loops
    kind: ReductionKind = PLAIN


@dataclass(frozen=True)
class Cover:
    """One cover, with its cost."""

    inside: tuple[int, ...]
    """Loops that an instruction walks, slowest first."""
    size: int
    """Positions of the innermost of them per instruction."""
    cycles: float
    """Engine cycles of all instructions."""
    count: int
    """Instructions issued, all iterations counted."""
    words: int
    """Instructions in the program, each once."""
    issued: float
    """Cycles of the front end for them."""
    rest: Cover | None = None
    """Cover of the remainder of the innermost loop."""

    @property
    def rank(self) -> tuple[float, int, int]:
        return max(self.cycles, self.issued), self.count, self.words


@lru_cache(maxsize=1 << 16)
def cheapest(unit: Unit, loops: Loops, kind: ReductionKind = PLAIN) -> Cover:
    """The fastest of `covers`; of several the first.

    Raises ValueError where a reduction does not fit into one instruction and may not be cut.
    """
    found = min(covers(unit, loops, kind), key=lambda cover: cover.rank, default=None)
    if found is None:
        raise ValueError(f"no instruction reduces all of {loops}, and none joins the pieces")
    return found


def covers(unit: Unit, loops: Loops, kind: ReductionKind = PLAIN) -> Iterator[Cover]:
    """All covers: every loop innermost in turn, every choice of the slower ones that fits, its row
    cut in every way. The fastest loop comes first."""
    moving = [n for n, axis in enumerate(loops) if axis.extent > 1]
    if not moving:
        yield _cover(unit, loops, (), 1, kind)
        return
    for place in range(len(moving) - 1, -1, -1):
        last, slower = moving[place], moving[:place]
        for spare in (False, True)[: unit.rank]:
            room = min(unit.rank - 1 - spare, place)
            for others in combinations(reversed(slower), room):
                inside = (*reversed(others), last)
                yield from _cut_covers(unit, loops, inside, kind, spare=spare)


def shown(cover: Cover, loops: Loops) -> str:
    """A way in words: loops around an instruction, what it walks in brackets, then the rest.

    49 x 2 x [256]            98 instructions of 256 elements
    3 x [4 x 256] + [4 x 232]
    """
    sizes = [axis.extent for axis in loops]
    around = [n for n, size in enumerate(sizes) if size > 1 and n not in cover.inside]
    turns, walked = [sizes[n] for n in around], [sizes[n] for n in cover.inside]
    if cover.inside:
        turns, walked = [*turns, walked[-1] // cover.size], [*walked[:-1], cover.size]
    parts = [*(str(n) for n in turns if n > 1), f"[{' x '.join(map(str, walked)) or 1}]"]
    text = " x ".join(parts)
    if cover.rest is None:
        return text
    last = cover.inside[-1]
    left = loops[last]._replace(extent=sizes[last] % cover.size)
    return f"{text} + {shown(cover.rest, (*loops[:last], left, *loops[last + 1 :]))}"


def _cut_covers(
    unit: Unit, loops: Loops, inside: tuple[int, ...], kind: ReductionKind, *, spare: bool
) -> Iterator[Cover]:
    last = loops[inside[-1]]
    if spare and last.extent <= unit.longest:
        return
    for size in dict.fromkeys(cuts(last.extent, unit.longest, last.grain, spare=spare)):
        if _legal(loops, inside, size, kind) and not (size <= unit.longest and spare):
            yield _cover(unit, loops, inside, size, kind)


def _legal(loops: Loops, inside: tuple[int, ...], size: int, kind: ReductionKind) -> bool:
    """Whether an instruction may walk these loops, the innermost in pieces of `size`."""
    last = inside[-1]
    for number, axis in enumerate(loops):
        cut = size < axis.extent if number == last else number not in inside and axis.extent > 1
        if cut and (axis.grain > 1 and number != last):
            return False
        if cut and kind.reduces and not axis.steps[0] and not kind.joins:
            return False
    if len(inside) < 2:
        return True
    # What does not follow on only because of a loop in between is no row of its own.
    outer, inner = loops[inside[-2]], loops[last]
    return inner.short or any(s != size * t for s, t in zip(outer.steps, inner.steps, strict=True))


def _cover(
    unit: Unit, loops: Loops, inside: tuple[int, ...], size: int, kind: ReductionKind
) -> Cover:
    count = firsts = words = 1
    rest = None
    for number, axis in enumerate(loops):
        turns = axis.extent
        if inside and number == inside[-1]:
            turns, left = divmod(axis.extent, size)
            if left:
                part = (*loops[:number], axis._replace(extent=left), *loops[number + 1 :])
                rest = cheapest(unit, part, kind)
        elif number in inside:
            continue
        count *= turns
        reduced = kind.reduces and not axis.steps[0]
        firsts *= 1 if reduced else turns
        words *= 2 if reduced and turns > 1 else 1
    sizes = [(loops[n].extent, loops[n]) for n in inside[:-1]]
    sizes += [(size, loops[inside[-1]])] if inside else []
    cycles = firsts * _instruction_cycles(unit, sizes, joins=False)
    if count > firsts:
        cycles += (count - firsts) * _instruction_cycles(unit, sizes, joins=True)
    if rest is not None:
        cycles, count = cycles + rest.cycles, count + rest.count
        words += rest.words
    return Cover(inside, size, cycles, count, words, count * unit.interval, rest)


def _instruction_cycles(unit: Unit, sizes: list[tuple[int, StridedLoop]], *, joins: bool) -> float:
    """Cycles of one instruction; with `joins` it reads its result as well."""
    rows = 1
    for extent, _ in sizes[:-1]:
        rows *= extent
    inner = sizes[-1][0] if sizes else 1
    row = row_of(inner, unit.longest)
    vectors = rows * (inner // row) * math.ceil(row / unit.lanes)
    return unit.startup + max(
        math.ceil(vectors * unit.factor), memory_cycles(unit, sizes, joins=joins)
    )


def memory_cycles(unit: Unit, sizes: list[tuple[int, StridedLoop]], *, joins: bool = False) -> int:
    """Cycles of the memories for the operands, over so many positions of each loop."""
    ways: dict[tuple[str, bool], float] = {}
    moving = [*enumerate(unit.ports), *([(0, unit.earlier)] if joins else [])]
    for number, port in moving:
        cycles = _carried(port, [(n, abs(axis.steps[number])) for n, axis in sizes])
        if port.bank:
            ways[port.way] = max(ways.get(port.way, 0.0), cycles)
        else:
            ways[port.way] = ways.get(port.way, 0.0) + cycles
    return math.ceil(max(ways.values()) - 1e-6)


def _carried(port: OperandPort, dims: list[tuple[int, int]]) -> float:
    """Cycles for one operand alone: whole grains for each contiguous run."""
    run, runs, span = port.item, 1, port.item
    for extent, step in sorted((d for d in dims if d[1] and d[0] > 1), key=lambda d: d[1]):
        span += (extent - 1) * step
        if step == run and runs == 1:
            run *= extent
        else:
            runs *= extent
    moved = runs * -(-run // port.grain) * port.grain
    if not port.bank:
        return moved / port.rate
    return moved / (port.rate * min(port.banks, -(-span // port.bank)))


def cuts(extent: int, longest: int, grain: int, *, spare: bool) -> Iterator[int]:
    """Sizes of the pieces into which a row of `extent` may be cut, which begin at multiples of
    `grain`; an instruction has `longest` elements along its innermost dimension, and the engine may
    have a dimension to `spare`, to walk a piece as several rows."""
    if extent <= longest:
        yield extent
        return
    most = longest // grain * grain
    if spare:
        yield extent
        yield extent // most * most
    yield most
    even = -(-extent // most)
    if extent % even == 0 and extent // even % grain == 0:
        yield extent // even


# What an engine of elements costs for instructions of one form, read off the machine.

_ENDLESS = 1 << 62


class StoredOperand(NamedTuple):
    """An operand's facts that do not depend on the cover."""

    role: str
    """Of the memory that it lies in."""
    item: int
    """Bytes of an element."""


def startup_of(
    arch: Arch, read: Collection[str] = ("local",), engine: str = "vector", form: str = ""
) -> int:
    """Cycles before the first operand moves of an instruction that reads these memories."""
    memories = arch.memories.on_chip()
    latency = max((memories[role].latency.cycles(arch.clock) for role in read), default=0)
    scalar = arch.scalar.startup.cycles(arch.clock)
    return (scalar if engine == "scalar" else arch.vector_startup(form, engine)) + latency


def unit_of(
    arch: Arch, form: tuple[str, str], operands: Sequence[StoredOperand], engine: str = "vector",
    beside: int = 1,
) -> Unit:  # fmt: skip
    """Cost of a `form`, with its cost class, on an `engine` of vectors or scalars, of which so many
    move as much `beside` each other; of `operands`, the first is written."""
    asked = form, tuple(operands), engine, beside
    return once("unit", asked, arch, lambda seen: _unit_of(seen, *asked))


def _unit_of(
    arch: Arch, form: tuple[str, str], operands: Sequence[StoredOperand], engine: str, beside: int
) -> Unit:
    rank, longest = arch.reach(form[0], engine)
    widest = max(operand.item for operand in operands)
    lanes = 1.0 if engine == "scalar" else arch.lane_engine(engine).elements(widest)
    ports = tuple(
        _operand_port(arch, each, beside, write=not number) for number, each in enumerate(operands)
    )
    start = startup_of(arch, {operand.role for operand in operands[1:]}, engine, form[0])
    earlier = _operand_port(arch, operands[0], beside, write=False)
    # Each turn of a loop is fetched; issuing one never takes longer than its work.
    front, size = arch.front_end, typical_bytes(arch, form[0], rank)
    fetch = None if size <= (front.loop_buffer or 0) else front.fetch_bandwidth
    every = 0.0 if fetch is None else size / fetch.at(arch.clock)
    factor = arch.factor(*form, engine)
    return Unit(rank, longest or _ENDLESS, lanes, factor, start, every, ports, earlier)


def _operand_port(arch: Arch, operand: StoredOperand, beside: int, *, write: bool) -> OperandPort:
    memory = arch.memories.on_chip()[operand.role]
    way = operand.role, write and memory.split_ports
    grain = granule(arch, operand.role)
    if memory.mapping == "interleaved":
        return OperandPort(way, operand.item, grain, memory.bytes_per_cycle(write) / beside)
    rate = memory.port_bytes(write) / beside
    return OperandPort(way, operand.item, grain, rate, memory.bank_size, memory.banks)
