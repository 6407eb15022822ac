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
from click.testing import CliRunner
from conv_net import conv_net
from small_run import machine, two_layers

import archgen
from archgen.cli.main import cli
from archgen.scheduling import OptionError
from simmodel.isa import Loop
from simmodel.isa.region import Address, Ring
from simmodel.program.program import Program

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
    arguments = ["disasm", str(path), "--level", "tiles", "-o", str(tmp_path / "net.csv")]
    assert CliRunner().invoke(cli, [*arguments, "--expand", "1000"]).exit_code == 0
    found = pd.read_csv(tmp_path / "net.csv")
    assert len(found) == archgen.commands(program)["times"].sum() and set(found["times"]) == {1}
    refused = CliRunner().invoke(cli, [*arguments, "--expand", "10"])
    assert isinstance(refused.exception, OptionError)
    assert "more than the limit of 10: keep the loops" in str(refused.exception)


def test_compile_writes_the_commands(net: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    arguments = ["compile", ARCH, "-m", str(net), "--effort", "0", "--commands", str(path)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    found = pd.read_csv(path)
    assert {"first", "steady", "last"} & set(found["kind"]) and found[
        "interval_cycles"
    ].notna().any()


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
