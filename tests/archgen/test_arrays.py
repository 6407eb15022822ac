"""Arrays in files: what they are is known before any number is read, and refused there."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from host_only import compiled, invoke, refused, small_model
from numpy.lib import format as npy
from small_run import two_layers

import archgen
from archgen.check.quantize import quantize
from archgen.models.errors import ModelError
from archgen.models.load import arrays_in, open_model
from archgen.program_files import AssemblyError, constants_beside, read_assembly, write_assembly
from simmodel.program.assembly import print_program
from simmodel.program.program import Constant, Program
from simmodel.verify import verify

pytestmark = pytest.mark.usefixtures("own_cache")


def hollow(path: Path, shape: tuple[int, ...], dtype: str = "<f4") -> Path:
    """A file with an array that says what it is and has no numbers: who reads one fails."""
    header = BytesIO()
    said = {"descr": dtype, "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(header, said)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    return path


def test_shapes_and_types_are_known_without_a_number_read(tmp_path: Path) -> None:
    stored = arrays_in(hollow(tmp_path / "x.npz", (40_000, 40_000, 3), ">f8"), "given")
    assert list(stored) == ["x"] and len(stored) == 1
    outline = stored.outlines["x"]
    assert outline.shape == (40_000, 40_000, 3) and outline.dtype == np.dtype("=f8")
    with pytest.raises(ModelError, match=r"given .*few\.npz: not an \.npz file of arrays: "):
        arrays_in(hollow(tmp_path / "few.npz", (2, 8)), "given")["x"]


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        (
            (2**40, 2**40),
            "<f4",
            r"the shape \[1099511627776, 1099511627776\] of 'x.npy'",
        ),
        ((-1, 8), "<f4", r"no array has the shape \[-1, 8\]"),
        ((2, 8), "|O", "'x.npy' holds objects"),
    ],
)
def test_what_can_be_no_array_is_said(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        arrays_in(hollow(tmp_path / "x.npz", shape, dtype), "given")
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("readme.txt", b"\x93NUMPY\x01\x00")
    with pytest.raises(ModelError, match=r"'readme\.txt' is no array"):
        arrays_in(tmp_path / "text.npz", "given")


def test_an_input_of_another_shape_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = compiled(small_model(tmp_path / "net.onnx"), tmp_path / "net.npu")
    given = hollow(tmp_path / "x.npz", (40_000, 40_000))
    said = f"{given}: input 'x': expected fp32[1,8], found fp32[40000,40000]\n"
    assert refused("run", file, "--input", given) == said


def test_samples_of_another_shape_are_refused_before_they_are_read(tmp_path: Path) -> None:
    source = open_model(small_model(tmp_path / "net.onnx"))
    samples = arrays_in(hollow(tmp_path / "x.npz", (40_000, 40_000)), "calibration")
    with pytest.raises(ModelError, match=r"'x' has shape \[40000, 40000\], which is no number of"):
        quantize(source, samples, tmp_path)


def test_outputs_go_by_any_name_that_stays_in_the_archive(tmp_path: Path) -> None:
    names = {"y": "../../../y", "file": "file"}
    for name, output in names.items():
        net = small_model(tmp_path / f"{name}.onnx", output=output)
        compiled(net, tmp_path / f"{name}.npu")
    np.savez(tmp_path / "x.npz", x=np.ones((1, 8), np.float32))
    run = ("--input", tmp_path / "x.npz", "-o", tmp_path / "out.npz")
    away = refused("run", tmp_path / "y.npu", *run)
    assert "do not lead out of the folder of an archive, got '../../../y'" in away
    assert not (tmp_path / "out.npz").exists()
    assert invoke("run", tmp_path / "file.npu", *run).exit_code == 0
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["file"].shape == (1, 16)


# Assembly in files: text and constants go together, and what is missing is said.

NAMES = ("file", "a/../b", 'quoted "\0"', "w.npy", "w")


def with_constants(offset: int = 0) -> Program:
    """A program whose constants have names that files, archives and calls have other uses for."""
    constants = (
        Constant(name, 1024 + 64 * place, np.arange(place + offset, 8, dtype=np.int8), 4)
        for place, name in enumerate(NAMES)
    )
    return replace(two_layers(), constants=tuple(constants))


def test_a_compiled_program_comes_back_by_the_path_of_its_text(tmp_path: Path) -> None:
    net = small_model(tmp_path / "small.onnx")
    path = compiled(net, tmp_path / "small.asm")
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
