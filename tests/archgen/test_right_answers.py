"""Small models whose answers are ONNX Runtime's where libraries differ, types end or models cast.

A model that casts to half precision itself is compared as it rounds, whatever memory holds. What
lies beyond an element type is not judged where nobody says what becomes of it, and named: real
values converted to integers that are too small, doubles that are no fp32 numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import ArrayLike
from onnx import TensorProto
from role_nets import depth_net, net, row_of, saved

from archgen.check.quantizer_input import widened_but_for_casts
from archgen.check.reference import run_reference
from archgen.check.verify import Comparison, with_losses
from archgen.outcomes.points import Row
from archgen.schema import load_arch
from archgen.schema.load import shipped_folder

pytestmark = pytest.mark.usefixtures("own_cache")
Data = Mapping[str, ArrayLike]


def machine(dtype: str, vector: str = "fp32, int8, uint8, int32, fp16") -> str:
    """Computes and keeps everything in `dtype`."""
    return f"""
name: wide
clock: 1 GHz
types: [{dtype}]
memories: {{dram: {{size: 64 MiB, bandwidth: 4 GB/s}}, local: {{size: 64 KiB}}}}
matrix: {{kind: cube, rows: 4, cols: 4, rate: {{{dtype}: 1}}}}
vector: {{lanes: 32, types: [{vector}]}}
copy:
  load: {{from: [dram], to: [local], bandwidth: 64 B/cycle}}
  store: {{from: [local], to: [dram], bandwidth: 8 GB/s}}
"""


WIDE, HALF = (machine(dtype, "fp32, int8, uint8, int32, fp16, bf16") for dtype in ("fp32", "fp16"))
NARROW = machine("int8", "int8, fp16")
"""Has no products of reals: the host computes them."""
NO_SUMS = machine("fp16", "fp16")
"""Its vector engine cannot finish a sum: products with a Relu go to the host."""
BYTES = machine("fp16").replace("uint8, ", "").replace("{fp16: 1}", "{fp16: 1, int8: 1}")


def judged(folder: Path, text: str, data: Data, dtype: str, arch: str) -> Row:
    """What a study says of a model on a machine, given by name or as the text of its file."""
    file = folder / "machine.yaml"
    file.write_text(arch)
    path = saved(net(text, 21, **data), folder)
    row = row_of(path, str(file) if "\n" in arch else arch, dtype)
    assert row["status"] == "ok", row["reason"]
    return row


def normal(deviation: float, *shape: int, names: str = "w", kind: str = "f4") -> Data:
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, deviation, shape).astype(kind) for name in names}


PLAIN = {
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
"""Of fp32, without data."""
ROUNDED = """net (float[4, 60] x) => (float[4, 10] y)
{{ sum = MatMul (x, w) half = Cast <to = {}> (sum) y = Cast <to = 1> (half) }}"""
LAST_CAST = """net (float16[1, 64] x) => (float[1, 64] y)
{{ m = MatMul (x, w) l = {} y = Cast <to = 1> (l) }}"""
HALVES: Data = {"w": normal(1, 64, 64, kind="f2")["w"]}
RIGHT: dict[str, tuple[str, str, str, Data]] = {
    **{name: ("fp32", WIDE, text, {}) for name, text in PLAIN.items()},
    # Angles of rotary positions: both halves lie in one buffer, and the first is read again.
    "a part of a concatenation that another part copies is as it was stored": ("fp16", HALF, """
        net (int64[1, 1] at) => (float[1, 8] y) <float[1, 4] rate = {1.0, 0.3, 0.1, 0.03}> {
          place = Cast <to = 1> (at)
          angle = Mul (place, rate)
          both = Concat <axis = 1> (angle, angle)
          y = Cos (both)
        }""", {}),
    # A gate behind a recurrent layer, whose result lies in the concatenation beside the gate's
    # other input, and is multiplied as it was stored.
    "a part of a concatenation is a value of the model": ("fp16", HALF, """
        net (float[1, 1, 16] x, float[1, 1, 16] c) => (float[1, 1, 16] y)
        <int64[3] shape = {1, 1, 16}> {
          l = LSTM <hidden_size = 16> (x, w, r)
          a = Reshape (l, shape)
          both = Concat <axis = 2> (a, c)
          wide = MatMul (both, v)
          gate = Sigmoid (wide)
          y = Mul (gate, a)
        }""", {**normal(0.3, 1, 64, 16, names="wr"), **normal(0.3, 32, 16, names="v")}),
    # Bytes that the host quantizes, and its cast of their zero point for the product behind.
    "a call of two nodes to the host makes the values of one": ("fp16", BYTES, """
        net (float[8, 32, 1] x) => (int32[8, 32, 4] y) <int8[1, 4] w = {65, 34, -97, 13}> {
          q, scale, zero = DynamicQuantizeLinear (x)
          y = MatMulInteger (q, w, zero)
        }""", {}),
    # Some of the bytes lie at a tie: the product reads those that the call made.
    "a host call reads the integers that it makes": ("bf16", machine("bf16", "bf16, fp32"), """
        net (float[1, 32, 16] x) => (uint8[1, 32, 16] q, int32[1, 32, 1] y)
        <int8[16, 1] w = {10, -17, -5, -15, 15, -9, 7, 3, 65, 34, -97, 13, 1, 2, 4, 8}> {
          a = Mul (x, x)
          b = Sub (a, x)
          q, scale, zero = DynamicQuantizeLinear (b)
          y = MatMulInteger (q, w, zero)
        }""", {}),
    # The reference rounds within a Gelu to what the model has there, also where inputs and outputs
    # are float32.
    "half precision between casts is judged as half precision": ("fp16", machine("fp16"), """
        net (float[1, 64] x) => (float[1, 64] y) {
          h = Cast <to = 10> (x)
          d = Div (h, root)
          e = Erf (d)
          a = Add (e, one)
          m = Mul (h, a)
          g = Mul (m, half)
          n = Add (g, one)
          y = Cast <to = 1> (n)
        }""", {"root": np.float16(2**0.5), "one": np.float16(1), "half": np.float16(0.5)}),
    # The cast becomes the store of the node before it, which still rounds as the model does.
    "a norm of half precision in front of a cast": ("fp16", machine("fp16"),
        LAST_CAST.format("LayerNormalization (m, scale, bias)"),
        {**HALVES, "scale": HALVES["w"][0], "bias": HALVES["w"][1]}),
    "a function of half precision in front of a cast": (
        "fp16", machine("fp16"), LAST_CAST.format("Gelu (m)"), HALVES),
    **{
        f"a product behind which the model rounds to {kind}, on {arch}": (
            dtype, arch, ROUNDED.format(kind), normal(0.3, 60, 10))
        for arch, dtype in (("ascend-310-like", "fp16"), ("tpu-v3-like", "bf16"))
        for kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    },
    # 0.3 times an integer is no fp16 number: the product reads it rounded, the sum as it was.
    "read in front of a conversion and behind it": ("fp16", "ascend-310-like", """
        net (float[4, 16] x) => (float[4, 16] y) <float scale = {0.3}, int8 zero = {0}> {
          q = QuantizeLinear (x, scale, zero)
          real = DequantizeLinear (q, scale, zero)
          product = MatMul (real, w)
          y = Add (product, real)
        }""", normal(0.3, 16, 16)),
    # The sum of products reads the integers, and the output is what bf16 makes of them.
    **{
        f"an output that a product of integers{who} reads before it is rounded": (
            "bf16", machine("bf16", f"fp32, {bytes_}uint8, int32, bf16"), """
            net (int8[8, 16] x) => (float[8, 16] real, uint8[8, 24] q)
            <float a = {0.0079}, float b = {0.0049}, float c = {0.0124}, uint8 half = {128}> {
              real = DequantizeLinear (x, a)
              weights = DequantizeLinear (w, b)
              product = MatMul (real, weights)
              q = QuantizeLinear (product, c, half)
            }""", {"w": np.random.default_rng(0).integers(-90, 90, (16, 24), np.int8)})
        for who, bytes_ in (("", "int8, "), (" on the host", ""))
    },
    # The product reads its input in pieces of its sum, the addition all of it.
    "a product with its own input added": ("fp16", "ascend-310-like", """
        net (float[1, 64, 384] x) => (float[1, 64, 384] y)
        { product = MatMul (x, w) y = Add (product, x) }""", normal(0.05, 384, 384)),
    "half precision that memory holds wider": ("fp32", machine("fp32"), """
        net (float16[4, 48] x) => (float16[4, 48] y)
        { first = MatMul (x, v) positive = Relu (first) y = MatMul (positive, w) }""",
        normal(0.3, 48, 48, names="vw", kind="f2")),
    # Stacked weights are not quantized: their product reads x as it was dequantized.
    "what the host reads in front of its dequantization": ("int8", NARROW, """
        net (float[4, 16] x) => (float[4, 16] y)
        <float[1, 16, 16] v, float[16, 16] w, int64[2] shape = {4, 16}> {
          stack = MatMul (x, v)
          other = Reshape (stack, shape)
          one = MatMul (x, w)
          y = Sub (one, other)
        }""", {}),
}  # fmt: skip
"""By what is special: element type, machine, network and its data."""


@pytest.mark.parametrize("name", RIGHT)
def test_the_answer_is_that_of_the_reference(name: str, tmp_path: Path) -> None:
    dtype, arch, text, data = RIGHT[name]
    row = judged(tmp_path, text, data, dtype, arch)
    assert row["verified"] is True, row["note"]


def test_a_call_to_the_host_may_read_on_what_memory_rounds(tmp_path: Path) -> None:
    text = """net (float[4, 16] x) => (float[4, 16] y) {
      first = Einsum <equation = "...j,jk->...k"> (x, u)
      second = Einsum <equation = "...j,jk->...k"> (first, v)
      turned = Neg (second)
      y = Add (turned, first)
    }"""
    row = judged(tmp_path, text, normal(0.5, 16, 16, names="uv"), "fp16", NO_SUMS)
    assert row["host_ops"] and row["verified"], row["note"]


def test_bfloat16_products_without_a_kernel_are_made_float32(tmp_path: Path) -> None:
    text = """net (float[1, 64] x) => (float[1, 64] y)
      { h = Cast <to = 16> (x) m = MatMul (h, w) y = Cast <to = 1> (m) }"""
    weights = np.asarray(normal(0.1, 64, 64)["w"]).astype(ml_dtypes.bfloat16)
    row = judged(tmp_path, text, {"w": weights}, "fp32", machine("fp32"))
    assert row["verified"] is True, str(row["note"])
    assert "16-bit floats made float32" in str(row["note"])


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
    row = judged(tmp_path, text, {"c": constant}, "fp32", machine("fp32"))
    note = str(row["note"])
    assert row["verified"] is verified, note
    assert all(part in note for part in words), note
    assert "off by" not in note and (words or "beyond" not in note)


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


MORE = sorted(path.stem for path in shipped_folder().glob("more/*.yaml"))


@pytest.mark.parametrize("name", MORE)
def test_machines_beside_those_of_the_main_job_compute_the_network(
    tmp_path: Path, name: str
) -> None:
    row = row_of(depth_net(tmp_path / "net.onnx"), name, load_arch(name).types[0])
    assert row["verified"], row
