"""What any schedule of a group takes at least: every layer in one piece, without a halo and without
waiting, and every byte that enters or leaves the group once. Cheap, so that searches need not price
what cannot be better.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from compiler.cost.multicast import Cores
from compiler.geometry.tile_trace import TileTrace
from compiler.schedule.fusion.partition import Outlines
from compiler.schedule.tiling.elementwise_tiling import work_of
from compiler.schedule.tiling.layer_price import TilingProblem, in_one_piece, price, whole_product
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate
from compiler.target.array_mapping import roles
from compiler.tensor_ir.nest import Nest
from simmodel.arch.record import Arch

Sizes = tuple[int, ...]


@dataclass
class LowerBounds:
    """Bounds on one machine; those of layers are remembered."""

    arch: Arch
    slots: int
    outlines: Outlines = field(default_factory=Outlines)
    known: dict[int, tuple[Layer, float, float]] = field(default_factory=dict)
    """By identity of the layer: the layer, cycles of the matrix and of the vector engine."""
    boxes: dict[tuple[int, Sizes], tuple[float, float]] = field(default_factory=dict)
    """The same for a part of the result of all layers of one outline."""

    def least(self, group: Group, cores: int, again: float = 0.0) -> Estimate:
        """An estimate of which no figure is above that of a schedule on up to `cores` cores that
        loads `again` bytes more than once."""
        works = [self.engine_cycles(layer) for layer in group.layers]
        matrix = sum(work[0] for work in works) / cores
        vector = sum(work[1] for work in works) / cores
        tensors = group.tensors
        names = _dram_tensors(group) - {*group.shared}
        size = sum(tensors[name].stored for name in names)
        moved = size + again
        memory = moved / self.arch.dram_bytes_per_cycle
        return Estimate(max(matrix, vector, memory), matrix, vector, memory, moved)

    def in_tiles(self, group: Group, walked: TileTrace, cores: int, again: float) -> Estimate:
        """The same for schedules whose busiest core walks its part like this."""
        matrix = vector = 0.0
        for run in walked.alike:
            work = walked.moments[run.first].work
            for layer, box in zip(group.layers, work, strict=True):
                if box is not None:
                    cycles = self.work(layer, tuple([size for _, size in box]))
                    matrix += run.count * walked.repeats * cycles[0]
                    vector += run.count * walked.repeats * cycles[1]
        found = self.least(group, cores, again)
        matrix, vector = max(matrix, found.matrix), max(vector, found.vector)
        total = max(found.total, matrix, vector)
        return replace(found, total=total, matrix=matrix, vector=vector)

    def work(self, layer: Layer, sizes: Sizes) -> tuple[float, float]:
        """Cycles of the matrix and of the vector engine for `sizes` of a layer's result in one
        piece."""
        outlined = self.outlines.layer(layer)
        key = outlined.number, sizes
        if key not in self.boxes:
            first = outlined.first
            if first.product:
                self.boxes[key] = whole_product(self._problem(first, sizes))
            else:
                self.boxes[key] = self._slab(first, sizes)
        return self.boxes[key]

    def _slab(self, layer: Layer, sizes: Sizes) -> tuple[float, float]:
        matrix, vector = work_of(layer, self.arch, sizes)
        # What only moves may pass from load to store.
        return matrix, 0.0 if layer.copies else vector

    def _problem(self, layer: Layer, sizes: Sizes) -> TilingProblem:
        return TilingProblem(layer, self.arch, roles(layer.head), sizes, Cores(1), self.slots)

    def engine_cycles(self, layer: Layer) -> tuple[float, float]:
        """Cycles of the matrix and of the vector engine for all of a layer on one core."""
        found = self.known.get(id(layer))
        if found is None:
            found = self.known[id(layer)] = (layer, *self._one_piece_cycles(layer))
        return found[1:]

    def _one_piece_cycles(self, layer: Layer) -> tuple[float, float]:
        shape = layer.result.shape
        if not layer.product:
            return self._slab(layer, shape)
        problem = self._problem(layer, layer.head.shape)
        priced = price(problem, in_one_piece(problem))
        # Right behind another product the array need not fill anew.
        matrix = np.asarray(priced.matrix - priced.gap).ravel()[0]
        return float(matrix), float(np.asarray(priced.vector).ravel()[0])


def _dram_tensors(group: Group) -> set[str]:
    """Tensors that surely go through memory as a whole."""
    moved = set(group.stored)
    for layer in group.layers:
        head = layer.head
        if not head.contraction:
            continue
        left, right = (operand.tensor for operand in head.operands[:2])
        if left in group.inputs and left not in group.residents and not _strided(head):
            moved.add(left)
        if right in group.inputs and right not in group.residents and right not in group.pinned:
            moved.add(right)
    return moved


def _strided(nest: Nest) -> bool:
    """Whether tiles may leave out positions between those that they read."""
    index = nest.operands[0].index
    return any(abs(factor) > 1 for affine in index for _, factor in affine.terms)
