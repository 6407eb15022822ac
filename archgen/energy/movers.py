"""Area of what moves data on the chip: copy engines and links.

The one idea: width is bandwidth over the clock, so twice the rate is twice the wires, registers and
shifters, and requests in flight each have an entry that remembers them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from archgen.energy.table import Figures
from archgen.energy.terms import Logic, Term
from archgen.schema.peaks import instances
from simmodel.arch import Arch, CopyEngine, Link

_WHERE = ("clock", "cores", "clusters")


def copy_terms(arch: Arch, figures: Figures, logic: Logic) -> Iterator[Term]:
    """The copy engines of all cores."""
    known, cores = figures.area.copy_, arch.core_count
    for name, engine in arch.copy_.items():
        path, wide = f"copy.{name}", engine.bandwidth.at(arch.clock)
        own = known.gates + known.entry * engine.outstanding
        yield Term(
            "copy", f"{name}: requests", (f"{path}.outstanding", *_WHERE),
            f"{cores} x ({known.gates:g} + {engine.outstanding} in flight x {known.entry:g}) gates",
            logic.control(logic.gates(own * cores)),
        )  # fmt: skip
        steps = math.log2(max(2.0, wide))
        bits = 8 * wide
        data = logic.muxes(bits * (steps + engine.pad)) + logic.registers(2 * bits)
        data += logic.gates(figures.area.converter.gates * len(engine.widens) * wide)
        yield Term(
            "copy", f"{name}: data",
            (f"{path}.bandwidth", f"{path}.pad", f"{path}.widens", *_WHERE),
            f"{cores} x {wide:.4g} B/cycle: a shifter of {steps:.3g} steps, two registers"
            f"{', padding' if engine.pad else ''}, {len(engine.widens)} types widened",
            logic.control(data * cores),
        )  # fmt: skip
        held = 8 * engine.request * known.latch
        yield Term(
            "copy", f"{name}: buffer", (f"{path}.request", *_WHERE),
            f"{cores} x a request of {engine.request} B x {known.latch:g} of a register",
            logic.control(logic.registers(held * cores)),
        )  # fmt: skip
        yield _addresses(arch, name, engine, logic)


def _addresses(arch: Arch, name: str, engine: CopyEngine, logic: Logic) -> Term:
    """What makes addresses: dimensions of both sides, lists of rows, other cores."""
    path, cores = f"copy.{name}", arch.core_count
    walked = 2 * engine.rank + (engine.indirect is not None)
    bits = arch.core_count * engine.broadcast + 32 * engine.peer
    return Term(
        "copy", f"{name}: addresses",
        (f"{path}.rank", f"{path}.indirect", f"{path}.broadcast", f"{path}.peer", *_WHERE),
        f"{cores} x ({walked} dimensions, {bits} bits of targets)",
        logic.control((logic.walkers(walked) + logic.registers(bits)) * cores),
    )  # fmt: skip


def link_terms(arch: Arch, logic: Logic) -> Iterator[Term]:
    """Buses and networks: a register and a choice for each memory at either end."""
    for name, link in arch.links.items():
        path, bits = f"links.{name}", 8 * link.bandwidth.at(arch.clock) * (2 if link.duplex else 1)
        count, ends = spans(arch, link), _ends(arch, link)
        area = (logic.muxes(bits) + logic.registers(2 * bits)) * ends
        yield Term(
            "link", name,
            (f"{path}.bandwidth", f"{path}.duplex", f"{path}.scope", f"{path}.from", f"{path}.to",
             *_WHERE),
            f"{count} x {bits:.4g} bits x {ends} ends: a choice and two registers each",
            logic.control(area * count),
        )  # fmt: skip


def spans(arch: Arch, link: Link) -> int:
    """Instances of a link on the chip."""
    return {"chip": 1, "cluster": arch.clusters, "core": arch.core_count}[link.scope]


def _ends(arch: Arch, link: Link) -> int:
    """Memories at both ends of one instance of a link."""
    roles = {*link.from_, *link.to}
    counts = (1 if role == "dram" else instances(arch, role) / spans(arch, link) for role in roles)
    return sum(max(1, math.ceil(count)) for count in counts)
