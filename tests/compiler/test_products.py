"""Matrix products of every broadcast, compiled and executed, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from networks import Net
from one_node import executed

from archgen.backend.base import DEFAULT
from archgen.check.reference import run_reference
from archgen.schema import load_arch
from compiler.api import CompileOptions

FINISHING = str(DEFAULT)
"""A machine whose matrix engine adds a bias of real values itself."""


@pytest.mark.parametrize("extents", [(), (1,), (16,)])
@pytest.mark.parametrize("engine", ["stcp920", "tpu-v3-like", FINISHING])
def test_one_bias_for_all_columns(engine: str, extents: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((6, 32), (32, 16)))
    net = Net()
    biased = net.op("Add", net.op("MatMul", net.input(6, 32), net.const(w)),
                    net.const(random.standard_normal(extents).astype(np.float32)))  # fmt: skip
    model = net.model(biased)
    arch = load_arch(engine)
    _, got = executed(model, {"x0": x}, arch, CompileOptions(arch.types[0]))
    (expected,) = run_reference(model, {"x0": x}).values()
    np.testing.assert_allclose(got[biased], expected, 0.1, 0.2)
