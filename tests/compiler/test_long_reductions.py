"""Reductions of more elements than a tile can hold are made of partial results; a product's tail
works in place, and nothing behind it reduces.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMED, machine
from networks import Net, check, feeds_of, reference

from archgen.check.reference import run_node
from compiler.codegen.nodes import instructions
from compiler.context import CompileOptions, Context
from compiler.lowering.lower import Lower, lower
from compiler.options import Stages
from compiler.pipeline import nests, prepared
from compiler.schedule.fusion.fuse_tails import FuseTails
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import HostNode

SMALL = machine(local={"size": 65536})


@pytest.mark.parametrize(
    ("kind", "shape", "axes"),
    [
        ("ReduceMax", (1, 40, 30, 32), (0, 1, 2, 3)),
        ("ReduceMin", (80002,), (0,)),
        ("ReduceMean", (2, 3, 190, 190), (2, 3)),
        ("ReduceSum", (3, 33000), (1,)),
    ],
)
def test_what_is_larger_than_local_memory_is_reduced(
    kind: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    net = Net()
    source = net.op("Sin", net.input(*shape))
    check(net.model(net.op(kind, source, net.const(axes, "i8"))), SMALL, "fp32")


def test_the_range_of_a_large_tensor_is_found_for_dynamic_quantization() -> None:
    net = Net()
    source = net.op("Sin", net.input(1, 150, 160))
    net._raw("DynamicQuantizeLinear", [source], (1, 150, 160))
    code = ["scale", "zero"]
    net.nodes[-1].output.extend(code)
    real = net._raw("DequantizeLinear", [net.nodes[-1].output[0], *code], (1, 150, 160))
    check(net.model(real), SMALL, "int8")


@settings(max_examples=40)
@given(st.data())
def test_partial_results_of_any_axes_give_the_same(data: st.DataObject) -> None:
    extents = st.sampled_from((1, 2, 3, 7, 12, 30))
    shape = tuple(data.draw(st.lists(extents, min_size=1, max_size=4)))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    net = Net()
    source = net.op(
        "Transpose", net.input(*shape), perm=data.draw(st.permutations(range(len(shape))))
    )
    kind = data.draw(st.sampled_from(("ReduceMax", "ReduceSum", "ReduceMean", "ReduceL2")))
    kept = data.draw(st.integers(0, 1))
    model = net.model(net.op(kind, source, net.const(sorted(axes), "i8"), keepdims=kept))
    options = CompileOptions(dtype="fp32", stages=Stages(lower=Lower(longest=4)))
    graph = nests(prepared(model, "net"), Context(SMALL, options))
    feeds = feeds_of(model)
    (want,), (got,) = reference(model, feeds).values(), run(graph, feeds, run_node).values()
    # Sums that cancel are as exact as what they add up is large.
    added = max(float(np.abs(values).sum()) for values in feeds.values())
    np.testing.assert_allclose(got, want, 1e-5, max(1e-5, 1e-6 * added))


@pytest.mark.parametrize(
    ("kind", "attributes"), [("GlobalAveragePool", {}), ("AveragePool", {"kernel_shape": [3, 3]})]
)
def test_integers_count_the_steps_between_the_pieces_of_a_mean(
    kind: str, attributes: dict[str, list[int]]
) -> None:
    """An engine of integers alone adds up whole steps of its input and rounds once, at the end."""
    net = Net(quantized=True)
    model = net.model(net.op(kind, net.input(1, 4, 12, 12), **attributes))
    vector = {"types": ("int8", "uint8", "int32"), "rank": 1, "max_extent": 16, "window": False}
    made = check(model, machine(types=("int8",), vector=vector), "int8").compiled
    assert kind not in {call.kind for call in made.host}
    assert "ReduceMean" not in {call.kind for call in made.host}
    reduces = [item for core in made.program.cores for item in instructions(core)]
    assert {item.dst.dtype for item in reduces if item.form.startswith("vector.")} == {
        "int8", "int32",
    }  # fmt: skip


def layers(model: onnx.ModelProto) -> str:
    """Operators of every layer by the function that they apply."""
    parts = FuseTails().apply(lower(prepared(model, "net"), "fp32"))
    found = []
    for part in parts:
        assert not isinstance(part, HostNode)
        found.append(" ".join(nest.reduce or nest.function for nest in part.nests))
    return " | ".join(found)


def norm(kind: str, product: str, keepdims: int = 0) -> onnx.ModelProto:
    """A product, and the norm of its rows or of its planes."""
    net = Net()
    if product == "Conv":
        y = net.op("Conv", net.input(1, 8, 6, 6), net.weight(12, 8, 3, 3), pads=[1] * 4)
        axes = net.const([2, 3], "i8")
    elif product == "MatMul":
        y = net.op("MatMul", net.input(1, 5, 16), net.weight(16, 20))
        axes = net.const([-1], "i8")
    else:
        y = net.op(product, net.input(1, 5, 16))
        axes = net.const([-1], "i8")
    return net.model(net.op(kind, y, axes, keepdims=keepdims))


def test_a_norm_behind_a_product_is_a_layer_of_its_own() -> None:
    assert layers(norm("ReduceL2", "MatMul")) == "sum square | sum sqrt"
    assert layers(norm("ReduceL1", "Conv")) == "sum abs | sum"


def test_a_norm_behind_anything_else_is_one_layer() -> None:
    assert layers(norm("ReduceL2", "Relu")) == "relu square sum sqrt"


@pytest.mark.parametrize("kind", ["ReduceL1", "ReduceL2", "ReduceSumSquare"])
@pytest.mark.parametrize("product", ["Conv", "MatMul"])
@pytest.mark.parametrize("name", ["plain", "small", "fine", "wide"])
def test_a_norm_behind_a_product_is_right(name: str, product: str, kind: str) -> None:
    check(norm(kind, product, keepdims=int(name != "plain")), NAMED[name], "fp32")
