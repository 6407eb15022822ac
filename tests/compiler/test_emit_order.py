"""The order of issue: engines see what they saw before, nothing deadlocks, and it pays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import NAMED, changed, machine, machines
from networks import Net, feeds_of, networks

from archgen.check.reference import run_node
from compiler.api import CompileOptions, compile_model, prepared
from compiler.codegen.issue_order.clock import IssueClock
from compiler.codegen.issue_order.loops import LoopOrder
from compiler.codegen.issue_order.order import OrderInstructions
from compiler.codegen.issue_order.units import Pricer
from compiler.errors import DoesNotFit, UnsupportedModel
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth
from simmodel.execute import execute
from simmodel.isa import Copy, Item, Loop, Sync, Unary
from simmodel.isa.region import Address, Operand, Ring
from simmodel.machine.run import simulate, traced
from simmodel.program.program import Program
from simmodel.verify import verify

Values = dict[str, int]
TILE = 512


def ordered(program: Program, arch: Arch, **options: int) -> Program:
    streams = OrderInstructions(**options).apply(program.cores, arch, program.tokens)
    return replace(program, cores=streams)


def played(items: Sequence[Item], values: Values, out: dict[str, list[Any]]) -> None:
    """Every instruction with its addresses, engine by engine."""
    for item in items:
        if isinstance(item, Loop):
            for turn in range(item.count):
                played(item.body, {**values, item.variable: turn}, out)
            continue
        places = [o.address.at(values) for o in (*item.reads(), *item.writes())]
        out[item.engine].append((item.MNEMONIC, item.origin, item.waits, item.signals, places))


def by_engine(stream: Sequence[Item]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = defaultdict(list)
    played(stream, {}, out)
    return out


def box(memory: str, base: int, size: int, *terms: tuple[str, int], slots: int = 1) -> Operand:
    """`size` bytes; with slots, those of ring slot `t` modulo `slots`."""
    ring = Ring(slots, size, 0, (("t", 1),)) if slots > 1 else None
    return Operand(memory, Address(base, terms, ring), (size,), (1,), "int8")


def tiles(count: int, parts: int, slots: int = 2, tokens: bool = True) -> tuple[Item, ...]:
    """Load a tile, work on it `parts` times, store it, `count` times."""
    take = {
        n: ((n, 1),) if tokens else () for n in ("in_empty", "in_full", "out_empty", "out_full")
    }
    load = Copy(
        engine="load", dst=box("local", 0, TILE, slots=slots),
        src=box("dram", 0, TILE, ("t", TILE)), waits=take["in_empty"], signals=take["in_full"],
    )  # fmt: skip
    work = [
        Unary(
            engine="vector", function="relu", a=box("local", 0, TILE, slots=slots),
            dst=box("local", 8192, TILE, slots=slots),
            waits=(*take["in_full"], *take["out_empty"]) if part == 0 else (),
            signals=(*take["in_empty"], *take["out_full"]) if part == parts - 1 else (),
        )
        for part in range(parts)
    ]  # fmt: skip
    store = Copy(
        engine="store", src=box("local", 8192, TILE, slots=slots),
        dst=box("dram", 1 << 20, TILE, ("t", TILE)), waits=take["out_full"],
        signals=take["out_empty"],
    )  # fmt: skip
    return (Loop("t", count, (load, *work, store)),)


def program_of(stream: tuple[Item, ...], slots: int = 2) -> Program:
    counts = {"in_empty": slots, "in_full": 0, "out_empty": slots, "out_full": 0}
    return Program("p", "m", (stream,), (counts,), {}, (), (), (), (), ())


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_long_work_no_longer_hides_the_next_load(sync: str, depth: int) -> None:
    arch = changed(machine(sync=sync, latency=200), "front_end", queue_depth=depth)
    program = program_of(tiles(12, 8, tokens=sync == "tokens"))
    better = ordered(program, arch)
    assert by_engine(better.cores[0]) == by_engine(program.cores[0])
    before, after = simulate(program, arch), simulate(better, arch)
    unlimited = simulate(program, changed(arch, "front_end", queue_depth=1000))
    assert after.cycles < before.cycles
    assert after.cycles <= unlimited.cycles * 1.1


@pytest.mark.parametrize(("rate", "cycles"), [(4, 2 * TILE / 4), (16, 2 * TILE / 16), (64, None)])
def test_loads_that_meet_stores_at_dram_are_judged_slower(rate: int, cycles: float | None) -> None:
    """While both move, each has half of DRAM. At 64 B/cycle engines and
    start-ups leave it at rest for more than half of the time."""
    arch = changed(machine(), "memories.dram", bandwidth=Bandwidth.parse(f"{rate} B/cycle"))
    (loop,) = tiles(12, 2)
    assert isinstance(loop, Loop)
    body = [Pricer(arch, {}).issue_unit(item) for item in loop.body]
    judged = LoopOrder(arch, loop, body, {}, {"t": 12}).judged
    for atom, plain in zip(judged, body, strict=True):
        copies = plain.cost.engines[0] in arch.copy_
        assert atom.cost.cycles == (cycles if copies and cycles else plain.cost.cycles)


@pytest.mark.parametrize("depth", [2, 4])
def test_loads_that_are_ready_are_issued_as_soon_as_their_queue_has_room(depth: int) -> None:
    """Where work takes longer than the clock says, loads by its times would be issued late: at the
    start one of five runs and `depth` wait, the next may when the second starts."""
    arch = changed(machine(latency=20), "front_end", queue_depth=depth)
    work = Unary(
        engine="vector", function="relu", a=box("local", 0, TILE), dst=box("local", 8192, TILE)
    )
    loads = [
        Copy(
            engine="load", src=box("dram", n * TILE, TILE),
            dst=box("local", 16384 + n * TILE, TILE), signals=(("in_full", 1),),
        )
        for n in range(5)
    ]  # fmt: skip
    last = replace(work, waits=(("in_full", 5),))
    (stream,) = ordered(program_of((*[work] * 24, *loads, last)), arch).cores
    first = next(n for n, item in enumerate(stream) if item.engine == "vector")
    assert first == min(5, 1 + depth)


@pytest.mark.parametrize("times", [3, 8])
def test_every_instruction_of_a_burst_needs_a_slot(times: int) -> None:
    # Four slots: two instructions, then a burst of which some wait, then a load.
    arch = changed(machine(), "front_end", queue_depth=4)
    once = Unary(
        engine="vector", function="relu", a=box("local", 0, TILE), dst=box("local", 8192, TILE)
    )
    load = Copy(engine="load", dst=box("local", 4096, TILE), src=box("dram", 0, TILE))
    items = (once, once, once, Loop("t", times, (once,)), load)
    trace = traced(program_of(items), arch)
    assert trace.spans is not None
    (begun,) = trace.spans.start[trace.spans.engine == trace.engine_names.index("load")]
    pricer, clock = Pricer(arch, {}), IssueClock(arch, {}, {}, queues=True)
    starts = [clock.play(pricer.issue_unit(item))[0] for item in items]
    assert starts[-1] == pytest.approx(begun, abs=4)


def same_meaning(model: object, arch: Arch, dtype: str) -> None:
    graph = prepared(model, "net")  # type: ignore[arg-type]
    program = compile_model(graph, arch, CompileOptions(dtype=dtype)).program
    better = ordered(program, arch)
    for old, new in zip(program.cores, better.cores, strict=True):
        assert by_engine(new) == by_engine(old)
    verify(better, arch)
    feeds = feeds_of(model)  # type: ignore[arg-type]
    expected = execute(program, feeds, arch, host=run_node)
    actual = execute(better, feeds, arch, host=run_node)
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values)
    simulate(better, arch)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", sorted(NAMED))
def test_networks_mean_the_same(name: str, depth: int) -> None:
    net = Net()
    x = net.input(1, 8, 12, 11)
    x = net.op("Relu", net.op("Conv", x, net.weight(16, 8, 3, 3), pads=[1, 1, 1, 1]))
    y = net.op("Conv", x, net.weight(16, 16, 1, 1))
    z = net.op("MaxPool", net.op("Add", x, y), kernel_shape=[2, 2], strides=[2, 2])
    same_meaning(net.model(z), changed(NAMED[name], "front_end", queue_depth=depth), "fp32")


@settings(max_examples=25)
@given(machines(), st.booleans(), st.sampled_from((1, 2, 3)), st.data())
def test_any_network_on_any_machine(
    arch: Arch, int8: bool, depth: int, data: st.DataObject
) -> None:
    dtype = "int8" if int8 else arch.types[0]
    assume(dtype in arch.types)
    model = data.draw(networks(dtype == "int8"))
    try:
        same_meaning(model, changed(arch, "front_end", queue_depth=depth), dtype)
    except (DoesNotFit, UnsupportedModel):
        assume(False)


def passed_on(count: int, core: int) -> tuple[Item, ...]:
    """Tiles of three slots, of which each of three cores loads a third and fetches two that others
    have stored in shared memory."""
    third, low = TILE // 4, TILE // 4 * core
    near, place = (
        Operand(role, Address(0, (), Ring(3, TILE, 0, (("t", 1),))), (TILE,), (1,), "int8")
        for role in ("local", "shared")
    )

    def part(operand: Operand, first: int, size: int) -> Operand:
        return operand.cut(0, "", first, size)

    others = tuple(other for other in range(3) if other != core)
    fetches = [
        Copy(
            engine="load", dst=part(near, first, size), src=part(place, first, size),
            waits=tuple((f"full@{other}", 1) for other in others if (other > core) is up),
            signals=(("in_full", 1),) if first + size == 3 * third else (),
        )
        for first, size, up in ((0, low, False), (low + third, 2 * third - low, True))
        if size
    ]  # fmt: skip
    body = (
        Sync(engine="load", waits=(("empty", 1),), notifies=((f"free@{core}", 1, others),)),
        Copy(
            engine="load", dst=part(near, low, third), src=box("dram", low, third, ("t", TILE)),
            signals=(("own", 1),),
        ),
        Copy(
            engine="store", dst=part(place, low, third), src=part(near, low, third),
            waits=(("own", 1), *((f"free@{other}", 1) for other in others)),
            notifies=((f"full@{core}", 1, others),),
        ),
        *fetches,
        Unary(
            engine="vector", function="relu", a=part(near, 0, 3 * third),
            dst=box("local", 8192, 3 * third), waits=(("in_full", 1),), signals=(("empty", 1),),
        ),
    )  # fmt: skip
    return (Loop("t", count, body),)


@pytest.mark.parametrize(
    ("core", "order"), [(0, "o" + "of" * 7 + "f"), (1, "o" + "fof" * 7 + "ff")]
)
def test_own_parts_are_loaded_amid_others_parts_of_the_tile_before(core: int, order: str) -> None:
    arch = machine(cores=3, shared={"banks": 8})
    counts = {"empty": 3, "in_full": 0, "own": 0}
    (stream,) = OrderInstructions().apply([passed_on(8, core)], arch, [counts])
    loads = [signals for name, _, _, signals, _ in by_engine(stream)["load"] if name == "copy"]
    assert "".join("o" if ("own", 1) in signals else "f" for signals in loads) == order
    (late,) = OrderInstructions(enabled=False).apply([passed_on(8, core)], arch, [counts])
    assert by_engine(late)["vector"] == by_engine(stream)["vector"]


def test_what_speaks_for_stores_to_other_cores_keeps_its_order_to_them() -> None:
    """The place may be loaded anew once the store that reads it is over, though no token of the
    store says so itself."""
    arch = machine(cores=3, shared={"banks": 8}, latency=200)
    own, free = (("own", 1),), (("place", 1),)
    place, far = box("local", 0, TILE), box("dram", 0, TILE)
    tile = (
        Copy(engine="load", dst=place, src=far, waits=free, signals=own),
        Copy(
            engine="store", dst=box("shared", 0, TILE), src=place,
            waits=(*own, ("free@1", 1), ("free@2", 1)), notifies=(("full@0", 1, (1, 2)),),
        ),
        Sync(engine="store", signals=free),
    )  # fmt: skip
    counts = {"place": 1, "own": 0}
    (stream,) = OrderInstructions().apply([tile * 3], arch, [counts])
    assert by_engine(stream) == by_engine(tile * 3)
