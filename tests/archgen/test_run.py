"""Loadables as users meet them: written by `compile`, run alone, and refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from host_only import compiled, invoke, refused, small_model
from role_nets import STREAMING, net, saved

import archgen
from archgen.program_files import read
from simmodel.program.assembly import print_program
from simmodel.program.program import Program
from simmodel.program.sizes import specialize

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
