"""Files of programs that were edited, damaged or meant for another machine: said in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from host_only import compiled, invoke, refused, small_model
from test_run import GROWING, growing

import archgen
from archgen.program_files import write
from simmodel.program.loadable import LoadableError

pytestmark = pytest.mark.usefixtures("own_cache")
TOKEN = np.ones((1, 4), np.float32)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program for a range of lengths, as `net.npu` and `net.asm`, and inputs."""
    folder = tmp_path_factory.mktemp("grown")
    net = growing(folder / "net.onnx")
    for name in ("net.npu", "net.asm"):
        compiled(net, folder / name, "stcp920", *GROWING)
    np.savez(folder / "x.npz", x=TOKEN, keys=np.ones((4, 4), np.float32))
    return folder


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("register name=past low=1 high=40", "input 'keys': dimension 0 has 9 positions at the"),
        ("register name=past low=1 high=8", "input 'keys': dimension 0 has 9 positions at the"),
        ("register name=past low=0 high=9", "expected 1 <= low <= high"),
        ("register name=other low=1 high=9", "counts 'past', and no register is called so"),
        ("", "it has limits, which only programs with registers have"),
    ],
)
def test_registers_of_an_edited_text_are_held_against_its_ports(
    grown: Path, line: str, said: str
) -> None:
    text = (grown / "net.asm").read_text()
    edited = grown / "edited.asm"
    edited.write_text(re.sub(r"(?m)^register name=past .*$", line, text))
    assert said in refused("run", edited, "--arch", "stcp920", "--input", grown / "x.npz")


@pytest.mark.parametrize("arguments", [("--level", "tiles"), ("--dim", "past=3"), ("--words",)])
def test_barriers_that_are_not_declared_end_no_command_in_a_traceback(
    grown: Path, arguments: Sequence[str]
) -> None:
    loaded = archgen.load(grown / "net.npu")
    assert loaded.program.barriers
    program = replace(loaded.program, barriers={})
    write(grown / "barriers.npu", program, loaded.arch, loaded.states)
    command = ("disasm", grown / "barriers.npu", *arguments)
    if arguments == ("--words",):  # what is packed is printed as it is
        assert invoke(*command).exit_code == 0
    else:
        assert "is not declared" in refused(*command)


def test_states_are_inputs_and_outputs_that_there_are(grown: Path) -> None:
    loaded, file = archgen.load(grown / "net.npu"), grown / "states.npu"
    write(file, loaded.program, loaded.arch, {"keys": "presents", "kyes": "present"})
    assert refused("run", file, "--input", grown / "x.npz").splitlines() == [
        f"{file}: states: there is no output 'presents'; did you mean 'present'?",
        f"{file}: states: there is no input 'kyes'; did you mean 'keys'?",
    ]


def test_nothing_is_saved_that_cannot_be_loaded(grown: Path) -> None:
    loaded = archgen.load(grown / "net.npu")
    target = grown / "saved.npu"
    with pytest.raises(LoadableError, match=r"^not written for mcu-npu: .* breaks \d+ rules"):
        archgen.save(target, loaded.program, archgen.load_arch("mcu-npu"))
    with pytest.raises(LoadableError, match="there is no output 'y2'; did you mean 'y'"):
        archgen.save(target, loaded.program, loaded.arch, {"keys": "y2"})
    assert not target.exists()


def test_a_broken_payload_is_said_with_its_file(tmp_path: Path) -> None:
    net, arch = small_model(tmp_path / "net.onnx"), archgen.load_arch("mcu-npu")
    program = archgen.compile_model(archgen.load_model(net), arch, effort=0)
    assert program.payloads
    broken = replace(program, payloads=tuple(b"\xff" + each for each in program.payloads))
    archgen.save(tmp_path / "net.npu", broken, arch)
    np.savez(tmp_path / "x.npz", x=np.ones((1, 8), np.float32))
    said = refused("run", tmp_path / "net.npu", "--input", tmp_path / "x.npz")
    assert said.startswith(f"{tmp_path / 'net.npu'}: a payload is no model for ONNX Runtime")


def test_text_for_another_machine_runs_with_a_warning_or_says_so(tmp_path: Path) -> None:
    text = compiled(small_model(tmp_path / "net.onnx"), tmp_path / "net.asm")
    np.savez(tmp_path / "x.npz", x=np.ones((1, 8), np.float32))
    text.write_text(text.read_text().replace('arch="mcu-npu"', "arch=other"))
    ran = invoke("run", text, "--arch", "mcu-npu", "--input", tmp_path / "x.npz")
    assert ran.exit_code == 0
    assert f"warning: {text}: the text is for other, it runs on mcu-npu\n" in ran.output
    found = refused("run", text, "--arch", "gemmini-16", "--input", tmp_path / "x.npz")
    assert found.startswith(f"{text}: on gemmini-16, but the text is for other: program ")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('constants "net.asm.npz"', "expected one line of constants, there is one before"),
        ("barrier step0 1", "expected a barrier that is not there yet, found 'step0'"),
    ],
)
def test_a_line_that_stands_twice_is_a_mistake(grown: Path, line: str, expected: str) -> None:
    text, twice = (grown / "net.asm").read_text(), grown / "twice.asm"
    head, core, tail = text.partition("core 0\n")
    twice.write_text(head + f"{line}\n" * 2 + core + tail)
    found = refused("run", twice, "--arch", "stcp920", "--input", grown / "x.npz")
    assert expected in found and str(twice) in found


def test_what_a_file_wants_is_listed_with_its_ranges(grown: Path) -> None:
    assert refused("run", grown / "net.npu") == (
        "--input: missing; expected an .npz file with x fp32[1, 4]; "
        "for past at least one of the states keys fp32[past 1..9, 4]\n"
    )


def test_files_for_outputs_are_looked_at_first(grown: Path) -> None:
    x, y = grown / "x.npz", grown / "y.npz"
    given = ("run", grown / "net.npu", "--input", x, "--input", x)
    twice = refused(*given, "-o", y, "-o", grown / "." / "y.npz")
    assert twice == f"--output {y}: 2 times, expected a file for each inference\n"
    nowhere = grown / "none" / "y.npz"
    said = refused(*given, "-o", nowhere)
    assert said == f"--output {nowhere}: there is no folder {nowhere.parent}\n"
    assert not nowhere.parent.exists()


def test_loadables_are_told_in_any_case_and_arrays_in_any_order_of_bytes(tmp_path: Path) -> None:
    file = compiled(small_model(tmp_path / "net.onnx"), tmp_path / "NET.NPU")
    assert archgen.load(file).program.name == "net"
    np.savez(tmp_path / "x.npz", x=np.ones((1, 8), ">f4"))
    ran = invoke("run", file, "--input", tmp_path / "x.npz")
    assert ran.exit_code == 0, ran.output
