"""Items at other iterations of a loop: what `shifted` and `fixed` give is exact, rings included.

An address is affine in the loop variables, and so is a ring's slot number. The item of iteration
v + 1, written in terms of v, has the factor of v added to its base and to its ring's offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from simmodel.isa import Instruction, Item, Loop
from simmodel.region import Address, Operand, Terms


def shifted(item: Item, variable: str, by: int) -> Item:
    """`item` as it is `by` iterations of `variable` later."""
    return _mapped(item, variable, lambda address: _moved(address, variable, by, keep=True))


def fixed(item: Item, variable: str, value: int) -> Item:
    """`item` in iteration `value` of `variable`, which it no longer names."""
    return _mapped(item, variable, lambda address: _moved(address, variable, value, keep=False))


def factor(terms: Terms, variable: str) -> int:
    """What one step of `variable` adds."""
    return sum(step for name, step in terms if name == variable)


def _moved(address: Address, variable: str, by: int, *, keep: bool) -> Address:
    def rest(terms: Terms) -> Terms:
        return terms if keep else tuple(term for term in terms if term[0] != variable)

    ring = address.ring
    if ring is not None:
        offset = (ring.offset + by * factor(ring.terms, variable)) % ring.slots
        ring = replace(ring, offset=offset, terms=rest(ring.terms))
    base = address.base + by * factor(address.terms, variable)
    return Address(base, rest(address.terms), ring)


def _mapped(item: Item, variable: str, change: Callable[[Address], Address]) -> Item:
    if isinstance(item, Loop):
        body = tuple(_mapped(inner, variable, change) for inner in item.body)
        return item if body == item.body else replace(item, body=body)
    changes: dict[str, Any] = {}
    for name in operand_fields(type(item)):
        value = getattr(item, name)
        if isinstance(value, Operand) and _names(value.address, variable):
            changes[name] = replace(value, address=change(value.address))
    return replace(item, **changes) if changes else item


_FIELDS: dict[type[Instruction], tuple[str, ...]] = {}


def operand_fields(kind: type[Instruction]) -> tuple[str, ...]:
    """Fields of an instruction class that hold operands."""
    found = _FIELDS.get(kind)
    if found is None:
        found = tuple(f.name for f in fields(kind) if "Operand" in str(f.type))
        _FIELDS[kind] = found
    return found


def _names(address: Address, variable: str) -> bool:
    ring = () if address.ring is None else address.ring.terms
    return any(name == variable for name, _ in (*address.terms, *ring))
