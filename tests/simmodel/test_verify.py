"""The verifier catches one deliberately broken program per rule and passes the sound ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import (
    ROWS,
    TILES,
    WINDOW,
    K,
    N,
    Y,
    at,
    constant,
    machine,
    pipeline,
    port,
    program,
    random_programs,
    relay,
    without_tokens,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from simmodel.errors import NotRunnable
from simmodel.execute import execute
from simmodel.isa import Arrive, Await, Copy, HostCall, Instruction, Loop, Sync, Window
from simmodel.isa.region import Operand, Ring
from simmodel.machine.run import simulate
from simmodel.program.program import Buffer, Program, TileKind
from simmodel.verify import VerifyError, findings, verify
from simmodel.verify.happens_before import (
    Stuck,
    Timeline,
    dependencies,
    random_order,
    sequence,
    timeline,
)
from simmodel.verify.overlap import Box, meet

Change = Callable[[Instruction], Instruction]


def edited(base: Program, place: int, change: Change, core: int = 0) -> Program:
    """`base` with instruction number `place` of a core's stream changed, loops walked."""
    left = [place]

    def walk(items: tuple[Any, ...]) -> tuple[Any, ...]:
        result = []
        for item in items:
            if isinstance(item, Loop):
                result.append(replace(item, body=walk(item.body)))
                continue
            result.append(change(item) if left[0] == 0 else item)
            left[0] -= 1
        return tuple(result)

    streams = tuple(walk(s) if c == core else s for c, s in enumerate(base.cores))
    assert left[0] < 0, "no such instruction"
    return replace(base, cores=streams)


def moved(operand: Operand, offset: int) -> Operand:
    return replace(operand, address=operand.address.plus(offset))


def change(place: int, **fields: Any) -> Program:
    return edited(pipeline(), place, lambda item: replace(item, **fields))


def shift(place: int, field: str, offset: int) -> Program:
    return edited(
        pipeline(),
        place,
        lambda item: replace(item, **{field: moved(getattr(item, field), offset)}),
    )


# The pipeline's instructions by number.
LOAD_W, WAIT, LOAD_X, MULTIPLY, SCALE, STORE = range(6)
NO_SLOTS = at("local", 0, (ROWS, 1, 1, K), ring=Ring(0, 8))
SUMS = at("accumulators", 0, (ROWS, 1, 1, N), "int32")
Y_TILE = at("dram", 8192, (ROWS, 1, 1, N), terms={"t": ROWS * N})


def with_tokens(**counts: int) -> Program:
    return replace(pipeline(), tokens=({**pipeline().tokens[0], **counts},))


def shallow_loop(sync_first: bool) -> Program:
    """The matrix engine's queue fills with waits before the load that they wait for is issued."""
    waits = tuple(Sync(engine="matrix", waits=(("go", 1),)) for _ in range(6))
    gives = tuple(Sync(engine="load", signals=(("go", 1),)) for _ in range(6))
    return program((*waits, *gives) if sync_first else (*gives, *waits), tokens=({"go": 0},))


def crossed() -> Program:
    """Two queues that each wait for what the other gives afterwards."""
    stream = (
        Sync(engine="load", waits=(("a", 1),), signals=(("b", 1),)),
        Sync(engine="store", waits=(("b", 1),), signals=(("a", 1),)),
    )
    return program(stream, tokens=({"a": 0, "b": 0},))


def crossed_barriers() -> Program:
    def stream(first: str, second: str) -> tuple[Instruction, ...]:
        return Await(engine="load", barrier=first), Arrive(engine="load", barrier=second)

    return program(stream("p", "q"), stream("q", "p"), barriers={"p": 1, "q": 1})


def host_call(payload: int, memory: str = "dram") -> Program:
    call = HostCall(payload=payload, inputs=(at(memory, 0, (4,)),), outputs=(at("dram", 64, (4,)),))
    return program(
        (call,), inputs=(port("x", at("dram", 0, (4,))),),
        outputs=(port("y", at("dram", 64, (4,))),), payloads=(b"m",),
    )  # fmt: skip


def unwaited(token: str) -> Program:
    """The pipeline without one token: nobody waits for it, nobody gives it."""
    base = pipeline()
    for number in range(6):
        base = edited(
            base,
            number,
            lambda item: replace(
                item,
                waits=tuple(w for w in item.waits if w[0] != token),
                signals=tuple(s for s in item.signals if s[0] != token),
            ),
        )
    return base


def input_beside_results() -> Program:
    """The second buffer of x ends one byte inside the first of y."""
    offset = 2048 - 2 * ROWS * K + 1
    base = shift(LOAD_X, "dst", offset)
    return edited(base, MULTIPLY, lambda item: replace(item, a=moved(item.a, offset)))


def loops(variable: str, count: int) -> Program:
    base = pipeline()
    inner = base.cores[0][2]
    assert isinstance(inner, Loop)
    wrapped = Loop(variable, count, (inner,))
    return replace(base, cores=((*base.cores[0][:2], wrapped),))


def relay_without(kind: type[Sync]) -> Program:
    """Two cores, the second of which does not arrive, or does not wait."""
    base = relay(2)
    return replace(
        base, cores=(base.cores[0], tuple(i for i in base.cores[1] if not isinstance(i, kind)))
    )


def windows(**changes: Any) -> Program:
    """3 x 3 windows over 5 x 5 pixels, loaded and stored."""
    load = Copy(engine="load", dst=at("local", 0, (5, 5, 4)), src=at("dram", 0, (5, 5, 4)),
                signals=(("in", 1),))  # fmt: skip
    pool = Window(engine="vector", function="max", dst=at("local", 128, (3, 3, 4)),
                  a=at("local", 0, (5, 5, 4)), kernel=(3, 3),
                  waits=(("in", 1),), signals=(("out", 1),))  # fmt: skip
    store = Copy(engine="store", dst=at("dram", 128, (3, 3, 4)), src=at("local", 128, (3, 3, 4)),
                 waits=(("out", 1),))  # fmt: skip
    return program(
        (load, replace(pool, **changes), store), tokens=({"in": 0, "out": 0},),
        inputs=(port("x", at("dram", 0, (5, 5, 4))),),
        outputs=(port("y", at("dram", 128, (3, 3, 4))),),
    )  # fmt: skip


BROKEN: dict[str, tuple[str, Callable[[], Program]]] = {
    "store past the end of dram": ("range", lambda: shift(STORE, "dst", 4 << 20)),
    "last iteration leaves local": ("range", lambda: shift(LOAD_X, "dst", 65536 - 96)),
    "negative address": ("range", lambda: shift(LOAD_X, "src", -1)),
    "buffer past the end": (
        "range", lambda: replace(pipeline(), buffers=(Buffer("b", "local", 65520, 32, 0),))),
    "constant past the end": (
        "range",
        lambda: replace(
            pipeline(), constants=(constant("w", 4 << 20, np.zeros((K, N), np.int8)),))),
    "sums at an odd address": ("alignment", lambda: shift(SCALE, "a", 2)),
    "buffer not aligned": (
        "alignment", lambda: replace(pipeline(), buffers=(Buffer("b", "local", 8, 32, 0),))),
    "no such engine": ("engine", lambda: change(LOAD_X, engine="fetch")),
    "product on the vector engine": ("engine", lambda: change(MULTIPLY, engine="vector")),
    "no path for the store": ("encoding", lambda: change(STORE, engine="load")),
    "vector engine reads dram": (
        "encoding", lambda: change(SCALE, a=at("dram", 0, (ROWS, 1, 1, N)))),
    "no weight memory": ("memory", lambda: change(LOAD_W, dst=at("weights", 0, (K, N)))),
    "no such memory": ("memory", lambda: change(LOAD_W, dst=at("cache", 0, (K, N)))),
    "no such element type": (
        "type",
        lambda: change(LOAD_W, dst=replace(at("local", 0, (K, N)), dtype="int4"))),
    "ranks differ": (
        "shape", lambda: change(LOAD_W, dst=replace(at("local", 0, (K, N)), strides=(1,)))),
    "ring without slots": ("shape", lambda: change(LOAD_X, dst=NO_SLOTS)),
    "no such core": ("core", lambda: change(STORE, dst=replace(Y_TILE, cores=(7,)))),
    "too many streams": ("core", lambda: relay(5)),
    "variable without a loop": (
        "loop", lambda: change(LOAD_W, src=at("dram", 4096, (K, N), terms={"q": 1}))),
    "loop that never runs": ("loop", lambda: loops("u", 0)),
    "variable counted twice": ("loop", lambda: loops("t", 1)),
    "token not declared": ("token", lambda: change(LOAD_W, signals=(("what", 1),))),
    "token counted by nothing": ("token", lambda: change(LOAD_W, signals=(("w", 0),))),
    "too many tokens": ("tokens", lambda: with_tokens(one=0, two=0)),
    "token given by two queues": (
        "token-queues", lambda: change(STORE, signals=(("y_free", 1), ("x_free", 1)))),
    "token taken by two queues": (
        "token-queues", lambda: change(SCALE, waits=(("x_full", 1), ("y_free", 1)))),
    "token given too often": ("balance", lambda: change(LOAD_W, signals=(("w", 2),))),
    "token starts below zero": ("balance", lambda: with_tokens(w=-1)),
    "no free buffer ever": ("deadlock", lambda: with_tokens(x_free=0)),
    "each waits for the other": ("deadlock", crossed),
    "barriers crossed": ("deadlock", crossed_barriers),
    "queue too short": ("deadlock", lambda: shallow_loop(True)),
    "barrier not declared": ("barrier", lambda: replace(relay(2), barriers={})),
    "arrival missing": ("barrier", lambda: relay_without(Arrive)),
    "too many credits for x": ("race", lambda: with_tokens(x_free=3)),
    "sums not awaited": ("race", lambda: unwaited("s_full")),
    "result not awaited": ("race", lambda: unwaited("y_full")),
    "buffers share a byte": ("race", input_beside_results),
    "barrier not awaited": ("race", lambda: relay_without(Await)),
    "reads past what was loaded": ("unwritten", lambda: shift(MULTIPLY, "w", 16)),
    "input never placed": ("unwritten", lambda: replace(pipeline(), inputs=())),
    "output not complete": (
        "output",
        lambda: replace(pipeline(), outputs=(port("y", at("dram", 8192, (TILES * ROWS + 1, N))),))),
    "output elsewhere": (
        "port", lambda: replace(pipeline(), outputs=(port("y", at("local", 0, (4,))),))),
    "origin unknown": ("origin", lambda: change(STORE, origin=3)),
    "tile unknown": (
        "tile", lambda: replace(change(STORE, tile=1), tiles=(TileKind(0, (), (1,)),))),
    "payload unknown": ("payload", lambda: host_call(1)),
    "window beyond its input": ("shape", lambda: windows(kernel=(4, 3))),
    "dilated window beyond its input": ("shape", lambda: windows(dilation=(1, 2))),
    "window of no step": ("parameter", lambda: windows(stride=(0, 1))),
    "window of other channels": ("shape", lambda: windows(a=at("local", 0, (5, 5, 3)))),
    "maximum with weights": ("parameter", lambda: windows(w=at("local", 0, (3, 3, 4)))),
    "product of other length": (
        "shape", lambda: change(MULTIPLY, w=at("local", 1024, (K - 1, N)))),
    "product into other columns": (
        "shape", lambda: change(MULTIPLY, dst=at("accumulators", 0, (ROWS, 1, N - 1), "int32"))),
    "product of two types": ("type", lambda: change(MULTIPLY, w=at("local", 1024, (K, N), "fp16"))),
    "sums of another type": (
        "type", lambda: change(MULTIPLY, partial=at("accumulators", 0, (ROWS, 1, 1, N), "fp32"))),
    "bias for other channels": (
        "shape", lambda: change(MULTIPLY, bias=at("local", 0, (N + 1,), "int32"))),
    "clip to nothing": ("parameter", lambda: change(SCALE, low=1.0, high=0.0)),
    "no such function": ("parameter", lambda: change(SCALE, function="cube")),
    "too many parameters": ("parameter", lambda: change(SCALE, parameters=(0.5,))),
    "another shape": (
        "shape", lambda: change(SCALE, a=at("accumulators", 0, (ROWS, N, 1), "int32"))),
    "scale of nothing": (
        "parameter", lambda: change(SCALE, a=replace(SUMS, scale=0.0))),
    "zero point out of range": (
        "parameter", lambda: change(LOAD_W, dst=at("local", 1024, (K, N), zero=200))),
    "copy converts": ("type", lambda: change(LOAD_W, dst=at("local", 1024, (K, N), "uint8"))),
    "copy of another rank": ("shape", lambda: change(LOAD_W, dst=at("local", 1024, (K * N,)))),
    "border beyond the target": ("shape", lambda: change(LOAD_W, before=(1, 0))),
    "border of no int8": (
        "parameter", lambda: change(LOAD_W, dst=at("local", 1024, (K + 1, N)), fill=300.0)),
    "elements on one byte": (
        "shape", lambda: change(LOAD_W, dst=at("local", 1024, (K, N), strides=(N - 1, 1)))),
    "too many dimensions": (
        "shape", lambda: change(LOAD_W, dst=at("local", 1024, (1,) * 15 + (K, N)))),
    "address of many digits": ("range", lambda: shift(STORE, "dst", 1 << 70)),
    "step of many digits": (
        "range", lambda: change(STORE, dst=at("dram", Y, (ROWS, 1, 1, N), terms={"t": 1 << 62}))),
    "loop without end": ("loop", lambda: loops("u", 1 << 40)),
    "port of another shape": (
        "shape",
        lambda: replace(pipeline(), outputs=(
            replace(pipeline().outputs[0], shape=(TILES * ROWS, N + 1)),))),
    "host reads local": ("encoding", lambda: host_call(0, "local")),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_program_is_caught_by_its_rule(case: str) -> None:
    rule, build = BROKEN[case]
    cores = {"too many streams": 4}.get(case, 2)
    with pytest.raises(VerifyError) as caught:
        verify(build(), machine(cores=cores))
    assert rule in {finding.rule for finding in caught.value.findings}, str(caught.value)


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_sound_programs_pass(sync: str) -> None:
    verify(pipeline(sync), machine(sync))
    verify(relay(3), machine(cores=3))
    verify(host_call(0), machine())
    verify(windows(), machine())
    verify(shallow_loop(False), machine())
    verify(unwaited("w"), machine())  # the queue that loads x loaded the weights before


def test_a_finding_names_place_text_and_node() -> None:
    (finding,) = findings(shift(STORE, "dst", 4 << 20), machine())
    assert (finding.rule, finding.core, finding.engine) == ("range", 0, "store")
    assert finding.text.startswith("copy store dst=dram[") and finding.node == "node"


def slices(first: int, second: int, width: int = 4) -> Program:
    """Two cores store channel slices of the same pixels: rows of 8 channels, 4 rows of 2."""

    def stream(start: int) -> tuple[Instruction, ...]:
        load = Copy(engine="load", dst=at("local", 0, (8 * width,)),
                    src=at("dram", 0, (8 * width,)), signals=(("in", 1),))  # fmt: skip
        target = at("dram", 4096 + start, (8, width), strides=(8, 1))
        source = at("local", 0, (8, width))
        return load, Copy(engine="store", src=source, dst=target, waits=(("in", 1),))

    inputs, tokens = (port("x", at("dram", 0, (64,))),), ({"in": 0}, {"in": 0})
    return program(stream(first), stream(second), tokens=tokens, inputs=inputs)


def test_interleaved_channel_slices_do_not_race() -> None:
    verify(slices(0, 4), machine(cores=2))


@pytest.mark.parametrize("start", [1, 2, 3])
def test_slices_that_share_one_channel_race(start: int) -> None:
    found = findings(slices(0, start), machine(cores=2))
    assert {finding.rule for finding in found} == {"race"}


def test_an_interlock_orders_one_core_but_not_two() -> None:
    assert not findings(pipeline("interlock"), machine("interlock"))
    bare = pipeline("interlock")
    assert "race" in {f.rule for f in findings(bare, machine("tokens"))}
    rotated = relay_without(Await)
    assert "race" in {f.rule for f in findings(rotated, machine("interlock", cores=2))}


boxes = st.builds(
    Box,
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(2, 4), st.integers(1, 40)), max_size=3).map(
        lambda dims: tuple(sorted(dims, key=lambda d: -d[1]))
    ),
)


def byte_set(box: Box) -> set[int]:
    starts = {0}
    for extent, stride in box.dims:
        starts = {s + i * stride for s in starts for i in range(extent)}
    return {s + b for s in starts for b in range(box.run)}


@settings(max_examples=200)
@given(boxes, boxes, st.lists(st.integers(-200, 200), min_size=1, max_size=20))
def test_boxes_meet_exactly_when_their_bytes_do(a: Box, b: Box, deltas: list[int]) -> None:
    expected = [bool(byte_set(a) & {d + x for x in byte_set(b)}) for d in deltas]
    assert (
        meet([(a, b)], np.zeros(len(deltas), np.int64), np.array(deltas, np.int64)).tolist()
        == expected
    )


def outputs_under(base: Program, seeds: range) -> list[bytes]:
    x = np.random.default_rng(0).integers(-128, 128, (TILES * ROWS, K)).astype(np.int8)
    orders = map(random_order, seeds)
    return [execute(base, {"x": x}, machine(), order=order)["y"].tobytes() for order in orders]


@pytest.mark.parametrize("token", pipeline().tokens[0])
def test_without_one_token_the_verifier_objects_or_nothing_changes(token: str) -> None:
    base = unwaited(token)
    if not findings(base, machine()):
        assert set(outputs_under(base, range(12))) == set(outputs_under(pipeline(), range(1)))


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("kind", ["waits", "signals"])
def test_without_one_wait_or_signal_the_verifier_objects(place: int, kind: str) -> None:
    items = [pipeline().cores[0][0], pipeline().cores[0][1], *pipeline().cores[0][2].body]  # type: ignore[union-attr]
    for dropped in getattr(items[place], kind):
        left = tuple(use for use in getattr(items[place], kind) if use != dropped)
        found = findings(change(place, **{kind: left}), machine())
        assert "balance" in {finding.rule for finding in found}


def test_being_stuck_names_who_waits_for_whom() -> None:
    with pytest.raises(Stuck, match=r"core 0 load #0 \(sync\) waits for core 0 store #0"):
        execute(crossed(), {}, machine())


def bytes_of(line: Timeline, occurrence: int, reads: bool) -> set[tuple[str, int, int]]:
    """(memory, core, byte) of everything that an occurrence reads or writes."""
    site = line.sites[line.site[occurrence]]
    operands = site.instruction.reads() if reads else site.instruction.writes()
    core = line.owners[line.site[occurrence]]
    found = set()
    for operand in operands:
        owners = (0,) if operand.memory == "dram" else operand.cores or (core,)
        for index in np.ndindex(*operand.shape):
            offset = sum(i * s for i, s in zip(index, operand.strides, strict=True))
            start = operand.address.base + offset
            bytes_ = range(start, start + operand.itemsize)
            found |= {(operand.memory, owner, byte) for owner in owners for byte in bytes_}
    return found


def has_race(base: Program) -> bool:
    """By definition: all pairs of occurrences, all bytes, the closure of all edges."""
    line = timeline(base)
    count = len(line.site)
    before = np.zeros((count, count), np.bool_)
    for members in line.members:
        before[members[:-1], members[1:]] = True
    edges = dependencies(line)
    before[edges.source, edges.target] = True
    for middle in range(count):
        before |= before[:, middle : middle + 1] & before[middle : middle + 1, :]
    touched = [(bytes_of(line, o, True), bytes_of(line, o, False)) for o in range(count)]
    return any(
        not before[one, two]
        and not before[two, one]
        and touched[one][1] & (touched[two][0] | touched[two][1])
        for one in range(count)
        for two in range(count)
        if one != two
    )


def test_what_is_proved_is_executed_on_the_same_nodes() -> None:
    base = program((Sync(engine="load"),))
    line = timeline(base)
    assert timeline(base) is line
    other = timeline(replace(base, name="other"))
    assert other is not line and other.program.name == "other"


@settings(max_examples=300)
@given(random_programs())
def test_races_are_found_exactly_where_the_definition_has_them(base: Program) -> None:
    sequence(timeline(base), dependencies(timeline(base)))  # never stuck by construction
    found = {finding.rule for finding in findings(base, machine(cores=2))}
    assert found <= {"race"} and bool(found) == has_race(base)


@settings(max_examples=300)
@given(random_programs(), st.integers(0, 2**16))
def test_accepted_programs_mean_the_same_in_every_order(base: Program, seed: int) -> None:
    arch = machine(cores=2)
    if findings(base, arch):
        return
    x = np.arange(WINDOW, dtype=np.int8)
    orders = [None, *(random_order(seed + k) for k in range(4))]
    results = {execute(base, {"x": x}, arch, order=order)["y"].tobytes() for order in orders}
    assert len(results) == 1


@settings(max_examples=100)
@given(random_programs(cores=1), st.integers(0, 2**16))
def test_an_interlock_makes_every_order_that_of_the_stream(base: Program, seed: int) -> None:
    arch = machine("interlock")
    bare = replace(base, tokens=({},), cores=(without_tokens(base.cores[0]),))
    x = np.arange(WINDOW, dtype=np.int8)
    got = execute(bare, {"x": x}, arch, order=random_order(seed))["y"]
    data = {"dram": x.copy(), "local": np.zeros(WINDOW, np.int8)}
    for item in bare.cores[0]:
        if isinstance(item, Copy):
            item.execute(
                lambda o: np.ndarray(o.shape, np.int8, data[o.memory], o.address.base, o.strides)
            )
    assert got.tolist() == data["dram"].tolist()
    assert not findings(bare, arch)


def test_chance_gives_both_sound_and_racing_programs() -> None:
    """The two properties above would be empty if one kind never came up."""
    seen = set()

    @given(random_programs())
    @settings(max_examples=40, database=None, derandomize=True)
    def collect(base: Program) -> None:
        seen.add(bool(findings(base, machine(cores=2))))

    collect()
    assert seen == {True, False}


@pytest.mark.parametrize(
    "case",
    ["window beyond its input", "product of other length", "no such function", "negative address",
     "last iteration leaves local", "no such memory", "loop that never runs", "loop without end"],
)  # fmt: skip
def test_what_was_not_verified_is_refused_in_words_when_it_runs(case: str) -> None:
    broken = BROKEN[case][1]()
    feeds = {port.name: np.zeros(port.shape, np.int8) for port in broken.inputs}
    with pytest.raises(NotRunnable):
        execute(broken, feeds, machine())
    if BROKEN[case][0] not in ("range", "memory"):  # time does not look at addresses
        with pytest.raises(NotRunnable):
            simulate(broken, machine())
