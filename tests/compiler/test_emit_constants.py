"""Packed weights: every block stands, contiguous, where its operand says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from blocks import conv
from machines import machine
from networks import Net
from networks import check as checked

from compiler.codegen.constants import PackedWeights, packed, packed_data
from compiler.codegen.tile import Places, TilePosition, Turn
from compiler.geometry.boxes import Range, Region, keys_of
from compiler.geometry.cuts import boxes
from compiler.lowering.lower import lower
from compiler.pipeline import prepared
from compiler.plan.make_plan import LayerPlan, MakePlan
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate, Tiled, TileLoop, single
from compiler.target.array_mapping import roles
from compiler.target.bind import Bind
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Array, Nest
from simmodel.arch.lazy_array import LazyArray

Grow = Callable[[Net], str]
Extent = tuple[int, int]
PRODUCTS: dict[str, Grow] = {
    "conv": lambda net: net.op("Conv", net.input(1, 12, 6, 6), net.weight(10, 12, 3, 2)),
    "grouped": lambda net: net.op("Conv", net.input(1, 8, 6, 6), net.weight(12, 4, 3, 3), group=2),
    "matmul": lambda net: net.op("MatMul", net.input(5, 12), net.weight(12, 10)),
    "batched": lambda net: net.op("MatMul", net.input(3, 5, 12), net.weight(3, 12, 10)),
    "broadcast": lambda net: net.op("MatMul", net.input(3, 4, 5, 12), net.weight(3, 1, 12, 10)),
    "biased": lambda net: conv(net, net.input(1, 16, 4, 4), 32, (1, 1)),
    "left-broadcast": lambda net: net.op("MatMul", net.input(5, 12), net.weight(3, 12, 10)),
}


def group_of(name: str) -> Layer:
    net = Net()
    graph = lower(prepared(net.model(PRODUCTS[name](net)), "net"), "fp32")
    nests = tuple(step for step in graph.steps if isinstance(step, Nest))
    return Bind().bound(Layer(0, nests[:1], graph.tensors), machine())


@pytest.mark.parametrize("cut", [(10, 12), (4, 12), (10, 5), (3, 4), (1, 1)])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("together", [False, True], ids=["one-by-one", "together"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_every_block_is_where_its_operand_says(
    name: str, together: bool, cores: int, cut: tuple[int, int]
) -> None:
    """Blocks of each position of the batch, or of all positions in one transfer."""
    group = group_of(name)
    head, found = group.head, roles(group.head)
    assert found.col is not None and found.k is not None
    width, deep = head.shape[found.col], head.dims[found.k].extent
    parts = boxes(head.shape, {found.col: cores}, {})
    loops = [TileLoop(d, 1) for d in found.batch if head.shape[d] > 1 and not together]
    share = max(part[found.col][1] for part in parts)
    if cut[0] < share:
        loops.append(TileLoop(found.col, cut[0]))
    if cut[1] < deep:
        loops.append(TileLoop(found.k, cut[1], reduction=True))
    plan = planned(group, loops, parts)
    pack = packed(plan, machine())
    data = group.tensors[head.operands[1].tensor].data
    assert pack is not None and data is not None
    flat, data = (np.asarray(each) for each in (packed_data(pack, plan, data), data))
    rows = [slice(first, min(first + 5, len(data))) for first in range(0, len(data), 5)]
    lazy = LazyArray(
        data.shape, data.dtype, lambda: data, lambda: ((each, data[each]) for each in rows)
    )
    assert np.array_equal(packed_data(pack, plan, lazy), flat)  # some rows at a time
    if pack.beside is None:
        assert sorted(flat.tolist()) == sorted(data.ravel().tolist())
    width = min(width, cut[0])
    for part in parts:
        start, share = part[found.col]
        for low in range(start, start + share, width):
            columns = (low, min(width, start + share - low))
            for first in range(0, deep, cut[1]):
                depth = (first, min(cut[1], deep - first))
                tile = tile_at(plan, part, {found.col: columns}, {found.k: depth})
                check(tile, pack, flat, data)


def planned(group: Layer, loops: list[TileLoop], parts: tuple[Box, ...]) -> LayerPlan:
    tiled = Tiled(group, tuple(loops), parts, Estimate(0, 0, 0, 0, 0))
    schedule = single(tiled, Group((group,), (group.result.name,)))
    (plan,) = MakePlan().apply(schedule, machine(local={"size": 1 << 20})).layers
    return plan


def test_parts_of_a_bias_lie_behind_the_weights_of_their_core() -> None:
    """16 of 32 columns on each of two cores: 256 weights of 4 bytes, then 16 numbers of the bias,
    1 088 bytes in all, so one load brings both."""
    layer = group_of("biased")
    head, column = layer.head, roles(layer.head).col
    assert column is not None and head.bias is not None
    plan = planned(layer, [], boxes(head.shape, {column: 2}, {}))
    pack, data = packed(plan, machine()), layer.tensors[head.operands[1].tensor].data
    assert pack is not None and data is not None
    flat, bias = np.asarray(packed_data(pack, plan, data)), layer.tensors[head.bias.tensor].data
    np.testing.assert_array_equal(np.concatenate((flat[256:272], flat[528:])), np.asarray(bias))
    places = Places({}, {pack.buffer: ("dram", 64)})
    parts = [pack.part_beside(Region((Range(s, 16),), (0,), (0,)), places) for s in (0, 16)]
    assert [(p.address.base, p.shape) for p in parts] == [(1088, (16,)), (2176, (16,))]


def tile_at(
    plan: LayerPlan, part: Box, columns: dict[int, Extent], depth: dict[int, Extent]
) -> TilePosition:
    """The tile at these columns and this piece of the reduction, at the last batch position."""
    batch = [loop.dim for loop in plan.tiled.loops if loop.size == 1]
    out = [
        Range(size - 1, 1) if d in batch and d not in columns else Range(start, size)
        for d, (start, size) in enumerate(part)
    ]
    for d, span in columns.items():
        out[d] = Range(*span)
    split = {d: Range(*span) for d, span in depth.items()}
    nowhere: Any = None
    return TilePosition(nowhere, plan, tuple(out), split, (Turn(),) * 4)


def check(tile: TilePosition, pack: PackedWeights, flat: Array, data: Array) -> None:
    """The block that `tile` loads is contiguous for each position of the batch, and holds the
    weights that it needs."""
    key = keys_of(tile.plan.tiled.layer.head)[1]
    region = tile.needs.regions[key]
    operand = pack.operand(region, Places({}, {pack.buffer: ("dram", 0)}))
    seen = np.ndarray(operand.shape, flat.dtype, flat, operand.address.base, operand.strides)
    box = tuple(slice(r.start, r.start + r.size) for r in region.ranges)
    np.testing.assert_array_equal(seen, data[box])
    assert operand.distinct == operand.bytes
    positions = math.prod(operand.shape[axis] for axis in pack.batch)
    assert operand.run % (operand.bytes // positions) == 0


def test_weights_of_a_batch_are_packed_as_they_are_loaded() -> None:
    """Where the layers' constants stay, the matrices of a batch still come one by one, in tiles."""
    net = Net()
    hidden = net.op("Relu", net.op("MatMul", net.input(4, 16), net.weight(3, 16, 16)))
    seen = checked(net.model(net.op("MatMul", hidden, net.weight(3, 16, 16))), machine(), "fp32")
    (made,) = seen.compiled.decisions
    assert any(tiled.resident and len(tiled.loops) > 1 for tiled in made.schedule.layers)


@pytest.mark.parametrize(("axis", "low"), [(2, 1), (3, 2)])
def test_of_any_kernel_axis_a_part_may_be_loaded(axis: int, low: int) -> None:
    """A convolution whose rows lie beside the channels packs rows of the kernel inside of columns;
    one row or one column of it is loaded at a time."""
    shape, order = (4, 3, 2, 5), (3, 2, 1, 0)
    pack = PackedWeights("w", "w", "int8", shape, order, (), 0, 1, ((0, 4),))
    data = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    flat = data.transpose(order).ravel()
    ranges = [Range(0, size) for size in shape]
    ranges[axis] = Range(low, 1)
    region = Region(tuple(ranges), (0,) * 4, (0,) * 4)
    block = pack.operand(region, Places({}, {"w": ("dram", 0)}))
    places = zip(block.strides, np.indices(block.shape), strict=True)
    at = block.address.base + sum(step * index for step, index in places)
    assert (flat[at] == data.take([low], axis)).all()
