"""Machines without DRAM: weights are on the chip before an inference, inputs come from the host."""

from __future__ import annotations

from pathlib import Path

import onnx
import pandas as pd
import pytest
from networks import Net, check

from archgen.energy.costs import costs_of
from archgen.lint import findings
from archgen.outcomes.bottleneck import bottleneck_row, verdict
from archgen.outcomes.points import Row
from archgen.outcomes.rows import bound_row
from archgen.plots import memory_figure, waterfall_figure
from archgen.report.lever_rules import rules_for
from archgen.schema import ArchError, load_arch
from archgen.schema.rewritten import peaks
from compiler import api
from compiler.errors import DoesNotFit
from simmodel.arch.record import Arch
from simmodel.isa import HOST
from simmodel.metrics import measure

TEXT = """
name: resident
clock: 500 MHz
types: [int8]
cores: 2
memories:
  shared: {level: chip, size: SIZE, banks: 8, bank_width: 16 B, latency: 8 cycles}
  local: {size: 64 KiB, banks: 4, bank_width: 16 B}
matrix: {kind: cube, rows: 4, cols: 8, depth: 8, writeback: [bias, clip, requantize]}
vector: {lanes: 16, types: [int8, uint8, int32, fp32]}
copy:
  load: {from: shared, to: local, bandwidth: 32 B/cycle, broadcast: true}
  store: {from: local, to: [shared], bandwidth: 32 B/cycle}
links:
  noc: {from: [shared], to: local, bandwidth: 64 B/cycle}
host: {bandwidth: 1 GB/s}
energy: {node: 16 nm}
"""


def resident(folder: Path, size: str = "1 MiB", **parts: str) -> Arch:
    """The machine of `TEXT`, with lines put in the place of others."""
    text = TEXT.replace("SIZE", size)
    for old, new in parts.items():
        (line,) = (line for line in text.splitlines() if line.strip().startswith(f"{old}:"))
        text = text.replace(line, new)
    path = folder / "resident.yaml"
    path.write_text(text)
    return load_arch(path)


def network() -> onnx.ModelProto:
    """x (4 x 64) -> 96 -> 32, in fp32 outside."""
    net = Net(quantized=True, seed=3)
    x = net.input(4, 64)
    hidden = net.op("Relu", net.op("MatMul", x, net.weight(64, 96)))
    return net.model(net.op("MatMul", hidden, net.weight(96, 32)))


def test_shared_memory_takes_the_place_of_dram(tmp_path: Path) -> None:
    arch = resident(tmp_path)
    dram = arch.memories.dram
    assert dram.on_chip and arch.memories.shared is None and arch.energy.dram == "sram"
    assert (dram.size, dram.channels, dram.burst, arch.dram_latency) == (1 << 20, 8, 16, 8)
    assert arch.dram_bytes_per_cycle == 8 * 16
    assert (
        arch.copy_["load"].from_ == arch.copy_["store"].to == arch.links["noc"].from_ == ("dram",)
    )
    assert peaks(arch).on_chip == (1 << 20) + 2 * 64 * 1024
    costs = costs_of(arch)
    assert costs.area.parts["shared"].value > costs.area.parts["local"].value
    assert "dram" not in costs.area.parts  # no interface
    assert costs.read["dram"].value < 16  # pJ a byte of some kind of DRAM is 32 and more


def test_inputs_and_outputs_cross_the_host_and_weights_do_not(tmp_path: Path) -> None:
    arch = resident(tmp_path)
    behind = arch.model_copy(update={"memories": arch.memories.model_copy(
        update={"dram": arch.memories.dram.model_copy(update={"on_chip": False})}
    )})  # fmt: skip
    found, plain = (check(network(), each, "int8") for each in (arch, behind))
    # 1 GB/s is 2 B a cycle: 4 x 64 + 4 x 32 numbers of fp32.
    moved = 4 * (4 * 64 + 4 * 32)
    program = found.compiled.program
    assert program.port_bytes == moved
    assert found.trace.cycles == plain.trace.cycles + moved // 2
    assert found.trace.busy(HOST) == moved // 2
    figures = measure(found.trace, program, arch)
    weights = sum(constant.data.nbytes for constant in program.constants)
    assert figures.load_once_ms == pytest.approx(weights / 2 / 500e6 * 1e3)
    assert measure(plain.trace, plain.compiled.program, behind).load_once_ms == 0


def test_what_does_not_fit_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit) as refused:
        check(network(), resident(tmp_path, "8 KiB"), "int8")
    text = str(refused.value)
    assert "on-chip memory needs" in text and "has 8 KiB: constants" in text
    assert "memories.shared.size of at least" in text and "memories.dram, for what" in text


def test_a_file_needs_one_memory_for_all(tmp_path: Path) -> None:
    local = "  local: {size: 64 KiB}"
    for shared in ("", "  shared: {level: cluster, size: 1 MiB}", "  shared: {size: many}"):
        with pytest.raises(ArchError) as wrong:
            resident(tmp_path, shared=shared, local=local)
        assert "memories" in str(wrong.value) and "`shared` memory of the chip" in str(wrong.value)


def test_no_lever_is_a_field_that_the_file_does_not_have(tmp_path: Path) -> None:
    arch = resident(tmp_path)
    fields = {field for rule in rules_for(arch) for field in rule.on(arch)}
    assert fields
    assert not {field for field in fields if field.startswith("memories.dram")}


def test_warnings_name_the_field_that_the_file_has(tmp_path: Path) -> None:
    slow = "{from: shared, to: local, bandwidth: 4 B/cycle}"
    found = findings(resident(tmp_path, load=f"  load: {slow}", noc=f"  noc: {slow}"))
    (far,) = (each for each in found if each.name == "dram-unused")
    assert far.path == ("memories", "shared")
    assert not any("DRAM" in each.figure + each.usual for each in found)


def test_words_and_pictures_say_what_is_in_the_place_of_dram(tmp_path: Path) -> None:
    arch = resident(tmp_path)
    bound = api.Attainable(10.0, 0.0, 90.0, 0.0, 0.0)
    row: Row = {
        "arch": arch.name, "model": "net", "batch": 1, "dtype": "int8",
        "status": "ok", "verified": True,
        "peak_dram_bytes": 3 << 18, "peak_local_bytes": 1 << 15, "working_set_bytes": 1 << 17,
        "dram_read_bytes": 200, "dram_write_bytes": 100, "compulsory_bytes": 100,
        "latency_ms": 1.0, "moved_again": 0.5, "stall_core": 0.4, **bound_row(bound, 100, arch),
    }  # fmt: skip
    held = verdict(row | bottleneck_row(row | {"moved_again": 0.0}))
    assert held.sentence == "traffic of shared memory takes 90 % of the time"
    assert held.words == "shared memory bandwidth"
    frame, known = pd.DataFrame([row]), {arch.name: arch}
    memory, account = memory_figure(frame, known), waterfall_figure(frame, known)
    shared, local = (bar for bar in memory.axes[0].patches if bar.get_alpha() is None)
    ends = [bar.get_x() + bar.get_width() for bar in (shared, local)]
    assert ends == [3 << 18, 1 << 15]
    (need,) = (line for line in memory.axes[0].lines if line.get_marker() == "D")
    assert need.get_xdata() == [1 << 17], "in shared memory, which all cores have"
    assert "shared memory traffic × 3" in memory.axes[0].texts[0].get_text()
    labels = {text.get_text() for text in account.legends[0].get_texts()}
    assert {"shared: again", "waits: barriers, host"} <= labels
    assert "shared memory below" in account.axes[0].get_xlabel()


def test_the_link_to_the_host_is_stated(tmp_path: Path) -> None:
    with pytest.raises(ArchError, match=r"host.bandwidth: expected: without DRAM inputs"):
        resident(tmp_path, host="host: {latency: 1 us}")
    both = "  dram: {size: 1 MiB, bandwidth: 1 GB/s, on_chip: true}\n  local: {size: 64 KiB}"
    with pytest.raises(ArchError, match="it is alone"):
        resident(tmp_path, local=both)


def test_engines_do_not_compute_on_what_is_in_the_place_of_dram(tmp_path: Path) -> None:
    with pytest.raises(ArchError, match="'shared' is in the place of DRAM"):
        resident(tmp_path, vector="vector: {lanes: 16, reads: [local, shared]}")
    stated = "energy: {node: 16 nm, memories: {shared: {read: 2 pJ/B, area: 1 mm2}}}"
    costs = costs_of(resident(tmp_path, energy=stated))
    assert costs.read["dram"].value == 2 and costs.area.parts["shared"].value == 1
