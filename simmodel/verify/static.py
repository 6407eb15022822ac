"""Rules that one look at each instruction decides: names, engines, shapes, encodability."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from simmodel.arch import Arch
from simmodel.isa import (
    HOST,
    Arrive,
    Await,
    Copy,
    Fill,
    HostCall,
    Instruction,
    Item,
    Loop,
    MatrixInstruction,
    ScalarFamily,
    ScalarNop,
    VectorFamily,
)
from simmodel.isa.contract import LIMIT, RANK, reach
from simmodel.program import Program
from simmodel.region import Operand, Terms
from simmodel.verify.finding import Finding, found_at
from simmodel.verify.open import unknown
from simmodel.verify.sync import COUNT

ROLES = ("dram", "shared", "local", "weights", "accumulators")
Checked = Iterator[tuple[str, str]]
"""Rule and message of each thing that is wrong."""
Check = Callable[[Instruction, Program, Arch, int], Checked]


def static_findings(program: Program, arch: Arch) -> list[Finding]:
    """Findings that need no order of execution."""
    found = [Finding("core", m) for m in _cores(program, arch)]
    for core, stream in enumerate(program.cores):
        found += _walk(stream, (), program, arch, core)
    found += _token_counts(program, arch)
    return found


def _cores(program: Program, arch: Arch) -> Iterator[str]:
    if len(program.cores) > arch.core_count:
        yield f"{len(program.cores)} streams, {arch.name} has {arch.core_count} cores"
    if len(program.tokens) != len(program.cores):
        yield f"tokens are declared for {len(program.tokens)} of {len(program.cores)} streams"


def _token_counts(program: Program, arch: Arch) -> Iterator[Finding]:
    limit = arch.front_end.tokens
    for core, tokens in enumerate(program.tokens):
        if len(tokens) > limit:
            yield Finding("tokens", f"{len(tokens)} tokens, a core has {limit}", core)


def _walk(
    items: tuple[Item, ...], loops: Terms, program: Program, arch: Arch, core: int
) -> Iterator[Finding]:
    """Findings in a stream inside of `loops`, variables with their counts."""
    for item in items:
        if not isinstance(item, Loop):
            broken = [found for check in CHECKS for found in check(item, program, arch, core)]
            # The machine cannot be asked about what it does not have.
            last = (_references,) if broken else (_references, _encodable)
            broken += [found for check in last for found in check(item, program, arch, core)]
            for rule, message in (*broken, *_looped(item, loops)):
                yield found_at(program, rule, message, core, item)
            continue
        if not 1 <= item.count < LIMIT:
            yield Finding("loop", f"loop {item.variable} runs {item.count} times", core)
        if item.variable in dict(loops):
            yield Finding("loop", f"loop variable {item.variable} is already in use", core)
        if len(loops) == RANK:
            yield Finding("loop", f"more than {RANK} loops inside of each other", core)
        else:
            yield from _walk(item.body, (*loops, (item.variable, item.count)), program, arch, core)


def operands_of(instruction: Instruction) -> tuple[Operand, ...]:
    """All operands, reads first."""
    return (*instruction.reads(), *instruction.writes())


def _looped(instruction: Instruction, loops: Terms) -> Checked:
    counted = dict(loops)
    for operand in operands_of(instruction):
        ring = operand.address.ring
        for name, _ in (*operand.address.terms, *(ring.terms if ring else ())):
            if name not in counted:
                yield "loop", unknown(name)
        if operand.limits:
            yield "limit", "it has limits, which only programs with registers have"
        if reach(operand.address, loops) >= LIMIT:
            yield "range", f"an address in {operand.memory} comes up to {LIMIT} or more"


def _operand_checks(instruction: Instruction, program: Program, arch: Arch, core: int) -> Checked:
    for operand in operands_of(instruction):
        if operand.memory not in ROLES or arch.memories.get(operand.memory) is None:
            yield "memory", f"{arch.name} has no memory {operand.memory!r}"
        if operand.cores not in ((), (core,)) and not isinstance(instruction, Copy | Fill):
            yield "core", f"{instruction.MNEMONIC} does not reach other cores"
        strange = [c for c in operand.cores if not 0 <= c < arch.core_count]
        if strange:
            yield "core", f"no core {strange[0]}, {arch.name} has {arch.core_count}"
    if len({operand.cores for operand in instruction.reads() if len(operand.cores) > 1}):
        yield "core", "an operand is read from several cores at once"


def _engine(instruction: Instruction, program: Program, arch: Arch, core: int) -> Checked:
    name, engines = instruction.engine, (*arch.engines(), HOST)
    if name not in engines:
        yield "engine", f"no engine {name!r}; there are {', '.join(engines)}"
        return
    if name == HOST and core != 0:
        yield "engine", "only the first core's stream feeds the host"
    allowed = _engines_for(instruction, arch)
    if allowed and name not in allowed:
        yield "engine", f"{instruction.MNEMONIC} runs on {' or '.join(allowed)}, not on {name}"


def _engines_for(instruction: Instruction, arch: Arch) -> tuple[str, ...]:
    """Engines that execute the family of `instruction`; empty: all."""
    match instruction:
        case Copy() | Fill():
            return tuple(arch.copy_)
        case MatrixInstruction():
            return arch.units("matrix")
        case ScalarFamily():
            return ("scalar",)
        case VectorFamily():
            return arch.units("vector")
        case ScalarNop():
            return ("scalar",)
        case HostCall():
            return (HOST,)
    return ()


def _contract(instruction: Instruction, program: Program, arch: Arch, core: int) -> Checked:
    yield from instruction.breaches


def _encodable(instruction: Instruction, program: Program, arch: Arch, core: int) -> Checked:
    reason = instruction.unencodable(arch)
    if reason is not None:
        yield "encoding", reason


def _references(instruction: Instruction, program: Program, arch: Arch, core: int) -> Checked:
    declared = program.tokens[core] if core < len(program.tokens) else {}
    for name, count in (*instruction.waits, *instruction.signals):
        if name not in declared:
            yield "token", f"token {name!r} is not declared"
        yield from _count(name, count)
    yield from _notices(instruction, program)
    if isinstance(instruction, Arrive | Await) and instruction.barrier not in program.barriers:
        yield "barrier", f"barrier {instruction.barrier!r} is not declared"
    if program.origins and not 0 <= instruction.origin < len(program.origins):
        yield "origin", f"origin {instruction.origin} of {len(program.origins)}"
    if program.tiles and instruction.tile >= len(program.tiles):
        yield "tile", f"tile {instruction.tile} of {len(program.tiles)}"
    if isinstance(instruction, HostCall):
        if not 0 <= instruction.payload < len(program.payloads):
            yield "payload", f"payload {instruction.payload} of {len(program.payloads)}"
        if any(operand.memory != "dram" for operand in operands_of(instruction)):
            yield "encoding", "the host reaches DRAM only"


def _count(name: str, count: int) -> Checked:
    if not 1 <= count < COUNT:
        yield "token", f"token {name!r} is counted by {count}, expected 1 .. {COUNT - 1}"


def _notices(instruction: Instruction, program: Program) -> Checked:
    for name, count, cores in instruction.notifies:
        yield from _count(name, count)
        if not cores or len(set(cores)) < len(cores):
            yield "core", f"token {name!r} is given to cores {cores}, expected each once"
        for target in cores:
            if not 0 <= target < len(program.tokens):
                yield "core", f"token {name!r} of core {target}, which has no stream"
            elif name not in program.tokens[target]:
                yield "token", f"token {name!r} is not declared on core {target}"


CHECKS: tuple[Check, ...] = (_engine, _operand_checks, _contract)
