"""Checks of single instructions: names, engines, shapes, encodability."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from simmodel.arch.base import OFF_CHIP
from simmodel.arch.element_types import SIZES
from simmodel.arch.memories import ROLES, Memory
from simmodel.arch.record import Arch
from simmodel.errors import Finding
from simmodel.isa import HOST, Arrive, Await, Copy, Fill, HostCall, Instruction
from simmodel.isa.base import Loops, Sync
from simmodel.isa.forms import absent_forms
from simmodel.isa.operand_rules import LIMIT, reach, sound
from simmodel.isa.region import Operand
from simmodel.program.program import Port, Program
from simmodel.verify.happens_before import Timeline
from simmodel.verify.hazards import COUNT
from simmodel.verify.symbolic import Messages, found_at, stream_findings, unknown

Mistakes = Sequence[tuple[str, str]]
"""Rule and message of each."""


def static_findings(program: Program, arch: Arch) -> list[Finding]:
    """Findings that need no order of execution."""
    found: list[Finding] = []
    if len(program.cores) > arch.core_count:
        said = f"{len(program.cores)} streams, {arch.name} has {arch.core_count} cores"
        found.append(Finding("core", said))
    if len(program.tokens) != len(program.cores):
        said = f"tokens are declared for {len(program.tokens)} of {len(program.cores)} streams"
        found.append(Finding("core", said))
    lacking = absent_forms(arch)
    for core, stream in enumerate(program.cores):
        # Of each prototype, by its identity, and of what waits for or gives the same tokens.
        known: dict[int, Mistakes] = {}
        named: dict[Sync, Mistakes] = {}

        def check(
            item: Instruction, loops: Loops, core: int = core, known: dict[int, Mistakes] = known,
            named: dict[Sync, Mistakes] = named,
        ) -> Messages:  # fmt: skip
            kind = item.prototype
            if id(kind) not in known:
                known[id(kind)] = _kind_mistakes(kind, arch, core, lacking)
            for names in (item.waits, item.signals):
                if names not in named:
                    named[names] = [*_token_mistakes(names, program, core)]
            yield from (*known[id(kind)], *named[item.waits], *named[item.signals])
            yield from _references(item, program)
            yield from _looped(item, loops)

        found += stream_findings(program, core, stream, check)
    limit = arch.front_end.tokens
    for core, declared in enumerate(program.tokens):
        if len(declared) > limit:
            found.append(Finding("tokens", f"{len(declared)} tokens, a core has {limit}", core))
    return found


def _kind_mistakes(
    kind: Instruction, arch: Arch, core: int, lacking: Mapping[str, str]
) -> Mistakes:
    """What is wrong with all instructions of a prototype; `lacking`: forms that the machine lacks,
    and why."""
    broken = [*_engine(kind, arch, core), *_operand_checks(kind, arch, core), *kind.breaches]
    # The machine cannot be asked about what it does not have.
    reason = None if broken else lacking.get(kind.form) or kind.unencodable(arch)
    return broken if reason is None else [("encoding", reason)]


def _looped(instruction: Instruction, loops: Loops) -> Messages:
    for operand in instruction.operands():
        address = operand.address
        if address.terms or address.ring is not None:
            counted = dict(loops)
            yield from (("loop", unknown(n)) for n in address.variables if n not in counted)
        if operand.limits:
            yield "limit", "it has limits, which only programs with registers have"
        if reach(address, loops) >= LIMIT:
            yield "range", f"an address in {operand.memory} comes up to {LIMIT} or more"


def _operand_checks(instruction: Instruction, arch: Arch, core: int) -> Messages:
    for operand in instruction.operands():
        if arch.memories.get(operand.memory) is None:
            yield "memory", f"{arch.name} has no memory {operand.memory!r}"
        if operand.cores not in ((), (core,)) and not isinstance(instruction, Copy | Fill):
            yield "core", f"{instruction.MNEMONIC} does not reach other cores"
        strange = [c for c in operand.cores if not 0 <= c < arch.core_count]
        if strange:
            yield "core", f"no core {strange[0]}, {arch.name} has {arch.core_count}"
    if any(len(operand.cores) > 1 for operand in instruction.reads()):
        yield "core", "an operand is read from several cores at once"


def _engine(instruction: Instruction, arch: Arch, core: int) -> Messages:
    name, engines = instruction.engine, (*arch.engines(), HOST)
    if name not in engines:
        yield "engine", f"no engine {name!r}; there are {', '.join(engines)}"
        return
    if name == HOST and core != 0:
        yield "engine", "only the first core's stream feeds the host"
    others = {"copy": tuple(arch.copy_), HOST: (HOST,), "sync": engines}
    others["vector"] = (*arch.units("vector"), *arch.function_engines)
    others["matrix"] = tuple(unit for array in arch.arrays for unit in arch.units(array))
    allowed = others.get(instruction.UNIT) or arch.units(instruction.UNIT)
    if name not in allowed:
        yield "engine", f"{instruction.MNEMONIC} runs on {' or '.join(allowed)}, not on {name}"


def _token_mistakes(named: Sync, program: Program, core: int) -> Messages:
    declared = program.tokens[core] if core < len(program.tokens) else {}
    for name, count in named:
        if name not in declared:
            yield "token", f"token {name!r} is not declared"
        yield from _check_token_count(name, count)


def _references(instruction: Instruction, program: Program) -> Messages:
    if instruction.notifies:
        yield from _notices(instruction, program)
    if isinstance(instruction, (Arrive, Await)) and instruction.barrier not in program.barriers:
        yield "barrier", f"barrier {instruction.barrier!r} is not declared"
    if program.origins and not 0 <= instruction.origin < len(program.origins):
        yield "origin", f"origin {instruction.origin} of {len(program.origins)}"
    if program.tiles and instruction.tile >= len(program.tiles):
        yield "tile", f"tile {instruction.tile} of {len(program.tiles)}"
    if isinstance(instruction, HostCall):
        if not 0 <= instruction.payload < len(program.payloads):
            yield "payload", f"payload {instruction.payload} of {len(program.payloads)}"
        if any(operand.memory not in OFF_CHIP for operand in instruction.operands()):
            yield "encoding", "the host reaches memories off chip only"


def _check_token_count(name: str, count: int) -> Messages:
    if not 1 <= count < COUNT:
        yield "token", f"token {name!r} is counted by {count}, expected 1 .. {COUNT - 1}"


def _notices(instruction: Instruction, program: Program) -> Messages:
    for name, count, cores in instruction.notifies:
        yield from _check_token_count(name, count)
        if not cores or len(set(cores)) < len(cores):
            yield "core", f"token {name!r} is given to cores {cores}, expected each once"
        for target in cores:
            if not 0 <= target < len(program.tokens):
                yield "core", f"token {name!r} of core {target}, which has no stream"
            elif name not in program.tokens[target]:
                yield "token", f"token {name!r} is not declared on core {target}"


# Range and alignment, for all iterations: of operands, buffers, constants and ports.


def operand_bounds(line: Timeline, arch: Arch) -> Iterator[Finding]:
    """Operands that leave their memory or are not aligned to their element size."""
    table, sizes = line.operands, _sizes(arch)
    if not len(table.kind):
        return
    kinds = [(kind.grain, sizes.get(kind.memory, 0), _uneven(kind)) for kind, _ in table.kinds]
    item, room, uneven = np.array(kinds, np.int64)[table.kind].T
    low, high = table.reaches
    odd = np.maximum.reduceat(table.address % np.repeat(item, table.counts), table.starts)
    odd |= uneven
    for number in np.flatnonzero((low < 0) | (high > room) | (odd > 0)).tolist():
        (kind, core), site = table.kinds[table.kind[number]], line.sites[table.site[number]]
        for message in _outside(kind.memory, int(low[number]), int(high[number]), sizes):
            yield found_at(line.program, "range", message, core, site.instruction)
        if odd[number]:
            message = f"{kind.memory} address is no multiple of {kind.grain}"
            yield found_at(line.program, "alignment", message, core, site.instruction)


def _uneven(operand: Operand) -> bool:
    dims = zip(operand.shape, operand.strides, strict=True)
    return any(stride % operand.unit for extent, stride in dims if extent > 1)


def _sizes(arch: Arch) -> dict[str, int]:
    """Bytes of each memory that there is."""
    memories = {role: arch.memories.get(role) for role in ROLES}
    return {role: memory.size for role, memory in memories.items() if memory is not None}


def _outside(role: str, low: int, high: int, sizes: Mapping[str, int]) -> Iterator[str]:
    """That the bytes from `low` up to `high` leave the memory in `role`."""
    size = sizes.get(role, 0)
    if low < 0 or high > size:
        yield f"bytes {low}..{high} of {role}, which has {size}"


def storage_bounds(program: Program, arch: Arch) -> Iterator[Finding]:
    """Buffers, constants and ports that leave their memory or break its alignment."""
    sizes = _sizes(arch)
    for buffer in program.buffers:
        name, end = f"buffer {buffer.name!r}", buffer.address + buffer.size
        for message in _outside(buffer.memory, buffer.address, end, sizes):
            yield Finding("range", f"{name}: {message}")
        memory = arch.memories.get(buffer.memory)
        if isinstance(memory, Memory) and buffer.address % memory.alignment:
            message = f"{name} at {buffer.address} is no multiple of {memory.alignment}"
            yield Finding("alignment", message)
    for constant in program.constants:
        end = constant.address + constant.data.nbytes
        for message in _outside(constant.memory, constant.address, end, sizes):
            yield Finding("range", f"constant {constant.name!r}: {message}")
    for port in (*program.inputs, *program.outputs):
        yield from _check_port(port, sizes)


def _check_port(port: Port, sizes: Mapping[str, int]) -> Iterator[Finding]:
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
    if operand.memory not in OFF_CHIP or operand.address.terms or operand.address.ring:
        yield Finding("port", f"{name} is no fixed place off chip")
    for message in _outside(operand.memory, *operand.bounds, sizes):
        yield Finding("range", f"{name}: {message}")
