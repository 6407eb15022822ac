"""What lies beyond an element type is not judged where nobody says what becomes of it, and named:
real values converted to integers that are too small, doubles that are no fp32 numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

from archgen.check.quantizer_input import widened, widened_but_for_casts
from archgen.check.reference import run_reference
from archgen.check.verify import Comparison, with_losses
from archgen.outcomes.points import Point, Row
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD

ARCH = """
name: wide
clock: 1 GHz
types: [fp32]
memories: {dram: {size: 64 MiB, bandwidth: 4 GB/s}, local: {size: 64 KiB}}
matrix: {kind: cube, rows: 4, cols: 4, rate: {fp32: 1}}
vector: {lanes: 32, types: [int8, uint8, int32, fp16, fp32]}
copy:
  load: {from: [dram], to: [local], bandwidth: 64 B/cycle}
  store: {from: [local], to: [dram], bandwidth: 8 GB/s}
"""
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE

pytestmark = pytest.mark.usefixtures("own_cache")
node = helper.make_node


def row_of(
    folder: Path,
    nodes: list[onnx.NodeProto],
    constants: Mapping[str, ArrayLike],
    kinds: Mapping[str, int],
    dtype: str = "fp32",
) -> Row:
    """What a study says of a model of 64 numbers: x among `kinds`, which has all inputs and
    outputs; on a machine of products in `dtype`."""
    ports = [helper.make_tensor_value_info(name, kind, [1, 64]) for name, kind in kinds.items()]
    data = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], data)
    opset = helper.make_opsetid("", 21)
    path, arch = folder / "net.onnx", folder / "wide.yaml"
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[opset]), path)
    arch.write_text(ARCH.replace("[fp32]", f"[{dtype}]").replace("{fp32:", f"{{{dtype}:"))
    point = Point("key", load_arch(arch), str(path), 1, dtype, scheduling=Scheduling(effort=0))
    row = Workbench(STANDARD).run(point).row
    assert row["status"] == "ok", row["reason"]
    return row


def test_values_beyond_an_integer_type_may_become_anything(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "c"], ["m"]), node("Cast", ["m"], ["y"], "cut", to=3)]
    mostly = row_of(tmp_path, nodes, {"c": np.float32(100)}, {"x": FLOAT, "y": TensorProto.INT8})
    assert mostly["verified"] is True, str(mostly["note"])
    assert "values of cut are beyond int8" in str(mostly["note"])
    least = row_of(tmp_path, nodes, {"c": np.float32(1e4)}, {"x": FLOAT, "y": TensorProto.INT8})
    assert least["verified"] is None
    assert "y: not checked" in str(least["note"])
    assert "off by" not in str(least["note"])


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan, 3e38])
def test_what_is_no_number_may_become_any_integer(tmp_path: Path, wrong: float) -> None:
    few = np.where(np.arange(64) < 8, wrong, 0).astype(np.float32)
    nodes = [node("Add", ["x", "c"], ["m"]), node("Cast", ["m"], ["y"], "cut", to=6)]
    row = row_of(tmp_path, nodes, {"c": few}, {"x": FLOAT, "y": TensorProto.INT32})
    assert row["verified"] is True, str(row["note"])
    assert "8 of 64 values of cut are beyond int32" in str(row["note"])


def test_large_integers_are_judged_where_their_type_holds_them(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "c"], ["m"]), node("Cast", ["m"], ["y"], to=TensorProto.INT64)]
    row = row_of(tmp_path, nodes, {"c": np.float32(1e12)}, {"x": FLOAT, "y": TensorProto.INT64})
    assert row["verified"] is True, str(row["note"])
    assert "beyond" not in str(row["note"])


def test_doubles_beyond_floats_are_not_checked_and_named(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "c"], ["a"]), node("Div", ["a", "c"], ["y"])]
    kinds = {"x": DOUBLE, "a": DOUBLE, "y": DOUBLE}
    row = row_of(tmp_path, nodes, {"c": np.float64(1e200)}, kinds)
    assert row["verified"] is None, str(row["note"])
    assert "64 values are beyond fp32, in which doubles are computed" in str(row["note"])
    assert "c: 1e+200 is 3.4e+38 in fp32" in str(row["note"])
    squared = [node("Mul", ["x", "c"], ["m"]), node("Mul", ["m", "c"], ["y"])]
    row = row_of(tmp_path, squared, {"c": np.float64(1e30)}, {"x": DOUBLE, "y": DOUBLE})
    assert row["verified"] is None, str(row["note"])
    assert "64 of 64 values are beyond fp32" in str(row["note"])


def test_a_few_doubles_beyond_floats_excuse_no_others(tmp_path: Path) -> None:
    few = np.where(np.arange(64) < 8, 1e60, 1.0)
    row = row_of(tmp_path, [node("Mul", ["x", "c"], ["y"])], {"c": few}, {"x": DOUBLE, "y": DOUBLE})
    assert row["verified"] is True, str(row["note"])
    assert "y: 8 of 64 values are beyond fp32" in str(row["note"])


def test_doubles_too_small_for_floats_are_zero(tmp_path: Path) -> None:
    small = {"c": np.float64(1e-60)}
    row = row_of(tmp_path, [node("Mul", ["x", "c"], ["y"])], small, {"x": DOUBLE, "y": DOUBLE})
    assert row["verified"] is not False, str(row["note"])


def test_above_an_infinite_bound_is_the_largest_number(tmp_path: Path) -> None:
    bound = {"c": np.float32(np.inf)}
    row = row_of(tmp_path, [node("Clip", ["x", "c"], ["y"])], bound, {"x": FLOAT, "y": FLOAT})
    assert row["verified"] is True, str(row["note"])


def test_bfloat16_products_without_a_kernel_are_made_float32(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(0, 0.1, (64, 64)).astype(ml_dtypes.bfloat16)
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
        node("MatMul", ["h", "w"], ["m"]),
        node("Cast", ["m"], ["y"], to=FLOAT),
    ]
    row = row_of(tmp_path, nodes, {"w": weights}, {"x": FLOAT, "y": FLOAT})
    assert row["verified"] is True, str(row["note"])
    assert "16-bit floats made float32" in str(row["note"])


def test_half_precision_between_casts_is_judged_as_half_precision(tmp_path: Path) -> None:
    """The reference rounds within a Gelu to what the model has there, also where inputs and outputs
    are float32."""
    halves = {"root": 2**0.5, "one": 1, "half": 0.5}
    constants = {name: np.float16(value) for name, value in halves.items()}
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        node("Div", ["h", "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["a"]),
        node("Mul", ["h", "a"], ["m"]),
        node("Mul", ["m", "half"], ["g"]),
        node("Add", ["g", "one"], ["n"]),
        node("Cast", ["n"], ["y"], to=FLOAT),
    ]
    row = row_of(tmp_path, nodes, constants, {"x": FLOAT, "y": FLOAT}, "fp16")
    assert row["verified"] is True, str(row["note"])


@pytest.mark.parametrize("last", ["LayerNormalization", "Gelu"])
def test_half_precision_in_front_of_a_cast_is_judged_as_half_precision(
    last: str, tmp_path: Path
) -> None:
    """The cast becomes the store of the node before it, which still rounds as the model does."""
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    more = ["scale", "bias"] if last == "LayerNormalization" else []
    constants = {"w": weights} | {name: weights[at] for at, name in enumerate(more)}
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node(last, ["m", *more], ["l"]),
        node("Cast", ["l"], ["y"], to=FLOAT),
    ]
    row = row_of(tmp_path, nodes, constants, {"x": TensorProto.FLOAT16, "y": FLOAT}, "fp16")
    assert row["verified"] is True, str(row["note"])


def test_casts_keep_their_roundings_where_the_rest_is_made_float32() -> None:
    port = [helper.make_tensor_value_info(name, FLOAT, [8]) for name in ("x", "y")]
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
        node("Cast", ["h"], ["y"], to=FLOAT),
    ]
    graph = helper.make_graph(nodes, "net", port[:1], port[1:])
    opset = helper.make_opsetid("", 21)
    proto = helper.make_model(graph, ir_version=10, opset_imports=[opset])
    feeds = {"x": np.linspace(0.1, 1, 8, dtype=np.float32)}
    (made,) = run_reference(widened_but_for_casts(proto), feeds).values()
    assert np.array_equal(made, feeds["x"].astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_wrong_output_is_not_also_unchecked() -> None:
    nothing = np.full(4, np.inf, np.float32)
    wrong = Comparison(False, note="y: off by 2, tolerance 0")
    assert with_losses(wrong, (), {"y": nothing}, {"y": np.zeros(4, np.float32)}) == wrong
    right = with_losses(Comparison(True), (), {"y": nothing}, {"y": np.zeros(4, np.float32)})
    assert right.verified is None


# 16-bit floats as float32.


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
