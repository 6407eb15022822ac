"""Assembly: programs as text that a person reads and writes, and that parses back to the same.

    program  = 'program' field* record* core*
    record   = ('demand' | 'register' | 'origin' | 'buffer' | 'input' | 'output') field*
             | 'barrier' name count | 'payload' base64
             | 'constants' string           file with the data of those that follow
             | 'constant' name address type '[' extents ']' 'used' bytes 'hash' string
               ['in' memory]               where that is not dram
    core     = 'core' number, then indented: ('token' name count)* item*
    item     = 'loop' variable count, then indented: item*
             | mnemonic engine field* ['wait' uses] ['signal' uses] ['notify' notes]
               ['!' origin ['/' tile]]
    field    = name '=' value              fields that have their default are left out
    value    = number | name | string | 'none' | operand | '(' values ')'
    operand  = memory '[' address ']' ':' type '[' extents ']' ['/{' strides '}']
               ['*' scale] ['+' zero] [limits] [place]
    limits   = '?{' (dimension | 'none') ':' sum of numbers, factor '*' variable, ... '}'
    address  = sum of numbers, factor '*' variable, 'ring(' slots ',' pitch ',' sum ')'
    uses     = name count (',' name count)*
    notes    = name count place (',' name count place)*
    place    = '@' core | '@{' cores '}'

One instruction per line, `;` starts a comment, strides are written where they are not row-major.
Fields come from the dataclasses, so a new instruction needs no text code. The data of constants is
kept apart (`constant_data`, in a file that the text may name); the text holds their hashes. Both
in one file, which runs alone, are `simmodel.program.loadable`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from simmodel.arch.dtype import NAMES
from simmodel.arch.element_types import SIZES, size_of
from simmodel.arch.lazy_array import AnyArray
from simmodel.isa import Instruction, Item, Loop
from simmodel.isa.base import instructions
from simmodel.isa.region import Address, Operand, Terms, contiguous
from simmodel.program.assembly_reader import (
    APART,
    PLAIN,
    WORDS,
    ParseError,
    parse_items,
    parse_program,
)
from simmodel.program.program import Program

__all__ = [
    "ParseError", "constant_data", "parse_items", "parse_program", "print_fields",
    "print_item", "print_operand", "print_program",
]  # fmt: skip
INDENT = "  "


def print_item(item: Item) -> str:
    """`item` as text: one line, or a loop's line and its indented body."""
    return "\n".join(_lines(item))


def print_program(program: Program, constants: str = "") -> str:
    """`program` as text; `parse_program(text, constant_data(program))` gives it back. `constants`
    names the file that the data of its constants is kept in."""
    head = f"program name={_quote_name(program.name)} arch={_quote_name(program.arch)}"
    lines = [head + (f" macs={program.macs}" if program.macs else "")]
    if program.demand is not None:
        lines.append(f"demand{print_fields(program.demand)}")
    for word in ("register", "origin", "tile", "buffer", "input", "output"):
        lines += [f"{word}{print_fields(record)}" for record in getattr(program, f"{word}s")]
    lines += [f"barrier {_quote_name(name)} {count}" for name, count in program.barriers.items()]
    lines += [f'payload "{base64.b64encode(data).decode()}"' for data in program.payloads]
    lines += [f"constants {json.dumps(constants)}"] if constants else []
    for each, found in zip(program.constants, program.digests, strict=True):
        head = f"constant {_quote_name(each.name)} {each.address:#x}"
        kind = f"{NAMES[np.dtype(each.data.dtype)]}[{','.join(map(str, each.data.shape))}]"
        place = "" if each.memory == "dram" else f" in {each.memory}"
        lines.append(f'{head} {kind} used {each.used} hash "{found}"{place}')
    for core, (tokens, stream) in enumerate(zip(program.tokens, program.cores, strict=True)):
        lines.append(f"core {core}")
        lines += [f"{INDENT}token {_quote_name(name)} {count}" for name, count in tokens.items()]
        lines += [INDENT + line for line in _commented(stream, program)]
    return "\n".join(lines) + "\n"


def constant_data(program: Program) -> dict[str, AnyArray]:
    """The data of all constants by name, for `parse_program`.

    Raises:
        ValueError: two constants have one name.
    """
    data = {constant.name: constant.data for constant in program.constants}
    if len(data) < len(program.constants):
        raise ValueError(f"program {program.name!r} has constants of the same name")
    return data


def _commented(stream: tuple[Item, ...], program: Program) -> Iterator[str]:
    """Lines of a stream, with the model node in a comment wherever it changes."""
    last = -1
    for item in stream:
        origin = next((first.origin for first, _ in instructions([item])), last)
        if origin != last and origin < len(program.origins):
            last = origin
            yield "; " + json.dumps(program.origins[last].node)[1:-1]
        yield from _lines(item)


def _lines(item: Item) -> Iterator[str]:
    if not isinstance(item, Loop):
        yield _print_instruction(item)
        return
    yield f"loop {_quote_name(item.variable)} {item.count}"
    for inner in item.body:
        for line in _lines(inner):
            yield INDENT + line


def _print_instruction(item: Instruction) -> str:
    text = f"{item.MNEMONIC} {_quote_name(item.engine)}{print_fields(item)}"
    for word, uses in (("wait", item.waits), ("signal", item.signals)):
        if uses:
            text += f" {word} " + ", ".join(f"{_quote_name(name)} {count}" for name, count in uses)
    if item.notifies:
        notes = (
            f"{_quote_name(name)} {count} {_print_cores(cores)}"
            for name, count, cores in item.notifies
        )
        text += " notify " + ", ".join(notes)
    if item.tile >= 0:
        return f"{text} !{item.origin}/{item.tile}"
    return text + (f" !{item.origin}" if item.origin else "")


def print_fields(record: Any) -> str:
    """` name=value` for every field that has not its default."""
    parts = []
    skipped = APART if isinstance(record, Instruction) else frozenset()
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name not in skipped and (field.default is MISSING or value != field.default):
            parts.append(f" {field.name}={_print_value(value)}")
    return "".join(parts)


def _print_value(value: Any) -> str:
    match value:
        case None:
            return "none"
        case Operand():
            return print_operand(value)
        case tuple():
            return f"({', '.join(map(_print_value, value))})"
        case str():
            return _quote_name(value)
        case float():
            return repr(float(value))
    return str(int(value))


def _quote_name(name: str) -> str:
    """`name`, in quotes where it could be taken for something else."""
    return name if PLAIN.fullmatch(name) and name not in WORDS else json.dumps(name)


def print_operand(operand: Operand) -> str:
    """`local[0x40 + 16*i]:int8[4,16]` and the like."""
    shape = ",".join(map(str, operand.shape))
    text = f"{_quote_name(operand.memory)}[{_address(operand.address)}]:{operand.dtype}[{shape}]"
    known = operand.dtype in SIZES  # messages about what is not print it too
    if not known or operand.strides != contiguous(operand.shape, size_of(operand.dtype)):
        text += "/{" + ",".join(map(str, operand.strides)) + "}"
    if operand.scale is not None:
        text += f"*{float(operand.scale)!r}"
    if operand.zero:
        text += f"{operand.zero:+d}"
    if operand.limits:
        sums = (" + ".join([str(each.base), *_print_terms(each.terms)]) for each in operand.limits)
        axes = ("none" if each.axis is None else str(each.axis) for each in operand.limits)
        text += "?{" + ", ".join(map("{}: {}".format, axes, sums)) + "}"
    return text + _print_cores(operand.cores)


def _print_cores(cores: tuple[int, ...]) -> str:
    """`@2`, `@{0,1}`; nothing where they are not named."""
    if len(cores) == 1:
        return f"@{cores[0]}"
    return "@{" + ",".join(map(str, cores)) + "}" if cores else ""


def _address(address: Address) -> str:
    parts, ring = [hex(address.base), *_print_terms(address.terms)], address.ring
    if ring is not None:
        inner = _print_terms(ring.terms)
        if ring.offset or not inner:
            inner.append(str(ring.offset))
        parts.append(f"ring({ring.slots}, {ring.pitch}, {' + '.join(inner)})")
    return " + ".join(parts)


def _print_terms(terms: Terms) -> list[str]:
    return [
        _quote_name(name) if factor == 1 else f"{factor}*{_quote_name(name)}"
        for name, factor in terms
    ]
