"""The commands of a program: what each is for, what it says, and how long after what it needs."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from host_only import compiled, invoke, refused
from role_nets import conv_net
from small_run import machine, two_layers

import archgen
from archgen.program_files import Loaded
from simmodel.isa import Loop
from simmodel.isa.region import Address, Ring
from simmodel.program.program import Program
from simmodel.program.sizes import LengthError, specialize

ROOT = Path(__file__).parents[2]
ARCH = "cocco-simba-2c"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four convolutions, which two cores work on in rows."""
    return conv_net(tmp_path_factory.mktemp("net") / "net.onnx")


@pytest.fixture(scope="module")
def program(net: Path) -> Program:
    """That network, compiled."""
    return archgen.compile_model(archgen.load_model(net), archgen.load_arch(ARCH), effort=0)


def test_intervals_are_those_worked_out_by_hand() -> None:
    """Load 0..10, matrix 10..12, vector 12..16, store 16..20; relu reads what was loaded."""
    frame = archgen.commands(two_layers(), machine())
    assert frame["engine"].tolist() == ["load", "matrix", "vector", "store"]
    assert frame["start_cycle"].tolist() == [0, 10, 12, 16]
    assert frame["producer"].tolist() == [pd.NA, 0, 0, 2]
    assert frame["interval_cycles"].tolist() == [pd.NA, 0, 2, 0]
    assert frame["layer"].isna().all()
    words = json.loads(frame["words"][0])
    assert words["src"]["memory"] == "dram" and words["dst"]["shape"] == [160]
    bare = archgen.commands(two_layers())
    assert bare["start_cycle"].isna().all() and bare["words"].tolist() == frame["words"].tolist()


def test_tiles_are_what_the_compiler_cut_and_cover_the_layer(program: Program) -> None:
    """The group of the first layer rolls over three tiles, the last one is cut by a loop of four
    that are alike; both cores have a share of the 32 rows."""
    frame = archgen.commands(program, archgen.load_arch(ARCH), expand=True)
    products = frame[frame["opcode"] == "matrix.conv"]
    for layer, kinds in (("first", ["first", "steady", "last"]), ("fourth", ["steady"] * 4)):
        own = products[products["layer"].str.startswith(layer)]
        assert own["kind"].tolist() == kinds * 2
        assert own["tile"].tolist() == list(map(str, range(len(kinds)))) * 2
        assert set(own["tiles"]) == {str(len(kinds))}
        assert sum(int(sizes.split("x")[2]) for sizes in own["sizes"]) == 32
    made = frame["interval_cycles"].dropna()
    assert len(made) and (made >= 0).all()


def test_loops_kept_say_what_turns_add() -> None:
    base = two_layers()
    (load, *rest) = base.cores[0]
    ring = replace(load.dst, address=Address(0, (), Ring(2, 512, 1, (("t", 1),))))
    moved = replace(load, src=replace(load.src, address=Address(8, (("t", 160),))), dst=ring)
    looped = replace(base, cores=((Loop("t", 3, (replace(moved, signals=()),)),),))
    row = archgen.commands(looped).iloc[0]
    assert (row["times"], row["loops"]) == (3, "t*3") and rest
    assert json.loads(row["steps"])["src"] == {"t": 160}
    assert json.loads(row["words"])["dst"]["address"] == 512
    turns = archgen.commands(looped, expand=True)
    words = [json.loads(text) for text in turns["words"]]
    assert [each["src"]["address"] for each in words] == [8, 168, 328]
    assert [each["dst"]["address"] for each in words] == [512, 0, 512]


def test_disasm_writes_loops_out_within_bounds(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "net.npu"
    archgen.save(path, program, archgen.load_arch(ARCH))
    arguments = ("disasm", path, "--level", "tiles", "-o", tmp_path / "net.csv")
    assert invoke(*arguments, "--expand", "1000").exit_code == 0
    found = pd.read_csv(tmp_path / "net.csv")
    assert len(found) == archgen.commands(program)["times"].sum() and set(found["times"]) == {1}
    assert "more than the limit of 10" in refused(*arguments, "--expand", "10")


def test_compile_writes_the_commands(net: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    assert invoke("compile", ARCH, "-m", net, "--effort", 0, "--commands", path).exit_code == 0
    found = pd.read_csv(path)
    assert {"first", "steady", "last"} & set(found["kind"])
    assert found["interval_cycles"].notna().any()


def test_the_example_writes_a_header_that_compiles(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, out = ROOT / "studies/09_commands_for_rtl.py", tmp_path / "rtl"
    monkeypatch.setattr(sys, "argv", ["09", ARCH, str(net), "--layer", "second", "--out", str(out)])
    runpy.run_path(str(script), run_name="__main__")
    rows, text = pd.read_csv(out / "commands.csv"), (out / "commands.h").read_text()
    assert text.count("static const int64_t WORDS_") == len(rows)
    assert f"#define COMMANDS {len(rows)}\n" in text
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        assert text.count("{") == text.count("}")
        return
    main = tmp_path / "main.c"
    main.write_text(
        '#include <stdio.h>\n#include "rtl/commands.h"\nint main(void) {\n'
        "    long words = 0;\n    for (int i = 0; i < COMMANDS; i++) words += commands[i].count;\n"
        '    printf("%d %ld %s %d", COMMANDS, words, TEXTS[0], OPCODE_MATRIX_CONV);\n'
        "    return 0;\n}\n"
    )
    built = [compiler, "-Wall", "-Wextra", "-Werror", str(main), "-o", str(tmp_path / "bench")]
    subprocess.run(built, check=True)
    said = subprocess.run([tmp_path / "bench"], check=True, capture_output=True, text=True).stdout
    count, words, opcode = said.split()
    assert int(count) == len(rows) and int(words) > len(rows)
    assert int(opcode) == archgen.codes(archgen.load_arch(ARCH))["opcode"]["matrix.conv"]


# Commands of a program for ranges of lengths: with terms in them, or as they are at one length.

GPT2 = "gpt2:layers=1,hidden=8,heads=2,vocabulary=10,positions=16"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder for ranges of two lengths."""
    path = tmp_path_factory.mktemp("lengths") / "gpt2.npu"
    more = ("--dim", "past=1..9", "--dim", "sequence=1..6", "--commands", path.with_suffix(".csv"))
    return compiled(GPT2, path, "stcp920", *more)


@pytest.fixture(scope="module")
def loaded(file: Path) -> Loaded:
    """What that file holds."""
    return archgen.load(file)


def test_open_lengths_are_terms_of_addresses_and_limits(loaded: Loaded) -> None:
    """The new key lies behind the cache, 4 values of 2 bytes for each token of it."""
    frame = archgen.commands(loaded.program)
    stores = frame[frame["control"].str.startswith("dst=dram[0x1788 + 8*past]")]
    assert json.loads(stores["steps"].iloc[0]) == {"dst": {"past": 8}}
    said = json.loads(stores["words"].iloc[0])["dst"]
    assert (said["address"], said["limits"][:16]) == (0x1788, "{2: 6 + sequence")


def test_commands_at_a_length_are_those_that_the_front_end_makes_then(loaded: Loaded) -> None:
    lengths = {"past": 4, "sequence": 1}
    there = specialize(loaded.program, lengths)
    frame = archgen.commands(loaded.program, loaded.arch, dims=lengths)
    assert frame["control"].tolist() == archgen.commands(there)["control"].tolist()
    assert not frame["control"].str.contains("past|sequence").any()
    assert frame["end_cycle"].max() <= archgen.simulate(there, loaded.arch).cycles
    with pytest.raises(LengthError, match=r"^past is 10, expected 1 .. 9; sequence is not given"):
        archgen.commands(loaded.program, dims={"past": 10})


def test_each_turn_is_one_of_the_longest_where_no_length_is_given(loaded: Loaded) -> None:
    every = archgen.commands(loaded.program, expand=True)
    longest = archgen.commands(loaded.program, dims={"past": 9, "sequence": 6}, expand=True)
    assert every["control"].tolist() == longest["control"].tolist()


def test_a_tile_has_its_number_where_none_of_its_kind_is_left_out(loaded: Loaded) -> None:
    """Of six tokens one is there, so most cores have nothing to do; at all six nothing lacks."""
    whole = archgen.commands(loaded.program, dims={"past": 9, "sequence": 6})
    open_ = archgen.commands(loaded.program)
    assert whole["tile"].tolist() == open_["tile"].tolist()
    short = archgen.commands(loaded.program, dims={"past": 4, "sequence": 1})
    unknown = short[short["layer"].notna() & short["tile"].isna()]
    keys = ["core", "engine", "layer", "tiles", "kinds", "opcode"]
    most, left = (frame.groupby(keys, dropna=False)["times"].sum() for frame in (open_, short))
    assert len(unknown)
    for key in unknown[keys].itertuples(index=False, name=None):
        assert left[key] != most.get(key, 0)


def test_disasm_takes_lengths(file: Path) -> None:
    at = ("--dim", "past=4", "--dim", "sequence=1")
    assert "register name=past low=1 high=9" in invoke("disasm", file).output
    for level in ("program", "tiles"):
        text = invoke("disasm", file, "--level", level, *at).output
        assert "copy" in text and "past +" not in text and "*past" not in text
    assert len(invoke("disasm", file, "--words", *at).output) > 1000
