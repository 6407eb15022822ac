"""What any schedule of a group takes at least: products at the machine's peak, and every byte that
enters or leaves the group once. Cheap, so that searches need not price what cannot be better.
"""

from __future__ import annotations

from compiler.fuse.group import Group
from compiler.nest.ir import Nest
from compiler.tile.ir import Estimate
from simmodel.arch import Arch
from simmodel.dtype import product_type, size_of


def least(group: Group, arch: Arch, cores: int) -> Estimate:
    """An estimate of which no figure is above that of any schedule on up to `cores` cores."""
    tensors = group.tensors
    matrix = 0.0
    moved = set(group.results)
    for layer in group.layers:
        head = layer.head
        if not head.contraction:
            continue
        left, right = (operand.tensor for operand in head.operands[:2])
        matrix += head.macs / (arch.matrix.peak(product_type(tensors[left].dtype)) * cores)
        if left in group.inputs and not _strided(head):
            moved.add(left)
        if right in group.inputs:
            moved.add(right)
    size = sum(tensors[name].elements * size_of(tensors[name].dtype) for name in moved)
    memory = size / arch.dram_bytes_per_cycle
    return Estimate(max(matrix, memory), matrix, 0.0, memory, float(size))


def _strided(nest: Nest) -> bool:
    """Whether tiles may leave out positions between those that they read."""
    index = nest.operands[0].index
    return any(abs(factor) > 1 for affine in index for _, factor in affine.terms)
