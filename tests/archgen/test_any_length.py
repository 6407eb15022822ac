"""Networks whose lengths are open, at random lengths, beside what ONNX Runtime computes there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from networks import model
from onnx import helper, numpy_helper
from role_nets import net, saved, text

import archgen
from archgen.check.quantize import with_scales_of
from archgen.check.reference import run_reference, sample_inputs
from archgen.models.errors import ModelError
from archgen.models.extents import Extents, SizeRange, extents
from archgen.models.load import open_model
from archgen.models.source_family import open_family
from archgen.outcomes.points import Point, Row
from archgen.outcomes.rows import host_calls
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.studies.plan import load_study
from archgen.studies.prepare import PreparedSymbolicModel, prepare, prepare_symbolic_model
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, Array, Compiled, Request, compile_request

PIECES = "gpt2:layers=1,hidden=8,heads=2,vocabulary=10,positions=16"
LLAMA = "llama:sequence=1,layers=1,hidden=16,heads=2,groups=1,wide=16"


@cache
def bench(model: str, arch: str) -> Workbench:
    """A bench of its own for each network and machine: it keeps the program for a range."""
    del model, arch
    return Workbench(STANDARD)


def row_of(
    model: str, arch: str, dtype: str, dims: Mapping[str, int],
    workbench: Workbench | None = None, **most: SizeRange,
) -> Row:  # fmt: skip
    """What a study says of lengths of a network, whose program is for ranges of them."""
    point = Point(
        key="", arch=load_arch(arch), model=model, batch=dims.get("batch", 1), dtype=dtype,
        dims=tuple(dims.items()), ranges=tuple(most.items()), scheduling=Scheduling(effort=0),
    )  # fmt: skip
    return (workbench or bench(model, arch)).run(point).row


def check(model: str, arch: str, dtype: str, dims: Mapping[str, int], **most: SizeRange) -> None:
    """That a program for ranges computes right at one length of each."""
    row = row_of(model, arch, dtype, dims, **most)
    assert row.get("verified") is True, row


def file_of(name: str, folder: Path) -> str:
    """The file of a network of `nets`."""
    return str(saved(net(text(name)), folder, name))


def spans(most: Mapping[str, int]) -> dict[str, SizeRange]:
    return {dim: SizeRange(1, last) for dim, last in most.items()}


LLAMAS = "llama:layers=1,hidden=32,heads=4,groups=2,wide=16"
PROMPT = {"past": 9, "sequence": 6}
"""A prompt in pieces, after some tokens. A single token has nothing that a mask hides, so at
`sequence` 1 the network lacks the operator that hides it."""
ROWS, MERGED = {"rows": 30}, {"batch": 4, "rows": 20}


@pytest.mark.parametrize(
    ("name", "arch", "dtype", "most"),
    [
        pytest.param("pooled", "stcp920", "fp16", ROWS, id="means over time"),
        pytest.param("pooled", "soma-edge", "int8", ROWS, id="means of integers"),
        pytest.param("image", "ascend-310-like", "fp16", ROWS, id="a mean over a length twice"),
        pytest.param("pooled", "gemmini-16", "int8", ROWS, id="means that the host computes"),
        pytest.param("angles", "soma-edge", "int8", ROWS, id="constants as they are folded"),
        pytest.param("angles", "mcu-npu", "int8", ROWS, id="constants that the host has inside"),
        pytest.param("running", "stcp920", "fp16", ROWS, id="sums up to each position"),
        pytest.param("running", "soma-edge", "int8", ROWS, id="the same beside integers"),
        pytest.param("rotation", "stcp920", "fp16", ROWS, id="weights that are rows of a table"),
        pytest.param("convolved", "stcp920", "fp16", ROWS, id="windows, in parts by cores"),
        pytest.param("convolved", "soma-edge", "int8", ROWS, id="borders of integers, and room"),
        pytest.param("convolved", "ascend-310-like", "int8", ROWS, id="windows as products"),
        pytest.param("features", "stcp920", "int8", ROWS, id="windows over time and frequency"),
        # Open dimensions that a network merges.
        pytest.param("flat", "soma-edge", "int8", MERGED, id="one matrix of integers"),
        pytest.param("flat", "stcp920", "fp16", MERGED, id="one matrix, in parts by cores"),
        pytest.param("totals", "ascend-310-like", "fp16", MERGED, id="sums to each row of a batch"),
        pytest.param("totals", "soma-edge", "int8", MERGED, id="such sums beside integers"),
        pytest.param("clips", "soma-edge", "int8", MERGED, id="images of films"),
        pytest.param("clips", "gemmini-16", "int8", MERGED, id="whose means the host computes"),
        pytest.param("channels", "ascend-310-like", "fp16", MERGED, id="signals side by side"),
        pytest.param("attention", "soma-edge", "int8", MERGED, id="heads of integers"),
        pytest.param("attention", "ascend-310-like", "fp16", MERGED, id="heads"),
        pytest.param("attention", "gemmini-16", "int8", MERGED, id="sums the array finishes"),
        pytest.param("flat", "gemmini-16", "int8", MERGED, id="rows that the host normalizes"),
        # Several lengths at once, and caches.
        pytest.param(LLAMA, "soma-edge", "int8", {"past": 40}, id="a cache of integers"),
        pytest.param(PIECES, "stcp920", "fp16", PROMPT, id="a prompt in pieces"),
        pytest.param(LLAMAS, "soma-edge", "int8", {"past": 40, "sequence": 8}, id="shared keys"),
        pytest.param(
            LLAMAS, "tpu-v3-like", "bf16", {"batch": 3, "past": 9, "sequence": 8}, id="three"
        ),
        pytest.param(
            LLAMA.replace("sequence=1,", ""), "soma-edge", "int8",
            {"batch": 4, "past": 5, "sequence": 5}, id="other functions next to the edge",
        ),
        pytest.param(
            PIECES.replace("16", "64"), "gemmini-16", "int8", {"past": 40, "sequence": 20},
            id="sums over both, longer than an instruction",
        ),
        pytest.param(
            "moe:hidden=16,wide=16,experts=4,active=2,gathered=1", "soma-edge", "int8",
            {"batch": 3, "sequence": 5}, id="tokens of all sequences, for experts",
        ),
    ],
)  # fmt: skip
def test_a_network_for_ranges_is_right_at_any_length(
    name: str, arch: str, dtype: str, most: dict[str, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    model = name if ":" in name else file_of(name, tmp_path_factory.mktemp("any"))
    alone = tuple(1 if dim in ("batch", "sequence") else last for dim, last in most.items())

    @settings(max_examples=3)
    @given(st.tuples(*(st.integers(1, last) for last in most.values())))
    @example(alone)
    def at(lengths: tuple[int, ...]) -> None:
        check(model, arch, dtype, dict(zip(most, lengths, strict=True)), **spans(most))

    at()


SMALL, ENDS = range(1, 14), (1, 15, 16, 17, 31, 32, 33, 49, 50)


@pytest.mark.parametrize(
    ("name", "arch", "dtype", "lengths"),
    [
        # Windows in steps.
        pytest.param("listening", "stcp920", "fp16", SMALL, id="every second frame"),
        pytest.param("listening", "gemmini-16", "int8", SMALL, id="as products of integers"),
        pytest.param("raw", "soma-edge", "int8", SMALL, id="twelve steps, rounded once"),
        pytest.param("raw", "cocco-simba-2c", "int8", SMALL, id="in parts by cores"),
        pytest.param("raw", "ascend-310-like", "fp16", SMALL, id="windows as products"),
        pytest.param("halved", "soma-edge", "int8", SMALL, id="branches of an image"),
        pytest.param("halved", "gemmini-16", "int8", SMALL, id="pools that the host computes"),
        pytest.param("halved", "cocco-simba-2c", "int8", SMALL, id="branches in parts by cores"),
        pytest.param("halved", "ascend-310-like", "fp16", SMALL, id="depthwise in real numbers"),
        pytest.param("patches", "cocco-simba-2c", "int8", range(4, 14), id="shares of shares"),
        pytest.param("patches", "stcp920", "fp16", (4, 7, 33, 63, 64), id="shares of many cores"),
        pytest.param("levels", "soma-edge", "int8", SMALL, id="sums of shares"),
        pytest.param("averages", "stcp920", "fp16", SMALL, id="means of what is there"),
        pytest.param("averages", "soma-edge", "int8", SMALL, id="the same of integers"),
        pytest.param("averages", "gemmini-16", "int8", SMALL, id="the same by the host"),
        pytest.param("surroundings", "ascend-310-like", "fp16", SMALL, id="means of two lengths"),
        pytest.param("largest", "gemmini-16", "int8", SMALL, id="ends that the host pads"),
        # Sums over a length: gemmini-16 multiplies 16 at once.
        pytest.param("summed", "gemmini-16", "int8", ENDS, id="sums that the array finishes"),
        pytest.param("summed", "neuroncore-v2-like", "fp16", ENDS, id="the vector engine does"),
        pytest.param("summed", "ascend-310-like", "fp16", ENDS, id="sums in one instruction"),
        # Of one length it is a sum in steps that follow from it; of all, a product with a share.
        pytest.param("mean", "gemmini-16", "int8", (1, 7, 20), id="a mean by the host"),
        pytest.param("mean", "ethos-u65-like", "int8", (1, 7, 20), id="the same elsewhere"),
    ],
)
def test_a_network_for_a_range_is_right_at_all_of_its_lengths(
    name: str, arch: str, dtype: str, lengths: Sequence[int], tmp_path: Path
) -> None:
    model = file_of(name, tmp_path)
    for length in lengths:
        check(model, arch, dtype, {"rows": length}, rows=SizeRange(lengths[0], lengths[-1]))


def test_open_rows_of_a_fixed_batch_that_a_network_merges(tmp_path: Path) -> None:
    model = file_of("flat", tmp_path)
    check(model, "stcp920", "fp16", {"batch": 3, "rows": 5}, rows=SizeRange(1, 9))


@pytest.mark.parametrize(
    ("nodes", "shape", "last"),
    [
        ("y = Relu (m)", "a,b", "Relu_3"),
        ("c = Softmax <axis=0> (m) y = Reshape (c, o)", "a,b,c", "Softmax_3"),
    ],
)
def test_merged_dimensions_that_stay_merged_are_refused(
    tmp_path: Path, nodes: str, shape: str, last: str
) -> None:
    text = f"""net (float[batch,rows,4] x) => (float[{shape}] y)
      {{ f = Constant <value_ints=[-1, 4]> () o = Shape (x) m = Reshape (x, f) {nodes} }}"""
    path, most = str(saved(net(text), tmp_path)), spans({"batch": 3, "rows": 9})
    row = row_of(path, "stcp920", "fp16", {"batch": 3, "rows": 5}, **most)
    assert row["status"] == "unsupported"
    assert last in str(row["reason"])


def test_a_mask_that_hides_something_from_a_single_token_is_found() -> None:
    def hiding(request: Request) -> Compiled:
        """The program, whose mask behind 4 tokens hides the first of them."""
        family = request.model

        def constants(names: Collection[str], lengths: Mapping[str, int]) -> dict[str, Array]:
            found = {name: each.copy() for name, each in family.constants(names, lengths).items()}
            for values in found.values():
                if values.dtype == np.bool_ and lengths["past"] == 4:
                    values[0, 0, 0, 0] = False
            return found

        return compile_request(replace(request, model=replace(family, constants=constants)))

    wrong = Workbench(replace(STANDARD, compile=hiding))
    for past, right in ((4, False), (3, True)):
        row = row_of(
            PIECES, "stcp920", "fp16", {"past": past, "sequence": 1}, wrong, **spans(PROMPT)
        )
        assert row["verified"] is right
        assert right or str(row["note"]).startswith("h.0.attn.weights: off by")


# A network for all lengths of a range: opened, quantized and compiled as one.

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
