"""int8 of operators that hide products: recurrent layers and attentions of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import model as model_of
from onnx import helper, numpy_helper

from archgen.check.quantize import quantize
from archgen.check.quantizer_input import products
from archgen.check.reference import run_reference, sample_inputs
from archgen.models.load import SourceModel
from archgen.outcomes.points import Point
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD
from compiler.api import Load

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
