"""Substitute loop variables in items: another iteration, or a value; rings and limits included.

An address is affine in loop variables and registers, and so are a ring's slot number and a limit.
The item of iteration v + 1, in terms of v, has the factor of v added to each of their constants.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from simmodel.isa import Instruction, Item, Loop
from simmodel.isa.base import operand_fields
from simmodel.isa.region import Address, Limit, Operand, Ring, Terms, replace

Change = Callable[[Terms], tuple[int, Terms]]
"""New terms: a constant, and terms."""


def shifted(item: Item, variable: str, by: int) -> Item:
    """`item`, `by` iterations of `variable` later."""
    return map_operands(
        item, lambda o: _changed(o, {variable}, lambda terms: (by * factor(terms, variable), terms))
    )


def fixed(item: Item, values: Mapping[str, int]) -> Item:
    """`item` with values in place of variables."""
    return map_operands(item, lambda operand: substitute_operand(operand, values))


def renamed(item: Item, old: str, new: str) -> Item:
    """`item` with another name for a variable."""

    def change(terms: Terms) -> tuple[int, Terms]:
        return 0, tuple((new if name == old else name, by) for name, by in terms)

    return map_operands(item, lambda operand: _changed(operand, {old}, change))


def factor(terms: Terms, variable: str) -> int:
    """Factor of `variable`."""
    return sum(step for name, step in terms if name == variable)


def split(terms: Terms, values: Mapping[str, int]) -> tuple[int, Terms]:
    """Sum of the terms with values, and the other terms."""
    more = sum(step * values[name] for name, step in terms if name in values)
    return more, tuple((name, step) for name, step in terms if name not in values)


def valued(limit: Limit, values: Mapping[str, int]) -> Limit:
    """`limit` with values in place of variables."""
    more, terms = split(limit.terms, values)
    return Limit(limit.axis, limit.base + more, terms)


def substitute_operand(operand: Operand, values: Mapping[str, int]) -> Operand:
    """`operand` with values in place of variables."""
    return _changed(operand, values, lambda terms: split(terms, values))


def operands_of(instruction: Instruction) -> dict[str, Operand]:
    """Operands by field name, without absent ones and lists."""
    found = ((name, getattr(instruction, name)) for name in operand_fields(type(instruction)))
    return {name: value for name, value in found if isinstance(value, Operand)}


def map_operands(item: Item, change: Callable[[Operand], Operand]) -> Item:
    """`item` with every operand changed, those in lists too; itself where nothing is."""
    if isinstance(item, Loop):
        body = tuple(map_operands(inner, change) for inner in item.body)
        same = all(new is old for new, old in zip(body, item.body, strict=True))
        return item if same else replace(item, body=body)
    changes: dict[str, Any] = {}
    for name in operand_fields(type(item)):
        old = getattr(item, name)
        if isinstance(old, Operand):
            new: Any = change(old)
            if new is not old:
                changes[name] = new
        elif old:
            changes[name] = tuple(map(change, old))
    return replace(item, **changes) if changes else item


def _changed(operand: Operand, names: Container[str], change: Change) -> Operand:
    address, ring = operand.address, operand.address.ring
    lists = [address.terms, *(limit.terms for limit in operand.limits), ring.terms if ring else ()]
    if not any(name in names for terms in lists for name, _ in terms):
        return operand
    more, terms = change(address.terms)
    if ring is not None:
        turned, rest = change(ring.terms)
        ring = Ring(ring.slots, ring.pitch, (ring.offset + turned) % ring.slots, rest)
    changed = ((limit, *change(limit.terms)) for limit in operand.limits)
    limits = tuple([Limit(limit.axis, limit.base + by, rest) for limit, by, rest in changed])
    return replace(operand, address=Address(address.base + more, terms, ring), limits=limits)
