"""Attention without what a constant mask hides: which products are left, and that they say the
same."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from test_graph_passes import assert_same, loaded, outputs, random_inputs

from compiler.frontend.canonicalize.skip_masked import SkipMasked
from compiler.frontend.quantization.integer_operators import IntegerOperators
from compiler.frontend.rewrite import static_shape, tensor_of
from compiler.passes import run_pass

ROWS, WIDTH = 128, 160
SCORES = "s = MatMul (q, k)\n h = Mul (s, half)\n "
CAUSAL = np.arange(WIDTH) > np.arange(ROWS)[:, None] + WIDTH - ROWS
NARROW = CAUSAL | (np.arange(WIDTH) < np.arange(ROWS)[:, None])
TRIANGLE = [(32, 64), (32, 96), (32, 128), (32, 160)]
ENDLESS = np.where(CAUSAL, -np.inf, 0)


def attention(masked: str, mask: np.ndarray, extra: str = "") -> ir.Model:
    rows, width = mask.shape
    kind = "bool" if mask.dtype == bool else "float"
    text = f"""g (float[1,2,{rows},8] q, float[1,2,8,{width}] k, float[1,2,{width},8] v,
               {kind}[{rows},{width}] mask) => (float[1,{rows},16] y{extra})
        <float half = {{0.5}}, float low = {{-1e30}}, int64[3] flat = {{1,{rows},16}}>
        {{ {masked}
           w = Softmax <axis = -1> (m)
           x = MatMul (w, v)
           t = Transpose <perm = [0,2,1,3]> (x)
           y = Reshape (t, flat) }}"""
    return with_mask(text, mask)


def with_mask(text: str, mask: np.ndarray) -> ir.Model:
    """The graph of `text`, whose last input is constant."""
    model = loaded(text)
    value = model.graph.inputs.pop()
    kind = "?" if value.dtype == ir.DataType.BOOL else "f4"
    value.const_value = tensor_of(mask.astype(kind), value.name)
    model.graph.register_initializer(value)
    return model


def products(model: ir.Model) -> list[tuple[int, ...]]:
    """Rows and columns of the scores of each softmax."""
    softmax = (node for node in model.graph if node.op_type == "Softmax")
    return [static_shape(node.outputs[0])[-2:] for node in softmax]


@pytest.mark.parametrize(
    ("masked", "mask", "left"),
    [
        (SCORES + "m = Add (h, mask)", -1e4 * CAUSAL, TRIANGLE),
        (SCORES + "m = Where (mask, h, low)", ~CAUSAL, TRIANGLE),
        (SCORES + "m = Where (mask, low, h)", CAUSAL, TRIANGLE),
        ("s = MatMul (q, k)\n m = Add (mask, s)", ENDLESS, TRIANGLE),
        (SCORES + "m = Add (h, mask)", 3.0 - 1e4 * CAUSAL, TRIANGLE),
        (SCORES + "m = Add (h, mask)", -1e4 * NARROW, [(32, 64), (32, 64), (32, 64), (32, 64)]),
    ],
)  # fmt: skip
def test_blocks_leave_out_what_is_hidden(
    masked: str, mask: np.ndarray, left: list[tuple[int, int]]
) -> None:
    model = attention(masked, mask)
    inputs = random_inputs(model, 0)
    made = run_pass(SkipMasked(rows=32), model).ir
    assert products(made) == left
    assert_same(outputs(attention(masked, mask), inputs), outputs(made, inputs))
    # Each block is laid out as its readers see it, so that it is made so.
    concat = next(node for node in made.graph if node.op_type == "Concat")
    assert concat.outputs[0].shape is not None and len(concat.outputs[0].shape) == 3


@pytest.mark.parametrize(
    ("masked", "mask", "extra"),
    [
        (SCORES + "m = Add (h, mask)", -9e3 * CAUSAL, ""),  # hides less
        (SCORES + "m = Add (h, mask)", -1e4 - 5e3 * CAUSAL, ""),  # and so beside what is seen
        (SCORES + "m = Add (h, mask)", -1e4 * (CAUSAL | (np.arange(ROWS) == 9)[:, None]), ""),
        ("s = MatMul (q, k)\n a = Add (s, mask)\n m = Mul (a, half)", -1e4 * CAUSAL, ""),
        (SCORES + "m = Add (h, mask)", -1e4 * CAUSAL, f", float[1,2,{ROWS},{WIDTH}] w"),
    ],
    ids=["weak", "beside", "row", "scaled", "read"],
)
def test_what_may_be_seen_stays(masked: str, mask: np.ndarray, extra: str) -> None:
    assert not run_pass(SkipMasked(rows=32), attention(masked, mask, extra)).changed


def test_an_odd_number_of_queries_is_cut_in_unlike_blocks() -> None:
    mask = -1e4 * (np.arange(65) > np.arange(65)[:, None])
    model = attention(SCORES + "m = Add (h, mask)", mask)
    want = outputs(attention(SCORES + "m = Add (h, mask)", mask), inputs := random_inputs(model, 0))
    made = run_pass(SkipMasked(rows=32), model).ir
    assert products(made) == [(32, 32), (33, 65)]
    assert_same(want, outputs(made, inputs))


def test_integer_products_are_cut_too() -> None:
    text = f"""g (int8[1,2,{ROWS},8] q, int8[1,2,8,{WIDTH}] k, int8[1,2,{WIDTH},8] v,
                  float[{ROWS},{WIDTH}] mask) => (int8[1,2,{ROWS},8] y)
        <float a = {{0.1}}, float c = {{0.004}}, int8 z = {{0}}, int8 low = {{-128}}>
        {{ qf = DequantizeLinear (q, a, z)
           kf = DequantizeLinear (k, a, z)
           vf = DequantizeLinear (v, a, z)
           s = MatMul (qf, kf)
           m = Add (s, mask)
           w = Softmax <axis = -1> (m)
           wi = QuantizeLinear (w, c, low)
           wf = DequantizeLinear (wi, c, low)
           x = MatMul (wf, vf)
           y = QuantizeLinear (x, a, z) }}"""
    model = with_mask(text, -1e4 * CAUSAL)
    want = outputs(with_mask(text, -1e4 * CAUSAL), inputs := random_inputs(model, 0))
    made = run_pass(SkipMasked(rows=32), run_pass(IntegerOperators(), model).ir).ir
    assert products(made) == TRIANGLE
    assert sum(node.op_type == "QMatMul" for node in made.graph) == 2 * len(TRIANGLE)
    assert_same(want, outputs(made, inputs))
