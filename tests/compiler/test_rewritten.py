"""Operators of ONNX that a Python function says in simpler ones, against ONNX's own meaning."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from archgen.check.reference import run_node
from compiler.load import load
from compiler.nest.interp import run
from compiler.nest.ir import HostNode
from compiler.ops.lower import lower

DET = """
<ir_version: 10, opset_import: ["" : 22]>
g (float[{batch}{n},{n}] x) => (float[{shape}] y) {{ y = Det (x) }}
"""


@given(st.integers(1, 4), st.sampled_from([(), (1,), (3,), (2, 2)]), st.integers(0, 99))
@settings(max_examples=25)
def test_determinants_of_few_rows_are_those_of_onnx(
    n: int, batch: tuple[int, ...], seed: int
) -> None:
    said = "".join(f"{each}," for each in batch)
    proto = onnx.parser.parse_model(DET.format(batch=said, n=n, shape=said.rstrip(",")))
    x = np.random.default_rng(seed).normal(size=(*batch, n, n)).astype(np.float32)
    graph = lower(load(proto, "g"), "fp32")
    assert not any(isinstance(step, HostNode) for step in graph.steps)
    y = run(graph, {"x": x}, run_node)["y"]
    assert y.shape == batch
    np.testing.assert_allclose(y, np.linalg.det(x.astype(np.float64)), rtol=1e-5, atol=1e-5)
