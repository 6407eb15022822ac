"""Expansion of a stream with loops: its dynamic sequence of instructions, without copying them.

Every place in a stream where an instruction stands is a *site*. A site inside loops occurs many
times; one numpy expression gives its addresses for all occurrences. Loops around a single
instruction that carry nothing from one iteration to the next are not expanded: the site keeps
them as `repeats`, so timing can treat the burst in closed form and execution in bulk (`wide`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simmodel.errors import NotRunnable, TooLong
from simmodel.isa import Instruction, Item, Loop, MatrixInstruction, Product
from simmodel.isa.base import instructions, operand_fields
from simmodel.isa.operand_rules import WALKED, shares_bytes
from simmodel.isa.region import Address, Operand, Ring, Terms, cached_property, replace

Turns = tuple[tuple[str, int], ...]
"""Loop variables and counts, outermost first."""
Numbers = NDArray[np.int64]
_SUMS = (MatrixInstruction, Product)
"""Instructions that accumulate products."""
LISTED = 2**27
"""Limit of the occurrences in a stream: each takes memory and time."""


@dataclass(frozen=True, eq=False)
class Site:
    """One place in a stream: an instruction, the loops around it, and those it repeats in."""

    instruction: Instruction
    loops: Turns
    repeats: Turns
    wide: Instruction
    """One instruction with the effect of all repeats."""

    @cached_property
    def times(self) -> int:
        """Instructions issued at each occurrence."""
        return math.prod(count for _, count in self.repeats)

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Operands of `wide`, reads first."""
        return self.wide.operands()

    @cached_property
    def addresses(self) -> tuple[Numbers, ...]:
        """For each of `operands`, its address at every occurrence, in order of time."""
        return tuple(addresses(operand.address, self.loops) for operand in self.operands)

    @cached_property
    def reaches(self) -> tuple[tuple[int, int], ...]:
        """For each of `operands`, the lowest and one past the highest byte of all occurrences."""
        found = []
        for operand, at in zip(self.operands, self.addresses, strict=True):
            # Most sites occur once, and plain numbers are much faster than arrays of one.
            first, last = operand.prototype.span
            low, high = (at[0], at[0]) if len(at) == 1 else (at.min(), at.max())
            found.append((int(low) + first, int(high) + last))
        return tuple(found)


def numbered(keys: NDArray[Any]) -> NDArray[np.int64]:
    """For every entry of `keys`, whole numbers, how many before it are equal to it."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))  # no key is -1
    counts = np.diff(starts, append=len(keys))
    result = np.empty(len(keys), np.int64)
    result[order] = np.arange(len(keys)) - np.repeat(starts, counts)
    return result


@dataclass(frozen=True, eq=False)
class LoopPlace:
    """Where the iterations of a loop lie among the occurrences of a stream."""

    variable: str
    count: int
    start: int
    """Occurrences before its first iteration, from the beginning of what is around it."""
    length: int
    """Occurrences of one iteration."""
    sites: range
    inner: tuple[LoopPlace, ...]

    @cached_property
    def stride(self) -> int:
        """Iterations of at least eight occurrences, a power of two as most rings have slots."""
        return 1 << max(0, -(-8 // self.length) - 1).bit_length()


Turn = tuple[LoopPlace, int, int]
"""A loop, the position of its first occurrence, and the iteration that it is in."""


def turns_around(loops: tuple[LoopPlace, ...], position: int) -> tuple[tuple[Turn, ...], float]:
    """Loops around the occurrence at `position`, outermost first; where the next iteration of any
    loop begins."""
    turns: list[Turn] = []
    base, following = 0, math.inf
    while loops:
        index = bisect_right(loops, position - base, key=lambda loop: loop.start)
        if index < len(loops):
            following = min(following, base + loops[index].start)
        if not index:
            break
        loop = loops[index - 1]
        first = base + loop.start
        turn = (position - first) // loop.length
        if turn >= loop.count:
            break
        turns.append((loop, first, turn))
        base, loops = first + turn * loop.length, loop.inner
        if turn + loop.stride < loop.count:
            following = min(following, base + loop.stride * loop.length)
    return tuple(turns), following


@dataclass(frozen=True)
class Expansion:
    """Sites of a stream, and the order of their occurrences."""

    sites: tuple[Site, ...]
    order: NDArray[np.int32]
    """Site index of every occurrence, in program order."""
    loops: tuple[LoopPlace, ...]
    """The outermost loops that repeat an occurrence, in program order."""

    @cached_property
    def occurrence(self) -> NDArray[np.int64]:
        """For every entry of `order`, its occurrence number at its site."""
        return numbered(self.order)

    @cached_property
    def issued(self) -> int:
        """Instructions issued, repeats counted one by one."""
        times = np.array([site.times for site in self.sites], np.int64)
        return int(times[self.order].sum()) if len(self.order) else 0


def expand(stream: tuple[Item, ...]) -> Expansion:
    """Sites and order of `stream`.

    Raises:
        NotRunnable: an instruction breaks its contract, or a loop never runs.
        TooLong: that are more than can be listed.
    """
    for instruction, loops in instructions(stream):
        for name, count in loops:
            if count < 1:
                raise NotRunnable(f"loop {name} runs {count} times")
        if instruction.breaches:
            said = instruction.breaches[0][1]
            raise NotRunnable(f"{instruction.MNEMONIC} on {instruction.engine}: {said}")
    sites: list[Site] = []
    order, places = _expand_items(stream, (), sites)
    return Expansion(tuple(sites), order, places)


def _expand_items(
    items: tuple[Item, ...], loops: Turns, sites: list[Site]
) -> tuple[NDArray[np.int32], tuple[LoopPlace, ...]]:
    parts: list[NDArray[np.int32]] = []
    places: list[LoopPlace] = []
    length = 0
    for item in items:
        first = len(sites)
        burst = _burst(item, loops)
        if burst is not None:
            instruction, outer, repeats, wide = burst
            _listable(times := math.prod(c for _, c in outer))
            if repeats and any(o.bytes >= WALKED for o in wide.operands()):
                turns = math.prod(count for _, count in repeats)
                said = f"{instruction.MNEMONIC} on {instruction.engine} in {turns} turns"
                raise TooLong(f"{said} walks {WALKED} bytes or more")
            parts.append(np.full(times, first, np.int32))
            sites.append(Site(instruction, (*loops, *outer), repeats, wide))
            place: tuple[LoopPlace, ...] = ()
            within = 1
            for depth, (name, count) in reversed(list(enumerate(outer))):
                start = 0 if depth else length
                place = (LoopPlace(name, count, start, within, range(first, first + 1), place),)
                within *= count
            places += place
        elif isinstance(item, Loop):
            body, inner = _expand_items(item.body, (*loops, (item.variable, item.count)), sites)
            _listable(len(body) * item.count)
            parts.append(np.tile(body, item.count))
            if len(body):
                own = range(first, len(sites))
                places.append(LoopPlace(item.variable, item.count, length, len(body), own, inner))
        length += len(parts[-1])
    return np.concatenate(parts) if parts else np.empty(0, np.int32), tuple(places)


def _listable(count: int) -> None:
    if count >= LISTED:
        raise TooLong(f"a loop stands for {count} instructions, expected fewer than {LISTED}")


def _burst(item: Item, loops: Turns) -> tuple[Instruction, Turns, Turns, Instruction] | None:
    """The single instruction of a perfect loop nest, its expanded loops, its repeats, and one
    instruction for all repeats."""
    turns: list[tuple[str, int]] = []
    while isinstance(item, Loop):
        if len(item.body) != 1:
            return None
        turns.append((item.variable, item.count))
        item = item.body[0]
    first, wide = len(turns), item
    while first > 0:
        wider = _bulk(item, wide, turns[first - 1], (*loops, *turns[: first - 1]))
        if wider is None:
            break
        first, wide = first - 1, wider
    return item, tuple(turns[:first]), tuple(turns[first:]), wide


def _bulk(
    instruction: Instruction, inside: Instruction, turn: tuple[str, int], outer: Turns
) -> Instruction | None:
    """The iterations of the loop `turn`, inside `outer`, as one wide instruction, given one for all
    loops inside it; None if their order matters."""
    synchronizes = instruction.waits or instruction.signals or instruction.notifies
    if synchronizes or not instruction.BULK_OPERANDS:
        return None
    variable, count = turn
    if count > 1 and not _independent(instruction, variable):
        return None
    for operand in instruction.operands():  # strides of what lies together are in elements
        if operand.per_item > 1 and operand.address.step(variable) % operand.itemsize:
            return None
    wide = widened(inside, variable, count)
    # A read may see what another iteration wrote, or two iterations write one byte.
    pairs = ((source, target) for source in wide.reads() for target in wide.writes())
    carries = any(_may_meet(source, target, outer) for source, target in pairs)
    ordered = carries or any(shares_bytes(operand) for operand in wide.writes())
    return None if count > 1 and ordered else wide


def _independent(instruction: Instruction, variable: str) -> bool:
    """Whether iterations of `variable` do not overwrite each other, or only accumulate."""
    rings = (operand.address.ring for operand in instruction.operands())
    if any(variable in dict(ring.terms) for ring in rings if ring is not None):
        return False
    still = any(target.address.step(variable) == 0 for target in instruction.writes())
    if not isinstance(instruction, _SUMS):
        return not still
    if still and not _accumulates(instruction):
        return False
    # It is a row, column, reduction or batch dimension of one product.
    operands = (instruction.a, instruction.w, instruction.dst)
    left, right, target = (operand.address.step(variable) != 0 for operand in operands)
    return (left or right) if target else (left and right)


def _accumulates(instruction: MatrixInstruction | Product) -> bool:
    """Whether its products are added to what is there."""
    partial, target = instruction.partial, instruction.dst
    if partial is None or (partial.address, partial.dtype) != (target.address, target.dtype):
        return False
    if isinstance(instruction, Product):
        return True
    clipped = instruction.low > -math.inf or instruction.high < math.inf
    scaled = target.scale is not None or target.zero != 0
    return not (
        clipped or scaled or instruction.multiplier or instruction.bias or instruction.added
    )


def _may_meet(source: Operand, target: Operand, outer: Turns) -> bool:
    """Whether different iterations may share bytes of `source` and `target`.

    Loops around them that move both alike do not change their distance.
    """
    if source.memory != target.memory:
        return False
    same_place = (source.address, source.strides) == (target.address, target.strides)
    if same_place and (source.shape, source.itemsize) == (target.shape, target.itemsize):
        return False
    alike = _drift(source.address) == _drift(target.address)
    counts = dict(outer)
    low, high = target.bounds if alike else target.reach(counts)
    start, end = source.bounds if alike else source.reach(counts)
    return start < high and low < end


def _drift(address: Address) -> tuple[dict[str, int], Ring | None]:
    """Range by which the surrounding loops move an address."""
    steps = {name: address.step(name) for name, _ in address.terms}
    return {name: step for name, step in steps.items() if step}, address.ring


def widened(instruction: Instruction, variable: str, count: int) -> Instruction:
    """`instruction` with one more leading dimension in every operand, for a loop around it."""
    found = ((name, getattr(instruction, name)) for name in operand_fields(type(instruction)))
    operands = {n: _widen(o, variable, count) for n, o in found if isinstance(o, Operand)}
    return replace(instruction, **operands)


def _widen(operand: Operand, variable: str, count: int) -> Operand:
    address = operand.address
    kept: Terms = tuple([term for term in address.terms if term[0] != variable])
    unit = operand.itemsize if operand.per_item > 1 else 1
    step = address.step(variable) * operand.per_item // unit
    return replace(
        operand, address=Address(address.base, kept, address.ring),
        shape=(count, *operand.shape), strides=(step, *operand.strides), limits=(),
    )  # fmt: skip


def addresses(address: Address, loops: Turns) -> Numbers:
    """Addresses for all iterations of `loops`, outermost slowest."""
    ring = address.ring
    if not loops:  # most occur once, and plain numbers are much faster than arrays of one
        return np.array([address.at({}) if ring else address.base], np.int64)
    counts = tuple([count for _, count in loops])
    steps = tuple([address.step(name) for name, _ in loops])
    if ring is None:
        return address.base + _moves(counts, steps)
    turns = tuple([sum(by for n, by in ring.terms if n == name) for name, _ in loops])
    slots = (ring.offset + _moves(counts, turns)) % ring.slots
    return address.base + _moves(counts, steps) + ring.pitch * slots


@lru_cache(maxsize=1 << 14)
def _moves(counts: tuple[int, ...], steps: tuple[int, ...]) -> Numbers:
    """How far loops with these `counts` have moved something that each turn of them moves by a
    step: equal layers ask for the same."""
    grid = np.ix_(*(np.arange(count, dtype=np.int64) for count in counts))
    moved = sum(step * values for step, values in zip(steps, grid, strict=True))
    return np.broadcast_to(moved, counts).ravel()
