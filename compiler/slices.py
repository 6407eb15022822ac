"""Which part of a tensor every core keeps between groups, so that no core needs what others keep.

A tensor is cut like the results of the groups around it. A core keeps its share, and beside it what
the later groups need on that core. Either the group that makes the tensor computes that there
as well, or cores pass each other what they have made (`compiler.geometry.handover`):

    conv, 3 taps, rows 0:16 on 2 cores      core 0 keeps rows 0:9       core 1 keeps rows 7:16

Who sums over channels needs all of them: where cores split channels, or the groups around a tensor
are cut in different ways, each keeps all of it. What reads the channels that it makes needs no
others:

    conv, channels 0:64 on 2 cores          each makes 32, keeps 0:64
    depthwise, channels 0:64 on 2 cores     core 0 keeps 0:32           core 1 keeps 32:64
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.geometry.cuts import boxes, channel_axis, grain_of, grids, slices_of
from compiler.geometry.walk import Unwalkable, Walker
from compiler.group import Group
from compiler.nest.bounds import Box, union
from simmodel.arch import Arch

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
    name: str, readers: Sequence[Group], arch: Arch, cores: int, *, passing: bool = False
) -> Iterator[Slicing]:
    """The ways in which several of `cores` can keep the tensor `name` for groups that read it.

    Args:
        name: of the tensor.
        readers: at least one.
        arch: the machine.
        cores: of the machine that take part.
        passing: whether they can pass each other parts of it.
    """
    shape = readers[0].tensors[name].shape
    whole = tuple((0, extent) for extent in shape)
    for shares, wider in _cuts(name, shape, readers, arch, cores):
        if wider != shares and all(kept == whole for kept in wider):
            continue  # each would make all of it; passed it is below
        if passing and wider != shares:
            yield Slicing(wider, passed=True)
        yield Slicing(wider)
    if passing:
        yield Slicing((whole,) * cores, passed=True)


def _cuts(
    name: str, shape: tuple[int, ...], readers: Sequence[Group], arch: Arch, cores: int
) -> Iterator[tuple[Slices, Slices]]:
    """By core, its share of a tensor, and with that what it needs beside it."""
    channels = channel_axis(len(shape))
    grain = {} if channels is None else {channels: grain_of(shape, channels, arch)}
    among = () if channels is None else grids(shape, [channels], cores)
    for grid in (*slices_of(shape, cores), *among):
        shares = boxes(shape, grid, grain)
        wider = _widened(name, shares, readers, grid, grain) if len(shares) > 1 else None
        if wider is not None:
            yield shares, wider


def _widened(
    name: str,
    shares: Slices,
    readers: Sequence[Group],
    grid: dict[int, int],
    grain: dict[int, int],
) -> Slices | None:
    """`shares` and what each core needs beside its own; None where a reader cannot be cut so."""
    found = list(shares)
    for group in readers:
        last = group.tensors[group.results[-1]].shape
        if any(axis >= len(last) for axis in grid):
            return None
        parts = boxes(last, grid, grain)
        if len(parts) != len(shares):
            return None
        if any(len(kept.slices) < len(parts) for kept in group.kept.values()):
            return None  # what it keeps already lies on fewer cores
        for core, part in enumerate(parts):
            walker = Walker(group, frozenset({name}), core=core)
            try:
                (moment,) = walker.walk((), part).moments
            except Unwalkable:
                return None
            if name in moment.holds:
                found[core] = union(found[core], moment.holds[name].box)
    return tuple(found)
