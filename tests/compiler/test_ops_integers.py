"""Operators of integers and truth values run on the vector engine, exactly as ONNX defines them.

ONNX's own evaluator, the nests and the executed program agree to the last bit, on machines with
instructions of one, two and three dimensions; nothing is left to the host.
Nor of conversions to types of a byte or less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMED
from networks import cleaned, model
from one_node import executed, lowered
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from archgen.check.reference import run_node
from compiler.frontend.importer import load
from compiler.lowering.lower import lower
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Array, HostNode
from simmodel.arch.record import Arch

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
    proto = model(nodes, feeds, outputs, constants, opset=21)
    return onnx.shape_inference.infer_shapes(proto, strict_mode=True)


def check(model: onnx.ModelProto, feeds: dict[str, Array], arch: Arch | None = None) -> None:
    """Evaluator, nests and, where there is a machine, its program agree, and the host has nothing
    to do."""
    with np.errstate(all="ignore"):
        expected = ReferenceEvaluator(model).run(None, feeds)
    results = [run(lowered(model), feeds)]
    if arch is not None:
        compiled, outputs = executed(model, feeds, arch)
        assert [f"{node.origin}: {node.reason}" for node in compiled.host] == []
        results.append(outputs)
    for port, wide in zip(model.graph.output, expected, strict=True):
        # numpy, and so the evaluator, adds up small integers in larger ones.
        values = wide.astype(helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type))
        for found in (result[port.name] for result in results):
            assert found.dtype == values.dtype and found.shape == values.shape
            np.testing.assert_array_equal(found, values, err_msg=port.name)


def one(
    op: str, *inputs: Array, arch: Arch | None = None, constants: tuple[Array, ...] = (),
    **attributes: Any,
) -> None:  # fmt: skip
    """Check one node; `constants` are its last inputs."""
    names = [f"i{n}" for n in range(len(inputs) + len(constants))]
    given = dict(zip(names, inputs, strict=False))
    fixed = dict(zip(names[len(inputs) :], constants, strict=True))
    check(model_of([helper.make_node(op, names, ["y"], **attributes)], given, ["y"], fixed), given,
          arch)  # fmt: skip


PAIRS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Equal", "Less", "LessOrEqual",
         "Greater", "GreaterOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor")  # fmt: skip
REDUCTIONS = (
    "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_operators_of_integers(kind: str) -> None:
    x, y = sample(kind), sample(kind, 1)
    alike = np.where(np.arange(7) % 2, x, x ^ 1).astype(kind)
    low, high = np.sort([sample(kind, 1, ()), sample(kind, 2, ())]).astype(kind)
    for op in PAIRS:
        one(op, x, y)
        one(op, x, alike)
    one("Mod", x, y, fmod=1)
    one("Clip", x, constants=(low, high))
    one("Clip", x, low, high)
    for op in ("Neg", "Abs", "Sign", "BitwiseNot") if kind in SIGNED else ():
        one(op, x)
    for direction in ("LEFT", "RIGHT") if kind not in SIGNED else ():
        one("BitShift", x, (y % 9).astype(kind), direction=direction)
    if kind in ("int32", "int64"):
        one("Pow", x, (sample("uint8", 1) % 5).astype(kind))
        one("Pow", x, constants=(np.array(2, kind),))


@pytest.mark.parametrize("kind", [*KINDS, "bool"])
def test_casts_keep_the_low_bits(kind: str) -> None:
    reals = np.linspace(-30, 30, 105, dtype=np.float32).reshape(SHAPE)
    for to in (*KINDS, "bool"):
        one("Cast", sample(kind), to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    if kind in ("int8", "int32", "int64", "bool"):  # real values are cut off
        one("Cast", reals, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def test_selection_and_truth() -> None:
    for kind in (*KINDS, "bool", "float32"):
        one("Where", sample("bool", 2), sample(kind), sample(kind, 1, (7,)))
    for op in ("And", "Or", "Xor", "Equal"):
        one(op, sample("bool"), sample("bool", 1, (5, 1)))
    x = sample("float32")
    for op, said in (("IsNaN", {}), ("IsInf", {}), ("IsInf", {"detect_negative": 0}),
                     ("IsInf", {"detect_positive": 0})):  # fmt: skip
        one(op, x, **said)
    one("Less", x, sample("float32", 1))


def test_a_whole_number_to_a_real_power_is_cut_off() -> None:
    one("Pow", sample("uint8").astype(np.int32), constants=(np.array(0.5, np.float32),))


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_reductions(kind: str) -> None:
    for op in REDUCTIONS:
        for axes in ([1], [0, 2]):
            one(op, sample(kind), constants=(np.array(axes),))


@pytest.mark.parametrize("arch", ["plain", "fine", "bare"])
def test_machines_of_one_two_and_three_dimensions(arch: str) -> None:
    one("Mod", sample("int64"), sample("int64", 1, (5, 1)), arch=NAMED[arch])
    one("ReduceProd", sample("int64"), constants=(np.array([0, 2]),), arch=NAMED[arch])
    long = sample("int32", 0, (2, 300))  # wraps round in every part
    one("ReduceSum", long, constants=(np.array([1]),), arch=NAMED[arch])


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


@settings(max_examples=40)
@given(chains(), st.sampled_from(["plain", "fine", "bare", "unread"]))
def test_any_chain(made: tuple[onnx.ModelProto, dict[str, Array]], arch: str) -> None:
    model, feeds = made
    check(model, feeds, NAMED[arch])


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
