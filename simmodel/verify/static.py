"""Rules that one look at each instruction decides: names, engines, shapes, encodability."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from simmodel.arch import Arch
from simmodel.dtype import SIZES
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
    ScalarNop,
    VectorFamily,
)
from simmodel.program import Program
from simmodel.region import Operand
from simmodel.verify.finding import Finding, found_at

ROLES = ("dram", "shared", "local", "weights", "accumulators")
Checked = Iterator[tuple[str, str]]
"""Rule and message of each thing that is wrong."""
Check = Callable[[Instruction, Program, Arch, int], Checked]


def static_findings(program: Program, arch: Arch) -> list[Finding]:
    """Findings that need no order of execution."""
    found = [Finding("core", m) for m in _cores(program, arch)]
    for core, stream in enumerate(program.cores):
        found += _walk(stream, (), program, arch, core)
    if arch.front_end.sync == "tokens":
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
    items: tuple[Item, ...], bound: tuple[str, ...], program: Program, arch: Arch, core: int
) -> Iterator[Finding]:
    for item in items:
        if not isinstance(item, Loop):
            for check in CHECKS:
                for rule, message in check(item, program, arch, core):
                    yield found_at(program, rule, message, core, item)
            for message in _unbound(item, bound):
                yield found_at(program, "loop", message, core, item)
            continue
        if item.count < 1:
            yield Finding("loop", f"loop {item.variable} runs {item.count} times", core)
        if item.variable in bound:
            yield Finding("loop", f"loop variable {item.variable} is already in use", core)
        yield from _walk(item.body, (*bound, item.variable), program, arch, core)


def operands_of(instruction: Instruction) -> tuple[Operand, ...]:
    """All operands, reads first."""
    return (*instruction.reads(), *instruction.writes())


def _unbound(instruction: Instruction, bound: tuple[str, ...]) -> Iterator[str]:
    for operand in operands_of(instruction):
        ring = operand.address.ring
        for name, _ in (*operand.address.terms, *(ring.terms if ring else ())):
            if name not in bound:
                yield f"no loop around it counts {name!r}"


def _operand_checks(instruction: Instruction, program: Program, arch: Arch, core: int) -> Checked:
    for operand in operands_of(instruction):
        if operand.memory not in ROLES or arch.memories.get(operand.memory) is None:
            yield "memory", f"{arch.name} has no memory {operand.memory!r}"
        if operand.dtype not in SIZES:
            yield "encoding", f"no element type {operand.dtype!r}"
        if len(operand.shape) != len(operand.strides) or min(operand.shape, default=1) < 1:
            yield "shape", f"shape {operand.shape} with strides {operand.strides}"
        if operand.address.ring is not None and operand.address.ring.slots < 1:
            yield "shape", f"a ring of {operand.address.ring.slots} slots"
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
            return ("matrix",)
        case VectorFamily():
            return ("vector",)
        case ScalarNop():
            return ("scalar",)
        case HostCall():
            return (HOST,)
    return ()


def _encodable(instruction: Instruction, program: Program, arch: Arch, core: int) -> Checked:
    broken = (
        *_engine(instruction, program, arch, core),
        *_operand_checks(instruction, program, arch, core),
    )
    if broken:  # the machine cannot be asked about what it does not have
        return
    reason = instruction.unencodable(arch)
    if reason is not None:
        yield "encoding", reason


def _references(instruction: Instruction, program: Program, arch: Arch, core: int) -> Checked:
    declared = program.tokens[core] if core < len(program.tokens) else {}
    for name, count in (*instruction.waits, *instruction.signals):
        if name not in declared:
            yield "token", f"token {name!r} is not declared"
        if count < 1:
            yield "token", f"token {name!r} is counted by {count}"
    if isinstance(instruction, Arrive | Await) and instruction.barrier not in program.barriers:
        yield "barrier", f"barrier {instruction.barrier!r} is not declared"
    if program.origins and not 0 <= instruction.origin < len(program.origins):
        yield "origin", f"origin {instruction.origin} of {len(program.origins)}"
    if isinstance(instruction, HostCall):
        if not 0 <= instruction.payload < len(program.payloads):
            yield "payload", f"payload {instruction.payload} of {len(program.payloads)}"
        if any(operand.memory != "dram" for operand in operands_of(instruction)):
            yield "encoding", "the host reaches DRAM only"


CHECKS: tuple[Check, ...] = (_engine, _operand_checks, _references, _encodable)
