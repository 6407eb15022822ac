"""Quantized networks are QDQ with signed weights by channel, close to float, and cached; encodings
beside a network in floating point (AIMET, QNN) say its scales."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import model as model_of
from onnx import TensorProto, helper, numpy_helper, parser
from role_nets import net

import archgen
from archgen.check import quantize as module
from archgen.check.calibration import calibration_sets
from archgen.check.quantize import quantize
from archgen.check.quantizer_input import products
from archgen.check.reference import run_reference, sample_inputs, sample_sets
from archgen.models.load import ModelError, SourceModel, open_model
from archgen.outcomes.points import Point
from archgen.process.start import DamagedFile
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD
from compiler.api import Load

_SMALL_BERT = "bert_base:sequence=16,layers=2,hidden=64,heads=2,vocabulary=100"


@pytest.fixture(scope="module")
def source() -> SourceModel:
    return open_model("resnet18:image=64")


@pytest.fixture(scope="module")
def quantized(source: SourceModel, tmp_path_factory: pytest.TempPathFactory) -> module.Quantized:
    return quantize(source, None, tmp_path_factory.mktemp("cache"))


def agreement(float_model: onnx.ModelProto, other: onnx.ModelProto, seed: int) -> float:
    inputs = sample_inputs(float_model, seed)
    expected, actual = run_reference(float_model, inputs), run_reference(other, inputs)
    pairs = [np.corrcoef(expected[name].ravel(), actual[name].ravel())[0, 1] for name in expected]
    return float(min(pairs))


def test_int8_stays_close_to_float(source: SourceModel, quantized: module.Quantized) -> None:
    assert all(agreement(source.proto, quantized.proto, seed) > 0.9 for seed in (100, 101))


def test_every_matrix_operand_is_quantized(quantized: module.Quantized) -> None:
    graph = quantized.proto.graph
    kinds = Counter(node.op_type for node in graph.node)
    assert kinds["BatchNormalization"] == kinds["Relu"] == 0
    producers = {node.output[0]: node for node in graph.node}
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type not in ("Conv", "Gemm"):
            continue
        data, weight, bias = (producers[name] for name in node.input)
        assert data.op_type == weight.op_type == bias.op_type == "DequantizeLinear"
        values = numpy_helper.to_array(tensors[weight.input[0]])
        scale, zero = (numpy_helper.to_array(tensors[name]) for name in weight.input[1:])
        assert values.dtype == np.int8
        assert scale.shape == (values.shape[0],)
        assert not zero.any()
        assert tensors[bias.input[0]].data_type == TensorProto.INT32


def test_transformer_keeps_softmax_norm_and_gelu_float(tmp_path: Path) -> None:
    source = open_model(_SMALL_BERT)
    result = quantize(source, None, tmp_path)
    producers = {name: node.op_type for node in result.proto.graph.node for name in node.output}
    quantized_inputs = Counter(
        node.op_type
        for node in result.proto.graph.node
        if any(producers.get(name) == "DequantizeLinear" for name in node.input)
    )
    assert quantized_inputs["MatMul"] == 16
    for kind in ("Softmax", "Erf", "Mul", "Div"):
        assert quantized_inputs[kind] == 0
    assert agreement(source.proto, result.proto, 100) > 0.95


def test_result_is_stored_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_model(_SMALL_BERT)
    first = quantize(source, None, tmp_path)
    (path,) = tmp_path.glob("*.onnx")
    with monkeypatch.context() as patch:
        patch.setattr(module, "quantized_model", None)  # a second run would fail
        again = quantize(source, None, tmp_path)
    assert again.proto == first.proto
    assert again.note == first.note
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.warns(DamagedFile):
        assert quantize(source, None, tmp_path).proto == first.proto


def test_given_samples_set_the_ranges(tmp_path: Path) -> None:
    source = open_model("resnet18:image=32,classes=10,width=0.25")
    samples = np.random.default_rng(0).uniform(0, 50, (3, 3, 32, 32))
    result = quantize(source, {"input": samples}, tmp_path)
    assert "3 given samples" in result.note
    scale = next(node.input[1] for node in result.proto.graph.node if node.input[0] == "input")
    tensors = {tensor.name: tensor for tensor in result.proto.graph.initializer}
    assert numpy_helper.to_array(tensors[scale]) == pytest.approx(50 / 255, rel=0.01)
    assert "seeded" in quantize(source, None, tmp_path).note
    assert len(list(tmp_path.glob("*.onnx"))) == 2


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ({}, "missing"),
        ({"input": np.zeros((1, 3, 32, 32)), "more": np.zeros(1)}, "unknown"),
        ({"input": np.zeros((1, 3, 16, 32))}, "no number of samples"),
        ({"input": np.zeros((1, 3, 32, 32), np.int64)}, "is int64, not float32"),
        ({"input": np.zeros((0, 3, 32, 32))}, "there are none"),
    ],
)
def test_samples_that_do_not_fit(
    tmp_path: Path, samples: dict[str, np.ndarray], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        quantize(open_model("resnet18:image=32,width=0.25"), samples, tmp_path)


def test_a_quantized_model_is_left_alone(tmp_path: Path, quantized: module.Quantized) -> None:
    again = quantize(SourceModel("int8", quantized.proto), None, tmp_path)
    assert again.proto is quantized.proto
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_lifted_is_said(tmp_path: Path) -> None:
    """A Dropout that trains has no form in newer operator sets."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "xy"]
    node = helper.make_node("Dropout", ["x"], ["y"], is_test=0)
    graph = helper.make_graph([node], "old", ports[:1], ports[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=8)
    with pytest.raises(ModelError, match="old cannot be quantized: "):
        quantize(SourceModel("old", proto), None, tmp_path)


# Samples for calibration in chains: a state is what the one before has left.

COUNTING = """
counting (float[1, 2] x, float[1, 2] state) => (float[1, 2] y, float[1, 2] state_out)
<float half = {0.5}>
{ kept = Mul (state, half)
  state_out = Add (x, kept)
  y = Neg (state_out) }
"""
GROWING = """
growing (float[1, 1, 2] x, float[1, 3, 2] past) => (float[1, 4, 2] present)
{ new = Add (x, x)
  present = Concat <axis = 1> (past, new) }
"""
EXPLODING = """
exploding (float[1, 2] x, float[1, 2] state) => (float[1, 2] state_out)
{ away = Div (x, state)
  state_out = Add (away, state) }
"""
FREE = """
free (float[1, 2] x) => (float[1, 2] y)
{ y = Neg (x) }
"""


def test_a_network_without_states_has_one_sample_of_each_seed() -> None:
    samples, said = calibration_sets(net(FREE), range(4))
    assert said == "4 seeded random samples"
    for sample, expected in zip(samples, sample_sets(net(FREE), range(4)), strict=True):
        np.testing.assert_array_equal(sample["x"], expected["x"])


def test_each_inference_gets_what_the_one_before_has_left() -> None:
    samples, said = calibration_sets(net(COUNTING), range(2))
    assert said.startswith("64 seeded random samples, 32 in a row")
    state = np.zeros((1, 2), np.float32)
    for number, sample in enumerate(samples):
        if number == 32:  # the second chain
            state = np.zeros((1, 2), np.float32)
        np.testing.assert_array_equal(sample["state"], state)
        state = run_reference(net(COUNTING), sample)["state_out"]
    assert len({sample["x"].tobytes() for sample in samples}) == 64


def test_a_cache_that_grows_keeps_its_extent_and_repeats_the_rows_that_there_are() -> None:
    samples, _ = calibration_sets(net(GROWING), range(1))
    made = [2 * sample["x"][0, 0] for sample in samples]
    a, b, c, d = made[:4]
    wanted = [[0 * a] * 3, [a, a, a], [b, a, b], [a, b, c], [b, c, d]]
    for sample, rows in zip(samples, wanted, strict=False):
        np.testing.assert_array_equal(sample["past"][0], np.stack(rows))


def test_where_a_state_becomes_infinite_noise_stands_for_it() -> None:
    samples, said = calibration_sets(net(EXPLODING), range(4))
    assert said == "4 seeded random samples"
    assert all(sample["state"].any() for sample in samples)


NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,3,9,9] x) => (float[1,5] z) {
  a = Conv <pads=[1,1,1,1]> (x, w, b)
  r = Relu(a)
  p = MaxPool <kernel_shape=[2,2], strides=[2,2]> (r)
  f = Flatten(p)
  z = Gemm <transB=1> (f, v, c)
}"""
ACTIVATIONS = {"x": (4 / 128, -128), "r": (3 / 255, 0), "z": (6 / 255, -130)}


def network(folder: Path) -> dict[str, list[float]]:
    """Writes net.onnx; the scales of its weights."""
    rng, proto = np.random.default_rng(0), parser.parse_model(NET)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "v": (5, 128), "c": (5,)}
    values = {n: rng.normal(0, 0.3, shape).astype(np.float32) for n, shape in shapes.items()}
    proto.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in values.items())
    onnx.save(proto, folder / "net.onnx")
    return {"w": [float(np.abs(k).max()) / 127 for k in values["w"]], "v": [0.01]}


def forms(weights: dict[str, list[float]]) -> list[dict[str, Any]]:
    """The same encodings as each version writes them."""

    def part(scale: float, offset: int) -> dict[str, Any]:
        return {"bitwidth": 8, "dtype": "int", "offset": offset, "scale": scale}

    def listed(name: str, scale: list[float], offset: int) -> dict[str, Any]:
        kind = "PER_CHANNEL" if len(scale) > 1 else "PER_TENSOR"
        offsets = [offset] * len(scale)
        return {"name": name, "dtype": "INT", "enc_type": kind, "bw": 8, "scale": scale,
                "offset": offsets}  # fmt: skip

    def fields(name: str, scale: Any, offset: int) -> dict[str, Any]:
        zero = {} if offset == -128 else {"y_zero_point": -offset}
        kind = {"output_dtype": "uint8" if zero else "int8"} | zero
        return {"name": name, "y_scale": scale, "axis": 0, **kind}

    return [
        {
            "activation_encodings": {n: [part(*own)] for n, own in ACTIVATIONS.items()},
            "param_encodings": {n: [part(s, -128) for s in own] for n, own in weights.items()},
        },
        {
            "version": "1.0.0",
            "activation_encodings": [listed(n, [s], o) for n, (s, o) in ACTIVATIONS.items()],
            "param_encodings": [listed(n, own, -128) for n, own in weights.items()],
        },
        {
            "version": "2.0.0",
            "encodings": [
                *(fields(n, s, o) for n, (s, o) in ACTIVATIONS.items()),
                *(fields(n, own, -128) for n, own in weights.items()),
            ],
        },
    ]


def test_encodings_of_every_version_make_one_network_that_runs_in_integers(tmp_path: Path) -> None:
    path, keys = tmp_path / "net.encodings", set()
    for content in forms(network(tmp_path)):
        path.write_text(json.dumps(content))
        source = open_model(path)
        keys.add(source.content_key)
    assert len(keys) == 1
    kinds = {t.name: t.data_type for t in source.proto.graph.initializer}
    assert kinds["w__quantized"] == onnx.TensorProto.INT8
    assert kinds["b__quantized"] == kinds["c__quantized"] == onnx.TensorProto.INT32
    row = archgen.study("soma-edge", str(path), plots=False).frame.iloc[0]
    assert (row["status"], row["verified"], row["host_ops"]) == ("ok", True, 0)


def test_what_is_wrong_with_encodings_is_said_at_once(tmp_path: Path) -> None:
    first, *_ = forms(network(tmp_path))
    first["activation_encodings"]["zz"] = first["activation_encodings"].pop("z")
    first["param_encodings"]["v"][0]["bitwidth"] = 4
    path = tmp_path / "net.encodings"
    path.write_text(json.dumps(first))
    with pytest.raises(ModelError) as caught:
        open_model(path)
    text = str(caught.value)
    assert "'v': uint4: expected integers of 8, 16 or 32 bits" in text
    assert "'zz': the network has none of that name; did you mean 'z'?" in text
    path.write_text("{}")
    with pytest.raises(ModelError, match="activation_encodings"):
        open_model(path)
    (tmp_path / "net.onnx").unlink()
    with pytest.raises(ModelError, match=r"net\.onnx does not exist"):
        open_model(path)


# Operators that hide products: recurrent layers and attentions of ONNX Runtime.

HIDDEN = 8


def model(
    nodes: Sequence[onnx.NodeProto],
    ports: dict[str, tuple[int, ...]],
    results: Sequence[str],
    weights: dict[str, tuple[int, ...]],
    opset: int = 17,
) -> onnx.ModelProto:
    """The network from `ports` to `results`, with random weights."""
    random = np.random.default_rng(0)
    data = {
        name: (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in weights.items()
    }
    given = {name: shape for name, shape in ports.items() if name not in results}
    made = {name: ports.get(name) for name in results}
    return model_of(nodes, given, made, data, opset=opset, domain="com.microsoft")


def cell(kind: str, gates: int, steps: int) -> onnx.ModelProto:
    """A recurrent layer from a state that is given; of one step its results are the same bytes."""
    rows = gates * HIDDEN
    node = helper.make_node(kind, ["x", "w", "r", "b", "", "h"], ["y", "h_out"], hidden_size=HIDDEN)
    ports = {
        "x": (steps, 2, 4),
        "h": (1, 2, HIDDEN),
        "y": (steps, 1, 2, HIDDEN),
        "h_out": (1, 2, HIDDEN),
    }
    weights = {"w": (1, rows, 4), "r": (1, rows, HIDDEN), "b": (1, 2 * rows)}
    return model([node], ports, ["y", "h_out"], weights)


def attention(kind: str, given: str, weights: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    """Attention of eight tokens, of two heads."""
    inputs = given.split()
    node = helper.make_node(kind, [*inputs, *weights], ["y"], num_heads=2, domain="com.microsoft")
    return model([node], dict.fromkeys((*inputs, "y"), (1, 8, 16)), ["y"], weights)


def linear_attention() -> onnx.ModelProto:
    """Attention of three tokens by a state, of two heads of queries for one of keys."""
    node = helper.make_node(
        "LinearAttention", ["q", "k", "v"], ["y", "state"], update_rule="linear",
        q_num_heads=2, kv_num_heads=1,
    )  # fmt: skip
    ports = {"q": (1, 3, 16), "k": (1, 3, 8), "v": (1, 3, 8), "y": (1, 3, 16),
             "state": (1, 1, 8, 8)}  # fmt: skip
    return model([node], ports, ["y", "state"], {}, 27)


def convolutions(first: str, second: str, *shape: int, **first_act: str) -> onnx.ModelProto:
    """Two convolutions, the second with what ONNX Runtime fused into it and with a sum."""
    said = {"pads": [1, 1, 1, 1], "domain": "com.microsoft"}
    nodes = [
        helper.make_node(first, ["x", "w", "b"], ["r"], **first_act, **said),
        helper.make_node(second, ["r", "v", "b", "x"], ["y"], activation="Relu", **said),
    ]
    ports = dict.fromkeys(("x", "y"), shape)
    return model(nodes, ports, ["y"], {"w": (4, 4, 3, 3), "v": (4, 4, 3, 3), "b": (4,)})


def packed() -> onnx.ModelProto:
    """A product that turns its weights, and one whose weights have four bits."""
    said = {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("FusedMatMul", ["x", "w"], ["r"], transB=1, **said),
        helper.make_node("MatMulNBits", ["r", "v", "s"], ["y"], K=32, N=8, block_size=16, **said),
    ]
    made = model(nodes, {"x": (4, 16), "y": (4, 8)}, ["y"], {"w": (32, 16), "s": (16,)})
    places = np.random.default_rng(0).integers(0, 256, (8, 2, 8)).astype(np.uint8)
    made.graph.initializer.append(numpy_helper.from_array(places, "v"))
    return made


def written_otherwise() -> onnx.ModelProto:
    """Products whose left side is turned, and of axes that are neither first nor last."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["r"], transA=1),
        helper.make_node("Reshape", ["r", "apart"], ["a"]),
        helper.make_node("Einsum", ["a", "v"], ["y"], equation="atd,dbat->tab"),
    ]
    made = model(nodes, {"x": (16, 12), "y": (4, 3, 8)}, ["y"], {"w": (16, 6), "v": (6, 8, 3, 4)})
    made.graph.initializer.append(numpy_helper.from_array(np.array([3, 4, 6]), "apart"))
    return made


def around_foreign_operators() -> onnx.ModelProto:
    """A Gemm with factors, whose bias is added twice, and products between which ONNX Runtime's own
    operators are."""
    said = {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["r"], alpha=0.5, beta=2.0),
        helper.make_node("QuickGelu", ["r"], ["g"], **said),
        helper.make_node("MatMul", ["g", "v"], ["m"]),
        helper.make_node("SkipLayerNormalization", ["m", "x", "n"], ["s"], **said),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    weights = {"w": (16, 24), "b": (1, 24), "v": (24, 16), "n": (16,)}
    return model(nodes, {"x": (4, 16), "y": (4, 24)}, ["y"], weights)


def correlation() -> onnx.ModelProto:
    """What two inputs have in common, channel by channel, as a tracker asks."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"]),
        helper.make_node("Relu", ["z"], ["r"]),
        helper.make_node("Conv", ["a", "r"], ["c"], group=4, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w", "b"], ["y"]),
    ]
    ports = {"x": (1, 4, 9, 9), "z": (4, 1, 3, 3), "y": (1, 4, 9, 9)}
    return model(nodes, ports, ["y"], {"w": (4, 4, 1, 1), "b": (4,)})


MODELS = {
    "computed weights": correlation,
    "foreign operators": around_foreign_operators,
    "Einsum": written_otherwise,
    "MatMulNBits": packed,
    "FusedConv": lambda: convolutions("FusedConv", "FusedConv", 1, 4, 6, 6, activation="Relu"),
    "NhwcConv": lambda: convolutions("NhwcConv", "NhwcFusedConv", 1, 6, 6, 4),  # no kernel here
    "GRU of one step": lambda: cell("GRU", 3, 1),
    "GRU": lambda: cell("GRU", 3, 3),
    "LSTM": lambda: cell("LSTM", 4, 3),
    "RNN": lambda: cell("RNN", 1, 3),
    "Attention": lambda: attention("Attention", "x", {"w": (16, 48), "b": (48,)}),
    "LinearAttention": linear_attention,
    "MultiHeadAttention": lambda: attention("MultiHeadAttention", "q k v", {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_products_inside_of_operators_are_made_of_integers(name: str, tmp_path: Path) -> None:
    proto = MODELS[name]()
    made = quantize(SourceModel("net", proto), None, tmp_path).proto
    integer, real = products(made)
    assert integer >= 2
    assert not real
    assert not any(entry.name in ("alpha", "beta") for node in made.graph.node
                   if node.op_type == "Gemm" for entry in node.attribute)  # fmt: skip
    feeds = {key: values.clip(-0.9, 0.9) for key, values in sample_inputs(proto, 7).items()}
    wanted, found = (run_reference(each, feeds) for each in (proto, made))
    for output, values in wanted.items():
        assert np.abs(found[output] - values).max() < 0.1 * np.abs(values).max()


@pytest.mark.parametrize(
    "name", ["computed weights", "GRU of one step", "LSTM", "MultiHeadAttention", "NhwcConv"]
)
def test_they_run_on_the_engines_and_are_right(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(MODELS[name](), path)
    batch = 2 if "of" in name or name == "LSTM" else 1
    point = Point("key", load_arch("soma-edge"), str(path), batch, "int8")
    row = Workbench(STANDARD).run(point).row
    assert (row["status"], row["verified"], row["host_ops"]) == ("ok", True, 0), row


def test_what_does_not_unfold_stays_a_layer_of_its_own_also_in_the_cache(tmp_path: Path) -> None:
    source = SourceModel("net", MODELS["GRU"]())
    kinds = []
    for load in (Load(), Load(unroll=0)):
        made = quantize(source, None, tmp_path, load).proto
        kinds.append({node.op_type for node in made.graph.node})
    assert "GRU" not in kinds[0]
    assert "GRU" in kinds[1]
