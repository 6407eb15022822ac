"""Area of the chip, term by term.

The one idea: what the architecture file lists has terms of its own, each with the fields behind it,
and what no list has (clock, wires, space between cells) is a share of them. Pins are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import groupby
from operator import attrgetter

from archgen.energy.engines import matrix_terms, scalar_terms, vector_terms
from archgen.energy.ranges import WHERE, Logic, Term, UncertainValue, area_of_speed, total
from archgen.energy.sram import Source, Sram
from archgen.energy.table import Figures
from simmodel.arch.memories import Memory
from simmodel.arch.record import INSTRUCTION_BYTES, Arch
from simmodel.arch.units import show_bytes

# What fetches, keeps order and issues. Everything that waits is held in registers: fetched words,
# entries of queues, counts of semaphores; what keeps order compares operands. Loops are in a
# small memory.

_OPERANDS = 3


def instruction_bytes(arch: Arch) -> float:
    """Bytes of one instruction as fetched and as held in queues, its share of a full word where
    words have a size of their own; of a packing with commands of several sizes, those of an
    addition in all dimensions that the vector engine walks."""
    front = arch.front_end
    if front.instruction_bytes is not None:
        return front.instruction_bytes / front.bundle
    if arch.encoding is None:
        return INSTRUCTION_BYTES
    packing = import_module("simmodel.program.encoding")  # slow: with numpy
    return float(packing.typical_bytes(arch, "vector.binary.add", arch.vector.rank))


def front_end_terms(arch: Arch, figures: Figures, source: Source, logic: Logic) -> Iterator[Term]:
    """The front ends of all cores."""
    front, cores, known = arch.front_end, arch.core_count, figures.area.front_end
    slots = front.issue_width * front.bundle
    yield Term(
        "front_end", "issue", ("front_end.issue_width", "front_end.bundle", *WHERE),
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
         "front_end.bundle", *WHERE),
        f"{cores} cores x {known.fetched:g} x {rate:.4g} B",
        logic.control(logic.registers(bits * cores)),
    )  # fmt: skip
    if front.loop_buffer is not None:
        yield _loop_buffer(arch, front.loop_buffer, figures, source, logic)
    entries = sum(front.depth(engine) for engine in arch.engines())
    each = 8 * size
    yield Term(
        "front_end", "queues",
        ("front_end.queue_depth", "front_end.instruction_bytes", "front_end.bundle", *WHERE),
        f"{cores} cores x {entries} entries x {each:.4g} bits",
        logic.control(logic.registers(entries * each * cores)),
    )  # fmt: skip
    if front.sync == "tokens":
        bits = front.tokens * known.counter
        area = logic.registers(bits) + logic.muxes(bits * len(arch.engines()))
        text = f"{cores} cores x {front.tokens} counters x {known.counter:g} bits"
        yield Term(
            "front_end", "tokens", ("front_end.tokens", "front_end.sync", *WHERE),
            text, logic.control(area * cores),
        )  # fmt: skip
    else:
        compares = entries * len(arch.engines()) * _OPERANDS**2
        area = compares * figures.area.arithmetic.add["int32"]
        text = f"{cores} cores x {compares} comparators of addresses"
        yield Term(
            "front_end", "interlock", ("front_end.sync", "front_end.queue_depth", *WHERE),
            text, logic.control(area * cores),
        )  # fmt: skip


def _loop_buffer(arch: Arch, size: int, figures: Figures, source: Source, logic: Logic) -> Term:
    """One memory a core, a word wide; registers with a choice where these are smaller."""
    width = round(instruction_bytes(arch) * arch.front_end.bundle)
    cores, fit = arch.core_count, figures.area.sram
    shape = Sram(max(size, width), width, node=arch.energy.node)
    memory = UncertainValue.within(source(shape).area, fit.low, fit.high).times(cores)
    bits = 8 * size * cores
    registers = logic.control(logic.registers(bits) + logic.muxes(bits))
    small = registers.value < memory.value
    return Term(
        "front_end", "loop buffer",
        ("front_end.loop_buffer", "front_end.instruction_bytes", "front_end.bundle", *WHERE),
        f"{cores} cores x {show_bytes(size)} of {'registers' if small else 'memory'}",
        registers if small else memory,
    )  # fmt: skip


# Area of what moves data on the chip: copy engines and links.


def copy_terms(arch: Arch, figures: Figures, logic: Logic) -> Iterator[Term]:
    """The copy engines of all cores."""
    known, cores = figures.area.copy_, arch.core_count
    for name, engine in arch.copy_.items():
        path, wide = f"copy.{name}", engine.bandwidth.at(arch.clock)
        own = known.gates + known.entry * engine.outstanding
        yield Term(
            "copy", f"{name}: requests", (f"{path}.outstanding", *WHERE),
            f"{cores} x ({known.gates:g} + {engine.outstanding} in flight x {known.entry:g}) gates",
            logic.control(logic.gates(own * cores)),
        )  # fmt: skip
        steps = math.log2(max(2.0, wide))
        bits = 8 * wide
        data = logic.muxes(bits * (steps + engine.pad)) + logic.registers(2 * bits)
        data += logic.gates(figures.area.converter.gates * len(engine.widens) * wide)
        yield Term(
            "copy", f"{name}: data",
            (f"{path}.bandwidth", f"{path}.pad", f"{path}.widens", *WHERE),
            f"{cores} x {wide:.4g} B/cycle: a shifter of {steps:.3g} steps, two registers"
            f"{', padding' if engine.pad else ''}, {len(engine.widens)} types widened",
            logic.control(data * cores),
        )  # fmt: skip
        yield Term(
            "copy", f"{name}: buffer", (f"{path}.request", *WHERE),
            f"{cores} x a request of {engine.request} B x {known.latch:g} of a register",
            logic.control(logic.registers(8 * engine.request * known.latch * cores)),
        )  # fmt: skip
        walked = 2 * engine.rank + (engine.indirect is not None)  # both sides, and lists of rows
        bits = cores * engine.broadcast + 32 * engine.peer
        yield Term(
            "copy", f"{name}: addresses",
            (f"{path}.rank", f"{path}.indirect", f"{path}.broadcast", f"{path}.peer", *WHERE),
            f"{cores} x ({walked} dimensions, {bits} bits of targets)",
            logic.control((logic.walkers(walked) + logic.registers(bits)) * cores),
        )  # fmt: skip


def link_terms(arch: Arch, logic: Logic) -> Iterator[Term]:
    """Buses and networks: a register and a choice for each memory at either end; of a core's node
    in a network, for each neighbour too."""
    for name, link in arch.links.items():
        path, bits = f"links.{name}", 8 * link.bandwidth.at(arch.clock) * (2 if link.duplex else 1)
        count = arch.scopes(link.span)
        # Memories at both ends of one instance of the link.
        roles, grid = {*link.from_, *link.to}, arch.grid(link)
        ends = 0 if grid is None else grid.links / 2 / count
        ends += sum(max(1, math.ceil(arch.instances(role) / count)) for role in roles)
        area = (logic.muxes(bits) + logic.registers(2 * bits)) * ends
        yield Term(
            "link", name,
            (f"{path}.bandwidth", f"{path}.duplex", f"{path}.scope", f"{path}.topology",
             f"{path}.shape", f"{path}.from", f"{path}.to", *WHERE),
            f"{count} x {bits:.4g} bits x {ends:g} ends: a choice and two registers each",
            logic.control(area * count),
        )  # fmt: skip


# Area of on-chip memories: their banks, and the switch between banks and those who reach them.

_PORTS = ("ports", "read_ports", "write_ports")


def memory_terms(
    arch: Arch, role: str, figures: Figures, source: Source, logic: Logic
) -> Iterator[Term]:
    """One of the machine's memories, all its instances."""
    memory, count, path = arch.memories.srams()[role], arch.instances(role), f"memories.{role}"
    where = ("cores", "clusters") if role != "shared" else ("clusters", f"{path}.level")
    if (stated := arch.energy.memory(role).area) is not None:
        text = f"{count} x {stated:.4g} mm2 (energy.memories.{role}.area)"
        yield Term(role, "memory", where, text, UncertainValue.exact(stated).times(count))
        return
    shape = Sram.of(memory, arch.energy.node)
    fit = figures.area.sram
    banks = UncertainValue.within(source(shape).area, fit.low, fit.high).times(count)
    yield Term(
        role, "banks",
        (*(f"{path}.{name}" for name in ("size", "banks", "bank_width", *_PORTS)), *where),
        f"{count} x {memory.banks} banks of {show_bytes(memory.bank_size)}, {8 * shape.width} bits "
        f"wide, {shape.ports} ports: {1e6 * banks.value / (8 * memory.size * count):.3g} um2/bit",
        banks,
    )  # fmt: skip
    yield from _switch(arch, role, memory, count, logic)


def _switch(arch: Arch, role: str, memory: Memory, count: int, logic: Logic) -> Iterator[Term]:
    path, ports = f"memories.{role}", Sram.of(memory, arch.energy.node).ports
    reaching = reached_by(arch, role) * max(1, arch.core_count // count)
    bits = 8 * memory.bank_width * memory.banks * ports * count
    # Both ways: what each bank is given is chosen from all that reach it, what each of these gets
    # from all banks; a single one of either needs no choice.
    chosen = (reaching - 1) + reaching * (memory.banks - 1) / memory.banks
    fields = tuple(f"{path}.{name}" for name in ("banks", "bank_width", *_PORTS))
    yield Term(
        role, "switch",
        (*fields, "matrix.units", "vector.units", "vector.reads", "vector.writes", "copy.*.from",
         "copy.*.to", "matrix.input", "matrix.weights", "matrix.output", "engines.*", "clock"),
        f"{bits} bits at ports x {chosen:.3g} two-way choices, {reaching} reach it",
        logic.control(logic.muxes(bits * chosen)),
    )  # fmt: skip
    steps = math.log2(max(1, memory.bank_width / min(memory.alignment, memory.bank_width)))
    if steps:
        yield Term(
            role, "aligners", (f"{path}.alignment", f"{path}.bank_width", f"{path}.banks", "clock"),
            f"{bits} bits at ports x {steps:.3g} steps of a shifter",
            logic.control(logic.muxes(bits * steps)),
        )  # fmt: skip


def reached_by(arch: Arch, role: str) -> int:
    """Engines of one core that read or write the memory in `role`."""
    vector = arch.vector
    role = "dram" if role == "shared" and arch.memories.dram.on_chip else role
    arrays = sum(
        each.units * (role in (each.input, each.weights, each.output))
        for each in arch.arrays.values()
    )
    lanes = role in vector.reads or role in vector.writes
    beside = sum(
        role in each.reads or role in each.writes for each in arch.function_engines.values()
    )
    copies = sum(role in engine.from_ or role in engine.to for engine in arch.copy_.values())
    return max(1, arrays + lanes * vector.units + beside + copies)


# Area of what stands on the chip for DRAM: an interface of its own, or a port of the system's.

PART = "dram"
"""The part of these terms. No share of what is not listed is added to it, and it does not leak with
the logic."""
_FIELDS = ("energy.interface", "energy.dram")


def interface_terms(arch: Arch, figures: Figures, logic: Logic) -> Iterator[Term]:
    """Pads with what drives them, and controllers; or a port; or what the file states; none to
    memory on the chip."""
    if (stated := arch.energy.memory(PART).area) is not None:
        text = f"{stated:.4g} mm2 (energy.memories.dram.area)"
        yield Term(PART, "interface", (), text, UncertainValue.exact(stated))
        return
    if arch.memories.dram.on_chip:
        return
    if arch.energy.has_pads:
        yield from _pads(arch, figures, logic)
    else:
        yield _port_area(arch, "dram", "port", figures, logic)
    yield _bursts(arch, "dram", "bursts", figures, logic)
    if arch.memories.flash is not None:
        yield _port_area(arch, "flash", "flash port", figures, logic)
        yield _bursts(arch, "flash", "flash bursts", figures, logic)


def _bursts(arch: Arch, role: str, what: str, figures: Figures, logic: Logic) -> Term:
    """What is under way in the channels of a memory off chip."""
    far, known = arch.memories.off_chip()[role], figures.area.channel
    bits = 8 * far.burst * known.bursts * far.channels
    return Term(
        PART, what, (f"memories.{role}.channels", f"memories.{role}.burst"),
        f"{far.channels} channels x {known.bursts:g} bursts of {far.burst} B",
        logic.control(logic.registers(bits * figures.area.copy_.latch)),
    )  # fmt: skip


def _pads(arch: Arch, figures: Figures, logic: Logic) -> Iterator[Term]:
    dram, kind = arch.memories.dram, figures.interface[arch.energy.dram]
    rate = 1e-9 * dram.bandwidth.at(arch.clock) * arch.clock
    pins = 8 * rate / kind.rate
    yield Term(
        PART, "PHY", ("memories.dram.bandwidth", *_FIELDS),
        f"{rate:.4g} GB/s = {pins:.4g} data pins of {kind.rate:g} Gb/s x {kind.pin:.3g} mm2 "
        f"({arch.energy.dram}, at every node)",
        UncertainValue(pins * kind.pin, pins * kind.low, pins * kind.high),
    )  # fmt: skip
    known = figures.controller[kind.controller]
    one = logic.gates(known.gates)
    yield Term(
        PART, "controllers", ("memories.dram.channels", *_FIELDS),
        f"{dram.channels} channels x {known.gates:.3g} gates",
        logic.scaled(one * dram.channels, known.low / known.gates, known.high / known.gates),
    )  # fmt: skip


def _port_area(arch: Arch, role: str, what: str, figures: Figures, logic: Logic) -> Term:
    """As a link ends at a memory: a choice and two registers by bit and direction."""
    bits = 2 * 8 * arch.memories.off_chip()[role].bandwidth.at(arch.clock)
    return Term(
        PART, what, (f"memories.{role}.bandwidth", "clock", *_FIELDS),
        f"{bits:.4g} bits both ways: a choice and two registers each, "
        f"{figures.area.channel.port:g} gates",
        logic.control(
            logic.muxes(bits) + logic.registers(2 * bits) + logic.gates(figures.area.channel.port)
        ),
    )  # fmt: skip


# Areas that a file states in the place of terms, and terms of its own.

EXTRA = "extra"
"""The part of terms that only the file knows."""


def as_stated(arch: Arch, terms: Iterable[Term]) -> Iterator[Term]:
    """`terms`, those that the file states replaced."""
    given = arch.energy.area.parts
    for part, own in groupby(terms, key=attrgetter("part")):
        if part in given:
            yield _stated(arch, next(own), part, "as stated")
            continue
        for term in own:
            name = f"{part} {term.what.replace(':', '')}"
            yield _stated(arch, term, name, term.what) if name in given else term


def _stated(arch: Arch, term: Term, name: str, what: str) -> Term:
    area, count = arch.energy.area.parts[name], _stated_instances(arch, term, name)
    text = f"{count} x {area:.4g} mm2 (energy.area.parts)"
    where = () if term.part == PART else ("cores", "clusters")
    return Term(term.part, what, where, text, UncertainValue.exact(area).times(count))


def _stated_instances(arch: Arch, term: Term, name: str) -> int:
    """How many of what is stated the chip has; of all links together there is one."""
    if term.part in ("dram", *arch.memories.srams()):
        return arch.instances(term.part)
    if term.part == "link" and name != "link":
        return arch.scopes(arch.links[term.what].span)
    return 1 if term.part == "link" else arch.core_count


@dataclass(frozen=True)
class Area:
    """What stands on the chip."""

    terms: tuple[Term, ...]

    @cached_property
    def parts(self) -> dict[str, UncertainValue]:
        """mm2 by part: mac, vector, scalar, each memory's role, copy, link, front_end, other,
        extra, dram."""
        names = dict.fromkeys(term.part for term in self.terms)
        return {name: total(t.mm2 for t in self.terms if t.part == name) for name in names}

    @property
    def total(self) -> UncertainValue:
        """mm2 of everything."""
        return total(self.parts.values())

    @property
    def core(self) -> UncertainValue:
        """mm2 of everything but the interface to DRAM."""
        return total(part for name, part in self.parts.items() if name != PART)


def area_of(arch: Arch, figures: Figures, source: Source) -> Area:
    """Area of `arch`; what its section `energy` states comes before the table."""
    terms = [*as_stated(arch, _listed(arch, figures, source))]
    listed = total(term.mm2 for term in terms).value
    other, stated = figures.area.other, arch.energy.area.other
    share = UncertainValue.within(other.share * listed, other.low, other.high).unless(stated)
    text = f"{other.share:.0%} of {listed:.4g} mm2" if stated is None else "energy.area.other"
    terms.append(Term("other", "clock, wires, space", (), text, share))
    # Its clock is DRAM's, or the system's.
    slow = Logic(figures.area, arch.energy.node)
    interface = as_stated(arch, interface_terms(arch, figures, slow))
    extra = (
        Term(EXTRA, name, (), f"{mm2:.4g} mm2 (energy.area.extra)", UncertainValue.exact(mm2))
        for name, mm2 in arch.energy.area.extra.items()
    )
    return Area((*terms, *extra, *interface))


def _listed(arch: Arch, figures: Figures, source: Source) -> Iterator[Term]:
    logic = Logic(figures.area, arch.energy.node, area_of_speed(arch, figures))
    for name, array in arch.arrays.items():
        yield from matrix_terms(arch, name, array, figures, logic)
    yield from vector_terms(arch, figures, logic)
    yield from scalar_terms(arch, figures, logic)
    for role in arch.memories.srams():
        yield from memory_terms(arch, role, figures, source, logic)
    yield from copy_terms(arch, figures, logic)
    yield from link_terms(arch, logic)
    yield from front_end_terms(arch, figures, source, logic)
