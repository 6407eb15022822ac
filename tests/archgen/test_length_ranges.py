"""A network for all lengths of a range: opened, quantized and compiled as one."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import model
from onnx import helper, numpy_helper

import archgen
from archgen.check.quantize import with_scales_of
from archgen.check.reference import run_reference, sample_inputs
from archgen.models.errors import ModelError
from archgen.models.extents import Extents, SizeRange, extents
from archgen.models.load import open_model
from archgen.models.source_family import open_family
from archgen.outcomes.rows import host_calls
from archgen.studies.plan import load_study
from archgen.studies.prepare import PreparedSymbolicModel, prepare, prepare_symbolic_model

GPT2 = "gpt2:layers=1,hidden=8,heads=2,vocabulary=10,positions=16,sequence=1"


def product(path: Path) -> Path:
    """`y = relu(x) w` over a free number of rows."""
    weight = np.diag(np.arange(1, 5)).astype("f4")
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    onnx.save(model(nodes, {"x": ["rows", 4]}, {"y": ["rows", 4]}, {"w": weight}), path)
    return path


def test_an_int8_program_is_as_good_for_one_row_as_for_many(tmp_path: Path) -> None:
    arch = archgen.load_arch("stcp920")
    family = archgen.load_family(mean(tmp_path / "net.onnx"), dims={"rows": (1, 64)})
    program = archgen.compile_model(family, arch, dtype="int8", effort=0)
    x = np.array([[1.1, -0.9, 0.8, -0.5]], "f4")
    found = archgen.execute(program, {"x": x}, arch)["y"]
    np.testing.assert_allclose(found, x, atol=0.05)


@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_one_program_computes_any_length_of_its_range(tmp_path: Path, dtype: str) -> None:
    arch = archgen.load_arch("stcp920")
    family = archgen.load_family(product(tmp_path / "net.onnx"), dims={"rows": (1, 9)})
    program = archgen.compile_model(family, arch, dtype=dtype, effort=0)
    x = np.linspace(-2, 2, 5 * 4, dtype="f4").reshape(5, 4)
    made = archgen.execute(program, {"x": x}, arch)["y"]
    assert made.shape == (5, 4)
    np.testing.assert_allclose(made, np.maximum(x, 0) * np.arange(1, 5), atol=0.1)


def test_scales_of_any_length_are_those_of_the_edge(tmp_path: Path) -> None:
    source = open_family(product(tmp_path / "net.onnx"), None, {}, {"rows": SizeRange(1, 9)}, {})
    family = prepare_symbolic_model(source, "int8")
    edge, other = (
        {t.name: numpy_helper.to_array(t).tolist() for t in each.proto.graph.initializer}
        for each in (family.edge, family.at({"rows": 2}))
    )
    assert "r_scale" in other
    assert other == edge


def mean(path: Path, width: int = 4) -> Path:
    """`y = mean(x) w` over a free number of rows: of few normal numbers the mean is large."""
    weights = {"w": np.eye(width, dtype="f4"), "axes": np.array([0])}
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"]),
        helper.make_node("MatMul", ["m", "w"], ["y"]),
    ]
    onnx.save(model(nodes, {"x": ["rows", width]}, {"y": [1, width]}, weights, opset=18), path)
    return path


def int8_error(family: PreparedSymbolicModel, rows: int) -> float:
    """Of the values, as a share of them."""
    source, made = (each.at({"rows": rows}).proto for each in (family.source, family))
    sets = [sample_inputs(source, seed) for seed in range(100, 110)]
    wanted, found = (
        np.array([run_reference(proto, inputs)["y"] for inputs in sets]) for proto in (source, made)
    )
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def test_scales_of_a_range_suit_all_its_lengths(tmp_path: Path) -> None:
    """The range of a mean shrinks with the rows: scales of the most rows cut off that of few."""
    source = open_family(mean(tmp_path / "net.onnx", 32), None, {}, {"rows": SizeRange(1, 64)}, {})
    made = prepare_symbolic_model(source, "int8")
    at_the_edge = PreparedSymbolicModel(source, "int8", prepare(source.edge, "int8"))
    assert "4 seeded random samples, also at rows 1 and at rows 8" in made.edge.note
    assert max(int8_error(made, rows) for rows in (1, 2, 8)) < 0.05
    assert min(int8_error(at_the_edge, rows) for rows in (1, 2)) > 0.3
    assert made.edge.key != at_the_edge.edge.key


def test_given_samples_are_cut_to_the_length(tmp_path: Path) -> None:
    """Only the first row of both samples is large, and only alone its mean is."""
    samples = np.concatenate([np.full((2, 1, 4), 50.0), np.zeros((2, 8, 4))], axis=1)
    source = open_family(mean(tmp_path / "net.onnx"), None, {}, {"rows": SizeRange(1, 9)}, {})
    made = prepare_symbolic_model(source, "int8", {"x": samples})
    scales = {t.name: t for t in made.edge.proto.graph.initializer}
    assert numpy_helper.to_array(scales["m_scale"]) == pytest.approx(50 / 255)
    assert "on 2 given samples, also at rows 1 and at rows 3" in made.edge.note


def test_a_length_at_which_there_is_no_network_is_named(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="three", kernel_shape=[3])
    shapes, net = ({"x": [1, 2, "rows"]}, {"y": [1, 4, "windows"]}), tmp_path / "net.onnx"
    onnx.save(model([node], *shapes, {"w": np.ones((4, 2, 3), "f4")}), net)
    source = open_family(net, None, {}, {"rows": SizeRange(1, 9)}, {})
    with pytest.raises(ModelError, match=r"^g at rows 1: ONNX Runtime cannot run node 'three'"):
        prepare_symbolic_model(source, "int8")


def test_a_constant_with_other_numbers_keeps_its_own_scale() -> None:
    def net(values: list[float]) -> onnx.ModelProto:
        scale = max(values) / 127
        steps = np.round(np.array(values) / scale).astype(np.int8)
        weights = {"c": steps, "c_scale": np.float32(scale), "c_zero": np.int8(0)}
        node = helper.make_node("DequantizeLinear", [*weights], ["y"])
        return model([node], {}, {}, weights)

    edge = net([1.0, 2.0, 8.0])
    begins, differs = net([1.0, 2.0]), net([5.0, 2.0])
    cut = numpy_helper.to_array(with_scales_of(edge, begins).graph.initializer[0])
    assert cut.tolist() == [16, 32]
    assert with_scales_of(edge, differs) == differs


def test_what_follows_from_a_length_is_known_at_each() -> None:
    family = open_family(GPT2, None, {}, {"past": SizeRange(1, 12)}, {})
    table = next(t for t in family.edge.proto.graph.initializer if t.name == "wpe.weight")
    rows = numpy_helper.to_array(table)
    found = family.constants(["wpe", "wpe.weight", "embedded"], {"past": 3})
    np.testing.assert_array_equal(found["wpe"], rows[np.newaxis, 3:4])
    np.testing.assert_array_equal(found["wpe.weight"], rows)
    assert "embedded" not in found


def test_dimensions_of_a_zoo_network_are_its_options() -> None:
    opened = open_model("dlrm:rows=9,tables=2", dims={"batch": 3})
    assert opened.batch == 3
    with pytest.raises(ModelError, match="--dim rows is another one than rows=9"):
        open_model("dlrm:rows=9,tables=2", dims={"rows": 3})
    with pytest.raises(ModelError, match=r"--dim sequence=1\.\.3: .* has no such free dimension"):
        open_family("dlrm:rows=9", None, {}, {"sequence": SizeRange(1, 3)}, {})
    with pytest.raises(ModelError) as found:
        open_model("gpt2", dims={"pasts": 3, "sequenc": 1})
    assert str(found.value).splitlines() == [
        f"--dim {asked}: gpt2 has no such free dimension; did you mean {meant!r}? (free: batch, "
        "heads, hidden, layers, past, positions, sequence, vocabulary)"
        for asked, meant in (("pasts=3", "past"), ("sequenc=1", "sequence"))
    ]
    with pytest.raises(ModelError, match="over its 16 positions"):
        open_family(GPT2, None, {}, {"past": SizeRange(1, 99)}, {})


def test_ranges_are_read() -> None:
    assert extents("1..8, 16", ranges=True) == Extents((16,), (SizeRange(1, 8),))
    for wrong in ("0..8", "8..1", "1..", "1...8", "1..8"):
        with pytest.raises(ValueError, match="expected a size such as 128"):
            extents(wrong, ranges=wrong != "1..8")
    with pytest.raises(ValueError, match=r"a rising range from 1 on such as 1\.\.8,1\.\.3$"):
        extents("8..1,0..3", ranges=True)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=4))
def test_ranges_are_taken_where_each_two_are_apart_or_one_within_the_other(
    spans: list[tuple[int, int]],
) -> None:
    held = [set(range(low, low + more + 1)) for low, more in spans]
    good = all(not a & b or a <= b or b <= a for a in held for b in held)
    with nullcontext() if good else pytest.raises(ValueError, match="overlap"):
        extents(",".join(f"{low}..{low + more}" for low, more in spans), ranges=True)


@pytest.mark.parametrize("arch", ["mcu-npu", "gemmini-16"])
def test_a_decoder_that_the_host_normalizes_has_one_program_from_a_single_token_on(
    arch: str,
) -> None:
    """At 2 tokens a bound of the positions equals the exponent of the norm."""
    spec = "llama:layers=1,hidden=16,heads=2,groups=1,wide=16"
    family = archgen.load_family(spec, dims={"sequence": (1, 4)})
    program = archgen.compile_model(family, archgen.load_arch(arch), dtype="int8", effort=0)
    assert [(r.name, r.low, r.high) for r in program.registers] == [("sequence", 1, 4)]
    assert host_calls(program)


def test_a_study_runs_one_program_of_a_range_at_several_sizes(tmp_path: Path) -> None:
    net = product(tmp_path / "net.onnx")
    found = archgen.study(
        "stcp920", net, dims={"rows": "3..9, 10..10"}, effort=0, plots=False, out=tmp_path / "out"
    ).frame
    assert found["dim.rows"].tolist() == [3, 4, 8, 9, 10]
    assert found["bucket.rows"].tolist() == ["3..9"] * 4 + ["10..10"]
    assert found["verified"].all()
    cycles = found["latency_cycles"].tolist()
    assert sorted(cycles[:4]) == cycles[:4]


def test_a_study_says_how_far_int8_is_off_at_each_length(tmp_path: Path) -> None:
    net = mean(tmp_path / "net.onnx", 32)
    asked = {"dims": {"rows": "1..8"}, "dtype": "int8", "effort": 0, "plots": False}
    found = archgen.study("stcp920", net, out=tmp_path / "out", **asked).frame
    source = open_family(net, None, {}, {"rows": SizeRange(1, 8)}, {})
    inputs = [sample_inputs(source.at({"rows": rows}).proto)["x"] for rows in (1, 2, 4, 8)]
    assert found["dim.rows"].tolist() == [1, 2, 4, 8]
    assert ((found["quantization_error"] > 0) & (found["quantization_error"] < 0.05)).all()
    steps = [np.linalg.norm(x.mean(0)) for x in inputs]
    assert np.argmax(found["quantization_error"]) == np.argmin(steps)


@pytest.mark.parametrize(
    ("net", "dims", "points"),
    [
        ("llama:sequence=1,layers=1,hidden=16,heads=2,groups=1,wide=16", {"past": "1..4"}, 3),
        ("moe:hidden=16,wide=16,experts=4,active=2", {"batch": "1..2", "sequence": "1..2"}, 4),
    ],
    ids=["a cache that grows", "gates over experts"],
)
def test_decoders_are_verified_at_every_size(
    tmp_path: Path, net: str, dims: dict[str, str], points: int
) -> None:
    out = tmp_path / "out"
    found = archgen.study("stcp920", net, dims=dims, effort=0, plots=False, out=out).frame
    assert len(found) == points and found["verified"].all()


def test_ranges_stand_in_study_files_too(tmp_path: Path) -> None:
    product(tmp_path / "net.onnx")
    path = tmp_path / "s.yaml"
    path.write_text("archs: mcu-npu\nmodels: [{model: net.onnx, dims: {rows: 1..4}}]\n")
    loads = load_study(path).workloads
    assert [load.dims for load in loads] == [(("rows", n),) for n in (1, 2, 4)]
    assert {load.ranges for load in loads} == {(("rows", SizeRange(1, 4)),)}
