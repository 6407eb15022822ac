"""Area of what fetches, keeps order and issues.

The one idea: everything that waits is held in registers: fetched words, entries of queues, counts
of semaphores; what makes sure of order compares operands. Loops are kept in a small memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from archgen.energy.ranges import Range
from archgen.energy.sources import Source
from archgen.energy.sram import Sram
from archgen.energy.table import Figures
from archgen.energy.terms import Logic, Term
from simmodel.arch import Arch
from simmodel.encoding import typical_bytes
from simmodel.units import show_bytes

_WHERE = ("clock", "cores", "clusters")
_OPERANDS = 3


def instruction_bytes(arch: Arch) -> float:
    """Bytes of one instruction as fetched and as held in queues, its share of a full word where
    words have a size of their own; of a packing with commands of several sizes, those of an
    addition in all dimensions that the vector engine walks."""
    size = typical_bytes(arch, "vector.binary.add", arch.vector.rank)
    return size if arch.front_end.instruction_bytes is None else size / arch.front_end.bundle


def front_end_terms(arch: Arch, figures: Figures, source: Source, logic: Logic) -> Iterator[Term]:
    """The front ends of all cores."""
    front, cores, known = arch.front_end, arch.core_count, figures.area.front_end
    slots = front.issue_width * front.bundle
    yield Term(
        "front_end", "issue", ("front_end.issue_width", "front_end.bundle", *_WHERE),
        f"{cores} cores x {slots} instructions a cycle x {known.slot:g} gates",
        logic.control(logic.gates(known.slot * slots * cores)),
    )  # fmt: skip
    size = instruction_bytes(arch)
    rate = slots * size
    if front.fetch_bandwidth is not None:
        rate = max(size * front.bundle, front.fetch_bandwidth.at(arch.clock))
    bits = 8 * known.fetched * rate
    yield Term(
        "front_end", "fetch",
        ("front_end.fetch_bandwidth", "front_end.instruction_bytes", "front_end.issue_width",
         "front_end.bundle", *_WHERE),
        f"{cores} cores x {known.fetched} x {rate:.4g} B",
        logic.control(logic.registers(bits * cores)),
    )  # fmt: skip
    if front.loop_buffer is not None:
        yield _loop_buffer(arch, front.loop_buffer, figures, source, logic)
    entries = sum(front.depth(engine) for engine in arch.engines())
    each = 8 * size
    yield Term(
        "front_end", "queues",
        ("front_end.queue_depth", "front_end.instruction_bytes", "front_end.bundle", *_WHERE),
        f"{cores} cores x {entries} entries x {each:.4g} bits",
        logic.control(logic.registers(entries * each * cores)),
    )  # fmt: skip
    if front.sync == "tokens":
        bits = front.tokens * known.counter
        area = logic.registers(bits) + logic.muxes(bits * len(arch.engines()))
        text = f"{cores} cores x {front.tokens} counters x {known.counter} bits"
        yield Term(
            "front_end", "tokens", ("front_end.tokens", "front_end.sync", *_WHERE),
            text, logic.control(area * cores),
        )  # fmt: skip
    else:
        compares = entries * len(arch.engines()) * _OPERANDS**2
        area = compares * figures.area.arithmetic.add["int32"]
        text = f"{cores} cores x {compares} comparators of addresses"
        yield Term(
            "front_end", "interlock", ("front_end.sync", "front_end.queue_depth", *_WHERE),
            text, logic.control(area * cores),
        )  # fmt: skip


def _loop_buffer(arch: Arch, size: int, figures: Figures, source: Source, logic: Logic) -> Term:
    """One memory a core, a word wide; registers with a choice where these are smaller."""
    width = round(instruction_bytes(arch) * arch.front_end.bundle)
    cores, fit = arch.core_count, figures.area.sram
    shape = Sram(max(size, width), width, node=arch.energy.node)
    memory = Range.within(source.sram(shape).area, fit.low, fit.high).times(cores)
    bits = 8 * size * cores
    registers = logic.control(logic.registers(bits) + logic.muxes(bits))
    small = registers.value < memory.value
    return Term(
        "front_end", "loop buffer",
        ("front_end.loop_buffer", "front_end.instruction_bytes", "front_end.bundle", *_WHERE),
        f"{cores} cores x {show_bytes(size)} of {'registers' if small else 'memory'}",
        registers if small else memory,
    )  # fmt: skip
