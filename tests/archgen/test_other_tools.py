"""Files of other tools: machines (what becomes of each value), and mappings as schedules by hand
(what becomes of each loop), by small files of each kind."""

from __future__ import annotations

import runpy
from argparse import Namespace
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import Result
from host_only import invoke

import archgen
from archgen.api import prepared_for, request_for
from archgen.models import mapping
from archgen.models.mapping import MappedSchedule, following, is_mapping, read
from archgen.outcomes.points import Point
from archgen.scheduling import OptionError, choice
from archgen.schema.load import load_arch
from archgen.studies.run import measured_schedules
from archgen.toolchain import compile_best
from compiler.api import TreeError
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate

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


GEMM = {"m": 64, "n": 96, "k": 128}
TIMELOOP = """
    mapping:
      - {target: Registers, type: bypass, keep: [Weights], bypass: [Inputs, Outputs]}
      - {target: Accumulator, type: spatial, factors: C=16 K=16, permutation: CKPQRSN}
      - {target: Accumulator, type: temporal, factors: "P=16 K=3 C=4", permutation: PKCQRSN}
      - {target: Accumulator, type: bypass, keep: [Outputs], bypass: [Inputs, Weights]}
      - {target: Scratchpad, type: temporal, factors: P=1 K=1 C=2, permutation: CKPQRSN}
      - {target: Scratchpad, type: bypass, keep: [Inputs, Weights], bypass: [Outputs]}
      - {target: DRAM, type: temporal, factors: [P=4, K=2], permutation: [P, K]}
    """
TIMELOOP_NEST = """
    DRAM [ Weights:12288 (12288) Inputs:8192 (8192) Outputs:6144 (6144) ]
    ---------------------------------------------------------------------
    | for K in [0:2)
    |   for P in [0:4)

    Scratchpad [ Weights:6144 (6144) Inputs:2048 (2048) ]
    -----------------------------------------------------
    |     for C in [0:2)

    Accumulator [ Outputs:768 (768) ]
    ---------------------------------
    |       for C in [0:16) (Spatial-X)
    |         for K in [0:16) (Spatial-Y)
    |           for C in [0:4)
    |             for K in [0:3)
    |               for P in [0:16)
    """
DOSA = "L3[WIO] K2 P4 - L2[WI] C2 - L1[O] C4 K3 P16 C16X K16Y - L0[W]"
ZIGZAG_NEST = """
    Loop ordering for c
    Temporal Loops            I      W      O
    for K in [0, 2):          sram   dram   dram
      for D in [0, 4):        dram   sram   dram
        for C in [0, 2):      dram   dram   acc
          for C in [0, 4):    sram   sram   acc
            for K in [0, 3):  sram   sram   acc
              for D in [0, 16):  sram   sram   acc
    Spatial Loops
                parfor C in [0, 16):
                parfor K in [0, 16):
    """
ZIGZAG_MAPPING = """
    - name: default
      spatial_mapping: {D1: ["D2, 16"], D2: [[D1, 16]]}
      temporal_ordering: [[D0, 16], [D1, 3], [D2, "*"], [D0, 4], [D1, 2]]
    """


def translated(text: str, sizes: dict[str, int], arch: str = "gemmini-16") -> MappedSchedule:
    assert is_mapping(dedent(text))
    return mapping.translated(read(dedent(text)), sizes, archgen.load_arch(arch))


@pytest.mark.parametrize("text", [TIMELOOP, TIMELOOP_NEST, DOSA, ZIGZAG_NEST])
def test_each_form_of_a_mapping_says_the_same_tiles(text: str) -> None:
    """Rows of 16 within columns of 48, sums in halves; what lies inside is not a schedule's."""
    found = translated(text, GEMM)
    assert found.loops == ["n 48", "m 16", "k 64"]
    assert [line.partition(": ")[2] for line in found.left] == [
        "for k 4, n 3, m 16: the order of instructions in a tile is the compiler's"
    ]


def test_where_a_mapping_names_no_memories_the_largest_tile_that_fits_is_taken() -> None:
    found = translated(ZIGZAG_MAPPING, GEMM | {"k": 2048})
    assert found.loops == ["n 48", "m 16"]
    assert (
        "what lies in which memory is not said: the largest tile that fits is taken" in found.left
    )


@pytest.mark.parametrize(
    ("times", "loops", "sums"),
    # Sums of 64 x 32 in int32 are 8 KiB of the 64 that are there for them; of 2048 x 32, 256 KiB.
    [(1, ["n 32", "k 32"], "are one tile, whose sums stay where they are"),
     (32, ["n 32", "m 1024", "k 32"], "stand outside of it: their sums do not fit at once")],
)  # fmt: skip
def test_what_a_schedule_cannot_say_is_listed(times: int, loops: list[str], sums: str) -> None:
    """An outer loop over a sum, one over what is split further in, a mesh of another size."""
    said = f"L3[WIO] K3 C4 P2 - L2[WIO] P4 K2 - L0[W] P{8 * times} C8X K16X C4"
    found = translated(said, GEMM | {"m": 64 * times})
    assert found.loops == loops
    assert [line.partition(":")[0] for line in found.left] == [
        f"the loops over m inside of the sum over k {sums}".partition(":")[0], "L2[WIO]", "L0[W]",
        "k 8 x n 16 at once, where a core multiplies 256",
    ]  # fmt: skip


def test_loops_in_space_outside_of_local_memory_are_cores() -> None:
    said = "L2[WIO] Q7 K2X - L1[WIO] P14 Q1 C8 R3 S3 K16"
    sizes = {"n": 1, "o": 32, "h": 7, "w": 14, "c": 8, "i": 3, "j": 3}
    found = translated(said, sizes, "cocco-simba-2c")
    assert (found.cores, found.loops) == (["o = 0:16", "o = 16:32"], ["h 1"])


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("L1[WIO] P4 - L0[W] K96 C128", "covers 4 of the 64 positions of m"),
        (
            "L1[WIO] X4 - L0[W] P64 K96 C128",
            "loops over X: the layer has none; did you mean 'OX'\\?; known are",
        ),
        ("L1[WIO] four", "'four': expected such as C8 or K2X"),
        ("mapping: none", "neither `mapping` of Timeloop"),
        ("mapping: []", "the mapping has no loops"),
        ("L1[WIO] P8 K2 - L0[W] P16 K96 C128", "m: factors 8 x 16 are 128 positions, the layer "),
        ("L1[W] P4 - L0 K2", r"'L0': expected such as L2\[WI\]"),
        ("L1[WXO] P4 - L0[W]", r"'L1\[WXO\]': expected such as"),
        ("for K in [0:2)\nfor P of [0:4)", "line 2: 'for P of .*': expected such as for K in"),
        ("- {temporal_ordering: [[K, 4], K, [C, many]]}", r"temporal_ordering: 'K'.*\n.*'many'"),
        ("- 1\n- {temporal_ordering: [], spatial_mapping: [D1]}", "spatial_mapping: .* expected"),
    ],
)
def test_mistakes_are_told(said: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        translated(said, GEMM)


TYPOS = """
    mapping:
      - {target: DRAM, type: temporal, factors: P=8 K=6 C=2, permutation: PKX}
      - {target: Scratchpad, type: spacial, factors: K16, permutation: KK}
      - {target: Scratchpad, type: bypass, keep: Weights}
      - {target: Accumulator, factors: P=16 C=four C=4, permutatoin: CK}
      - Registers
    """


def test_all_mistakes_are_told_at_once_with_where() -> None:
    with pytest.raises(ValueError, match="entry 2") as told:
        translated(TYPOS, GEMM)
    known = "B, C, D, D0, D1, D2, FX, FY, K, M, N, OX, OY, P, Q, R, S"
    assert [line.strip() for line in str(told.value).splitlines() if line] == [
        f"entry 1 (DRAM): permutation: no loop 'X'; did you mean 'OX'?; known are {known}",
        "entry 2 (Scratchpad): unknown type 'spacial'; did you mean 'spatial'?",
        "entry 2 (Scratchpad): permutation: K stands there twice",
        "entry 3 (Scratchpad): keep 'Weights': expected a list such as [Weights]",
        "entry 4 (Accumulator): no 'type'",
        "entry 4 (Accumulator): unknown key 'permutatoin'; did you mean 'permutation'?",
        "entry 4 (Accumulator): factor 'C=four': expected such as C=16",
        "entry 5: 'Registers' is no mapping",
        "m: factors 8 x 16 are 128 positions, the layer has 64",
    ]


def test_a_last_turn_that_is_shorter_is_said() -> None:
    found = translated("L3[WIO] P5 - L0[W] P14 K96 C128", GEMM)
    assert found.loops == ["m 14"]
    assert found.left[0] == "m: 5 x 14 turns for 64 positions: the last is shorter"


def test_a_mapping_of_one_product_compiles_as_it_says() -> None:
    """The tiles that were compiled are those of the mapping: loads of 16 x 64 and of 64 x 48."""
    arch, model = archgen.load_arch("gemmini-16"), "gemm:m=64,n=96,k=128"
    prepared, dtype = prepared_for(archgen.load_model(model), arch, scheduling=choice(effort=0))
    asked = request_for(prepared, dtype, arch, True, choice(effort=0))
    request, left = following(asked, prepared.edge.proto, dedent(TIMELOOP))
    assert len(left) == 1
    result = compile_best(request).result
    (decision,) = result.decisions
    (layer,) = decision.schedule.layers
    assert [loop.size for loop in layer.loops] == [48, 16, 64]
    # What the host takes for the input is no part of the comparison.
    point = Point("", arch, model, 1, dtype, scheduling=request.scheduling, verify=False)
    by_hand, own = measured_schedules(point)
    assert by_hand.host_cycles == own.host_cycles and own.host_cycles
    assert by_hand.cycles == simulate(result.program, arch).cycles - own.host_cycles


def test_a_mapping_is_of_one_layer() -> None:
    arch = archgen.load_arch("gemmini-16")
    prepared, dtype = prepared_for(archgen.load_model("attention:sequence=8"), arch)
    asked = request_for(prepared, dtype, arch, True, choice(effort=0))
    with pytest.raises(TreeError, match="has 6 layers that multiply; a mapping is of one"):
        following(asked, prepared.edge.proto, DOSA)


def test_a_file_with_a_mapping_is_a_schedule_for_compile(tmp_path: Path) -> None:
    path = tmp_path / "mapping"
    path.write_text(DOSA)

    def compiled(model: str) -> Result:
        asked = ["compile", "gemmini-16", "-m", model, "--tree", str(path), "--effort", "0"]
        return invoke(*asked, "--after", "tree")

    done = compiled("gemm:m=64,n=96,k=128")
    assert done.exit_code == 0 and "for n 48; for m 16; for k 64" in done.stdout
    assert "has no place in a schedule: L1[O]: for k 4, n 3, m 16: the order" in done.stderr
    done = compiled("gemm:m=64,n=90,k=130")
    assert isinstance(done.exception, OptionError)
    assert f"{path}: the mapping covers 128 of the 130 positions of k" == str(done.exception)
