"""Reference results are ONNX Runtime's, on inputs that make sense, and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from networks import model
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from role_nets import net

from archgen.check import reference
from archgen.check.reference import (
    cached_reference,
    run_node,
    run_reference,
    sample_inputs,
    with_exact_products,
)
from archgen.models.load import ModelError, open_model
from archgen.zoo.catalog import build
from compiler.api import is_outside
from compiler.frontend import stored_tensors
from simmodel.errors import NoPayload


def network(weight: float = 2.0) -> onnx.ModelProto:
    """y = relu(x * w), elementwise on (2, 3)."""
    text = "g (float[2, 3] x) => (float[2, 3] y) { p = Mul (x, w) y = Relu (p) }"
    return net(text, w=np.full(3, weight, np.float32))


X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)


def test_outputs_and_intermediates() -> None:
    values = run_reference(network(), {"x": X}, ["p", "x", "y"])
    assert set(values) == {"x", "p", "y"}
    assert np.array_equal(values["p"], X * 2)
    assert np.array_equal(values["y"], np.maximum(X * 2, 0))


def test_a_node_that_cannot_be_run_is_named_with_the_reason() -> None:
    model = network()
    model.graph.node.append(helper.make_node("Reshape", ["p", "shape"], ["z"], name="view"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 4]), "shape"))
    with pytest.raises(ModelError, match=r"cannot run node 'view' \(ai\.onnx\.Reshape\): .*2,3"):
        run_reference(model, {"x": X}, ["z"])


def test_a_weight_that_nobody_reads_is_no_input_that_is_missing() -> None:
    model = network()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "left"))
    model.graph.input.append(helper.make_tensor_value_info("left", TensorProto.FLOAT, [3]))
    assert np.array_equal(run_reference(model, {"x": X})["y"], np.maximum(X * 2, 0))


def test_a_refusal_is_an_exception_and_no_line_on_the_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    proto = net("g (int32[2] x) => (int32[2] y) { y = Div (x, x) }")
    with pytest.raises(ModelError, match="division by zero"):
        run_reference(proto, {"x": np.zeros(2, np.int32)})
    assert capfd.readouterr() == ("", "")


def test_the_model_is_left_alone() -> None:
    proto = network()
    before = proto.SerializeToString()
    run_reference(proto, {"x": X}, ["p"])
    assert proto.SerializeToString() == before


def test_weights_are_read_where_they_are() -> None:
    proto = build("resnet18", image=32, width=0.25, classes=10)
    inputs = sample_inputs(proto)
    light = reference.detached(proto)
    assert light.ByteSize() < proto.ByteSize() / 10
    mine = reference.Detached(light, proto).run(inputs)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for name, values in zip(mine, session.run(list(mine), inputs), strict=True):
        np.testing.assert_allclose(mine[name], values, rtol=1e-4, atol=1e-5)


def test_weights_read_inside_a_branch_alone_are_kept() -> None:
    text = """g (float[2000] x, bool c) => (float[2000] y) {
        y = If (c) <then_branch = t () => (float[2000] p) { p = Add (x, w) },
                    else_branch = e () => (float[2000] q) { q = Neg (x) }>
      }"""
    proto = net(text, w=np.ones(2000, np.float32))
    x = np.zeros(2000, np.float32)
    assert (run_reference(proto, {"x": x, "c": np.array(True)})["y"] == 1).all()


def test_results_are_remembered_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cached_reference(network(), "a", {"x": X}, tmp_path)
    cached_reference(network(), "a", {"x": X + 1}, tmp_path)
    cached_reference(network(3.0), "b", {"x": X}, tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == 3
    with monkeypatch.context() as patch:
        patch.setattr(reference, "run_reference", None)  # a second run would fail
        again = cached_reference(network(), "a", {"x": X}, tmp_path)
    assert list(again) == list(first)
    assert all(np.array_equal(again[name], first[name]) for name in first)


def test_run_node_keeps_its_session() -> None:
    data = network().SerializeToString()
    (y,) = run_node(data, [X])
    assert np.array_equal(y, np.maximum(X * 2, 0))
    hits = reference._node_runner.cache_info().hits
    run_node(data, [X])
    assert reference._node_runner.cache_info().hits == hits + 1


def test_sample_inputs_follow_use_type_and_name() -> None:
    text = """g (int32[400] tokens, float[400] image, float16[400] half, int64[400] attention_mask,
      bool[400] flag, uint8[400] pixels, int64[400] position) => (y) <float[5, 2] table>
      { cast = Cast <to = 7> (tokens) y = Gather (table, cast) }"""
    samples = sample_inputs(net(text), seed=3)
    assert set(np.unique(samples["tokens"])) == set(range(5))
    assert samples["tokens"].dtype == np.int32
    assert samples["image"].std() == pytest.approx(1, abs=0.2)
    assert samples["half"].dtype == np.float16
    assert (samples["attention_mask"] == 1).all()
    assert samples["flag"].all()
    assert samples["pixels"].max() > 200
    assert samples["position"].max() < 8


def test_a_reference_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many weights as are held at once; later parts read what earlier ones have made."""
    proto = build("llama", sequence=4, layers=2, hidden=32, heads=4, groups=2, wide=64)
    inputs, between = sample_inputs(proto), ["layers.0.attention.add"]
    whole = run_reference(proto, inputs, between)
    monkeypatch.setattr(reference, "_PART", 5000)
    parts = list(reference._kernel_parts(reference.detached(proto)))
    assert len(parts) > 4 and sum(map(len, parts)) == len(proto.graph.node)
    again = run_reference(proto, inputs, between)
    assert whole.keys() == again.keys()
    assert all(np.array_equal(whole[name], again[name]) for name in whole)
    samples = [sample_inputs(proto, seed) for seed in (1, 2)]
    both = reference.Detached(reference.detached(proto), proto).runs(samples)
    (name,) = both[0]
    one, two = (run_reference(proto, sample)[name] for sample in samples)
    assert np.array_equal(both[0][name], one) and np.array_equal(both[1][name], two)
    assert not np.array_equal(one, two)


def test_a_large_product_is_made_of_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of weights that are made from a seed and never there as a whole."""
    proto = build("llama", sequence=4, layers=1, hidden=128, heads=4, groups=2, wide=1280)
    inputs = sample_inputs(proto)
    whole = run_reference(proto, inputs)
    sizes: list[int] = []
    pieces_in, large = reference.api.pieces_in, 128 * 1280

    def pieces(tensor: onnx.TensorProto, size: int) -> Iterator[tuple[slice, Any]]:
        for cut, values in pieces_in(tensor, size):
            sizes.append(values.size)
            yield cut, values

    monkeypatch.setattr(reference.api, "pieces_in", pieces)
    monkeypatch.setattr(stored_tensors, "_LATELY", 0)
    monkeypatch.setattr(reference, "_PART", 4 * large - 1)
    again = run_reference(proto, inputs)
    assert max(sizes) <= large // 4 and sum(sizes) == 3 * large
    assert all(np.allclose(whole[name], again[name], atol=1e-5) for name in whole)


def test_numbers_below_a_byte_in_a_file_are_read(tmp_path: Path) -> None:
    """Which ONNX Runtime takes in the message alone."""
    values, path = np.arange(2048) % 15 - 7, tmp_path / "net.onnx"
    weights = {"q": values.reshape(64, 32).astype(ml_dtypes.int4), "s": np.float32(0.5)}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    proto = model(nodes, {"x": [1, 64]}, {"y": [1, 32]}, weights, opset=21)
    onnx.save(proto, path, save_as_external_data=True, location="net.bin", size_threshold=64)
    opened = open_model(path).proto
    assert is_outside(opened.graph.initializer[0])
    made = run_reference(opened, {"x": np.ones((1, 64), np.float32)})["y"]
    assert np.array_equal(made[0], values.reshape(64, 32).sum(axis=0) / 2)


def test_sample_inputs_are_seeded() -> None:
    proto = build("vit_tiny", weights=False, image=32)
    one, same, other = (sample_inputs(proto, seed)["input"] for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_sampled_tokens_cover_the_vocabulary_of_each_table() -> None:
    samples = sample_inputs(build("bert_base", weights=False))
    assert 25_000 < samples["input_ids"].max() < 30_522
    assert set(np.unique(samples["token_type_ids"])) == {0, 1}


def quantized_to_int16() -> onnx.ModelProto:
    """y = QuantizeLinear(x) in int16, for which ONNX Runtime has no kernel in operator set 28."""
    text = """net (float[4] x) => (int16[4] y) <float scale = {0.5}, int16 zero = {3}>
      { r = Relu (x) y = QuantizeLinear (r, scale, zero) }"""
    return net(text, 28)


def test_where_there_is_no_kernel_the_definition_is_computed() -> None:
    x = np.array([-1, 0, 1, 20000], np.float32)
    values = run_reference(quantized_to_int16(), {"x": x}, ["r"])
    assert values["r"].tolist() == [0, 0, 1, 20000]
    assert values["y"].tolist() == [3, 3, 5, 32767]


def test_what_draws_has_no_reference_by_definition() -> None:
    model = quantized_to_int16()
    del model.graph.node[0]
    model.graph.node.insert(0, helper.make_node("Bernoulli", ["x"], ["r"]))
    with pytest.raises(ModelError, match="Bernoulli gives another value at each run"):
        run_reference(model, {"x": np.ones(4, np.float32)})


# Products of bytes add up without loss, whichever processor runs them.

Array = NDArray[Any]
LEFT = np.full((2, 4), 255, np.uint8)
RIGHT = np.full((4, 2), 127, np.int8)
SUMS = LEFT.astype(int) @ RIGHT.astype(int)
ONE = np.float32(1)
SETS: dict[str, Any] = {"opset": 21, "domain": "com.microsoft"}


CASES: dict[str, tuple[list[str], dict[str, Array], Array]] = {
    "MatMulInteger": (["a", "b"], {"a": LEFT, "b": RIGHT}, SUMS),
    "ConvInteger": (
        ["b", "a"],
        {"b": RIGHT.T[..., None, None], "a": LEFT[..., None, None]},
        SUMS.T[..., None, None],
    ),
    "QLinearMatMul": (
        ["a", "s", "za", "b", "s", "zb", "t", "za"],
        {"a": LEFT, "b": RIGHT, "s": ONE, "t": np.float32(1000), "za": np.uint8(0),
         "zb": np.int8(0)},
        np.round(SUMS / 1000),
    ),
    "QLinearConv": (
        ["a", "s", "za", "b", "s", "zb", "t", "za"],
        {"a": LEFT[..., None, None], "b": RIGHT.T[..., None, None], "s": ONE,
         "t": np.float32(1000), "za": np.uint8(0), "zb": np.zeros(2, np.int8)},
        np.round(SUMS / 1000)[..., None, None],
    ),
    "QGemm": (
        ["a", "s", "za", "b", "s", "zb"],
        {"a": LEFT, "b": RIGHT, "s": ONE, "za": np.uint8(0), "zb": np.int8(0)},
        SUMS,
    ),
    "MatMulIntegerToFloat": (
        ["a", "b", "s", "s"], {"a": LEFT, "b": RIGHT, "s": ONE}, SUMS,
    ),
    "DynamicQuantizeMatMul": (
        ["x", "b", "s"], {"x": LEFT.astype(np.float32), "b": RIGHT, "s": ONE}, SUMS,
    ),
}  # fmt: skip
"""By operator: what it reads, their values, and its result."""


@pytest.mark.parametrize("operator", CASES)
def test_pairs_of_products_do_not_saturate(operator: str) -> None:
    reads, feeds, expected = CASES[operator]
    feeds = {name: np.asarray(array) for name, array in feeds.items()}
    domain = "" if onnx.defs.has(operator) else "com.microsoft"
    node = helper.make_node(operator, reads, ["y"], domain=domain)
    proto = model([node], feeds, ["y"], **SETS)
    assert "Cast" in {node.op_type for node in with_exact_products(proto).graph.node}
    assert np.array_equal(run_reference(proto, feeds)["y"], expected)
    (on_host,) = run_node(proto.SerializeToString(), list(feeds.values()))
    assert np.array_equal(on_host, expected)


def test_inside_of_a_branch_too() -> None:
    feeds = {"c": np.asarray(True), "a": LEFT, "b": RIGHT}
    product = helper.make_node("MatMulInteger", ["a", "b"], ["p"])
    output = helper.make_tensor_value_info("p", TensorProto.INT32, [2, 2])
    body = helper.make_graph([product], "body", [], [output])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    assert np.array_equal(run_reference(model([node], feeds, ["y"], **SETS), feeds)["y"], SUMS)


def test_what_cannot_saturate_is_left_alone() -> None:
    feeds = {"a": LEFT, "b": RIGHT.view(np.uint8)}
    proto = model([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], feeds, ["y"], **SETS)
    assert [node.op_type for node in with_exact_products(proto).graph.node] == ["MatMulInteger"]


@pytest.mark.parametrize("operator", ["MatMulInteger", "QGemm"])
def test_what_is_wrong_is_left_to_onnx_runtime(operator: str) -> None:
    domain = "" if onnx.defs.has(operator) else "com.microsoft"
    node = helper.make_node(operator, ["a"], ["y"], domain=domain)
    proto = model([node], {"a": LEFT}, ["y"], **SETS)
    with pytest.raises(ModelError, match="ONNX Runtime cannot run"):
        run_reference(proto, {"a": LEFT})
    with pytest.raises(NoPayload, match="no model for ONNX Runtime"):
        run_node(b"\xff" + operator.encode(), [LEFT])


def test_a_node_without_a_name_is_named_by_what_it_makes() -> None:
    feeds = {"a": np.ones(4, np.float32), "i": np.asarray([7])}
    proto = model([helper.make_node("Gather", ["a", "i"], ["y"])], feeds, ["y"], **SETS)
    with pytest.raises(ModelError, match=r"the Gather that makes 'y': .*idx=7"):
        run_reference(proto, feeds)
