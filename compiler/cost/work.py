"""What the products of a tile take on the matrix engine: instructions, and their cycles.

    100 pixels, 40 columns, depth 20, a 3 x 3 kernel     on an array of 16 x 16

    conv     1 instruction of [100 x 40 x 20], nine positions in it
    gemm     9 of [100 x 40 x 20]
    tile     9 x 3 x 2 of [100 x 16 x 16], the last ones in part empty

Extents are numbers, or arrays over candidates. Prices, engine choice and report ask here.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from simmodel.arch.element_types import product_type
from simmodel.arch.matrix_cycles import depthwise_cycles as native_cycles
from simmodel.arch.matrix_cycles import product_cycles, tile_limits
from simmodel.arch.record import Arch


class ArrayWork(NamedTuple):
    """Equal instructions of the matrix engine, one behind the other."""

    count: Any
    extents: tuple[Any, Any, Any, Any]
    """Of one: pixels, columns, depth, kernel positions."""
    cycles: Any
    """Of all behind another product, start-ups included."""
    gap: Any
    """Cycles that one takes longer behind a gap."""


def product_startup(arch: Arch) -> int:
    """Cycles before the first operand of a product moves, the latency of its memories included."""
    memories = arch.memories.on_chip()
    roles_read = (arch.matrix.input, arch.matrix.weights)
    latency = max(memories[role].latency.cycles(arch.clock) for role in roles_read)
    return arch.matrix.startup.cycles(arch.clock) + latency


def array_work(
    arch: Arch, dtype: str, blocks: tuple[Any, Any], columns: Any, depth: Any, positions: Any = 1
) -> ArrayWork:
    """Instructions of a product whose operands lie in blocks.

    Args:
        arch: the machine.
        dtype: element type of the operands.
        blocks: pixels of the largest block that the engine takes at once, and how many there are.
        columns, depth: of the product at one kernel position.
        positions: kernel positions, but for those that are in the depth.
    """
    (pixels, count), more = blocks, additions(arch, dtype, depth, positions)
    if arch.matrix.granularity != "conv":
        positions = 1
    if arch.matrix.granularity == "tile":
        deep, wide = tile_limits(arch.matrix, dtype)
        count = count * -(-columns // wide)
        depth, columns = np.minimum(depth, deep), np.minimum(columns, wide)
    extents, kind = (pixels, columns, depth, positions), product_type(dtype)
    alone, inner = (
        product_cycles(arch.matrix, kind, *extents, behind=behind) for behind in (False, True)
    )
    again = np.maximum(inner, _sums_cycles(arch, pixels * columns) if np.any(more > 1) else 0)
    cycles = inner + (more - 1) * again + more * product_startup(arch)
    return ArrayWork(count * more, extents, count * cycles, alone - inner)


def additions(arch: Arch, dtype: str, depth: Any, positions: Any) -> Any:
    """Instructions one after another that make the same sums; each but the first adds to them."""
    more = 1 if arch.matrix.granularity == "conv" else positions
    deep, _ = tile_limits(arch.matrix, dtype)
    return more * -(-depth // deep) if arch.matrix.granularity == "tile" else more


def _sums_cycles(arch: Arch, sums: Any) -> Any:
    """Cycles in which memory reads and writes so many sums of 4 bytes, which a product adds to."""
    memory, size = arch.memories.on_chip()[arch.matrix.output], 4 * sums
    apart = np.ceil(size / memory.bank_size) if memory.mapping == "blocked" else memory.banks
    banks = np.clip(apart, 1, memory.banks)
    read, write = (size / (memory.port_bytes(way) * banks) for way in (False, True))
    return np.ceil(np.maximum(read, write) if memory.split_ports else read + write)


def least_product_cycles(arch: Arch, dtype: str, pixels: int, columns: int, depth: int) -> int:
    """Cycles that no tiles of a product undercut: they have at least as many folds as the product
    in one piece with all kernel positions in its depth, and as many instructions."""
    most = min(pixels, arch.matrix.max_pixels or pixels)
    count = array_work(arch, dtype, (most, -(-pixels // most)), columns, depth).count
    kind = product_type(dtype)
    folds = product_cycles(arch.matrix, kind, pixels, columns, depth, behind=True)
    return int(folds + count * product_startup(arch))


def depthwise_cycles(
    arch: Arch, dtype: str, pixels: int, channels: int, taps: int, together: Any = 1
) -> Any:
    """Cycles of a depthwise product on the matrix engine, with its start-ups: natively, else
    products of `together` channels with themselves, a number or an array, right behind each
    other."""
    if arch.matrix.depthwise:
        cycles = native_cycles(arch.matrix, product_type(dtype), pixels, channels, taps)
        return product_startup(arch) + cycles
    most = min(pixels, arch.matrix.max_pixels or pixels)
    blocks, many = (most, math.ceil(pixels / most)), np.ndim(together)
    each = np.minimum(together, channels) if many else min(together, channels)
    whole, rest = channels // each, channels % each
    first = array_work(arch, dtype, blocks, each, each, taps)
    cycles = whole * first.cycles
    if many or rest:
        last = array_work(arch, dtype, blocks, rest, rest, taps)
        cycles = cycles + (rest > 0) * last.cycles
    return np.floor(cycles + first.gap) if many else int(cycles + first.gap)
