"""Splits over cores for shared memory per cluster: which cluster touches which part of a buffer.

If every cluster has a shared memory of its own, a buffer there is cut into equal slices, one per
cluster. The cores of a cluster may read and write only their own slice, whatever the operators
between:

    batch of 4, 2 clusters of 2 cores       images 0, 1 | 2, 3      fits
    rows of one image                       halos cross the border  does not fit

This also holds for positions that cores compute beside their shares, because later groups read them
on the same core.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from compiler.geometry.boxes import group_needs
from compiler.schedule_ir.group import Group
from compiler.tensor_ir.bounds import Box, union
from compiler.tensor_ir.nest import Tensor
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch

Boxes = dict[str, Box]
"""Tensor -> box."""


def slices(arch: Arch) -> int:
    """Slices of a buffer in shared memory: one for each instance of the memory."""
    shared = arch.memories.shared
    return arch.clusters if shared is not None and shared.level == "cluster" else 1


def keeps_apart(group: Group, parts: Sequence[Box], arch: Arch) -> bool:
    """Whether each cluster finds what it reads in its own slices, and no two cores store the same
    row of a table, if each core has one of the `parts` of the last result."""
    if not _puts_apart(group, parts):
        return False
    count = slices(arch)
    if count == 1 or not group.shared:
        return True
    for cluster in range(count):
        first = cluster * arch.cores
        mine = parts[first : first + arch.cores]
        if not mine:
            break
        shares = [_shares(group, part) for part in mine]
        made = [_core_results(group, share, first + core) for core, share in enumerate(shares)]
        touched = group_needs(group, _all_of(made), inside=True) | _all_of(shares)
        for name, home in group.shared.items():
            if name not in touched:
                continue
            low, high = _span(group.tensors[name], touched[name])
            if low < cluster * home.bytes or high > (cluster + 1) * home.bytes:
                return False
    return True


def _puts_apart(group: Group, parts: Sequence[Box]) -> bool:
    """Whether no two cores store the same row of a table; which rows these are is known only at run
    time."""
    for name in group.results:
        placed = group.tensors[name].placed
        if placed is None or len(parts) == 1:
            continue
        if name != group.results[-1]:
            return False
        if any(len({part[axis] for part in parts}) > 1 for axis in placed.common):
            return False
    return True


def _shares(group: Group, part: Box) -> Boxes:
    """Boxes of the results that a core stores, for its part of the last one: each is cut like that
    where they have the axis in common."""
    last = group.tensors[group.results[-1]].shape
    return {
        name: tuple(
            part[axis] if axis < len(last) and part[axis] != (0, last[axis]) else (0, extent)
            for axis, extent in enumerate(group.tensors[name].shape)
        )
        for name in group.results
    }


def _core_results(group: Group, share: Boxes, core: int) -> Boxes:
    """Boxes of the results that a core computes, with what it keeps beside its share."""
    found = dict(share)
    for name, kept in group.residents.items():
        if name in found and not kept.passed and core < len(kept.slices):
            found[name] = union(found[name], kept.slices[core])
    return found


def _all_of(boxes: Sequence[Boxes]) -> Boxes:
    """Smallest boxes around those of several cores."""
    return {name: reduce(union, (each[name] for each in boxes)) for name in boxes[0]}


def _span(tensor: Tensor, box: Box) -> tuple[int, int]:
    """First byte of `box` in the tensor's buffer, and the byte behind its last."""
    low = high = tensor.storage.offset
    for (start, size), stride in zip(box, tensor.storage.strides, strict=True):
        ends = start * stride, (start + size - 1) * stride
        low, high = low + min(ends), high + max(ends)
    item = size_of(tensor.dtype)
    return low * item, (high + 1) * item
