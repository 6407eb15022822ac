"""Buffers of what a group holds: slots, borders, lifetimes; by hand for two convolutions."""

from __future__ import annotations

import pytest
from machines import machine
from test_geometry_walk import SAME, chain

from compiler.plan.make_plan import MakePlan, Plan
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Estimate, OuterLoop, Schedule, Tiled

NOTHING = Estimate(0, 0, 0, 0, 0)


def planned(group: Group, *, rolling: bool, resident: bool = False) -> Plan:
    layers = tuple(
        Tiled(y, (), (tuple((0, n) for n in y.result.shape),), NOTHING, resident=resident)
        for y in group.layers
    )
    part = tuple((0, n) for n in group.layers[-1].result.shape)
    loops = (OuterLoop(2, 4, rolling=rolling),)
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
