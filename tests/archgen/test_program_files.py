"""Loadables, assembly and arrays in files as users meet them: written by `compile`, run alone, and
refused in words where they were edited, damaged or meant for another machine."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from host_only import compiled, invoke, refused, small_model
from numpy.lib import format as npy
from role_nets import STREAMING, net, saved
from small_run import two_layers

import archgen
from archgen.check.quantize import quantize
from archgen.models.errors import ModelError
from archgen.models.load import arrays_in, open_model
from archgen.program_files import (
    AssemblyError,
    constants_beside,
    read,
    read_assembly,
    write,
    write_assembly,
)
from simmodel.program.assembly import print_program
from simmodel.program.loadable import LoadableError
from simmodel.program.program import Constant, Program
from simmodel.program.sizes import specialize
from simmodel.verify import verify

pytestmark = pytest.mark.usefixtures("own_cache")


GROWING = ("--dtype", "fp16", "--dim", "past=1..9", "--role", "keys=state::present")
"""A program for a range of lengths, of the network that grows."""


def test_a_file_runs_alone_wherever_its_ports_are(tmp_path: Path) -> None:
    x, path = (
        np.random.default_rng(1).standard_normal((2, 8), "f4"),
        small_model(tmp_path / "net.onnx"),
    )
    file = compiled(path, tmp_path / "net.npu", "mcu-npu", "-b", 2)
    path.unlink()
    np.savez(tmp_path / "x.npz", x=x)
    ran = invoke("run", file, "--input", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--simulate")
    assert ran.exit_code == 0, ran.output
    loaded = archgen.load(file)
    cycles = archgen.simulate(loaded.program, loaded.arch).cycles
    assert f"{tmp_path / 'y.npz'}: y fp32[2,16]\n{cycles} cycles" in ran.output
    whole = ("run", file, "--input", tmp_path / "x.npz", "--simulate", "--no-skip")
    assert f"{cycles} cycles" in invoke(*whole).output
    with np.load(tmp_path / "y.npz") as stored:
        expected = archgen.execute(loaded.program, {"x": x}, loaded.arch)["y"]
        assert (stored["y"] == expected).all() and expected.any()
    assert invoke("disasm", file).output == print_program(loaded.program)
    words = [line.split(" // ") for line in invoke("disasm", file, "--words").output.splitlines()]
    stores = [hexadecimal for hexadecimal, *text in words if text and text[0].startswith("copy ")]
    assert stores and all(len(word) == 8 for each in stores for word in each.split())

    numbers = [line.split()[1:] for line in invoke("disasm", file, "--words").output.splitlines()]
    codes = archgen.codes(loaded.arch)
    for field, name in (("opcode", "copy"), ("engine", "store"), ("*.dtype", "int8")):
        assert [field, str(codes[field][name]), name] in numbers

    again = ("run", file, "--input", tmp_path / "x.npz", "-o", tmp_path / "z.npz")
    assert invoke(*again, "--place", "x=0x20000", "--place", "y=0x18000").exit_code == 0
    with np.load(tmp_path / "z.npz") as placed:
        assert (placed["y"] == expected).all()
    rows = invoke("disasm", file, "--level", "ports", "--place", "x=0x20000").output.splitlines()
    assert rows[1].split() == ["x", "dram", "0x20000", "64"] and rows[2].split()[0] == "y"


def test_a_program_knows_its_batch_in_every_form(tmp_path: Path) -> None:
    path, arch = small_model(tmp_path / "net.onnx"), archgen.load_arch("mcu-npu")
    made = archgen.compile_model(archgen.load_model(path, batch=4), arch, effort=0)
    archgen.save(tmp_path / "saved.npu", made, arch)
    for file in ("net.npu", "net.asm"):
        compiled(path, tmp_path / file, "mcu-npu", "-b", 4)
    ranged_file = compiled(path, tmp_path / "range.npu", "mcu-npu", "--dim", "n=1..4")
    ranged = archgen.load(ranged_file).program
    programs = [
        made,
        *(archgen.load(tmp_path / file).program for file in ("saved.npu", "net.npu")),
        archgen.read_assembly(tmp_path / "net.asm"),
        specialize(ranged, {"n": 4}),
    ]
    for program in programs:
        metrics = archgen.measure(archgen.simulate(program, arch), program, arch)
        assert metrics.throughput == pytest.approx(4e3 / metrics.latency_ms)
    assert specialize(ranged, {"n": 3}).batch == 3


def test_places_and_inputs_that_do_not_fit_are_said(tmp_path: Path) -> None:
    x, path = (
        np.random.default_rng(1).standard_normal((2, 8), "f4"),
        small_model(tmp_path / "net.onnx"),
    )
    file = compiled(path, tmp_path / "net.npu", "mcu-npu", "-b", 2)
    np.savez(tmp_path / "x.npz", x=x)
    assert "--input: missing; expected an .npz file with x fp32[2,8]\n" in refused("run", file)
    again = ("run", file, "--input", tmp_path / "x.npz", "-o", tmp_path / "z.npz")
    far = refused(*again, "--place", "x=0x7fffffff0")
    assert "with its ports so placed, " in far and "of dram, which has" in far
    over = refused(*again, "--place", "x=0")
    assert "x: bytes 0x0 .. 0x40 are those of constant" in over
    odd = refused(*again, "--place", "x=0x20002")
    assert "x: expected a multiple of 4, the bytes of an element" in odd
    twice = invoke(*again, "--place", "x=0x20000", "--place", "x=0x30000")
    assert "--place" in twice.output and "expected one address" in twice.output

    np.save(tmp_path / "one.npy", x)
    (tmp_path / "text.npz").write_text("1 2 3")
    for name, reason in (("one.npy", "one array (.npy), expected arrays by name"),
                         ("text.npz", "not an .npz file of arrays\n")):  # fmt: skip
        said = refused("run", file, "--input", tmp_path / name)
        assert f"--input {tmp_path / name}: {reason}" in said
    none = refused("run", tmp_path / "x.npz", "--input", tmp_path / "x.npz")
    assert "x.npz: is neither a loadable nor text of assembly" in none
    np.savez(tmp_path / "bad.npz", y=x, x=x.astype("f8"))
    wrong = refused("run", file, "--input", tmp_path / "bad.npz")
    assert "input 'x': expected fp32[2,8], found fp64[2,8]" in wrong
    assert "input 'y': there is none of this name; there are x" in wrong
    other = refused("run", file, "--input", tmp_path / "x.npz", "--arch", "soma-edge")
    assert "compiled for mcu-npu, fingerprint" in other
    assert invoke("run", file, "--input", tmp_path / "x.npz", "--arch", "mcu-npu").exit_code == 0
    file.write_bytes(file.read_bytes()[:-1])
    cut = refused("run", file, "--input", tmp_path / "x.npz")
    assert f"{file}: damaged or cut off: another checksum" in cut


def test_assembly_runs_on_the_machine_that_is_named(tmp_path: Path) -> None:
    net, files = small_model(tmp_path / "net.onnx"), (tmp_path / "net.npu", tmp_path / "net.asm")
    np.savez(tmp_path / "x.npz", x=np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8))
    said_of = []
    for file in files:
        compiled(net, file)
        given = ("run", file, "--input", tmp_path / "x.npz", "--arch", "mcu-npu", "--simulate")
        ran = invoke(*given, "-o", tmp_path / f"{file.suffix}.npz")
        assert ran.exit_code == 0, ran.output
        said_of.append(ran.output.splitlines()[-1])
    assert said_of[0] == said_of[1] and "cycles" in said_of[0]
    with np.load(tmp_path / ".npu.npz") as one, np.load(tmp_path / ".asm.npz") as other:
        assert (one["y"] == other["y"]).all() and one["y"].any()
    bare = refused("run", files[1], "--input", tmp_path / "x.npz")
    assert "assembly has no machine but its name, mcu-npu: say --arch mcu-npu" in bare
    files[1].write_text(files[1].read_text().replace(" load ", " lode "))
    assert f"{files[1]}: on mcu-npu: " in refused(*given)


def test_every_machine_reads_back_from_a_file(tmp_path: Path) -> None:
    program, file = (
        Program("none", "none", ((),), ({},), {}, (), (), (), (), ()),
        tmp_path / "n.npu",
    )
    for path in sorted((Path(__file__).parents[2] / "archs").glob("*.yaml")):
        arch = archgen.load_arch(path)
        archgen.save(file, program, arch)
        assert read(file).arch == arch


def test_states_go_from_one_inference_to_the_next(tmp_path: Path) -> None:
    arch = archgen.load_arch("mcu-npu")
    model = archgen.load_model(saved(net(STREAMING), tmp_path))
    program = archgen.compile_model(model, arch, effort=0, host=True)
    assert archgen.states(model) == {"conv_cache": "conv_cache_out"}
    archgen.save(tmp_path / "net.npu", program, arch, archgen.states(model))
    frames = np.random.default_rng(2).standard_normal((2, 1, 4, 10)).astype("f4")
    given: list[object] = []
    for number, frame in enumerate(frames):
        np.savez(tmp_path / f"{number}.npz", frame=frame)
        given += ["--input", tmp_path / f"{number}.npz"]
    ran = invoke("run", tmp_path / "net.npu", *given, "-o", tmp_path / "y.npz")
    assert ran.exit_code == 0, ran.output
    cache = np.zeros((2, 1, 4, 2), np.float32)
    for frame in frames:
        made = archgen.execute(program, {"frame": frame, "conv_cache": cache}, arch)
        cache = made["conv_cache_out"]
    with np.load(tmp_path / "y.npz") as stored:
        assert (stored["y"] == made["y"]).all() and cache.any()


def growing(path: Path) -> Path:
    """A query that looks at keys of earlier steps and its own, which are handed on."""
    text = """
        <ir_version: 9, opset_import: ["" : 20]>
        decoder (float[1,4] x, float[past,4] keys) => (float[1,4] y, float[total,4] present)
        <float[4,4] w = {1,0,0,0.5, 0,1,0.5,0, 0,-0.5,1,0, 0.25,0,0,1}> {
            k = MatMul(x, w)
            present = Concat <axis = 0> (keys, k)
            turned = Transpose <perm = [1, 0]> (present)
            scores = MatMul(x, turned)
            p = Softmax <axis = 1> (scores)
            y = MatMul(p, present)
        }"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_a_position_moves_through_one_file(tmp_path: Path) -> None:
    path = growing(tmp_path / "net.onnx")
    file = compiled(path, tmp_path / "net.npu", "stcp920", *GROWING)
    tokens = np.random.default_rng(3).standard_normal((5, 1, 4)).astype("f4")
    keys = np.ones((4, 4), np.float32)
    np.savez(tmp_path / "0.npz", x=tokens[0], keys=keys)
    for number, token in enumerate(tokens[1:], 1):
        np.savez(tmp_path / f"{number}.npz", x=token)
    given = [word for n in range(5) for word in ("--input", tmp_path / f"{n}.npz")]
    ran = invoke("run", file, *given, "-o", tmp_path / "y.npz")
    assert ran.exit_code == 0, ran.output
    session = onnxruntime.InferenceSession(str(path))
    for token in tokens:
        y, keys = session.run(None, {"x": token, "keys": keys})
    with np.load(tmp_path / "y.npz") as stored:
        np.testing.assert_allclose(stored["y"], y, atol=0.01)
        np.testing.assert_allclose(stored["present"], keys, atol=0.01)
    np.savez(tmp_path / "10.npz", x=tokens[0], keys=np.ones((10, 4), np.float32))
    long = refused("run", file, "--input", tmp_path / "10.npz")
    assert f"--input {tmp_path / '10.npz'}: past is 10, expected 1 .. 9" in long
    np.savez(tmp_path / "flat.npz", x=tokens[0], keys=np.ones(4, np.float32))
    flat = refused("run", file, "--input", tmp_path / "flat.npz")
    assert "keys has shape [4], expected 2 dimensions" in flat


def test_a_machine_whose_words_do_not_hold_the_program_is_told_all_fields(tmp_path: Path) -> None:
    net, narrow = small_model(tmp_path / "net.onnx"), tmp_path / "narrow.yaml"
    narrow.write_text(
        "extends: mcu-npu\nname: narrow\nencoding:\n  widths: {'*.base': 3, '*.shape.count': 1}\n"
    )
    made = invoke("compile", narrow, "-m", net, "--effort", 0, "-o", tmp_path / "net.npu")
    assert made.exit_code == 1 and not (tmp_path / "net.npu").exists()
    lines = made.output.splitlines()
    assert lines[0] == "no program: the encoding of narrow does not hold it"
    assert any(line.startswith("  copy src.address.base: ") for line in lines)
    assert any(line.startswith("  copy src.shape.count: 2 in 1 bits") for line in lines)


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
        ((2**40, 2**40), "<f4", r"the shape \[1099511627776, 1099511627776\] of 'x.npy'"),
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
