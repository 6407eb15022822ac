"""Parts of cores, segments of loops and tiles of a result cover everything exactly once."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from networks import Net

from compiler.codegen.nodes import segments
from compiler.geometry.cuts import boxes, grids
from compiler.lowering.lower import lower
from compiler.pipeline import prepared
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import TileLoop
from compiler.target.bind import Bind
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Nest

EXTENTS = st.lists(st.integers(1, 13), min_size=1, max_size=3)


def positions(box: Box) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(start, start + size) for start, size in box)))


@given(EXTENTS, st.data())
def test_parts_cover_the_result_once(extents: list[int], data: st.DataObject) -> None:
    cores = data.draw(st.integers(1, 8))
    offered = list(grids(extents, range(len(extents)), cores))
    assert offered[0] == {}
    assert all(math.prod(grid.values()) <= cores for grid in offered)
    grid = data.draw(st.sampled_from(offered))
    grain = {axis: data.draw(st.integers(1, 5)) for axis in grid}
    parts = boxes(extents, grid, grain)
    assert len(parts) <= cores
    assert all(size > 0 for part in parts for _, size in part)
    covered = [position for part in parts for position in positions(part)]
    assert sorted(covered) == positions(tuple((0, extent) for extent in extents))
    for axis, unit in grain.items():
        assert all(part[axis][0] % unit == 0 for part in parts)


def convolution(side: int, kernel: int, pads: tuple[int, int], stride: int) -> Layer:
    net = Net()
    x = net.input(1, 2, side, side)
    w = net.weight(3, 2, kernel, kernel)
    y = net.op("Conv", x, w, pads=[*pads, *pads], strides=[stride, stride])
    graph = lower(prepared(net.model(y), "net"), "fp32")
    nests = tuple(step for step in graph.steps if isinstance(step, Nest))
    return Bind().bound(Layer(0, nests, graph.tensors), machine())


@settings(max_examples=60)
@given(st.data())
def test_segments_cover_their_loop_once_and_their_borders_agree(data: st.DataObject) -> None:
    kernel = data.draw(st.integers(1, 4))
    pads = data.draw(st.tuples(*[st.integers(0, kernel - 1)] * 2))
    stride = data.draw(st.integers(1, 3)) if kernel > 1 else 1
    group = convolution(data.draw(st.integers(5, 15)), kernel, pads, stride)
    high = group.head.shape[2]
    low = data.draw(st.integers(0, high - 1))
    extent = data.draw(st.integers(1, high - low))
    loop = TileLoop(2, data.draw(st.integers(1, extent)))
    found = segments(group, loop, low, extent)
    tiles = [
        (segment, segment.start + turn * segment.step)
        for segment in found
        for turn in range(segment.count)
    ]
    covered = [start + i for segment, start in tiles for i in range(segment.size)]
    assert covered == list(range(low, low + extent))
    assert [s.first for s in found] == list(itertools.accumulate([0, *(s.count for s in found)]))[
        :-1
    ]
    side = group.tensors[group.head.operands[0].tensor].shape[2]
    for segment, start in tiles:
        first = segment.start * stride - pads[0]
        here = start * stride - pads[0]
        reach = (segment.size - 1) * stride + kernel
        assert max(0, -here) == max(0, -first)
        assert max(0, here + reach - side) == max(0, first + reach - side)


def test_the_ends_of_a_split_reduction_stand_alone() -> None:
    group = convolution(8, 1, (0, 0), 1)
    found = segments(group, TileLoop(4, 3, reduction=True), 0, 12)
    assert [(s.first, s.count, s.opens, s.closes) for s in found] == [
        (0, 1, True, False), (1, 2, False, False), (3, 1, False, True),
    ]  # fmt: skip
