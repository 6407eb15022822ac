"""Substitute loop variables in items: another iteration, or a value; rings and limits included.

An address is affine in loop variables and registers, and so are a ring's slot number and a limit.
The item of iteration v + 1, in terms of v, has the factor of v added to each of their constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from simmodel.isa import Instruction, Item, Loop
from simmodel.isa.region import Address, Limit, Operand, Ring, Terms

Change = Callable[[Terms], tuple[int, Terms]]
"""New terms: a constant, and terms."""


def shifted(item: Item, variable: str, by: int) -> Item:
    """`item`, `by` iterations of `variable` later."""
    return _mapped(item, {variable}, lambda terms: (by * factor(terms, variable), terms))


def fixed(item: Item, values: Mapping[str, int]) -> Item:
    """`item` with values in place of variables."""
    return _mapped(item, values, lambda terms: split(terms, values))


def renamed(item: Item, old: str, new: str) -> Item:
    """`item` with another name for a variable."""
    return _mapped(
        item, {old}, lambda terms: (0, tuple((new if n == old else n, f) for n, f in terms))
    )


def factor(terms: Terms, variable: str) -> int:
    """Factor of `variable`."""
    return sum(step for name, step in terms if name == variable)


def split(terms: Terms, values: Mapping[str, int]) -> tuple[int, Terms]:
    """Sum of the terms with values, and the other terms."""
    more = sum(step * values[name] for name, step in terms if name in values)
    return more, tuple((name, step) for name, step in terms if name not in values)


def changed(limit: Limit, change: Change) -> Limit:
    """`limit` with changed terms."""
    more, terms = change(limit.terms)
    return Limit(limit.axis, limit.base + more, terms)


def substitute_operand(operand: Operand, values: Mapping[str, int]) -> Operand:
    """`operand` with values in place of variables."""
    return _change_operand(operand, lambda terms: split(terms, values))


def operands_of(instruction: Instruction) -> dict[str, Operand]:
    """Operands by field name, without absent ones."""
    found = ((name, getattr(instruction, name)) for name in operand_fields(type(instruction)))
    return {name: value for name, value in found if isinstance(value, Operand)}


def lists_of(instruction: Instruction) -> dict[str, tuple[Operand, ...]]:
    """Fields with any number of operands."""
    found = ((name, getattr(instruction, name)) for name in operand_fields(type(instruction)))
    return {name: value for name, value in found if isinstance(value, tuple)}


_FIELDS: dict[type[Instruction], tuple[str, ...]] = {}


def operand_fields(kind: type[Instruction]) -> tuple[str, ...]:
    """Fields of an instruction class that hold operands."""
    found = _FIELDS.get(kind)
    if found is None:
        found = tuple(f.name for f in fields(kind) if "Operand" in str(f.type))
        _FIELDS[kind] = found
    return found


def _mapped(item: Item, names: Any, change: Change) -> Item:
    if isinstance(item, Loop):
        body = tuple(_mapped(inner, names, change) for inner in item.body)
        return item if body == item.body else replace(item, body=body)
    changes: dict[str, Any] = {
        name: _change_operand(operand, change)
        for name, operand in operands_of(item).items()
        if _uses_variables(operand, names)
    }
    changes |= {
        name: tuple(_change_operand(operand, change) for operand in operands)
        for name, operands in lists_of(item).items()
        if any(_uses_variables(operand, names) for operand in operands)
    }
    return replace(item, **changes) if changes else item


def _change_operand(operand: Operand, change: Change) -> Operand:
    more, terms = change(operand.address.terms)
    ring = operand.address.ring
    if ring is not None:
        turned, rest = change(ring.terms)
        ring = Ring(ring.slots, ring.pitch, (ring.offset + turned) % ring.slots, rest)
    limits = tuple(changed(limit, change) for limit in operand.limits)
    address = Address(operand.address.base + more, terms, ring)
    return replace(operand, address=address, limits=limits)


def _uses_variables(operand: Operand, names: Any) -> bool:
    ring = operand.address.ring
    lists = [operand.address.terms, *(limit.terms for limit in operand.limits)]
    if ring is not None:
        lists.append(ring.terms)
    return any(name in names for terms in lists for name, _ in terms)
