"""Machines of other tools' files: what becomes of each value, by small files of each kind."""

from __future__ import annotations

import runpy
from argparse import Namespace
from pathlib import Path
from textwrap import dedent

import pytest

from archgen.schema.load import load_arch
from simmodel.arch.record import Arch

SCRIPT = Path(__file__).parents[2] / "studies/10_import_machine.py"
SCALE_SIM = """
    [architecture_presets]
    ArrayHeight: 16
    ArrayWidth: 8
    IfmapSramSzkB: 64
    FilterSramSzkB: 32
    OfmapSramSzkB: 64
    IfmapOffset: 7
    Bandwidth: 12
    Dataflow: os
    """
ZIGZAG = """
    name: z
    operational_array: {dimensions: [D1, D2, D3], sizes: [2, 4, 8], unit_energy: 0.1}
    memories:
      reg_O: {size: 32, operands: [O], served_dimensions: [D1], ports: [], latency: 1}
      reg_I2: {size: 8, operands: [I2], served_dimensions: [D3], ports: [], latency: 1}
      sram: {size: 262144, operands: [I1, I2, O], served_dimensions: [D1, D2, D3], r_bw: 256,
             w_bw: 256, r_port: 1, w_port: 1, rw_port: 0, r_cost: 25.6, latency: 3}
      dram: {size: 8589934592, operands: [I1, I2, O], served_dimensions: [D1, D2, D3],
             ports: [{type: read_write, bandwidth_max: 32}]}
    """
TIMELOOP_03 = """
    architecture:
      subtree:
      - name: system
        attributes: {technology: 45nm}
        local: [{name: DRAM, class: DRAM, attributes: {type: LPDDR4, width: 64, word-bits: 8}}]
        subtree:
        - name: chip
          local:
          - {name: glb, class: SRAM, attributes: {depth: 4096, width: 64, n_banks: 16,
             word-bits: 8, read_bandwidth: 32, write_bandwidth: 32}}
          subtree:
          - name: PE[0..23]
            local:
            - {name: spad, class: regfile, attributes: {depth: 16, width: 8, meshX: 6}}
            - {name: mac, class: intmac, attributes: {datawidth: 8, meshX: 6}}
    """
TIMELOOP_04 = """
    architecture:
      nodes:
      - !Container {name: system, attributes: {technology: 45nm, datawidth: 8}}
      - !Component {name: DRAM, class: DRAM, attributes: {type: LPDDR4, width: 64}}
      - !Component {name: glb, class: SRAM, attributes: {depth: 4096, width: 64, n_banks: 16,
          read_bandwidth: 32, write_bandwidth: 32}}
      - !Container {name: column, spatial: {meshX: 6}}
      - !Container {name: PE, spatial: {meshY: 4}}
      - !Component {name: spad, class: regfile, attributes: {depth: 16, width: 8}}
      - !Component {name: mac, class: intmac}
    """
VELA = """
    [System_Config.S]
    core_clock=250e6
    axi0_port=Sram
    axi1_port=Dram
    Dram_clock_scale=0.5
    Dram_read_latency=99
    Dram_burst_length=128
    Dram_write_latency=50
    [Memory_Mode.M]
    const_mem_area=Axi1
    [Memory_Mode.N]
    inherit=Memory_Mode.M
    arena_cache_size=131072
    """
ASKED = {"type": None, "accelerator": "ethos-u55-256", "system": None, "mode": "N"}


def imported(path: Path, text: str, name: str, **asked: str) -> tuple[Arch, list[str]]:
    path = path / name
    path.write_text(dedent(text))
    draft = runpy.run_path(str(SCRIPT))["read"](Namespace(file=path, **(ASKED | asked)))
    (written := path.with_name("out.yaml")).write_text(draft.text())
    return load_arch(str(written)), draft.left


def test_scale_sim_arrays_keep_their_dataflow_and_words(tmp_path: Path) -> None:
    arch, left = imported(tmp_path, SCALE_SIM, "s.cfg", type="fp16")
    assert arch.matrix is not None and arch.memories.weights is not None
    assert (arch.matrix.rows, arch.matrix.cols, arch.matrix.dataflow) == (
        16,
        8,
        "output-stationary",
    )
    assert (arch.memories.local.size, arch.memories.weights.size) == (128 << 10, 32 << 10)
    assert (arch.types, arch.dram_bytes_per_cycle) == (("fp16",), 24)  # 12 words
    assert [line.split(":")[0] for line in left] == ["Bandwidth", "ifmapoffset = 7"]


def test_zigzag_dimensions_are_what_their_registers_serve(tmp_path: Path) -> None:
    """One sum register for two cells of D1: reduction; one weight for the eight of D3: pixels."""
    arch, left = imported(tmp_path, ZIGZAG, "z.yaml")
    assert arch.matrix is not None
    assert (arch.matrix.depth, arch.matrix.rows, arch.matrix.cols) == (2, 8, 4)
    local = arch.memories.local
    assert (local.size, local.bank_width, local.read_ports) == (32 << 10, 32, 1)
    assert (arch.memories.dram.size, arch.dram_bytes_per_cycle) == (1 << 30, 4)
    assert "reg_O (4 B): a register of the array" in left


@pytest.mark.parametrize("text", [TIMELOOP_03, TIMELOOP_04], ids=["0.3", "0.4"])
def test_timeloop_hierarchies_end_in_a_mesh_of_multipliers(tmp_path: Path, text: str) -> None:
    """64 B/cycle of the buffer are 8 banks of 8 B, however many Accelergy counts."""
    arch, left = imported(tmp_path, text, "t.yaml")
    assert arch.matrix is not None
    assert (arch.matrix.cols, arch.matrix.depth) == (6, 4)
    local = arch.memories.local
    assert (local.size, local.banks, local.bank_width) == (32 << 10, 8, 8)
    assert (arch.dram_bytes_per_cycle, arch.energy.node) == (8, 45)
    assert left[0] == "spad (24 x 16 B): inside the array"


def test_vela_systems_lie_around_the_shipped_ethos(tmp_path: Path) -> None:
    arch, left = imported(tmp_path, VELA, "v.ini")
    assert (arch.peak_macs("int8"), arch.clock) == (256, 250e6)
    assert (arch.dram_bytes_per_cycle, arch.memories.dram.burst) == (4, 128)  # half of a port
    assert arch.memories.local.size == 128 << 10
    assert any(line.startswith("dram_write_latency = 50") for line in left)


@pytest.mark.parametrize(
    ("text", "name", "missing"),
    [(SCALE_SIM.replace("Dataflow", "Flow"), "s.cfg", "Dataflow"), ("a: 1", "x.yaml", "neither"),
     (VELA.replace("System_Config", "System"), "v.ini", "--system is one of")],
)  # fmt: skip
def test_what_is_missing_is_named(tmp_path: Path, text: str, name: str, missing: str) -> None:
    with pytest.raises((KeyError, ValueError), match=missing):
        imported(tmp_path, text, name)
