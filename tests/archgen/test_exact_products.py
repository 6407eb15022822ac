"""Products of bytes are added up without loss, also where ONNX Runtime's kernels saturate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from archgen.check.exact_products import with_exact_products
from archgen.check.reference import run_node, run_reference
from archgen.models.load import ModelError
from simmodel.errors import NoPayload

Array = NDArray[Any]
LEFT = np.full((2, 4), 255, np.uint8)
RIGHT = np.full((4, 2), 127, np.int8)
SUMS = LEFT.astype(int) @ RIGHT.astype(int)
ONE = np.float32(1)


def model(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> onnx.ModelProto:
    """A network of `node` alone, with an input for each of `feeds`."""
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=node.output[0])])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=imports)


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
    proto = model(helper.make_node(operator, reads, ["y"], domain=domain), feeds)
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
    assert np.array_equal(run_reference(model(node, feeds), feeds)["y"], SUMS)


def test_what_cannot_saturate_is_left_alone() -> None:
    feeds = {"a": LEFT, "b": RIGHT.view(np.uint8)}
    proto = model(helper.make_node("MatMulInteger", ["a", "b"], ["y"]), feeds)
    assert [node.op_type for node in with_exact_products(proto).graph.node] == ["MatMulInteger"]


@pytest.mark.parametrize("operator", ["MatMulInteger", "QGemm"])
def test_what_is_wrong_is_left_to_onnx_runtime(operator: str) -> None:
    domain = "" if onnx.defs.has(operator) else "com.microsoft"
    proto = model(helper.make_node(operator, ["a"], ["y"], domain=domain), {"a": LEFT})
    with pytest.raises(ModelError, match="ONNX Runtime cannot run"):
        run_reference(proto, {"a": LEFT})
    with pytest.raises(NoPayload, match="no model for ONNX Runtime"):
        run_node(b"\xff" + operator.encode(), [LEFT])
