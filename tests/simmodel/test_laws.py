"""One test per rule of `simmodel.machine`, each with its times worked out by hand."""

from __future__ import annotations

import pytest
from programs import KIB, box, gemm, load, machine, memories, nop, program, relu, spans, store

from simmodel.arch.record import Arch
from simmodel.errors import Deadlock
from simmodel.isa import Arrive, Await, Binary, Copy, HostCall, Item, Loop, Splat
from simmodel.isa.region import replace
from simmodel.machine.run import simulate
from simmodel.metrics import measure, multipliers


def test_01_clock_same_trace_twice() -> None:
    stream = (load(320), store(320, at=KIB), gemm(4, 4, 8), relu(256), Loop("i", 7, (nop(3),)))
    runs = [simulate(program(stream), machine(), trace=True) for _ in range(2)]
    assert repr(runs[0]) == repr(runs[1])
    assert runs[0].cycles == 40  # load and store share 16 B/cycle: 640 / 16


def test_02_issue_follows_width_and_fetch() -> None:
    # Four engines, one instruction of 10 cycles each, issued one per cycle: starts 0, 1, 2, 3.
    stream = (load(160), relu(160), nop(10), store(160, at=KIB))
    starts = [start for _, start, _ in spans(program(stream), machine())]
    assert sorted(starts) == [0, 1, 2, 3]
    # Two per cycle: 0, 0, 1, 1.
    wide = machine(front_end={"issue_width": 2})
    assert sorted(start for _, start, _ in spans(program(stream), wide)) == [0, 0, 1, 1]
    # 16 bytes each at 6 B/cycle: 0, 2.67, 5.33, 8, rounded down.
    slow = machine(front_end={"fetch_bandwidth": "6 B/cycle"})
    assert sorted(start for _, start, _ in spans(program(stream), slow)) == [0, 2, 5, 8]


def test_02_a_word_is_issued_as_one() -> None:
    # Words of at most three: [load vector scalar] [store]: starts 0, 0, 0, 1.
    stream = (load(160), relu(160), nop(10), store(160, at=KIB))
    three = machine(front_end={"bundle": 3})
    assert sorted(start for _, start, _ in spans(program(stream), three)) == [0, 0, 0, 1]
    # Each has 16 bytes, or each word what is stated.
    assert measured(stream, three) == 4 * 16
    wide = machine(front_end={"bundle": 3, "instruction_bytes": 40})
    assert measured(stream, wide) == 2 * 40
    # 48 bytes of the first word at 6 B/cycle.
    slow = machine(front_end={"bundle": 3, "fetch_bandwidth": "6 B/cycle"})
    assert sorted(start for _, start, _ in spans(program(stream), slow)) == [0, 0, 0, 8]
    # An engine has one place in a word: [load] [load vector], and a loop begins another.
    twice = (load(16), load(16), relu(16), Loop("i", 2, (nop(1), store(16, at=KIB))), nop(1))
    assert measured(twice, three) == (3 + 1 + 2 + 1) * 16
    assert measured(twice, wide) == (2 + 1 + 1 + 1) * 40
    starts = {name: start for name, start, _ in spans(program(twice[:3]), three)}
    assert starts == {"load": 1, "vector": 1}
    # A full queue holds up the rest of its word: the queue of one is free at 10.
    shallow = machine(front_end={"bundle": 2, "queue_depth": 1})
    blocked = (nop(10), nop(10), nop(10), load(16))
    assert ("load", 10, 11) in spans(program(blocked), shallow)


def measured(stream: tuple[Item, ...], arch: Arch) -> int:
    return measure(simulate(program(stream), arch), program(stream), arch).program_bytes


def test_02_a_loop_that_fits_is_fetched_once() -> None:
    # Words of 16 bytes at 4 B/cycle: the turn of two words takes 8 cycles, later ones 2.
    stream = (Loop("i", 3, (nop(0), nop(0))), nop(1))
    for size, start in (("31 B", 24), ("32 B", 8 + 2 + 2)):
        kept = machine(front_end={"fetch_bandwidth": "4 B/cycle", "loop_buffer": size})
        assert spans(program(stream), kept)[-1] == ("scalar", start, start + 1)
    # One instruction of 4 cycles, issued at 0, 4, 5, ...: item 8 starts at 32, item 4 at 16.
    stream = (Loop("i", 9, (relu(64, to=KIB, terms=(("i", 64),)),)), load(16, at=4 * KIB))
    kept = machine(front_end={"fetch_bandwidth": "4 B/cycle", "loop_buffer": "16 B"})
    assert spans(program(stream), kept) == [("load", 17, 18), ("vector", 0, 36)]


def test_03_a_full_queue_blocks_the_load_behind_it() -> None:
    # Queue of 2. nop A starts at 0 and frees its slot; B and C fill the queue (issued 1, 2).
    # D finds no slot until B starts at 10; the load behind D is issued one cycle later, at 11.
    stream = (nop(10), nop(10), nop(10), nop(10), load(16))
    shallow = machine(front_end={"queue_depth": 2})
    assert ("load", 11, 12) in spans(program(stream), shallow)
    # With 3 slots D is issued at 3 and the load at 4.
    deeper = machine(front_end={"queue_depth": {"scalar": 3}})
    assert ("load", 4, 5) in spans(program(stream), deeper)


def test_04_start_waits_for_tokens_in_order() -> None:
    # Load 160 B / 16 = 10 cycles, then 2 cycles of matrix (m 4/4 * n 4/4 * k 8/4), then
    # store 32 B / 16 = 2 cycles.
    stream = (
        load(160, signals=(("in", 1),)),
        gemm(4, 4, 8, waits=(("in", 1),), signals=(("out", 1),)),
        store(32, waits=(("out", 1),)),
    )
    tokens = {"in": 0, "out": 0}
    assert spans(program(stream, tokens=tokens), machine()) == [
        ("load", 0, 10),
        ("matrix", 10, 12),
        ("store", 12, 14),
    ]


def test_04_first_waiter_is_served_first() -> None:
    # The store (issued 0) waits for 2 tokens before the nop (issued 1) wants 1. One token at 10,
    # another at 20: both go to the store; the third, at 30, to the nop.
    one = (("t", 1),)
    stream = (
        store(16, waits=(("t", 2),)),
        nop(5, waits=one),
        load(160, signals=one),
        load(160, signals=one),
        load(144, signals=one),
    )
    found = spans(program(stream, tokens={"t": 0}), machine())
    # Loads: issued at 2, so 2-12, 12-22; then the store's 16 B share DRAM with the third load:
    # 22-24 at 8 B/cycle; the load's other 128 B need 8 cycles: ends at 32.
    assert found == [
        ("load", 2, 12),
        ("load", 12, 22),
        ("store", 22, 24),
        ("load", 22, 32),
        ("scalar", 32, 37),
    ]


def test_05_duration_is_startup_plus_the_slower_of_work_and_traffic() -> None:
    slow_port = memories(local={"banks": 1, "bank_width": 16})
    # 64 int8 elements: 4 cycles of 16 lanes; it reads 64 and writes 64 B through 16 B/cycle:
    # 8 cycles, behind a start-up of 3.
    arch = machine(vector={"startup": "3 cycles"}, memories=slow_port)
    assert spans(program((relu(64),)), arch) == [("vector", 0, 11)]
    # 2 * 72 = 144 B: each run of 72 takes 5 words of 16 B, so 160 B: 10 cycles.
    assert spans(program((relu(72),)), arch) == [("vector", 0, 13)]
    # With wide ports the work decides: ceil(72 / 16) = 5.
    fast = machine(vector={"startup": "3 cycles"})
    assert spans(program((relu(72),)), fast) == [("vector", 0, 8)]


def test_05_an_engine_beside_the_vector_engine_has_rates_and_a_queue_of_its_own() -> None:
    # A special function of 64 elements takes 64 / 16 * 8 = 32 cycles of the vector engine, and of
    # the other one 64 / 4 * 1 = 16 behind a start-up of 3. The relu, issued a cycle later, takes 4.
    beside = {"functions": {"lanes": 4, "startup": "3 cycles", "cost": {"special": 1}}}
    arch = machine(engines=beside)
    tanh = replace(relu(64), function="tanh")
    own = replace(tanh, engine="functions")
    assert spans(program((tanh, relu(64, at=KIB, to=KIB))), arch) == [
        ("vector", 0, 32), ("vector", 32, 36),
    ]  # fmt: skip
    assert spans(program((own, relu(64, at=KIB, to=KIB))), arch) == [
        ("vector", 1, 5), ("functions", 0, 19),
    ]  # fmt: skip
    # A token passes from one to the other: the vector engine goes on where its result is there.
    handed = (replace(own, signals=(("t", 1),)), relu(64, waits=(("t", 1),)))
    assert spans(program(handed, tokens={"t": 0}), arch) == [
        ("functions", 0, 19), ("vector", 19, 23),
    ]  # fmt: skip
    assert own.unencodable(arch) is None
    adds = Binary(engine="functions", function="add", dst=own.dst, a=own.a, b=own.a)
    assert adds.unencodable(arch) == "engine functions has no vector.binary.add"
    narrow = machine(engines={"functions": {"lanes": 4, "types": ["fp16"]}})
    assert own.unencodable(narrow) == "engine functions has no int8"


def test_05_an_array_beside_the_matrix_engine_has_a_shape_and_a_queue_of_its_own() -> None:
    # 8 x 8 x 8 on a cube of 4 x 4 x 4: 2 * 2 * 2 cycles; on one of 2 x 2 x 2: 4 * 4 * 4 at half a
    # product per cell and cycle, behind a start-up of 3.
    small = {"kind": "cube", "rows": 2, "cols": 2, "depth": 2, "rate": {"int8": 0.5},
             "startup": "3 cycles", "units": 2, "max_pixels": 16}  # fmt: skip
    arch = machine(engines={"small": small})
    beside = replace(gemm(8, 8, 8, at=KIB), engine="small")
    second = replace(gemm(8, 8, 8, at=2 * KIB), engine="small1")
    stream = gemm(8, 8, 8), beside, gemm(8, 8, 8, at=3 * KIB), second
    assert spans(program(stream), arch) == [
        ("matrix", 0, 8), ("matrix", 8, 16), ("small", 1, 132), ("small1", 3, 134),
    ]  # fmt: skip
    assert (arch.peak_macs("int8"), multipliers(arch, "int8")["small1"]) == (64 + 2 * 4, 4 / 64)
    # Both accounts add up to 1, cycles of each array by its peak.
    trace = simulate(program(stream), arch)
    found = measure(trace, program(stream), arch)
    busy = 16 * 64 + 2 * 131 * 4
    assert found.matrix_busy == pytest.approx(busy / (134 * 72))
    assert found.matrix_busy + sum(found.stalls.values()) == pytest.approx(1)
    # Each array has limits of its own.
    assert beside.unencodable(arch) is None
    assert gemm(5, 4, 4, at=KIB).unencodable(arch) is None
    wide = replace(gemm(17, 4, 4), engine="small1")
    assert wide.unencodable(arch) == "at most 16 output pixels"
    fine = machine(engines={"small": small | {"granularity": "tile"}})
    assert beside.unencodable(fine) == "small has granularity tile"


def test_05_a_splat_is_work_and_writes_alone() -> None:
    splat = Splat(engine="vector", dst=box("local", 0, 320), value=7.0)
    arch = machine(memories=memories(local={"banks": 1, "bank_width": 8}))
    trace = simulate(program((splat,)), arch)
    assert trace.cycles == 40  # 20 vectors of 16 lanes, but 320 B through a port of 8 B/cycle
    assert (trace.traffic["local.read"], trace.traffic["local.write"]) == (0, 320)


def test_06_broadcast_charges_every_target_and_the_source_once() -> None:
    arch = machine(
        cores=3,
        copy={
            "load": {"from": "dram", "to": "local", "bandwidth": "16 B/cycle", "broadcast": True}
        },
        memories=memories(local={"banks": 1, "bank_width": 16}),
        links={"noc": {"from": "dram", "to": "local", "bandwidth": "8 B/cycle"}},
    )
    everyone = program((load(160, cores=(0, 1, 2)),), (), ())
    trace = simulate(everyone, arch)
    assert trace.cycles == 20  # the link carries 160 B once, at 8 B/cycle
    assert trace.traffic == {
        "dram.read": 160,
        "dram.write": 0,
        "local.read": 0,
        "local.write": 3 * 160,
        "link.noc": 160,
    }
    # Core 1's vector engine reads and writes 80 B of its own memory: 160 B over 16 B/cycle alone
    # take 10 cycles. The broadcast wants 8 B/cycle there and gets them, 8 are left: 20 cycles.
    busy = program((load(160, cores=(0, 1, 2)),), (relu(80),), ())
    assert ("vector", 0, 20) in spans(busy, arch)


def test_06_half_duplex_links_are_shared_by_both_directions() -> None:
    def cycles(duplex: bool) -> int:
        roles = ["dram", "local"]
        link = {"from": roles, "to": roles, "bandwidth": "16 B/cycle", "duplex": duplex}
        fast = memories(dram={"bandwidth": "64 B/cycle"})
        arch = machine(links={"bus": link}, memories=fast, front_end={"issue_width": 2})
        return simulate(program((load(160), store(160, at=KIB))), arch).cycles

    assert cycles(duplex=True) == 10
    assert cycles(duplex=False) == 20


def test_07_two_copies_share_dram_and_a_third_joins() -> None:
    engines = {
        name: {"from": "dram", "to": "local", "bandwidth": "16 B/cycle"} for name in ("a", "b", "c")
    }
    arch = machine(copy={"load": engines["a"], "store": engines["a"], **engines})
    wide = arch.model_copy(update={"front_end": machine(front_end={"issue_width": 2}).front_end})
    two = program((load(160, engine="a"), load(160, engine="b", at=KIB)))
    # 8 B/cycle each: both end at 20.
    assert spans(two, wide) == [("a", 0, 20), ("b", 0, 20)]
    # The third starts at 8 (a nop holds it back). Until then a and b moved 64 B each; from then on
    # 16/3 B/cycle each. c has 48 B: 9 cycles, ends at 17 (a and b moved 48 more: 112, 48 left).
    # Then 8 B/cycle each: 6 cycles, they end at 23.
    three = program(
        (
            load(160, engine="a"),
            load(160, engine="b", at=KIB),
            nop(8, signals=(("go", 1),)),
            load(48, engine="c", at=2 * KIB, waits=(("go", 1),)),
        ),
        tokens={"go": 0},
    )
    early = wide.model_copy(update={"front_end": machine(front_end={"issue_width": 4}).front_end})
    assert spans(three, early) == [("scalar", 0, 8), ("c", 8, 17), ("a", 0, 23), ("b", 0, 23)]


def test_07_whoever_needs_less_than_its_share_keeps_it() -> None:
    # a can use 4 B/cycle, b 16: of 16 B/cycle, a gets its 4 and b 12: 120 B in 10 cycles.
    copy = {
        "a": {"from": "dram", "to": "local", "bandwidth": "4 B/cycle"},
        "b": {"from": "dram", "to": "local", "bandwidth": "16 B/cycle"},
    }
    arch = machine(copy=copy, front_end={"issue_width": 2})
    found = spans(program((load(40, engine="a"), load(120, engine="b", at=KIB))), arch)
    assert found == [("a", 0, 10), ("b", 0, 10)]


def test_08_two_engines_in_one_bank_pay() -> None:
    def vector_and_load(penalty: float, at: int) -> list[tuple[str, int, int]]:
        local = {"size": 4 * KIB, "banks": 2, "bank_width": 16, "mapping": "blocked"}
        arch = machine(
            memories=memories(local={**local, "conflict_penalty": penalty}),
            front_end={"issue_width": 2},
        )
        return spans(program((relu(80, at=0, to=80), load(160, at=at))), arch)

    # Different banks (2 KiB each): 160 B through 16 B/cycle each, 10 cycles.
    assert vector_and_load(0.0, at=2 * KIB) == [("vector", 0, 10), ("load", 0, 10)]
    # One bank: 8 B/cycle each, 20 cycles.
    assert vector_and_load(0.0, at=KIB) == [("vector", 0, 20), ("load", 0, 20)]
    # With a penalty of 0.25 the bank has 12.8 B/cycle while both are there: 160 / 6.4 = 25.
    assert vector_and_load(0.25, at=KIB) == [("vector", 0, 25), ("load", 0, 25)]


def test_08_interleaved_banks_are_met_by_chance() -> None:
    # 4 banks, 2 flows, penalty 1: capacity 16 / (1 + 1/4) = 12.8, 6.4 each: 160 B take 25.
    local = {"banks": 4, "bank_width": 4, "conflict_penalty": 1.0}
    arch = machine(memories=memories(local=local), front_end={"issue_width": 2})
    assert spans(program((relu(80, to=80), load(160, at=KIB))), arch) == [
        ("vector", 0, 25),
        ("load", 0, 25),
    ]


def test_09_dram_latency_and_outstanding_requests() -> None:
    # Latency 100: paid once, and 4 requests of 64 B per 100 cycles are 2.56 B/cycle:
    # 256 B take 100 cycles.
    dram = memories(dram={"latency": "100 cycles"})
    copy = {"from": "dram", "to": "local", "bandwidth": "16 B/cycle"}
    few = machine(memories=dram, copy={"load": {**copy, "outstanding": 4, "request": 64}})
    assert spans(program((load(256),)), few) == [("load", 0, 200)]
    # 64 requests in flight: the engine's own 16 B/cycle.
    many = machine(memories=dram, copy={"load": {**copy, "outstanding": 64, "request": 64}})
    assert spans(program((load(256),)), many) == [("load", 0, 116)]


def test_09_short_runs_move_whole_bursts() -> None:
    # 8 runs of 16 B, 64 B apart: with bursts of 64 B 512 B cross DRAM's pins at 16 B/cycle.
    arch = machine(memories=memories(dram={"burst": 64}))
    scattered = Copy(
        engine="load", src=box("dram", 0, 8, 16, strides=(64, 1)), dst=box("local", 0, 8, 16)
    )
    trace = simulate(program((scattered,)), arch)
    assert (trace.cycles, trace.traffic["dram.read"]) == (32, 512)
    assert trace.engines[3].idle["bandwidth"] == 32 - 8


def test_09_long_transfers_keep_up_a_share_of_the_bandwidth_by_direction() -> None:
    # DRAM's 16 B/cycle carry 8 of reads and 4 of writes: 256 B take 32 and 64 cycles.
    dram = {"read_efficiency": 0.5, "write_efficiency": 0.25}
    arch = machine(memories=memories(dram=dram))
    assert simulate(program((load(256),)), arch).cycles == 32
    assert simulate(program((store(256),)), arch).cycles == 64


def test_09_each_run_takes_time_of_a_channel() -> None:
    # 8 runs of 64 B are 32 cycles at 16 B/cycle; each takes a channel 6 cycles more, two channels
    # work side by side. One run of as many bytes takes 32 + 3.
    dram = {"run_cost": "6 cycles", "channels": 2}
    arch = machine(memories=memories(dram=dram))
    trace = simulate(program((_rows(8, 64),)), arch)
    assert (trace.cycles, trace.traffic["dram.read"], trace.far_loads["dram"]) == (
        32 + 8 * 3,
        512,
        896,
    )
    assert simulate(program((load(512),)), arch).cycles == 32 + 3


def test_09_transfers_that_meet_in_a_channel_cost_more() -> None:
    # Of a load and a store of 256 B at 16 B/cycle the store is issued a cycle later. Where meeting
    # halves the rate, each gets 4: the load's other 240 B take 60 cycles, then 16 B of the store
    # are left, for 1.
    stream = (load(256), store(256, at=KIB))
    assert simulate(program(stream), machine(memories=memories(dram={}))).cycles == 32
    met = machine(memories=memories(dram={"conflict_penalty": 1.0}))
    assert simulate(program(stream), met).cycles == 1 + 60 + 1


def test_09_flash_is_read_beside_dram() -> None:
    # Flash gives 2 B/cycle behind 20 cycles of latency: 64 B take 20 + 32, and nothing of DRAM,
    # whose load of 640 B takes the 40 cycles that it takes alone, one cycle later. Two engines that
    # read flash share it.
    flash = {"size": "1 MiB", "bandwidth": "2 B/cycle", "latency": "20 cycles", "burst": 32}
    copy = {"from": "flash", "to": "local", "bandwidth": "16 B/cycle"}
    arch = machine(memories=memories(flash=flash), copy={"one": copy, "two": copy})
    constant = Copy(engine="one", src=box("flash", 0, 64), dst=box("local", 0, 64))
    found = spans(program((constant, load(640, at=KIB))), arch)
    assert sorted(found) == [("load", 1, 41), ("one", 0, 52)]
    other = Copy(engine="two", src=box("flash", 64, 64), dst=box("local", 64, 64))
    trace = simulate(program((constant, other)), arch)
    # From 21 to 52 each has half: 31 cycles more for the other's bytes, and it began one later.
    assert (trace.cycles, trace.traffic["flash.read"]) == (20 + 64, 128)
    # 16 of 64 B: a burst of 32 for each run.
    short = Copy(
        engine="one", src=box("flash", 0, 4, 16, strides=(64, 1)), dst=box("local", 0, 4, 16)
    )
    assert simulate(program((short,)), arch).traffic["flash.read"] == 4 * 32


def test_09_each_run_takes_requests_of_its_own() -> None:
    # 4 requests in flight and a latency of 100: 8 runs of 64 B take 200 cycles behind it, as each
    # is a request; requests of 256 B that hold several runs take 50.
    dram = memories(dram={"latency": "100 cycles"})
    copy = {"from": "dram", "to": "local", "bandwidth": "16 B/cycle", "outstanding": 4}
    joined = machine(memories=dram, copy={"load": {**copy, "request": 256}})
    assert spans(program((_rows(8, 64),)), joined) == [("load", 0, 150)]
    alone = machine(memories=dram, copy={"load": {**copy, "request": 256, "joins_runs": False}})
    assert spans(program((_rows(8, 64),)), alone) == [("load", 0, 300)]


def test_09_a_transfer_takes_time_for_each_request_and_a_least_time() -> None:
    # 256 B are 16 cycles at 16 B/cycle, or 4 requests of 64 B at 10 cycles each, or 90 at least.
    copy = {"from": "dram", "to": "local", "bandwidth": "16 B/cycle", "request": 64}
    paced = machine(copy={"load": {**copy, "per_request": "10 cycles"}})
    assert spans(program((load(256),)), paced) == [("load", 0, 40)]
    slow = machine(copy={"load": {**copy, "per_request": "10 cycles", "minimum": "90 cycles"}})
    assert spans(program((load(256),)), slow) == [("load", 0, 90)]


def _rows(count: int, size: int) -> Copy:
    """A load of rows that are twice their size apart in DRAM."""
    far = box("dram", 0, count, size, strides=(2 * size, 1))
    return Copy(engine="load", src=far, dst=box("local", 0, count, size))


def test_10_interlock_orders_by_addresses() -> None:
    arch = machine(front_end={"sync": "interlock", "issue_width": 4})
    # load writes 0..160; relu reads 0..64 and writes 1024..1088: it waits for the load. The store
    # reads 1024..1088: it waits for the relu. The nop touches nothing.
    stream = (load(160), relu(64, at=0, to=KIB), store(64, at=KIB), nop(3))
    expected = [("scalar", 0, 3), ("load", 0, 10), ("vector", 10, 14), ("store", 14, 18)]
    assert spans(program(stream), arch) == expected
    # Write after read: the second load overwrites what relu reads.
    again = (relu(64, at=0, to=KIB), load(160))
    assert spans(program(again), arch) == [("vector", 0, 4), ("load", 4, 14)]


def test_10_interlock_and_tokens_agree() -> None:
    ready, done = (("ready", 1),), (("done", 1),)
    with_tokens = (
        load(160, signals=ready),
        relu(64, at=0, to=KIB, waits=ready, signals=done),
        store(64, at=KIB, waits=done),
    )
    without = (load(160), relu(64, at=0, to=KIB), store(64, at=KIB))
    tokens = {"ready": 0, "done": 0}
    assert spans(program(with_tokens, tokens=tokens), machine()) == spans(
        program(without), machine(front_end={"sync": "interlock"})
    )


def test_11_barrier_holds_both_cores() -> None:
    arch = machine(cores=2)
    # Core 0 works 10 cycles, core 1 25; both arrive behind their work and await before more.
    streams = [
        (nop(n), Arrive(engine="scalar", barrier="b"), Await(engine="scalar", barrier="b"), nop(5))
        for n in (10, 25)
    ]
    trace = simulate(program(*streams, barriers={"b": 2}), arch)
    assert trace.cycles == 30
    waited = [e.idle["core"] for e in trace.engines if e.engine == "scalar"]
    assert waited == [15, 0]


def test_11_arrive_does_not_hold_its_queue() -> None:
    arch = machine(cores=2)
    first = (Arrive(engine="scalar", barrier="b"), nop(7))
    second = (nop(20), Arrive(engine="scalar", barrier="b"))
    found = spans(program(first, second, barriers={"b": 2}), arch)
    assert [end for _, _, end in found] == [0, 8, 20, 20]


def test_12_a_burst_equals_its_instructions() -> None:
    # 9 times 4 cycles from cycle 0; queue of 4: item 8 is issued when item 4 starts, at 16; the
    # load behind it at 17.
    burst = (Loop("i", 9, (relu(64, to=KIB, terms=(("i", 64),)),)), load(16, at=4 * KIB))
    single = (*(relu(64, to=KIB) for _ in range(9)), load(16, at=4 * KIB))
    assert spans(program(burst), machine()) == [("load", 17, 18), ("vector", 0, 36)]
    assert ("load", 17, 18) in spans(program(single), machine())
    assert simulate(program(single), machine()).cycles == 36
    # Issue every 6 cycles is slower than the work: item 8 is issued at 48 and ends at 52.
    slow = machine(front_end={"fetch_bandwidth": f"{16 / 6} B/cycle"})
    trace = simulate(program(burst), slow)
    assert spans(program(burst), slow) == [("vector", 0, 52), ("load", 54, 55)]
    assert trace.engines[1].idle["front_end"] == 52 - 36
    assert spans(program(single), slow)[-2:] == [("vector", 48, 52), ("load", 54, 55)]


def test_13_accounts_name_their_causes() -> None:
    ready, free, done = (("ready", 1),), (("free", 1),), (("done", 1),)
    stream = (
        load(160, signals=ready),  # 0-10
        relu(160, waits=(*ready, *free), signals=done),  # 10-20
        store(160, waits=done, signals=free),  # 20-40, with the second load from 20 on
        nop(20, signals=(("go", 1),)),
        load(160, waits=(("go", 1),), signals=ready),  # 23-33+
        relu(160, waits=(*ready, *free)),
    )
    tokens = {"ready": 0, "free": 1, "done": 0, "go": 0}
    trace = simulate(program(stream, tokens=tokens), machine())
    engines = {engine.engine: engine for engine in trace.engines}
    # nop: issued 3, ends 23. Store 20-23 alone: 48 B, 112 left; then 8 B/cycle: 14 cycles, ends
    # at 37. The second load moved 112 B by then, its other 48 take 3: ends at 40.
    # Second relu: waits for `ready` until 40, `free` came at 37: all of 20-40 is `data`.
    assert trace.cycles == 50
    assert engines["vector"].idle["fill"] == 9
    assert engines["vector"].idle["front_end"] == 1
    assert engines["vector"].idle["data"] == 20
    assert engines["store"].idle["bandwidth"] == 7
    assert engines["load"].idle["bandwidth"] == 7
    assert engines["load"].idle["engine"] == 13
    assert engines["store"].idle["no_work"] == 13
    assert engines["host"].idle["no_work"] == 50
    for engine in trace.engines:
        assert engine.busy + sum(engine.idle.values()) == trace.cycles


def test_14_silence_with_work_left_is_a_deadlock() -> None:
    never = (("never", 1),)
    stream = (gemm(4, 4, 8, waits=never), *(relu(16) for _ in range(3)), nop(1, waits=never))
    stuck = program((*stream, *(nop(1) for _ in range(6))), tokens={"never": 0})
    with pytest.raises(Deadlock) as caught:
        simulate(stuck, machine())
    text = str(caught.value)
    assert "core 0: matrix: site 0 matrix.gemm of node waits for token never (has 0)" in text
    assert "core 0: scalar: site 4 scalar.nop of node waits for token never (has 0)" in text
    assert "front end: site 8 scalar.nop of node waits for a free slot" in text


def test_14_a_barrier_with_a_missing_core_is_a_deadlock() -> None:
    wait = (Arrive(engine="scalar", barrier="b"), Await(engine="scalar", barrier="b"))
    with pytest.raises(Deadlock, match=r"barrier b \(1 of 2 arrived\)"):
        simulate(program(wait, (), barriers={"b": 2}), machine(cores=2))


def test_15_one_host_serves_all_cores() -> None:
    # 100 operations at 10 per cycle are 10 cycles, behind a latency of 5.
    arch = machine(cores=2, host={"compute": "10 GOPS", "latency": "5 cycles"})
    call = HostCall(payload=0, operations=100, signals=(("done", 1),))
    stream = (call, nop(1, waits=(("done", 1),)))
    twice = program(stream, stream, tokens={"done": 0})
    hosts = [(start, end) for engine, start, end in spans(twice, arch) if engine == "host"]
    assert hosts == [(0, 15), (15, 30)]
    trace = simulate(twice, arch)
    assert trace.cycles == 31
    waited = [e.idle["fill"] + e.idle["front_end"] for e in trace.engines if e.engine == "scalar"]
    assert waited == [15, 30]


def test_15_the_host_prepares_an_inference_before_anything_is_issued() -> None:
    # 50 cycles of the host, then a load of 160 B in 10 and, issued a cycle later, a relu in 10.
    stream = (load(160), relu(160))
    arch = machine(host={"per_inference": "50 cycles"})
    assert sorted(spans(program(stream), arch)) == [("load", 50, 60), ("vector", 51, 61)]
    trace = simulate(program(stream), arch)
    assert (trace.cycles, trace.busy("host")) == (61, 50)
    assert all(e.busy + sum(e.idle.values()) == 61 for e in trace.engines)
    assert {e.idle["core"] for e in trace.engines if e.engine != "host"} == {50}
    assert measure(trace, program(stream), arch).host_ms == pytest.approx(50e-6)
    # Nothing to do takes what the host takes; calls come on top.
    assert simulate(program(()), arch).cycles == 50
    call = HostCall(payload=0, operations=100)
    both = machine(host={"per_inference": "50 cycles", "compute": "10 GOPS", "latency": "5 cycles"})
    assert spans(program((call,)), both) == [("host", 50, 65)]
