"""What a trace tells besides its length: layers and bytes; and the metrics made of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from programs import KIB, box, gemm, load, machine, memories, nop, program, relu, store

from simmodel.isa import Loop
from simmodel.machine.run import simulate
from simmodel.metrics import measure, peak_bytes, taken
from simmodel.program.program import Buffer, Constant, Origin, Port, Program
from simmodel.trace import CAUSES

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
    trace = simulate(program(stream), arch, trace=True)
    assert trace.spans is not None
    loads = [
        int(end - start)
        for engine, start, end in zip(
            trace.spans.engine, trace.spans.start, trace.spans.end, strict=True
        )
        if trace.engine_names[engine] == "load"
    ]
    assert loads == [20, 10]
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
