"""What a host operator may be off by is measured: its constants are moved, and what moves then."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from archgen.check.reference import run_node
from compiler.numerics.host_error import tied
from compiler.tensor_ir.nest import Array


def payload(
    nodes: list[onnx.NodeProto], constants: dict[str, Array], result: int, shape: list[int]
) -> bytes:
    graph = helper.make_graph(
        nodes, "host", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, ir_version=10, opset_imports=imports).SerializeToString()


def test_an_integer_moves_where_its_scale_puts_it_on_a_tie() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])
    constants = {"scale": np.float32(0.5), "zero": np.int8(0)}
    code = payload([node], constants, TensorProto.INT8, [3])  # type: ignore[arg-type]
    (moved,) = tied(run_node, code, [np.array([1.0, 1.25, 1.4], np.float32)])
    assert moved.tolist() == [0, 1, 0]  # 2.5 may be 2 or 3


def test_ratios_of_extents_are_not_rounded() -> None:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")
    constants = {"scales": np.array([1, 1, 2, 2], np.float32)}
    code = payload([node], constants, TensorProto.FLOAT, [1, 1, 2, 2])
    (moved,) = tied(run_node, code, [np.ones((1, 1, 2, 2), np.float32)])
    assert moved.shape == (1, 1, 4, 4) and not moved.any()


def test_what_depends_on_a_threshold_may_be_anything() -> None:
    nodes = [
        helper.make_node("Greater", ["x", "limit"], ["large"]),
        helper.make_node("NonZero", ["large"], ["y"]),
    ]
    constants = {"limit": np.array(1, np.float32)}
    code = payload(nodes, constants, TensorProto.INT64, [3])
    (moved,) = tied(run_node, code, [np.array([0, 1, 2], np.float32)])
    assert np.isinf(moved).all()


def test_a_tie_behind_a_mean_moves_though_both_scales_round_alike() -> None:
    """Means of 2.25 and 2 over 4 steps of a half: 4.5 steps may be 4 or 5."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "half", "zero"], ["y"]),
    ]
    nodes.insert(0, helper.make_node("Cast", ["x"], ["q"], to=TensorProto.INT8))
    constants = {"scale": np.float32(0.1), "half": np.float32(0.05), "zero": np.int8(0)}
    code = payload(nodes, constants, TensorProto.INT8, [1, 2, 4, 1])  # type: ignore[arg-type]
    given = np.array([[1, 2, 3, 3], [1, 2, 3, 2]], np.float32).reshape(1, 2, 4, 1)
    (moved,) = tied(run_node, code, [given])
    assert moved.ravel().tolist() == [1, 0]
