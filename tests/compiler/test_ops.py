"""Operators as nests compute what ONNX Runtime says, in cases that ONNX's own tests lack.

One line per variant: inputs as shapes (computed) or arrays (constant), then attributes. The model
goes through the whole of `load`, `prepare` and `lower`, and runs in the interpreter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import cleaned, model
from one_node import Case, agree, case, check, ints, lowered, model_of, real, reference
from onnx import helper, numpy_helper

from archgen.check.reference import run_node
from compiler.errors import UnsupportedModel
from compiler.frontend.importer import load
from compiler.lowering.lower import TABLE, lower
from compiler.options import NEST_PASSES
from compiler.passes import run_passes
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Array, HostNode

RNG = np.random.default_rng(7)

ELEMENTWISE = [
    case("LeakyRelu", (7,), alpha=0.3),
    case("Elu", (7,), alpha=0.3),
    case("Selu", (7,), alpha=2.0, gamma=3.0),
    case("HardSigmoid", (7,), alpha=0.7, beta=0.1),
    case("Celu", (7,), alpha=2.5),
    case("Celu", ()),
    case("ThresholdedRelu", (7,), alpha=0.3),
    case("Gelu", (3, 4), approximate="tanh"),
    *(case(op, (2, 3, 5), (3, 1)) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu")),
    *(case(op, (3, 1), (2, 1, 5)) for op in ("Add", "Div", "Equal", "Less", "LessOrEqual")),
    case("Sub", real(2, 1, 5), (3, 1)),
    case("Add", (3, 4), np.array(2, np.float32)),
    *(case(op, (3, 4), np.array(c, np.float32)) for op in ("Mul", "Div") for c in (8, 0.3, -3, 0)),
    case("Mul", np.array([[0.7]], np.float32), (3, 4)),
    case("Div", np.array(2, np.float32), (3, 4), positive=True),
    case("Div", (3, 4), np.array([3, -2, 0.1, 8], np.float32)),
    case("Div", (3, 1), np.array([[3, -2, 0.1, 1e-45]], np.float32)),
    case("Div", (3, 1), np.array([[[5]]], np.float32)),
    case("Pow", (3, 4), np.array(1.7, np.float32), positive=True),
    case("Pow", (3, 4), np.array([2], np.float32)),
    case("Pow", (3, 4), np.array(0.5, np.float32), positive=True),
    case("Pow", (3, 4), np.array([[-1.0]], np.float32)),
    case("Max", (3, 4), (4,), (3, 1)),
    case("Where", np.array([[True], [False], [True]]), (3, 4), (4,)),
    case("Clip", (3, 4), np.float32(-0.2), np.float32(0.4)),
    case("Clip", (3, 4), (), ()),
    case("Clip", (3, 4), min=-0.5, max=0.1, opset=7),
    case("QuantizeLinear", (3, 50), np.float32(0.02), np.uint8(100)),
    case("QuantizeLinear", (3, 50), np.float32(0.02), np.int8(-3)),
    case("DequantizeLinear", (3, 50), np.float32(0.02), np.int8(-3), dtype="i1"),
    case(
        "QuantizeLinear", (4, 3, 5), np.array([0.1, 0.02, 0.03], "f4"), np.array([0, 3, 255], "u1")
    ),
    case("QuantizeLinear", (4, 3), np.array([0.1, 0.02, 0.03, 1], "f4"), axis=-2),
    case("DequantizeLinear", (4, 3, 5), np.array([0.1, 0.02, 0.03], "f4"), dtype="i1"),
    case("DequantizeLinear", (4, 3), np.float32(0.1), np.array([3], "i1"), dtype="i1"),
]
CONTRACTIONS = [
    case("Conv", (1, 3, 7, 5), real(4, 3, 3, 3)),
    case("Conv", (2, 3, 7, 5), real(4, 3, 3, 2), real(4), pads=[1, 0, 2, 1]),
    case("Conv", (1, 3, 8, 9), real(4, 3, 3, 3), strides=[2, 3], pads=[1, 1, 1, 1]),
    case("Conv", (1, 3, 9, 9), real(4, 3, 3, 3), dilations=[2, 3]),
    case("Conv", (1, 3, 7, 7), real(4, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", (1, 3, 6, 7), real(4, 3, 2, 2), auto_pad="SAME_LOWER"),
    case("Conv", (1, 3, 7, 7), real(5, 3, 1, 1), real(5), strides=[2, 3]),
    case("Conv", (2, 6, 5, 5), real(4, 3, 3, 3), real(4), group=2, pads=[1, 1, 1, 1]),
    case("Conv", (1, 4, 5, 5), real(4, 1, 3, 3), real(4), group=4, strides=[2, 1]),
    case("Conv", (1, 4, 5, 5), real(8, 1, 3, 3), real(8), group=4),
    case("Conv", (1, 4, 5, 5), real(2, 2, 1, 1), group=2, strides=[2, 2]),
    case("Conv", (1, 3, 11), real(4, 3, 3), real(4), strides=[2], pads=[1, 2], dilations=[2]),
    case("Conv", (1, 4, 11), real(4, 1, 3), group=4, pads=[1, 1]),
    case("Conv", (1, 4, 11), real(6, 2, 3), group=2),
    case("ConvTranspose", (1, 3, 4, 5), real(3, 2, 3, 3)),
    case("ConvTranspose", (2, 3, 4, 5), real(3, 2, 3, 3), real(2), strides=[2, 3]),
    case("ConvTranspose", (1, 3, 4, 5), real(3, 2, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
    case("ConvTranspose", (1, 3, 4, 4), real(3, 2, 3, 3), strides=[2, 2], pads=[1, 0, 0, 1],
         output_padding=[1, 1]),
    case("ConvTranspose", (1, 3, 4, 5), real(3, 2, 2, 2), real(2), strides=[3, 3]),
    case("ConvTranspose", (1, 4, 4, 5), real(4, 3, 3, 3), real(6), group=2, strides=[2, 2]),
    case("ConvTranspose", (1, 4, 4, 5), real(4, 1, 4, 4), group=4, strides=[2, 2]),
    case("ConvTranspose", (1, 3, 6), real(3, 2, 5), real(2), strides=[3], pads=[2, 1]),
    case("MatMul", (2, 3, 5), real(5, 4)),
    case("MatMul", (2, 1, 3, 5), (7, 5, 4)),
    case("MatMul", (2, 3, 0), real(0, 4)),
    case("MatMul", (5,), (5, 4)),
    case("MatMul", (2, 3, 5), (5,)),
    case("MatMul", (5,), (2, 5, 3)),
    case("MatMul", (5,), (5,)),
    case("Gemm", (3, 5), real(4, 5), real(4), transB=1, alpha=2.0, beta=0.5),
    case("Gemm", (5, 3), (5, 4), (3, 1), transA=1),
]  # fmt: skip
REDUCTIONS = [
    case("ReduceLogSumExp", (2, 3, 5), ints(-2), keepdims=0),
    case("ReduceMax", (2, 3, 5), axes=[1], keepdims=0, opset=13),
    case("ReduceSum", (2, 3, 5), axes=[0, -1], opset=11),
    case("GlobalMaxPool", (2, 3, 5)),
    case("MaxPool", (1, 3, 7, 8), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("MaxPool", (1, 3, 7, 8), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("MaxPool", (1, 3, 9, 9), kernel_shape=[3, 3], dilations=[2, 2], strides=[2, 1]),
    case("MaxPool", (1, 3, 11), kernel_shape=[3], strides=[2], pads=[1, 0]),
    case("MaxPool", (1, 3, 7, 7), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
    case("AveragePool", (1, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 1]),
    case("AveragePool", (1, 3, 7, 8), kernel_shape=[3, 3], pads=[1, 0, 1, 2]),
    case("AveragePool", (1, 3, 7, 8), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    case("AveragePool", (1, 3, 7, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("AveragePool", (1, 2, 10), kernel_shape=[4], strides=[3], ceil_mode=1, pads=[1, 1]),
    case("LRN", (2, 7, 3, 4), size=3),
    case("LRN", (1, 5, 4, 2), size=5, alpha=0.5, beta=0.6, bias=2.0),
]  # fmt: skip
MOVEMENT = [
    case("Squeeze", (2, 1, 4), axes=[1], opset=11),
    case("Slice", (4, 9), ints(1, -7), ints(3, 1000), ints(0, 1), ints(1, 2)),
    case("Slice", (4, 9), ints(-3), ints(-1)),
    case("Slice", (4, 9, 5), ints(9, 1, 3), ints(0, 4, -9), ints(1, 0, 2), ints(-3, 2, -1)),
    case("Slice", (4, 9), ints(2), ints(0), ints(0), ints(-4)),
    case("Slice", (4, 9), starts=[1], ends=[7], axes=[1], opset=9),
    case("Split", (2, 7), ints(3, 4), axis=1, outputs=2),
    case("Split", (6, 2), num_outputs=3, outputs=3),
    case("Split", (2, 6), axis=-1, outputs=2, opset=11),
    case("Expand", (3, 1), ints(2, 3, 4)),
    case("Gather", (5, 9), ints(1, 3, 5), axis=1),
    case("Gather", (5, 9), ints(1, 7, 2, 2), axis=1),
    case("Gather", (5, 4), np.array([[1, 0], [4, 4]]), axis=0),
    case("Concat", (2, 3), (2, 1), real(2, 2), axis=1),
    case("Pad", (2, 5), ints(0, -2, 1, -1), np.float32(3)),
    case("Pad", (2, 3, 4), ints(1, 2), np.float32(1), ints(-1)),
    case("Pad", (2, 3), pads=[0, 1, 1, 0], value=2.0, opset=9),
    case("Pad", (2, 5), ints(0, -6, 0, 6), np.float32(3)),
    *(case("Pad", (3, 7), ints(0, -2, 1, 3), mode=mode) for mode in ("reflect", "edge")),
    case("Pad", (3, 7), ints(-1, 2, 0, -3), mode="reflect"),
    case("Tile", (2, 3, 1), ints(1, 4, 2)),
    case("DepthToSpace", (1, 8, 2, 3), blocksize=2),
    case("DepthToSpace", (2, 18, 2, 1), blocksize=3, mode="CRD"),
    case("Upsample", (1, 2, 3, 4), np.array([1, 1, 2, 2], "f4"), opset=9),
]  # fmt: skip
# Operators that graph passes make of others.
POSITIONS = [
    *(case(op, (3, 4, 5), axis=axis, keepdims=kept, select_last_index=last)
      for op in ("ArgMax", "ArgMin") for axis, kept, last in ((0, 1, 0), (-1, 0, 1))),
    case("ArgMax", (3, 4), axis=1, dtype="i4"),
    *(case("Hardmax", (3, 4, 5), axis=axis) for axis in (-1, 0)),
    *(case("OneHot", (3, 4), np.int64(6), np.array([2, 5], "f4"), axis=axis, dtype="i8")
      for axis in (0, 1, -1)),
    case("OneHot", (90,), np.array([7], "f4"), (2,)),
    *(case(op, (3, 11), np.array(axis), reverse=back, exclusive=apart)
      for op in ("CumSum",) for axis in (0, -1) for back in (0, 1) for apart in (0, 1)),
    case("CumSum", (4, 1), np.array(1), exclusive=1),
    case("EyeLike", (4, 5), k=-1),
]  # fmt: skip
WINDOWS = [
    *(case("ConvTranspose", (1, 2, 4, 5), real(2, 3, 3, 2), real(3), strides=strides,
           dilations=dilations, pads=[1, 0, 2, 1])
      for strides, dilations in (([1, 1], [2, 3]), ([2, 3], [3, 2]), ([4, 2], [2, 2]))),
    case("Conv", (2, 3, 5, 6, 4), real(4, 3, 3, 2, 3), real(4), pads=[1, 0, 1, 2, 1, 0],
         strides=[2, 1, 1]),
    case("Conv", (1, 4, 7, 3, 3), real(6, 2, 3, 1, 2), group=2, dilations=[2, 1, 1]),
    case("Conv", (1, 4, 4, 3, 3), real(4, 1, 2, 3, 3), group=4),
    case("Conv", (1, 4, 4, 3, 3), real(2, 4, 1, 1, 1)),
    case("MaxPool", (2, 3, 5, 7, 6), kernel_shape=[2, 3, 2], strides=[2, 2, 1],
         pads=[1, 0, 1, 0, 1, 0]),
    case("MaxPool", (1, 2, 6, 5, 6), kernel_shape=[2, 2, 2], dilations=[2, 1, 3], ceil_mode=1),
    *(case("AveragePool", (2, 3, 5, 7, 6), kernel_shape=[3, 3, 2], strides=[2, 2, 3],
           pads=[1, 1, 0, 1, 0, 1], ceil_mode=ceil, count_include_pad=whole)
      for ceil in (0, 1) for whole in (0, 1)),
    *(case("LpPool", (1, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], p=p,
           opset=18)
      for p in (1, 2, 3)),
    case("LpPool", (1, 2, 9), kernel_shape=[3], dilations=[2], opset=18),
    *(case("GlobalLpPool", (2, 3, 5, 4), p=p) for p in (1, 2)),
    case("LpPool", (1, 2, 4, 5, 3), kernel_shape=[2, 3, 2], opset=18),
]  # fmt: skip
SCATTERS = [
    *(case("TopK", (3, 9), ints(count), outputs=2, axis=axis, largest=largest)
      for count, axis, largest in ((3, -1, 1), (1, 0, 0), (3, 0, 1))),
    case("TopK", (4, 5), ints(5), outputs=2, dtype="i4"),
    *(case("ScatterElements", (3, 5), np.array([[0, -1, 2], [1, 4, 3]]), (2, 3), axis=1,
           reduction=how)
      for how in ("none", "add", "mul", "max", "min")),
    *(case("ScatterND", (3, 2, 5), np.array([[0, 1], [2, 0], [-1, -1]]), (3, 5), reduction=how)
      for how in ("none", "add", "mul", "max", "min")),
    case("ScatterND", (9, 5), np.array([[[-1], [2]], [[0], [7]]]), (2, 2, 5)),
    case("ScatterND", (3, 4, 5), np.moveaxis(np.mgrid[1:3, -3:0], 0, -1), (2, 3, 5)),
    case("ScatterElements", (2, 3), np.array([[2, -3]]), (1, 2), axis=1, dtype="i1"),
    case("GatherND", (3, 2, 5), np.array([[[0, 1]], [[-1, 0]]])),
    case("GatherND", (3, 2, 5), np.array([[0], [1], [1]]), batch_dims=1),
    case("GatherND", (9, 8), np.array([[0, 7], [-1, 3]])),  # of too many to compare places with
    case("GatherElements", (3, 5), np.array([[0, -1, 2], [1, 4, 3]]), axis=1),
    case("Hardmax", (2, 3, 4), opset=11),
]  # fmt: skip
CASES = [
    *ELEMENTWISE, *CONTRACTIONS, *REDUCTIONS, *MOVEMENT, *POSITIONS, *WINDOWS, *SCATTERS
]  # fmt: skip


@pytest.mark.parametrize("node", CASES, ids=str)
def test_operator(node: Case) -> None:
    check(*model_of(node))


def test_dot_products_of_many_pairs_are_no_matrix_products() -> None:
    for node in (
        case("Einsum", (4, 5, 6), (4, 5, 6), equation="ijk,ijk->ij"),
        case("MatMul", (3, 1, 6), (3, 6, 1)),
    ):
        model, feeds = model_of(node)
        assert [step.contraction for step in lowered(model).steps] == [False, False]
        check(model, feeds)


def test_elements_at_an_index_that_repeats_are_rows() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=onnx.TensorProto.INT64),
        helper.make_node("Expand", ["i", "wide"], ["index"]),
        helper.make_node("GatherElements", ["data", "index"], ["y"], axis=1),
    ]
    model = chain(nodes, (1, 3, 1), {"wide": ints(1, 3, 40), "data": real(1, 90, 40)})
    graph = lower(cleaned(load(model, "g")), "fp32")
    assert [step.kind for step in graph.steps][-1] == "Gather"
    feeds = {"x": np.array([[[3], [80], [7]]], np.float32)}
    agree(run(graph, feeds, run_node), reference(model, feeds), atol=0)


def test_silu_is_found_in_its_spelling() -> None:
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])]
    model = chain(nodes, (3, 5))
    graph = lowered(model)
    assert [step.kind for step in graph.steps] == ["Silu"]
    check(model, {"x": real(3, 5)})


def chain(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], weights: dict[str, Array] | None = None
) -> onnx.ModelProto:
    """A float32 model from x to y."""
    proto = model(nodes, {"x": shape}, ["y"], weights, opset=21)
    return onnx.shape_inference.infer_shapes(proto)


def test_one_weight_serves_unlike_convolutions() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], group=4),
        helper.make_node("Conv", ["a", "w", "b"], ["c"], group=4, dilations=[2, 2]),
        helper.make_node("Slice", ["c", "zero", "one", "one"], ["d"]),
        helper.make_node("Conv", ["d", "w", "b"], ["e"]),
        helper.make_node("Mul", ["e", "w"], ["y"]),
    ]
    weights = {"w": real(4, 1, 2, 2), "b": real(4), "zero": ints(0), "one": ints(1)}
    check(chain(nodes, (1, 4, 6, 6), weights), {"x": real(1, 4, 6, 6)})


@settings(max_examples=40)
@given(st.data())
def test_chains_of_views(data: st.DataObject) -> None:
    shape: tuple[int, ...] = tuple(data.draw(st.integers(1, 4)) for _ in range(3))
    start, nodes, weights, last = shape, [], {}, "x"
    for i in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["Transpose", "Reshape", "Slice"]))
        if kind == "Transpose":
            perm = data.draw(st.permutations(range(len(shape))))
            nodes.append(helper.make_node(kind, [last], [f"v{i}"], perm=perm))
            shape = tuple(shape[a] for a in perm)
        elif kind == "Reshape":
            cut = data.draw(st.integers(0, len(shape)))
            shape = tuple(int(np.prod(part)) for part in (shape[:cut], shape[cut:]))
            weights[f"w{i}"] = ints(*shape)
            nodes.append(helper.make_node(kind, [last, f"w{i}"], [f"v{i}"]))
        else:
            first = data.draw(st.integers(0, shape[0] - 1))
            for name, value in (("s", first), ("e", shape[0]), ("a", 0)):
                weights[f"{name}{i}"] = ints(value)
            nodes.append(helper.make_node(kind, [last, f"s{i}", f"e{i}", f"a{i}"], [f"v{i}"]))
            shape = (shape[0] - first, *shape[1:])
        last = f"v{i}"
    nodes.append(helper.make_node("Neg", [last], ["y"]))
    check(chain(nodes, start, weights), {"x": real(*start)})


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (case("Det", (2, 3, 3)), "no nest for Det"),
        (case("TopK", (3, 16), ints(9), outputs=2), "more than 8"),
        (case("Conv", (1, 2, 9, 30), (3, 2, 5, 26), (3,)), "whose input 2 is not constant"),
        (case("Gather", (1, 100), RNG.permutation(100), axis=1), "separate runs"),
    ],
    ids=str,
)
def test_what_no_nest_says_runs_on_the_host(node: Case, reason: str) -> None:
    model, feeds = model_of(node)
    graph = lower(cleaned(load(model, "g")), "fp32")
    (step,) = graph.steps
    assert isinstance(step, HostNode) and reason in step.reason
    assert graph.tensors.keys() >= {*graph.inputs, *graph.outputs}
    agree(run(graph, feeds, run_node), reference(model, feeds), atol=1e-6)


def test_host_payloads_hold_what_branches_capture() -> None:
    # More operators than are worth computing in vain: the branches stay branches.
    many = "m0 = Neg (a)" + "".join(f" m{i} = Neg (m{i - 1})" for i in range(1, 34))
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (bool c, float[3] x) => (float[3] y) <float[3] w = {{1, 2, 3}}> {{
        a = Neg (x)
        y = If (c) <
            then_branch = one () => (float[3] p) {{ {many} p = Mul (m33, w) }},
            else_branch = two () => (float[3] q) {{ q = Sub (x, a) }}
        >
    }}"""
    model = onnx.parser.parse_model(text)
    graph = lower(cleaned(load(model, "g")), "fp32")
    assert [step.kind for step in graph.steps] == ["Neg", "If"]
    for chosen in (True, False):
        feeds = {"c": np.array(chosen), "x": real(3)}
        got = run(graph, feeds, run_node)
        np.testing.assert_array_equal(got["y"], reference(model, feeds)[0])


def test_types_that_no_memory_stores_are_refused() -> None:
    model, _ = model_of(case("Transpose", (3, 2), dtype="c8"))
    with pytest.raises(UnsupportedModel, match="COMPLEX64"):
        lower(cleaned(load(model, "g")), "fp32")


def quantized(
    op: str, x: tuple[int, ...], w: Array, tail: str, **attributes: Any
) -> onnx.ModelProto:
    """QuantizeLinear x, op with weights by channel, `tail`, QuantizeLinear: all in QDQ form."""
    weights = {
        "xs": np.float32(0.03), "xz": np.uint8(120), "w": w,
        "ys": np.float32(0.05), "yz": np.uint8(7), "six": np.float32(6), "nil": np.float32(0),
    }  # fmt: skip
    axis = {"Conv": 0, "ConvTranspose": 1}.get(op, w.ndim - 1)
    count = w.shape[axis]
    weights |= {"ws": np.linspace(0.01, 0.02, count, dtype=np.float32), "wz": np.zeros(count, "i1")}
    if op != "MatMul":
        unit = np.tile(weights["xs"] * weights["ws"], attributes.get("group", 1) if axis else 1)
        weights |= {"b": np.arange(len(unit), dtype=np.int32) * 10 - 20}
        weights |= {"bs": unit, "bz": np.zeros(len(unit), np.int32)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["k"], axis=axis),
    ]
    operands = ["d", "k"]
    if op != "MatMul":
        nodes.append(helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["c"], axis=0))
        operands.append("c")
    nodes.append(helper.make_node(op, operands, ["o"], **attributes))
    limits = ["nil", "six"] if tail == "Clip" else []
    nodes.append(helper.make_node(tail, ["o", *limits], ["r"]))
    nodes.append(helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["y"]))
    model = chain(nodes, x, weights)
    del model.graph.output[0]
    model.graph.output.append(helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, None))
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize(
    "model",
    [
        quantized("Conv", (1, 3, 6, 5), RNG.integers(-9, 9, (4, 3, 3, 3), np.int8), "Relu"),
        quantized("Conv", (1, 3, 6, 5), RNG.integers(-9, 9, (4, 3, 3, 2), np.int8), "Clip",
                  pads=[1, 0, 2, 1], strides=[2, 1]),
        quantized("Conv", (1, 4, 6, 5), RNG.integers(-99, 99, (4, 1, 3, 3), np.int8), "Identity",
                  group=4, pads=[1, 1, 1, 1]),
        quantized("Conv", (1, 4, 6, 5), RNG.integers(-99, 99, (6, 2, 1, 1), np.int8), "Clip",
                  group=2),
        quantized("MatMul", (9, 7), RNG.integers(-99, 99, (7, 5), np.int8), "Relu"),
        quantized("ConvTranspose", (1, 3, 6, 5), RNG.integers(-99, 99, (3, 4, 2, 3), np.int8),
                  "Identity", strides=[2, 1], pads=[0, 1, 1, 0], output_padding=[1, 0]),
        quantized("ConvTranspose", (1, 4, 6, 5), RNG.integers(-99, 99, (4, 3, 1, 1), np.int8),
                  "Clip", strides=[2, 2], group=2),
    ],
    ids=["conv", "clip", "depthwise", "groups", "matmul", "transposed", "untouched"],
)  # fmt: skip
def test_quantized_products_are_within_one_step(model: onnx.ModelProto) -> None:
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    feeds = {"x": 2 * real(*shape)}
    graph = lowered(model)
    assert any(step.kind.startswith(("QConv", "QMatMul")) for step in graph.steps)
    got, want = run(graph, feeds)["y"].astype(int), reference(model, feeds)[0].astype(int)
    assert len(np.unique(want)) > 10
    assert np.abs(got - want).max() <= 1
    assert np.mean(got != want) < 0.05


def test_a_real_bias_of_a_quantized_product_counts_in_units_of_its_sums() -> None:
    model = quantized("MatMul", (9, 7), RNG.integers(-99, 99, (7, 5), np.int8), "Relu")
    product, row = model.graph.node[3], np.linspace(-2, 2, 5, dtype=np.float32)
    product.output[0] = "p"
    model.graph.node.insert(4, helper.make_node("Add", ["p", "row"], ["o"]))
    model.graph.initializer.append(numpy_helper.from_array(row, "row"))
    graph = run_passes(NEST_PASSES, lowered(model)).ir
    (product_nest,) = (step for step in graph.steps if step.kind == "QMatMul")
    assert product_nest.bias is not None and "Add" not in [step.kind for step in graph.steps]
    assert graph.tensors[product_nest.bias.tensor].dtype == "int32"
    feeds = {"x": 2 * real(9, 7)}
    got, want = run(graph, feeds)["y"].astype(int), reference(model, feeds)[0].astype(int)
    assert len(np.unique(want)) > 10 and np.abs(got - want).max() <= 1


def test_a_quantized_product_on_the_host_is_made_of_standard_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(TABLE, "QConvTranspose")
    model = quantized(
        "ConvTranspose", (1, 4, 6, 5), RNG.integers(-99, 99, (4, 3, 2, 2), np.int8), "Relu",
        dilations=[2, 1], group=2,
    )  # fmt: skip
    graph = lower(cleaned(load(model, "g")), "fp32")
    assert "QConvTranspose" in [step.kind for step in graph.steps if isinstance(step, HostNode)]
    feeds = {"x": 2 * real(1, 4, 6, 5)}
    got, want = run(graph, feeds, run_node)["y"], reference(model, feeds)[0]
    np.testing.assert_array_equal(got, want)


def test_quantization_by_computed_parameters() -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    model, x = chain(nodes, (4, 9)), real(4, 9)
    got, want = run(lowered(model), {"x": x})["y"], reference(model, {"x": x})[0]
    step = (x.max() - x.min()) / 255
    assert np.abs(got - want).max() <= 1.01 * step
    assert np.mean(np.abs(got - want) > 0.5 * step) < 0.1


def test_the_scale_of_nothing_but_zeros_is_one() -> None:
    model = chain([helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], (4, 9))
    for name, kind in (("s", onnx.TensorProto.FLOAT), ("z", onnx.TensorProto.UINT8)):
        model.graph.output.append(helper.make_tensor_value_info(name, kind, []))
    feeds = {"x": np.zeros((4, 9), np.float32)}
    got, want = run(lowered(model), feeds), reference(model, feeds)
    for name, array in zip("ysz", want, strict=True):
        assert np.array_equal(got[name], array)


def test_integer_products_are_exact() -> None:
    b = RNG.integers(0, 255, (7, 5), np.uint8)
    node = case("MatMulInteger", (3, 7), b, np.int8(-4), np.uint8(3), dtype="i1")
    check(*model_of(node))


@pytest.mark.parametrize(("kind", "tolerance"), [("fp16", 2e-3), ("bf16", 2e-2)])
def test_narrow_types_in_memory(kind: str, tolerance: float) -> None:
    model, feeds = model_of(case("Conv", (1, 3, 7, 5), real(4, 3, 3, 3), real(4)))
    graph = lower(cleaned(load(model, "g")), kind)
    assert graph.tensors["o0"].dtype == kind
    want = reference(model, feeds)[0]
    got = run(graph, feeds)["o0"]
    assert got.dtype == np.float32
    assert 0 < np.abs(got - want).max() < tolerance * np.abs(want).max()
