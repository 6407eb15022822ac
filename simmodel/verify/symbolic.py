"""Checks of programs with registers: the registers, fields that use them, and their ports.

The one idea: these rules hold for every length, so they are checked once, before a program is
specialized. Then `simmodel.program.sizes.specialize` gives programs to which all other checks
apply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from itertools import chain

from simmodel.errors import Finding
from simmodel.isa import Instruction, Item, Loop
from simmodel.isa.base import Loops
from simmodel.isa.operand_rules import LIMIT, RANK, sound
from simmodel.isa.region import Operand, Register
from simmodel.program.assembly import print_item
from simmodel.program.program import Port, Program
from simmodel.program.sizes import most

LENGTH = 2**31
"""No length comes up to this."""
TURNS = 2**20
"""Turns of the loops around a limit, each of which may leave another part, are fewer."""
Messages = Iterator[tuple[str, str]]
"""Rule and message of each thing that is wrong."""


def found_at(
    program: Program, rule: str, message: str, core: int, instruction: Instruction
) -> Finding:
    """A finding about an instruction of `core`."""
    known = 0 <= instruction.origin < len(program.origins)
    node = program.origins[instruction.origin].node if known else ""
    return Finding(rule, message, core, instruction.engine, print_item(instruction), node)


def open_findings(program: Program) -> list[Finding]:
    """What is wrong with the registers of a program and with all that names them."""
    if not program.registers:
        return []
    found = [Finding("register", said) for said in _registers(program.registers)]
    if found:  # what they are says what their names mean
        return found
    known = {register.name: register for register in program.registers}
    whole = _extent_registers(program.inputs, known)
    for kind, ports in (("input", program.inputs), ("output", program.outputs)):
        said = chain.from_iterable(_open_port_mistakes(kind, port, known, whole) for port in ports)
        found += [Finding("port", each) for each in said]
    for core, stream in enumerate(program.cores):

        def check(item: Instruction, loops: Loops) -> Messages:
            return _open_instruction_mistakes(item, dict(loops), known)

        found += stream_findings(program, core, stream, check, known)
    return found


def _registers(registers: Iterable[Register]) -> Iterator[str]:
    registers = tuple(registers)
    lengths, times = most(registers), Counter(register.name for register in registers)
    for name in times:
        if times[name] > 1:
            yield f"register {name!r} is there {times[name]} times, expected once"
        if not name:
            yield "a register has no name"
    for register in registers:
        what = f"register {register.name!r}"
        strange = [name for name, _ in register.terms if name not in lengths]
        if not 1 <= register.low <= register.high < LENGTH:
            between = f"low={register.low} high={register.high}"
            yield f"{what} has {between}, expected 1 <= low <= high < {LENGTH}"
        elif strange:
            there = ", ".join(map(repr, lengths)) or "none"
            yield f"{what} is a share of {strange[0]!r}, which is no length; there are {there}"
        elif not register.terms and (register.parts, register.base) != (1, 0):
            yield f"{what} has parts or a base, which are of shares: expected terms= as well"
        elif register.parts < 1:
            yield f"{what} has parts={register.parts}, expected at least 1"
        elif register.terms and register.share(lengths) != register.high:
            said = f"expected {register.share(lengths)}, its share of the most of its lengths"
            yield f"{what} has high={register.high}, {said}"


def _extent_registers(ports: Iterable[Port], known: Mapping[str, Register]) -> set[str]:
    """Registers that are the extent of some of `ports`, and not only part of a sum."""
    return {
        limit.terms[0][0]
        for port in ports
        for limit in port.operand.limits
        if len(limit.terms) == 1 and limit.terms[0][0] in known
        if limit.axis is not None and 0 <= limit.axis < len(port.operand.shape)
        if known[limit.terms[0][0]].high == port.operand.shape[limit.axis]
    }


def _open_port_mistakes(
    kind: str, port: Port, known: Mapping[str, Register], whole: Set[str]
) -> Iterator[str]:
    operand, name = port.operand, f"{kind} {port.name!r}"
    if 0 in operand.shape and 0 in port.shape and not operand.limits:
        return  # nothing of it is ever there
    broken = [said for _, said in (*sound(operand), *_limits(operand, known))]
    yield from (f"{name}: {said}" for said in broken)
    if broken or len(operand.shape) != len(port.shape):
        return
    for limit in operand.limits:
        if limit.axis is None:
            continue
        where, extent = f"{name}: dimension {limit.axis}", operand.shape[limit.axis]
        least = limit.base + sum(f * (known[n].low - known[n].high) for n, f in limit.terms)
        summed = sum(factor * known[n].high for n, factor in limit.terms)
        if limit.base != extent:
            yield f"{where} has {extent} positions, its limit says {limit.base} at the most"
        # There may always be some positions besides, as in a mask over a cache and what is new: of
        # lengths that another input says by itself.
        elif (
            kind == "input"
            and summed != extent
            and (summed > extent or not whole >= {name for name, _ in limit.terms})
        ):
            high = ", ".join(f"{n} has high={known[n].high}" for n, _ in limit.terms)
            yield f"{where} has {extent} positions at the most, but register {high}"
        elif least < 1:
            lows = ", ".join(f"{name} is {known[name].low}" for name, _ in limit.terms)
            yield f"{where} has {least} positions where {lows}, expected 1 or more"


def stream_findings(
    program: Program, core: int, items: Iterable[Item],
    check: Callable[[Instruction, Loops], Messages], registers: Collection[str] = (),
    loops: Loops = (),
) -> Iterator[Finding]:  # fmt: skip
    """What `check` says of each instruction among `items`, which are inside of `loops`, and what is
    wrong with their loops."""
    for item in items:
        if not isinstance(item, Loop):
            for rule, said in check(item, loops):
                yield found_at(program, rule, said, core, item)
            continue
        if not 1 <= item.count < LIMIT:
            yield Finding("loop", f"loop {item.variable} runs {item.count} times", core)
        if item.variable in registers:
            yield Finding("loop", f"loop {item.variable} has the name of a register", core)
        if item.variable in dict(loops):
            yield Finding("loop", f"loop variable {item.variable} is already in use", core)
        if len(loops) == RANK:
            yield Finding("loop", f"more than {RANK} loops inside of each other", core)
        else:
            inner = (*loops, (item.variable, item.count))
            yield from stream_findings(program, core, item.body, check, registers, inner)


def _open_instruction_mistakes(
    item: Instruction, counts: Mapping[str, int], known: Mapping[str, Register]
) -> Messages:
    operands = item.operands()
    names = {*counts, *known}
    turns = sum(counts.values())
    if turns >= TURNS and any(operand.limits for operand in operands):
        yield "loop", f"it has limits inside of {turns} turns of loops, expected fewer than {TURNS}"
    for operand in operands:
        yield from sound(operand)
        yield from _limits(operand, names)
        for name in operand.address.variables:
            if name not in names:
                yield "loop", unknown(name)


def _limits(operand: Operand, names: Iterable[str]) -> Messages:
    for limit in operand.limits:
        if limit.axis is not None and not 0 <= limit.axis < len(operand.shape):
            said = f"dimension {limit.axis} has a limit, the operand has {len(operand.shape)}"
            yield "limit", said
        for name, _ in limit.terms:
            if name not in names:
                yield "limit", unknown(name)


def unknown(name: str) -> str:
    """That a term names nothing."""
    return f"no loop around it counts {name!r}, and no register is called so"
