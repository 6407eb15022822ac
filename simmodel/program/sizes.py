"""Programs for lengths that are known only when they run.

A program is made for the most that there can be. Its *registers* hold how far each length lies
below that, 0 for all of it, or how far the share of it that each core has; addresses and limits of
operands have terms in them. `specialize` says what the front end makes of it for given lengths,
before anything is timed or executed:

    loop t 8                                                seq = 37 of 64
      vector.unary a=local[..]:int8[8,16] limits (0: 64 + seq - 8*t)
    becomes
    loop t 4        a=local[..]:int8[8,16]
    a=local[..]:int8[5,16]                                  the fifth tile; the others are not there

An instruction is left out when a limit leaves nothing of an operand; what it waited for and
signalled stays, so the tokens of the whole program stay balanced, and where hardware keeps order by
operands, so does its place in that order. Without the sums that it would start from (`SPARED`), an
instruction starts new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, groupby

from simmodel.arch.base import OFF_CHIP
from simmodel.isa import Claim, HostCall, Instruction, Item, Loop, Sync
from simmodel.isa.base import instructions
from simmodel.isa.region import Limit, Operand, Register
from simmodel.program.program import Port, Probe, Program
from simmodel.program.substitute import (
    fixed,
    map_operands,
    operands_of,
    shifted,
    substitute_operand,
    valued,
)


class LengthError(ValueError):
    """Lengths that a program does not support; the message lists all errors."""


def checked(registers: Iterable[Register], lengths: Mapping[str, int]) -> dict[str, int]:
    """Value of each register for `lengths`: its distance below the maximum, so never above 0.

    Raises:
        LengthError: a name that is none of theirs, one without a length, one out of range.
    """
    every = tuple(registers)
    known = {register.name: register for register in every if not register.terms}
    wrong = [
        f"{name} is no length of the program, which has {', '.join(known) or 'none'}"
        for name in lengths
        if name not in known
    ]
    for name, register in known.items():
        between = f"expected {register.low} .. {register.high}"
        if name not in lengths:
            wrong.append(f"{name} is not given, {between}")
        elif not register.low <= lengths[name] <= register.high:
            wrong.append(f"{name} is {lengths[name]}, {between}")
    if wrong:
        raise LengthError("; ".join(wrong))
    return {
        register.name: (register.share(lengths) if register.terms else lengths[register.name])
        - register.high
        for register in every
    }


def specialize(program: Program, lengths: Mapping[str, int]) -> Program:
    """`program` for `lengths` by register, without registers.

    Raises:
        LengthError: as `checked`.
    """
    values = checked(program.registers, lengths)
    if not values:
        return program
    # Engines of one core signal each other, or an interlock keeps order; cores do in any case.
    signals = any(i.signals for stream in program.cores for i, _ in instructions(stream))
    settler = _Specializer(interlock=not signals)
    whole = not any(values.values())
    return replace(
        program,
        macs=program.macs if whole else 0,  # what shorter inputs take, only the network says
        demand=program.demand if whole else None,
        cores=tuple(tuple(settler.items(stream, values, {})) for stream in program.cores),
        inputs=tuple(_clip_port(port, values) for port in program.inputs),
        outputs=tuple(_clip_port(port, values) for port in program.outputs),
        registers=(),
    )


def longest(program: Program) -> Program:
    """`program` for the maximum of each length."""
    return specialize(program, most(program.registers))


def most(registers: Iterable[Register]) -> dict[str, int]:
    """The maximum of each length."""
    return {register.name: register.high for register in registers if not register.terms}


def specialize_probe(
    probe: Probe, registers: Iterable[Register], lengths: Mapping[str, int]
) -> Probe:
    """`probe`, of one slice, of a program with `registers`, for `lengths`; LengthError as
    `checked`."""
    (whole,) = probe.slices
    operand, shape = _clip(whole.operand, probe.shape, checked(registers, lengths))
    return replace(probe, shape=shape, slices=(replace(whole, operand=operand),))


def lengths_of(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The lengths that follow from the shapes of inputs.

    Args:
        shapes: of inputs by name; one for each input of which some dimension follows from lengths.

    Raises:
        LengthError: shapes that fit no lengths, or not each other, or leave a length open.
    """
    high = most(program.registers)
    found: dict[str, tuple[int, str]] = {}
    wrong: list[str] = []
    for port in program.inputs:
        if port.operand.limits and len(shapes.get(port.name, port.shape)) != len(port.shape):
            shape = list(shapes[port.name])
            wrong.append(f"{port.name} has shape {shape}, expected {len(port.shape)} dimensions")
    if wrong:
        raise LengthError("; ".join(wrong))
    sizes = [
        (limit, shapes[port.name][limit.axis], f"dimension {limit.axis} of {port.name}")
        for port in program.inputs
        for limit in port.operand.limits
        if port.name in shapes and limit.axis is not None
    ]
    # One with a single length first: what it says helps with sums of several.
    for limit, size, where in sorted(sizes, key=lambda known: len(known[0].terms)):
        known = {name: value - high[name] for name, (value, _) in found.items()}
        left = valued(limit, known)
        if not left.terms:
            if left.base != size:
                given = ", ".join(
                    f"{name} is {found[name][0]} by {found[name][1]}" for name, _ in limit.terms
                )
                wrong.append(f"{where} is {size}, expected {left.base}: {given}")
            continue
        (name, factor), *more = left.terms
        below, rest = divmod(size - left.base, factor)
        if rest:
            wrong.append(f"{where} is {size}, expected {left.base} less a multiple of {factor}")
        elif not more:
            found[name] = (high[name] + below, where)
    only = {r.name: r.high for r in program.registers if not r.terms and r.low == r.high}
    open_ = [name for name in high if name not in found and name not in only]
    if open_ and not wrong:
        wrong.append(f"no input says what {', '.join(open_)} is")
        ports = [port.name for port in program.inputs]
        strange = [f"{name!r}" for name in shapes if name not in ports]
        if strange:
            wrong.append(f"{', '.join(strange)} is no input, expected {', '.join(ports)}")
    if wrong:
        raise LengthError("; ".join(wrong))
    return only | {name: value for name, (value, _) in found.items()}


def _clip_port(port: Port, values: Mapping[str, int]) -> Port:
    operand, shape = _clip(port.operand, port.shape, values)
    return replace(port, operand=operand, shape=shape)


def _clip(
    operand: Operand, shape: tuple[int, ...], values: Mapping[str, int]
) -> tuple[Operand, tuple[int, ...]]:
    """A tensor's operand and shape; a row with room for what depends on data keeps its shape."""
    operand = _clipped(substitute_operand(operand, values))
    return operand, operand.shape if len(operand.shape) == len(shape) else shape


@dataclass(frozen=True)
class _Specializer:
    """Specializes streams for some lengths."""

    interlock: bool
    """Whether operands alone keep order: then a removed instruction is replaced by a claim of its
    operands, so that later ones still wait for earlier ones."""

    def items(
        self, items: Iterable[Item], values: Mapping[str, int], counts: Mapping[str, int]
    ) -> Iterator[Item]:
        """`items` with `values` of variables, inside loops with their `counts`."""
        for item in items:
            if isinstance(item, Loop):
                yield from self._specialize_loop(item, values, counts)
            else:
                yield from self._specialize_instruction(item, values, counts)

    def _specialize_loop(
        self, loop: Loop, values: Mapping[str, int], counts: Mapping[str, int]
    ) -> Iterator[Item]:
        """Runs of iterations for which the limits in the body leave the same."""
        limits = dict.fromkeys(_limits(loop.body, values))
        if not limits:
            yield replace(loop, body=tuple(self.items(loop.body, values, counts)))
            return
        around = (loops for _, loops in instructions(loop.body))
        inner = {**counts, **dict(chain.from_iterable(around))}
        name = loop.variable
        states = [_state(limits, name, turn, inner) for turn in range(loop.count)]
        for _, run in groupby(range(loop.count), key=states.__getitem__):
            first, *others = run
            if not others:
                yield from self.items(loop.body, {**values, name: first}, counts)
                continue
            body = [shifted(item, name, first) for item in loop.body] if first else loop.body
            count = 1 + len(others)
            made = tuple(self.items(body, values, {**counts, name: count}))
            if made:
                yield Loop(name, count, made)

    def _specialize_instruction(
        self, item: Instruction, values: Mapping[str, int], counts: Mapping[str, int]
    ) -> Iterator[Item]:
        whole = fixed(item, values)
        assert isinstance(whole, Instruction)
        left = {name: o for name, o in operands_of(whole).items() if _gone(o, counts)}
        spared = [name for name in whole.SPARED if name in left]
        if spared:
            whole = replace(whole, **dict.fromkeys(spared))  # type: ignore[arg-type]
        if any(_gone(operand, counts) for operand in whole.operands()):
            yield from self._instead(whole)
            return
        cut = map_operands(whole, _clipped)
        if isinstance(cut, HostCall) and isinstance(whole, HostCall):  # work of fewer elements
            before, after = (
                sum(operand.elements for operand in (*call.inputs, *call.outputs))
                for call in (whole, cut)
            )
            cut = replace(cut, operations=cut.operations * after // max(before, 1))
        yield cut

    def _instead(self, left: Instruction) -> Iterator[Instruction]:
        """The replacement of an instruction that is left out."""
        made: list[Instruction] = []
        if self.interlock:
            own = (o for o in left.operands() if o.memory not in OFF_CHIP and not o.cores)
            made = [
                Claim(engine=left.engine, origin=left.origin, dst=replace(o, limits=()))
                for o in own
            ]
        if not made and (left.waits or left.signals or left.notifies):
            made = [Sync(engine=left.engine, origin=left.origin)]
        if made:
            made[0] = replace(made[0], waits=left.waits)
            made[-1] = replace(made[-1], signals=left.signals, notifies=left.notifies)
        yield from made


def _state(
    limits: Iterable[tuple[Limit, int]], variable: str, turn: int, counts: Mapping[str, int]
) -> tuple[int, ...]:
    """For each limit: 1 if it leaves everything, 0 nothing, else a negative number that differs in
    every iteration."""
    found = []
    for limit, extent in limits:
        here = valued(limit, {variable: turn})
        spans = [f * (counts[name] - 1) for name, f in here.terms]
        low = here.base + sum(min(0, span) for span in spans)
        high = here.base + sum(max(0, span) for span in spans)
        differs = turn if here.terms != limit.terms else 0
        found.append(1 if low >= extent else 0 if high <= 0 else -1 - differs)
    return tuple(found)


def _limits(items: Iterable[Item], values: Mapping[str, int]) -> Iterator[tuple[Limit, int]]:
    """Every limit with the extent that it shortens."""
    for item, _ in instructions(items):
        for operand in item.operands():
            for limit in operand.limits:
                extent = 1 if limit.axis is None else operand.shape[limit.axis]
                yield valued(limit, values), extent


def _gone(operand: Operand, counts: Mapping[str, int]) -> bool:
    """Whether an operand is empty in all iterations of the loops around."""
    return any(
        limit.base + sum(max(0, f * (counts[name] - 1)) for name, f in limit.terms) <= 0
        for limit in operand.limits
    )


def _clipped(operand: Operand) -> Operand:
    """`operand` cut to its limits, which loops no longer move."""
    if not operand.limits:
        return operand
    shape = list(operand.shape)
    for limit in operand.limits:
        if limit.axis is not None and not limit.terms:
            shape[limit.axis] = min(shape[limit.axis], limit.base)
    return replace(operand, shape=tuple(shape), limits=())
