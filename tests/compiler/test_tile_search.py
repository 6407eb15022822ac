"""Searches for tiles: bounds and floors hold, effort finds nothing worse, objectives get what they
ask. Pieces of work cover everything once, and engines wait for loads, slots and arrays that fill.
"""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import pytest
from blocks import blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine, machines
from networks import Net

from archgen.schema import load_arch
from compiler.api import compile_model
from compiler.codegen.nodes import segments
from compiler.context import CompileOptions, Context
from compiler.cost.multicast import Cores, MulticastRoute, find_multicast_route
from compiler.decisions.group_costs import GroupCosts
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.geometry.cuts import boxes, grids, telling
from compiler.geometry.tile_trace import TileBoxes, TileTrace
from compiler.lowering.lower import lower
from compiler.options import Stages
from compiler.pipeline import bind, fuse_tails, nests, prepared
from compiler.schedule.fusion.dependence import Dependences, dependences
from compiler.schedule.tiling import choose_tiles
from compiler.schedule.tiling.candidates import choices
from compiler.schedule.tiling.choose_tiles import ChooseTiles, GroupSearch
from compiler.schedule.tiling.group_price import GroupPricer
from compiler.schedule.tiling.layer_mapping import MappingCache
from compiler.schedule.tiling.layer_price import price, prices_of
from compiler.schedule.tiling.objective import SCORES
from compiler.schedule.tiling.problem import TilePrices, TilingProblem
from compiler.schedule.tiling.timeline import GroupTimeline, TileWork
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate, OuterLoop, Schedule, TileLoop
from compiler.target.bind import Bind
from compiler.target.product_tiles import TileSizes
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Nest
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate


def chain(count: int, side: int, channels: int) -> Group:
    """A group of 3x3 convolutions."""
    tied = ties(count, side, channels)
    return tied.group(tied.layers)


def ties(count: int, side: int, channels: int, *, pooled: bool = False) -> Dependences:
    """3x3 convolutions, each alone or with a pool behind it."""
    net = Net()
    x = net.input(1, channels, side, side)
    for _ in range(count):
        x = net.op("Conv", x, net.weight(channels, channels, 3, 3), pads=[1, 1, 1, 1])
        x = net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]) if pooled else x
    ctx = Context(machine(), CompileOptions(dtype="fp32"))
    network = bind(fuse_tails(nests(prepared(net.model(x), "chain"), ctx), ctx), ctx)
    return dependences(network.parts, network.graph)


def test_a_part_with_halo_on_both_sides_stands_for_others() -> None:
    """4 images, each in 4 blocks of rows: the first, and block 1 of image 2, not its block 0."""
    assert telling([((n, 1), (h, 4)) for n in range(4) for h in range(0, 16, 4)]) == (0, 9)


def test_a_share_with_more_room_is_never_slower_and_fits_its_room() -> None:
    layer = convolution(24, 3, (1, 1), 1)
    front = MappingCache(machine(), 2, Cores(1)).front(layer, layer.result.shape, frozenset())
    smallest = front.smallest()
    assert smallest is not None
    assert front.within(smallest.need - 1) is None
    rooms = [smallest.need * step for step in (1, 1.5, 2, 4, 100)]
    found = [front.within(room) for room in rooms]
    assert all(share is not None and share.need <= r for share, r in zip(found, rooms, strict=True))
    assert found[0] is smallest or found[0] == smallest


def test_splits_priced_at_once_have_the_prices_that_each_has_alone() -> None:
    """Parts of 1 to 8 of 21 rows and 24 channels, which share loads or not, even and uneven."""
    layer = convolution(21, 3, (1, 1), 1)
    arch = machine(cores=8, among="load")
    way = find_multicast_route(arch, 1.0)
    assert way is not None
    shape, asked = layer.result.shape, []
    for grid in grids(shape, [1, 2, 3], 8):
        parts = boxes(shape, grid, {})
        box = tuple(max(size for _, size in column) for column in zip(*parts, strict=True))
        problem = TilingProblem(layer, arch, box, Cores.of(parts, way), 2)
        asked.append((problem, choices(problem)))
    assert len({problem.alike_with for problem, _ in asked}) < len(asked)  # so some are together
    for one, together in zip(asked, prices_of(asked), strict=True):
        others = price(one[0].on_alike_cores(), one[1])
        for columns in zip(together, price(*one), others, strict=True):
            column, alone, other = (np.broadcast_to(each, one[1].shape) for each in columns)
            assert np.array_equal(column, alone) and np.array_equal(other, alone)


def test_each_sum_waits_for_its_first_piece_where_cores_load_their_parts_early() -> None:
    """Weights of 16 x 16 fp32, four pieces to a sum. The parts of one take 4 x 16 cycles from DRAM,
    core by core, and the last of them 4 to shared memory: less than the array works on a piece."""
    arch = machine(cores=4, copy={"bandwidth": "64 B/cycle"}, shared={"banks": 32}, latency=0)
    way = find_multicast_route(arch, 1.5, 0.25)

    def waits(sums: int) -> float:
        layer = convolution(32, 1, (0, 0), 1, (64, 16 * sums))
        parts = boxes(layer.result.shape, {2: 4}, {})
        box = tuple(size for _, size in parts[0])
        held = frozenset({layer.head.operands[0].tensor, layer.result.name})
        problem = TilingProblem(layer, arch, box, Cores.of(parts, way), 2, held)
        found = price(problem, TileSizes(1, 8, 32, 16, 16, 1, 0, np.True_))
        return float(found.total - found.matrix)

    assert waits(8) - waits(2) == (8 - 2) * (4 * 16 + 4)


def test_what_nothing_loads_is_tried_in_one_order() -> None:
    layer = convolution(24, 3, (1, 1), 1)
    held = frozenset({*layer.inputs, layer.result.name})
    for tensors, orders in ((held, 1), (held - {layer.head.operands[0].tensor}, 2)):
        problem = TilingProblem(layer, machine(), layer.result.shape, Cores(1), 2, held=tensors)
        assert np.size(choices(problem).order) == orders


@pytest.mark.parametrize(("cuts", "alike"), [((1, 4, 1, 1), 1), ((1, 1, 4, 1), 4)])
def test_cores_matter_as_far_as_they_load_alike(cuts: tuple[int, ...], alike: int) -> None:
    layer = convolution(16, 16, (3, 3), 1)  # weights alone are loaded: those of a channel by one
    around, held = Cores(4, cuts, (False,) * 4), frozenset({"x0", layer.result.name})
    problem = TilingProblem(layer, machine(), layer.result.shape, around, 2, held)
    assert math.prod(problem.on_alike_cores().cores.cuts) == alike
    assert replace(problem, held=held | {*layer.inputs}).on_alike_cores().cores == Cores(1)


def test_a_layer_beside_more_that_is_kept_is_not_priced_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search, group = GroupCosts(machine(), Stages()).search, chain(1, 24, 8)
    first = list(search.candidates(group))
    assert first
    monkeypatch.setattr(choose_tiles, "prices_of", lambda asked: [])  # else too few of them
    beside = replace(group, reserved={"local": 1024})
    assert [made.estimate for made in search.candidates(beside)] == [s.estimate for s in first]


@pytest.mark.parametrize("cores", [1, 2])
def test_no_price_is_below_its_bound(cores: int) -> None:
    group = chain(3, 24, 8)
    for objective in SCORES:
        stages = Stages()
        stages = replace(stages, tile=replace(stages.tile, objective=objective, cores=cores))
        costs = GroupCosts(machine(), stages)
        assert 0 <= costs.lower_bound(group) <= costs.price(group)


@pytest.mark.parametrize("objective", SCORES)
@pytest.mark.parametrize("local", ["12 KiB", "64 KiB"])
def test_a_price_below_a_limit_is_that_of_the_best_schedule(objective: str, local: str) -> None:
    group = chain(3, 24, 8)
    stages = Stages()
    stages = replace(stages, tile=replace(stages.tile, objective=objective))
    search = GroupCosts(machine(local={"size": local}), stages).search
    scores = [search.score(schedule.estimate) for schedule in search.schedules(group)]
    best = min(scores, default=math.inf)
    for limit in (0.5 * best, best, 1.5 * best, math.inf):
        found = search.below(group, limit)
        assert (found is not None) == (best < limit)
        assert found is None or search.score(found) == best


def test_groups_that_are_alike_share_prices_under_their_own_names() -> None:
    """Also layers that work tiles ahead of others, which are tried last."""
    tied = ties(4, 24, 8, pooled=True)
    one, two = (tied.group(3 << at) for at in (2, 4))
    search, fresh = (GroupCosts(machine(local={"size": "16 KiB"}), Stages()).search for _ in "ab")
    assert search.outlines.of(one) == search.outlines.of(two)
    assert search.below(one, math.inf)
    best, *_ = search.schedules(two)
    assert best.group is two and best.loops[-1].ahead == (1,)
    assert best == fresh.schedules(two)[0]


def test_limits_that_are_off_by_a_rounding_are_one_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = chain(3, 24, 8)
    price = GroupCosts(machine(), Stages()).price(group)
    costs, limits = GroupCosts(machine(), Stages()), list[float]()
    below = costs.search.below

    def counted(group: Group, limit: float) -> Estimate | None:
        limits.append(limit)
        return below(group, limit)

    monkeypatch.setattr(costs.search, "below", counted)
    for limit in (0.5 * price, 0.5 * price * (1 + 1e-12)):
        assert limit <= costs.cost_below(group, limit) <= price
    assert len(limits) == 1
    assert costs.cost_below(group, 2 * price) == price


@pytest.mark.parametrize("local", [16 << 10, 32 << 10])
def test_a_layer_without_neighbours_takes_all_the_room_there_is(local: int) -> None:
    group, arch = chain(1, 8, 128), machine(local={"size": local})
    pricer = GroupCosts(arch, Stages()).search.pricer(group)
    (layer,) = group.layers
    made = pricer.price((tuple((0, extent) for extent in layer.result.shape),), ())
    front = MappingCache(arch, SLOTS, Cores(1)).front(layer, layer.result.shape, frozenset())
    half, quickest = front.within(local / 2), front.within(local)
    assert made is not None and half is not None and quickest is not None
    assert made.layers[0].loops == quickest.loops != half.loops
    assert made.estimate.total < half.total


def test_no_schedule_is_below_the_floor_of_its_loops() -> None:
    group = chain(3, 24, 8)
    search = GroupCosts(machine(), Stages()).search
    pricer = search.pricer(group)
    for schedule in search.schedules(group):
        floor = pricer.floor(schedule.parts, schedule.loops, search.bounds)
        assert 0 < floor.matrix <= schedule.estimate.matrix
        assert floor.total <= schedule.estimate.total


def test_a_core_takes_all_weights_that_pass_through_shared_memory() -> None:
    arch = machine(cores=4, shared={}, copy={"bandwidth": "4 B/cycle"})
    search, group = GroupCosts(arch, Stages()).search, chain(2, 16, 32)
    made = [each for each in search.schedules(group) if len(each.parts) == 4]
    floors = [search.pricer(group).floor(s.parts, s.loops, search.bounds).memory for s in made]
    assert {*floors} == {2 * 32 * 32 * 9 * 4 / 4} and min(s.estimate.memory for s in made) > 18432


def test_each_objective_is_best_at_what_it_asks_for() -> None:
    group = chain(4, 32, 8)
    best: dict[str, Estimate] = {}
    for objective in SCORES:
        stages = Stages()
        stages = replace(stages, tile=replace(stages.tile, objective=objective))
        best[objective] = GroupCosts(machine(), stages).schedules(group)[0].estimate
    assert best["memory"].need == min(estimate.need for estimate in best.values())
    assert best["memory"].need < best["latency"].need
    assert best["energy"].bytes <= best["memory"].bytes
    assert best["latency"].total == min(estimate.total for estimate in best.values())


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


def test_parts_are_also_as_few_as_have_the_same_largest_one() -> None:
    """56 rows on 32 cores: two each on 28 of them, as many as the 28 rows of the next layer, or two
    and one."""
    assert list(grids((1, 8, 56, 8), [2], 32)) == [{}, {2: 28}, {2: 32}]
    assert list(grids((1, 8, 28, 8), [2], 32)) == [{}, {2: 16}, {2: 28}]


def convolution(
    side: int, kernel: int, pads: tuple[int, int], stride: int, channels: tuple[int, int] = (2, 3)
) -> Layer:
    net = Net()
    x = net.input(1, channels[0], side, side)
    w = net.weight(*channels[::-1], kernel, kernel)
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


SLOTS = 2
PRODUCTS, STREAM, CONSTANTS, BEHIND = 1000.0, 500.0, 400.0, 100.0
NONE = TileBoxes((None,))


def share(matrix: float, load: float, arrivals: float) -> TilePrices:
    """Products of one tile of the result, whose operands arrive in pieces."""
    nothing = TilePrices(*[0.0] * 12)
    return nothing._replace(matrix=matrix, load=load, tiles=1, arrivals=arrivals)


def cycles(arrivals: float) -> float:
    """A layer whose weights stream, before one whose constants are loaded as a whole."""
    layers = share(PRODUCTS, STREAM, arrivals), share(BEHIND, 0.0, 1)
    work = TileWork(layers, {}, {}, {}, {1: CONSTANTS})
    walked = TileTrace(1, (NONE, NONE))
    timeline = GroupTimeline(((), ("first",)), ("first", "second"), SLOTS)
    return timeline.run(walked, lambda run, moment: work)


@pytest.mark.parametrize("arrivals", [5, 10, 20])
def test_a_stream_through_few_slots_holds_up_a_whole_load_behind_it(arrivals: float) -> None:
    begun = STREAM / arrivals
    released = begun + PRODUCTS * (1 - SLOTS / arrivals)
    assert cycles(arrivals) == pytest.approx(released + CONSTANTS + BEHIND)


@pytest.mark.parametrize("arrivals", [5, 10])
def test_a_stream_waits_for_its_layer_but_for_what_has_a_slot(arrivals: float) -> None:
    """Two pieces are there when the layer before is done; the last one is behind all others."""
    layers = share(PRODUCTS, 0.0, 1), share(BEHIND, STREAM, arrivals)
    timeline = GroupTimeline(((), ("first",)), ("first", "second"), SLOTS)
    walked = TileTrace(1, (NONE, NONE))
    end = timeline.run(walked, lambda run, moment: TileWork(layers, {}, {}, {}))
    assert end == pytest.approx(PRODUCTS + STREAM * (1 - SLOTS / arrivals) + BEHIND / arrivals)


def test_a_stream_through_one_slot_takes_turns_with_its_layer() -> None:
    walked, work = TileTrace(1, (NONE,)), TileWork((share(PRODUCTS, STREAM, 5),), {}, {}, {})
    end = GroupTimeline(((),), ("first",), 1).run(walked, lambda run, moment: work)
    assert end == pytest.approx(PRODUCTS + STREAM)


def test_a_stream_without_room_beside_the_layer_before_waits_for_its_end() -> None:
    layers = share(PRODUCTS, 0.0, 1), share(BEHIND, STREAM, 5)
    walked, work = TileTrace(1, (NONE, NONE)), TileWork(layers, {}, {}, {})
    ends = []
    for waiting in (frozenset[int](), frozenset({1})):
        timeline = GroupTimeline(
            ((), ("first",)), ("first", "second"), SLOTS, waiting=waiting
        )  # fmt: skip
        ends.append(timeline.run(walked, lambda run, moment: work))
    assert ends[1] == PRODUCTS + STREAM + BEHIND / 5 > ends[0]


HEAD, PRODUCT, TAIL, TILES = 20.0, 100.0, 60.0, 4


@pytest.mark.parametrize(
    ("slots", "expected"), [(2, TILES * PRODUCT + TAIL), (1, TILES * (PRODUCT + TAIL))]
)
def test_what_passes_between_layers_waits_for_a_slot(slots: int, expected: float) -> None:
    layers = share(PRODUCT, 0.0, 1), share(0.0, 0.0, 1)._replace(vector=TAIL)
    # Tiles that differ in form, so that each is played.
    boxes = TileBoxes(tuple(((0, 1 + tile),) for tile in range(TILES)))
    walked = TileTrace(TILES, (boxes, boxes))
    timeline = GroupTimeline(((), ("first",)), ("first", "second"), SLOTS, {"first": slots})
    assert timeline.run(walked, lambda run, moment: TileWork(layers, {}, {}, {})) == expected


def test_tiles_wait_for_room_and_for_stores() -> None:
    """Two products a tile, 4 tiles. A load of 50: hidden, or behind all of the tile before, whose
    store takes 30. A store of 150 whose place the next tile needs: 250 a tile, the last ends it."""
    boxes = TileBoxes(tuple(((0, 1 + tile),) for tile in range(TILES)))
    inputs, results = (("in",), ("first",)), ("first", "second")

    def end(ahead: int, stores: dict[int, float], **slots: int) -> float:
        work = TileWork((share(PRODUCT, 0.0, 1),) * 2, {"in": 50.0}, {}, stores)
        timeline = GroupTimeline(inputs, results, SLOTS, {"in": 2, **slots}, room_ahead=ahead)
        return timeline.run(TileTrace(TILES, (boxes, boxes)), lambda run, moment: work)

    assert [end(ahead, {1: 30.0}) for ahead in (2, 1, 0)] == [880, 880, TILES * 280]
    assert end(2, {0: 150.0}, first=1) == 50 + 3 * 250 + 100 + 150
    assert end(2, {0: 150.0}, first=2) == 50 + TILES * 200 + 50


def test_a_layer_begins_behind_all_that_its_first_tile_reads() -> None:
    """Weights of 300 before pieces of 100, of which one is worked on meanwhile; what came with the
    group before does not count."""
    layer = share(PRODUCTS, 700.0, 4)._replace(first=400.0, lead=150.0)
    walked, work = TileTrace(1, (NONE,)), TileWork((layer,), {}, {}, {})
    ends = [
        GroupTimeline(((),), ("first",), SLOTS, come=come).run(walked, lambda run, moment: work)
        for come in (False, True)
    ]
    assert ends == [400 + PRODUCTS, 250 + PRODUCTS]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [((1,), HEAD + TILES * PRODUCT + TAIL), ((), TILES * (HEAD + PRODUCT + TAIL))],
)
def test_work_ahead_leaves_products_nothing_to_wait_for(
    stages: tuple[int, ...], expected: float
) -> None:
    """The vector engine makes tile i + 1 of what products read before it takes their tile i."""
    nothing = share(0.0, 0.0, 1)
    layers = nothing._replace(vector=HEAD), share(PRODUCT, 0.0, 1), nothing._replace(vector=TAIL)
    boxes = TileBoxes(tuple(((0, 1 + tile),) for tile in range(TILES)))
    walked = TileTrace(TILES, (boxes,) * 3)
    timeline = GroupTimeline(
        ((), ("first",), ("second",)), ("first", "second", "third"), SLOTS,
        {"first": 2, "second": 2}, stages=tuple(map(range, (0, *stages), (*stages, 3))),
    )  # fmt: skip
    assert timeline.run(walked, lambda run, moment: TileWork(layers, {}, {}, {})) == expected


def test_pieces_of_a_reduction_are_arrivals() -> None:
    layer = convolution(24, 3, (1, 1), 1)
    held = frozenset(name for name in layer.inputs if layer.tensors[name].data is None)
    front = MappingCache(machine(), SLOTS, Cores(1)).front(layer, layer.result.shape, held)
    shares = [front.make(position) for position in range(len(front.needs))]
    split = [s for s in shares if any(loop.reduction for loop in s.loops)]
    assert split
    for each in split:
        (loop,) = (loop for loop in each.loops if loop.reduction)
        pieces = -(-layer.head.dims[loop.dim].extent // loop.size)
        assert each.arrivals == each.tiles * pieces > each.tiles


def test_what_the_last_load_brings_is_worked_on_behind_it() -> None:
    """Six loads of 4 KiB; with tiles of single lines it would seem that one line alone is left."""
    layer = convolution(2, 1, (0, 0), 1, (64, 96))
    held = frozenset({layer.inputs[0], layer.result.name})
    front = MappingCache(machine(), SLOTS, Cores(1)).front(layer, layer.result.shape, held)
    found = front.make(0)
    assert found.loops == (TileLoop(1, 16),) and found.load == 6 * (20 + 4096 / 16)


def test_vector_work_ends_a_piece_behind_the_products() -> None:
    # Products of 4 pieces end at 100; of the vector work, 10 cycles a piece, one piece is left.
    layer = share(PRODUCT, 0.0, 1)._replace(vector=40.0, tiles=4)
    timeline = GroupTimeline(((),), ("first",), SLOTS)
    work = TileWork((layer,), {}, {}, {})
    assert timeline.run(TileTrace(1, (NONE,)), lambda run, moment: work) == 110
    # Where it takes longer than the products it is behind them from the first piece on.
    slow = layer._replace(vector=200.0)
    timeline = GroupTimeline(((),), ("first",), SLOTS)
    work = TileWork((slow,), {}, {}, {})
    assert timeline.run(TileTrace(1, (NONE,)), lambda run, moment: work) == 225
    # What follows on the same engine waits for its end, not for the products' alone.
    behind = share(0.0, 0.0, 1)._replace(vector=5.0)
    timeline = GroupTimeline(((), ()), ("first", "second"), SLOTS)
    work = TileWork((layer, behind), {}, {}, {})
    assert timeline.run(TileTrace(1, (NONE, NONE)), lambda run, moment: work) == 115


ROUNDED = 1 + 1e-9


class _Floored(GroupSearch):
    """Compares every price with its floor."""

    def _priced(
        self, pricer: GroupPricer, parts: tuple[Box, ...], loops: tuple[OuterLoop, ...]
    ) -> list[Schedule]:
        made = super()._priced(pricer, parts, loops)
        floor = pricer.floor(parts, loops, self.bounds)
        edged = pricer.edged(parts, loops, floor)
        for schedule in made:
            most = schedule.estimate.total * ROUNDED
            assert edged <= most, (floor, schedule.estimate, loops)
            least, lead = self.bounds.least(pricer.group, self.cores), schedule.estimate.lead
            assert max(least.matrix, least.vector) + lead <= most
        return made


@dataclass(frozen=True)
class _FlooredTiles(ChooseTiles):
    def together(self, arch: Arch, slots: int, way: MulticastRoute | None) -> GroupSearch:
        return _Floored(self, arch, slots, way)


@dataclass(frozen=True)
class _Floors(Stages):
    tile: ChooseTiles = field(default_factory=_FlooredTiles)


@settings(max_examples=40, derandomize=True)
@given(machines(), st.data())
def test_no_price_is_below_its_floor(arch: Arch, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(arch.types))
    model: onnx.ModelProto = data.draw(blocks(dtype == "int8", most=3))
    with suppress(DoesNotFit, UnsupportedModel):
        compile_model(model, arch, CompileOptions(dtype=dtype, stages=_Floors()))


def test_loads_are_larger_where_constants_take_longest_to_arrive() -> None:
    """The next layer's loads hide what a larger last tile leaves to do; not where work is longer,
    or other work than loads is."""
    assert Estimate(100, 40, 10, 80, 0, rest=40).visible(0.25) == 90
    assert Estimate(100, 90, 10, 80, 0, rest=40).visible(0.25) == 100
    arch, stages = load_arch("neuroncore-v2-like"), Stages()
    asked, cycles = dict[tuple[int, float | None], float | None](), list[int]()
    for rows, hidden in ((1, None), (1, 0.0), (4096, None)):
        net = Net()
        x = net.input(1, rows, 1024)
        for _ in range(4):
            x = net.op("MatMul", x, net.weight(1024, 1024))
        own = replace(stages, tile=replace(stages.tile, hidden=hidden))
        made = compile_model(net.model(x), arch, CompileOptions(stages=own))
        assert made.search is not None
        costs = made.search.costs.hiding(made.search.graph, made.search.parts, choose_tiles.HIDDEN)
        asked[rows, hidden] = costs.stages.tile.hidden
        cycles += [simulate(made.program, arch).cycles] if rows == 1 else []
    assert asked == {(1, None): choose_tiles.HIDDEN, (1, 0.0): 0.0, (4096, None): None}
    assert cycles[0] < 0.92 * cycles[1]
