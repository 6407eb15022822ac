"""What goes from core to core can be seen: bytes by engine and link, slices and arrows of a trace.

Core 0 loads 160 bytes into both cores and says so; core 1 works on them and passes its 160 results
to core 0, which stores them.
"""

from __future__ import annotations

from typing import Any

import pytest

from archgen.outcomes.columns import column
from archgen.outcomes.rows import traffic_row
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Loop, Unary
from simmodel.isa.region import Address, Operand, contiguous
from simmodel.machine.run import simulate
from simmodel.program.program import Origin, Program

SIZE = 160


def chip(scope: str) -> Arch:
    """Two cores, a load engine that reaches both, one from core to core, and a link below both."""
    moves: dict[str, Any] = {"bandwidth": "16 B/cycle"}
    roles = {"from": ["dram", "local"], "to": ["local"]}
    return Arch.model_validate({
        "name": "seen", "clock": "1 GHz", "cores": 2,
        "memories": {
            "dram": {"size": "1 MiB", "bandwidth": "16 B/cycle", "burst": 1},
            "local": {"size": 4096, "banks": 4, "bank_width": 16},
        },
        "matrix": {"kind": "cube", "rows": 4, "cols": 4, "depth": 4},
        "vector": {"lanes": 16},
        "copy": {
            "load": {"from": ["dram"], "to": ["local"], "broadcast": True} | moves,
            "peer": {"from": ["local"], "to": ["local"], "peer": True} | moves,
            "store": {"from": ["local"], "to": ["dram"]} | moves,
        },
        "links": {"mesh": roles | moves | {"scope": scope}},
        "front_end": {"sync": "tokens", "signal": "5 cycles"},
    })  # fmt: skip


def at(memory: str, base: int, cores: tuple[int, ...] = ()) -> Operand:
    shape = (SIZE,)
    return Operand(memory, Address(base), shape, contiguous(shape, 1), "int8", cores=cores)


def relay() -> Program:
    load = Copy(
        engine="load", src=at("dram", 0), dst=at("local", 0, (0, 1)), notifies=(("full", 1, (1,)),)
    )
    work = Unary(
        engine="vector", function="relu", a=at("local", 0), dst=at("local", 512),
        waits=(("full", 1),), signals=(("made", 1),),
    )  # fmt: skip
    give = Copy(
        engine="peer", src=at("local", 512), dst=at("local", 1024, (0,)), waits=(("made", 1),),
        notifies=(("given", 1, (0,)),),
    )  # fmt: skip
    leave = Copy(engine="store", src=at("local", 1024), dst=at("dram", 4096), waits=(("given", 1),))
    tokens: tuple[dict[str, int], ...] = ({"given": 0}, {"full": 0, "made": 0})
    origins = (Origin("layer", 0, "Relu"),)
    streams = ((load, leave), (work, give))
    return Program("relay", "seen", streams, tokens, {}, (), (), (), (), origins)


@pytest.mark.parametrize(("scope", "crossed"), [("chip", 1 + 1), ("core", 2 + 2)])
def test_bytes_by_engine_and_link(scope: str, crossed: int) -> None:
    """A broadcast reaches two cores; with a link for each it enters both, and what one core gives
    the other leaves through one of them and enters through the other."""
    arch, program = chip(scope), relay()
    row = traffic_row(simulate(program, arch), program, arch)
    assert row == {
        "copied_load_bytes": 2 * SIZE, "copied_peer_bytes": SIZE, "copied_store_bytes": SIZE,
        "link_mesh_bytes": crossed * SIZE,
    }  # fmt: skip
    assert all(column(name) is not None for name in row)


def test_copies_in_loops_count_every_time() -> None:
    arch = chip("chip")
    load = Copy(engine="load", src=at("dram", 0), dst=at("local", 0))
    program = Program("l", "seen", ((Loop("i", 7, (load,)),), ()), ({}, {}), {}, (), (), (), (), ())
    row = traffic_row(simulate(program, arch), program, arch)
    assert row["copied_load_bytes"] == 7 * SIZE
