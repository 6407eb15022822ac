"""Which part of a tensor every core keeps between groups, so that no core needs what others keep.

A tensor is cut like the results of the groups around it. A core keeps its share, and beside it what
the later groups need on that core. Either the group that makes the tensor computes that there
as well, or cores pass each other what they have made (`compiler.geometry.handover`):

    conv, 3 taps, rows 0:16 on 2 cores      core 0 keeps rows 0:9       core 1 keeps rows 7:16
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.geometry.cuts import boxes, cut_axes, grids
from compiler.geometry.walk import Unwalkable, Walker
from compiler.group import Group
from compiler.nest.bounds import Box, union

Slices = tuple[Box, ...]
"""By core, the part of a tensor that it keeps."""


@dataclass(frozen=True)
class Slicing:
    """One way in which cores keep a tensor."""

    slices: Slices = ()
    """None: the one core keeps all of it."""
    passed: bool = False
    """Whether cores pass each other what they keep beside their own shares."""


def slicings(
    name: str, readers: Sequence[Group], cores: int, *, passing: bool = False
) -> Iterator[Slicing]:
    """The ways in which several of `cores` can keep the tensor `name` for groups that read it.

    Args:
        name: of the tensor.
        readers: at least one.
        cores: of the machine.
        passing: whether they can pass each other parts of it.
    """
    shape = readers[0].tensors[name].shape
    for grid in grids(shape, cut_axes(shape), cores):
        shares = boxes(shape, grid, {})
        wider = _widened(name, shares, readers, grid)
        if len(shares) < 2 or wider is None:
            continue
        if passing and wider != shares:
            yield Slicing(wider, passed=True)
        yield Slicing(wider)


def _widened(
    name: str, shares: Slices, readers: Sequence[Group], grid: dict[int, int]
) -> Slices | None:
    """`shares` and what each core needs beside its own; None where a reader cannot be cut so."""
    found = list(shares)
    for group in readers:
        last = group.tensors[group.results[-1]].shape
        if any(axis >= len(last) for axis in grid):
            return None
        parts = boxes(last, grid, {})
        if len(parts) != len(shares):
            return None
        for core, part in enumerate(parts):
            walker = Walker(group, frozenset({name}), core=core)
            try:
                (moment,) = walker.walk((), part).moments
            except Unwalkable:
                return None
            if name in moment.holds:
                found[core] = union(found[core], moment.holds[name].box)
    return tuple(found)
