"""A model that casts to half precision itself is compared as it rounds, whatever memory holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from archgen.studies.sweep import study

WIDE = """
name: wide
clock: 1 GHz
types: [fp32]
memories: {dram: {size: 64 MiB, bandwidth: 4 GB/s}, local: {size: 64 KiB}}
matrix: {kind: cube, rows: 4, cols: 4, rate: {fp32: 1}}
vector: {lanes: 32}
copy:
  load: {from: [dram], to: [local], bandwidth: 64 B/cycle}
  store: {from: [local], to: [dram], bandwidth: 8 GB/s}
"""
"""Computes and keeps everything in fp32."""
NARROW = (
    WIDE.replace("types: [fp32]\n", "")
    .replace(", rate: {fp32: 1}", "")
    .replace("lanes: 32", "lanes: 32, types: [int8, fp16]")
)
"""Has no products of reals: the host computes them."""
HALF = WIDE.replace("fp32", "fp16").replace("lanes: 32", "lanes: 32, types: [fp16]")
"""Its vector engine cannot finish a sum: products with a Relu go to the host."""

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
    path = saved(tmp_path, nodes, {"w": weights}, 60, TensorProto.FLOAT, made=10)
    row = study([arch], [path], 4, dtype, effort=0).frame.iloc[0]
    assert row["status"] == "ok", row["reason"]
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
    path = saved(tmp_path, nodes, constants, 16, TensorProto.FLOAT)
    row = study(["ascend-310-like"], [path], 4, "fp16", effort=0).frame.iloc[0]
    assert row["verified"], row["note"]


def test_an_operator_starts_from_a_half_precision_value_that_memory_holds_wider(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["first"]),
        helper.make_node("Relu", ["first"], ["positive"]),
        helper.make_node("MatMul", ["positive", "w"], ["y"]),
    ]
    data = {name: rng.normal(0, 0.3, (48, 48)).astype(np.float16) for name in ("v", "w")}
    path = saved(tmp_path, nodes, data, 48, TensorProto.FLOAT16)
    arch = tmp_path / "wide.yaml"
    arch.write_text(WIDE)
    row = study([arch], [path], 4, "fp32", effort=0).frame.iloc[0]
    assert row["verified"], row["note"]


def test_the_host_may_read_a_value_in_front_of_its_dequantization(tmp_path: Path) -> None:
    # Stacked weights are not quantized: their product reads x as it was dequantized.
    rng = np.random.default_rng(0)
    data = {
        "v": rng.normal(0, 0.3, (1, 16, 16)).astype(np.float32), "shape": np.array([4, 16]),
        "w": rng.normal(0, 0.3, (16, 16)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["stack"]),
        helper.make_node("Reshape", ["stack", "shape"], ["other"]),
        helper.make_node("MatMul", ["x", "w"], ["one"]),
        helper.make_node("Sub", ["one", "other"], ["y"]),
    ]
    path = saved(tmp_path, nodes, data, 16, TensorProto.FLOAT)
    arch = tmp_path / "narrow.yaml"
    arch.write_text(NARROW)
    row = study([arch], [path], 4, "int8", effort=0).frame.iloc[0]
    assert row["verified"], row["note"]


def test_a_call_to_the_host_may_read_on_what_memory_rounds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = {name: rng.normal(0, 0.5, (16, 16)).astype(np.float32) for name in ("u", "v", "w")}
    nodes = [
        helper.make_node("Einsum", ["x", "u"], ["first"], equation="...j,jk->...k"),
        helper.make_node("Einsum", ["first", "v"], ["second"], equation="...j,jk->...k"),
        helper.make_node("Neg", ["second"], ["turned"]),
        helper.make_node("Add", ["turned", "first"], ["y"]),
    ]
    path = saved(tmp_path, nodes, data, 16, TensorProto.FLOAT)
    arch = tmp_path / "half.yaml"
    arch.write_text(HALF)
    row = study([arch], [path], 4, "fp16", effort=0).frame.iloc[0]
    assert row["host_ops"] > 0
    assert row["verified"], row["note"]


def saved(
    folder: Path,
    nodes: list[onnx.NodeProto],
    data: Mapping[str, Any],
    extent: int,
    kind: int,
    made: int | None = None,
) -> Path:
    """A model from x [4, extent] to y [4, made]."""
    x, y = (
        helper.make_tensor_value_info(name, kind, [4, size])
        for name, size in (("x", extent), ("y", made or extent))
    )
    constants = [numpy_helper.from_array(np.asarray(v), name) for name, v in data.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], constants)
    opset = helper.make_opsetid("", 21)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[opset]), folder / "net.onnx")
    return folder / "net.onnx"
