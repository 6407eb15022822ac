"""What any schedule of a group takes at least: every layer in one piece, without a halo and without
waiting, and every byte that enters or leaves the group once. Cheap, so that searches need not price
what cannot be better.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from compiler.bind.machine import route
from compiler.bind.roles import roles
from compiler.group import Group
from compiler.layer import Layer
from compiler.nest.ir import Nest
from compiler.schedule import Estimate
from compiler.tile.price import Choice, Problem, price
from compiler.tile.slabs import work_of
from simmodel.arch import Arch
from simmodel.dtype import size_of


@dataclass
class Bounds:
    """Bounds on one machine; those of layers are remembered."""

    arch: Arch
    slots: int
    known: dict[int, tuple[Layer, float, float]] = field(default_factory=dict)
    """By identity of the layer: the layer, cycles of the matrix and of the vector engine."""

    def least(self, group: Group, cores: int) -> Estimate:
        """An estimate of which no figure is above that of a schedule on up to `cores` cores."""
        works = [self._work(layer) for layer in group.layers]
        matrix = sum(work[1] for work in works) / cores
        vector = sum(work[2] for work in works) / cores
        tensors = group.tensors
        moved = _moved(group) - {*group.shared}
        size = sum(tensors[name].elements * size_of(tensors[name].dtype) for name in moved)
        memory = size / self.arch.dram_bytes_per_cycle
        return Estimate(max(matrix, vector, memory), matrix, vector, memory, float(size))

    def _work(self, layer: Layer) -> tuple[Layer, float, float]:
        found = self.known.get(id(layer))
        if found is None:
            found = self.known[id(layer)] = (layer, *self._whole(layer))
        return found

    def _whole(self, layer: Layer) -> tuple[float, float]:
        """Cycles of the matrix and of the vector engine for all of a layer on one core."""
        shape = layer.result.shape
        product = route(layer.head, layer.tensors, self.arch).engine == "matrix"
        if not product or layer.head.depthwise:
            return work_of(layer, self.arch, shape)
        found = roles(layer.head)
        problem = Problem(layer, self.arch, found, layer.head.shape, 1, self.slots)
        whole = (found.b, found.y, found.x, found.col, found.k)
        b, y, x, n, k = (np.array([problem.extent(dim)]) for dim in whole)
        priced = price(problem, Choice(b, y, x, n, k, np.array([0])))
        return float(priced.matrix[0]), float(np.asarray(priced.vector).ravel()[0])


def _moved(group: Group) -> set[str]:
    """Tensors that surely go through memory as a whole."""
    moved = set(group.stored)
    for layer in group.layers:
        head = layer.head
        if not head.contraction:
            continue
        left, right = (operand.tensor for operand in head.operands[:2])
        if left in group.inputs and left not in group.kept and not _strided(head):
            moved.add(left)
        if right in group.inputs and right not in group.kept:
            moved.add(right)
    return moved


def _strided(nest: Nest) -> bool:
    """Whether tiles may leave out positions between those that they read."""
    index = nest.operands[0].index
    return any(abs(factor) > 1 for affine in index for _, factor in affine.terms)
