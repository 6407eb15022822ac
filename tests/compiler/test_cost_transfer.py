"""Prices of transfers: what the copy instructions take that are made of them, also for cores that
load alike.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import changed, machine
from networks import Net

from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.codegen.legalize import Names, legal_copy
from compiler.cost.multicast import Cores, MulticastRoute, find_multicast_route
from compiler.cost.overlap import pipelined
from compiler.cost.transfer import Path, RepeatedTransfer, traffic
from compiler.geometry.cuts import boxes
from compiler.tensor_ir.nest import Storage, Tensor, dense
from simmodel.arch.record import Arch
from simmodel.arch.units import Delay
from simmodel.isa import Copy, Item, Loop
from simmodel.isa.base import operand_traffic
from simmodel.isa.region import Address, Operand
from simmodel.machine.run import simulate
from simmodel.program.program import Program


def taken(item: Item, arch: Arch) -> float:
    """Cycles of a copy on an idle machine; whole bursts of DRAM at its bandwidth."""
    if isinstance(item, Loop):
        return item.count * sum(taken(inner, arch) for inner in item.body)
    assert isinstance(item, Copy)
    (far,) = (o for o in (item.src, item.dst) if o.memory == "dram")
    moved = operand_traffic(arch, far, write=far is item.dst).load(arch)
    return item.startup(arch) + max(item.cycles(arch), moved / arch.dram_bytes_per_cycle)


@settings(max_examples=80)
@given(st.data())
def test_a_box_takes_what_its_copies_take(data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 4))
    few = st.integers(0, 9)
    # Copies of a box that the engine cannot walk at once share no burst and no run; its price takes
    # them for one.
    whole = limit == 4
    engine: dict[str, Any] = {"rank": limit, "bandwidth": "8 B/cycle"}
    engine |= {"request": data.draw(st.integers(1, 64)), "outstanding": 1 + data.draw(few)}
    engine |= {name: f"{data.draw(few)} cycles" for name in ("per_request", "minimum")}
    engine["joins_runs"] = not whole or data.draw(st.booleans())
    arch = machine(copy=engine, latency=data.draw(st.integers(0, 20)))
    cost = Delay(whole * data.draw(few), in_cycles=True)
    arch = changed(arch, "memories.dram", write_efficiency=0.5, run_cost=cost)
    arch = arch if whole else changed(arch, "memories.dram", burst=1)
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(rank))
    far, near = (tuple(data.draw(st.permutations(range(rank)))) for _ in range(2))
    sizes = tuple(data.draw(st.integers(1, extent)) for extent in shape)
    room = tuple(data.draw(st.integers(n, n + 2)) for n in sizes)
    store = data.draw(st.booleans())
    tensor = Tensor("t", shape, "int8", Storage("t", 0, dense(shape, far)))
    there = Operand("dram", Address(0), sizes, dense(shape, far), "int8")
    here = Operand("local", Address(0), sizes, dense(room, near), "int8")
    src, dst = (here, there) if store else (there, here)
    copies = legal_copy(Copy(engine="store" if store else "load", src=src, dst=dst), arch, Names())
    found = Path(arch, 1, "dram", "local", store=store).box(tensor, sizes, near, room)
    assert float(found.cycles) == pytest.approx(sum(taken(item, arch) for item in copies), abs=3)


def test_each_of_several_copies_takes_whole_cycles() -> None:
    """Six rows of 2 bytes, each in 10 cycles at 3 bytes in 14 cycles, behind a latency of 14."""
    arch = machine(copy={"rank": 1, "request": 3, "outstanding": 1}, latency=14)
    arch = changed(arch, "memories.dram", burst=1)
    shape = 3, 2, 2
    tensor = Tensor("t", shape, "int8", Storage("t", 0, dense(shape, (0, 1, 2))))
    found = Path(arch, 1, "dram", "local").box(tensor, shape, (0, 1, 2), (3, 2, 3))
    assert float(found.cycles) == 6 * (14 + 10)


def test_engines_side_by_side_take_the_busiest_one_and_one_tile_of_the_others() -> None:
    # Three tiles: loads 0-3, 3-6, 6-9; products 3-5, 6-8, 9-11; stores 5-6, 8-9, 11-12.
    assert pipelined(2, [(9, 3), (6, 2), (3, 1)]) == 12
    # Products 1-4, 4-7, 7-10; the last store is over at 11.
    assert pipelined(2, [(3, 1), (9, 3), (3, 1)]) == 11
    # One tile has nothing to overlap with.
    assert pipelined(2, [(4, 4), (3, 3), (2, 2)]) == 9
    # The first load, 50 of 60 cycles, is before the first store; four of these take 40.
    assert pipelined(2, [(60, 50), (12, 3), (40, 10)]) == 50 + 3 + 40
    # DRAM serves loads and stores, 30 cycles in all and 4 + 2 for a tile.
    assert pipelined(2, [(20, 4), (10, 2), (10, 2)], [(30, 6)]) == 4 + 2 + 2 + 24
    # One slot: products 3-5, then the next load 5-8, products 8-10, a load 10-13, a store 15-16.
    assert pipelined(1, [(9, 3), (6, 2), (3, 1)]) == 16


def streams(load: int, store: int, times: int) -> Program:
    """`times` loads of `load` bytes, and as many stores of `store`, which wait for none of them."""

    def moved(size: int, *, out: bool) -> Copy:
        far, near = (Operand(role, Address(0), (size,), (1,), "int8") for role in ("dram", "local"))
        if out:
            return Copy(engine="store", src=near, dst=far)
        return Copy(engine="load", src=far, dst=near)

    body = moved(load, out=False), moved(store, out=True)
    return Program("p", "m", ((Loop("t", times, body),),), ({},), {}, (), (), (), (), ())


@pytest.mark.parametrize(
    ("rate", "latency", "late"),
    [
        (16, 100, 24 * 50 / 2),  # of the stores' 50 cycles each, half meet a load's 100 of 200
        (16, 0, 24 * 50),  # there always is one
        (16, 900, 24 * 50 / 10),
        (8, 100, 0),  # both have all that they can take
        (12, 100, 24 * 67 * 133 / 233 / 2),  # together 24 of 16 B/cycle
    ],
)
def test_stores_hold_up_the_loads_that_they_meet(rate: int, latency: int, late: float) -> None:
    times, load, store = 25, 1600, 800
    arch = machine(latency=latency, copy={"bandwidth": f"{rate} B/cycle", "outstanding": 64})
    ways = Path(arch, 1, "dram", "local"), Path(arch, 1, "dram", "local", store=True)
    flows = [
        RepeatedTransfer(way, times, way.run(size))
        for way, size in zip(ways, (load, store), strict=True)
    ]
    expected = float(traffic(arch, 1, flows).load[0])
    alone = times * float(flows[0].once.cycles)
    assert expected - alone == pytest.approx(late, rel=0.05)
    # Which of them meet is left to chance here.
    assert simulate(streams(load, store, times), arch).cycles == pytest.approx(expected, rel=0.05)


ARRAYS: dict[str, dict[str, Any]] = {
    "conv": {"kind": "cube", "rows": 8, "cols": 16, "depth": 16, "granularity": "conv"},
    "gemm": {"kind": "systolic", "rows": 16, "cols": 16, "depth": 1, "granularity": "gemm"},
    "tile": {"kind": "systolic", "rows": 16, "cols": 16, "depth": 1, "granularity": "tile"},
}


def paced(array: str, bandwidth: int) -> Arch:
    """A machine on whose DRAM loads and stores take turns, and nothing else waits for another."""
    matrix = ARRAYS[array] | {"writeback": ["bias", "clip", "requantize"], "rate": {"fp16": 1.0}}
    local = {"size": 1 << 18, "banks": 8, "bank_width": 64}
    rate = f"{bandwidth} B/cycle"
    arch = machine(types=("fp16",), local=local, matrix=matrix, copy={"bandwidth": rate})
    return changed(arch, "memories.dram", bandwidth=arch.copy_["load"].bandwidth)


def compiled(arch: Arch, kind: str, shape: tuple[int, ...], out: int, kernel: int) -> CompileResult:
    net = Net()
    x = net.input(*shape)
    if kind == "Conv":
        weight = net.weight(out, shape[1], kernel, kernel)
        y = net.op("Conv", x, weight, pads=[kernel // 2] * 4)
    else:
        y = net.op(kind, x, *([net.weight(shape[-1], out)] if kind == "MatMul" else []))
    return compile_model(net.model(y), arch, CompileOptions(dtype="fp16"))


@pytest.mark.parametrize(
    ("array", "bandwidth", "kind", "shape", "out", "kernel"),
    [
        ("conv", 8, "Conv", (1, 64, 14, 14), 64, 1),
        ("conv", 64, "Conv", (1, 256, 7, 7), 256, 3),
        ("gemm", 8, "Conv", (1, 64, 14, 14), 64, 3),
        ("gemm", 64, "MatMul", (64, 256), 256, 1),
        ("tile", 8, "MatMul", (64, 256), 256, 1),
        ("tile", 64, "Conv", (1, 64, 14, 14), 64, 3),
        ("conv", 8, "Relu", (1, 64, 28, 28), 0, 0),
    ],
)
def test_one_layer_takes_what_it_was_priced_at(
    array: str, bandwidth: int, kind: str, shape: tuple[int, ...], out: int, kernel: int
) -> None:
    arch = paced(array, bandwidth)
    made = compiled(arch, kind, shape, out, kernel)
    (decision,) = made.decisions
    cycles = simulate(made.program, arch).cycles
    assert decision.schedule.estimate.total == pytest.approx(cycles, rel=0.07)


def test_a_network_pays_for_every_piece_of_what_it_loads() -> None:
    # The input lies in planes, the first product wants channels last: one piece per element.
    net = Net()
    x = net.input(1, 64, 16, 16)
    for _ in range(2):
        x = net.op("Conv", x, net.weight(64, 64, 3, 3), pads=[1] * 4)
    arch = paced("conv", 64)
    made = compile_model(net.model(x), arch, CompileOptions(dtype="fp16"))
    expected = sum(decision.schedule.estimate.total for decision in made.decisions)
    # As a group, loops of 3 rows would load 64 * 18 * 16 pieces and more; layers alone are quicker.
    assert expected == pytest.approx(simulate(made.program, arch).cycles, rel=0.05)


def way(gain: float = 1.5, among: str = "load") -> MulticastRoute:
    found = find_multicast_route(machine(cores=4, among=among), gain)
    assert found is not None
    return found


def test_cores_that_differ_in_rows_alone_load_the_same_columns() -> None:
    cores = Cores.of(boxes((1, 64, 8), {1: 2, 2: 2}, {}), way())
    everywhere = {0: True, 1: True, 2: True}
    assert cores.replication((1).__eq__, everywhere) == 2
    assert cores.replication((2).__eq__, everywhere) == 2
    assert cores.replication((0).__eq__, everywhere) == 4


def test_machines_that_cannot_share_have_cores_that_are_all_alike_to_memory() -> None:
    parts = boxes((1, 64, 8), {1: 2, 2: 2}, {})
    assert Cores.of(parts, None) == Cores(4)
    assert Cores.of(parts, None).replication((1).__eq__, {}) == 1
    assert find_multicast_route(machine(cores=4), 1.5) is None
    assert find_multicast_route(machine(cores=1, among="load"), 1.5) is None


@pytest.mark.parametrize("among", ["load", "peer"])
def test_a_load_for_all_moves_a_part_for_each_and_takes_less(among: str) -> None:
    shares, arch = way(among=among), machine(cores=4, among=among)
    alone, shared, short = (
        Path(arch, 4, "dram", "local", alike=alike, way=shares).run(size)
        for alike, size in ((1, 4096), (4, 4096), (4, 16))
    )
    assert shared.bytes == alone.bytes / 4
    assert shared.cycles < alone.cycles / 1.5
    # What takes mostly its start is loaded by every core.
    assert short.bytes == Path(arch, 4, "dram", "local").run(16).bytes


def test_one_part_is_passed_on_while_the_next_is_loaded() -> None:
    shares = way(among="peer")
    load = Path(machine(cores=4, among="peer"), 4, "dram", "local", alike=4, way=shares).run(4096)
    assert load.busy == max(load.cycles - load.passing, load.passing)
    assert load.busy < load.cycles


def staged(shared: dict[str, Any], clusters: int = 1, room: float = 0.25) -> MulticastRoute | None:
    """How four cores of each cluster share loads that nothing gives to several of them."""
    return find_multicast_route(machine(clusters=clusters, cores=4, shared=shared), 1.5, room)


def test_cores_share_through_a_memory_that_they_see() -> None:
    found = staged({"size": 4096})
    assert found is not None
    assert found.staged
    assert (found.last, found.fetch, found.room, found.seen_by) == ("store", "load", 1024, 4)
    # Two sets of two cores, and as much again for the step before: 256 bytes each.
    assert found.holds(256, 4, 2)
    assert not found.holds(257, 4, 2)
    assert found.holds(512, 4, 4)
    assert staged({"size": 4096}, room=0.0) is None


def test_sets_of_cores_are_equal_where_tokens_are_too_few_for_all() -> None:
    for cores, reach in ((4, 0), (5, 3), (9, 3), (10, 4)):
        arch = machine(cores=cores, among="load", tokens=16)
        found = find_multicast_route(arch, 1.5)
        assert found is not None
        assert found.reach == reach
        parts = Cores.of(boxes((1, 360, 8), {1: cores}, {}), found)
        last = cores % reach or reach if reach else cores
        assert parts.replication((2).__eq__, {1: True}) == last


def test_cores_see_the_memory_of_their_cluster() -> None:
    found = staged({"level": "cluster"}, clusters=2)
    assert found is not None
    # By rows, then columns: the cores of a cluster have one half of the rows.
    cores = Cores.of(boxes((1, 64, 8), {1: 4, 2: 2}, {}), found)
    everywhere = {0: True, 1: True, 2: True}
    assert cores.replication((1).__eq__, everywhere) == 2
    assert cores.replication((2).__eq__, everywhere) == 2
    assert cores.replication((0).__eq__, everywhere) == 4


def test_a_load_through_shared_memory_by_hand() -> None:
    """4096 bytes for each of four cores, 64 B/cycle on chip, 16 from DRAM: alone 20 + 1024 cycles.
    A part takes 20 + 256 from DRAM, is stored in 16 cycles, and the others' are loaded in 48."""
    arch = machine(cores=4, copy={"bandwidth": "64 B/cycle"}, shared={"banks": 32})
    found = find_multicast_route(arch, 1.5, 0.25)
    load = Path(arch, 4, "dram", "local", alike=4, way=found).run(4096)
    assert float(load.bytes) == 1024
    assert float(load.passing) == 16
    assert float(load.cycles) == 20 + 256 + 16 + 48
    assert float(load.busy) == float(load.cycles)  # it waits for what it passes on
    assert float(load.staged) == 4096
    # Cores that load their parts early want DRAM one after another, so it waits for each start-up;
    # the others' parts of the first and the last load come when it serves nobody.
    early = Path(arch, 4, "dram", "local", alike=4, way=found, early=True).run(4096)
    assert float(early.busy) == 4 * 20 + 4096 / 16
    assert float(early.ends) == 2 * 48
    # What lies in shared memory is there for all.
    near = Path(arch, 4, "shared", "local", alike=4, way=found).run(4096)
    assert float(near.staged) == 0
    assert float(near.bytes) == 4096


def test_the_engine_that_stores_parts_is_busy_with_them() -> None:
    arch = machine(cores=4, copy={"bandwidth": "64 B/cycle"}, shared={"banks": 32})
    load = Path(arch, 4, "dram", "local", alike=4, way=find_multicast_route(arch, 1.5, 0.25))
    moved = traffic(arch, 4, [RepeatedTransfer(load, 10, load.run(4096))])
    assert float(moved.store[0]) == 10 * 16
    assert float(moved.far["shared"][0]) == 10 * 4 * 4096 / arch.memories.shared.bytes_per_cycle()


def test_cores_of_a_group_load_alike_along_axes_without_a_halo() -> None:
    parts, read = boxes((1, 64, 8), {1: 4}, {}), (2).__eq__
    shared = {halo: Cores.of_group(parts, axes, way(), looped=True).replication(read, {})
              for halo, axes in (("none", {0, 1}), ("rows", {0}))}  # fmt: skip
    assert shared == {"none": 4, "rows": 1}
