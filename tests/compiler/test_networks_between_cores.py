"""Meshes, tori and rings between cores: prices by hand, places of parts, and a network that is
right on such a machine."""

from __future__ import annotations

from typing import Any

import pytest
from machines import machine
from networks import check
from test_core_slices import network

from compiler.cost.multicast import Handover, copies_of, handover_cycles
from compiler.cost.overlap import far_rate
from compiler.cost.overlap import network as between
from compiler.cost.transfer import Path
from compiler.geometry.cuts import boxes
from simmodel.arch.record import Arch


def on_grid(topology: str, *shape: int, cores: int = 4, among: str = "each", **more: Any) -> Arch:
    """Cores whose links carry 4 B/cycle and take 5 cycles for each hop."""
    arch = machine(cores=cores, among=among, local={"size": 1 << 18}, tokens=256)
    roles = ["dram", "local"] if "ports" in more else ["local"]
    link = {"topology": topology, "shape": shape, "from": roles, "to": roles,
            "bandwidth": "4 B/cycle", "latency": "5 cycles", **more}  # fmt: skip
    made = arch.model_dump(by_alias=True, mode="json") | {"links": {"noc": link}}
    return Arch.model_validate(made)


def test_what_is_handed_on_is_priced_by_links_and_hops() -> None:
    def one(giver: int, taker: int, size: int) -> Handover:
        return Handover(giver, (taker,), ((0, 1), (0, size)))

    row, ring = on_grid("mesh", 1, 4), on_grid("ring")
    bare = machine(cores=4, among="each", tokens=256)
    # Three hops on a row, one on a ring: of few bytes the engine's own time counts.
    cycles = [handover_cycles(arch, (one(0, 3, 16),), 1) for arch in (bare, ring, row)]
    assert [each - cycles[0] for each in cycles] == [0, 5, 15]
    # Of many those of the busiest link, 1-2.
    given = (one(0, 2, 1600), one(1, 2, 1600), one(0, 3, 1600))
    assert handover_cycles(row, given, 1) == 3 * 1600 / 4 + 2 * row.front_end.signal.cycles(1e9)
    # The nearest first, of equally near ones the next.
    taking = Handover(1, (0, 2, 3), ((0, 1), (0, 16)))
    assert copies_of(row, "peer", taking) == ((2,), (0,), (3,))


def test_loads_are_priced_by_the_busiest_link() -> None:
    # Over 0-1 go halves of what 1, 2 and 3 load: 4 B/cycle for 1.5 bytes of each core.
    arch = on_grid("mesh", 1, 4, ports=[0, 3])
    assert between(arch, "dram", "local") == (4 / 1.5, 5 * (3 + 2 + 2 + 3) / 4)
    assert far_rate(arch, "dram", 4) == far_rate(arch, "dram", 4, store=True) == 4 / 1.5
    bare = machine(cores=4, among="each", local={"size": 1 << 18}, tokens=256)
    assert far_rate(bare, "dram", 4) == 16 / 4
    one, two = (Path(each, 4, "dram", "local").run(1600).cycles for each in (bare, arch))
    assert two - one == pytest.approx(12.5 + 1600 * 1.5 / 4 - 1600 / 4)


def test_neighbouring_parts_lie_on_neighbouring_cores() -> None:
    arch = on_grid("torus", 2, 2)
    starts = [box[0][0] for box in boxes((8, 8), {0: 4}, {}, arch)]
    assert starts == [0, 2, 6, 4]  # cores 0, 1, 3, 2 in a circle
    assert boxes((8, 8), {0: 2, 1: 2}, {}, arch) == boxes((8, 8), {0: 2, 1: 2}, {})


@pytest.mark.parametrize("among", ["each", "peer", "load"])
@pytest.mark.parametrize("kind", ["mesh", "torus"])
def test_a_network_is_right_there(kind: str, among: str) -> None:
    check(network(), on_grid(kind, 2, 2, among=among, ports=[0, 3]), "fp32")
