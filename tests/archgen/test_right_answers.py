"""Small models whose answers are ONNX Runtime's where libraries differ or types end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from archgen.studies.sweep import study

pytestmark = pytest.mark.usefixtures("own_cache")

WIDE = """
name: wide
clock: 1 GHz
types: [fp32]
memories: {dram: {size: 64 MiB, bandwidth: 4 GB/s}, local: {size: 64 KiB}}
matrix: {kind: cube, rows: 4, cols: 4, rate: {fp32: 1}}
vector: {lanes: 32, types: [fp32, int8, uint8, int32, fp16, bf16]}
copy:
  load: {from: [dram], to: [local], bandwidth: 64 B/cycle}
  store: {from: [local], to: [dram], bandwidth: 8 GB/s}
"""
"""Computes and keeps everything in fp32."""

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
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

HALF = WIDE.replace("fp32: 1", "fp16: 1").replace("types: [fp32]\n", "types: [fp16]\n")
"""Keeps what it computes in fp16."""


@pytest.mark.parametrize("name", MODELS)
def test_the_answer_is_that_of_the_reference(name: str, tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").write_text(WIDE)
    model = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(HEAD + MODELS[name]), model)
    row = study([tmp_path / "wide.yaml"], [model], 1, "fp32", effort=0).frame.iloc[0]
    assert row["status"] == "ok", row["reason"]
    assert row["verified"], row["note"]


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
    assert_right_in_half(tmp_path, HALF, parser.parse_model(HEAD + text))


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
    assert_right_in_half(tmp_path, HALF, model)


def test_a_call_of_two_nodes_to_the_host_makes_the_values_of_one(tmp_path: Path) -> None:
    """Bytes that the host quantizes, and its cast of their zero point for the product behind."""
    text = """
      net (float[8, 32, 1] x) => (int32[8, 32, 4] y) <int8[1, 4] w = {65, 34, -97, 13}> {
        q, scale, zero = DynamicQuantizeLinear (x)
        y = MatMulInteger (q, w, zero)
      }"""
    machine = HALF.replace("uint8, ", "").replace("{fp16: 1}", "{fp16: 1, int8: 1}")
    assert_right_in_half(tmp_path, machine, parser.parse_model(HEAD + text))


def assert_right_in_half(folder: Path, machine: str, model: onnx.ModelProto) -> None:
    (folder / "half.yaml").write_text(machine)
    onnx.save(model, folder / "net.onnx")
    done = study([folder / "half.yaml"], [folder / "net.onnx"], None, "fp16", effort=0)
    row = done.frame.iloc[0]
    assert row["status"] == "ok", row["reason"]
    assert row["verified"], row["note"]
