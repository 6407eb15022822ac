"""New rows of a cache at places that are inputs: alone, or compared with every place."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from networks import feeds_of
from one_node import agree, executed
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from compiler.api import CompileOptions, CompileResult, compile_model, prepared
from compiler.frontend.operators import composites
from compiler.lowering.lower import lower
from compiler.target.rows import CopyRows
from compiler.tensor_ir.gather_rows import ReadRows
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.record import Arch
from simmodel.errors import NoSuchRow
from simmodel.execute import execute
from simmodel.machine.run import simulate

WITH = machine(types=("fp32",), vector={"types": ("fp32", "int32", "int8")})
WITHOUT = WITH.model_copy(
    update={"copy_": {n: e.model_copy(update={"indirect": None}) for n, e in WITH.copy_.items()}}
)
"""Copy engines take no list of rows."""


def network(past: tuple[int, ...], rows: int, given: bool, **attributes: Any) -> onnx.ModelProto:
    """One TensorScatter, by default along the second axis from the end."""
    new = list(past)
    new[attributes.get("axis", -2)] = rows
    at, port = (", at", f", int64[{past[0]}] at") if given else ("", "")
    cache = f"float{[*past]}"
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 24]>
        g ({cache} past, float{new} new{port}) => ({cache} y)
        {{ y = TensorScatter (past, new{at}) }}""")
    found = [helper.make_attribute(name, value) for name, value in attributes.items()]
    proto.graph.node[0].attribute.extend(found)
    return proto


def sampled(proto: onnx.ModelProto, seed: int, last: int) -> dict[str, np.ndarray]:
    """Numbers, and places from 0 to `last`."""
    found = feeds_of(proto)
    if "at" in found:
        found["at"] = np.random.default_rng(seed).integers(0, last + 1, found["at"].shape)
    return found


@settings(max_examples=40)
@given(st.data())
def test_rows_lie_where_onnx_puts_them(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from([(), (2,), (1, 3)]))
    length, rows = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 2))
    circular = data.draw(st.booleans())
    attributes: dict[str, Any] = {"mode": "circular"} if circular else {}
    if not heads and data.draw(st.booleans()):
        attributes["axis"] = 1
    proto = network((2, *heads, length, 3), rows, data.draw(st.booleans()), **attributes)
    feeds = sampled(proto, data.draw(st.integers(0, 9)), length - 1 if circular else length - rows)
    (expected,) = ReferenceEvaluator(proto).run(None, feeds)
    graph = lower(prepared(proto, "net"), "fp32")
    for arch in (WITH, WITHOUT):
        nests = ReadRows().apply(CopyRows().apply(graph, arch)).ir
        assert not any(isinstance(step, HostNode) and step.pick is None for step in nests.steps)
        np.testing.assert_array_equal(run(nests, feeds)["y"], expected)


def made_by(proto: onnx.ModelProto, arch: Arch, last: int) -> CompileResult:
    """The verified program, which computes what ONNX says."""
    feeds = sampled(proto, 0, last)
    made, found = executed(prepared(proto, "net"), feeds, arch, CompileOptions())
    agree(found, ReferenceEvaluator(proto).run(None, feeds), atol=1e-6)
    return made


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize(("mode", "rows"), [("linear", 1), ("linear", 12), ("circular", 1)])
def test_a_cache_of_fixed_room_takes_its_new_rows_and_nothing_else(
    mode: str, rows: int, samples: int, cores: int
) -> None:
    """Samples of 3 heads; a row of 16 numbers is a burst. Loaded are the new rows, and a burst
    with each sample's place, for each core's part."""
    arch = machine(types=("fp32",), cores=cores)
    made = made_by(network((samples, 3, 64, 16), rows, True, mode=mode), arch, 64 - rows)
    assert not made.host
    traffic = simulate(made.program, arch).traffic
    assert traffic["dram.write"] == samples * 3 * rows * 64
    assert traffic["dram.read"] <= samples * 3 * rows * 64 + samples * cores * 64
    ports = (*made.program.inputs, *made.program.outputs)
    lies = {port.name: port.operand.address.base for port in ports}
    assert lies["past"] == lies["y"]


def test_what_is_read_later_is_copied_first() -> None:
    """The cache as it was is an operand behind the new rows: then it may not be changed."""
    proto = network((1, 3, 64, 16), 1, True)
    proto.graph.node.append(helper.make_node("Sub", ["y", "past"], ["d"]))
    proto.graph.output.append(helper.make_tensor_value_info("d", TensorProto.FLOAT, (1, 3, 64, 16)))
    made = made_by(proto, WITH, 63)
    assert not made.host
    assert simulate(made.program, WITH).traffic["dram.write"] >= 2 * 3 * 64 * 64


@pytest.mark.parametrize("late", [False, True])
def test_places_that_the_network_computes_are_there_when_rows_are_put(late: bool) -> None:
    lines = ["n = Neg (x)", "at = Add (first, one)"][:: 1 if late else -1]
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 24]>
        g (float[1, 3, 64, 16] past, float[1, 3, 1, 16] x, int64[1] first)
            => (float[1, 3, 64, 16] y) <int64[1] one = {{1}}> {{
            {lines[0]}
            {lines[1]}
            y = TensorScatter <axis = 2> (past, n, at)
        }}"""
    )
    feeds = {**feeds_of(proto), "first": np.array([5])}
    made, found = executed(proto, feeds, WITH, CompileOptions())
    agree(found, ReferenceEvaluator(proto).run(None, feeds), 0, 0)
    assert simulate(made.program, WITH).traffic["dram.write"] < 64 * 64


def test_a_row_beyond_the_cache_is_said_with_its_node() -> None:
    proto = network((1, 3, 64, 16), 2, True)
    proto.graph.node[0].name = "cache.update"
    program = compile_model(prepared(proto, "net"), WITH, CompileOptions()).program
    with pytest.raises(
        NoSuchRow, match=r"cache.update \(TensorScatter\): index 63 is out of range"
    ):
        execute(program, sampled(proto, 0, 0) | {"at": np.array([63])}, WITH)


@settings(max_examples=20)
@given(st.data())
def test_rows_of_a_computed_table(data: st.DataObject) -> None:
    """ScatterND of whole rows, into what the network makes or is given, of what it makes or is
    given: by any engine's rank, on one core or three, with what others make of the result."""
    row = [data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(1, 2)))]
    count, rows = data.draw(st.integers(40, 60)), data.draw(st.integers(1, 5))
    table, update = data.draw(st.sampled_from(["x", "t"])), data.draw(st.sampled_from(["u", "v"]))
    proto = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float{[count, *row]} x, int64[{rows}, 1] i, float{[rows, *row]} u)
            => (float{[count, *row]} z, float{[count, *row]} s) {{
            t = Relu (x)
            v = Neg (u)
            s = ScatterND ({table}, i, {update})
            z = Add (s, t)
        }}"""
    )
    arch = machine(
        types=("fp32",), cores=data.draw(st.sampled_from([1, 3])),
        sync=data.draw(st.sampled_from(["tokens", "interlock"])),
    )  # fmt: skip
    engines = {
        name: engine.model_copy(update={"rank": data.draw(st.integers(1, 4))})
        for name, engine in arch.copy_.items()
    }
    arch = arch.model_copy(update={"copy_": engines})
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    feeds = {
        "x": random.standard_normal((count, *row)).astype(np.float32),
        "u": random.standard_normal((rows, *row)).astype(np.float32),
        "i": random.permutation(np.arange(-count, 0))[:rows, None],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composites, "COMPARED", 0)
        made, found = executed(proto, feeds, arch, CompileOptions())
    agree(found, ReferenceEvaluator(proto).run(None, feeds), 1e-6, 0)
    assert not made.host
