"""Mappings of other tools as schedules by hand: what becomes of each loop, by small files of each
form of the same mapping."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import archgen
from archgen.api import prepared_for, request_for
from archgen.outcomes.points import Point
from archgen.scheduling import choice
from archgen.studies.run import beside
from archgen.toolchain import compile_best
from compiler.api import parse_tree
from simmodel.machine.run import simulate

IMPORT = runpy.run_path(str(Path(__file__).parents[2] / "studies/11_import_mapping.py"))
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


def translated(path: Path, text: str, sizes: dict[str, int], arch: str = "gemmini-16") -> Any:
    path = path / "mapping"
    path.write_text(dedent(text))
    return IMPORT["translated"](IMPORT["read"](path), sizes, archgen.load_arch(arch))


@pytest.mark.parametrize("text", [TIMELOOP, TIMELOOP_NEST, DOSA, ZIGZAG_NEST])
def test_each_form_of_a_mapping_says_the_same_tiles(tmp_path: Path, text: str) -> None:
    """Rows of 16 within columns of 48, sums in halves; what lies inside is not a schedule's."""
    found = translated(tmp_path, text, GEMM)
    assert found.loops == ["n 48", "m 16", "k 64"]
    assert [line.partition(": ")[2] for line in found.left] == [
        "for k 4, n 3, m 16: the order of instructions in a tile is the compiler's"
    ]


def test_where_a_mapping_names_no_memories_the_largest_tile_that_fits_is_taken(
    tmp_path: Path,
) -> None:
    found = translated(tmp_path, ZIGZAG, GEMM | {"k": 2048})
    assert found.loops == ["n 48", "m 16"]
    assert (
        "what lies in which memory is not said: the largest tile that fits is taken" in found.left
    )


def test_what_a_schedule_cannot_say_is_listed(tmp_path: Path) -> None:
    """An outer loop over a sum, one over what is split further in, a mesh of another size."""
    said = "L3[WIO] K3 C4 P2 - L2[WIO] P4 K2 - L0[W] P8 C8X K16X C4"
    found = translated(tmp_path, said, GEMM)
    assert found.loops == ["n 32", "m 32", "k 32"]
    assert [line.partition(":")[0] for line in found.left] == [
        "the loop over k is innermost", "L2[WIO]", "L0[W]",
        "k 8 x n 16 at once, where a core multiplies 256",
    ]  # fmt: skip


def test_loops_in_space_outside_of_local_memory_are_cores(tmp_path: Path) -> None:
    said = "L2[WIO] Q7 K2X - L1[WIO] P14 Q1 C8 R3 S3 K16"
    sizes = {"n": 1, "o": 32, "h": 7, "w": 14, "c": 8, "i": 3, "j": 3}
    found = translated(tmp_path, said, sizes, "cocco-simba-2c")
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
def test_mistakes_are_told(tmp_path: Path, said: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        translated(tmp_path, said, GEMM)


TYPOS = """
    mapping:
      - {target: DRAM, type: temporal, factors: P=8 K=6 C=2, permutation: PKX}
      - {target: Scratchpad, type: spacial, factors: K16, permutation: KK}
      - {target: Scratchpad, type: bypass, keep: Weights}
      - {target: Accumulator, factors: P=16 C=four C=4, permutatoin: CK}
      - Registers
    """


def test_all_mistakes_are_told_at_once_with_where(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="entry 2") as told:
        translated(tmp_path, TYPOS, GEMM)
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
def test_malformed_entries_are_mistakes(tmp_path: Path, said: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        translated(tmp_path, said, GEMM)


def test_a_last_turn_that_is_shorter_is_said(tmp_path: Path) -> None:
    found = translated(tmp_path, "L3[WIO] P5 - L0[W] P14 K96 C128", GEMM)
    assert found.loops == ["m 14"]
    assert found.left[0] == "m: 5 x 14 turns for 64 positions: the last is shorter"


def test_a_mapping_of_one_product_compiles_as_it_says(tmp_path: Path) -> None:
    """The tiles that were compiled are those of the mapping: loads of 16 x 64 and of 64 x 48."""
    arch, model = archgen.load_arch("gemmini-16"), "gemm:m=64,n=96,k=128"
    sizes, form = IMPORT["layer_of"](model, arch)
    assert {name: sizes[name] for name in GEMM} == GEMM
    text = IMPORT["written"](translated(tmp_path, TIMELOOP, sizes), form, 2)
    scheduling = replace(choice(effort=0), tree=parse_tree(text))
    prepared, dtype = prepared_for(archgen.load_model(model), arch, scheduling=scheduling)
    result = compile_best(request_for(prepared, dtype, arch, True, scheduling)).result
    (decision,) = result.decisions
    (layer,) = decision.schedule.layers
    assert [loop.size for loop in layer.loops] == [48, 16, 64]
    # What the host takes for the input is no part of the comparison.
    by_hand, own = beside(Point("", arch, model, 1, dtype, scheduling=scheduling, verify=False))
    assert by_hand.host_cycles == own.host_cycles and own.host_cycles
    assert by_hand.cycles == simulate(result.program, arch).cycles - own.host_cycles
