"""Whether groups of a program do what other groups do, on other tensors: their instructions are the
same but for addresses, and each address is as far from the other one as the tensors are.

What need not be executed because it is equal is so proved to be equal: a load of another layer's
weights is not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from simmodel.arch.base import OFF_CHIP
from simmodel.program.expand import Site
from simmodel.program.program import Program

Start = tuple[str, int]
"""Memory, and the first byte of a tensor there."""
Starts = Sequence[Start | None]
"""Of all tensors of a group off chip; None: what is touched of one is on chip."""
_Queues = dict[tuple[int, str], list[Site]]
"""By core and engine."""


def unlike(program: Program, twins: Mapping[int, int], starts: Mapping[int, Starts]) -> list[int]:
    """Groups that do not do what their twins do.

    Args:
        program: whose groups they are.
        twins: groups, and those that they should be like.
        starts: where the tensors of either lie, in the order of the parts that they play.
    """
    wanted = {*twins, *twins.values()}
    works: dict[int, _Queues] = {number: {} for number in wanted}
    for core, expansion in enumerate(program.expanded):
        for site in expansion.sites:
            group = program.origins[site.instruction.origin].group
            if group in wanted and site.instruction.writes():
                key = core, site.instruction.engine
                works[group].setdefault(key, []).append(site)
    return [
        number
        for number, twin in twins.items()
        if not _queues_alike(works[twin], works[number], starts[twin], starts[number])
    ]


def _queues_alike(own: _Queues, other: _Queues, starts: Starts, others: Starts) -> bool:
    if {key: len(sites) for key, sites in own.items()} != {k: len(s) for k, s in other.items()}:
        return False
    pairs = [(a, b) for a, b in zip(starts, others, strict=True) if a is not None and b is not None]
    places = sorted((*a, b[1] - a[1]) for a, b in pairs if a[0] == b[0])
    if len(places) != sum(start is not None for start in (*starts, *others)) / 2:
        return False
    firsts, moves = [place[:2] for place in places], [place[2] for place in places]
    return all(
        _follows_tensors(a, b, firsts, moves)
        for key, sites in own.items()
        for a, b in zip(sites, other[key], strict=True)
    )


def _follows_tensors(own: Site, other: Site, firsts: Sequence[Start], moves: Sequence[int]) -> bool:
    """Whether a site is the `own` one at addresses that follow the tensors."""
    if own.wide.prototype is not other.wide.prototype or own.times != other.times:
        return False
    operands = zip(own.operands, own.addresses, other.addresses, strict=True)
    for operand, before, after in operands:
        by = 0
        if operand.memory in (*OFF_CHIP, "shared"):  # its first element lies in its tensor
            by = moves[bisect_right(firsts, (operand.memory, operand.address.base)) - 1]
        if len(before) != len(after) or (after - before != by).any():
            return False
    return True
