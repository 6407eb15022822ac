"""A model that casts to half precision itself is compared as it rounds, whatever memory holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from onnx import TensorProto
from role_nets import net, saved

from archgen.outcomes.frame import records
from archgen.outcomes.points import Row
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


def judged(folder: Path, text: str, arch: str, dtype: str, data: Mapping[str, ArrayLike]) -> Row:
    """What a study says of four samples on a machine, given by name or as the text of its file."""
    machine = folder / "machine.yaml"
    machine.write_text(arch)
    path = saved(net(text, 21, **data), folder)
    frame = study([machine if "\n" in arch else arch], [path], 4, dtype, effort=0).frame
    (row,) = records(frame)
    assert row["status"] == "ok", row["reason"]
    return row


def normal(deviation: float, *shape: int, names: str = "w", kind: str = "f4") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, deviation, shape).astype(kind) for name in names}


@pytest.mark.parametrize(("arch", "dtype"), [("ascend-310-like", "fp16"), ("tpu-v3-like", "bf16")])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_product_behind_which_the_model_rounds_is_right(
    tmp_path: Path, arch: str, dtype: str, kind: int
) -> None:
    text = f"""net (float[4, 60] x) => (float[4, 10] y) {{
      sum = MatMul (x, w)
      half = Cast <to = {kind}> (sum)
      y = Cast <to = 1> (half)
    }}"""
    row = judged(tmp_path, text, arch, dtype, normal(0.3, 60, 10))
    assert row["verified"], row["note"]


# 0.3 times an integer is no fp16 number: the product reads it rounded, the sum as it was.
BOTH_SIDES = """net (float[4, 16] x) => (float[4, 16] y) <float scale = {0.3}, int8 zero = {0}> {
  q = QuantizeLinear (x, scale, zero)
  real = DequantizeLinear (q, scale, zero)
  product = MatMul (real, w)
  y = Add (product, real)
}"""
WIDER_IN_MEMORY = """net (float16[4, 48] x) => (float16[4, 48] y)
{ first = MatMul (x, v) positive = Relu (first) y = MatMul (positive, w) }"""
# Stacked weights are not quantized: their product reads x as it was dequantized.
BY_THE_HOST = """net (float[4, 16] x) => (float[4, 16] y)
<float[1, 16, 16] v, float[16, 16] w, int64[2] shape = {4, 16}> {
  stack = MatMul (x, v)
  other = Reshape (stack, shape)
  one = MatMul (x, w)
  y = Sub (one, other)
}"""


@pytest.mark.parametrize(
    ("text", "arch", "dtype", "data"),
    [
        pytest.param(BOTH_SIDES, "ascend-310-like", "fp16", normal(0.3, 16, 16),
                     id="read in front of a conversion and behind it"),
        pytest.param(WIDER_IN_MEMORY, WIDE, "fp32", normal(0.3, 48, 48, names="vw", kind="f2"),
                     id="half precision that memory holds wider"),
        pytest.param(BY_THE_HOST, NARROW, "int8", {},
                     id="what the host reads in front of its dequantization"),
    ],
)  # fmt: skip
def test_a_value_is_read_as_the_model_rounds_it(
    tmp_path: Path, text: str, arch: str, dtype: str, data: dict[str, Any]
) -> None:
    row = judged(tmp_path, text, arch, dtype, data)
    assert row["verified"], row["note"]


def test_a_call_to_the_host_may_read_on_what_memory_rounds(tmp_path: Path) -> None:
    text = """net (float[4, 16] x) => (float[4, 16] y) {
      first = Einsum <equation = "...j,jk->...k"> (x, u)
      second = Einsum <equation = "...j,jk->...k"> (first, v)
      turned = Neg (second)
      y = Add (turned, first)
    }"""
    row = judged(tmp_path, text, HALF, "fp16", normal(0.5, 16, 16, names="uv"))
    assert row["host_ops"] and row["verified"], row["note"]
