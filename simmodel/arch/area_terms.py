"""Names of area terms: parts of the chip, and the terms of each part.

The one idea: a file may state an area under its name, so the names follow from the file alone:
`archgen explain area` prints a term `queues` of the part `front_end`, and a file states
`front_end queues: 0.02 mm2`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

from simmodel.arch.record import Arch, Memory

_OF_COPY = ("requests", "data", "buffer", "addresses")


def parts(arch: Arch) -> Iterator[str]:
    """Parts whose area may be stated as a whole; others have fields of their own."""
    if arch.matrix.present:
        yield "mac"
    yield "vector"
    yield "scalar"
    if arch.copy_:
        yield "copy"
    if arch.links:
        yield "link"
    yield "front_end"


def terms(arch: Arch) -> Iterator[str]:
    """Every term, after the name of its part."""
    if arch.matrix.present:
        yield "mac cells"
        yield from (f"mac write-back {name}" for name in arch.matrix.writeback)
    yield from (f"vector {name}" for name in _of_vector(arch))
    yield "scalar bookkeeping"
    if arch.scalar.types:
        yield "scalar arithmetic"
    for role, memory in arch.memories.on_chip().items():
        yield from (f"{role} {name}" for name in _of_memory(memory))
    yield from (f"copy {name} {term}" for name in arch.copy_ for term in _OF_COPY)
    yield from (f"link {name}" for name in arch.links)
    last = "tokens" if arch.front_end.sync == "tokens" else "interlock"
    yield from (f"front_end {name}" for name in ("issue", "fetch", "queues", last))
    if arch.front_end.loop_buffer is not None:
        yield "front_end loop buffer"
    own = arch.energy.interface == "own" and arch.energy.dram != "sram"
    yield from (f"dram {name}" for name in (("PHY", "controllers") if own else ("port",)))
    yield "dram bursts"


def own_field(arch: Arch, name: str) -> tuple[str, ...] | None:
    """The field that states this part or term instead, if the file has it."""
    part, energy = name.partition(" ")[0], arch.energy
    if any(role == part and known.area is not None for role, known in energy.memories.items()):
        return ("energy", "memories", part, "area")
    if name in ("mac", "mac cells") and energy.area.mac is not None:
        return ("energy", "area", "mac")
    if name in ("vector", "vector lanes", "vector narrow lanes") and energy.area.lane is not None:
        return ("energy", "area", "lane")
    return None


def _of_vector(arch: Arch) -> Iterator[str]:
    vector = arch.vector
    wide = min(vector.lanes, vector.wide_lanes or vector.lanes)
    yield "lanes"
    if wide < vector.lanes and arch.energy.area.lane is None:
        yield "narrow lanes"
    if arch.energy.area.lane is None:
        yield "converters"
    if vector.product_rows:
        yield "sums"
    yield "addresses"


def _of_memory(memory: Memory) -> Iterator[str]:
    yield "banks"
    yield "switch"
    if log2(memory.bank_width / min(memory.alignment, memory.bank_width)):
        yield "aligners"
