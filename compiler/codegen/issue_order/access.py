"""What an item touches, and whether two items may touch the same byte: for machines that interlock.

There program order between engines carries dependences, so an instruction may only move past
another with which it has no byte in common, in any iteration of the loops around them. Operands
count with their bounding range, as in the hardware. What moves both alike does not change where
they are to each other: then the comparison is exact, slots of a ring included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from simmodel.isa import Instruction
from simmodel.isa.region import Operand, Ring, Terms, replace


class ByteAccess(NamedTuple):
    """A range of bytes that moves with the loops around it."""

    memory: str
    write: bool
    low: int
    high: int
    terms: Terms
    """Combined, sorted, none 0."""
    ring: Ring | None
    """Its terms as those."""

    def at(self, variable: str, value: int) -> ByteAccess:
        """In iteration `value` of `variable`; a slot that no loop changes is an address like any
        other."""
        terms, step = _taken(self.terms, variable)
        move, ring = step * value, self.ring
        if ring is not None:
            rest, turn = _taken(ring.terms, variable)
            offset = (ring.offset + turn * value) % ring.slots
            move += 0 if rest else offset * ring.pitch
            ring = Ring(ring.slots, ring.pitch, offset, rest) if rest else None
        return ByteAccess(self.memory, self.write, self.low + move, self.high + move, terms, ring)

    def later(self, variable: str, by: int) -> ByteAccess:
        """`by` iterations later."""
        move, ring = by * _taken(self.terms, variable)[1], self.ring
        turn = by * _taken(ring.terms, variable)[1] if ring is not None else 0
        if ring is not None and turn:
            ring = replace(ring, offset=(ring.offset + turn) % ring.slots)
        if not (move or turn):
            return self
        return self._replace(low=self.low + move, high=self.high + move, ring=ring)

    def swept(self, variable: str, count: int) -> ByteAccess:
        """Over all iterations of `variable`."""
        terms, move = _taken(self.terms, variable)
        reach = move * (count - 1)
        low, high = self.low + min(0, reach), self.high + max(0, reach)
        ring = self.ring
        if ring is not None and any(name == variable for name, _ in ring.terms):
            high += ring.pitch * (ring.slots - 1)
            ring = None
        return ByteAccess(self.memory, self.write, low, high, terms, ring)


Accesses = tuple[ByteAccess, ...]


def _taken(terms: Terms, variable: str) -> tuple[Terms, int]:
    """The other terms, and the factor of `variable`."""
    for name, step in terms:
        if name == variable:
            return tuple([term for term in terms if term[0] != variable]), step
    return terms, 0


def accesses(item: Instruction) -> Accesses:
    """Everything that `item` touches."""
    found: Accesses | None = item.__dict__.get("_accesses")  # several programs have it
    if found is None:
        reads = [_access(operand, False) for operand in item.reads()]
        found = (*reads, *[_access(operand, True) for operand in item.writes()])
        item.__dict__["_accesses"] = found
    return found


def merged(found: Iterable[ByteAccess]) -> Accesses:
    """The same bytes in fewer ranges: those that move alike and touch become one."""
    alike: dict[tuple[object, ...], list[ByteAccess]] = {}
    for access in found:
        key = (access.memory, access.write, access.terms, access.ring)
        alike.setdefault(key, []).append(access)
    result: list[ByteAccess] = []
    for group in alike.values():
        group.sort(key=lambda access: access.low)
        last = group[0]
        for access in group[1:]:
            if access.low > last.high:
                result.append(last)
                last = access
            elif access.high > last.high:
                last = last._replace(high=access.high)
        result.append(last)
    return tuple(result)


def _access(operand: Operand, write: bool) -> ByteAccess:
    address, (low, high) = operand.address, operand.bounds
    found = ByteAccess(operand.memory, write, low, high, _combined(address.terms), address.ring)
    if address.ring is None:
        return found
    return found._replace(ring=replace(address.ring, terms=_combined(address.ring.terms))).at("", 0)


def _combined(terms: Terms) -> Terms:
    if len(terms) < 2:
        return terms if terms and terms[0][1] else ()
    steps: dict[str, int] = {}
    for name, step in terms:
        steps[name] = steps.get(name, 0) + step
    return tuple(sorted((name, step) for name, step in steps.items() if step))


def meet(first: Iterable[ByteAccess], second: Accesses, counts: Mapping[str, int]) -> bool:
    """Whether one of `first` conflicts with one of `second` in an iteration of the same loops.

    `counts`: iterations of every loop around both.
    """
    return any(conflict(a, b, counts) for a in first for b in second)


def conflict(a: ByteAccess, b: ByteAccess, counts: Mapping[str, int]) -> bool:
    """Whether two accesses touch a common byte, one writing, in an iteration of the same loops."""
    if a.memory != b.memory or not (a.write or b.write):
        return False
    if a.terms != b.terms:
        a, b = _everywhere(a, counts), _everywhere(b, counts)
    one, two = a.ring, b.ring
    if one is None and two is None:
        return a.low < b.high and b.low < a.high
    if one is None or two is None or replace(one, offset=two.offset) != two:
        return a.low < b.high + _reach(two) and b.low < a.high + _reach(one)
    apart = (two.offset - one.offset) % one.slots
    if not apart:
        return a.low < b.high and b.low < a.high
    moves = (apart * one.pitch, (apart - one.slots) * one.pitch)
    return any(a.low < b.high + move and b.low + move < a.high for move in moves)


def _reach(ring: Ring | None) -> int:
    return 0 if ring is None else ring.pitch * (ring.slots - 1)


def _everywhere(access: ByteAccess, counts: Mapping[str, int]) -> ByteAccess:
    low, high = access.low, access.high
    for name, step in access.terms:
        reach = step * (counts[name] - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    return access._replace(low=low, high=high)
