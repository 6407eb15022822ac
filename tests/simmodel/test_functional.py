"""The executor: ports convert, broadcasts reach every core, the host is called, orders agree."""

from __future__ import annotations

import mmap
import pickle
import resource
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import ROWS, TILES, K, at, machine, pipeline, pipeline_answer, port, program, relay

import simmodel.execute
from simmodel.arch.dtype import NUMPY
from simmodel.arch.lazy_array import Array, LazyArray, cast, transformed
from simmodel.execute import Skip, execute, run
from simmodel.isa import Arrive, Await, Copy, Fill, HostCall, Instruction, Loop, Sync
from simmodel.isa.region import Operand, Ring
from simmodel.program.program import Constant, Origin, Port, Probe, Program, TensorSlice
from simmodel.verify import findings, verify
from simmodel.verify.happens_before import Stuck, random_order

X = np.random.default_rng(3).integers(-128, 128, (TILES * ROWS, K)).astype(np.int8)


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
@pytest.mark.parametrize("seed", [None, *range(12)])
def test_a_pipeline_computes_its_product(sync: str, seed: int | None) -> None:
    order = None if seed is None else random_order(seed)
    got = execute(pipeline(sync), {"x": X}, machine(sync), order=order)
    assert got["y"].tolist() == pipeline_answer(X).tolist()


@pytest.mark.parametrize("cores", [2, 3, 5])
def test_a_barrier_passes_data_between_cores(cores: int) -> None:
    x = np.arange(cores * 32, dtype=np.int8).reshape(cores, 32)
    got = execute(relay(cores), {"x": x}, machine(cores=cores))
    assert got["y"].tolist() == np.roll(x, -1, axis=0).tolist()


def copied(source: Operand, target: Operand, user_in: str, user_out: str) -> Program:
    """y = x by way of local memory; ports as given."""
    size = source.distinct
    raw = at("local", 0, (size,))
    start, end = source.address.base, target.address.base
    return program(
        (
            Copy(engine="load", dst=raw, src=at("dram", start, (size,)), signals=(("in", 1),)),
            Copy(engine="store", dst=at("dram", end, (size,)), src=raw, waits=(("in", 1),)),
        ),
        tokens=({"in": 0},),
        inputs=(Port("x", source, source.shape, user_in),),
        outputs=(Port("y", target, target.shape, user_out),),
    )


@pytest.mark.parametrize(
    ("user", "stored", "values", "expected"),
    [
        ("fp32", "fp16", [0.1, -3.0], np.array([0.1, -3.0], np.float16).tolist()),
        ("fp32", "bf16", [1.00390625, 2.0], [1.0, 2.0]),
        ("int64", "int32", [-7, 2**31 - 1], [-7, 2**31 - 1]),
        ("bool", "uint8", [True, False], [True, False]),
    ],
)
def test_ports_convert_types(user: str, stored: str, values: list[Any], expected: Any) -> None:
    base = copied(at("dram", 0, (2,), stored), at("dram", 64, (2,), stored), user, user)
    got = execute(base, {"x": np.array(values)}, machine())["y"]
    assert got.tolist() == expected


def test_a_quantized_port_holds_steps_of_its_scale() -> None:
    stored = at("dram", 0, (4,), scale=0.5, zero=1)
    base = copied(stored, at("dram", 64, (4,)), "fp32", "int8")
    x = np.array([0.0, 1.0, -2.26, 1e6], np.float32)
    assert execute(base, {"x": x}, machine())["y"].tolist() == [1, 3, -4, 127]
    real = copied(stored, at("dram", 64, (4,), scale=0.5, zero=1), "fp32", "fp32")
    assert execute(real, {"x": x}, machine())["y"].tolist() == [0.0, 1.0, -2.5, 63.0]


def test_a_port_may_be_stored_in_another_layout() -> None:
    """The user sees (channels, pixels); DRAM holds pixels of channels."""
    stored = at("dram", 0, (3, 4), strides=(1, 3))
    base = copied(stored, at("dram", 64, (4, 3)), "int8", "int8")
    x = np.arange(12, dtype=np.int8).reshape(3, 4)
    assert execute(base, {"x": x}, machine())["y"].tolist() == x.T.tolist()


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="input 'x' is missing; given: z"):
        execute(pipeline(), {"z": X}, machine())
    with pytest.raises(ValueError, match=r"input 'x' has shape \(2,\), expected \(24, 16\)"):
        execute(pipeline(), {"x": X[0, :2]}, machine())


@pytest.mark.parametrize(("level", "expected"), [("chip", 3), ("cluster", 1)])
def test_shared_memory_exists_once_per_chip_or_cluster(level: str, expected: int) -> None:
    """Two clusters of two cores write their number to one address, in turn; core 0 looks last."""
    small = {"size": "1 KiB"}
    memories = {"dram": {"size": "1 MiB", "bandwidth": "16 B/cycle"}, "local": small,
                "accumulators": small, "shared": small | {"level": level}}  # fmt: skip
    arch = machine(cores=2, clusters=2, memories=memories)
    cell, mine = at("shared", 0, (1,)), at("local", 0, (1,))
    streams: list[tuple[Instruction, ...]] = [
        (
            Fill(engine="load", dst=mine, value=float(core), signals=(("in", 1),)),
            *([Await(engine="store", barrier=f"b{core - 1}")] if core else []),
            Copy(engine="store", src=mine, dst=cell, waits=(("in", 1),)),
            Arrive(engine="store", barrier=f"b{core}"),
        )
        for core in range(4)
    ]
    streams[0] += (
        Await(engine="load", barrier="b3"),
        Copy(engine="load", dst=at("local", 8, (1,)), src=cell, signals=(("again", 1),)),
        Copy(engine="store", src=at("local", 8, (1,)), dst=at("dram", 0, (1,)),
             waits=(("again", 1),)),
    )  # fmt: skip
    base = program(
        *streams,
        tokens=({"in": 0, "again": 0}, {"in": 0}, {"in": 0}, {"in": 0}),
        barriers={f"b{core}": 1 for core in range(4)},
        outputs=(port("y", at("dram", 0, (1,))),),
    )
    verify(base, arch)
    assert execute(base, {}, arch)["y"].tolist() == [expected]


def test_the_host_runs_payloads_in_place() -> None:
    reads, y_at = (at("dram", 0, (2, 3)), at("dram", 8, (2,), "int16")), at("dram", 64, (3, 2))
    base = program(
        (HostCall(payload=1, inputs=reads, outputs=(y_at,)),),
        inputs=(port("x", reads[0]), port("s", reads[1])), outputs=(port("y", y_at),),
        payloads=(b"other", b"transpose and add"),
    )  # fmt: skip
    seen: list[Any] = []

    def host(payload: bytes, inputs: list[np.ndarray]) -> list[np.ndarray]:
        seen.append((payload, [value.dtype.name for value in inputs]))
        return [inputs[0].T.astype(np.int64) + inputs[1]]

    x, s = np.arange(6, dtype=np.int8).reshape(2, 3), np.array([10, 20], np.int16)
    got = execute(base, {"x": x, "s": s}, machine(), host=host)
    assert got["y"].tolist() == (x.T + s).tolist()
    assert seen == [(b"transpose and add", ["int8", "int16"])]
    with pytest.raises(ValueError, match="was given no `host`"):
        execute(base, {"x": x, "s": s}, machine())


def test_rings_and_terms_move_every_occurrence() -> None:
    """Two loops, a ring of three slots: the last slot written last stays."""
    ring = Ring(3, 4, 1, (("i", 2), ("j", 1)))
    load = Copy(
        engine="load", dst=at("local", 0, (4,), ring=ring),
        src=at("dram", 0, (4,), terms={"i": 8, "j": 4}), signals=(("in", 1),),
    )  # fmt: skip
    store = Copy(
        engine="store", src=at("local", 0, (12,)), dst=at("dram", 64, (12,)), waits=(("in", 4),)
    )
    base = program(
        (Loop("i", 2, (Loop("j", 2, (load,)),)), store),
        tokens=({"in": 0},),
        inputs=(port("x", at("dram", 0, (16,))),),
        outputs=(port("y", at("dram", 64, (12,))),),
    )
    x = np.arange(16, dtype=np.int8)
    expected = np.zeros(12, np.int8)
    for i in range(2):
        for j in range(2):
            slot = (1 + 2 * i + j) % 3
            expected[4 * slot : 4 * slot + 4] = x[8 * i + 4 * j : 8 * i + 4 * j + 4]
    assert execute(base, {"x": x}, machine())["y"].tolist() == expected.tolist()


def test_a_token_of_several_queues_is_refused_and_a_dry_one_is_stuck() -> None:
    gives = tuple(Sync(engine=e, signals=(("a", 1),)) for e in ("load", "store"))
    with pytest.raises(ValueError, match="signalled by several queues"):
        execute(program(gives, tokens=({"a": 0},)), {}, machine())
    waits = (Sync(engine="load", waits=(("a", 2),)), Sync(engine="store", signals=(("a", 1),)))
    with pytest.raises(Stuck, match="waits for a, which is never given"):
        execute(program(waits, tokens=({"a": 0},)), {}, machine())


def test_constants_are_made_when_something_touches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of a page each, copied one after the other, and one that nobody reads: the first is given
    back before the second is made."""
    size, events = mmap.PAGESIZE, list[str]()

    def constant(name: str, address: int) -> Constant:
        def make() -> Any:
            events.append(name)
            return np.full(size, ord(name), np.uint8)

        return Constant(name, address, LazyArray((size,), np.dtype(np.uint8), make))

    given_back = simmodel.execute._give_back
    monkeypatch.setattr(
        simmodel.execute, "_give_back",
        lambda memory, one: (events.append("over"), given_back(memory, one)),
    )  # fmt: skip
    raw, signals = at("local", 0, (size,), "uint8"), (("in", 1),)
    items: list[Instruction] = []
    for index in range(2):
        whole = at("dram", index * size, (size,), "uint8")
        waits = (("out", 1),) if index else ()
        items.append(Copy(engine="load", dst=raw, src=whole, waits=waits, signals=signals))
        there = at("dram", (3 + index) * size, (size,), "uint8")
        items.append(Copy(engine="store", dst=there, src=raw, waits=signals, signals=(("out", 1),)))
    results = at("dram", 3 * size, (2 * size,), "uint8")
    local, small = {"size": "8 KiB"}, {"size": "1 KiB"}
    dram = {"size": "1 MiB", "bandwidth": "16 B/cycle"}
    arch = machine(memories={"dram": dram, "local": local, "accumulators": small})
    made = program(
        tuple(items),
        tokens=({"in": 0, "out": 0},),
        constants=tuple(constant(n, i * size) for i, n in enumerate("abc")),
        outputs=(Port("y", results, results.shape, "uint8"),),
    )
    got = execute(made, {}, arch)["y"]
    assert got.tolist() == [ord("a")] * size + [ord("b")] * size
    assert events == ["a", "over", "b", "over"]


def test_what_is_read_of_a_constant_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the rest of it is read, and before anyone looks at what was made of it."""
    size, given = mmap.PAGESIZE, list[int]()
    monkeypatch.setattr(simmodel.execute, "_BLOCK", size)
    monkeypatch.setattr(
        simmodel.execute, "_give_back", lambda memory, part: given.append(part.low // size)
    )
    numbers = np.arange(4 * size).astype(np.uint8)
    items: list[Instruction] = []
    for index in (2, 0, 1):  # of the last page nobody reads
        raw, page = at("local", 0, (size,), "uint8"), at("dram", index * size, (size,), "uint8")
        items.append(Copy(engine="load", dst=raw, src=page, origin=index))
    memories = {"dram": {"size": "1 MiB", "bandwidth": "16 B/cycle"}, "local": {"size": "8 KiB"}}
    arch = machine(memories=memories | {"accumulators": {"size": "1 KiB"}})
    made = program(
        tuple(items), constants=(Constant("w", 0, numbers), Constant("none", size, numbers[:0])),
        origins=tuple(Origin(name, group, "Add") for group, name in enumerate("abc")),
    )  # fmt: skip
    raw = at("local", 0, (size,), "uint8")
    probes = [
        Probe(name, group, (size,), "uint8", (TensorSlice(raw),))
        for group, name in enumerate("abc")
    ]
    done = run(made, {}, arch, probes=probes)
    for name, back in (("c", [2, 3]), ("a", [2, 3, 0]), ("b", [2, 3, 0, 1])):
        assert done.take(name)[7] == 7
        assert sorted(given) == sorted(back)


def test_large_constants_of_what_is_skipped_take_no_memory() -> None:
    """Neither where a program is proved nor where a part of it is executed: a bound on the data of
    the process holds, in which there is no room for all of them."""
    size, large, room = mmap.PAGESIZE, 1 << 30, 64 << 20
    given = np.arange(size).astype(np.uint8)
    lazy = LazyArray((large - 2 * size,), np.dtype(np.uint8), lambda: pytest.fail("is made"))
    raw, results = at("local", 0, (size,), "uint8"), at("dram", large, (size,), "uint8")
    wide = at("dram", large - size - 1, (2,), "uint8")  # of one constant and of the next
    steps = ((raw, at("dram", 0, (size,), "uint8")), (at("local", 0, (2,), "uint8"), wide))
    items = [Copy(engine="load", dst=dst, src=src, origin=1) for dst, src in steps]
    last = at("dram", large - size, (size,), "uint8")
    items.append(Copy(engine="load", dst=raw, src=last, signals=(("in", 1),)))
    items.append(Copy(engine="store", dst=results, src=raw, waits=(("in", 1),)))
    dram = {"size": "4 GiB", "bandwidth": "16 B/cycle"}
    arch = machine(memories={
        "dram": dram, "local": {"size": "8 KiB"}, "accumulators": {"size": "1 KiB"},
    })  # fmt: skip
    made = program(
        tuple(items), tokens=({"in": 0},), origins=(Origin("a", 0, "Add"), Origin("b", 1, "Add")),
        constants=(Constant("lazy", 0, lazy), Constant("last", large - size, given)),
        outputs=(Port("y", results, results.shape, "uint8"),),
    )  # fmt: skip
    assert [found.rule for found in findings(made, arch)] == ["unwritten"]  # the page between both
    whole = replace(lazy, shape=(large - size,))
    right = replace(made, constants=(Constant("lazy", 0, whole), made.constants[1]))
    bound = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text("ascii").split()[5]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_DATA, (used + room, bound[1]))
    try:
        verify(right, arch)
        got = run(right, {}, arch, skip=Skip(frozenset((1,)))).outputs["y"]
        with pytest.raises(MemoryError, match="of a memory that the program uses"):
            run(right, {}, arch)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, bound)
    assert got.tolist() == given.tolist()


REAL = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_nothing_is_made_before_somebody_asks_and_nothing_is_kept() -> None:
    made: list[Array] = []

    def make() -> Array:
        made.append(REAL.copy())
        return made[-1]

    lazy = LazyArray(REAL.shape, REAL.dtype, make)
    turned = transformed(cast(lazy, NUMPY["bf16"]), np.transpose)
    part = transformed(turned, partial(np.reshape, shape=-1))
    assert (turned.shape, turned.dtype, turned.nbytes) == ((3, 2), NUMPY["bf16"], 12)
    assert (part.shape, part.ndim, part.size) == ((6,), 1, 6)
    assert not made
    for count in (1, 2):
        assert np.array_equal(np.asarray(part), [0, 3, 1, 4, 2, 5])
        assert len(made) == count
    assert np.array_equal(pickle.loads(pickle.dumps(turned)), REAL.T)
