"""Parts of cores that follow a length: each core has its share of what there is.

The one idea: equal parts of an open dimension begin at multiples of their size, so a register that
holds the size at the actual length moves whatever a core touches, by as much as its number says:

    2 cores, rows 0:512     core 0 has 0:256,   core 1 256:512
    at 100 rows             core 0 has 0:50,    core 1  50:100

What moves how far with a core's part is read off the walks of the cores: those that differ in
nothing else touch the same boxes, shifted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from compiler.geometry.boxes import Range, scaled, summed
from compiler.geometry.tile_trace import TileStep, TileTrace
from compiler.plan.make_plan import Plan
from compiler.schedule_ir.group import Group
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Tensor
from compiler.tensor_ir.registers import Count, share
from simmodel.isa.region import Register, Terms


@dataclass(frozen=True)
class Follow:
    """How one dimension of what a core touches moves with its part, and where that ends."""

    terms: Terms
    stop: Count


Follows = Mapping[str, tuple[Follow | None, ...]]
"""By tensor and dimension; None, or no tensor: it stands still."""


@dataclass(frozen=True)
class Following:
    """How the cores' parts of one group follow lengths."""

    registers: tuple[Register, ...] = ()
    works: Sequence[Follows] = ()
    """By core: what it computes, stores and hands on."""
    holds: Sequence[Follows] = ()
    """By core: where what it holds begins."""

    def work(self, core: int, tensor: str, box: Sequence[Range]) -> tuple[Range, ...]:
        """`box` of what a core computes of a tensor, moved."""
        return _follow_sizes(self.works, core, tensor, box)

    def buffered_box(self, core: int, tensor: str, box: Sequence[Range]) -> tuple[Range, ...]:
        """`box` of what it holds."""
        return _follow_sizes(self.holds, core, tensor, box)


STILL = Following()
"""Of parts that follow nothing."""


def _follow_sizes(
    follows: Sequence[Follows], core: int, tensor: str, box: Sequence[Range]
) -> tuple[Range, ...]:
    found = follows[core].get(tensor, ()) if follows else ()
    if not found:
        return tuple(box)
    return tuple(
        span._replace(terms=summed(span.terms, f.terms), stop=f.stop) if f else span
        for span, f in zip(box, found, strict=True)
    )


def following(plans: Mapping[int, Plan], registers: Sequence[Register]) -> dict[int, Following]:
    """By step, how parts follow lengths. What stays on chip lies where all its users say: where
    they differ, none of them moves."""
    found = {number: _of_plan(plan, registers) for number, plan in plans.items()}
    users: dict[str, dict[int, str]] = {}
    for number, plan in plans.items():
        for name, kept in plan.schedule.group.residents.items():
            users.setdefault(kept.whole, {})[number] = name
    while True:
        apart = [
            number
            for named in users.values()
            if len({_placement_by_core(found[n].holds, name) for n, name in named.items()}) > 1
            for number in named
            if found[number] is not STILL
        ]
        if not apart:
            return found
        found |= dict.fromkeys(apart, STILL)


def _placement_by_core(holds: Sequence[Follows], name: str) -> object:
    """By core, where a tensor that stays lies; None: always where it is at the upper edge."""
    spans = tuple(follows.get(name, ()) for follows in holds)
    return (name, spans) if any(f for span in spans for f in span) else None


@dataclass(frozen=True)
class _SplitAxis:
    """A dimension of a group's last result that cores share."""

    dim: int
    size: int
    """Of a part at the upper edge."""
    register: Register
    """Holds the size at other lengths."""


def _of_plan(plan: Plan, registers: Sequence[Register]) -> Following:
    group, parts = plan.schedule.group, plan.schedule.parts
    last = group.tensors[group.results[-1]]
    sliced = any(home.slices > 1 for home in group.shared.values())
    axes = [] if sliced else list(_axes(last, parts, registers))
    if not axes:
        return STILL
    if plan.walked:
        works = [_boxes(walked, partial(_worked, group)) for walked in plan.walked]
        holds = [
            _boxes(walked, lambda tile: ((name, hold.box) for name, hold in tile.holds.items()))
            for walked in plan.walked
        ]
    else:
        works, holds = [{last.name: [part]} for part in parts], [{} for _ in parts]
    moving, lying = (_follows(axes, parts, boxes) for boxes in (works, holds))
    if moving is None or lying is None:
        return STILL
    return Following(tuple(axis.register for axis in axes), moving, lying)


def _axes(
    last: Tensor, parts: Sequence[Box], registers: Sequence[Register]
) -> Iterator[_SplitAxis]:
    """Open dimensions that fall into equal parts, of a share or else a sum of lengths. Along the
    innermost one a part that begins anywhere would not be aligned."""
    for dim, count in enumerate(last.counts):
        extent, size = last.shape[dim], parts[0][dim][1]
        even = all(part[dim][1] == size and part[dim][0] % size == 0 for part in parts)
        if count is None or size == extent or not even or extent % size:
            continue
        if last.storage.strides[dim] == 1:
            continue
        register = share(count, extent // size, registers)
        if register is not None:
            yield _SplitAxis(dim, size, register)


Boxes = dict[str, list[Box]]
"""By tensor, what a core touches of it, tile by tile."""


def _worked(group: Group, moment: TileStep) -> Iterator[tuple[str, Box]]:
    """What a tile computes of each tensor, and what it completes."""
    for layer, box in zip(group.layers, moment.work, strict=True):
        if box is not None:
            yield layer.result.name, box
    yield from moment.out.items()


def _boxes(
    walked: TileTrace, touched: Callable[[TileStep], Iterable[tuple[str, Box]]]
) -> Boxes:  # fmt: skip
    """What all tiles have `touched`, also in the last turn of the loop around them."""
    found: Boxes = {}
    for name, box in chain.from_iterable(map(touched, walked.moments)):
        found.setdefault(name, []).append(box)
    turns = walked.repeats - 1
    for name, steps in (walked.strides or {}).items() if turns else ():
        known = found.get(name, [])
        known += [
            tuple((low + turns * step, size) for (low, size), step in zip(box, steps, strict=True))
            for box in known
        ]
    return found


def _follows(
    axes: Sequence[_SplitAxis], parts: Sequence[Box], boxes: Sequence[Boxes]
) -> Sequence[Follows] | None:
    """By core, how what it touches moves that has one of `parts` of the last result; None where
    cores differ in more than where that lies."""
    if any(own.keys() != boxes[0].keys() for own in boxes):
        return None
    found: list[dict[str, tuple[Follow | None, ...]]] = [{} for _ in boxes]
    for name in boxes[0]:
        spans = [np.array(own[name], np.int64).reshape(len(own[name]), -1, 2) for own in boxes]
        factors = _factors(axes, parts, spans)
        if factors is None:
            return None
        for part, own, follows in zip(parts, spans, found, strict=True):
            lows, ends = own[..., 0].min(axis=0).tolist(), own.sum(axis=2).max(axis=0).tolist()
            made: list[Follow | None] = [None] * len(lows)
            for dim, (axis, factor) in factors.items():
                if ends[dim] - lows[dim] != factor * axis.size:
                    return None  # not just the core's share
                number, by = part[axis.dim][0] // axis.size, axis.register.name
                stop = Count(ends[dim], ((by, factor * (number + 1)),))
                made[dim] = Follow(scaled(((by, factor),), number), stop)
            follows[name] = tuple(made)
    return found


def _factors(
    axes: Sequence[_SplitAxis], parts: Sequence[Box], spans: Sequence[NDArray[np.int64]]
) -> dict[int, tuple[_SplitAxis, int]] | None:
    """Dimension of a tensor that moves from core to core -> with which axis, and by how many
    positions for one; None where that is not regular. `spans`: by core, first position and size of
    each box and dimension."""
    found: dict[int, tuple[_SplitAxis, int]] = {}
    cores = {part: core for core, part in enumerate(parts)}
    for axis in axes:
        steps: set[tuple[int, ...]] = set()
        for part, core in cores.items():
            start, size = part[axis.dim]
            then = (*part[: axis.dim], (start + size, size), *part[axis.dim + 1 :])
            if then not in cores:
                continue
            mine, theirs = spans[core], spans[cores[then]]
            if mine.shape != theirs.shape or (mine[..., 1] != theirs[..., 1]).any():
                return None
            steps |= set(map(tuple, (theirs - mine)[..., 0].tolist()))
        if len(steps) != 1:
            return None
        for dim, moved in enumerate(steps.pop()):
            factor, rest = divmod(moved, axis.size)
            if rest or moved < 0 or (moved and dim in found):
                return None
            if factor:
                found[dim] = axis, factor
    return found
