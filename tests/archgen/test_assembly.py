"""Assembly in files: text and constants go together, and what is missing is said."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from host_only import small_model
from small_run import two_layers

import archgen
from archgen.cli.main import cli
from archgen.program_files import AssemblyError, constants_beside, read_assembly, write_assembly
from simmodel.program.assembly import print_program
from simmodel.program.program import Constant, Program
from simmodel.verify import verify

NAMES = ("file", "a/../b", 'quoted "\0"', "w.npy", "w")


def with_constants(offset: int = 0) -> Program:
    """A program whose constants have names that files, archives and calls have other uses for."""
    constants = (
        Constant(name, 1024 + 64 * place, np.arange(place + offset, 8, dtype=np.int8), 4)
        for place, name in enumerate(NAMES)
    )
    return replace(two_layers(), constants=tuple(constants))


def test_a_compiled_program_comes_back_by_the_path_of_its_text(tmp_path: Path) -> None:
    net, path = small_model(tmp_path / "small.onnx"), tmp_path / "small.asm"
    arguments = ["compile", "mcu-npu", "-m", str(net), "--effort", "0", "-o", str(path)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    arch, program = archgen.load_arch("mcu-npu"), archgen.read_assembly(path)
    verify(program, arch)
    made = archgen.compile_model(archgen.load_model(net), arch, effort=0)
    inputs = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)}
    for name, values in archgen.execute(made, inputs, arch).items():
        np.testing.assert_array_equal(archgen.execute(program, inputs, arch)[name], values)
    assert archgen.simulate(program, arch).cycles == archgen.simulate(made, arch).cycles


def test_constants_of_any_name_survive_and_files_are_the_same_each_time(tmp_path: Path) -> None:
    path = tmp_path / "net.asm"
    write_assembly(with_constants(), path)
    again = read_assembly(path)
    assert [constant.name for constant in again.constants] == list(NAMES)
    assert print_program(again, "net.asm.npz") == path.read_text()
    with zipfile.ZipFile(constants_beside(path)) as archive:
        assert not [name for name in archive.namelist() if ".." in name.split("/")]
    first = constants_beside(path).read_bytes()
    write_assembly(again, path)
    assert constants_beside(path).read_bytes() == first


def test_a_text_without_its_constants_says_what_writes_both(tmp_path: Path) -> None:
    path = tmp_path / "net.asm"
    path.write_text(print_program(with_constants()))
    with pytest.raises(AssemblyError, match=r"no line `constants .*compile -o FILE` writes both"):
        read_assembly(path)
