"""What any schedule of a group takes at least: products that no tiles undercut and elements over
lanes, without a halo and without waiting, and every byte that enters or leaves the group once.
Cheap, so that searches need not price what cannot be better.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from compiler.cost.multicast import Cores, MulticastRoute
from compiler.cost.overlap import copy_rate
from compiler.geometry.tile_trace import TileTrace
from compiler.schedule.fusion.partition import Outlines
from compiler.schedule.tiling.elementwise_tiling import work_of
from compiler.schedule.tiling.layer_price import least_product, products_in_one_piece
from compiler.schedule.tiling.problem import TilingProblem
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate
from compiler.target.group_facts import Facts
from simmodel.arch.base import Latest
from simmodel.arch.record import Arch

Sizes = tuple[int, ...]


@dataclass
class LowerBounds:
    """Bounds on one machine; those of layers are remembered."""

    arch: Arch
    slots: int
    outlines: Outlines
    facts: Facts
    way: MulticastRoute | None = None
    """How loads reach several cores."""
    boxes: dict[tuple[int, Sizes], tuple[float, float]] = field(default_factory=dict)
    """Of layers of one outline and a part of the result, cycles of the matrix and of the vector
    engine."""
    problems: dict[int, TilingProblem] = field(default_factory=dict)
    """Of all parts of layers of one outline one."""

    def __post_init__(self) -> None:
        self._whole = Latest(self._work_and_bytes)

    def least(self, group: Group, cores: int, again: float = 0.0) -> Estimate:
        """An estimate of which no figure is above that of a schedule on up to `cores` cores that
        loads `again` bytes more than once."""
        works, stored = self._whole(group)
        matrix, vector = (cycles / cores for cycles in works)
        moved = {far: stored.get(far, 0) for far in self.arch.far_rates}
        moved[self.arch.constants] += again
        memory = max(size / self.arch.far_rates[far] for far, size in moved.items())
        most = max(matrix, vector, memory)
        return Estimate(most, matrix, vector, memory, sum(moved.values()))

    def _work_and_bytes(self, group: Group) -> tuple[tuple[float, ...], dict[str, float]]:
        """Cycles of the busiest array and of the vector engine on one core, and by memory off chip
        the bytes that surely go to or come from it."""
        arrays, vector = defaultdict[str, float](float), 0.0
        for layer in group.layers:
            on_array, on_lanes = self.work(layer, _all_of(layer))
            arrays[layer.binding.array] += on_array
            vector += on_lanes
        names = _dram_tensors(group) - {*group.shared}
        stored: dict[str, float] = {}
        for name in names:
            far = group.home(name, self.arch)
            stored[far] = stored.get(far, 0) + group.tensors[name].stored
        return (max(arrays.values()), vector), stored

    def in_tiles(self, group: Group, walked: TileTrace, cores: int, again: float) -> Estimate:
        """The same for schedules whose busiest core walks its part like this."""
        arrays, vector = defaultdict[str, float](float), 0.0
        for run in walked.alike:
            for layer, made in zip(group.layers, walked.work, strict=True):
                if (sizes := made.sizes[run.first]) is not None:
                    on_array, on_lanes = self.work(layer, sizes)
                    arrays[layer.binding.array] += run.count * walked.repeats * on_array
                    vector += run.count * walked.repeats * on_lanes
        found = self.least(group, cores, again)
        matrix = max(found.matrix, *arrays.values())
        vector = max(vector, found.vector)
        memory = max(found.memory, self._weights_arrive(group, walked))
        total = max(found.total, matrix, vector, memory)
        return replace(found, total=total, matrix=matrix, vector=vector, memory=memory)

    def _weights_arrive(self, group: Group, walked: TileTrace) -> float:
        """Cycles of a core's load engine for the weights of its part, where cores pass loads on
        through shared memory: what others load for it comes by the same engine."""
        if self.way is None or not self.way.staged:
            return 0.0
        rest = {*group.pinned, *group.residents, *group.shared}
        sizes = defaultdict[str, float](float)
        for position, layer in enumerate(group.layers):
            box = walked.share(position, layer.result.name) if layer.product else None
            if box is not None:
                right = layer.head.operands[1]
                axes = enumerate(zip(box, layer.head.shape, strict=False))
                part = math.prod(own / n for d, ((_, own), n) in axes if right.uses(d))
                for constant in self.facts.layer(layer).constants:
                    if constant.key[2] and constant.key[0] not in rest:
                        sizes[constant.role] += part * constant.loaded
        return max((size / self._rate(role) for role, size in sizes.items()), default=0.0)

    def _rate(self, role: str) -> float:
        """Most bytes that a core's engine brings to a memory in a cycle."""
        ways = [way for way in self.arch.copy_.values() if role in way.to]
        rates = (copy_rate(self.arch, way, far) for way in ways for far in way.from_)
        return max(rates, default=math.inf)

    def work(self, layer: Layer, sizes: Sizes) -> tuple[float, float]:
        """Cycles of the matrix and of the vector engine for `sizes` of a layer's result in one
        piece."""
        key = self.outlines.layer(layer).number, sizes
        if key not in self.boxes:
            if layer.product:
                self.boxes[key] = least_product(self._problem(layer, sizes))
            else:
                matrix, vector = work_of(self._problem(layer, sizes), sizes, attrgetter("least"))
                # What only moves may pass from load to store.
                self.boxes[key] = matrix, 0.0 if layer.copies else vector
        return self.boxes[key]

    def _problem(self, layer: Layer, sizes: Sizes) -> TilingProblem:
        number = self.outlines.layer(layer).number
        if number not in self.problems:
            self.problems[number] = TilingProblem(layer, self.arch, sizes, Cores(1), self.slots)
        return self.problems[number].of(sizes)


def in_one_piece(
    layer: Layer, arch: Arch, slots: int, parts: Sequence[Sizes | None] = (None,)
) -> list[float]:
    """Cycles of the busier engine for each of some parts of a layer (None: all of it) that nothing
    cuts, with operands on the chip. More than the least: about what it takes."""
    boxes = [part or _all_of(layer) for part in parts]
    problem = TilingProblem(layer, arch, boxes[0], Cores(1), slots)
    pieces = {box: problem.of(box) for box in dict.fromkeys(boxes)}
    if layer.product:
        every = dict(zip(pieces, products_in_one_piece([*pieces.values()]), strict=True))
        return [every[box] for box in boxes]
    engines = {box: work_of(piece, box) for box, piece in pieces.items()}
    return [engines[box][0] if layer.copies else max(engines[box]) for box in boxes]


def _all_of(layer: Layer) -> Sizes:
    return layer.head.shape if layer.product else layer.result.shape


def _dram_tensors(group: Group) -> set[str]:
    """Tensors that surely go through memory as a whole."""
    moved = set(group.stored)
    for layer in group.layers:
        head = layer.head
        if not head.contraction:
            continue
        left, right = (operand.tensor for operand in head.operands[:2])
        # Else tiles may leave out positions between those that they read.
        index = head.operands[0].index
        dense = all(abs(factor) <= 1 for affine in index for _, factor in affine.terms)
        if left in group.inputs and left not in group.residents and dense:
            moved.add(left)
        if right in group.inputs and right not in group.residents and right not in group.pinned:
            moved.add(right)
    return moved
