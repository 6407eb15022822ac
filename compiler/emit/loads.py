"""Loads of a box of a tensor from where it lies between groups: one copy, or rows by a list.

What is picked lies nowhere but in its table, so a load of a part of it takes the list's own part:

    e[2..4, 0..64], which picks w by i     copy.gather dst, src = w, index = i[2..4]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compiler.emit.legal import Names, legal_copy
from compiler.emit.tile import Places, far_operand
from compiler.geometry.ranges import Range, Region
from compiler.nest.ir import Picked, Tensor
from simmodel.arch import Arch
from simmodel.isa import Copy, Gather, Item, Loop
from simmodel.region import Operand


def sources(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors whose bytes are read where `tensor` is."""
    if tensor.picked is None:
        return (tensor,)
    return tensor.picked.table, tensor.picked.index


def computed(tensors: Iterable[Tensor]) -> frozenset[str]:
    """The buffers off chip that steps of the program write, of those that `tensors` are read
    from."""
    found = (each for tensor in tensors for each in sources(tensor))
    return frozenset(each.storage.buffer for each in found if each.data is None)


def load(
    copy: Copy, tensor: Tensor, region: Region, places: Places, arch: Arch, names: Names
) -> list[Item]:
    """The items that bring `region` of `tensor` to where `copy` says.

    Args:
        copy: with the target, and a source that only stands in its place.
        tensor: what is loaded.
        region: of it, with its border.
        places: where everything lies.
        arch: the machine.
        names: for loops around what is more than one instruction.
    """
    if tensor.picked is None:
        source = far_operand(tensor, region.ranges, places)
        return legal_copy(replace(copy, src=source), arch, names)
    picked, ranges = tensor.picked, region.ranges
    index = far_operand(picked.index, tuple(ranges[a] for a in picked.counted), places)
    gather = Gather(
        engine=copy.engine, origin=copy.origin, index=index,
        dst=_with_axes(copy.dst, (*picked.counted, *picked.along)),
        src=_table(picked, ranges, places),
    )  # fmt: skip
    return _legal(gather, arch.copy_[copy.engine].rank, names)


def _table(picked: Picked, ranges: Sequence[Range], places: Places) -> Operand:
    """All rows of the table, the picked axis first, and of each the part that is copied."""
    axis, extent = picked.axis, picked.table.shape[picked.axis]
    others = [ranges[a] for a in picked.along]
    spans = (*others[:axis], Range(0, extent), *others[axis:])
    whole = far_operand(picked.table, spans, places)
    rest = [a for a in range(len(spans)) if a != axis]
    return _with_axes(whole, (axis, *rest))


def _with_axes(operand: Operand, axes: Sequence[int]) -> Operand:
    shape = tuple(operand.shape[a] for a in axes)
    return replace(operand, shape=shape, strides=tuple(operand.strides[a] for a in axes))


def _legal(gather: Gather, rank: int, names: Names) -> list[Item]:
    """Loops over the slowest dimensions until the engine walks the rest: over those of a row, as
    far as there are several, else over the list."""
    if gather.dimensions <= rank:
        return [gather]
    counted = len(gather.index.shape)
    inside = [a for a in range(counted, len(gather.dst.shape)) if gather.dst.shape[a] > 1]
    ahead = [a for a in range(counted) if gather.dst.shape[a] > 1]
    if len(inside) > 1 or not ahead:
        axis = max(inside, key=lambda a: gather.src.strides[a - counted + 1])
    else:
        axis = max(ahead, key=lambda a: gather.dst.strides[a])
    variable = names.fresh()
    dst = _each(gather.dst, axis, variable)
    if axis < counted:
        inner = replace(gather, dst=dst, index=_each(gather.index, axis, variable))
    else:
        inner = replace(gather, dst=dst, src=_each(gather.src, axis - counted + 1, variable))
    return [Loop(variable, gather.dst.shape[axis], tuple(_legal(inner, rank, names)))]


def _each(operand: Operand, axis: int, variable: str) -> Operand:
    """`operand` at one position of `axis`, which a loop counts."""
    terms = (*operand.address.terms, (variable, operand.offset(axis, 1)))
    rest = [a for a in range(len(operand.shape)) if a != axis]
    return replace(_with_axes(operand, rest), address=replace(operand.address, terms=terms))
