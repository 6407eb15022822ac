"""Rules about the memories on the chip: banks, ports, and room for what the array needs."""

from __future__ import annotations

from collections.abc import Iterator

from archgen.lint.product import Product
from archgen.lint.subject import Check, Sight, Subject
from simmodel.arch import Arch
from simmodel.units import show_bytes


def _bank_small(seen: Subject, limit: float) -> Iterator[Sight]:
    for role, memory in seen.arch.memories.on_chip().items():
        if memory.bank_size < limit:
            figure = f"{memory.banks} banks of {memory.bank_size} B"
            usual = f"{limit:g} B and more"
            chip = "Eyeriss: 448 B for the weights of each cell; NVDLA: banks of 32 KiB"
            yield Sight(("memories", role, "banks"), figure, usual, chip)


def _bank_wide(seen: Subject, limit: float) -> Iterator[Sight]:
    for role, memory in seen.arch.memories.on_chip().items():
        if memory.bank_width > limit:
            figure = f"{memory.bank_width} B in one access"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): 1024 B of its accumulators"
            yield Sight(("memories", role, "bank_width"), figure, f"up to {limit:g} B", chip)


def _ports_many(seen: Subject, limit: float) -> Iterator[Sight]:
    for role, memory in seen.arch.memories.on_chip().items():
        both = (memory.read_ports or 0) + (memory.write_ports or 0)
        ports = both if memory.split_ports else memory.ports
        if ports > limit:
            field = "read_ports" if memory.split_ports else "ports"
            usual = "one or two; more bandwidth comes from banks"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): two reads and a write"
            yield Sight(("memories", role, field), f"{ports} ports on each bank", usual, chip)


def _memory_bypassed(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    for role in arch.memories.on_chip():
        if _readers(arch, role) < limit:
            yield Sight(("memories", role), "nothing reads it", "an engine at least")


def _readers(arch: Arch, role: str) -> int:
    """Engines that read a memory; sums that are written back by the array are read by it."""
    matrix = arch.matrix
    readers = [role in engine.from_ for engine in arch.copy_.values()]
    readers += [role in arch.vector.reads]
    if matrix.present:
        written_back = role == matrix.output and bool(matrix.writeback)
        readers += [role in (matrix.input, matrix.weights) or written_back]
    return sum(readers)


def _two_tiles(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    if not arch.matrix.present:
        return
    held = Product.least(arch).held()
    for role, parts in held.items():
        memory = arch.memories.on_chip()[role]
        once = sum(parts.values())
        if memory.size < limit * once:
            named = ", ".join(f"{show_bytes(size)} of {what}" for what, size in parts.items())
            figure = f"{show_bytes(memory.size)}; an array-sized product has {named}"
            usual = f"{show_bytes(int(limit * once))} at least"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): four tiles of weights"
            yield Sight(("memories", role, "size"), figure, usual, chip)


def _accumulators_few(seen: Subject, limit: float) -> Iterator[Sight]:
    arch, memory = seen.arch, seen.arch.memories.accumulators
    stays = arch.matrix.kind == "systolic" and arch.matrix.dataflow == "weight-stationary"
    if memory is None or arch.matrix.output != "accumulators" or not stays:
        return
    rows = memory.size // Product.least(arch).row_of_sums
    if rows < limit * arch.matrix.rows:
        figure = f"{show_bytes(memory.size)}: {rows} rows of sums for {arch.matrix.rows} rows"
        usual = (
            f"{limit * arch.matrix.rows:g} rows at least; new weights need "
            f"{arch.matrix.rows} cycles to be shifted in"
        )
        chip = "Google TPU v1 (Jouppi et al., ISCA 2017): 4096 rows of sums for 256 rows"
        yield Sight(("memories", "accumulators", "size"), figure, usual, chip)


CHECKS: dict[str, Check] = {
    "bank-small": _bank_small,
    "bank-wide": _bank_wide,
    "ports-many": _ports_many,
    "memory-bypassed": _memory_bypassed,
    "two-tiles": _two_tiles,
    "accumulators-few": _accumulators_few,
}
