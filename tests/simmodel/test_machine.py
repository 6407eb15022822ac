"""The machine as a whole: sharing of bandwidth against a plain fluid simulation, bursts against the
same instructions one by one, and what a trace tells besides its length.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from handmade import at
from programs import KIB, box, gemm, load, machine, memories, nop, program, relu, spans, store
from simpy import Environment, Event
from simpy.events import NORMAL

from simmodel.arch.grid import Grid
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Gemm, Instruction, Item, Loop
from simmodel.machine.fabric import LAST, Fabric, fill
from simmodel.machine.flow import ROUNDING, Flow, Resource
from simmodel.machine.queue import Clock
from simmodel.machine.run import simulate
from simmodel.metrics import bank_gap_bytes, measure, peak_bytes, taken
from simmodel.program.program import Buffer, Constant, Origin, Port, Program
from simmodel.trace import BANDWIDTH, CAUSES, Trace


@pytest.mark.parametrize("seed", range(20))
def test_events_happen_in_the_order_of_simpy(seed: int) -> None:
    """Whatever is scheduled for whatever cycle, meanwhile too, and behind all of a cycle."""
    logs = []
    for env in (Environment(3), Clock(3)):
        dice, log = random.Random(seed), list[tuple[float, int]]()

        def more(_: Event | None, env: Any = env, dice: Any = dice, log: Any = log) -> None:
            log.append((env.now, dice.randrange(100)))
            for _n in range(dice.randrange(3) if len(log) < 300 else 0):
                event = Event(env)
                event._ok, event._value = True, None
                event.callbacks.append(more)
                late = dice.random() < 0.2
                env.schedule(event, LAST if late else NORMAL, 0 if late else dice.randrange(4))

        for _ in range(5):
            more(None)
        env.run()
        logs.append(log)
    assert logs[0] == logs[1]


def crowd(
    demands: list[dict[str, float]], limits: dict[str, float]
) -> tuple[list[Flow], dict[str, Resource]]:
    """Flows with these demands, entered at resources with these limits."""
    env = Clock()
    resources = {name: Resource(env, name, limit, BANDWIDTH) for name, limit in limits.items()}
    flows = []
    for demand in demands:
        flow = Flow()
        flow.usage = tuple((resources[name], amount) for name, amount in demand.items())
        for resource, amount in flow.usage:
            resource.flows[flow] = amount
            resource.load += amount
        flows.append(flow)
    return flows, resources


def speeds(demands: list[dict[str, float]], limits: dict[str, float]) -> list[float]:
    """Speed of each flow when all of them run."""
    flows, resources = crowd(demands, limits)
    binding, levels = fill(flows, [r for r in resources.values() if r.crowded])
    return [
        levels[binding[flow]] / binding[flow].flows[flow] if flow in binding else 1.0
        for flow in flows
    ]


def test_equal_bytes_not_equal_speed() -> None:
    # 12 B/cycle for one that could use 8 and one that could use 16: 6 each.
    assert speeds([{"r": 8}, {"r": 16}], {"r": 12}) == [6 / 8, 6 / 16]


def test_what_one_leaves_the_others_share() -> None:
    # Of 12 the first takes its 2, the others 5 each.
    assert speeds([{"r": 2}, {"r": 10}, {"r": 20}], {"r": 12}) == [1.0, 0.5, 0.25]


def test_two_bottlenecks() -> None:
    # q gives 2 to the first of its two; so r has 10 left for the third.
    found = speeds([{"r": 10, "q": 10}, {"q": 10}, {"r": 20}], {"r": 12, "q": 4})
    assert found == [0.2, 0.2, 0.5]


def test_each_bottleneck_for_another_flow() -> None:
    # r and q offer 5 to each: half speed for both, by different resources. q comes first by name
    # and settles the second flow at 5 B/cycle, 2 of them through r. The first flow gets the other
    # 8 of r, 3.2 of them through q.
    found = speeds([{"r": 10, "q": 4}, {"r": 4, "q": 10}], {"r": 10, "q": 10})
    assert found == [0.8, 0.5]


@pytest.mark.parametrize("seed", range(60))
def test_shares_are_feasible_and_fair(seed: int) -> None:
    dice = random.Random(seed)
    names = "abcd"
    limits = {name: float(dice.randrange(4, 40)) for name in names}
    demands = []
    for _ in range(dice.randrange(1, 12)):
        amount = float(dice.randrange(1, 30))
        demands.append({name: amount for name in names if dice.random() < 0.5})
    found = speeds(demands, limits)
    load = {
        name: sum(s * d.get(name, 0) for s, d in zip(found, demands, strict=True)) for name in names
    }
    assert all(load[name] <= limits[name] * (1 + 1e-6) for name in names)
    for speed, demand in zip(found, demands, strict=True):
        if speed == 1.0:
            continue
        # Somewhere it is held back: a full resource in which nobody moves more than it does.
        rates = [s * max(d.values(), default=0) for s, d in zip(found, demands, strict=True)]
        assert any(
            load[name] >= limits[name] * (1 - 1e-6)
            and speed * amount
            >= max(r for r, d in zip(rates, demands, strict=True) if name in d) - 1e-6
            for name, amount in demand.items()
        )


@dataclass
class Job:
    """One flow of the comparison: when it starts, its work, what it uses."""

    start: int
    length: float
    demand: dict[str, float]


def random_jobs(dice: random.Random, names: str) -> list[Job]:
    jobs = []
    for _ in range(dice.randrange(2, 25)):
        demand = {name: float(dice.randrange(1, 12)) for name in names if dice.random() < 0.6}
        jobs.append(Job(dice.randrange(0, 60), float(dice.randrange(1, 50)), demand))
    return jobs


def by_fabric(jobs: list[Job], limits: dict[str, float]) -> list[int]:
    """Ends of all jobs, by the machine's fabric."""
    env = Clock()
    resources = {name: Resource(env, name, limit, BANDWIDTH) for name, limit in limits.items()}
    fabric = Fabric(env)
    ends = [0] * len(jobs)

    def run(index: int, job: Job):  # type: ignore[no-untyped-def]
        yield env.timeout(job.start)
        flow = Flow()
        usage = tuple((resources[name], amount) for name, amount in job.demand.items())
        yield fabric.start(flow, usage, job.length, env.now)
        fabric.end(flow, env.now)
        ends[index] = env.now

    for index, job in enumerate(jobs):
        env.process(run(index, job))
    env.run()
    return ends


def by_steps(jobs: list[Job], limits: dict[str, float]) -> list[int]:
    """Ends of all jobs, by computing every speed anew after each start and end."""
    left = {i: job.length for i, job in enumerate(jobs)}
    ends = [0] * len(jobs)
    now = 0
    while left:
        running = [i for i in left if jobs[i].start <= now]
        rate = dict(zip(running, speeds([jobs[i].demand for i in running], limits), strict=True))
        starts = [jobs[i].start for i in left if jobs[i].start > now]
        due = [now + max(0, math.ceil(left[i] / rate[i] - ROUNDING)) for i in running]
        step = min(starts + due) - now
        for i in running:
            left[i] -= step * rate[i]
        now += step
        for i in [i for i in running if left[i] <= ROUNDING]:
            ends[i] = now
            del left[i]
    return ends


@pytest.mark.parametrize("seed", range(80))
def test_fabric_agrees_with_plain_fluid_simulation(seed: int) -> None:
    dice = random.Random(seed)
    names = "a" if seed % 2 else "abc"
    limits = {name: float(dice.randrange(6, 30)) for name in names}
    jobs = random_jobs(dice, names)
    assert by_fabric(jobs, limits) == by_steps(jobs, limits)


TOKENS = {"a": 2, "b": 1}


def test_flows_that_start_or_end_together_share_bandwidth_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared: list[int] = []
    share = Fabric._share_bandwidth

    def counted(self: Fabric, event: Event) -> None:
        shared.append(env.now)
        share(self, event)

    monkeypatch.setattr(Fabric, "_share_bandwidth", counted)
    env = Clock()
    fabric, one, two = (
        Fabric(env),
        Resource(env, "one", 8.0, BANDWIDTH),
        Resource(env, "two", 4.0, 0),
    )
    ends: list[int] = []

    def engine() -> Iterator[Event]:
        flow = Flow()
        yield fabric.start(flow, ((one, 4.0), (two, 2.0)), 10.0, env.now)
        fabric.end(flow, env.now)
        ends.append(env.now)

    for _ in range(8):
        env.process(engine())
    env.run()
    assert ends == [40] * 8
    assert shared == [0, 40]


def unrolled(stream: tuple[Item, ...]) -> tuple[Item, ...]:
    """The stream with its loops written out; timing does not look at the addresses here."""
    flat: list[Item] = []
    for item in stream:
        flat += list(item.body) * item.count if isinstance(item, Loop) else [item]
    return tuple(flat)


def random_instruction(dice: random.Random, loop: bool) -> Instruction:
    size = dice.choice((16, 40, 64, 160))
    terms = (("i", 256),) if loop else ()
    kind = dice.randrange(4)
    if kind == 0:
        return nop(dice.randrange(1, 8))
    if kind == 1:
        return relu(size, at=0, to=32 * KIB, terms=terms)
    copy = (load if kind == 2 else store)(size)
    if not loop:
        return copy
    moved = {
        name: dataclasses.replace(
            operand, address=dataclasses.replace(operand.address, terms=(("i", 256),))
        )
        for name, operand in (("src", copy.src), ("dst", copy.dst))
    }
    return dataclasses.replace(copy, **moved)


def random_stream(dice: random.Random, length: int = 25) -> tuple[Item, ...]:
    items: list[Item] = []
    for _ in range(length):
        if dice.random() < 0.4:
            count = dice.choice((2, 3, 5, 9, 40))
            items.append(Loop("i", count, (random_instruction(dice, True),)))
            continue
        token = dice.choice(("a", "b", None))
        instruction = random_instruction(dice, False)
        if token is not None:
            instruction = dataclasses.replace(instruction, signals=((token, 1),))
        elif dice.random() < 0.5:
            # Given and taken in the same place of the stream, so that no order deadlocks.
            instruction = dataclasses.replace(
                instruction, waits=(("a", 1),), signals=(("a", 1), ("b", 1))
            )
        items.append(instruction)
    return tuple(items)


def random_machine(dice: random.Random, contended: bool) -> Arch:
    dram = {"bandwidth": "16 B/cycle" if contended else "1024 B/cycle"}
    local = {"banks": 2 if contended else 256, "bank_width": dice.choice((4, 16))}
    front_end = {
        "issue_width": dice.choice((1, 2, 3)),
        "queue_depth": dice.choice((1, 2, 4, 8)),
        "fetch_bandwidth": dice.choice((None, "5 B/cycle", "3 B/cycle", "40 B/cycle")),
        "sync": dice.choice(("tokens", "interlock")) if contended else "tokens",
    }
    return machine(
        memories=memories(dram=dram, local=local),
        vector={"startup": f"{dice.choice((0, 0, 3))} cycles"},
        front_end=front_end,
    )


@pytest.mark.parametrize("seed", range(120))
def test_uncontended_burst_is_its_instructions(seed: int) -> None:
    dice = random.Random(seed)
    arch, stream = random_machine(dice, contended=False), random_stream(dice)
    burst = simulate(program(stream, tokens=TOKENS), arch)
    single = simulate(program(unrolled(stream), tokens=TOKENS), arch)
    assert burst.site_counts[0].sum() < single.site_counts[0].sum()
    assert burst.engines == single.engines
    assert burst.traffic == single.traffic


@pytest.mark.parametrize("seed", range(120))
def test_every_cycle_has_one_cause(seed: int) -> None:
    dice = random.Random(1000 + seed)
    arch, stream = random_machine(dice, contended=True), random_stream(dice)
    trace = simulate(program(stream, tokens=TOKENS), arch)
    for engine in trace.engines:
        assert tuple(engine.idle) == CAUSES
        assert all(cycles >= 0 for cycles in engine.idle.values())
        assert engine.busy + sum(engine.idle.values()) == trace.cycles


@pytest.mark.parametrize("seed", range(30))
def test_contention_only_delays(seed: int) -> None:
    dice = random.Random(2000 + seed)
    stream = unrolled(random_stream(dice))
    fast = machine(memories=memories(dram={"bandwidth": "1024 B/cycle"}))
    found = simulate(program(stream, tokens=TOKENS), machine())
    ideal = simulate(program(stream, tokens=TOKENS), fast)
    moved = found.traffic["dram.read"] + found.traffic["dram.write"]
    assert found.cycles >= ideal.cycles
    assert found.cycles >= moved / 16
    assert found.traffic == ideal.traffic


def test_long_bursts_cost_no_events() -> None:
    # A million instructions: an event for each would take many seconds.
    stream = (Loop("i", 1_000_000, (nop(2),)), load(16))
    trace = simulate(program(stream), machine())
    assert trace.cycles == 2_000_000
    assert trace.issued == 1_000_001


ORIGINS = (Origin("conv", 0, "Conv"), Origin("act", 1, "Relu"), Origin("unused", 2, "Add"))


def two_layers() -> Program:
    """A load and a product for `conv`, then relu and store for `act`."""
    tokens = {"x": 0, "y": 0, "z": 0}
    stream = (
        load(160, signals=(("x", 1),)),
        gemm(4, 4, 8, waits=(("x", 1),), signals=(("y", 1),)),
        dataclasses.replace(relu(64, waits=(("y", 1),), signals=(("z", 1),)), origin=1),
        dataclasses.replace(store(64, waits=(("z", 1),)), origin=1),
    )
    return program(stream, tokens=tokens, origins=ORIGINS, macs=128)


def test_origins_add_up_to_the_whole() -> None:
    trace = simulate(two_layers(), machine())
    conv, act = trace.origins
    assert (conv.node, conv.group, conv.first, conv.last) == ("conv", 0, 0, 12)
    assert (act.node, act.group, act.first, act.last) == ("act", 1, 12, 20)
    assert conv.busy == {"load": 10, "matrix": 2}
    assert act.busy == {"vector": 4, "store": 4}
    assert (conv.read["dram"], act.written["dram"]) == (160, 64)
    assert conv.macs == trace.macs == 4 * 4 * 8
    assert conv.instructions + act.instructions == trace.issued == 4
    for cause in CAUSES[:-1]:
        assert conv.stalls[cause] + act.stalls[cause] == trace.idle(cause)


def test_products_at_peak_are_those_of_the_type_that_they_are_in() -> None:
    # 64 cells; of fp16 half as many products a cycle, which a network of int8 may hold too.
    def product(kind: str) -> Gemm:
        a, w = at("local", 0, (1, 1, 8, 64), kind), at("local", 1024, (64, 8), kind)
        return Gemm(engine="matrix", a=a, w=w, dst=at("local", 2048, (1, 1, 8, 8), kind))

    arch = machine(matrix={"rate": {"int8": 1, "fp16": 0.5}})
    own = [simulate(program((product(k),)), arch).origins[0] for k in ("int8", "fp16")]
    assert [each.products for each in own] == [64.0, 128.0]
    assert [each.macs for each in own] == [8 * 8 * 64] * 2


def test_tracing_changes_nothing() -> None:
    stream = (load(160), store(320, at=KIB), Loop("i", 20, (relu(64, terms=(("i", 64),)), nop(2))))
    plain, traced = (simulate(program(stream), machine(), trace=t) for t in (False, True))
    assert repr(dataclasses.replace(traced, spans=None)) == repr(plain)


def test_blocked_banks_follow_the_address_of_each_turn() -> None:
    # 2 banks of 2 KiB and 16 B/cycle. The vector engine works in bank 0 for the whole time; loads
    # alternate between bank 0 (16 B/cycle shared: 8) and bank 1 (16).
    local = {"size": 4 * KIB, "banks": 2, "bank_width": 16, "mapping": "blocked"}
    arch = machine(memories=memories(local=local), front_end={"issue_width": 4})
    place = (("i", 2 * KIB),)
    copy = load(160, at=KIB)
    moved = dataclasses.replace(copy, dst=box("local", KIB, 160, terms=place))
    stream = (relu(800, to=0), Loop("i", 2, (moved, nop(1))))
    found = spans(program(stream), arch)
    assert [end - start for engine, start, end in found if engine == "load"] == [20, 10]
    trace = simulate(program(stream), arch)
    load_engine = next(e for e in trace.engines if e.engine == "load")
    assert (load_engine.busy, load_engine.idle["conflict"]) == (20, 10)


def test_metrics_by_hand() -> None:
    weights = Constant("w", 0, np.zeros(200, np.int8), used=96)
    port = Port("in", box("dram", 512, 64), (64,), "int8")
    made = dataclasses.replace(two_layers(), constants=(weights,), inputs=(port,))
    arch = machine(matrix={"depth": 1})
    # Depth 1: 8 cycles of matrix instead of 2. Latency 10 + 8 + 4 + 4 = 26.
    trace = simulate(made, arch)
    metrics = measure(trace, made, arch, batch=2)
    assert metrics.latency_cycles == 26
    assert metrics.latency_ms == pytest.approx(26e-6)
    assert metrics.throughput == pytest.approx(2 / 26e-9)
    # 128 multiply-accumulates on 16 cells take 8 cycles; 96 + 64 B at 16 B/cycle take 10.
    assert metrics.matrix_utilization == pytest.approx(8 / 26)
    assert metrics.matrix_busy == pytest.approx(8 / 26)
    assert metrics.compulsory_bytes == 160
    assert (metrics.roofline_cycles, metrics.bound) == (10, "bandwidth")
    assert metrics.efficiency == pytest.approx(10 / 26)
    assert (metrics.dram_read_bytes, metrics.dram_write_bytes) == (160, 64)
    assert metrics.stalls["fill"] + metrics.stalls["front_end"] == pytest.approx(10 / 26)
    assert metrics.stalls["no_work"] == pytest.approx(8 / 26)
    assert sum(metrics.stalls.values()) + metrics.matrix_busy == pytest.approx(1.0)
    assert metrics.instructions == 4
    assert metrics.program_bytes == 4 * 16


def test_peak_is_what_lives_together_in_one_core() -> None:
    buffers = (
        Buffer("a", "local", 0, 100, core=0, first=0, last=1),
        Buffer("b", "local", 100, 50, core=0, first=1, last=2),
        Buffer("c", "local", 0, 70, core=0, first=2, last=3),
        Buffer("d", "local", 0, 130, core=1, first=0, last=3),
        Buffer("e", "shared", 0, 10),
    )
    assert peak_bytes(buffers) == {"local": 150, "shared": 10}


def test_what_is_left_of_banks_in_use_is_the_price_of_banks_apart() -> None:
    """Banks of 64 bytes. In step 0 three hold 64, 10 and 20 bytes; in step 1 one holds 20."""
    buffers = (
        Buffer("a", "local", 0, 74, core=0, first=0, last=0),
        Buffer("b", "local", 192, 20, core=0, first=0, last=1),
        Buffer("c", "local", 0, 8, core=1, first=0, last=1),
    )
    local: dict[str, object] = {"size": 256, "banks": 4, "bank_width": 16}
    for mapping, gaps in ("blocked", {"local": 54 + 44}), ("interleaved", {}):
        arch = machine(memories=memories(local=local | {"mapping": mapping}))
        assert bank_gap_bytes(buffers, arch) == gaps


def test_what_never_moves_is_no_bound() -> None:
    port = Port("in", box("dram", 512, 64), (64,), "int8")
    seen = Port("out", box("dram", 512, 64), (64,), "int8")
    passed = dataclasses.replace(program(()), inputs=(port,), outputs=(seen,))
    metrics = measure(simulate(passed, machine()), passed, machine())
    assert (metrics.compulsory_bytes, metrics.efficiency) == (0, 0)
    both = dataclasses.replace(two_layers(), inputs=(port,), outputs=(seen,))
    assert measure(simulate(both, machine()), both, machine()).compulsory_bytes == 64


def test_a_byte_counts_once_while_any_buffer_has_it() -> None:
    numbers = np.random.default_rng(0).integers(0, 24, (40, 4))
    buffers = [
        Buffer(f"b{n}", "local", int(low), int(size), first=int(first), last=int(first + more))
        for n, (low, size, first, more) in enumerate(numbers)
    ]
    made = taken(buffers)
    assert [*made] == sorted({s for b in buffers for s in (b.first, b.last + 1)})
    for step, count in made.items():
        there = [b for b in buffers if b.first <= step <= b.last]
        covered = {byte for b in there for byte in range(b.address, b.address + b.size)}
        assert count == len(covered)


# Meshes, tori and rings between cores: times worked out by hand.

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
