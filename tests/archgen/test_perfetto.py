"""Traces for the Perfetto viewer, read back through Perfetto's own schema."""

from __future__ import annotations

import gzip
import pickle
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from host_only import invoke
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
from role_nets import conv_net
from small_run import machine, two_layers, two_tiles

import archgen
import archgen.perfetto as document
from archgen.outcomes.columns import LEVEL_COLUMNS, SPAN_COLUMNS, column, ordered
from archgen.outcomes.rows import traffic_row
from archgen.outcomes.timeline import levels_table, spans_table, spread
from archgen.perfetto import _thinned, trace_bytes, write_trace
from archgen.schema import load_arch
from archgen.studies.sweep import Study, study
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Loop, Unary
from simmodel.isa.region import Address, Operand, contiguous
from simmodel.machine.run import simulate, traced
from simmodel.program.program import Origin, Program

BEGIN, END, SAMPLE = 1, 2, 4
FIRST, LATER = 1, 2


@dataclass
class Slice:
    """A slice as the viewer shows it."""

    name: str
    category: str
    start: int
    end: int
    said: dict[str, Any]
    leaving: list[int]
    arriving: list[int]


@dataclass
class Shown:
    """A trace as the viewer shows it: by path of names, from the process on."""

    slices: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    units: dict[str, str] = field(default_factory=dict)


def unknown(message: Message) -> list[str]:
    """Names of the messages in `message` that have fields which the schema does not know."""
    found = [message.DESCRIPTOR.full_name] if len(UnknownFieldSet(message)) else []
    for descriptor, value in message.ListFields():
        if descriptor.type == descriptor.TYPE_MESSAGE:
            inner = [value] if isinstance(value, Message) else value
            found += [name for each in inner for name in unknown(each)]
    return found


class Reader:
    """Reads a trace strictly: whatever the viewer would drop or guess is an error."""

    def __init__(self, content: bytes) -> None:
        self.shown = Shown()
        self._paths: dict[int, str] = {}
        self._processes: dict[int, str] = {}
        self._threads: set[int] = set()
        self._interned: dict[tuple[str, int], str] = {}
        self._open: dict[str, Slice] = {}
        self._now: dict[str, int] = defaultdict(int)
        trace = schema.Trace.FromString(content)
        assert not unknown(trace)
        assert trace.packet[0].sequence_flags == FIRST
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            if packet.HasField("track_descriptor"):
                self._track(packet.track_descriptor)
            if packet.HasField("interned_data"):
                self._intern(packet.interned_data)
            if packet.HasField("track_event"):
                assert packet.sequence_flags == LATER
                self._event(packet.timestamp, packet.track_event)
        assert not self._open
        self._arrows()

    def _track(self, track: Any) -> None:
        assert track.uuid not in self._paths
        if track.HasField("process"):
            assert track.process.pid > 0
            assert track.process.pid not in self._processes
            path = self._processes[track.process.pid] = track.process.process_name
        elif track.HasField("thread"):
            assert track.thread.tid not in self._threads
            self._threads.add(track.thread.tid)
            path = f"{self._processes[track.thread.pid]}/{track.thread.thread_name}"
        else:
            path = f"{self._paths[track.parent_uuid]}/{track.name}"
            if track.HasField("counter"):
                self.shown.units[path] = track.counter.unit_name
        assert path not in self._paths.values()
        self._paths[track.uuid] = path

    def _intern(self, data: Any) -> None:
        for descriptor, entries in data.ListFields():
            for entry in entries:
                value = entry.name if hasattr(entry, "name") else entry.str.decode()
                assert entry.iid > 0
                assert (descriptor.name, entry.iid) not in self._interned
                self._interned[descriptor.name, entry.iid] = value

    def _event(self, time: int, event: Any) -> None:
        path = self._paths[event.track_uuid]
        assert time >= self._now[path]
        self._now[path] = time
        if event.type == SAMPLE:
            assert path in self.shown.units
            self.shown.counters[path].append((time, event.double_counter_value))
        elif event.type == END:
            self._open[path].end = time
            del self._open[path]
        else:
            assert event.type == BEGIN
            # Engines do one thing at a time.
            assert path not in self._open
            self._open[path] = self._begun(time, event)
            self.shown.slices[path].append(self._open[path])

    def _begun(self, time: int, event: Any) -> Slice:
        (category,) = event.category_iids
        said = {
            self._interned["debug_annotation_names", each.name_iid]: (
                self._interned["debug_annotation_string_values", each.string_value_iid]
                if each.string_value_iid
                else each.uint_value
            )
            for each in event.debug_annotations
        }
        assert len(said) == len(event.debug_annotations)
        name = self._interned["event_names", event.name_iid]
        kind = self._interned["event_categories", category]
        leaving, arriving = list(event.flow_ids), list(event.terminating_flow_ids)
        return Slice(name, kind, time, -1, said, leaving, arriving)

    def _arrows(self) -> None:
        every = [each for own in self.shown.slices.values() for each in own]
        leaving = {number: each for each in every for number in each.leaving}
        arriving = {number: each for each in every for number in each.arriving}
        assert leaving.keys() == arriving.keys()
        assert len(leaving) == sum(len(each.leaving) for each in every)
        assert len(arriving) == sum(len(each.arriving) for each in every)
        for number, giver in leaving.items():
            assert giver.start <= arriving[number].start


def shown(program: Program, arch: Arch) -> Shown:
    return Reader(trace_bytes(traced(program, arch), program, arch)).shown


def test_slices_by_hand() -> None:
    found = shown(two_layers(), machine())
    times = {path: [(s.name, s.start, s.end) for s in own] for path, own in found.slices.items()}
    # 500 MHz: a cycle is two nanoseconds.
    assert times == {
        "core 0/load": [("conv", 0, 20)],
        "core 0/matrix": [("conv", 20, 24)],
        "core 0/vector": [("act", 24, 32)],
        "core 0/store": [("act", 32, 40)],
    }
    (product,) = found.slices["core 0/matrix"]
    assert product.category == "Conv"
    instruction = product.said.pop("instruction")
    assert instruction.startswith("matrix.gemm matrix dst=local")
    assert product.said == {
        "group": 0, "tile": 0, "instructions": 1, "start cycle": 10, "cycles": 2,
        "local.read bytes": 64, "local.write bytes": 64,
    }  # fmt: skip


def test_arrows_lead_from_who_signals_to_who_waited() -> None:
    slices = shown(two_layers(), machine()).slices
    chain = [slices[f"core 0/{engine}"][0] for engine in ("load", "matrix", "vector", "store")]
    assert not chain[0].arriving
    assert not chain[3].leaving
    for giver, taker in pairwise(chain):
        assert giver.leaving == taker.arriving != []


def test_tokens_that_were_there_from_the_start_came_from_nobody() -> None:
    slices = shown(two_tiles(), machine()).slices
    loads, relus = slices["core 0/load"], slices["core 0/vector"]
    assert [each.arriving for each in loads] == [[], []]
    assert [each.leaving for each in loads] == [each.arriving for each in relus]
    assert [len(each.arriving) for each in relus] == [1, 1]
    assert [each.said["tile"] for each in relus] == [0, 1]


def test_counters_by_hand() -> None:
    found = shown(two_tiles(), machine())
    chip = "test: test/bandwidth/"
    assert found.counters[f"{chip}dram.read"] == [(0, 16), (40, 0)]
    assert found.units[f"{chip}dram.read"] == "bytes/cycle"
    assert found.counters["core 0/tokens/full"] == [(0, 0), (40, 1), (60, 0)]
    assert found.counters["core 0/tokens/free"] == [(0, 1), (20, 0), (60, 1), (100, 2)]
    # Issued in cycles 1 and 3, started in 10 and 30.
    assert found.counters["core 0/queues/vector"] == [(0, 0), (2, 1), (6, 2), (20, 1), (60, 0)]
    layers = shown(two_layers(), machine())
    assert layers.counters["core 0/memory/local"] == [(0, 160), (24, 120), (40, 0)]


@pytest.mark.parametrize("name", ["soma-edge", "gemmini-16", "stream-32x32-4c"])
def test_compiled_networks_read_back(tmp_path: Path, name: str) -> None:
    arch = load_arch(name)
    model = archgen.load_model(conv_net(tmp_path / "net.onnx", odd=True))
    program = archgen.compile_model(model, arch, effort=0)
    trace = traced(program, arch)
    found = Reader(trace_bytes(trace, program, arch)).shown
    engines = {
        f"core {e.core}/{e.engine}" if e.core is not None else f"{name}: net/{e.engine}"
        for e in trace.engines
        if e.busy
    }
    assert set(found.slices) == engines
    every = [each for own in found.slices.values() for each in own]
    assert {each.name for each in every} <= {origin.node for origin in program.origins}
    assert sum(each.said["cycles"] for each in every) >= sum(e.busy for e in trace.engines)
    for key in ("dram.read", "local.write"):
        assert sum(each.said.get(f"{key} bytes", 0) for each in every) == trace.traffic[key]
    assert any(each.leaving for each in every)
    assert all(own[-1][1] == 0 for path, own in found.counters.items() if "/queues/" in path)


pytestmark = pytest.mark.usefixtures("own_cache")


def test_many_spans_are_told_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "SLICES", 3)
    (relu,) = shown(two_tiles(), machine()).slices["core 0/vector"]
    assert (relu.start, relu.end, relu.said["instructions"]) == (20, 100, 2)
    assert relu.said["local.read bytes"] == 2 * 320


def test_levels_that_change_often_keep_their_peaks() -> None:
    rng = np.random.default_rng(0)
    times = np.sort(rng.choice(100_000, 5000, replace=False)).astype(np.int64)
    values = rng.integers(0, 1000, 5000).astype(np.float64)
    values[1234] = 5000.0
    at, levels = _thinned(times, values, 200)
    assert len(at) <= 201
    assert levels.max() == 5000
    assert np.all(np.diff(at) > 0)
    assert levels[np.searchsorted(at, times[1234], side="right") - 1] == 5000


def test_files_are_compressed_by_their_names(tmp_path: Path) -> None:
    made, arch = two_layers(), machine()
    trace = traced(made, arch)
    for name in ("run.pftrace", "run.pftrace.gz"):
        write_trace(tmp_path / name, trace, made, arch)
    plain = (tmp_path / "run.pftrace").read_bytes()
    assert gzip.decompress((tmp_path / "run.pftrace.gz").read_bytes()) == plain
    assert plain == trace_bytes(trace, made, arch)


def test_a_run_without_its_trace_is_refused(tmp_path: Path) -> None:
    made, arch = two_layers(), machine()
    with pytest.raises(ValueError, match="without its trace"):
        write_trace(tmp_path / "run.pftrace", simulate(made, arch), made, arch)
    assert not list(tmp_path.iterdir())


def test_a_study_keeps_traces_where_they_are_wanted(tmp_path: Path) -> None:
    model, out = conv_net(tmp_path / "net.onnx"), tmp_path / "out"
    asked = partial(archgen.study, ["soma-edge"], [model], verify=False, out=out, plots=False)
    plain = asked()
    assert not list(out.rglob("*.pftrace.gz"))
    # The point is the same, but what is stored of it has no trace.
    traced_too = asked(trace=True)
    assert (plain.outcomes[0].key, 0) == (traced_too.outcomes[0].key, traced_too.reused)
    (path,) = (out / "runs").glob("*.pftrace.gz")
    slices = Reader(gzip.decompress(path.read_bytes())).shown.slices
    nodes = {each.name for own in slices.values() for each in own}
    assert nodes == set(traced_too.layers["node"])
    for wanted in (True, False):
        again = asked(trace=wanted)
        assert again.reused == 1


def test_compile_writes_a_trace_instead_of_text(tmp_path: Path) -> None:
    model, path = conv_net(tmp_path / "net.onnx"), tmp_path / "run.pftrace"
    asked = ["compile", "soma-edge", "-m", str(model), "--effort", "0", "--trace", str(path)]
    result = invoke(*asked)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "core 0/matrix" in Reader(path.read_bytes()).shown.slices
    wrong = invoke(*asked[:-1], str(tmp_path / "no/run"), "--after", "fuse")
    said = str(wrong.exception)
    assert f"--trace {tmp_path}/no/run: there is no folder" in said
    assert "--after and --trace: one of them at a time" in said


# What goes from core to core can be seen: bytes by engine and link, slices and arrows of a trace.

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
    trace = simulate(program, arch)
    row = traffic_row(trace, program, arch)
    rate = arch.links["mesh"].bandwidth.at(arch.clock)
    assert row == {
        "copied_load_bytes": 2 * SIZE, "copied_peer_bytes": SIZE, "copied_store_bytes": SIZE,
        "link_mesh_bytes": crossed * SIZE,
        "link_mesh_busiest": 2 * SIZE / trace.cycles / rate,  # into core 0
    }  # fmt: skip
    assert all(column(name) is not None for name in row)


def test_copies_in_loops_count_every_time() -> None:
    arch = chip("chip")
    load = Copy(engine="load", src=at("dram", 0), dst=at("local", 0))
    program = Program("l", "seen", ((Loop("i", 7, (load,)),), ()), ({}, {}), {}, (), (), (), (), ())
    row = traffic_row(simulate(program, arch), program, arch)
    assert row["copied_load_bytes"] == 7 * SIZE


# The two frames of a run over time: worked out by hand, and against the run's own sums.


def level(frame: pd.DataFrame, kind: str, name: str) -> list[float]:
    chosen = frame[(frame["kind"] == kind) & (frame["name"] == name)]
    assert chosen["cycle"].tolist() == sorted(chosen["cycle"].tolist())
    return chosen["value"].tolist()


def test_spans_by_hand() -> None:
    made = two_layers()
    frame = spans_table(traced(made, machine()), made)
    assert list(frame.itertuples(index=False, name=None)) == [
        (0, "load", 0, "conv", 0, 10, 1),
        (0, "matrix", 0, "conv", 10, 12, 1),
        (0, "vector", 1, "act", 12, 16, 1),
        (0, "store", 1, "act", 16, 20, 1),
    ]


def test_levels_by_hand() -> None:
    made, arch = two_layers(), machine()
    # 20 cycles are fewer than 400 bins, so a bin is a cycle.
    frame = levels_table(traced(made, arch), made, arch)
    assert level(frame, "bandwidth", "dram.read") == [16.0] * 10 + [0.0] * 10
    assert level(frame, "bandwidth", "dram.write") == [0.0] * 16 + [16.0] * 4
    assert level(frame, "busy", "core0.vector") == [0.0] * 12 + [1.0] * 4 + [0.0] * 4
    assert level(frame, "occupancy", "local") == [160.0] * 12 + [120.0] * 8
    assert level(frame, "occupancy", "dram") == [0.0] * 20
    assert not any(name.startswith("local.bank") for name in frame["name"])


def test_amounts_are_spread_over_bins() -> None:
    start, end, amount = (np.array(v) for v in ([0, 8, 3, 29], [10, 28, 3, 30], [100, 60, 7, 5]))
    # 10 a cycle up to 10, 3 a cycle from 8 to 28, nothing without length, 5 in the last cycle.
    means = spread(start, end, amount, 30, 10)
    assert means.tolist() == pytest.approx([10.6, 3.0, 2.9])
    assert means.sum() * 10 == pytest.approx(165)
    assert spread(start, end, amount, 30, 7).sum() * 7 == pytest.approx(165)


ARCHS = ("soma-edge", "gemmini-16", "stream-32x32-4c")
POINT = ["arch", "kind", "name"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A network of four convolutions on machines of one and of many cores."""
    folder = tmp_path_factory.mktemp("study")
    return study(ARCHS, [conv_net(folder / "net.onnx", odd=True)], verify=False)


def test_frames_have_the_columns_that_are_explained(run: Study) -> None:
    for frame, columns in ((run.spans, SPAN_COLUMNS), (run.levels, LEVEL_COLUMNS)):
        assert frame.columns.tolist() == ordered([], columns)
        assert frame["arch"].unique().tolist() == list(ARCHS)
    assert run.spans["start_cycle"].dtype == "Int64"
    assert set(run.spans["engine"]) >= {"matrix", "load", "store", "host"}
    assert run.spans[run.spans["engine"] == "host"]["core"].unique().tolist() == [-1]


def test_bins_add_up_to_bytes_and_busy_cycles(run: Study) -> None:
    for outcome in run.outcomes:
        levels = run.levels[run.levels["arch"] == outcome.row["arch"]]
        length = levels["cycle"].drop_duplicates().diff().iloc[1]
        total = levels.groupby(["kind", "name"])["value"].sum() * length
        for key, moved in outcome.details["traffic"].items():
            assert total["bandwidth", key] == pytest.approx(moved)
        for engine in ("matrix", "vector", "load", "store"):
            busy = sum(layer.get(f"busy_{engine}_cycles", 0) for layer in outcome.layers)
            own = [key for key in total.index if key[1].endswith(f".{engine}")]
            assert busy > 0
            assert total[own].sum() == pytest.approx(busy)


def test_the_highest_level_is_the_peak(run: Study) -> None:
    highest = run.levels.groupby(POINT)["value"].max()
    for row in run.frame.to_dict("records"):
        for role in ("dram", "local", "accumulators", "shared"):
            if (row["arch"], "occupancy", role) in highest.index:
                assert highest[row["arch"], "occupancy", role] == row[f"peak_{role}_bytes"]
        assert highest[row["arch"], "occupancy", "local"] > 0


def test_spans_reach_from_the_first_cycle_to_the_last(run: Study) -> None:
    ends = run.spans.groupby("arch")["end_cycle"].max()
    assert ends.to_dict() == run.frame.set_index("arch")["latency_cycles"].to_dict()
    assert set(run.spans["node"]) == set(run.layers["node"])
    rows = run.spans.groupby("arch").size()
    assert rows.max() < 20_000


def test_stored_tables_are_read_when_asked_for(tmp_path: Path) -> None:
    model, out = conv_net(tmp_path / "net.onnx"), tmp_path / "out"
    fresh = study(["soma-edge"], [model], verify=False, out=out, plots=False)
    again = study(["soma-edge"], [model], verify=False, out=out, plots=False)
    assert again.reused == 1
    stored = again.outcomes[0].tables
    assert {name: isinstance(table, Path) for name, table in stored.items()} == {
        "spans": True, "levels": True,
    }  # fmt: skip
    pd.testing.assert_frame_equal(again.spans, fresh.spans)
    pd.testing.assert_frame_equal(again.levels, fresh.levels)
    assert len(pickle.dumps(fresh.outcomes[0])) < 100_000


def test_a_point_without_its_tables_is_run_again(tmp_path: Path) -> None:
    model, out = conv_net(tmp_path / "net.onnx"), tmp_path / "out"
    study(["soma-edge"], [model], verify=False, out=out, plots=False)
    next((out / "runs").glob("*.levels.parquet")).unlink()
    assert study(["soma-edge"], [model], verify=False, out=out, plots=False).reused == 0
