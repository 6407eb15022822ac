"""Which operators share a layer: a product's tail works in place, nothing behind it reduces."""

from __future__ import annotations

import onnx
import pytest
from machines import NAMED
from networks import Net, check

from compiler.lowering.lower import lower
from compiler.pipeline import prepared
from compiler.schedule.fusion.fuse_tails import FuseTails
from compiler.tensor_ir.nest import HostNode


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
