"""archgen as a backend of ONNX: its own tests run on machines, parameters are compiled in."""

from __future__ import annotations

import unittest
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.test import BackendTest

from archgen import backend, simulate
from archgen.models.load import ModelError
from archgen.schema import ArchError
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


@cache
def onnx_tests(chosen: Any) -> BackendTest:
    return BackendTest(chosen, __name__)


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
    assert failures(onnx_tests(backend), SAMPLE) == []


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
