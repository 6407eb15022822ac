"""Matrix products of every broadcast, compiled and executed, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from archgen.backend.base import DEFAULT
from archgen.check.reference import run_reference
from archgen.schema import load_arch
from compiler.api import CompileOptions, compile_model
from simmodel.execute import execute
from simmodel.verify import verify

FINISHING = str(DEFAULT)
"""A machine whose matrix engine adds a bias of real values itself."""


@pytest.mark.parametrize("extents", [(), (1,), (16,)])
@pytest.mark.parametrize("engine", ["stcp920", "tpu-v3-like", FINISHING])
def test_one_bias_for_all_columns(engine: str, extents: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((6, 32), (32, 16)))
    b = random.standard_normal(extents).astype(np.float32)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])],
        "biased",
        [info("x", TensorProto.FLOAT, x.shape)],
        [info("y", TensorProto.FLOAT, (6, 16))],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    arch = load_arch(engine)
    program = compile_model(model, arch, CompileOptions(arch.types[0])).program
    verify(program, arch)
    expected = run_reference(model, {"x": x})["y"]
    np.testing.assert_allclose(execute(program, {"x": x}, arch)["y"], expected, 0.1, 0.2)
