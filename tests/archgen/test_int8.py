"""Only what is float is quantized, one failing operator stays float, and nothing is left behind."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from networks import model
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_static
from role_nets import net

from archgen.check import int8 as recipe
from archgen.check.quantize import Quantized, quantize
from archgen.check.reference import run_reference, sample_inputs, sample_sets
from archgen.models.load import ModelError, SourceModel
from compiler.api import UnsupportedModel

Node = onnx.NodeProto
node = helper.make_node


def reals(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(-100, 100, shape).astype(np.int8)


def network(
    shape: list[int], nodes: list[Node], constants: Mapping[str, ArrayLike], opset: int = 17
) -> SourceModel:
    """A network from `x` to `y`."""
    return SourceModel("net", model(nodes, {"x": shape}, {"y": None}, constants, opset=opset))


def made(source: SourceModel, folder: Path) -> Quantized:
    """`source` in int8, once it is known to be close to the original."""
    result = quantize(source, None, folder)
    feeds = sample_inputs(source.proto, 9)
    want, got = (run_reference(proto, feeds)["y"] for proto in (source.proto, result.proto))
    assert np.corrcoef(want.ravel(), got.ravel())[0, 1] > 0.95
    return result


def operands(proto: onnx.ModelProto, kind: str) -> list[list[str]]:
    """For each node of `kind`: the operators that make its first two inputs."""
    makers = {name: each.op_type for each in proto.graph.node for name in each.output}
    return [
        [makers.get(name, name) for name in each.input[:2]]
        for each in proto.graph.node
        if each.op_type == kind
    ]


BOTH = ["DequantizeLinear", "DequantizeLinear"]
CODE = {"s": np.float32(0.02), "z": np.int8(0)}


def through_integers(name: str) -> list[Node]:
    """`name` quantized and back, as `name`_d."""
    return [
        node("QuantizeLinear", [name, "s", "z"], [f"{name}_q"]),
        node("DequantizeLinear", [f"{name}_q", "s", "z"], [f"{name}_d"]),
    ]


def test_the_rest_of_a_half_quantized_network_is_quantized(tmp_path: Path) -> None:
    """Quantizations that it has stay as they are."""
    nodes = [
        *through_integers("x"),
        node("DequantizeLinear", ["w", "s", "z"], ["wd"]),
        node("Conv", ["x_d", "wd"], ["a"]),
        node("Add", ["a", "x_d"], ["r"]),
        *through_integers("r"),
        node("Conv", ["r_d", "v"], ["b"]),
        node("Relu", ["b"], ["c"]),
        *through_integers("c"),
        node("Conv", ["c_d", "wd"], ["y"]),
    ]
    weights = {"w": integers(4, 4, 1, 1), "v": reals(4, 4, 1, 1), **CODE}
    result = made(network([1, 4, 5, 5], nodes, weights), tmp_path)
    assert operands(result.proto, "Conv") == [BOTH] * 3
    assert "what was quantized already stays so (2 of 3 products)" in result.note
    graph = result.proto.graph
    scales = [each.input[1] for each in graph.node if each.op_type == "QuantizeLinear"]
    assert scales == ["s"] * 3
    assert [each.op_type for each in graph.node].count("Relu") == 1


def test_activations_of_16_bits_by_weights_of_8_are_quantized_already(tmp_path: Path) -> None:
    nodes = [
        *through_integers("x"),
        node("DequantizeLinear", ["w", "s", "nil"], ["wd"]),
        node("Conv", ["x_d", "wd"], ["y"]),
    ]
    constants = {"w": integers(4, 4, 1, 1), "s": CODE["s"], "z": np.uint16(9), "nil": np.int8(0)}
    source = network([1, 4, 5, 5], nodes, constants, opset=21)
    assert made(source, tmp_path).note == "quantized already; used as it is"


def test_weights_that_are_integers_keep_their_scales(tmp_path: Path) -> None:
    scales = np.linspace(0.01, 0.04, 4, dtype=np.float32)
    nodes = [
        node("DequantizeLinear", ["w", "t", "zeros"], ["wd"], axis=0),
        node("Conv", ["x", "wd", "b"], ["a"]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "wd"], ["y"]),
    ]
    constants = {"w": integers(4, 4, 3, 3), "t": scales, "zeros": np.zeros(4, np.int8)}
    result = made(network([1, 4, 8, 8], nodes, {**constants, "b": reals(4)}), tmp_path)
    assert operands(result.proto, "Conv") == [BOTH] * 2
    kept = {t.name: numpy_helper.to_array(t) for t in result.proto.graph.initializer}
    np.testing.assert_array_equal(kept["t"], scales)
    np.testing.assert_array_equal(kept["w"], constants["w"])


def test_weights_of_four_bits_become_bytes(tmp_path: Path) -> None:
    nodes = [
        node("DequantizeLinear", ["w", "t"], ["wd"], axis=0, block_size=4),
        node("MatMul", ["x", "wd"], ["y"]),
    ]
    source = network([2, 8], nodes, {"t": np.full((2, 8), 0.1, np.float32)}, opset=21)
    bits = (integers(64) // 13).tolist()
    source.proto.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [8, 8], bits))
    assert operands(made(source, tmp_path).proto, "MatMul") == [BOTH]


DYNAMIC = """g (float[2, 8] x) => (y) {
  q, xs, xz = DynamicQuantizeLinear (x)
  i = MatMulInteger (q, w, xz)
  f = Cast <to = 1> (i)
  unit = Mul (xs, s)
  m = Mul (f, unit)
  r = Relu (m)
  y = MatMul (r, v)
}"""
LINEAR = """g (float[1, 4, 5, 5] x) => (y) {
  q = QuantizeLinear (x, s, z)
  c = QLinearConv (q, s, z, w, s, z, s, z)
  d = DequantizeLinear (c, s, z)
  g = Sigmoid (d)
  y = Conv (g, v)
}"""
TRANSPOSED = """g (float[1, 4, 6, 6] x) => (y)
{ a = Conv (x, w) y = ConvTranspose <group = 2, strides = [2, 2]> (a, v, b) }"""
GEMM = "g (float[3, 8] x) => (y) { y = Gemm (x, w, b) }"


@pytest.mark.parametrize(
    ("text", "kind", "constants"),
    [
        pytest.param(DYNAMIC, "MatMul", {"w": integers(8, 8), "v": reals(8, 4), **CODE},
                     id="beside dynamically quantized ones"),
        pytest.param(LINEAR, "Conv", {"w": integers(4, 4, 1, 1), "v": reals(4, 4, 1, 1), **CODE},
                     id="beside integer operators"),
        pytest.param(TRANSPOSED, "ConvTranspose",
                     {"w": reals(4, 4, 3, 3), "v": reals(4, 3, 2, 2), "b": reals(6)},
                     id="transposed, in groups, with a bias"),
        *(pytest.param(GEMM, "Gemm", {"w": reals(8, 8), "b": reals(*shape) + 1},
                       id=f"with a bias of {shape}")
          for shape in ((), (1,), (1, 8), (1, 1))),
    ],
)  # fmt: skip
def test_a_product_is_quantized(
    tmp_path: Path, text: str, kind: str, constants: Mapping[str, ArrayLike]
) -> None:
    source = SourceModel("net", net(text, **constants))
    result = made(source, tmp_path)
    assert operands(result.proto, kind) == [BOTH]
    assert operands(result.proto, "Mul") == operands(source.proto, "Mul")
    assert "left float" not in result.note


RESIZED = """g (float[1, 4, 5, 5] x) => (y) {{
  a = {0}
  b = Resize <mode = "linear"> (a, , t)
  c = Transpose <perm = [0, 1, 3, 2]> (b)
  {1}
}}"""


@pytest.mark.parametrize(
    ("made_by", "read_by", "maker"),
    [
        ("Identity (x)", "y = Conv (c, w)", "DequantizeLinear"),
        ("Sigmoid (x)", "y = Conv (c, w)", "DequantizeLinear"),
        ("Sigmoid (x)", "d = Conv (c, w) e = Sigmoid (c) y = Add (d, e)", "Sigmoid"),
        ("Sigmoid (x)", "d = Conv (a, w) y = Sigmoid (c)", "DequantizeLinear"),
        ("Sigmoid (x)", "y = Sigmoid (c)", "Sigmoid"),
    ],
)
def test_what_integers_are_made_of_is_interpolated_as_integers(
    tmp_path: Path, made_by: str, read_by: str, maker: str
) -> None:
    """Also where nothing in front of it is quantized; where somebody reads floats, it stays as it
    is made."""
    constants = {"w": reals(4, 4, 1, 1), "t": np.array([1, 1, 2, 2], np.float32)}
    result = quantize(
        SourceModel("net", net(RESIZED.format(made_by, read_by), **constants)), None, tmp_path
    )
    assert operands(result.proto, "Resize")[0][0] == maker


def test_sixteen_bit_networks_are_widened_first(tmp_path: Path) -> None:
    source = network([2, 8], [node("MatMul", ["x", "w"], ["y"])], {"w": reals(8, 4)})
    graph = source.proto.graph
    half = numpy_helper.to_array(graph.initializer[0]).astype(np.float16)
    graph.initializer[0].CopyFrom(numpy_helper.from_array(half, "w"))
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    result = quantize(source, None, tmp_path)
    assert operands(result.proto, "MatMul") == [BOTH]
    assert "16-bit floats made float32" in result.note


def test_an_old_file_may_keep_weights_apart_from_its_inputs(tmp_path: Path) -> None:
    """Which the first version of the format did not know, and ONNX's converter does not take."""
    source = network([3, 8], [node("MatMul", ["x", "w"], ["y"])], {"w": reals(8, 8)})
    source.proto.ir_version = 3
    source.proto.opset_import[0].version = 7
    result = quantize(source, None, tmp_path).proto
    assert operands(result, "MatMul") == [BOTH] and result.opset_import[0].version >= 13
    feeds = sample_inputs(source.proto, 9)
    want, got = (run_reference(proto, feeds)["y"] for proto in (source.proto, result))
    assert np.corrcoef(want.ravel(), got.ravel())[0, 1] > 0.99


@pytest.mark.parametrize(
    ("given", "weight", "left", "axis"),
    [([2, 8], (3, 8, 5), False, 2), ([8, 6], (4, 8), True, 0), ([2, 8], (8, 5), False, 1)],
)
def test_scales_of_a_products_weights_lie_along_its_outputs(
    tmp_path: Path, given: list[int], weight: tuple[int, ...], left: bool, axis: int
) -> None:
    """Also those of a stack of weights, as of experts, and of weights on the left."""
    nodes = [node("MatMul", ["w", "x"] if left else ["x", "w"], ["y"])]
    result = made(network(given, nodes, {"w": reals(*weight)}), tmp_path)
    (scales,) = (n for n in result.proto.graph.node if n.input[0] == "w_quantized")
    assert [a.i for a in scales.attribute if a.name == "axis"] == [axis]


def test_an_operator_that_cannot_be_quantized_stays_float(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Gemm", ["a", "v", "b"], ["g"], name="rows"),
        node("MatMul", ["g", "u"], ["y"]),
    ]
    weights = {"w": reals(8, 6), "v": reals(6, 5), "b": reals(3, 5), "u": reals(5, 8)}
    source = network([3, 8], nodes, weights)
    result = made(source, tmp_path)
    assert operands(result.proto, "MatMul") == [BOTH] * 2
    assert operands(result.proto, "Gemm") == [["MatMul", "v"]]
    assert "left float, as it cannot be quantized: Gemm 'rows' (" in result.note
    assert quantize(source, None, tmp_path).note == result.note  # from the cache


def test_scales_are_those_of_static_quantization(tmp_path: Path) -> None:
    """Ranges are observed first, and handed to the quantizer: in one step it finds the same."""
    source = network(
        [1, 4, 6, 6],
        [
            node("Conv", ["x", "w"], ["c"]),
            node("Relu", ["c"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]),
            node("Conv", ["p", "w"], ["y"]),
        ],
        {"w": reals(4, 4, 2, 2)},
    )
    path = tmp_path / "static.onnx"
    samples = iter([*sample_sets(source.proto, range(4)), None])
    quantize_static(
        source.proto, path, SimpleNamespace(get_next=samples.__next__), per_channel=True,
        activation_type=QuantType.QInt8, extra_options={"WeightSymmetric": True},
    )  # fmt: skip
    static, ours = (
        {t.name: numpy_helper.to_array(t).tolist() for t in proto.graph.initializer}
        for proto in (onnx.load(path), made(source, tmp_path).proto)
    )
    names = [name for name in static if name.endswith(("_scale", "_zero_point"))]
    assert names and {name: ours.get(name) for name in names} == {n: static[n] for n in names}


class Fragile:
    """Quantizes until it meets one of some nodes; counts its attempts."""

    def __init__(self, *bad: str) -> None:
        self.bad, self.calls, self.real = set(bad), 0, recipe.LinearQuantizer

    def __call__(self, proto: onnx.ModelProto, **more: Any) -> Any:
        self.calls += 1
        names = {each.name for each in proto.graph.node}
        assert not (self.bad & names) - set(more["nodes_to_exclude"]), "Graph is not a DAG"
        return self.real(proto, **more)


def chain(length: int) -> SourceModel:
    nodes = [
        node("MatMul", [f"v{i}" if i else "x", "w"], [f"v{i + 1}"], name=f"n{i}")
        for i in range(length - 1)
    ]
    nodes.append(node("MatMul", [f"v{length - 1}", "w"], ["y"], name=f"n{length - 1}"))
    return network([2, 4], nodes, {"w": reals(4, 4)})


def test_failing_operators_are_found_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragile = Fragile("n2", "n6")
    monkeypatch.setattr(recipe, "LinearQuantizer", fragile)
    note = quantize(chain(8), None, tmp_path).note
    reason = "(AssertionError: Graph is not a DAG)"
    assert note.endswith(f"MatMul 'n2' {reason}, MatMul 'n6' {reason}")
    assert fragile.calls < 16


def test_shapes_that_depend_on_data_are_refused_before_anything_is_calibrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "observed", None)
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Cast", ["places"], ["real"], to=TensorProto.FLOAT),
        node("Transpose", ["real"], ["rows"]),
        node("MatMul", ["rows", "w"], ["y"]),
    ]
    source = network([4, 8], nodes, {"w": reals(2, 8)})
    with pytest.raises(UnsupportedModel, match="have no static shape"):
        quantize(source, None, tmp_path)


def floats(note: str) -> list[str]:
    """What a note says of operators that stay float."""
    return note.split("left float, as it cannot be quantized: ")[1].split("), ")


def scales(proto: onnx.ModelProto) -> list[np.ndarray]:
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    codes = (n for n in proto.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear"))
    return [numpy_helper.to_array(constants[code.input[1]]) for code in codes]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_weights_without_a_scale_stay_float_and_are_named(tmp_path: Path, bad: float) -> None:
    weight = reals(4, 4)
    weight[1, 2] = bad
    nodes = [node("MatMul", ["x", "v"], ["a"]), node("MatMul", ["a", "w"], ["y"], name="product")]
    source = network([2, 4], nodes, {"v": reals(4, 4), "w": weight})
    result = quantize(source, None, tmp_path)
    (said,) = floats(result.note)
    assert said.startswith("MatMul 'product' (its constant 'w' has values that are not finite")
    assert operands(result.proto, "MatMul")[0] == BOTH
    assert np.isfinite(np.concatenate([scale.ravel() for scale in scales(result.proto)])).all()


@pytest.mark.parametrize("fill", [-np.inf, np.inf])
def test_infinite_padding_keeps_what_reads_it_float(tmp_path: Path, fill: float) -> None:
    nodes = [
        node("Pad", ["x", "pads", "fill"], ["p"], name="frame"),
        node("MaxPool", ["p"], ["m"], name="largest", kernel_shape=[3, 3], strides=[3, 3]),
        node("Conv", ["x", "w"], ["c"]),
        node("Add", ["c", "m"], ["y"], name="sum"),
    ]
    pads = np.array([0, 0, 0, 0, 0, 0, 4, 4])
    weights = {"pads": pads, "fill": np.float32(fill), "w": reals(4, 4, 3, 3)}
    result = quantize(network([1, 4, 5, 5], nodes, weights), None, tmp_path)
    unread = ["Pad 'frame' ('p'", "MaxPool 'largest' ('p'"]
    above = ["Add 'sum' ('m'"]  # the largest of nothing but padding
    assert [said.split(" has")[0] for said in floats(result.note)] == unread + above
    assert operands(result.proto, "Conv") == [BOTH]
    assert np.isfinite(np.concatenate([scale.ravel() for scale in scales(result.proto)])).all()


def test_undefined_values_of_samples_keep_their_readers_float(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Log", ["a"], ["l"]),  # of negative values too
        node("Relu", ["l"], ["r"], name="after"),
        node("Add", ["r", "a"], ["y"], name="sum"),
    ]
    result = quantize(network([4, 8], nodes, {"w": reals(8, 8)}), None, tmp_path)
    assert [said.split(" has")[0] for said in floats(result.note)] == [
        "Relu 'after' ('l'",
        "Add 'sum' ('r'",
    ]
    assert operands(result.proto, "MatMul") == [BOTH]


def test_nothing_is_printed_or_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    source = network(
        [3, 8], [node("Gemm", ["x", "w", "b"], ["y"])], {"w": reals(8, 8), "b": np.float32(1)}
    )
    source.proto.graph.initializer.append(numpy_helper.from_array(reals(2000), "unused"))
    failing = chain(12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantize(source, None, tmp_path)
        monkeypatch.setattr(recipe, "LinearQuantizer", Fragile(*(f"n{i}" for i in range(12))))
        with pytest.raises(ModelError, match="Graph is not a DAG"):
            quantize(failing, None, tmp_path)
    assert not list(scratch.iterdir())
    assert capfd.readouterr() == ("", "")
