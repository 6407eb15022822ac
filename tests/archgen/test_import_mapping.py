"""Mappings of other tools as schedules by hand: what becomes of each loop, by small files of each
form of the same mapping."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner, Result

import archgen
from archgen.api import prepared_for, request_for
from archgen.cli.main import cli
from archgen.models import mapping
from archgen.models.mapping import MappedSchedule, following, is_mapping, read
from archgen.outcomes.points import Point
from archgen.scheduling import OptionError, choice
from archgen.studies.run import beside
from archgen.toolchain import compile_best
from compiler.api import TreeError
from simmodel.machine.run import simulate

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
ZIGZAG = """
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
    found = translated(ZIGZAG, GEMM | {"k": 2048})
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


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("L1[WIO] P8 K2 - L0[W] P16 K96 C128", "m: factors 8 x 16 are 128 positions, the layer "),
        ("L1[W] P4 - L0 K2", r"'L0': expected such as L2\[WI\]"),
        ("L1[WXO] P4 - L0[W]", r"'L1\[WXO\]': expected such as"),
        ("for K in [0:2)\nfor P of [0:4)", "line 2: 'for P of .*': expected such as for K in"),
        ("- {temporal_ordering: [[K, 4], K, [C, many]]}", r"temporal_ordering: 'K'.*\n.*'many'"),
        ("- 1\n- {temporal_ordering: [], spatial_mapping: [D1]}", "spatial_mapping: .* expected"),
    ],
)
def test_malformed_entries_are_mistakes(said: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        translated(said, GEMM)


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
    by_hand, own = beside(point)
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
        return CliRunner().invoke(cli, [*asked, "--after", "tree"])

    done = compiled("gemm:m=64,n=96,k=128")
    assert done.exit_code == 0 and "for n 48; for m 16; for k 64" in done.stdout
    assert "has no place in a schedule: L1[O]: for k 4, n 3, m 16: the order" in done.stderr
    done = compiled("gemm:m=64,n=90,k=130")
    assert isinstance(done.exception, OptionError)
    assert f"{path}: the mapping covers 128 of the 130 positions of k" == str(done.exception)
