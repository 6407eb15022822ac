"""Ports of a state take the encoding of what is stored, where nobody else sees the real values."""

from __future__ import annotations

import numpy as np
import pytest
from nest_reader import parse_graph

from compiler.passes import run_pass
from compiler.tensor_ir.fold import StoreEncoded
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Nest
from compiler.tensor_ir.text import print_graph

CACHE = """graph cache
buffer past 4
buffer x 1
buffer c 5
buffer present 5
tensor past: fp32[4] at past + 0 by (1)
tensor x: fp32[1] at x + 0 by (1)
tensor q: int8[4] at c + 0 by (1)
tensor row: int8[1] at c + 4 by (1)
tensor c: int8[5] at c + 0 by (1)
tensor present: fp32[5] at present + 0 by (1)
input past: fp32
input x: fp32
output present: fp32
q[i=4] = move(past[i]) as scale 0.5 zero 3
row[i=1] = neg(x[i]) as scale 0.5 zero 3
present[i=5] = move(c[i] scale 0.5 zero 3)
"""
INPUTS = {"past": np.array([1.0, -2.2, 0.3, 900.0], "f4"), "x": np.array([7.0], "f4")}


def test_a_state_is_handed_on_as_it_is_stored() -> None:
    graph = parse_graph(CACHE)
    result = run_pass(StoreEncoded(), graph)
    assert result.changed
    made = result.ir
    assert [step.tensor for step in made.steps if isinstance(step, Nest)] == ["row"]
    assert made.buffers == {"x": 1, "c": 5}
    assert made.codes == {"past": (0.5, 3), "present": (0.5, 3)}
    assert made.tensors["past"].storage == graph.tensors["q"].storage
    assert print_graph(parse_graph(print_graph(made))) == print_graph(made)
    np.testing.assert_array_equal(run(made, INPUTS)["present"], run(graph, INPUTS)["present"])
    np.testing.assert_array_equal(run(made, INPUTS)["present"], [1.0, -2.0, 0.5, 62.0, -7.0])
    assert not run_pass(StoreEncoded(), made).changed


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("neg(x[i])", "add(x[i], past[0])"),  # another reads the real values
        ("(c[i] scale 0.5", "(c[i] scale 0.25"),  # another scale on the way out
        ("move(past[i]) as", "clip(move(past[i]), 0.0, 6.0) as"),
        ("output present: fp32", "output present: fp32\noutput past: fp32"),
        (  # an output is a view of them
            "input past: fp32",
            "tensor end: fp32[2] at past + 2 by (1)\ninput past: fp32\noutput end: fp32",
        ),
    ],
)
def test_real_values_that_somebody_sees_are_made(was: str, becomes: str) -> None:
    assert was in CACHE
    assert not run_pass(StoreEncoded(), parse_graph(CACHE.replace(was, becomes))).changed
