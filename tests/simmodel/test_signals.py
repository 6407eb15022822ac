"""Tokens of other cores: what one core tells another again and again, inside of hardware loops.

`relayed` is the shape of streamed weights that cores share: core 0 loads each tile once into both
cores' memories, two slots of it, and everyone tells it when a slot is free again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import constant, port
from programs import KIB, box, load, machine, nop, program, spans, store

from simmodel.arch.record import Arch
from simmodel.errors import Deadlock
from simmodel.execute import execute
from simmodel.isa import Claim, Copy, Instruction, Loop, Sync, Unary
from simmodel.isa.region import Address, Ring
from simmodel.machine.run import simulate
from simmodel.program.program import Program
from simmodel.verify import findings, verify
from simmodel.verify.happens_before import random_order

TILE, TILES, SLOTS = 160, 3, 2
OUT = KIB
"""Where the results lie in local memory."""
DATA = (np.arange(TILE * TILES) * 7 % 251 - 125).astype(np.int8)


def chip(sync: str = "tokens", **front_end: Any) -> Arch:
    """Two cores, 10 cycles to load a tile and 20 to work on one, 5 to signal the other core."""
    front_end = {"sync": sync, "signal": "5 cycles", **front_end}
    load = {"from": "dram", "to": "local", "bandwidth": "16 B/cycle", "broadcast": True}
    return machine(cores=2, vector={"lanes": 8}, copy={"load": load}, front_end=front_end)


def relayed() -> Program:
    """y = [relu(w), relu(w)], a half from each core."""
    slot = Address(0, ring=Ring(SLOTS, TILE, terms=(("i", 1),)))
    fetch = Copy(
        engine="load", src=box("dram", 0, TILE, terms=(("i", TILE),)),
        dst=replace(box("local", 0, TILE, cores=(0, 1)), address=slot),
        waits=(("free0", 1), ("free1", 1)), notifies=(("full", 1, (0, 1)),),
    )  # fmt: skip
    streams = []
    for core in (0, 1):
        work = Unary(
            engine="vector", function="relu", a=replace(box("local", 0, TILE), address=slot),
            dst=box("local", OUT, TILE, terms=(("i", TILE),)),
            waits=(("full", 1),), signals=(("done", 1),), notifies=((f"free{core}", 1, (0,)),),
        )  # fmt: skip
        target = 64 * KIB + core * TILE * TILES
        leave = store(TILE * TILES, at=OUT, target=target, waits=(("done", TILES),))
        body = (fetch, work) if core == 0 else (work,)
        streams.append((Loop("i", TILES, body), leave))
    made = program(
        *streams,
        constants=(constant("w", 0, DATA),),
        outputs=(port("y", box("dram", 64 * KIB, 2 * TILE * TILES)),),
    )
    used = {"full": 0, "done": 0}
    return replace(made, tokens=({**used, "free0": SLOTS, "free1": SLOTS}, used))


def test_times_of_a_tile_relay_worked_out_by_hand() -> None:
    # Loads 0-10 and 10-20 fill both slots. Core 0 knows of a tile at once, core 1 5 cycles later:
    # work 10-30, 30-50 and 15-35, 35-55. The third load needs the first slot of both: free on
    # core 0 at 30, on core 1 at 35, which core 0 hears at 40. It ends at 50: 50-70 and 55-75.
    base = relayed()
    found = spans(base, chip())
    assert [(s, e) for name, s, e in found if name == "load"] == [(0, 10), (10, 20), (40, 50)]
    assert sorted((s, e) for name, s, e in found if name == "vector") == [
        (10, 30), (15, 35), (30, 50), (35, 55), (50, 70), (55, 75),
    ]  # fmt: skip
    trace = simulate(base, chip())
    loads = next(e for e in trace.engines if (e.core, e.engine) == (0, "load"))
    assert (loads.idle["engine"], loads.idle["core"]) == (10, 10)


def test_a_signal_takes_its_time_to_other_cores_only() -> None:
    # 10 cycles of work; a nop of 3 on either core waits for it: 10-13 here, 10 + 7 there.
    first = (load(160, notifies=(("t", 1, (0, 1)),)), nop(3, waits=(("t", 1),)))
    second = (nop(3, waits=(("t", 1),)),)
    found = spans(program(first, second, tokens={"t": 0}), chip(signal="7 cycles"))
    assert found == [("load", 0, 10), ("scalar", 10, 13), ("scalar", 17, 20)]


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_a_tile_relay_means_the_same_in_every_order(sync: str) -> None:
    base, arch = relayed(), chip(sync)
    verify(base, arch)
    expected = np.tile(np.maximum(DATA, 0), 2).tolist()
    for order in (None, *map(random_order, range(6))):
        assert execute(base, {}, arch, order=order)["y"].tolist() == expected


def changed(base: Program, core: int, engine: str, **fields: Any) -> Program:
    """`base` with fields of one core's looped instruction on `engine` replaced."""
    loop, leave = base.cores[core]
    assert isinstance(loop, Loop)
    body = tuple(
        replace(item, **fields) if isinstance(item, Instruction) and item.engine == engine else item
        for item in loop.body
    )
    assert body != loop.body
    stream = (replace(loop, body=body), leave)
    return replace(base, cores=tuple(stream if c == core else s for c, s in enumerate(base.cores)))


BROKEN: dict[str, tuple[Program, str]] = {
    # Core 1 no longer waits for its tile: it reads what core 0 has not written.
    "no wait": (changed(relayed(), 1, "vector", waits=()), "balance"),
    # Core 1 no longer says that a slot is free.
    "no notice": (changed(relayed(), 1, "vector", notifies=()), "balance"),
    # The tile is announced to core 0 alone.
    "too few cores": (changed(relayed(), 0, "load", notifies=(("full", 1, (0,)),)), "balance"),
    "unknown token": (changed(relayed(), 0, "load", notifies=(("ful", 1, (1,)),)), "token"),
    "no such core": (changed(relayed(), 0, "load", notifies=(("full", 1, (0, 2)),)), "core"),
    "twice": (changed(relayed(), 0, "load", notifies=(("full", 1, (1, 1)),)), "core"),
    "nothing": (changed(relayed(), 0, "load", notifies=(("full", 0, (0, 1)),)), "token"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_relay_with_a_mistake_is_caught(case: str) -> None:
    base, rule = BROKEN[case]
    assert rule in {finding.rule for finding in findings(base, chip())}


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_a_slot_that_is_free_too_early_is_a_race(sync: str) -> None:
    # One more token at the start: counts balance, but core 1 is a tile behind.
    base = relayed()
    first, second = base.tokens
    base = replace(base, tokens=({**first, "free1": SLOTS + 1}, second))
    found = findings(base, chip(sync))
    assert [f.rule for f in found] == ["race"]
    assert "core 0 load" in str(found[0]) and "core 1 vector" in str(found[0])


def claimed() -> Program:
    """Core 1 works on a tile of its own, then on what core 0 writes to the same place."""
    place, out = box("local", 0, TILE), box("dram", 64 * KIB, TILE)
    own = Copy(engine="load", src=box("dram", 0, TILE), dst=place)
    work = Unary(engine="vector", function="relu", a=place, dst=box("local", OUT, TILE))
    again = replace(work, dst=box("local", OUT + TILE, TILE))
    given = Copy(
        engine="load", src=box("dram", TILE, TILE), dst=box("local", 0, TILE, cores=(0, 1)),
        waits=(("free", 1),), notifies=(("full", 1, (1,)),),
    )  # fmt: skip
    room = Claim(engine="load", dst=place, notifies=(("free", 1, (0,)),))
    there = Claim(engine="load", dst=place, waits=(("full", 1),))
    leave = store(TILE, at=OUT + TILE, target=64 * KIB)
    made = program(
        (given,), (own, work, room, there, again, leave),
        constants=(constant("w", 0, DATA[: 2 * TILE]),), outputs=(port("y", out),),
    )  # fmt: skip
    return replace(made, tokens=({"free": 0}, {"full": 0}))


def test_16_a_claim_stands_for_what_another_core_writes() -> None:
    # Core 1 loads in 0-10 and works in 10-30; only then has it room, which core 0 hears at 35. Its
    # load of 10 cycles is over at 45, core 1 knows at 50: work 50-70, store 70-80.
    base, arch = claimed(), chip("interlock", issue_width=4, queue_depth=4)
    verify(base, arch)
    assert execute(base, {}, arch)["y"].tolist() == np.maximum(DATA[TILE : 2 * TILE], 0).tolist()
    assert spans(base, arch) == [
        ("load", 0, 10), ("vector", 10, 30), ("load", 30, 30), ("load", 35, 45), ("load", 50, 50),
        ("vector", 50, 70), ("store", 70, 80),
    ]  # fmt: skip


@pytest.mark.parametrize("number", [2, 3])
def test_16_without_the_claim_its_core_does_not_look_after_the_bytes(number: int) -> None:
    base, arch = claimed(), chip("interlock")
    core = list(base.cores[1])
    bare = core[number]
    assert isinstance(bare, Claim)
    core[number] = Sync(engine="load", waits=bare.waits, notifies=bare.notifies)
    (found,) = findings(replace(base, cores=(base.cores[0], tuple(core))), arch)
    assert found.rule == "race"
    assert "core 0 load" in str(found) and "core 1 vector" in str(found)


def test_16_a_claim_writes_nothing() -> None:
    # Core 0 gives its tile to itself alone: core 1 works on what nothing has written.
    base, arch = claimed(), chip("interlock")
    (given,) = base.cores[0]
    assert isinstance(given, Copy)
    kept = replace(given, dst=box("local", 0, TILE))
    broken = replace(base, cores=((kept,), base.cores[1][2:]))
    assert [found.rule for found in findings(broken, arch)] == ["unwritten"]


def test_16_a_claim_keeps_order_within_its_core_alone() -> None:
    # Nobody tells core 1, but it touches nothing of what core 0 writes.
    own = Copy(engine="load", src=box("dram", 0, TILE), dst=box("local", 0, TILE, cores=(1,)))
    other = Claim(engine="load", dst=box("local", 0, TILE))
    data = (constant("w", 0, DATA[:TILE]),)
    assert not findings(program((own,), (other,), constants=data), chip("interlock"))


def test_two_cores_may_not_give_one_token() -> None:
    give = (("t", 1, (0,)),)
    streams = ((nop(1, waits=(("t", 2),)),), (replace(nop(1), notifies=give),)) * 1
    third = (replace(nop(1), notifies=give),)
    arch = machine(cores=3, front_end={"signal": "1 cycle"})
    (found,) = findings(program(*streams, third, tokens={"t": 0}), arch)
    assert found.message == "token 't' is signalled by scalar of core 1 and scalar of core 2"


def test_a_core_that_is_never_told_waits_for_ever() -> None:
    streams = ((nop(1),), (nop(1, waits=(("t", 1),)),))
    with pytest.raises(Deadlock, match=r"core 1: scalar: .* waits for token t"):
        simulate(program(*streams, tokens={"t": 0}), chip())
