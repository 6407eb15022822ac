"""Loads and stores of a box of a tensor where it lies between groups: one copy, or rows by a list.

What is picked, or put into another tensor, lies nowhere but in that table, so a load or a store of
a part of it takes the list's own part:

    e[2..4, 0..64], which picks w by i      copy.gather dst, src = w, index = i[2..4]
    k[0..1, 0..64], put into past by n      copy.scatter dst = past, src, index = n[0..1]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compiler.emit.legal import Names, legal_copy
from compiler.emit.tile import Places, far_operand
from compiler.geometry.ranges import Range, Region
from compiler.nest.ir import Picked, Tensor
from simmodel.arch import Arch
from simmodel.isa import Copy, Gather, Item, Loop, Scatter
from simmodel.region import Operand


def sources(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors whose bytes are touched where `tensor` is loaded or stored, the list last."""
    rows = tensor.picked or tensor.placed
    return (tensor,) if rows is None else (rows.table, rows.index)


def computed(tensors: Iterable[Tensor]) -> frozenset[str]:
    """The buffers off chip that steps of the program write, of those that `tensors` are read
    from."""
    found = (each for tensor in tensors for each in sources(tensor))
    return frozenset(each.storage.buffer for each in found if each.data is None)


def written(tensor: Tensor) -> frozenset[str]:
    """The buffer off chip that a store of `tensor` changes."""
    return frozenset({sources(tensor)[0].storage.buffer})


def listed(tensor: Tensor) -> frozenset[str]:
    """The buffers off chip that a store of `tensor` reads: a list of rows that steps make."""
    return computed([tensor]) if tensor.placed is not None else frozenset()


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
        dst=copy.dst.along((*picked.counted, *picked.along)),
        src=_table(picked, ranges, places),
    )  # fmt: skip
    return _legal(gather, arch.copy_[copy.engine].rank, names)


def store(
    copy: Copy, tensor: Tensor, ranges: tuple[Range, ...], places: Places, arch: Arch, names: Names
) -> list[Item]:
    """The items that bring a box of `tensor` from where `copy` says to where it lies; as `load`."""
    placed = tensor.placed
    if placed is None:
        return legal_copy(replace(copy, dst=far_operand(tensor, ranges, places)), arch, names)
    index = far_operand(placed.index, tuple(ranges[a] for a in placed.counted), places)
    rank = arch.copy_[copy.engine].rank
    if not placed.block:
        spans = (Range(0, placed.table.shape[0]), *(ranges[a] for a in placed.along))
        table = far_operand(placed.table, spans, places)
        whole = Scatter(
            engine=copy.engine, origin=copy.origin, index=index, src=copy.src, dst=table
        )
        return _legal(whole, rank, names)
    # Of each sample: as many places to begin at as leave room for all its new rows.
    axis = placed.axis
    starts = placed.table.shape[axis] - tensor.shape[axis] + 1
    table = far_operand(placed.table, ranges, places)
    dims = [a for a in range(len(ranges)) if a]
    windows = replace(
        table, shape=(starts, *(table.shape[a] for a in dims)),
        strides=(table.strides[axis], *(table.strides[a] for a in dims)),
    )  # fmt: skip
    variable = names.fresh() if index.shape[0] > 1 else ""
    moves = (
        (windows, table.strides[0]),
        (copy.src, copy.src.strides[0]),
        (index, index.strides[0]),
    )
    dst, src, first = (
        replace(o, address=replace(o.address, terms=(*o.address.terms, (variable, step))))
        if variable else o
        for o, step in moves
    )  # fmt: skip
    one = Scatter(
        engine=copy.engine, origin=copy.origin, index=first.along(()),
        src=src.along(dims), dst=dst,
    )  # fmt: skip
    items = _legal(one, rank, names)
    return [Loop(variable, index.shape[0], tuple(items))] if variable else items


def _table(picked: Picked, ranges: Sequence[Range], places: Places) -> Operand:
    """All rows of the table, the picked axis first, and of each the part that is copied."""
    axis, extent = picked.axis, picked.table.shape[picked.axis]
    others = [ranges[a] for a in picked.along]
    spans = (*others[:axis], Range(0, extent), *others[axis:])
    whole = far_operand(picked.table, spans, places)
    rest = [a for a in range(len(spans)) if a != axis]
    return whole.along((axis, *rest))


def _legal(whole: Gather | Scatter, rank: int, names: Names) -> list[Item]:
    """Loops over the slowest dimensions until the engine walks the rest: over those of a row, as
    far as there are several, else over the list."""
    if whole.dimensions <= rank:
        return [whole]
    box, table, counted = whole.box, whole.table, len(whole.index.shape)
    inside = [a for a in range(counted, len(box.shape)) if box.shape[a] > 1]
    ahead = [a for a in range(counted) if box.shape[a] > 1]
    if len(inside) > 1 or not ahead:
        axis = max(inside, key=lambda a: table.strides[a - counted + 1])
    else:
        axis = max(ahead, key=lambda a: box.strides[a])
    variable = names.fresh()
    extent, index, box = box.shape[axis], whole.index, _each(box, axis, variable)
    if axis < counted:
        index = _each(index, axis, variable)
    else:
        table = _each(table, axis - counted + 1, variable)
    src, dst = (table, box) if isinstance(whole, Gather) else (box, table)
    inner = replace(whole, src=src, dst=dst, index=index)
    return [Loop(variable, extent, tuple(_legal(inner, rank, names)))]


def _each(operand: Operand, axis: int, variable: str) -> Operand:
    """`operand` at one position of `axis`, which a loop counts."""
    rest = [a for a in range(len(operand.shape)) if a != axis]
    return operand.cut(axis, variable, 0, 1).along(rest)
