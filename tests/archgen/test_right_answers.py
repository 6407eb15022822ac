"""Small models whose answers are ONNX Runtime's where libraries differ or types end.

What lies beyond an element type is not judged where nobody says what becomes of it, and named: real
values converted to integers that are too small, doubles that are no fp32 numbers.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from role_nets import net

from archgen.check.quantizer_input import widened_but_for_casts
from archgen.check.reference import run_reference
from archgen.check.verify import Comparison, with_losses
from archgen.outcomes.points import Point, Row
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD

pytestmark = pytest.mark.usefixtures("own_cache")


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
    right(tmp_path, net(MODELS[name], 21))


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
    right(tmp_path, net(text, 21), "fp16")


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
    random = np.random.default_rng(0)
    shapes = {"w": (1, 64, 16), "r": (1, 64, 16), "v": (32, 16)}
    weights = {n: random.normal(0, 0.3, s).astype(np.float32) for n, s in shapes.items()}
    right(tmp_path, net(text, 21, **weights), "fp16")


def test_a_call_of_two_nodes_to_the_host_makes_the_values_of_one(tmp_path: Path) -> None:
    """Bytes that the host quantizes, and its cast of their zero point for the product behind."""
    text = """
      net (float[8, 32, 1] x) => (int32[8, 32, 4] y) <int8[1, 4] w = {65, 34, -97, 13}> {
        q, scale, zero = DynamicQuantizeLinear (x)
        y = MatMulInteger (q, w, zero)
      }"""
    own = machine("fp16").replace("uint8, ", "").replace("{fp16: 1}", "{fp16: 1, int8: 1}")
    right(tmp_path, net(text, 21), "fp16", own)


# Beyond a type.


FEW = np.arange(64) < 8
CUT = "net (float[1, 64] x) => ({0}[1, 64] y) {{ m = {1} (x, c) [cut] y = Cast <to = {2}> (m) }}"
SCALED = "net ({0}[1, 64] x) => ({0}[1, 64] y) {{ y = {1} (x, c) }}"
THERE_AND_BACK = "net (double[1, 64] x) => (double[1, 64] a, double[1, 64] y)"
DOUBLES = "64 values are beyond fp32, in which doubles are computed"
BEYOND: dict[str, tuple[str, ArrayLike, bool | None, tuple[str, ...]]] = {
    "some may become any byte": (
        CUT.format("int8", "Mul", 3), np.float32(100), True, ("values of cut are beyond int8",)),
    "nearly all may, and are not checked": (
        CUT.format("int8", "Mul", 3), np.float32(1e4), None, ("y: not checked",)),
    **{
        f"{wrong} may become any integer": (
            CUT.format("int32", "Add", 6), np.where(FEW, wrong, 0).astype(np.float32), True,
            ("8 of 64 values of cut are beyond int32",))
        for wrong in (np.inf, -np.inf, np.nan, 3e38)
    },
    "large integers are judged where their type holds them": (
        CUT.format("int64", "Mul", 7), np.float32(1e12), True, ()),
    "doubles beyond floats are not checked and named": (
        THERE_AND_BACK + "{ a = Mul (x, c) y = Div (a, c) }", np.float64(1e200), None,
        (DOUBLES, "c: 1e+200 is 3.4e+38 in fp32")),
    "doubles squared": (
        "net (double[1, 64] x) => (double[1, 64] y) { m = Mul (x, c) y = Mul (m, c) }",
        np.float64(1e30), None, ("64 of 64 values are beyond fp32",)),
    "a few doubles excuse no others": (
        SCALED.format("double", "Mul"), np.where(FEW, 1e60, 1.0), True,
        ("y: 8 of 64 values are beyond fp32",)),
    "doubles too small for floats are zero": (
        SCALED.format("double", "Mul"), np.float64(1e-60), True, ()),
    "above an infinite bound is the largest number": (
        SCALED.format("float", "Clip"), np.float32(np.inf), True, ()),
}  # fmt: skip
"""By what becomes of them: a network, its constant c, the verdict, and words of its note."""


@pytest.mark.parametrize("name", BEYOND)
def test_what_no_type_holds_is_judged_where_somebody_says_what_becomes_of_it(
    name: str, tmp_path: Path
) -> None:
    text, constant, verified, words = BEYOND[name]
    row = judged(tmp_path, net(text, 21, c=constant), "fp32", machine("fp32"))
    note = str(row["note"])
    assert row["verified"] is verified, note
    assert all(part in note for part in words), note
    assert "off by" not in note and (words or "beyond" not in note)


def test_bfloat16_products_without_a_kernel_are_made_float32(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(0, 0.1, (64, 64)).astype(ml_dtypes.bfloat16)
    text = """
      net (float[1, 64] x) => (float[1, 64] y)
      { h = Cast <to = 16> (x) m = MatMul (h, w) y = Cast <to = 1> (m) }"""
    row = judged(tmp_path, net(text, 21, w=weights), "fp32", machine("fp32"))
    assert row["verified"] is True, str(row["note"])
    assert "16-bit floats made float32" in str(row["note"])


def test_half_precision_between_casts_is_judged_as_half_precision(tmp_path: Path) -> None:
    """The reference rounds within a Gelu to what the model has there, also where inputs and outputs
    are float32."""
    text = """
      net (float[1, 64] x) => (float[1, 64] y) {
        h = Cast <to = 10> (x)
        d = Div (h, root)
        e = Erf (d)
        a = Add (e, one)
        m = Mul (h, a)
        g = Mul (m, half)
        n = Add (g, one)
        y = Cast <to = 1> (n)
      }"""
    halves = {"root": np.float16(2**0.5), "one": np.float16(1), "half": np.float16(0.5)}
    right(tmp_path, net(text, 21, **halves), "fp16", machine("fp16"))


@pytest.mark.parametrize("last", ["LayerNormalization (m, scale, bias)", "Gelu (m)"])
def test_half_precision_in_front_of_a_cast_is_judged_as_half_precision(
    last: str, tmp_path: Path
) -> None:
    """The cast becomes the store of the node before it, which still rounds as the model does."""
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    text = f"""
      net (float16[1, 64] x) => (float[1, 64] y)
      {{ m = MatMul (x, w) l = {last} y = Cast <to = 1> (l) }}"""
    more = {"scale": weights[0], "bias": weights[1]} if "scale" in last else {}
    right(tmp_path, net(text, 21, w=weights, **more), "fp16", machine("fp16"))


def test_casts_keep_their_roundings_where_the_rest_is_made_float32() -> None:
    proto = net(
        "g (float[8] x) => (float[8] y) { h = Cast <to = 16> (x) y = Cast <to = 1> (h) }", 21
    )
    feeds = {"x": np.linspace(0.1, 1, 8, dtype=np.float32)}
    (made,) = run_reference(widened_but_for_casts(proto), feeds).values()
    assert np.array_equal(made, feeds["x"].astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_wrong_output_is_not_also_unchecked() -> None:
    nothing = np.full(4, np.inf, np.float32)
    wrong = Comparison(False, note="y: off by 2, tolerance 0")
    assert with_losses(wrong, (), {"y": nothing}, {"y": np.zeros(4, np.float32)}) == wrong
    right = with_losses(Comparison(True), (), {"y": nothing}, {"y": np.zeros(4, np.float32)})
    assert right.verified is None
