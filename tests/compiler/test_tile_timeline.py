"""Loads leave in one order: a stream through few slots holds up what is loaded behind it."""

from __future__ import annotations

import pytest
from machines import machine
from test_tile_pieces import convolution

from compiler.geometry.walk import Moment, Walked
from compiler.tile.share import Share, Shares
from compiler.tile.timeline import Timeline, Work

SLOTS = 2
PRODUCTS, STREAM, CONSTANTS, BEHIND = 1000.0, 500.0, 400.0, 100.0


def share(matrix: float, load: float, arrivals: float) -> Share:
    """Products of one tile of the result, whose operands arrive in pieces."""
    return Share((), matrix, 0.0, load, 0.0, 0.0, 0.0, pieces=1, arrivals=arrivals)


def cycles(arrivals: float) -> float:
    """A layer whose weights stream, before one whose constants are loaded as a whole."""
    layers = share(PRODUCTS, STREAM, arrivals), share(BEHIND, 0.0, 1)
    work = Work(layers, {}, {}, {}, {1: CONSTANTS})
    walked = Walked((Moment({}, (None, None), {}),))
    timeline = Timeline(((), ("first",)), ("first", "second"), SLOTS)
    return timeline.run(walked, lambda run, moment: work)


@pytest.mark.parametrize("arrivals", [5, 10, 20])
def test_a_stream_through_few_slots_holds_up_a_whole_load_behind_it(arrivals: float) -> None:
    begun = STREAM / arrivals
    released = begun + PRODUCTS * (1 - SLOTS / arrivals)
    assert cycles(arrivals) == pytest.approx(released + CONSTANTS + BEHIND)


def test_what_arrives_at_once_holds_up_nothing() -> None:
    assert cycles(1) == pytest.approx(STREAM + PRODUCTS + BEHIND)


def test_pieces_of_a_reduction_are_arrivals() -> None:
    layer = convolution(24, 3, (1, 1), 1)
    held = frozenset(name for name in layer.inputs if layer.tensors[name].data is None)
    front = Shares(machine(), SLOTS, 1).front(layer, layer.result.shape, held, resident=False)
    shares = [front.make(position) for position in range(len(front.needs))]
    split = [s for s in shares if any(loop.reduction for loop in s.loops)]
    assert split
    for each in split:
        (loop,) = (loop for loop in each.loops if loop.reduction)
        pieces = -(-layer.head.dims[loop.dim].extent // loop.size)
        assert each.arrivals == each.pieces * pieces > each.pieces
