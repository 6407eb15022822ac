"""Transfers into other cores' memories: broadcasts from DRAM and copies from peer to peer.

`shared_weights` is the shape of every layer that cores split by rows: core 0 loads each part of the
weights once for all, everyone multiplies, and the next part waits until everyone has finished.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import ROWS, K, N, W, X, Y, at, constant, machine, port, program, without_tokens
from programs import KIB, box, memories
from programs import machine as plain_machine
from programs import program as plain_program

from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.isa import Arrive, Await, Copy, Fill, Gemm, Instruction, Sync, Unary
from simmodel.isa.region import Operand
from simmodel.machine.run import simulate
from simmodel.program.program import Program
from simmodel.verify import findings, verify
from simmodel.verify.happens_before import random_order

ROUNDS = 3
CORES = 2
EVERYONE = tuple(range(CORES))


def chip(sync: str = "tokens") -> Arch:
    """Two cores whose load engines broadcast."""
    ways = machine().copy_
    load = ways["load"].model_copy(update={"broadcast": True})
    return machine(sync, CORES).model_copy(update={"copy_": {**ways, "load": load}})


def broadcast(part: int) -> list[Instruction]:
    """Part `part` of the weights, from DRAM to every core, once all are done with the last part."""
    copy = Copy(
        engine="load", dst=at("local", KIB, (K, N), cores=EVERYONE),
        src=at("dram", W + part * K * N, (K, N)),
    )  # fmt: skip
    free: list[Instruction] = [Await(engine="load", barrier=f"free{part}")] if part else []
    return [*free, copy, Arrive(engine="load", barrier=f"full{part}")]


def multiply(part: int) -> list[Instruction]:
    """Add x[:, part] @ w[part] to the sums, when the weights have come."""
    sums = at("accumulators", 0, (ROWS, 1, 1, N), "int32")
    width = K * ROUNDS
    gemm = Gemm(
        engine="matrix", dst=sums, partial=sums if part else None, w=at("local", KIB, (K, N)),
        a=at("local", part * K, (ROWS, 1, 1, K), strides=(width, width, width, 1)),
        signals=() if part < ROUNDS - 1 else (("sums", 1),),
    )  # fmt: skip
    done: list[Instruction] = [Arrive(engine="matrix", barrier=f"free{part + 1}")]
    wait = Await(engine="matrix", barrier=f"full{part}")
    return [wait, gemm, *(done if part < ROUNDS - 1 else [])]


def stream(core: int) -> tuple[Instruction, ...]:
    rows, block = (ROWS, 1, 1, K * ROUNDS), ROWS * K * ROUNDS
    y = at("local", 2 * KIB, (ROWS, 1, 1, N), scale=64.0)
    load = Copy(
        engine="load", dst=at("local", 0, rows), src=at("dram", X + core * block, rows),
        signals=(("x", 1),),
    )  # fmt: skip
    items: list[Instruction] = [load, Sync(engine="matrix", waits=(("x", 1),))]
    for part in range(ROUNDS):
        items += broadcast(part) if core == 0 else []
        items += multiply(part)
    move = Unary(
        engine="vector", function="move", dst=y, a=at("accumulators", 0, (ROWS, 1, 1, N), "int32"),
        waits=(("sums", 1),), signals=(("y", 1),),
    )  # fmt: skip
    target = at("dram", Y + core * ROWS * N, (ROWS, 1, 1, N))
    store = Copy(engine="store", dst=target, src=y, waits=(("y", 1),))
    return (*items, move, store)


WEIGHTS = (np.arange(ROUNDS * K * N) * 7 % 23 - 11).astype(np.int8).reshape(ROUNDS * K, N)


def shared_weights(sync: str = "tokens") -> Program:
    """y = requantize(x @ w), half of the rows on each core, every weight loaded once."""
    streams: tuple[Any, ...] = tuple(stream(core) for core in EVERYONE)
    tokens: dict[str, int] = {"x": 0, "sums": 0, "y": 0}
    if sync == "interlock":
        streams, tokens = tuple(map(without_tokens, streams)), {}
    rows = CORES * ROWS
    return program(
        *streams, tokens=tuple(dict(tokens) for _ in streams),
        barriers={f"full{part}": 1 for part in range(ROUNDS)}
        | {f"free{part}": CORES for part in range(1, ROUNDS)},
        constants=(constant("w", W, WEIGHTS),),
        inputs=(port("x", at("dram", X, (rows, K * ROUNDS))),),
        outputs=(port("y", at("dram", Y, (rows, N))),),
    )  # fmt: skip


def without(base: Program, core: int, kind: type[Sync], barrier: str) -> Program:
    """`base` less one core's instruction at a barrier."""
    kept = tuple(
        item
        for item in base.cores[core]
        if not (isinstance(item, kind) and getattr(item, "barrier", "") == barrier)
    )
    assert len(kept) == len(base.cores[core]) - 1
    return replace(base, cores=tuple(kept if c == core else s for c, s in enumerate(base.cores)))


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_weights_broadcast_in_rounds_mean_the_same_in_every_order(sync: str) -> None:
    base, arch = shared_weights(sync), chip(sync)
    verify(base, arch)
    x = np.random.default_rng(1).integers(-9, 9, (CORES * ROWS, K * ROUNDS)).astype(np.int8)
    exact = x.astype(np.int64) @ WEIGHTS.astype(np.int64)
    expected = np.clip(np.rint(exact / 64), -128, 127)
    for order in (None, *map(random_order, range(5))):
        got = execute(base, {"x": x}, arch, order=order)["y"]
        assert got.tolist() == expected.tolist()


def test_dram_delivers_a_broadcast_once_and_every_target_takes_it() -> None:
    trace = simulate(shared_weights(), chip())
    weights, inputs = WEIGHTS.nbytes, CORES * ROWS * K * ROUNDS
    assert trace.traffic["dram.read"] == weights + inputs
    results = CORES * ROWS * N
    assert trace.traffic["local.write"] == CORES * weights + inputs + results


def times(base: Program, arch: Arch, core: int, kind: type[Instruction]) -> list[tuple[int, int]]:
    """(start, end) of a core's instructions of one kind, in order."""
    trace = simulate(base, arch, trace=True)
    assert trace.spans is not None
    spans = zip(trace.spans.core, trace.spans.site, trace.spans.start, trace.spans.end, strict=True)
    stream = base.cores[core]
    return [(int(b), int(e)) for c, s, b, e in spans if c == core and type(stream[s]) is kind]


def test_each_round_waits_for_the_one_before() -> None:
    base, arch = shared_weights(), chip()
    (_, *loads), products = times(base, arch, 0, Copy)[: ROUNDS + 1], times(base, arch, 1, Gemm)
    assert len(loads) == len(products) == ROUNDS
    for part in range(ROUNDS):
        assert loads[part][1] <= products[part][0]
    for part in range(1, ROUNDS):
        assert products[part - 1][1] <= loads[part][0]


@pytest.mark.parametrize(
    ("core", "kind", "barrier", "message"),
    [
        (1, Await, "full0", "core 0 load .* core 1 matrix|core 1 matrix .* core 0 load"),
        (1, Await, "full2", "local 1"),
        (0, Await, "full1", "local 0"),
        (0, Await, "free1", "local [01]"),
    ],
)
@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_a_race_with_a_broadcast_is_found(
    sync: str, core: int, kind: type[Sync], barrier: str, message: str
) -> None:
    broken = without(shared_weights(sync), core, kind, barrier)
    found = findings(broken, chip(sync))
    if sync == "interlock" and barrier == "full1":
        assert not found, "core 0's own hardware orders its load and its product"
        return
    assert {finding.rule for finding in found} == {"race"}
    assert any(re.search(message, str(finding)) for finding in found)


def passed_on(pull: bool, wait: bool = True) -> Program:
    """Core 0 loads x; a peer copy, of core 0 or of core 1, brings it to core 1, which stores it."""
    size = 32
    here, there = at("local", 0, (size,)), at("local", 512, (size,))
    load = Copy(engine="load", dst=here, src=at("dram", X, (size,)), signals=(("in", 1),))
    store = Copy(engine="store", dst=at("dram", Y, (size,)), src=there)
    if pull:
        copy = Copy(engine="peer", dst=there, src=replace(here, cores=(0,)), signals=(("in", 1),))
        first = (load, Sync(engine="load", waits=(("in", 1),)), Arrive(engine="load", barrier="b"))
        second: tuple[Instruction, ...] = (copy, replace(store, waits=(("in", 1),)))
    else:
        copy = Copy(engine="peer", dst=replace(there, cores=(1,)), src=here, waits=(("in", 1),))
        first = (load, copy, Arrive(engine="peer", barrier="b"))
        second = (store,)
    waits = (Await(engine="peer" if pull else "store", barrier="b"),) if wait else ()
    return program(
        first, (*waits, *second), tokens=({"in": 0}, {"in": 0} if pull else {}), barriers={"b": 1},
        inputs=(port("x", at("dram", X, (size,))),), outputs=(port("y", at("dram", Y, (size,))),),
    )  # fmt: skip


@pytest.mark.parametrize("pull", [False, True])
def test_a_peer_copy_passes_data_on(pull: bool) -> None:
    base, arch = passed_on(pull), chip()
    verify(base, arch)
    x = np.arange(32, dtype=np.int8)
    for order in (None, *map(random_order, range(3))):
        assert execute(base, {"x": x}, arch, order=order)["y"].tolist() == x.tolist()
    moved = simulate(base, arch).traffic
    assert (moved["dram.read"], moved["dram.write"]) == (64, 64), "one burst each way"
    assert (moved["local.read"], moved["local.write"]) == (64, 64)


@pytest.mark.parametrize("pull", [False, True])
def test_a_race_with_a_peer_copy_is_found(pull: bool) -> None:
    found = findings(passed_on(pull, wait=False), chip())
    assert {finding.rule for finding in found} == {"race"}


HERE, REMOTE = at("local", 0, (16,)), at("local", 64, (16,), cores=(1,))


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Copy(engine="load", dst=replace(REMOTE, cores=(0, 1)), src=at("dram", 0, (16,))),
         "cannot broadcast"),
        (Fill(engine="load", dst=REMOTE), "does not reach other cores"),
        (Fill(engine="load", dst=replace(REMOTE, cores=(0, 1))), "cannot broadcast"),
        (Unary(engine="vector", function="move", dst=REMOTE, a=HERE), "does not reach other cores"),
        (Unary(engine="vector", function="move", dst=HERE, a=REMOTE), "does not reach other cores"),
    ],
)  # fmt: skip
def test_what_reaches_no_other_core(instruction: Instruction, message: str) -> None:
    found = findings(program((instruction,), ()), machine(cores=2))
    assert [message in finding.message for finding in found] == [True]


def peer(amount: int, *to: int, source: tuple[int, ...] = ()) -> Copy:
    src: Operand = box("local", 0, amount, cores=source)
    return Copy(engine="peer", src=src, dst=box("local", 4 * KIB, amount, cores=to))


def mesh(duplex: bool = True, scope: str = "core") -> Arch:
    """Four cores that a mesh of 4 B/cycle links."""
    local = ["local"]
    way = {"from": local, "to": local, "bandwidth": "64 B/cycle", "peer": True, "broadcast": True}
    link = {"from": local, "to": local, "bandwidth": "4 B/cycle", "duplex": duplex, "scope": scope}
    return plain_machine(cores=4, copy={"peer": way}, links={"mesh": link}, memories=memories())


@pytest.mark.parametrize(
    ("streams", "cycles", "crossed"),
    [
        (((peer(160, 1),), (), (), ()), 40, 2),  # out of core 0, into core 1
        (((peer(160, 2),), (peer(160, 2),), (), ()), 80, 4),  # two meet at core 2
        (((peer(160, 1),), (peer(160, 0),), (), ()), 40, 4),  # to and fro
        (((peer(160, 1, 2, 3),), (), (), ()), 40, 4),  # out once, into three
        (((), (peer(160, 1, source=(0,)),), (), (peer(160, 3, source=(0,)),)), 80, 4),  # both pull
    ],
)
def test_each_core_sends_and_receives_at_its_own_link(
    streams: tuple[tuple[Copy, ...], ...], cycles: int, crossed: int
) -> None:
    trace = simulate(plain_program(*streams), mesh())
    assert trace.cycles == cycles
    assert trace.traffic["link.mesh"] == crossed * 160
    assert simulate(plain_program(*streams), mesh(scope="chip")).cycles >= cycles
