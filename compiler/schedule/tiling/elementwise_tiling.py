"""Tilings of groups without a sum of products: slabs of the result, halved until they fit.

Loops are cut from the slowest dimension inwards, so slabs stay contiguous in memory. Dimensions
that some operator of the layer reduces over are never cut: they would be needed whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from compiler.cost.overlap import pipelined, resting
from compiler.cost.transfer import RepeatedTransfer, pitches, traffic
from compiler.cost.work import depthwise_cycles
from compiler.geometry.boxes import layer_needs
from compiler.schedule.tiling.problem import TilePrices, TilingProblem
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import TileLoop
from compiler.target.equal_engines import largest
from compiler.target.layout import left_order, links_of
from compiler.target.machine import temporary_type
from compiler.target.vector import VectorWork, overlapped
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Nest, order_of
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch

Loops = tuple[TileLoop, ...]


def together(layer: Layer) -> dict[int, int]:
    """The dimension of channels that are computed together, and how many are: tiles begin with the
    first of them."""
    return {1: layer.head.sparse} if layer.head.sparse > 1 else {}


def priced_slabs(problem: TilingProblem, most: int) -> Iterator[tuple[Loops, TilePrices]]:
    """Loops over a part of a layer's result and what they take: all at once, then tiles halved
    along the slowest dimension that can be, until there are more than `most`."""
    layer, grains, tiles = problem.layer, together(problem.layer), [*problem.box]
    order = order_of(layer.result.shape, layer.result.storage.strides)
    while True:
        loops = tuple(TileLoop(d, tiles[d]) for d in order if tiles[d] < problem.box[d])
        yield loops, price_elementwise(problem, tiles)
        able = [d for d in free_dims(layer) if tiles[d] > grains.get(d, 1)]
        if tile_count(problem.box, tiles) > most or not able:
            return
        unit = grains.get(able[0], 1)
        tiles[able[0]] = -(-tiles[able[0]] // (2 * unit)) * unit


def tile_count(sizes: Sequence[int], tiles: Sequence[int]) -> int:
    """Tiles of a part of `sizes`."""
    return math.prod(-(-s // max(1, t)) for s, t in zip(sizes, tiles, strict=True))


def free_dims(layer: Layer) -> list[int]:
    """Dimensions of the result that may be cut, slowest first."""
    shape = layer.result.shape
    order = order_of(shape, layer.result.storage.strides)
    return [d for d in order if shape[d] > 1 and not _reduced(layer, d)]


def work_of(
    problem: TilingProblem, tiles: Sequence[int],
    spent: Callable[[VectorWork], Any] = attrgetter("cycles"),
) -> tuple[float, float]:  # fmt: skip
    """Cycles of the matrix engine, and of the vector engine and those beside it, for one tile of a
    layer without a product over channels; `spent` says what vector work takes."""
    layer, arch, matrix = problem.layer, problem.arch, 0.0
    vector: list[tuple[str, float]] = []
    for work in problem.vector_works:
        nest, sizes = work.nest, _sizes(layer, work.nest, tiles)
        if work.way.engine == "matrix":  # depthwise
            order = order_of(nest.shape, layer.tensors[nest.tensor].storage.strides)
            mine = largest(sizes, order, arch.matrix.units)
            channels = max(1, mine[1])
            taps = math.prod(dim.extent for dim in nest.dims[nest.rank :]) // nest.sparse
            dtype = layer.tensors[nest.operands[0].tensor].dtype
            pixels = math.prod(mine) // channels
            matrix += depthwise_cycles(arch, dtype, pixels, channels, taps, nest.sparse)
        vector.append((work.way.finisher, float(spent(work.of(sizes)))))
    return matrix, float(overlapped(vector, tile_count(problem.box, tiles)))


def _sizes(layer: Layer, nest: Nest, tiles: Sequence[int]) -> list[int]:
    """Positions of a nest's result in a tile of the layer's: along what both have, and of all else
    the same share."""
    whole = layer.result.shape
    if len(nest.shape) == len(whole):
        return [tile if n == m else n for n, m, tile in zip(nest.shape, whole, tiles, strict=True)]
    if not nest.shape:
        return []
    share = math.prod(tiles) / math.prod(whole)
    return [math.ceil(nest.shape[0] * share), *nest.shape[1:]]


def space_of(layer: Layer, arch: Arch, elements: int, slots: int) -> int:
    """Bytes of local memory for what stands between the instructions of a tile of `elements`, with
    so many `slots` of what passes from engine to engine."""
    wide = size_of(temporary_type(arch))
    between = len(layer.nests) - 1 - layer.binding.bare
    inside = elements * wide * (between + (slots - 1) * len(layer.handed_over))
    for nest, way in zip(layer.nests, layer.bindings, strict=True):
        if len(links_of(nest, layer.tensors, way, arch)) > 1:
            inside += elements * wide
    return inside


def _reduced(layer: Layer, dim: int) -> bool:
    """Whether some nest of the layer reduces over dimension `dim` of the result, untiled."""
    for nest in layer.nests:
        index = nest.operands[0].index
        same = len(nest.shape) == len(layer.result.shape) and dim < len(index)
        if nest.reduce is None or nest.depthwise or not same or index[dim].coefficient(dim):
            continue
        if any(index[dim].coefficient(d) for d in range(nest.rank, len(nest.dims))):
            return True
    return False


def flows_of(problem: TilingProblem, tiles: Sequence[int]) -> Iterator[RepeatedTransfer]:
    """Loads and the store of a layer whose part is cut into `tiles`.

    A constant is loaded where a loop that it depends on, or one around that, moves on. What the
    group has on chip is neither loaded nor stored.
    """
    layer, sizes = problem.layer, problem.box
    order = order_of(layer.result.shape, layer.result.storage.strides)
    cuts = {d: -(-sizes[d] // max(1, tiles[d])) for d in order}
    middle = [min(t, extent - t) for t, extent in zip(tiles, layer.result.shape, strict=True)]
    boxes = layer_needs(layer, tuple(zip(middle, tiles, strict=True)))
    bordered = any(access.pad is not None for nest in layer.nests for access in nest.reads)
    for name, box in boxes.items():
        tensor = layer.tensors[name]
        if name in problem.held:
            continue
        left = problem.on_array and name == layer.head.operands[0].tensor
        near = left_order(tensor, layer.head, problem.arch) if left else ()
        depends = partial(_depends, layer, name)
        around: Sequence[int] = order
        if tensor.data is not None:
            moving = [d for d in order if cuts[d] > 1 and depends(d)]
            around = order[: order.index(moving[-1]) + 1] if moving else ()
        times = math.prod(cuts[d] for d in around)
        loops: dict[int | None, bool] = {d: d in around and cuts[d] > 1 for d in order}
        alike = problem.cores.replication(depends, loops, order if bordered else ())
        way = problem.load(name, "local", alike)
        once = way.box(tensor, [n for _, n in box], near)
        yield RepeatedTransfer(way, times, once, constant=tensor.data is not None)
    if problem.stores:
        way, moves = problem.store(), _passes_through(layer, problem.held)
        steps = _buffer_pitches(layer, boxes) if moves else ()
        once = way.box(layer.result, tiles, steps=steps)
        yield RepeatedTransfer(way, math.prod(cuts.values()), once)


def _passes_through(layer: Layer, held: Collection[str]) -> bool:
    """Whether the layer's result is stored from where its input was loaded to."""
    return layer.copies and not {*layer.inputs, layer.result.name} & {*held}


def _buffer_pitches(layer: Layer, boxes: Mapping[str, Box]) -> list[int]:
    """Elements between neighbours along each axis of the result in the buffer of what is read."""
    (access,) = layer.head.operands
    tensor = layer.tensors[access.tensor]
    order = order_of(tensor.shape, tensor.storage.strides)
    pitch = pitches([size for _, size in boxes[access.tensor]], order)
    return [
        sum(affine.coefficient(d) * step for affine, step in zip(access.index, pitch, strict=True))
        for d in range(layer.head.rank)
    ]


def _depends(layer: Layer, name: str, dim: int) -> bool:
    """Whether positions of the result along `dim` need different parts of an input."""
    reads = (access for nest in layer.nests for access in nest.reads if access.tensor == name)
    return any(access.uses(dim) for access in reads)


def price_elementwise(problem: TilingProblem, tiles: Sequence[int]) -> TilePrices:
    """The price of a part of the result in tiles of `tiles`."""
    layer, arch, slots = problem.layer, problem.arch, problem.slots
    count = tile_count(problem.box, tiles)
    matrix, vector = work_of(problem, tiles)
    if _passes_through(layer, problem.held):
        vector = 0.0
    flows = tuple(flows_of(problem, tiles))
    moved = traffic(arch, problem.cores.count, flows)
    stages = (moved.load, (count * matrix, matrix), (count * vector, vector), moved.store)
    total = pipelined(slots, stages, moved.far.values())
    buffers = sum(flow.once.near * (slots if flow.count > 1 else 1) for flow in flows)
    space = space_of(layer, arch, math.prod(tiles), slots if count > 1 else 1)
    return TilePrices(
        float(total), count * matrix, count * vector, moved.longest, float(moved.bytes["dram"]),
        float(space + buffers), float(moved.load[0]),
        float(moved.store[0]), count, count, moved.lead, resting(slots, total, stages),
        flash=float(moved.bytes.get("flash", 0.0)), first=float(moved.load[1]),
    )  # fmt: skip
