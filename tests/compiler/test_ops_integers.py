"""Operators of integers and truth values run on the vector engine, exactly as ONNX defines them.

ONNX's own evaluator, the nests and the executed program agree to the last bit, on machines with
instructions of one, two and three dimensions; nothing is left to the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMED
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.driver import CompileOptions, compile_model, nests, prepared
from compiler.nest.interp import run
from simmodel.arch import Arch
from simmodel.functional import execute
from simmodel.verify import verify

Array = NDArray[Any]
KINDS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
SIGNED = ("int8", "int16", "int32", "int64")
SHAPE = (3, 5, 7)


def sample(kind: str, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> Array:
    """Any values of a type, none of them 0; of real ones some are special."""
    rng = np.random.default_rng([seed, *kind.encode()])
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind == "float32":
        values = rng.standard_normal(shape).astype(np.float32)
        return np.where(rng.random(shape) < 0.3, rng.choice([np.nan, np.inf, -np.inf, 0]), values)
    info = np.iinfo(kind)
    values = rng.integers(info.min, info.max, shape, kind, endpoint=True)
    return np.where(values == 0, 1, values).astype(kind)


def model_of(
    nodes: list[onnx.NodeProto], feeds: dict[str, Array], outputs: list[str],
    constants: dict[str, Array] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """A model that computes `outputs` from `feeds`."""
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    weights = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "net", ports, results, weights)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def check(model: onnx.ModelProto, feeds: dict[str, Array], arch: Arch) -> None:
    """Evaluator, nests and program agree, and the host has nothing to do."""
    options = CompileOptions("fp32")
    with np.errstate(all="ignore"):
        expected = ReferenceEvaluator(model).run(None, feeds)
    graph = prepared(model, "net", options.stages)
    compiled = compile_model(graph, arch, options)
    verify(compiled.program, arch)
    assert [f"{node.origin}: {node.reason}" for node in compiled.host] == []
    meant = run(nests(graph, arch, "fp32", options), feeds)
    actual = execute(compiled.program, feeds, arch)
    for port, wide in zip(model.graph.output, expected, strict=True):
        # numpy, and so the evaluator, adds up small integers in larger ones.
        values = wide.astype(helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type))
        for found in (meant[port.name], actual[port.name]):
            assert found.dtype == values.dtype and found.shape == values.shape
            np.testing.assert_array_equal(found, values, err_msg=port.name)


def one(
    op: str, *inputs: Array, arch: str = "fine", constants: dict[int, Array] | None = None,
    **attributes: Any,
) -> None:  # fmt: skip
    """Check one node; `constants` are its further inputs by position."""
    given = {f"i{n}": value for n, value in enumerate(inputs)}
    fixed = {f"i{n}": value for n, value in (constants or {}).items()}
    names = [f"i{n}" for n in range(len(given) + len(fixed))]
    node = helper.make_node(op, names, ["y"], **attributes)
    check(model_of([node], given, ["y"], fixed), given, NAMED[arch])


@pytest.mark.parametrize("arch", ["plain", "fine", "bare"])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Mod", "Equal", "Less", "Max"])
def test_operators_on_machines(op: str, arch: str) -> None:
    one(op, sample("int64"), sample("int64", 1, (5, 1)), arch=arch)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mod"])
def test_arithmetic(op: str, kind: str) -> None:
    one(op, sample(kind), sample(kind, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_clips(kind: str) -> None:
    low, high = np.sort([sample(kind, 1, ()), sample(kind, 2, ())])
    one("Clip", sample(kind), constants={1: np.array(low, kind), 2: np.array(high, kind)})
    one("Clip", sample(kind), np.array(low, kind), np.array(high, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_remainders_of_either_sign(kind: str) -> None:
    one("Mod", sample(kind), sample(kind, 1), fmod=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "BitwiseAnd", "BitwiseOr",
           "BitwiseXor"],
)  # fmt: skip
def test_comparisons_and_bits(op: str, kind: str) -> None:
    x = sample(kind)
    one(op, x, np.where(np.arange(7) % 2, x, x ^ 1).astype(kind))


@pytest.mark.parametrize("kind", SIGNED)
@pytest.mark.parametrize("op", ["Neg", "Abs", "Sign", "BitwiseNot"])
def test_functions(op: str, kind: str) -> None:
    one(op, sample(kind))


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32", "uint64"])
def test_shifts(kind: str, direction: str) -> None:
    one("BitShift", sample(kind), (sample(kind, 1) % 9).astype(kind), direction=direction)


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_powers(kind: str) -> None:
    one("Pow", sample(kind), (sample("uint8", 1) % 5).astype(kind))
    one("Pow", sample(kind), constants={1: np.array(2, kind)})


def test_a_whole_number_to_a_real_power_is_cut_off() -> None:
    one("Pow", sample("uint8").astype(np.int32), constants={1: np.array(0.5, np.float32)})


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal"])
def test_truth_values(op: str) -> None:
    one(op, sample("bool"), sample("bool", 1, (5, 1)))


@pytest.mark.parametrize("kind", [*KINDS, "bool", "float32"])
def test_selection(kind: str) -> None:
    one("Where", sample("bool", 2), sample(kind), sample(kind, 1, (7,)))


@pytest.mark.parametrize("to", [*KINDS, "bool"])
@pytest.mark.parametrize("kind", [*KINDS, "bool"])
def test_casts_keep_the_low_bits(kind: str, to: str) -> None:
    one("Cast", sample(kind), to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


@pytest.mark.parametrize("to", ["int8", "int32", "int64", "bool"])
def test_real_values_are_cut_off(to: str) -> None:
    values = np.linspace(-30, 30, 105, dtype=np.float32).reshape(SHAPE)
    one("Cast", values, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def test_questions_about_real_values() -> None:
    x = sample("float32")
    one("IsNaN", x)
    one("IsInf", x)
    one("IsInf", x, detect_negative=0)
    one("IsInf", x, detect_positive=0)
    one("Less", x, sample("float32", 1))


@pytest.mark.parametrize("arch", ["plain", "fine", "bare"])
@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"]
)
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_reductions(kind: str, op: str, arch: str) -> None:
    for axes in ([1], [0, 2]):
        one(op, sample(kind), constants={1: np.array(axes)}, arch=arch)


def test_long_sums_wrap_round_in_every_part() -> None:
    x = sample("int32", 0, (2, 300))
    one("ReduceSum", x, constants={1: np.array([1])}, arch="fine")


@st.composite
def chains(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A few operators one after another, over numbers of one type and conditions on them."""
    kind = draw(st.sampled_from(KINDS))
    shape = draw(st.sampled_from([(1,), (7,), (3, 33), (2, 3, 5), (1, 1, 130)]))
    feeds = {"a": sample(kind, 1, shape), "b": sample(kind, 2, shape)}
    numbers = ["a", "b"]
    truths: list[str] = []
    nodes: list[onnx.NodeProto] = []
    for step in range(draw(st.integers(1, 5))):
        name = f"v{step}"
        x, y = draw(st.sampled_from(numbers)), draw(st.sampled_from(numbers))
        op = draw(st.sampled_from(
            ["Add", "Sub", "Mul", "Max", "Min", "BitwiseXor", "Less", "Equal", "Where", "Not"]
        ))  # fmt: skip
        if op in ("Where", "Not") and not truths:
            op = "Less"
        if op == "Where":
            nodes.append(helper.make_node(op, [draw(st.sampled_from(truths)), x, y], [name]))
        elif op == "Not":
            nodes.append(helper.make_node(op, [draw(st.sampled_from(truths))], [name]))
        else:
            nodes.append(helper.make_node(op, [x, y], [name]))
        (truths if op in ("Less", "Equal", "Not") else numbers).append(name)
    used = {name for node in nodes for name in node.input}
    outputs = [node.output[0] for node in nodes if node.output[0] not in used]
    feeds = {name: value for name, value in feeds.items() if name in used}
    return model_of(nodes, feeds, outputs), feeds


@given(chains(), st.sampled_from(["plain", "fine", "bare", "unread"]))
@settings(max_examples=40, deadline=None)
def test_any_chain(made: tuple[onnx.ModelProto, dict[str, Array]], arch: str) -> None:
    model, feeds = made
    check(model, feeds, NAMED[arch])
