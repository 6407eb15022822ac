"""Whether groups of a program do what other groups do, on other tensors: their instructions are the
same but for addresses, and each address is as far from the other one as the tensors are.

What need not be executed because it is equal is so proved to be equal: a load of another layer's
weights is not. Where layers are quantized, instructions have scales, zero points and clips of their
layer. Which of the operator's numbers one is follows from the groups that are executed:

    executed    (a - 4) * (w - 0) / 0.02    the operator's a has zero point 4, its result scale 0.02
                (a - 0) * (w - 0) / 0.03    ..                              0                   0.03
    another     (a - 7) * (w - 0) / 0.05    has to be what its own operator says of a, w, result
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simmodel.arch.base import OFF_CHIP
from simmodel.isa import Instruction, Item
from simmodel.isa.region import Operand
from simmodel.program.expand import Site
from simmodel.program.program import Program
from simmodel.program.substitute import map_operands

Start = tuple[str, int]
"""Memory, and the first byte of a tensor there."""
Starts = Sequence[Start | None]
"""Of all tensors of a group off chip; None: what is touched of one is on chip."""
_Queues = dict[tuple[int, str], list[Site]]
"""By core and engine."""
Numbers = tuple[float | None, ...]
"""What an operator says of the encodings of its operands and of its result, and of clips."""
UNCODED: Numbers = (None, 0, -math.inf, math.inf)
"""What instructions say where there is nothing of that."""


def unlike(
    program: Program, twins: Mapping[int, int], starts: Mapping[int, Starts],
    encodings: Mapping[int, Sequence[Numbers]], executed: Mapping[int, Sequence[int]],
) -> list[int]:  # fmt: skip
    """Groups that do not do what their twins do.

    Args:
        program: whose groups they are.
        twins: groups, and those that they should be like.
        starts: where the tensors of either lie, in the order of the parts that they play.
        encodings: by group, those of its operators, in the order of its origins.
        executed: other groups that are like a twin, and known to be right.
    """
    wanted = {*twins, *twins.values(), *(each for twin in executed for each in executed[twin])}
    works: dict[int, _Queues] = {number: {} for number in wanted}
    firsts: dict[int, int] = {}
    for number, origin in enumerate(program.origins):
        firsts.setdefault(origin.group, number)
    for core, expansion in enumerate(program.expanded):
        for site in expansion.sites:
            group = program.origins[site.instruction.origin].group
            if group in wanted and site.instruction.writes():
                key = core, site.instruction.engine
                works[group].setdefault(key, []).append(site)
    lengths = {n: {key: len(sites) for key, sites in works[n].items()} for n in wanted}
    found = []
    for number, twin in twins.items():
        like = [n for n in executed.get(twin, ()) if lengths[n] == lengths[twin]]
        says = tuple(
            _Says(works[n], encodings.get(n, ()), firsts[n]) for n in (number, twin, *like)
        )
        if lengths[number] != lengths[twin] or not _alike(says, starts[twin], starts[number]):
            found.append(number)
    return found


@dataclass(frozen=True)
class _Says:
    """What a group does, and what its operators say."""

    queues: _Queues
    encodings: Sequence[Numbers]
    first: int
    """Its first origin."""

    def of(self, site: Site) -> Numbers:
        """What the operator says that a site works for."""
        number = site.instruction.origin - self.first
        return self.encodings[number] if number < len(self.encodings) else UNCODED


def _alike(groups: Sequence[_Says], starts: Starts, others: Starts) -> bool:
    """Whether the first group is the second one on its own tensors, which is right as are those
    behind it."""
    pairs = [(a, b) for a, b in zip(starts, others, strict=True) if a is not None and b is not None]
    places = sorted((*a, b[1] - a[1]) for a, b in pairs if a[0] == b[0])
    if len(places) != sum(start is not None for start in (*starts, *others)) / 2:
        return False
    firsts, moves = [place[:2] for place in places], [place[2] for place in places]
    coded, found = groups[0].encodings != groups[1].encodings, dict[tuple[int, ...], bool]()
    for key in groups[0].queues:
        for sites in zip(*(group.queues[key] for group in groups), strict=True):
            if not _follows_tensors(sites[1], sites[0], firsts, moves):
                return False
            plain = [site.wide.prototype for site in sites]
            if not coded:
                if plain[0] is not plain[1]:
                    return False
                continue
            says = [group.of(site) for group, site in zip(groups, sites, strict=True)]
            asked = *map(id, plain), *map(id, says)
            if asked not in found:
                found[asked] = _follows_operator(says, plain)
            if not found[asked]:
                return False
    return True


def _follows_tensors(own: Site, other: Site, firsts: Sequence[Start], moves: Sequence[int]) -> bool:
    """Whether a site is the `own` one at addresses that follow the tensors."""
    if own.times != other.times or len(own.operands) != len(other.operands):
        return False
    for number, (operand, alike) in enumerate(zip(own.operands, other.operands, strict=True)):
        by, here, there = 0, operand.address, alike.address
        if operand.memory in (*OFF_CHIP, "shared"):  # its first element lies in its tensor
            by = moves[bisect_right(firsts, (operand.memory, here.base)) - 1]
        if not own.loops and not other.loops and here.ring is there.ring is None:
            if there.base - here.base != by:  # most sites occur once
                return False
            continue
        before, after = own.addresses[number], other.addresses[number]
        if len(before) != len(after) or (after - before != by).any():
            return False
    return True


def _follows_operator(says: Sequence[Numbers], instructions: Sequence[Instruction]) -> bool:
    """Whether the first of `instructions` is the second one with the numbers of its own operator:
    those in all places where the operators of all others, which are right, have theirs."""
    (own, *right), ((has, plain), *others) = says, map(_numbers, instructions)
    if any(other != plain for _, other in others) or len(set(map(len, says))) > 1:
        return False
    places = list(zip(own, *right, strict=True))
    for here, *there in zip(has, *(numbers for numbers, _ in others), strict=True):
        meant = [number for number, *known in places if known == there]
        if not meant or any(number != here for number in meant):
            return False
    return True


def _numbers(instruction: Instruction) -> tuple[Numbers, Item]:
    """Scales, zero points and clips of an instruction, and what it is without them."""
    numbers: list[float | None] = []

    def bare(operand: Operand) -> Operand:
        numbers.extend((operand.scale, operand.zero))
        return replace(operand, scale=None, zero=0)

    plain = map_operands(instruction, bare)
    clips: dict[str, Any] = {n: 0.0 for n, value in vars(plain).items() if type(value) is float}
    return (*numbers, *map(vars(plain).__getitem__, clips)), replace(plain, **clips)
