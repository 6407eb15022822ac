"""Borders: tiles that lie in them altogether, values that no element can say, types that the
vector engine cannot fill them with."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from doubles import anything
from machines import NAMED, machine
from networks import Net, check
from onnx import TensorProto, helper, numpy_helper

from archgen.check.reference import run_node
from compiler.driver import CompileOptions, compile_model, prepared
from compiler.fuse.dependence import dependences
from compiler.fuse.fuse_tails import FuseTails
from compiler.fuse.strategies import STRATEGIES
from compiler.geometry.walk import Unwalkable, Walker
from compiler.nest.bounds import Box, clipped, union
from compiler.ops.lower import lower
from compiler.schedule import OuterLoop
from compiler.stages import Stages
from simmodel.arch import Arch
from simmodel.functional import execute
from simmodel.verify import verify


def spans(box: Box) -> tuple[int, int]:
    return box[0]


@pytest.mark.parametrize(("start", "size"), [(-5, 2), (-5, 5), (12, 2), (10, 1)])
def test_of_a_box_outside_only_its_border_is_left(start: int, size: int) -> None:
    region = clipped(((start, size),), (10,))
    assert spans(region.box) == (start + region.before[0], 0)
    assert region.before[0] + region.after[0] == size


def test_a_box_without_positions_adds_nothing_to_another() -> None:
    assert union(((-1, 0), (2, 3)), ((4, 2), (0, 9))) == ((4, 2), (0, 9))
    assert union(((4, 2), (0, 9)), ((-1, 0), (2, 3))) == ((4, 2), (0, 9))


def padded(net: Net, x: str, *amounts: int, value: float | None = None) -> str:
    given = [] if value is None else [net.const(value, "f4")]
    return net.op("Pad", x, net.const(amounts, "i8"), *given)


def rows(before: int, after: int) -> onnx.ModelProto:
    """One row of a product between rows of zeros."""
    net = Net()
    y = net.op("MatMul", net.input(1, 1, 16), net.weight(16, 20))
    return net.model(padded(net, y, 0, before, 0, 0, after, 0))


def image() -> onnx.ModelProto:
    """A convolution, a border wider than a tile, and a reader with a window."""
    net = Net()
    y = net.op("Conv", net.input(1, 3, 6, 5), net.weight(4, 3, 3, 3), pads=[1] * 4)
    z = padded(net, net.op("Relu", y), 0, 0, 5, 1, 0, 0, 6, 2, value=0.5)
    return net.model(net.op("MaxPool", z, kernel_shape=[2, 2], strides=[1, 1]))


def batch() -> onnx.ModelProto:
    """A pool over everything, behind it a border along the batch."""
    net = Net()
    y = net.op("GlobalAveragePool", net.input(2, 4, 3, 3))
    return net.model(net.op("Relu", padded(net, net.op("Neg", y), 3, 0, 0, 0, 2, 0, 0, 0)))


@pytest.mark.parametrize("name", ["plain", "fine", "gemms", "small", "wide", "clustered"])
def test_tiles_in_the_border_have_nothing_to_compute(name: str) -> None:
    for model in (rows(0, 6), rows(5, 0), rows(3, 4), image(), batch()):
        check(model, NAMED[name], "fp32")


@pytest.mark.parametrize("strategy", ["line", "branchx", "optimal"])
def test_groups_around_a_border(strategy: str) -> None:
    options = CompileOptions(stages=Stages(partition=STRATEGIES[strategy]()))
    for model in (rows(2, 3), image(), batch()):
        check(model, NAMED["wide"], "fp32", options)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rolling", [True, False])
def test_any_tiles_around_a_border(seed: int, rolling: bool) -> None:
    for model in (rows(4, 3), image(), batch()):
        check(model, NAMED["plain"], "fp32", anything(seed, rolling=rolling, slots=2))


def coded(value: float, zero: int) -> onnx.ModelProto:
    """A border of `value` between two encodings of tenths, the first with its zero at `zero`."""
    pads = np.array([1, 2, 2, 1], "i8")
    constants = {
        "p": pads, "v": np.float32(value), "s": np.float32(0.1), "z": np.int8(zero),
        "t": np.float32(0.11), "u": np.int8(5),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"]),
        helper.make_node("Pad", ["r", "p", "v"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "t", "u"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "t", "u"], ["y"]),
    ]
    data = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 7))]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (5, 10))]
    graph = helper.make_graph(nodes, "net", ports, out, data)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize(
    ("value", "zero"),
    [pytest.param(-8.0, -66, id="below the lowest"), pytest.param(0.16, 0, id="between two"),
     pytest.param(-1.2, 3, id="exact"), pytest.param(0.0, 3, id="zero")],
)  # fmt: skip
def test_a_border_keeps_its_real_value(value: float, zero: int) -> None:
    arch = NAMED["plain"]
    x = np.linspace(-6, 6, 14, dtype=np.float32).reshape(2, 7)
    model = coded(value, zero)
    program = compile_model(model, arch, CompileOptions(dtype="int8")).program
    verify(program, arch)
    got = execute(program, {"x": x}, arch, host=run_node)["y"]
    edge = np.float32(np.clip(np.rint(value / np.float32(0.11)) + 5, -128, 127) - 5) * 0.11
    np.testing.assert_allclose(got[0], edge, atol=1e-6)
    np.testing.assert_allclose(got[:, 0], edge, atol=1e-6)


def signed_only() -> Arch:
    """A vector engine that has no unsigned bytes, which the matrix engine reads and writes."""
    return machine(
        name="signed", matrix={"writeback": ("bias", "clip", "requantize")},
        vector={"types": ("int8", "int32", "fp16", "fp32")},
    )  # fmt: skip


def unsigned() -> onnx.ModelProto:
    """Two integer convolutions with borders; unsigned bytes between them."""
    rng = np.random.default_rng(1)
    constants = {"s": np.float32(0.05), "z": np.uint8(128), "ws": np.float32(0.01),
                 "wz": np.int8(0)}  # fmt: skip
    for name in "ab":
        constants[name] = rng.integers(-90, 90, (8, 8, 3, 3)).astype(np.int8)
    code, weight = ["s", "z"], ["ws", "wz"]
    pads = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("QLinearConv", ["x", *code, "a", *weight, *code], ["m"], **pads),
        helper.make_node("QLinearConv", ["m", *code, "b", *weight, *code], ["y"], **pads),
    ]
    data = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    shape = (1, 8, 12, 12)
    ports = [helper.make_tensor_value_info(n, TensorProto.UINT8, shape) for n in "xy"]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], data)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("rolling", [True, False])
def test_what_the_vector_engine_cannot_fill_has_no_border_on_chip(rolling: bool) -> None:
    arch = signed_only()
    for options in (None, anything(0, rolling=rolling, slots=2)):
        compiled = compile_model(unsigned(), arch, options)
        verify(compiled.program, arch)


def test_turns_of_the_batch_in_the_border_are_not_like_the_others() -> None:
    net = Net()
    y = net.op("Relu", padded(net, net.op("Neg", net.input(3, 5, 6)), 2, 0, 0, 2, 0, 0))
    model = net.model(net.op("Mul", y, y))
    graph = lower(prepared(model, "net"), "fp32")
    parts = FuseTails(tails=False).apply(graph)
    group = dependences(parts, graph).group((1 << len(parts)) - 1)
    loops = (OuterLoop(0, 1), OuterLoop(1, 1))
    with pytest.raises(Unwalkable, match="not regular"):
        Walker(group, frozenset()).walk(loops, ((0, 7), (0, 5), (0, 6)))
