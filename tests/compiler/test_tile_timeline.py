"""Engines in order: what waits for a load, for a slot that is free, and for an array that fills."""

from __future__ import annotations

import pytest
from machines import machine
from test_tile_pieces import convolution

from compiler.cost.multicast import Cores
from compiler.geometry.tile_trace import TileStep, TileTrace
from compiler.schedule.tiling.layer_mapping import MappingCache
from compiler.schedule.tiling.layer_price import TilePrices
from compiler.schedule.tiling.timeline import GroupTimeline, TileWork

SLOTS = 2
PRODUCTS, STREAM, CONSTANTS, BEHIND = 1000.0, 500.0, 400.0, 100.0


def share(matrix: float, load: float, arrivals: float) -> TilePrices:
    """Products of one tile of the result, whose operands arrive in pieces."""
    nothing = TilePrices(*[0.0] * 12)
    return nothing._replace(matrix=matrix, load=load, tiles=1, arrivals=arrivals)


def cycles(arrivals: float) -> float:
    """A layer whose weights stream, before one whose constants are loaded as a whole."""
    layers = share(PRODUCTS, STREAM, arrivals), share(BEHIND, 0.0, 1)
    work = TileWork(layers, {}, {}, {}, {1: CONSTANTS})
    walked = TileTrace((TileStep({}, (None, None), {}),))
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
    walked = TileTrace((TileStep({}, (None, None), {}),))
    end = timeline.run(walked, lambda run, moment: TileWork(layers, {}, {}, {}))
    assert end == pytest.approx(PRODUCTS + STREAM * (1 - SLOTS / arrivals) + BEHIND / arrivals)


PRODUCT, TAIL, TILES = 100.0, 80.0, 4


@pytest.mark.parametrize(
    ("slots", "expected"),
    [(2, TILES * PRODUCT + TAIL), (1, TILES * (PRODUCT + TAIL))],
)
def test_what_passes_between_layers_waits_for_a_slot(slots: int, expected: float) -> None:
    layers = share(PRODUCT, 0.0, 1), share(0.0, 0.0, 1)._replace(vector=TAIL)
    # Tiles that differ in form, so that each is played.
    forms = (((0, 1 + tile),) for tile in range(TILES))
    walked = TileTrace(tuple(TileStep({}, (box, box), {}) for box in forms))
    timeline = GroupTimeline(((), ("first",)), ("first", "second"), SLOTS, {"first": slots})
    assert timeline.run(walked, lambda run, moment: TileWork(layers, {}, {}, {})) == expected


def test_pieces_of_a_reduction_are_arrivals() -> None:
    layer = convolution(24, 3, (1, 1), 1)
    held = frozenset(name for name in layer.inputs if layer.tensors[name].data is None)
    front = MappingCache(machine(), SLOTS, Cores(1)).front(
        layer, layer.result.shape, held, resident=False
    )
    shares = [front.make(position) for position in range(len(front.needs))]
    split = [s for s in shares if any(loop.reduction for loop in s.loops)]
    assert split
    for each in split:
        (loop,) = (loop for loop in each.loops if loop.reduction)
        pieces = -(-layer.head.dims[loop.dim].extent // loop.size)
        assert each.arrivals == each.tiles * pieces > each.tiles


def test_vector_work_ends_a_piece_behind_the_products() -> None:
    # Products of 4 pieces end at 100; of the vector work, 10 cycles a piece, one piece is left.
    layer = share(PRODUCT, 0.0, 1)._replace(vector=40.0, tiles=4)
    timeline = GroupTimeline(((),), ("first",), SLOTS)
    work = TileWork((layer,), {}, {}, {})
    assert timeline.run(TileTrace((TileStep({}, (None,), {}),)), lambda run, moment: work) == 110
    # Where it takes longer than the products it is behind them from the first piece on.
    slow = layer._replace(vector=200.0)
    timeline = GroupTimeline(((),), ("first",), SLOTS)
    work = TileWork((slow,), {}, {}, {})
    assert timeline.run(TileTrace((TileStep({}, (None,), {}),)), lambda run, moment: work) == 225
    # What follows on the same engine waits for its end, not for the products' alone.
    behind = share(0.0, 0.0, 1)._replace(vector=5.0)
    timeline = GroupTimeline(((), ()), ("first", "second"), SLOTS)
    work = TileWork((layer, behind), {}, {}, {})
    assert (
        timeline.run(TileTrace((TileStep({}, (None, None), {}),)), lambda run, moment: work) == 115
    )
