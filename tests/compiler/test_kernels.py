"""Convolutions with computed weights: what ONNX Runtime computes, to the last integer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_node import Case, case, check, lowered, model_of, reference

from compiler.tensor_ir.interpreter import run as execute


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    """One to three dimensions, any window that fits, groups down to a channel each."""
    rank = draw(st.integers(1, 3))

    def numbers(low: int, high: int, count: int = rank) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    kernel, dilations = numbers(1, 3), numbers(1, 2)
    groups, across, made = draw(st.integers(1, 3)), *numbers(1, 2, 2)
    window = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    extents = [w + n for w, n in zip(window, numbers(0, 2), strict=True)]
    return case(
        "Conv", (draw(st.integers(1, 2)), groups * across, *extents),
        (groups * made, across, *kernel),
        *([(groups * made,)] if draw(st.booleans()) else []), strides=numbers(1, 3), group=groups,
        dilations=dilations, pads=[draw(st.integers(0, w - 1)) for w in window * 2],
    )  # fmt: skip


@settings(max_examples=40)
@given(convolutions())
def test_products_of_computed_weights_are_convolutions(node: Case) -> None:
    try:
        model, feeds = model_of(node)
        reference(model, feeds)
    except Exception:  # pads that leave nothing, which ONNX Runtime refuses as well
        return
    check(model, feeds, atol=1e-5)


def integers(**attributes: Any) -> tuple[onnx.ModelProto, dict[str, Any]]:
    text = """<ir_version: 10, opset_import: ["" : 21]>
      g (uint8[1,4,5,6] x, uint8[6,2,3,2] w) => (int32[1,6,3,4] y)
      <uint8 xz = {250}, uint8 wz = {3}>
      { y = ConvInteger <pads = [1, 1, 1, 1], strides = [2, 2], group = 2> (x, w, xz, wz) }"""
    random = np.random.default_rng(0)
    shapes = {"x": (1, 4, 5, 6), "w": (6, 2, 3, 2)}
    return onnx.parser.parse_model(text), {
        name: random.integers(0, 256, shape).astype(np.uint8) for name, shape in shapes.items()
    }


def test_bytes_are_multiplied_exactly_and_the_border_is_the_zero_point() -> None:
    check(*integers())


QUANTIZED = """<ir_version: 10, opset_import: ["" : 21]>
  g (uint8[1,{given},5,6] x, int8[6,2,3,2] w) => (uint8[1,6,5,5] y)
  <float xs = {{0.5}}, uint8 xz = {{130}}, float ws = {{0.25}}, int8 wz = {{-3}}, float ys = {{4}},
   uint8 yz = {{100}}, int32[6] b = {{9, -900, 0, 40, 300, 5}}, float bs = {{0.125}},
   int32 bz = {{0}}>
  {{ a = DequantizeLinear (x, xs, xz)
     k = DequantizeLinear (w, ws, wz)
     c = DequantizeLinear (b, bs, bz)
     r = Conv <pads = [1, 0, 1, 0], group = {groups}> (a, k, {bias})
     y = QuantizeLinear (r, ys, yz) }}"""


@pytest.mark.parametrize(("groups", "bias"), [(1, "c"), (2, ""), (2, "c")])
def test_quantized_weights_that_are_computed_stay_bytes(groups: int, bias: str) -> None:
    """A bias beside groups keeps the product real: what is made is the same to one step."""
    text = QUANTIZED.format(given=2 * groups, groups=groups, bias=bias)
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(1)
    feeds = {
        "x": random.integers(0, 256, (1, 2 * groups, 5, 6)).astype(np.uint8),
        "w": random.integers(-128, 128, (6, 2, 3, 2)).astype(np.int8),
    }
    graph = lowered(model)
    computed = {tensor.dtype for tensor in graph.tensors.values() if tensor.data is None}
    assert (groups == 1 or not bias) == (computed == {"uint8", "int8"})
    (got,), (want,) = execute(graph, feeds).values(), reference(model, feeds)
    assert np.abs(got.astype(int) - want).max() <= 1
    assert (got == want).mean() > 0.98
