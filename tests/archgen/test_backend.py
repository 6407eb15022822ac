"""archgen as a backend of ONNX: its own tests run on machines, parameters are compiled in."""

from __future__ import annotations

import re
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.test import BackendTest

from archgen import backend, simulate
from archgen.check.reference import run_reference
from archgen.extensions import activate, extension
from archgen.models.load import ModelError
from archgen.schema import ArchError
from archgen.studies.sweep import study
from compiler.api import UnsupportedModel

SAMPLE = (
    "relu", "reshape_reordered_all_dims", "slice_neg", "clip", "resize_upsample_scales_nearest",
    "range_int32_type_negative_delta", "castlike_FLOAT_to_FLOAT16",
    "reduce_sum_empty_axes_input_noop", "constantofshape_float_ones", "basic_conv_with_padding",
    "softmax_axis_1", "gather_0", "flexattention", "causal_conv_with_state_kernel_size_one",
    "cast_FLOAT_to_INT4", "castlike_no_saturate_FLOAT_to_FLOAT8E4M3FN",
    "dequantizelinear_float4e2m1", "cast_UINT2_to_FLOAT", "max_int16",
    "range_float_type_positive_delta_expanded", "top_k_smallest", "batchnorm_example",
    "constant_pad_axes", "dropout_default_ratio",
)  # fmt: skip


def failures(tests: BackendTest, names: tuple[str, ...]) -> list[str]:
    """What goes wrong in the node tests called `names`."""
    suite = unittest.TestSuite()
    cases = tests.test_cases["OnnxBackendNodeModelTest"]
    suite.addTests(cases(f"test_{name}_cpu") for name in names)
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun == len(names) and not result.skipped
    return [f"{case}: {text}" for case, text in (*result.failures, *result.errors)]


def test_onnx_runs_its_tests() -> None:
    assert failures(BackendTest(backend, __name__), SAMPLE) == []


def net(op: str, *inputs: tuple[str, int, list[Any]], **attributes: Any) -> onnx.ModelProto:
    """y = op(inputs), each given as name, element type and shape."""
    ports = [helper.make_tensor_value_info(*each) for each in inputs]
    node = helper.make_node(op, [port.name for port in ports], ["y"], **attributes)
    graph = helper.make_graph(
        [node], "net", ports, [helper.make_tensor_value_info("y", inputs[0][1], None)]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


X = np.arange(12, dtype=np.float32).reshape(3, 4)
RESHAPE = net("Reshape", ("x", TensorProto.FLOAT, ["a", "b"]), ("shape", TensorProto.INT64, [2]))


def test_a_shape_that_is_an_input_is_compiled_in_for_each_of_its_values() -> None:
    made = backend.prepare(RESHAPE)
    for shape in ([2, 6], [6, 2], [2, 6]):
        outputs = made.run([X, np.array(shape)])
        assert outputs["y"].shape == tuple(shape)
        assert (outputs[0].ravel() == X.ravel()).all()
    one, other = (made.program([X, np.array(shape)]) for shape in ([2, 6], [6, 2]))
    assert made.program({"shape": np.array([2, 6]), "x": X + 1}) is one is not other
    assert [port.name for port in one.inputs] == ["x"]


def test_data_are_no_parameters() -> None:
    made = backend.prepare(net("Relu", ("x", TensorProto.FLOAT, [4])))
    first = made.program(X[0])
    assert made.program(X[1]) is first
    assert [port.name for port in first.inputs] == ["x"]


def test_on_a_machine_of_a_name_in_a_type_of_its_own() -> None:
    made = backend.on("neuroncore-v2-like", dtype="fp16").prepare(
        net("Exp", ("x", TensorProto.FLOAT, [3, 4]))
    )
    got = made.run(X)[0]
    assert got.dtype == np.float32
    assert np.allclose(got, np.exp(X), rtol=2**-9)
    assert (got == got.astype(np.float16)).all()
    assert simulate(made.program(X), made.arch).cycles > 0


def test_devices_are_architectures() -> None:
    assert backend.supports_device("CPU")
    assert backend.supports_device("ascend-310-like")
    assert not backend.supports_device("CUDA")
    relu = net("Relu", ("x", TensorProto.FLOAT, [3, 4]))
    assert backend.prepare(relu, "ascend-310-like").arch.name == "ascend-310-like"
    with pytest.raises(ArchError, match="no such file"):
        backend.prepare(relu, "CUDA")


def test_a_node_alone() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=1)
    (got,) = backend.run_node(node, [X, np.array([3, 0])], opset_version=13)
    assert (got == X[:, [3, 0]]).all()


def test_what_is_wrong_with_inputs_is_said_at_once() -> None:
    made = backend.prepare(RESHAPE)
    with pytest.raises(ModelError) as wrong:
        made.run([X.astype(np.float64), np.array([[3, 4]])])
    assert str(wrong.value) == (
        "input 'x' has elements of float64, expected float32\n"
        "input 'shape' has shape [1, 2], expected [2]"
    )
    with pytest.raises(ModelError, match="1 inputs are given; the model has 2: x, shape"):
        made.run([X])


def test_what_no_machine_runs_is_not_compatible() -> None:
    unknown = net("Relu", ("x", TensorProto.FLOAT, [4]))
    unknown.graph.node[0].domain = "com.acme"
    assert not backend.is_compatible(unknown)
    assert backend.is_compatible(RESHAPE)
    with pytest.raises(UnsupportedModel, match=r"com\.acme\.Relu"):
        backend.prepare(unknown)


def test_a_contradiction_is_no_parameter() -> None:
    add = net("Add", ("x", TensorProto.FLOAT, [3]), ("b", TensorProto.FLOAT, [4]))
    with pytest.raises(UnsupportedModel, match="Add"):
        backend.run_model(add, [np.ones(3, np.float32), np.ones(4, np.float32)])


# Operators of a user's own: compiled, verified against their references, refused in words.

pytestmark = pytest.mark.usefixtures("own_cache")
MACHINE = "tpu-v3-like"
GELU = """
from archgen.op import rewrite

@rewrite("my.domain", "MyGelu"{more})
def my_gelu({parameters}):
    return {result}
"""
PLAIN = "b, x, *, alpha=1.702"
BODY = "x * b.Sigmoid(x * alpha)"


NETWORK = """<ir_version: 9, opset_import: ["" : 17, "my.domain" : 1]>
  net (float[1, 64] x) => (float[1, 64] z) {
    r = Relu (x)
    [g] y = my.domain.MyGelu <alpha = 2.0> (r)
    n = Neg (y)
    z = Exp (n) }"""


def network(folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(onnx.parser.parse_model(NETWORK), path)
    return path


def written(
    folder: Path, parameters: str = PLAIN, result: str = BODY, more: str = "", before: str = ""
) -> Path:
    path = folder / "ops.py"
    text = GELU.format(parameters=parameters, result=result, more=more)
    path.write_text(before + text)
    return path


def found(model: Path, path: Path) -> dict[str, object]:
    """The row of a study of one point."""
    made = study([MACHINE], [model], effort=[0], plots=False, extensions=[path], jobs=1)
    return dict(made.frame.iloc[0])


def test_a_rewrite_is_compiled_and_compared_with_its_body(tmp_path: Path) -> None:
    row = found(network(tmp_path), written(tmp_path))
    assert (row["status"], row["verified"], row["host_ops"]) == ("ok", True, 0)
    assert row["compared"] == 4  # what the operator reads and makes is among them


def test_the_reference_is_the_body_with_the_attributes_of_the_node(tmp_path: Path) -> None:
    activate((extension(written(tmp_path)),))
    x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(1, 64)
    made = run_reference(onnx.load(network(tmp_path)), {"x": x}, ["y"])
    r = np.maximum(x, 0)
    assert np.allclose(made["y"], r / (1 + np.exp(-2 * r)), atol=1e-6)
    assert np.allclose(made["z"], np.exp(-made["y"]))
    activate(())


RIGHT = "lambda x, alpha: x / (1 + np.exp(-alpha * x))"


@pytest.mark.parametrize(
    ("reference", "verified"), [(RIGHT, True), ("lambda x, alpha: x * np.float64(0.9)", False)]
)
def test_a_reference_in_numpy_is_what_results_are_compared_with(
    tmp_path: Path, reference: str, *, verified: bool
) -> None:
    more = f", reference={reference}"
    row = found(network(tmp_path), written(tmp_path, more=more, before="import numpy as np\n"))
    assert (row["status"], row["verified"]) == ("ok", verified)


@pytest.mark.parametrize(
    ("parameters", "result", "more", "said"),
    [
        ("b, x, *, beta=1.0", "x", "", r"\(my.domain.MyGelu\): has no attribute 'alpha'; its "
         r"attributes: beta \(defined at .*ops.py:4\)"),
        ("b, x, y, *, alpha=1.0", "x", "", r"takes 2 inputs, the node has 1"),
        ("b, x, *, alpha='none'", "x", "", r"attribute 'alpha' is 2.0, expected one like 'none'"),
        ("b, x, *, alpha, beta", "x", "", r"attribute 'beta' is missing, which has to be given"),
        (PLAIN, "alpha", "", r"its function gives 'float', expected what the builder made"),
        (PLAIN, "()", "", r"its function gives 0 of 1 outputs"),
        (PLAIN, "b.Sigmoid(x, x)", "", r"ops.py:6, in my_gelu, failed on node 'g' "
         r"\(my.domain.MyGelu\): ValueError: Sigmoid takes 1 inputs, here are 2"),
        (PLAIN, "b.Sigmiod(x)", "", "ONNX has no operator 'Sigmiod'"),
        (PLAIN, "b.sigmoid(x)", "", "a builder has no 'sigmoid'; operators are spelled as in ONNX"),
        (PLAIN, "b.MatMul(x, x)", "", "failed on node 'g'.*Incompatible dimensions"),
        (PLAIN, "{}[x]", "", "ops.py:6, in my_gelu, failed on node 'g'.*KeyError"),
        (PLAIN, BODY, ", reference=lambda x, alpha: x[0]",
         r"the reference gives \[64\], the body \[1, 64\]"),
        (PLAIN, BODY, ", reference=lambda x: x", "its reference failed: TypeError: .* 'alpha'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_operator_is_said_in_words(
    tmp_path: Path, parameters: str, result: str, more: str, said: str
) -> None:
    row = found(network(tmp_path), written(tmp_path, parameters, result, more))
    assert row["status"] in ("failed", "unsupported")
    assert re.search(said, str(row["reason"])), row["reason"]
