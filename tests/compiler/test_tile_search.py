"""Searches for tiles: bounds hold, effort finds nothing worse, objectives get what they ask."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from machines import machine
from networks import Net
from test_tile_pieces import convolution

from compiler.context import CompileOptions, Context
from compiler.cost.multicast import Cores
from compiler.decisions.group_costs import GroupCosts
from compiler.options import Stages
from compiler.pipeline import bind, fuse_tails, nests, prepared
from compiler.schedule.fusion.dependence import dependences
from compiler.schedule.tiling.layer_mapping import MappingCache
from compiler.schedule.tiling.objective import SCORES
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Estimate


def chain(count: int, side: int, channels: int) -> Group:
    """A group of 3x3 convolutions."""
    net = Net()
    x = net.input(1, channels, side, side)
    for _ in range(count):
        x = net.op("Conv", x, net.weight(channels, channels, 3, 3), pads=[1, 1, 1, 1])
    arch = machine()
    options = CompileOptions(dtype="fp32")
    ctx = Context(arch, replace(options, dtype="fp32"))
    network = bind(fuse_tails(nests(prepared(net.model(x), "chain"), ctx), ctx), ctx)
    tied = dependences(network.parts, network.graph)
    return tied.group(tied.layers)


def test_a_share_with_more_room_is_never_slower_and_fits_its_room() -> None:
    layer = convolution(24, 3, (1, 1), 1)
    front = MappingCache(machine(), 2, Cores(1)).front(
        layer, layer.result.shape, frozenset(), resident=False
    )
    smallest = front.smallest()
    assert smallest is not None
    assert front.within(smallest.need - 1) is None
    rooms = [smallest.need * step for step in (1, 1.5, 2, 4, 100)]
    found = [front.within(room) for room in rooms]
    assert all(share is not None and share.need <= r for share, r in zip(found, rooms, strict=True))
    assert found[0] is smallest or found[0] == smallest


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


def test_no_schedule_is_below_the_floor_of_its_loops() -> None:
    group = chain(3, 24, 8)
    search = GroupCosts(machine(), Stages()).search
    pricer = search.pricer(group)
    for schedule in search.schedules(group):
        floor = pricer.floor(schedule.parts, schedule.loops, search.bounds)
        assert 0 < floor.matrix <= schedule.estimate.matrix
        assert floor.total <= schedule.estimate.total


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
