"""Matrix products of every broadcast, compiled and executed, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from archgen.backend.base import DEFAULT
from archgen.check.reference import run_reference
from archgen.schema import load_arch
from compiler.driver import CompileOptions, compile_model
from simmodel.functional import execute
from simmodel.verify import verify

FINISHING = str(DEFAULT)
"""A machine whose matrix engine adds a bias of real values itself."""

SHAPES = [
    ((1, 1, 32), (32, 64)),
    ((1, 40, 32), (3, 32, 64)),
    ((3, 40, 32), (1, 32, 64)),
    ((2, 1, 8, 16), (1, 3, 16, 8)),
    ((2, 1, 8, 16), (2, 3, 16, 8)),
    ((32,), (32, 16)),
    ((4, 32), (32,)),
]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_broadcast(left: tuple[int, ...], right: tuple[int, ...], constant: bool) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in (left, right))
    out = np.matmul(a, b).shape
    info = helper.make_tensor_value_info
    inputs = [info("a", TensorProto.FLOAT, left)]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        "product",
        inputs if constant else [*inputs, info("b", TensorProto.FLOAT, right)],
        [info("y", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(b, "b")] if constant else [],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    arch = load_arch("stcp920")
    program = compile_model(model, arch, CompileOptions("fp16")).program
    verify(program, arch)
    given = {"a": a} if constant else {"a": a, "b": b}
    expected = run_reference(model, given)["y"]
    np.testing.assert_allclose(execute(program, given, arch)["y"], expected, rtol=5e-3, atol=2e-2)


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
