"""Tilings of groups without a sum of products: slabs of the result, halved until they fit.

Loops are cut from the slowest dimension inwards, so slabs stay contiguous in memory. Dimensions
that some operator of the layer reduces over are never cut: they would be needed whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from compiler.cost import copy_cycles
from compiler.fuse.layer import Layer
from compiler.nest.ir import Nest, order_of
from compiler.plan.layer import vector_steps
from compiler.tile.ir import Estimate, Tiled, TileLoop
from compiler.tile.machine import cost_class, depthwise_cycles, route, temporary_type
from compiler.tile.partition import boxes, grids
from simmodel.arch import Arch
from simmodel.dtype import size_of

LONGEST = 2048
"""Most tiles of one core in a slab tiling."""


def slabs(layer: Layer, arch: Arch, cores: int, slots: int) -> Iterator[Tiled]:
    """Tilings of `layer` from whole parts down to single rows, each with its estimate."""
    shape = layer.result.shape
    order = order_of(shape, layer.result.storage.strides)
    free = free_dims(layer)
    grid = _best_grid(shape, free, cores)
    grain = {order[-1]: min(arch.vector.lanes, shape[order[-1]])} if shape else {}
    parts = boxes(shape, grid, grain)
    sizes = [max(part[d][1] for part in parts) for d in range(len(shape))]
    tiles = list(sizes)
    while True:
        loops = tuple(TileLoop(d, tiles[d]) for d in order if tiles[d] < sizes[d])
        estimate = _estimate(layer, arch, parts, tiles, sizes)
        count = math.prod(-(-s // t) for s, t in zip(sizes, tiles, strict=True))
        again = slots if count > 1 else 1
        need = space_of(layer, arch, math.prod(tiles)) + again * estimate.bytes / (
            count * len(parts)
        )
        yield Tiled(layer, loops, parts, replace(estimate, need=need))
        cut = next((d for d in free if tiles[d] > 1), None)
        if cut is None or count > LONGEST:
            return
        tiles[cut] = -(-tiles[cut] // 2)


def free_dims(layer: Layer) -> list[int]:
    """Dimensions of the result that may be cut, slowest first."""
    shape = layer.result.shape
    order = order_of(shape, layer.result.storage.strides)
    return [d for d in order if shape[d] > 1 and not _reduced(layer, d)]


def work_of(layer: Layer, arch: Arch, tiles: Sequence[int]) -> tuple[float, float]:
    """Cycles of the matrix and of the vector engine for one tile of a layer without a product
    over channels."""
    elements = math.prod(tiles)
    lanes = arch.vector.lanes
    startup = arch.vector.startup.cycles(arch.clock)
    vector = matrix = 0.0
    for nest in layer.nests:
        if route(nest, layer.tensors, arch).engine == "matrix":
            channels = max(1, tiles[1])
            taps = math.prod(dim.extent for dim in nest.dims[nest.rank :])
            dtype = layer.tensors[nest.operands[0].tensor].dtype
            matrix += depthwise_cycles(arch, dtype, elements // channels, channels, taps)
            continue
        walked = math.prod(dim.extent for dim in nest.dims) * elements / layer.result.elements
        cost = float(getattr(arch.vector.cost, cost_class(nest)))
        vector += startup + cost * math.ceil(walked / lanes)
    return matrix, vector


def space_of(layer: Layer, arch: Arch, elements: int) -> int:
    """Bytes of local memory for what stands between the instructions of a tile of `elements`."""
    wide = size_of(temporary_type(arch))
    inside = elements * wide * (len(layer.nests) - 1)
    for nest in layer.nests:
        if vector_steps(nest, route(nest, layer.tensors, arch), arch) > 1:
            inside += elements * wide
    return inside


def _best_grid(shape: tuple[int, ...], free: list[int], cores: int) -> dict[int, int]:
    best: dict[int, int] = {}
    for grid in grids(shape, free, cores):
        if math.prod(grid.values()) > math.prod(best.values()):
            best = grid
    return best


def _reduced(layer: Layer, dim: int) -> bool:
    """Whether some nest of the layer reduces over dimension `dim` of the result, untiled."""
    return any(_collapses(nest, dim, layer) for nest in layer.nests)


def _collapses(nest: Nest, dim: int, layer: Layer) -> bool:
    if nest.reduce is None or nest.depthwise or len(nest.shape) != len(layer.result.shape):
        return False
    inner = range(nest.rank, len(nest.dims))
    index = nest.operands[0].index
    if dim >= len(index):
        return False
    affine = index[dim]
    reduced = any(affine.coefficient(d) for d in inner)
    return reduced and not affine.coefficient(dim)


def _estimate(
    layer: Layer, arch: Arch, parts: tuple[object, ...], tiles: list[int], sizes: list[int]
) -> Estimate:
    count = math.prod(-(-s // t) for s, t in zip(sizes, tiles, strict=True))
    elements = math.prod(tiles)
    matrix, vector = (count * cycles for cycles in work_of(layer, arch, tiles))
    scale = elements * count / max(1, layer.result.elements)
    loaded = sum(
        layer.tensors[name].elements * size_of(layer.tensors[name].dtype) * scale
        for name in layer.inputs
    )
    stored = elements * size_of(layer.result.dtype)
    cores = len(parts)
    load_engine = arch.copy_[arch.copy_engine("dram", "local") or next(iter(arch.copy_))]
    store_engine = arch.copy_[arch.copy_engine("local", "dram") or next(iter(arch.copy_))]
    transfers = max(1, count * len(layer.inputs))
    load = transfers * float(copy_cycles(arch, load_engine, loaded / transfers, cores))
    store = count * float(copy_cycles(arch, store_engine, stored, cores))
    shared = cores * (loaded + stored * count)
    memory = max(load, store, shared / arch.dram_bytes_per_cycle)
    fill = (load + store + vector + matrix) / count
    return Estimate(max(matrix, vector, memory) + fill, matrix, vector, memory, shared)
