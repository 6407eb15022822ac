"""16-bit floats become float32 wherever a model holds or names them, and the network stays."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from archgen.check.quantizer_input import widened
from archgen.check.reference import run_reference


def half_model(kind: int) -> onnx.ModelProto:
    """A weight, a Constant, a Cast and a branch of 16 bits."""
    x, c, y = (
        helper.make_tensor_value_info(name, elem, shape)
        for name, elem, shape in (("x", kind, [2]), ("c", TensorProto.BOOL, []), ("y", kind, [2]))
    )
    held = helper.make_tensor("", kind, [2], [0.5, 3.0])
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Constant", [], [name], value=held)],
            name,
            [],
            [helper.make_tensor_value_info(name, kind, [2])],
        )
        for name in ("then", "else")
    }
    nodes = [
        helper.make_node("Constant", [], ["k"], value=held),
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["wide"], ["narrow"], to=kind),
        helper.make_node("Mul", ["narrow", "w"], ["m"]),
        helper.make_node("Add", ["m", "k"], ["a"]),
        helper.make_node("If", ["c"], ["i"], **branches),
        helper.make_node("Sub", ["a", "i"], ["y"]),
    ]
    weight = helper.make_tensor("w", kind, [2], [1.25, -2.0])
    graph = helper.make_graph(nodes, "g", [x, c], [y], [weight])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_no_half_is_left_and_results_are_the_same(kind: int) -> None:
    model = half_model(kind)
    before = model.SerializeToString()
    wide = widened(model)
    onnx.checker.check_model(wide, full_check=True)
    feeds = {"x": np.array([0.5, 4.0], np.float32), "c": np.array(True)}
    np.testing.assert_array_equal(run_reference(wide, feeds)["y"], [0.625, -8.0])
    assert model.SerializeToString() == before


def test_a_float32_model_is_itself() -> None:
    model = widened(half_model(TensorProto.FLOAT16))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.int8), "unused"))
    assert widened(model) is model
