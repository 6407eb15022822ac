"""What a host operator may be off by is measured: its constants are moved, and what moves then."""

from __future__ import annotations

import numpy as np
from onnx import parser

from archgen.check.reference import run_node
from compiler.numerics.host_error import tied
from compiler.tensor_ir.nest import Array


def moved(text: str, *inputs: Array) -> Array:
    """What the result of a network moves by at most."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> host {text}')
    (found,) = tied(run_node, proto.SerializeToString(), list(inputs))
    return found


def test_an_integer_moves_where_its_scale_puts_it_on_a_tie() -> None:
    text = """(float[3] x) => (int8[n] y) <float scale = {0.5}, int8 zero = {0}>
      { y = QuantizeLinear (x, scale, zero) }"""
    found = moved(text, np.array([1.0, 1.25, 1.4], np.float32))
    assert found.tolist() == [0, 1, 0]  # 2.5 may be 2 or 3


def test_ratios_of_extents_are_not_rounded() -> None:
    text = """(float[1,1,2,2] x) => (float[a,b,c,d] y) <float[4] scales = {1, 1, 2, 2}>
      { y = Resize <mode = "nearest"> (x, , scales) }"""
    found = moved(text, np.ones((1, 1, 2, 2), np.float32))
    assert found.shape == (1, 1, 4, 4) and not found.any()


def test_what_depends_on_a_threshold_may_be_anything() -> None:
    text = """(float[3] x) => (int64[1,n] y) <float limit = {1}>
      { large = Greater (x, limit) y = NonZero (large) }"""
    assert np.isinf(moved(text, np.array([0, 1, 2], np.float32))).all()


def test_a_tie_behind_a_mean_moves_though_both_scales_round_alike() -> None:
    """Means of 2.25 and 2 over 4 steps of a half: 4.5 steps may be 4 or 5."""
    text = """(float[1,2,4,1] x) => (int8[a,b,c,d] y)
      <float scale = {0.1}, float half = {0.05}, int8 zero = {0}> {
        q = Cast <to = 3> (x)
        d = DequantizeLinear (q, scale)
        p = GlobalAveragePool (d)
        y = QuantizeLinear (p, half, zero) }"""
    given = np.array([[1, 2, 3, 3], [1, 2, 3, 2]], np.float32).reshape(1, 2, 4, 1)
    assert moved(text, given).ravel().tolist() == [1, 0]
