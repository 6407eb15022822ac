"""Operand layouts on chip: the memory that each operand is read from, and the order of its axes.

Left operands of products are laid out in the order in which the engine reads them, constant weights
are packed, everything else keeps its stored layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from compiler.cost.transfer import Flows, Path
from compiler.geometry.boxes import Key, Region, keys_of
from compiler.schedule_ir.layer import Binding, Layer
from compiler.target.array_mapping import Tap, axis_of, joining, on_columns, pixels_together, roles
from compiler.target.loops.split import SplitInstruction, fission
from compiler.target.machine import adds_up_in_pieces, array_takes, product_extents, slides
from compiler.target.narrow_weights import row_of
from compiler.tensor_ir.nest import Nest, Tensor, dense, order_of
from simmodel.arch.base import MemoryRole
from simmodel.arch.element_types import product_type, size_of
from simmodel.arch.matrix_cycles import product_cycles, streams
from simmodel.arch.record import Arch


def role_of(layer: Layer, key: Key, arch: Arch) -> MemoryRole:
    """Memory role from which the layer's engine reads `key`."""
    head = layer.head
    if layer.binding.engine != "matrix":
        return "local"
    if key[2] or layer.tensors[key[0]].digits:
        return arch.matrix.weights
    return arch.matrix.input if key == keys_of(head)[0] else "local"


def input_strides(layer: Layer, key: Key, region: Region, arch: Arch) -> tuple[int, ...]:
    """Channels last for the matrix engine's left operand, packed order for constant weights."""
    tensor = layer.tensors[key[0]]
    order = order_of(tensor.shape, tensor.storage.strides)
    head = layer.head
    if layer.binding.engine == "matrix" and key == keys_of(head)[0]:
        order = left_order(tensor, head, arch)
    if layer.binding.product and key[2] and tensor.data is not None:
        order = packed_order(layer, arch)
    return tuple(size_of(tensor.dtype) * s for s in dense(region.padded, order))


def room_of(layer: Layer, key: Key, sizes: Sequence[Any]) -> Any:
    """Bytes on chip of a box of `key`: of narrow weights including the buffer for their narrow
    form. Sizes may be arrays over candidates."""
    tensor = layer.tensors[key[0]]
    item = size_of(tensor.dtype)
    if tensor.narrow is None or not key[2]:
        return math.prod(sizes) * item
    return tensor.narrow.places(sizes, row_of(layer.head), item)[-1]


def loaded_of(tensor: Tensor, sizes: Sequence[Any]) -> Any:
    """Bytes to load for a box of a constant. Sizes may be arrays over candidates."""
    if tensor.narrow is None:
        return math.prod(sizes) * size_of(tensor.dtype)
    return tensor.narrow.loaded(sizes)


PARTS = 4
"""A constant is loaded as a whole if it has at most this fraction (1 / PARTS) of the bytes of the
weights on chip beside it."""


def loaded_once(size: Any, streamed: Any) -> Any:
    """Whether a layer loads all of a small constant before its loops, such as a bias of `size`
    bytes beside `streamed` bytes of weights in all slots: in parts, each load would wait for DRAM
    as long as a tile's weights do, and block their queue."""
    return size * PARTS <= streamed


def left_order(tensor: Tensor, head: Nest, arch: Arch) -> tuple[int, ...]:
    """Axes of a product's left operand on chip, slowest first: as stored, except for those that the
    engine walks innermost."""
    order, last = order_of(tensor.shape, tensor.storage.strides), innermost_axes(tensor, head, arch)
    return (*(axis for axis in order if axis not in last), *last)


FEW = 8
"""Few channels, not worth a transposition: channel planes are as good for a product, better for the
vector engine and much better for copies; unless kernel positions that join them outweigh that."""


def host_order(tensor: Tensor, head: Nest, arch: Arch) -> tuple[int, ...]:
    """Axes, slowest first, in which the host had better write a product's left operand, as that
    costs it nothing: channels last, unless they are few and no kernel columns join them."""
    order, found = order_of(tensor.shape, tensor.storage.strides), roles(head)
    axis = axis_of(head.operands[0], found.k)
    few = found.taps and not any(tap.row == found.x for tap in joining(head, arch.matrix))
    if axis is None or (few and tensor.shape[axis] < FEW):
        return order
    return (*(other for other in order if other != axis), axis)


def innermost_axes(tensor: Tensor, head: Nest, arch: Arch) -> tuple[int, ...]:
    """Axes of `tensor`, a product's left operand, that the engine walks innermost; none: any."""
    found = roles(head)
    dim = found.k if found.k is not None else (found.batch[-1] if found.batch else None)
    axis = axis_of(head.operands[0], dim)
    if dim is None or axis is None:
        return ()
    if found.taps and head.dims[dim].extent < FEW:
        pixels, columns, *_ = product_extents(head)
        kind = product_type(tensor.dtype)

        def takes(way: FewChannels) -> float:
            each = product_cycles(arch.matrix, kind, pixels, columns, way.depth)
            return float(max(way.steps * each, way.load))  # which overlap

        return min(few_channels(tensor, head, arch), key=takes).innermost
    columns_join = any(tap.row == found.x for tap in joining(head, arch.matrix))
    return () if not columns_join and _better_as_stored(tensor, head, arch, axis) else (axis,)


def joined_tap(tensor: Tensor, head: Nest, arch: Arch) -> Tap | None:
    """The kernel loop whose positions lie beside the channels of `tensor`, a product's left operand
    on chip, and may join the reduction; None: there is none."""
    last = axis_of(head.operands[0], roles(head).k)
    able = {tap.axis: tap for tap in joining(head, arch.matrix)}
    if last is None or not able:
        return None
    # A buffer holds the whole window, however narrow the tensor.
    order = left_order(tensor, head, arch)
    moving = [a for a in order if tensor.shape[a] > 1 or a in able or a == last]
    place = moving.index(last)
    return able.get(moving[place - 1]) if place else None


class FewChannels(NamedTuple):
    """A way to lay out a product's left operand of few channels."""

    innermost: tuple[int, ...]
    """Axes that lie innermost, the others as stored."""
    depth: int
    """Of the reduction: channels, and kernel positions that lie beside them."""
    steps: int
    """Products of this depth, the batch included."""
    load: float
    """Cycles of a load from DRAM."""


def few_channels(tensor: Tensor, head: Nest, arch: Arch) -> Iterator[FewChannels]:
    """The layouts of the left operand of `head`: as stored, pixels of all channels, so that kernel
    columns join the reduction, and where channels are few lines of all of them, so that kernel rows
    do.

        as stored   c0: line 0, line 1 ..  c1: line 0, line 1 ..
        pixels      line 0: c0 c1 c2, c0 c1 c2 ..               moved element by element
        lines       line 0 of c0, of c1, of c2, line 1 of c0 ..   moved line by line
    """
    stored = order_of(tensor.shape, tensor.storage.strides)
    channel = axis_of(head.operands[0], roles(head).k)
    *_, deep, positions, batch = product_extents(head)
    extents = on_columns(head, [dim.extent for dim in head.dims])
    way = Path(arch, 1, "dram", arch.matrix.input)

    def laid(innermost: tuple[int, ...], joined: int = 1) -> FewChannels:
        order = (*(axis for axis in stored if axis not in innermost), *innermost)
        load = float(way.box(tensor, tensor.shape, order).cycles)
        return FewChannels(innermost, deep * joined, batch * positions // joined, load)

    yield laid(())
    for tap in joining(head, arch.matrix):
        if tap.row != roles(head).x and deep >= FEW:
            continue
        faster = stored[stored.index(tap.axis) + 1 :]
        inside = tuple(a for a in faster if a != channel and tensor.shape[a] > 1)
        assert channel is not None  # what joins has a reduction to join
        yield laid((channel, *inside), extents[tap.dim])


def _better_as_stored(tensor: Tensor, head: Nest, arch: Arch, axis: int) -> bool:
    """Whether a product had better read `tensor` as it is stored: where `axis` is not the last one
    there, a load apart for each element takes longer than one of rows, and reads apart take no
    longer than that load or the products, which overlap."""
    if tensor.shape[axis] == 1 or order_of(tensor.shape, tensor.storage.strides)[-1] == axis:
        return False
    far = order_of(tensor.shape, tensor.storage.strides)
    way = Path(arch, 1, "dram", arch.matrix.input)
    orders = far, (*(other for other in far if other != axis), axis)
    stored, turned = (float(way.box(tensor, tensor.shape, order).cycles) for order in orders)
    matrix, item = arch.matrix, size_of(tensor.dtype)
    pixels, columns, depth, taps, _ = product_extents(head)
    times, _ = streams(matrix, pixels, columns, depth)
    reads = Flows(arch)
    size = tensor.elements * item * (1 if matrix.granularity == "conv" else taps)
    reads.add(matrix.input, size, item, times=times)
    work = array_takes(head, tensor.dtype, arch)
    return bool(stored < turned and reads.longest() <= max(turned, work))


def packed_order(layer: Layer, arch: Arch) -> tuple[int, ...]:
    """Axes of packed constant weights: batch, taps, reduction, pixels side by side, columns; of
    taps the one that may join the reduction beside it."""
    head = layer.head
    found, weights = roles(head), head.operands[1]
    joined = None
    if layer.binding.engine == "matrix":
        array = arch.with_array(layer.binding.array)
        joined = joined_tap(layer.tensors[head.operands[0].tensor], head, array)
    taps = sorted(found.taps, key=lambda tap: tap == joined)
    last = found.cols if head.beside is None else (head.beside,)
    batch, inner, columns = (
        [axis for dim in dims if (axis := axis_of(weights, dim)) is not None]
        for dims in (found.batch, (*(tap.dim for tap in taps), *found.inner), last)
    )
    rest = [a for a in range(len(weights.index)) if a not in (*batch, *inner, *columns)]
    pixels = [rest.pop()] if pixels_together(head) > 1 else []
    return (*batch, *rest, *inner, *pixels, *columns)


def started(nest: Nest, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the sums of `nest` start from its bias."""
    return nest.bias is not None and bool(tensors[nest.bias.tensor].digits)


def links_of(
    nest: Nest, tensors: Mapping[str, Tensor], way: Binding, arch: Arch
) -> list[SplitInstruction]:
    """The chain of vector instructions of one nest over a tile."""
    chained = arch.isa.has("vector.ternary.add_mul")
    if way.product:
        begun = started(nest, tensors)
        done = way.direct or way.bare
        return [] if done else fission(nest, own=False, chained=chained, started=begun)
    windowed = nest.reduce is not None and roles(nest).taps
    taps = [dim.extent for dim in nest.dims[nest.rank :]] if windowed else []
    pieces = way.engine != "scalar" and adds_up_in_pieces(nest, tensors, arch)
    windows = slides(nest, arch)
    return fission(nest, taps=taps, windows=windows, pieces=pieces, chained=chained)
