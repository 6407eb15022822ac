"""Columns and frames: names, order, types, and the verdict on outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from archgen.columns import COLUMNS, column, ordered
from archgen.frame import save_frame, typed_frame
from archgen.stalls import STALLS
from archgen.verify import SAFETY, compare
from simmodel.dtype import EPSILON
from simmodel.trace import CAUSES


def test_names_are_unique_and_described() -> None:
    names = [known.name for known in COLUMNS]
    assert len(set(names)) == len(names)
    assert all(
        known.meaning and known.kind in ("text", "whole", "real", "truth", "any")
        for known in COLUMNS
    )


def test_families_match_their_members_alone() -> None:
    found = column("stall_front_end")
    assert found is not None
    assert found.name == "stall_<cause>"
    assert column("peak_local_bytes") is not column("stall_data")
    assert column("nonsense") is None


def test_columns_come_in_the_order_of_their_definitions() -> None:
    names = ordered(["stall_store", "stall_data", "arch"])
    assert names[0] == "arch"
    assert names.index("stall_data") == names.index("stall_store") + 1
    assert "latency_cycles" in names
    assert "peak_<memory>_bytes" not in names
    with pytest.raises(KeyError, match="nonsense"):
        ordered(["nonsense"])


def test_missing_values_keep_types(tmp_path: Path) -> None:
    rows = [{"arch": "a", "latency_cycles": 2**53 + 1, "verified": True}, {"arch": "b"}]
    frame = typed_frame(rows, COLUMNS)
    assert frame["latency_cycles"][0] == 2**53 + 1
    assert frame["latency_cycles"].isna().tolist() == [False, True]
    save_frame(frame, tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "results.parquet"), frame)


def test_every_cause_of_stalls_is_explained() -> None:
    assert tuple(STALLS) == CAUSES


# Verification.


def chain(
    layers: int, quantized_tail: float | None = None, softmax: bool = False
) -> onnx.ModelProto:
    """x through `layers` MatMuls of 16 products to y."""
    weights = numpy_helper.from_array(np.ones((16, 16), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", [f"v{i}" if i else "x", "w"], [f"v{i + 1}"])
        for i in range(layers)
    ]
    initializers, last = [weights], f"v{layers}"
    if quantized_tail is not None:
        initializers.append(numpy_helper.from_array(np.float32(quantized_tail), "s"))
        nodes.append(helper.make_node("QuantizeLinear", [last, "s"], ["q"]))
        nodes.append(helper.make_node("DequantizeLinear", ["q", "s"], ["d"]))
        last = "d"
    if softmax:
        nodes.append(helper.make_node("Softmax", [last], ["p"]))
        last = "p"
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 16]) for n in ("x", "y")]
    return helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], initializers))


REFERENCE = {"y": np.linspace(-1, 1, 16, dtype=np.float32)}


def off_by(error: float) -> dict[str, np.ndarray]:
    actual = REFERENCE["y"].copy()
    actual[3] += error
    return {"y": actual}


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_float_tolerance_follows_from_the_format(dtype: str) -> None:
    bound = SAFETY * (EPSILON[dtype] + 4 * EPSILON["fp32"]) * 3
    model = chain(9)
    assert compare(off_by(0), REFERENCE, model, dtype).tolerance == pytest.approx(bound)
    assert compare(off_by(bound * 0.9), REFERENCE, model, dtype).verified is True
    assert compare(off_by(bound * 1.1), REFERENCE, model, dtype).verified is False


def test_quantized_outputs_may_differ_by_one_step() -> None:
    model = chain(2, quantized_tail=0.02)
    assert compare(off_by(0.02), REFERENCE, model, "int8").verified is True
    assert compare(off_by(0.04), REFERENCE, model, "int8").verified is False


def test_a_softmax_behind_quantization_scales_the_step() -> None:
    model = chain(1, quantized_tail=0.1, softmax=True)
    result = compare(off_by(0), REFERENCE, model, "int8")
    assert result.tolerance == pytest.approx(np.expm1(0.2), rel=1e-5)


def test_integers_may_differ_by_one() -> None:
    expected = {"y": np.arange(16)}
    assert compare({"y": np.arange(16) + 1}, expected, chain(1), "int8").verified is True
    assert compare({"y": np.arange(16) + 2}, expected, chain(1), "int8").verified is False


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_a_uniform_reference_proves_nothing(value: float) -> None:
    uniform = {"y": np.full(16, value, np.float32)}
    result = compare(uniform, uniform, chain(1), "fp32")
    assert result.verified is None
    assert "weak comparison" in result.note


@pytest.mark.parametrize("actual", [{}, {"y": np.zeros(4, np.float32)}])
def test_missing_outputs_and_other_shapes_are_wrong(actual: dict[str, np.ndarray]) -> None:
    assert compare(actual, REFERENCE, chain(1), "fp32").verified is False


def test_a_nan_is_wrong_unless_expected() -> None:
    assert compare(off_by(np.nan), REFERENCE, chain(1), "fp32").verified is False
    expected = off_by(np.nan)
    assert compare(off_by(np.nan), expected, chain(1), "fp32").verified is True
