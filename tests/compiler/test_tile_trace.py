"""What every tile of a group computes and holds: stories by hand, and what holds of any chain; and
the buffers of it: slots, borders, lifetimes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
from blocks import conv
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import machine
from networks import Net

from compiler.geometry.boxes import layer_needs
from compiler.geometry.tile_trace import (
    TileTrace,
    TileTracer,
    TraceCache,
    Unwalkable,
    largest,
    overlap_with_next,
    trace_parts,
)
from compiler.lowering.lower import lower
from compiler.pipeline import prepared
from compiler.plan.make_plan import MakePlan, Plan
from compiler.schedule.fusion.dependence import dependences
from compiler.schedule.fusion.fuse_tails import FuseTails
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate, OuterLoop, Schedule, Tiled
from compiler.target.bind import Bind
from compiler.tensor_ir.bounds import Box

ANY = settings(derandomize=True)
Window = tuple[int, int, int, int]
"""Kernel, stride, borders at both ends; along rows."""


def group_of(model: onnx.ModelProto) -> Group:
    """All layers of a network as one group."""
    graph = lower(prepared(model, "net"), "fp32")
    parts = Bind().apply(FuseTails().apply(graph), machine())
    return dependences(parts, graph).group((1 << len(parts)) - 1)


def chain(high: int, *windows: Window) -> Group:
    """Convolutions of one channel behind each other, on an image one column wide."""
    net = Net()
    x = net.input(1, 1, high, 1)
    for kernel, stride, before, after in windows:
        x = conv(net, x, 1, (kernel, 1), stride=(stride, 1), pads=(before, 0, after, 0), bias=False)
    return group_of(net.model(x))


def walk(group: Group, size: int, *, rolling: bool, inputs: bool = False) -> TileTrace:
    held = frozenset(group.inputs) if inputs else frozenset[str]()
    data = frozenset(n for n in held if group.tensors[n].data is None)
    whole = tuple((0, n) for n in group.tensors[group.results[-1]].shape)
    return TileTracer(group, data).walk((OuterLoop(2, size, rolling=rolling),), whole)


def rows(box: Box | None) -> tuple[int, int] | None:
    return None if box is None else box[2]


def work(walked: TileTrace, layer: int) -> list[tuple[int, int] | None]:
    return [rows(moment.work[layer]) for moment in walked.moments]


SAME = (3, 1, 1, 1)
POINT = (1, 1, 0, 0)


def test_rolling_tiles_compute_each_row_once() -> None:
    group = chain(12, SAME, SAME)
    walked = walk(group, 4, rolling=True)
    between = next(iter(group.internal_readers))
    # Rows 0 .. 3 need rows -1 .. 4; the next tile's rows 3 .. 8 keep rows 3 and 4.
    assert work(walked, 0) == [(0, 5), (5, 4), (9, 3)]
    assert work(walked, 1) == [(0, 4), (4, 4), (8, 4)]
    holds = [m.holds[between] for m in walked.moments]
    assert [rows(h.box) for h in holds] == [(0, 5), (3, 6), (7, 5)]
    assert [(h.before[2], h.after[2]) for h in holds] == [(1, 0), (0, 0), (0, 1)]
    assert [overlap_with_next(a, b) for a, b in pairwise(holds)] == [(2, 4, 2), (2, 4, 2)]
    assert largest([walked.holds[between]], 4) == (1, 1, 6, 1)


def test_a_window_larger_than_what_is_left_makes_the_buffer_whole() -> None:
    group = chain(8, SAME, (7, 1, 3, 3))
    part = ((0, 1), (0, 1), (0, 8), (0, 1))
    (walked,) = trace_parts(group, (OuterLoop(2, 2, rolling=True),), (part,), TraceCache())
    between = next(iter(group.internal_readers))
    # Tiles need rows 0..4, 0..6, 1..7 and 3..7: nearly all of 8, so nothing is moved about.
    assert {m.holds[between].origin[2] for m in walked.moments} == {-3}
    assert walked.rolled == ()
    assert work(walked, 0) == [(0, 5), (5, 2), (7, 1), None]


def test_two_tiles_are_enough_for_a_whole_buffer() -> None:
    group = chain(8, SAME, (7, 1, 3, 3))
    part = ((0, 1), (0, 1), (0, 8), (0, 1))
    (walked,) = trace_parts(group, (OuterLoop(2, 4, rolling=True),), (part,), TraceCache())
    between = next(iter(group.internal_readers))
    # Rows 0..6 and 1..7 of 8.
    assert {m.holds[between].origin[2] for m in walked.moments} == {-3}
    assert work(walked, 0) == [(0, 7), (7, 1)]


def test_groups_that_end_alike_share_what_their_layers_do() -> None:
    group = chain(12, SAME, SAME, SAME)
    memory, loops = TraceCache(), (OuterLoop(2, 4, rolling=True),)
    part = ((0, 1), (0, 1), (0, 12), (0, 1))
    groups = group, replace(group, layers=group.layers[1:])
    longer, shorter = (trace_parts(g, loops, (part,), memory)[0] for g in groups)
    assert all(a is b for a, b in zip(longer.work[1:], shorter.work, strict=True))


def test_outer_loops_must_divide() -> None:
    net = Net()
    x = net.input(3, 1, 8, 1)
    for _ in range(2):
        x = conv(net, x, 1, (3, 1), pads=(1, 0, 1, 0), bias=False)
    group = group_of(net.model(x))
    loops = (OuterLoop(0, 2), OuterLoop(2, 4, rolling=True))
    with pytest.raises(Unwalkable, match="2 does not divide 3"):
        TileTracer(group, frozenset()).walk(loops, ((0, 3), (0, 1), (0, 8), (0, 1)))
    loops = (OuterLoop(0, 1), OuterLoop(2, 4, rolling=True))
    walked = TileTracer(group, frozenset()).walk(loops, ((0, 3), (0, 1), (0, 8), (0, 1)))
    assert walked.repeats == 3
    assert walked.strides is not None
    assert walked.strides[group.results[0]] == (1, 0, 0, 0)


def test_an_outer_turn_that_reads_nothing_is_not_like_the_first() -> None:
    """A second sample that is all border needs nothing of the input that the first one holds."""
    net = Net()
    x = net.input(1, 1, 8, 1)
    low = conv(net, x, 1, (3, 1), pads=(1, 0, 1, 0), bias=False)
    group = group_of(net.model(net.op("Pad", low, net.const([0, 0, 0, 0, 1, 0, 0, 0], np.int64))))
    loops = (OuterLoop(0, 1), OuterLoop(2, 4, rolling=True))
    with pytest.raises(Unwalkable, match="not regular"):
        TileTracer(group, frozenset({x})).walk(loops, ((0, 2), (0, 1), (0, 8), (0, 1)))


def test_a_result_without_the_axis_is_made_in_one_tile() -> None:
    net = Net()
    low = net.op("Relu", net.input(8, 6))
    group = group_of(net.model(low, net.op("Mul", net.input(3, 8, 6), low)))
    part: Box = ((0, 3), (0, 8), (0, 6))
    walker = TileTracer(group, frozenset())
    with pytest.raises(Unwalkable, match="no such axis"):
        walker.walk((OuterLoop(2, 3),), part)
    (moment,) = walker.walk((OuterLoop(2, 6),), part).moments
    assert moment.out[low] == ((0, 8), (0, 6))


@st.composite
def windows(draw: st.DrawFn) -> Window:
    kernel = draw(st.sampled_from((1, 2, 3, 5)))
    edges = st.integers(0, kernel - 1)
    return kernel, draw(st.sampled_from((1, 1, 2, 3))), draw(edges), draw(edges)


@ANY
@given(
    st.integers(5, 40), st.lists(windows(), min_size=2, max_size=5), st.integers(1, 9),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_tile_has_what_it_needs(
    high: int, layers: list[Window], size: int, rolling: bool, inputs: bool
) -> None:
    left = high
    for kernel, stride, before, after in layers:
        assume(left + before + after >= kernel)
        left = (left + before + after - kernel) // stride + 1
    group = chain(high, *layers)
    try:
        walked = walk(group, size, rolling=rolling, inputs=inputs)
    except Unwalkable:
        assert rolling  # positions that nobody needs may lie between
        return
    _stored_once(group, walked)
    for position, layer in enumerate(group.layers):
        _computed(group, walked, position, rolling=rolling)
        for moment in walked.moments:
            _needs_are_held(layer, moment.work[position], moment.holds)


def _stored_once(group: Group, walked: TileTrace) -> None:
    for name in group.results:
        count = np.zeros(group.tensors[name].shape, int)
        for moment in walked.moments:
            count[_slices(moment.out[name])] += 1
        assert (count == 1).all()


def _computed(group: Group, walked: TileTrace, position: int, *, rolling: bool) -> None:
    """All that is held was computed before; rolling: once."""
    name = group.layers[position].result.name
    count = np.zeros(group.tensors[name].shape, int)
    for moment in walked.moments:
        box = moment.work[position]
        if box is not None:
            count[_slices(box)] += 1
        if name in moment.holds:
            assert (count[_slices(moment.holds[name].box)] >= 1).all()
    assert not rolling or count.max() == 1


def _needs_are_held(layer: Layer, box: Box | None, holds: object) -> None:
    assert isinstance(holds, dict)
    if box is None:
        return
    for name, need in layer_needs(layer, box).items():
        if name not in holds:
            continue
        hold = holds[name]
        for (start, size), first, extent in zip(need, hold.origin, hold.sizes, strict=True):
            assert first <= start and start + size <= first + extent


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(start, start + size) for start, size in box)


NOTHING = Estimate(0, 0, 0, 0, 0)


def planned(group: Group, *, rolling: bool, resident: bool = False, looped: bool = True) -> Plan:
    layers = tuple(
        Tiled(y, (), (tuple((0, n) for n in y.result.shape),), NOTHING, resident=resident)
        for y in group.layers
    )
    part = tuple((0, n) for n in group.layers[-1].result.shape)
    loops = (OuterLoop(2, 4, rolling=rolling),) if looped else ()
    return MakePlan().apply(Schedule(group, layers, (part,), NOTHING, loops), machine())


@pytest.mark.parametrize("rolling", [True, False])
def test_what_passes_between_layers(rolling: bool) -> None:
    group = chain(12, SAME, SAME)
    plan = planned(group, rolling=rolling)
    (name,) = group.internal_readers
    buffer = plan.buffers[plan.layers[0].result]
    assert buffer.layer is None and buffer.key is None
    # Four rows of the result need six of what is between, the border's among them.
    assert buffer.shape == (1, 1, 6, 1)
    assert (buffer.first, buffer.last) == (0, 1)
    assert buffer.level == 1
    # Rows that are kept, and the border, must outlive a tile.
    assert buffer.lasting
    assert not rolling or buffer.slots == 1
    assert plan.layers[0].store is None
    assert name == group.layers[0].result.name
    assert plan.handed_on == ((name,) if rolling else ())
    # Nothing is handed on, and no step waits for that, where tiles need no rows of others.
    assert planned(chain(12, POINT, POINT), rolling=rolling).handed_on == ()


@pytest.mark.parametrize(
    ("looped", "again", "shorter"),
    [(False, False, False), (True, False, False), (False, True, False), (False, False, True)],
)
def test_a_sum_is_made_in_the_place_of_what_it_reads_last(
    looped: bool, again: bool, shorter: bool
) -> None:
    """Not in tile loops, where the residual is ahead of the sum; nor where it is read again, or by
    the windows of the product that it is added to."""
    net = Net()
    x = conv(net, net.input(1, 2, 12, 1), 2, (3, 1))
    between = x if shorter else conv(net, x, 2, (3, 1))
    last = conv(net, net.op("Add", conv(net, between, 2, (3, 1)), x), 2, (3, 1))
    group = group_of(net.model(net.op("Add", last, x) if again else last))
    plan = planned(group, rolling=True, looped=looped)
    residual, *_, total = (plan.buffers[layer.result] for layer in plan.layers[: 3 - shorter])
    assert (residual is total) is (not looped and not again and not shorter)
    assert (total.first, total.last) == (0 if residual is total else 2 - shorter, 3 - shorter)


def test_constants_that_stay_are_loaded_once() -> None:
    group = chain(12, SAME, SAME)
    streamed, resident = planned(group, rolling=True), planned(group, rolling=True, resident=True)

    def weights(plan: Plan) -> list[tuple[int | None, int, int]]:
        return [
            (b.layer, b.level, b.slots)
            for b in plan.buffers.values()
            if b.key is not None and group.tensors[b.key[0]].data is not None
        ]

    assert {layer for layer, _, _ in weights(streamed)} == {0, 1}
    assert weights(resident) == [(None, 0, 1)] * 2
