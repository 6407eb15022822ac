"""Calls of the host in pieces, beside the tiles of the loop that reads what it makes."""

from __future__ import annotations

import pytest
from networks import Net, check

from archgen.schema import load_arch
from archgen.schema.rewritten import changed
from compiler.codegen.host_pieces import called_in_time, first_tiles
from compiler.codegen.nodes import instructions
from simmodel.isa import HOST, Arrive, Await, HostCall, Item


@pytest.mark.parametrize(
    ("done", "latency", "each", "tiles"),
    [
        ([10, 20, 30, 40], 0, 20, (0, 1, 2, 3)),  # 10 + 4 x 20 = 90
        ([10, 20, 30, 40], 100, 20, (0,)),  # 140 + 4 x 20 = 220; two pieces: 240 and a tile
        # The host is slower: 450 + 4 x 60 in one; 350 and 500 + 60 in two; 550 + 60 in three.
        ([100, 200, 300, 400], 50, 60, (0, 3)),
        ([], 10, 10, ()),
    ],
)
def test_where_the_last_tile_ends_soonest(
    done: list[int], latency: int, each: int, tiles: tuple[int, ...]
) -> None:
    assert first_tiles(done, latency, each) == tiles


def test_calls_come_when_the_piece_before_is_awaited() -> None:
    calls = [HostCall(payload=0, origin=0, operations=n) for n in range(3)]
    opens = [Arrive(engine=HOST, barrier=name, origin=0) for name in ("a", "b", "c")]
    waits = [Await(engine="load", barrier=name, origin=1) for name in ("a", "b", "c")]
    host = [item for pair in zip(calls, opens, strict=True) for item in pair]
    expected: list[Item] = [
        calls[0], opens[0], calls[1], waits[0], opens[1], calls[2], waits[1], opens[2], waits[2]
    ]  # fmt: skip
    assert [*called_in_time([*host, *waits])] == expected
    assert [*called_in_time(host)] == host  # nobody waits for any
    late = Await(engine=HOST, barrier="d", origin=0)
    assert [*called_in_time([*host, late, calls[0]])] == [*host, late, calls[0]]


def test_cores_begin_with_the_first_piece() -> None:
    net = Net(quantized=True)
    image = net.input(1, 3, 96, 96)
    x = net.op("Conv", image, net.weight(32, 3, 5, 5), pads=[2] * 4)
    y = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    few = {"memories.local.size": "128 KiB", "host.latency": "1 us"}
    found = check(net.model(y), changed(load_arch("nvdla-2048"), few), "int8")
    program = found.compiled.program
    calls = [item for item in instructions(program.cores[0]) if isinstance(item, HostCall)]
    pieces = [call for call in calls if call.origin == calls[0].origin]
    assert len(pieces) > 2
    assert sum(call.outputs[0].elements for call in pieces) == 3 * 96 * 96
    host, conv = found.trace.origins[:2]
    assert host.kind == "QuantizeLinear" and conv.kind == "QConv" and conv.first < host.last / 2
    # The host writes pixels as the array reads them: no load moves them one by one.
    assert {call.outputs[0].strides[1:] for call in pieces} == {(1, 3 * 96, 3)}
