"""Borders: tiles that lie in them altogether, values that no element can say, types that the
vector engine cannot fill them with."""

from __future__ import annotations

import onnx
import pytest
from machines import NAMED
from networks import Net, check

from compiler.context import CompileOptions
from compiler.options import Stages
from compiler.schedule.fusion.optimal import STRATEGIES
from compiler.tensor_ir.bounds import Box, clipped, union


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
