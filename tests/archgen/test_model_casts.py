"""A model that casts to half precision itself is compared as it rounds, whatever memory holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from archgen.sweep import study

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize(("arch", "dtype"), [("ascend-310-like", "fp16"), ("tpu-v3-like", "bf16")])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_product_behind_which_the_model_rounds_is_right(
    tmp_path: Path, arch: str, dtype: str, kind: int
) -> None:
    weights = np.random.default_rng(0).normal(0, 0.3, (60, 10)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["half"], to=kind),
        helper.make_node("Cast", ["half"], ["y"], to=TensorProto.FLOAT),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, size])
        for name, size in (("x", 60), ("y", 10))
    )
    graph = helper.make_graph(nodes, "net", [x], [y], [numpy_helper.from_array(weights, "w")])
    path = tmp_path / "net.onnx"
    onnx.save(
        helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), path
    )
    row = study([arch], [path], 4, dtype, effort=0).frame.iloc[0]
    assert row["verified"], row["note"]


def test_a_dequantized_value_may_be_read_before_and_behind_its_conversion(tmp_path: Path) -> None:
    # 0.3 times an integer is no fp16 number: the product reads it rounded, the sum as it was.
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(0, 0.3, (16, 16)).astype(np.float32),
        "scale": np.float32(0.3), "zero": np.int8(0),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["real"]),
        helper.make_node("MatMul", ["real", "w"], ["product"]),
        helper.make_node("Add", ["product", "real"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16]) for name in "xy")
    data = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    path = tmp_path / "net.onnx"
    made = helper.make_graph(nodes, "net", [x], [y], data)
    onnx.save(
        helper.make_model(made, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), path
    )
    row = study(["ascend-310-like"], [path], 4, "fp16", effort=0).frame.iloc[0]
    assert row["verified"], row["note"]
