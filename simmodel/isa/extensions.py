"""User-defined forms: functions of the vector engine, and classes of instructions.

The one idea: a user's form is added to the tables of the built-in ones, so assembly parser,
verifier, both clocks, the section `isa` of a machine and `archgen isa` need nothing else.

    @form("swiglu", does="gate * sigmoid(gate) * up", cycles=6)
    def swiglu(gate, up):
        return gate / (1 + np.exp(-gate)) * up
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from simmodel.arch.dtype import Array
from simmodel.arch.record import FORM_LIMITS, FormLimits
from simmodel.isa import INSTRUCTIONS, Instruction
from simmodel.isa.base import operand_fields
from simmodel.isa.functions import COSTS, Function, about, functions_in, names_in
from simmodel.isa.vector import Binary, Ternary, Unary

_FAMILIES = (Unary, Binary, Ternary)
Meaning = Callable[..., Array]


def form(
    name: str, *, does: str | None = None, cost: str = "special", cycles: float | None = None,
    rank: int | None = None, max_extent: int | None = None, replace: bool = False,
) -> Callable[[Meaning], Meaning]:  # fmt: skip
    """Decorator: register a function of one to three arrays as a form of the vector engine.

    Args:
        name: `swiglu` of two operands is the form `vector.binary.swiglu`.
        does: the same in other functions (`gate * sigmoid(gate) * up`), by which the compiler finds
            it in networks, and which stands for it on machines that lack it; default: it is used
            where a tensor expression or a kernel names it.
        cost: its class in `vector.cost` and `scalar.cost`: simple, multiply, divide or special.
        cycles: per vector of lanes, in the place of its class; `isa.limits` may say otherwise.
        rank, max_extent: dimensions that one instruction walks, and the most elements along the
            innermost; default those of the engine.
        replace: take the place of a function that is there.

    The function gets its operands as fp32 arrays of one shape and gives the result in that shape;
    what stands behind a `*` are constant parameters (of a function of one operand). Raises
    ValueError with all that is wrong.
    """

    def register(function: Meaning) -> Meaning:
        given = inspect.signature(function).parameters.values()
        operands = tuple(p.name for p in given if p.kind == p.POSITIONAL_OR_KEYWORD)
        numbers = tuple(p.name for p in given if p.kind == p.KEYWORD_ONLY)
        mistakes = [
            *_signature(function, operands, numbers),
            *_name_mistakes(name, len(operands), replace),
            *_limits(cost, cycles, rank, max_extent),
            *_does(name, does, operands, numbers),
        ]
        if mistakes:
            raise ValueError(f"form {name!r}: {'; '.join(mistakes)}")

        def apply(*values: Any) -> Array:
            of = zip(numbers, values[len(operands) :], strict=True)
            return function(*values[: len(operands)], **dict(of))

        code = function.__code__
        family = _FAMILIES[len(operands) - 1]
        family.TABLE[name] = Function(
            cost, apply if numbers else function, numbers, operands=operands,
            does=() if does is None else (does,),
            place=f"{code.co_filename}:{code.co_firstlineno}",
        )  # fmt: skip
        FORM_LIMITS[f"{family.MNEMONIC}.{name}"] = FormLimits(
            rank=rank, max_extent=max_extent, cost=cycles
        )
        return function

    return register


def instruction(kind: type[Instruction]) -> type[Instruction]:
    """Decorator: register a class of instructions, a frozen dataclass, by its MNEMONIC.

    Raises ValueError where it has none, or one that is taken.
    """
    name = getattr(kind, "MNEMONIC", None)
    operands, own_writes = operand_fields(kind), kind.writes is not Instruction.writes
    silent = bool(operands) and "dst" not in operands and not own_writes
    if not isinstance(name, str) or inspect.isabstract(kind) or silent:
        abstract = sorted(getattr(kind, "__abstractmethods__", ()))
        lacking = ", ".join(abstract) or ("dst or writes" if silent else "MNEMONIC")
        raise ValueError(f"instruction {kind.__name__}: it has no {lacking}")
    if name in INSTRUCTIONS:
        raise ValueError(f"instruction {kind.__name__}: there is a {name!r} already")
    INSTRUCTIONS[name] = kind
    return kind


def _signature(function: Meaning, operands: Sequence[str], numbers: Sequence[str]) -> Iterator[str]:
    if not 1 <= len(operands) <= len(_FAMILIES):
        yield f"{len(operands)} operands, expected one to three"
        return
    if numbers and len(operands) > 1:
        yield f"parameter {numbers[0]!r}: only a function of one operand has any"
        return
    sample = [np.linspace(0.25, 0.75, 6, dtype=np.float32).reshape(2, 3)] * len(operands)
    try:
        made = function(*sample, **dict.fromkeys(numbers, 0.5))
    except Exception as mistake:  # whatever a user's function does
        yield f"its function fails: {type(mistake).__name__}: {mistake}"
        return
    if np.shape(made) != (2, 3):
        yield f"its function makes {list(np.shape(made))} of [2, 3], expected the same shape"


def _name_mistakes(name: str, operands: int, replace: bool) -> Iterator[str]:
    if not name.isidentifier():
        yield "its name has to be an identifier"
    table = _FAMILIES[min(max(operands, 1), 3) - 1].TABLE
    if name in table and not replace:
        at = f", at {table[name].place}" if table[name].place else ""
        yield f"there is one of that name{at}; 'replace=True' takes its place"


def _limits(cost: str, cycles: float | None, rank: int | None, extent: int | None) -> Iterator[str]:
    if cost not in COSTS:
        yield f"no cost class {cost!r}; there are {', '.join(COSTS)}"
    if cycles is not None and not cycles > 0:
        yield f"{cycles} cycles, expected a positive number"
    if rank is not None and rank not in (1, 2, 3):
        yield f"rank {rank}, expected 1, 2 or 3"
    if extent is not None and not extent > 0:
        yield f"max_extent {extent}, expected a positive number"


def _does(
    name: str, does: str | None, operands: Sequence[str], numbers: Sequence[str]
) -> Iterator[str]:
    """Errors in a form's `does`."""
    if does is None:
        return
    try:
        term = about(does, (*operands, *numbers))
    except ValueError as mistake:
        yield str(mistake)
        return
    unused = [each for each in (*operands, *numbers) if each not in names_in(term)]
    if unused:
        yield f"{does!r} is not about {unused[0]!r}"
    for function, count in sorted(functions_in(term)):
        table = _FAMILIES[count - 1].TABLE if 1 <= count <= len(_FAMILIES) else {}
        if function == name or function not in table or table[function].parameters:
            yield f"{does!r}: the engine has no other function {function!r} of {count} values"
