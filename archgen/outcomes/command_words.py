"""What one command says: its control words by name, and how loops around it change them.

The one idea: an instruction's fields are its control words. An operand is several of them (memory,
address, extents, strides ...), and of these only the address depends on loops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from simmodel.asm import print_operand
from simmodel.isa import Instruction
from simmodel.region import Address, Operand

APART = frozenset({"engine", "waits", "signals", "notifies", "origin", "tile"})
"""Fields that are no control words of the engine: columns of their own have them."""


def named_words(command: Instruction, addresses: Mapping[str, int] | None = None) -> Any:
    """Field -> value, as JSON holds it; of operands a mapping as well.

    `addresses`: of operands by their field, in one turn of the loops; default: in the first.
    """
    known = addresses or {}
    return {
        field.name: _word(getattr(command, field.name), known.get(field.name))
        for field in fields(command)
        if field.name not in APART
    }


def steps(command: Instruction) -> dict[str, Any]:
    """Operand -> bytes that each loop around it adds to its address with every turn, by the loop's
    name; `ring` has what turns between slots."""
    found = {}
    for field in fields(command):
        value = getattr(command, field.name)
        if isinstance(value, Operand) and (value.address.terms or value.address.ring):
            found[field.name] = _moves(value.address)
    return found


def _moves(address: Address) -> dict[str, Any]:
    found: dict[str, Any] = dict(address.terms)
    ring = address.ring
    if ring is not None:
        terms = dict(ring.terms)
        found["ring"] = {
            "slots": ring.slots, "pitch": ring.pitch, "offset": ring.offset, "terms": terms,
        }  # fmt: skip
    return found


def _word(value: Any, address: int | None) -> Any:
    if isinstance(value, Operand):
        return _operand(value, address)
    if isinstance(value, tuple):
        return [_word(each, None) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value


def _operand(operand: Operand, address: int | None) -> dict[str, Any]:
    ring = operand.address.ring
    first = operand.address.base + (ring.pitch * (ring.offset % ring.slots) if ring else 0)
    found = {
        "memory": operand.memory,
        "address": first if address is None else address,
        "shape": list(operand.shape),
        "strides": list(operand.strides),
        "dtype": operand.dtype,
    }
    if operand.scale is not None:
        found["scale"] = operand.scale
    if operand.zero:
        found["zero"] = operand.zero
    if operand.cores:
        found["cores"] = list(operand.cores)
    if operand.limits:
        found["limits"] = print_operand(operand).rpartition("?")[2]
    return found
