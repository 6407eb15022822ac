"""Small models whose answers are ONNX Runtime's where libraries differ or types end.

What lies beyond an element type is not judged where nobody says what becomes of it, and named: real
values converted to integers that are too small, doubles that are no fp32 numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper, parser

from archgen.check.quantizer_input import widened_but_for_casts
from archgen.check.reference import run_reference
from archgen.check.verify import Comparison, with_losses
from archgen.outcomes.points import Point, Row
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD

pytestmark = pytest.mark.usefixtures("own_cache")
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
node = helper.make_node


def machine(dtype: str, more: str = "") -> str:
    """Computes and keeps everything in `dtype`."""
    return f"""
name: wide
clock: 1 GHz
types: [{dtype}]
memories: {{dram: {{size: 64 MiB, bandwidth: 4 GB/s}}, local: {{size: 64 KiB}}}}
matrix: {{kind: cube, rows: 4, cols: 4, rate: {{{dtype}: 1}}}}
vector: {{lanes: 32, types: [fp32, int8, uint8, int32, fp16{more}]}}
copy:
  load: {{from: [dram], to: [local], bandwidth: 64 B/cycle}}
  store: {{from: [local], to: [dram], bandwidth: 8 GB/s}}
"""


def judged(folder: Path, model: onnx.ModelProto, dtype: str, text: str) -> Row:
    """What a study says of a model on a machine."""
    path, arch = folder / "net.onnx", folder / "wide.yaml"
    onnx.save(model, path)
    arch.write_text(text)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    point = Point("key", load_arch(arch), str(path), batch, dtype, scheduling=Scheduling(effort=0))
    row = Workbench(STANDARD).run(point).row
    assert row["status"] == "ok", row["reason"]
    return row


def right(folder: Path, model: onnx.ModelProto, dtype: str = "fp32", text: str = "") -> None:
    row = judged(folder, model, dtype, text or machine(dtype, ", bf16"))
    assert row["verified"] is True, row["note"]


MODELS = {
    "bytes wrap around": """
        net (uint8[1, 64] x, uint8[1, 64] w) => (uint8[1, 64] a, uint8[1, 64] b, uint8[1, 64] c)
        <uint8[1] half = {128}> {
          s = Sub (x, half)
          a = Add (s, w)
          b = Mul (x, w)
          c = Sub (x, w)
        }""",
    "words wrap around": """
        net (int32[1, 64] x) => (int32[1, 64] y)
        <int32[1] big = {2000000011}> { a = Mul (x, big) y = Add (a, big) }""",
    "casts drop bits": """
        net (int32[1, 64] x) => (int8[1, 64] y, uint8[1, 64] z)
        <int32[1] big = {77771}> {
          a = Mul (x, big) y = Cast <to = 3> (a) z = Cast <to = 2> (a)
        }""",
    "bytes are picked by a computed index": """
        net (int64[1, 5] at) => (int8[1, 5, 4] y)
        <int8[2, 4] table = {1, -2, 3, 127, -128, 5, 6, 7}> { y = Gather (table, at) }""",
    "a clip ends with its upper bound": """
        net (float[1, 64] x, float high) => (float[1, 64] y)
        <float low = {0.5}, float zero = {0.0}> { h = Mul (high, zero) y = Clip (x, low, h) }""",
    "corners of whole pixels": """
        net (float[1, 2, 8, 8] x) => (float[1, 2, n, n] y)
        <float[4] scales = {1.0, 1.0, 0.6, 1.7}> {
          y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners">
            (x, , scales)
        }""",
    "half precision twice": """
        net (float[1, 64] x) => (float[1, 64] y)
        { h = Cast <to = 10> (x) b = Cast <to = 16> (h) y = Cast <to = 1> (b) }""",
    "a value, and a view of it, read before it is stored": """
        net (float[1, 64] x) => (float[1, 64] y, float[64, 1] z) <int64[2] shape = {64, 1}> {
          t = Celu (x) y = Min (t, t) z = Reshape (t, shape)
        }""",
    "constants computed while compiling": """
        net (float[1, 8] x) => (float[1, 8] y, float[8, 8] table, float[8, 8] product)
        <float[8, 1] at = {0.1, 0.7, 1.3, 2.9, 3.1, 4.7, 5.3, 6.1},
         float[1, 8] rate = {1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003}> {
          angle = Mul (at, rate)
          table = Sin (angle)
          wave = Exp (angle)
          product = MatMul (wave, table)
          y = MatMul (x, product)
        }""",
}


@pytest.mark.parametrize("name", MODELS)
def test_the_answer_is_that_of_the_reference(name: str, tmp_path: Path) -> None:
    right(tmp_path, parser.parse_model(HEAD + MODELS[name]))


def test_a_part_of_a_concatenation_that_another_part_copies_is_as_it_was_stored(
    tmp_path: Path,
) -> None:
    """Angles of rotary positions: both halves lie in one buffer, and the first is read again."""
    text = """
      net (int64[1, 1] at) => (float[1, 8] y)
      <float[1, 4] rate = {1.0, 0.3, 0.1, 0.03}> {
        place = Cast <to = 1> (at)
        angle = Mul (place, rate)
        both = Concat <axis = 1> (angle, angle)
        y = Cos (both)
      }"""
    right(tmp_path, parser.parse_model(HEAD + text), "fp16")


def test_a_part_of_a_concatenation_is_a_value_of_the_model(tmp_path: Path) -> None:
    """A gate behind a recurrent layer, whose result lies in the concatenation beside the gate's
    other input, and is multiplied as it was stored."""
    text = """
      net (float[1, 1, 16] x, float[1, 1, 16] c) => (float[1, 1, 16] y)
      <int64[3] shape = {1, 1, 16}> {
        l = LSTM <hidden_size = 16> (x, w, r)
        a = Reshape (l, shape)
        both = Concat <axis = 2> (a, c)
        wide = MatMul (both, v)
        gate = Sigmoid (wide)
        y = Mul (gate, a)
      }"""
    model = parser.parse_model(HEAD + text)
    random = np.random.default_rng(0)
    shapes = {"w": (1, 64, 16), "r": (1, 64, 16), "v": (32, 16)}
    model.graph.initializer.extend(
        numpy_helper.from_array(random.normal(0, 0.3, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    )
    right(tmp_path, model, "fp16")


def test_a_call_of_two_nodes_to_the_host_makes_the_values_of_one(tmp_path: Path) -> None:
    """Bytes that the host quantizes, and its cast of their zero point for the product behind."""
    text = """
      net (float[8, 32, 1] x) => (int32[8, 32, 4] y) <int8[1, 4] w = {65, 34, -97, 13}> {
        q, scale, zero = DynamicQuantizeLinear (x)
        y = MatMulInteger (q, w, zero)
      }"""
    own = machine("fp16").replace("uint8, ", "").replace("{fp16: 1}", "{fp16: 1, int8: 1}")
    right(tmp_path, parser.parse_model(HEAD + text), "fp16", own)


# Beyond a type.


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
    model = helper.make_model(graph, ir_version=10, opset_imports=[opset])
    return judged(folder, model, dtype, machine(dtype))


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
