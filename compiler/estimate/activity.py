"""What a network does that takes energy, or time of a memory on the chip, before it has a schedule:
products, elements, and bytes of every memory.

The one idea: each layer is done once in one piece, by the formulas that the instructions have for
their own traffic; borders of tiles, and what is computed again there, are not known. Instructions
are the least that there have to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from compiler.schedule_ir.layer import Binding, Layer
from compiler.target.array_mapping import joining, roles
from compiler.target.machine import product_extents, rate_type
from compiler.target.vector import OperandLayout, VectorWork
from compiler.tensor_ir.nest import Nest, Tensor
from simmodel.arch.element_types import accumulator_of, products_made, size_of
from simmodel.arch.matrix_cycles import streams, tile_limits
from simmodel.arch.record import Arch
from simmodel.trace import Events


def engine_events(layer: Layer, arch: Arch) -> Events:
    """What the engines of a layer do, on all cores together."""
    found = Events()
    for nest, way in zip(layer.nests, layer.bindings, strict=True):
        tensors = layer.tensors
        if way.engine == "matrix":
            _add_array_product(found, nest, tensors, way, arch.with_array(way.array))
        elif way.product:
            _add_vector_product(found, nest, tensors, way, arch)
        if way.engine not in ("copy", "scalar"):
            VectorWork(nest, tensors, arch, way, layer.inside, nest.shape).add_to(found)
    return found


def copy_events(copies: Iterable[tuple[str, str, Any]], arch: Arch) -> Events:
    """What copies do, of so many bytes each from one memory to another."""
    found = Events()
    for source, target, sizes in copies:
        crossed = [n for n, a in arch.links.items() if source in a.from_ and target in a.to]
        size = int(np.rint(sizes).sum())
        found.read[source] += size
        found.written[target] += size
        found.instructions += int(np.count_nonzero(sizes > 0))
        found.links.update(dict.fromkeys(crossed, size))
    return found


def memory_cycles(events: Events, arch: Arch) -> float:
    """Cycles that the busiest memory on the chip takes at the peak of its banks and ports for all
    that is read and written there: engines that want them in the same cycles wait for each other.
    """
    longest = 0.0
    for role, memory in arch.memories.on_chip().items():
        read, written = events.read[role], events.written[role]
        read_rate, write_rate = map(memory.bytes_per_cycle, (False, True))
        both = (read / read_rate, written / write_rate)
        longest = max(longest, max(both) if memory.split_ports else sum(both))
    return longest


def _add_array_product(
    found: Events, nest: Nest, tensors: Mapping[str, Tensor], way: Binding, arch: Arch
) -> None:
    """A product on the array: operands as often as it streams them, and sums where they lie."""
    matrix = arch.matrix
    left, right = (tensors[access.tensor] for access in nest.operands[:2])
    pixels, columns, deep, positions, batch = product_extents(nest)
    if nest.depthwise and not matrix.depthwise:
        columns = deep = nest.sparse
        batch = -(-batch // nest.sparse)
    macs, outputs = batch * pixels * columns * deep * positions, batch * pixels * columns
    kind, made = products_made(rate_type(nest, tensors, arch), macs * nest.block)
    found.macs[kind] += made
    blocks = -(-pixels // (matrix.max_pixels or pixels))
    again, weights_again = streams(matrix, -(-pixels // blocks), columns, deep * positions)
    once = batch * pixels * deep * positions
    if matrix.granularity == "conv" and roles(nest).taps:
        # The engine forms the windows, of an input with its border.
        reads = tuple(affine.terms for affine in nest.operands[0].index)
        once = OperandLayout("", 1, reads).distinct([dim.extent for dim in nest.dims])
    found.read[matrix.input] += int(once * again * size_of(left.dtype))
    found.read[matrix.weights] += int(right.stored * weights_again * blocks)
    pieces = 1 if matrix.granularity == "conv" else positions
    if matrix.granularity == "tile":
        wide = (nest.dims[tap.dim].extent for tap in joining(nest, matrix))
        limit = tile_limits(arch.matrix, left.dtype)[0]
        pieces = min(positions // n * -(-deep * n // limit) for n in (1, *wide))
    found.instructions += blocks * pieces
    sums = outputs * size_of(accumulator_of(left.dtype))
    if way.direct:
        found.written["local"] += outputs * size_of(tensors[nest.tensor].dtype)
        if nest.added is not None:
            found.read["local"] += outputs * size_of(tensors[nest.added.tensor].dtype)
    found.written[way.sums] += sums * (pieces - way.direct)
    found.read[way.sums] += sums * (pieces - 1)


def _add_vector_product(
    found: Events, nest: Nest, tensors: Mapping[str, Tensor], way: Binding, arch: Arch
) -> None:
    """A product over channels on the vector engine: sums stay in registers where it has any."""
    left, right = (tensors[access.tensor] for access in nest.operands[:2])
    pixels, columns, deep, positions, batch = product_extents(nest)
    macs, outputs = batch * pixels * columns * deep * positions, batch * pixels * columns
    sums = size_of(accumulator_of(left.dtype))
    found.elements["multiply"] += macs
    if rows := arch.vector.product_rows:
        lanes = arch.vector.elements(size_of(left.dtype))
        left_size = macs // columns * math.ceil(columns / lanes) * size_of(left.dtype)
        found.read["local"] += left_size + right.stored * math.ceil(pixels / rows)
        found.written[way.sums] += outputs * sums
    else:
        found.read["local"] += macs * size_of(left.dtype)
        found.read[way.sums] += macs * sums
        found.written[way.sums] += macs * sums
