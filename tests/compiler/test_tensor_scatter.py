"""New rows of a cache at places that are inputs: compared with every place, as ONNX defines it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from archgen.check.reference import run_node
from compiler.driver import CompileOptions, compile_model, prepared
from compiler.nest.interp import run
from compiler.nest.ir import HostNode
from compiler.ops.lower import lower
from simmodel.functional import execute
from simmodel.verify import verify


def network(past: tuple[int, ...], rows: int, given: bool, **attributes: Any) -> onnx.ModelProto:
    """One TensorScatter, by default along the second axis from the end."""
    axis = attributes.get("axis", -2)
    new = list(past)
    new[axis] = rows
    ports = [
        helper.make_tensor_value_info("past", TensorProto.FLOAT, past),
        helper.make_tensor_value_info("new", TensorProto.FLOAT, new),
    ]
    if given:
        ports.append(helper.make_tensor_value_info("at", TensorProto.INT64, [past[0]]))
    node = helper.make_node("TensorScatter", [port.name for port in ports], ["y"], **attributes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, past)
    graph = helper.make_graph([node], "g", ports, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def feeds_of(proto: onnx.ModelProto, seed: int, last: int) -> dict[str, np.ndarray]:
    """Numbers, and places from 0 to `last`."""
    random = np.random.default_rng(seed)
    found = {}
    for port in proto.graph.input:
        shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        if port.name == "at":
            found["at"] = random.integers(0, last + 1, shape)
        else:
            found[port.name] = random.standard_normal(shape).astype(np.float32)
    return found


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_rows_lie_where_onnx_puts_them(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from([(), (2,), (1, 3)]))
    length, rows = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 2))
    circular = data.draw(st.booleans())
    attributes: dict[str, Any] = {"mode": "circular"} if circular else {}
    if not heads and data.draw(st.booleans()):
        attributes["axis"] = 1
    proto = network((2, *heads, length, 3), rows, data.draw(st.booleans()), **attributes)
    feeds = feeds_of(proto, data.draw(st.integers(0, 9)), length - 1 if circular else length - rows)
    (expected,) = ReferenceEvaluator(proto).run(None, feeds)
    nests = lower(prepared(proto, "net"), "fp32")
    assert not any(isinstance(step, HostNode) for step in nests.steps)
    np.testing.assert_array_equal(run(nests, feeds, run_node)["y"], expected)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_machine_writes_them_itself(mode: str) -> None:
    arch = machine(types=("fp32",), vector={"types": ("fp32", "int32", "int8")})
    proto = network((2, 3, 8, 4), 2, True, mode=mode)
    made = compile_model(prepared(proto, "net"), arch, CompileOptions())
    verify(made.program, arch)
    assert not made.host
    feeds = feeds_of(proto, 0, 6)
    (expected,) = ReferenceEvaluator(proto).run(None, feeds)
    np.testing.assert_array_equal(execute(made.program, feeds, arch)["y"], expected)


def test_many_rows_stay_with_the_host() -> None:
    steps = lower(prepared(network((1, 40, 4), 12, True), "net"), "fp32").steps
    assert [step.kind for step in steps] == ["TensorScatter"]
    assert isinstance(steps[0], HostNode)
