"""Parts of cores that follow a length: each core has its share of what there is.

The one idea: equal parts of an open dimension begin at multiples of their size, so a register that
holds the size at the actual length moves whatever a core touches, by as much as its number says:

    2 cores, rows 0:512     core 0 has 0:256,   core 1 256:512
    at 100 rows             core 0 has 0:50,    core 1  50:100

What moves how far with a core's part is read off the walks of the cores: those that differ in
nothing else touch the same boxes, shifted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.geometry.boxes import Range, Stop, scaled, summed
from compiler.geometry.tile_trace import TileTrace
from compiler.plan.make_plan import Plan
from compiler.schedule_ir.group import Group
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Tensor
from compiler.tensor_ir.registers import share
from simmodel.isa.region import Register, Terms


@dataclass(frozen=True)
class Follow:
    """How one dimension of what a core touches moves with its part, and where that ends."""

    terms: Terms
    stop: Stop


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
        replace(span, terms=summed(span.terms, f.terms), stop=f.stop) if f else span
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
        works = [_work_boxes(group, walked) for walked in plan.walked]
        holds = [_hold_boxes(walked) for walked in plan.walked]
    else:
        works, holds = [{last.name: [part]} for part in parts], [{} for _ in parts]
    moving, lying = (_Shifts(axes, parts, boxes).follows() for boxes in (works, holds))
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


def _work_boxes(group: Group, walked: TileTrace) -> Boxes:
    found: Boxes = {}
    for moment in walked.moments:
        for layer, box in zip(group.layers, moment.work, strict=True):
            if box is not None:
                found.setdefault(layer.result.name, []).append(box)
        for name, box in moment.out.items():
            found.setdefault(name, []).append(box)
    return _over_turns(found, walked)


def _hold_boxes(walked: TileTrace) -> Boxes:
    found: Boxes = {}
    for moment in walked.moments:
        for name, hold in moment.holds.items():
            found.setdefault(name, []).append(hold.box)
    return _over_turns(found, walked)


def _over_turns(boxes: Boxes, walked: TileTrace) -> Boxes:
    """`boxes` with those of the last turn of the loop around all tiles."""
    turns = walked.repeats - 1
    if not turns:
        return boxes
    for name, steps in (walked.strides or {}).items():
        known = boxes.get(name, [])
        known += [
            tuple((low + turns * step, size) for (low, size), step in zip(box, steps, strict=True))
            for box in known
        ]
    return boxes


@dataclass(frozen=True)
class _Shifts:
    """How boxes of cores are shifted against each other."""

    axes: Sequence[_SplitAxis]
    parts: Sequence[Box]
    """Of the last result, by core."""
    boxes: Sequence[Boxes]
    """By core."""

    def follows(self) -> Sequence[Follows] | None:
        """By core; None where they differ in more than where they lie."""
        if any(boxes.keys() != self.boxes[0].keys() for boxes in self.boxes):
            return None
        found: list[dict[str, tuple[Follow | None, ...]]] = [{} for _ in self.boxes]
        for name in self.boxes[0]:
            factors = self._factors(name)
            if factors is None:
                return None
            for core, follows in enumerate(found):
                made = self._dimension_follows(core, name, factors)
                if made is None:
                    return None
                follows[name] = made
        return found

    def _factors(self, name: str) -> dict[int, tuple[_SplitAxis, int]] | None:
        """Dimension of a tensor that moves -> with which axis, and by how many positions for one;
        None where that is not regular."""
        found: dict[int, tuple[_SplitAxis, int]] = {}
        for axis in self.axes:
            steps = {self._core_step(name, *pair) for pair in self._neighbours(axis)}
            if len(steps) != 1 or None in steps:
                return None
            (step,) = steps
            for dim, moved in enumerate(step or ()):
                factor, rest = divmod(moved, axis.size)
                if rest or moved < 0 or (moved and dim in found):
                    return None
                if factor:
                    found[dim] = axis, factor
        return found

    def _neighbours(self, axis: _SplitAxis) -> Iterator[tuple[int, int]]:
        """Cores whose parts follow on each other along an axis, and are alike in all else."""
        cores = {part: core for core, part in enumerate(self.parts)}
        for part, core in cores.items():
            start, size = part[axis.dim]
            then = (*part[: axis.dim], (start + size, size), *part[axis.dim + 1 :])
            if then in cores:
                yield core, cores[then]

    def _core_step(self, name: str, core: int, other: int) -> tuple[int, ...] | None:
        """What all boxes of a tensor are moved by from one core to the next."""
        mine, theirs = self.boxes[core][name], self.boxes[other][name]
        if len(mine) != len(theirs):
            return None
        found = {
            tuple(b - a for (a, _), (b, _) in zip(one, two, strict=True))
            for one, two in zip(mine, theirs, strict=True)
        }
        alike = [[n for _, n in box] for box in mine] == [[n for _, n in box] for box in theirs]
        return found.pop() if len(found) == 1 and alike else None

    def _dimension_follows(
        self, core: int, name: str, factors: Mapping[int, tuple[_SplitAxis, int]]
    ) -> tuple[Follow | None, ...] | None:
        """How each dimension of a tensor moves; None where its boxes are not just the core's
        share."""
        boxes = self.boxes[core][name]
        found: list[Follow | None] = []
        for dim in range(len(boxes[0])):
            if dim not in factors:
                found.append(None)
                continue
            axis, factor = factors[dim]
            low = min(box[dim][0] for box in boxes)
            end = max(sum(box[dim]) for box in boxes)
            if end - low != factor * axis.size:
                return None
            number, by = self.parts[core][axis.dim][0] // axis.size, axis.register.name
            stop = Stop(end, ((by, factor * (number + 1)),))
            found.append(Follow(scaled(((by, factor),), number), stop))
        return tuple(found)
