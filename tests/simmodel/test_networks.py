"""Meshes, tori and rings between cores: times worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from programs import KIB, box, load, machine, memories, program, store

from simmodel.arch.grid import Grid
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Loop
from simmodel.machine.run import simulate
from simmodel.trace import Trace

WIDE = memories(dram={"bandwidth": "1 TB/s"}, local={"bank_width": 1024})


def network(topology: str, cores: int, *shape: int, **more: Any) -> Arch:
    """Cores whose links carry 4 B/cycle and take 3 cycles for each hop."""
    roles = ["dram", "local"] if "ports" in more else ["local"]
    link = {"topology": topology, "from": roles, "to": roles, "bandwidth": "4 B/cycle",
            "latency": "3 cycles", "shape": shape, **more}  # fmt: skip
    way = {"bandwidth": "64 B/cycle", "peer": True, "broadcast": True}
    copy = {"peer": {"from": "local", "to": "local", **way},
            "load": {"from": "dram", "to": "local", **way},
            "store": {"from": "local", "to": "dram", **way}}  # fmt: skip
    return machine(cores=cores, copy=copy, links={"noc": link}, memories=WIDE)


def send(*to: int, amount: int = 160, source: tuple[int, ...] = ()) -> Copy:
    src = box("local", 0, amount, cores=source)
    return Copy(engine="peer", src=src, dst=box("local", 4 * KIB, amount, cores=to))


def run(arch: Arch, *copies: tuple[int, Copy], **how: Any) -> Trace:
    """Of one copy on each of the cores that are named."""
    streams = dict(copies)
    own = ((streams[core],) if core in streams else () for core in range(arch.core_count))
    return simulate(program(*own), arch, **how)


ROW = network("mesh", 4, 1, 4)


@pytest.mark.parametrize(
    ("arch", "source", "target", "hops"),
    [
        (ROW, 0, 2, 2),
        (ROW, 3, 0, 3),
        (ROW, 1, 1, 0),
        (network("ring", 5), 0, 2, 2),
        (network("ring", 5), 0, 4, 1),  # the shorter way round
        (network("mesh", 12, 3, 4), 0, 11, 5),
        (network("torus", 12, 3, 4), 0, 11, 2),  # one back along the row, one up
        (network("torus", 8, 2, 2, 2), 0, 7, 3),
    ],
)
def test_a_transfer_takes_its_bytes_and_the_latency_of_each_hop(
    arch: Arch, source: int, target: int, hops: int
) -> None:
    trace = run(arch, (source, send(target)))
    # 160 B at 4 B/cycle, or in the core itself at the engine's 64.
    assert trace.cycles == (40 + 3 * hops if hops else 3)
    assert trace.traffic["link.noc"] == 160 * hops
    assert trace.busiest_lanes == {"noc": 160 if hops else 0}


def test_two_transfers_share_the_link_that_both_take() -> None:
    # 1 to 2 begins at 3, 0 to 2 at 6: until then 12 B. Then 2 B/cycle each over 1-2: the first has
    # moved all of its 160 B at 80, the second 148 B, and the other 12 B take 3 cycles.
    trace = run(ROW, (0, send(2)), (1, send(2)), trace=True)
    assert trace.spans is not None
    assert [*zip(trace.spans.core, trace.spans.end, strict=True)] == [(1, 80), (0, 83)]
    assert trace.busiest_lanes["noc"] == 320
    # Against each other they have links of their own, unless both directions share one.
    assert run(ROW, (0, send(1)), (1, send(0))).cycles == 43
    half = network("mesh", 4, 1, 4, duplex=False)
    assert run(half, (0, send(1)), (1, send(0))).cycles == 83


def test_a_way_goes_along_the_last_dimension_first() -> None:
    # 0 to 6 over 1 and 2, 4 to 6 over 5: they meet nowhere; 1 to 6 takes 1-2 and 2-6 as well.
    arch = network("mesh", 8, 2, 4)
    assert run(arch, (0, send(6)), (4, send(6))).cycles == 40 + 9
    assert run(arch, (0, send(6)), (1, send(6))).cycles > 80
    grid = Grid((2, 4), wraps=False)
    assert [*grid.crossed((0,), (6,))[0]] == [(0, 1), (1, 2), (2, 6)]
    assert grid.links == 2 * (2 * 3 + 4)
    assert grid.snake(8) == [0, 1, 2, 3, 7, 6, 5, 4]


def test_a_broadcast_takes_each_link_once() -> None:
    trace = run(ROW, (0, send(1, 2, 3)))
    assert (trace.cycles, trace.traffic["link.noc"]) == (40 + 9, 3 * 160)


def test_what_is_off_chip_comes_and_goes_by_all_ports() -> None:
    # Half of the bytes by 0-1 and half by 3-2-1: 80 B each, and two hops at most.
    arch = network("mesh", 4, 1, 4, ports=[0, 3])
    for copy in (load(160), store(160)):
        trace = run(arch, (1, copy))
        assert (trace.cycles, trace.traffic["link.noc"]) == (20 + 6, 3 * 80)
    # All four load: over 0-1 go halves of 1, 2 and 3: 240 B.
    every = run(arch, *((core, load(160)) for core in range(4)))
    assert every.busiest_lanes["noc"] == 240
    grid = arch.grid(arch.links["noc"])
    assert grid is not None
    assert grid.usual(None, ()) == (1.5, (3 + 2 + 2 + 3) / 4)


def test_equal_turns_are_skipped_as_they_would_run() -> None:
    """Of transfers that meet on links; tests/simmodel/test_steady.py has random ones."""
    arch = network("ring", 6)
    own = [(Loop("i", 400, (send((n + 1) % 6), send((n + 2) % 6, amount=80))),) for n in range(6)]
    quick, whole = (simulate(program(*own), arch, skip=skip) for skip in (True, False))
    assert quick.simulated < whole.simulated / 2
    assert dataclasses.replace(quick, simulated=whole.simulated, site_counts=()) == (
        dataclasses.replace(whole, site_counts=())
    )
