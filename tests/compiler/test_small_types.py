"""Conversions to types of a byte or less: the numbers that ONNX makes, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import cleaned
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from archgen.check.reference import run_node
from compiler.frontend.importer import load
from compiler.lowering.lower import lower
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Array, HostNode

REALS = ["FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ", "FLOAT4E2M1"]
WHOLE = ["INT4", "UINT4", "INT2", "UINT2"]


def network(op: str, wanted: str, count: int, **attributes: Any) -> onnx.ModelProto:
    """One conversion of `count` numbers; a quantization in steps of 0.5."""
    kind = getattr(TensorProto, wanted)
    quantizes = op == "QuantizeLinear"
    said = {"output_dtype": kind} if quantizes else {"to": kind, **attributes}
    steps = [helper.make_tensor("s", TensorProto.FLOAT, [], [0.5])] if quantizes else []
    node = helper.make_node(op, ["x", *(each.name for each in steps)], ["y"], **said)
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [count]),
             helper.make_tensor_value_info("y", kind, [count])]  # fmt: skip
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], steps)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def made(proto: onnx.ModelProto, x: Array) -> Array:
    graph = lower(cleaned(load(proto, "g")), "fp32")
    assert not any(isinstance(step, HostNode) for step in graph.steps)
    return run(graph, {"x": x}, run_node)["y"].astype(np.float32)


def expected(proto: onnx.ModelProto, x: Array) -> Array:
    with np.errstate(all="ignore"):
        (y,) = ReferenceEvaluator(proto).run(None, {"x": x})
    return np.asarray(y).astype(np.float32)


def halfway(wanted: str) -> Array:
    """Every number of the type, what is in the middle of two, and what is right beside that."""
    kind = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, wanted))
    codes = np.arange(16 if wanted == "FLOAT4E2M1" else 256).astype(np.uint8)
    every = np.unique(codes.view(kind).astype(np.float32))
    every = every[np.isfinite(every)]
    middle = ((every[1:].astype(np.float64) + every[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
    return np.concatenate([every, middle, *beside])


BEYOND = np.array([np.inf, -np.inf, np.nan, 1e6, -1e30, 3e-30, -0.0], np.float32)


@pytest.mark.parametrize("wanted", REALS)
@pytest.mark.parametrize("saturate", [0, 1])
def test_real_numbers_go_to_the_nearest_one_half_to_even(wanted: str, saturate: int) -> None:
    x = np.concatenate([halfway(wanted), BEYOND])
    says = {} if wanted == "FLOAT4E2M1" else {"saturate": saturate}
    proto = network("Cast", wanted, len(x), **says)
    np.testing.assert_array_equal(made(proto, x), expected(proto, x))


@given(
    st.lists(st.floats(width=32, allow_nan=False), min_size=8, max_size=8), st.sampled_from(REALS)
)
def test_so_do_others(numbers: list[float], wanted: str) -> None:
    x, proto = np.array(numbers, np.float32), network("Cast", wanted, 8)
    np.testing.assert_array_equal(made(proto, x), expected(proto, x))


@pytest.mark.parametrize("wanted", WHOLE)
def test_whole_numbers_keep_their_low_bits_or_saturate(wanted: str) -> None:
    x = np.linspace(-20, 20, 81, dtype=np.float32)
    cast, quantized = (network(op, wanted, len(x)) for op in ("Cast", "QuantizeLinear"))
    np.testing.assert_array_equal(made(cast, x), expected(cast, x))
    np.testing.assert_array_equal(made(quantized, x), expected(quantized, x))
