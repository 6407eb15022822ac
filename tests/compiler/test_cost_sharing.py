"""Cores that load alike: how many there are, and what a load for all of them takes."""

from __future__ import annotations

from typing import Any

import pytest
from machines import machine

from compiler.cost.multicast import Cores, MulticastRoute, find_multicast_route
from compiler.cost.transfer import Path, RepeatedTransfer, traffic
from compiler.geometry.cuts import boxes


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
    assert (found.last, found.fetch, found.room, found.reach) == ("store", "load", 1024, 4)
    # Two sets of two cores, and as much again for the step before: 256 bytes each.
    assert found.holds(256, 4, 2)
    assert not found.holds(257, 4, 2)
    assert found.holds(512, 4, 4)
    assert staged({"size": 4096}, room=0.0) is None


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
    assert float(load.busy) == 20 + 256 + 48
    assert float(load.staged) == 4096
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
