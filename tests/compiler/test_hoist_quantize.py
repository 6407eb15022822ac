"""Whatever rearranges elements between numbers and their quantization: the integers stay the same.

Random trees of movements, shared and branching, are quantized at their leaves; moving
DequantizeLinear down and QuantizeLinear up must not change one integer of any output.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Net, feeds_of, reference

from compiler.frontend.importer import load
from compiler.frontend.quantization.move_quantize import HoistQuantize, SinkDequantize
from compiler.passes import run_passes

INPUT = (2, 3, 4)
SCALES = (0.25, 0.5)


def reshaped(draw: st.DrawFn, net: Net, x: str) -> str:
    size = math.prod(net.shapes[x])
    rows = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    return net.op("Reshape", x, net.const(draw(st.permutations([rows, size // rows])), "i8"))


def transposed(draw: st.DrawFn, net: Net, x: str) -> str:
    return net.op("Transpose", x, perm=draw(st.permutations(range(len(net.shapes[x])))))


def unsqueezed(draw: st.DrawFn, net: Net, x: str) -> str:
    return net.op("Unsqueeze", x, net.const([draw(st.integers(0, len(net.shapes[x])))], "i8"))


def sliced(draw: st.DrawFn, net: Net, x: str) -> str:
    axis = _axis(draw, net, x)
    ends = draw(st.sampled_from([(0, 2, 1), (-1, -9, -1), (1, 9, 2)]))
    start, end, step = (net.const([n], "i8") for n in ends)
    return net.op("Slice", x, start, end, net.const([axis], "i8"), step)


def gathered(draw: st.DrawFn, net: Net, x: str) -> str:
    axis = _axis(draw, net, x)
    index = st.integers(0, net.shapes[x][axis] - 1)
    return net.op("Gather", x, net.const(draw(st.lists(index, min_size=1)), "i8"), axis=axis)


def expanded(draw: st.DrawFn, net: Net, x: str) -> str:
    return net.op("Expand", x, net.const([2, *(1 for _ in net.shapes[x])], "i8"))


def joined(draw: st.DrawFn, net: Net, x: str) -> str:
    return net.op("Concat", x, net.op("Neg", x), axis=_axis(draw, net, x))


def _axis(draw: st.DrawFn, net: Net, x: str) -> int:
    return draw(st.integers(0, len(net.shapes[x]) - 1))


MOVES = (reshaped, transposed, unsqueezed, sliced, gathered, expanded, joined)


def quantized(draw: st.DrawFn, net: Net, x: str) -> str:
    """`x` through integers, per tensor or per channel."""
    shape = net.shapes[x]
    scale, zero, more = net.const(draw(st.sampled_from(SCALES)), "f4"), net.const(3, "i1"), {}
    if draw(st.integers(0, 3)) == 0:
        axis = _axis(draw, net, x)
        steps = np.linspace(0.1, 0.4, shape[axis])
        scale, zero = net.const(steps, "f4"), net.const(np.arange(shape[axis]) % 5, "i1")
        more: dict[str, Any] = {"axis": axis}
    integers = net._raw("QuantizeLinear", [x, scale, zero], shape, **more)
    return net._raw("DequantizeLinear", [integers, scale, zero], shape, **more)


@st.composite
def movements(draw: st.DrawFn) -> onnx.ModelProto:
    """A tree of movements of one computed tensor with quantized leaves, some read on."""
    net = Net()
    values = [net.op("Sin", net.input(*INPUT))]
    for _ in range(draw(st.integers(1, 7))):
        x = draw(st.sampled_from(values))
        made = draw(st.sampled_from(MOVES))(draw, net, x)
        if 0 < math.prod(net.shapes[made]) < 400:
            values.append(made)
    outputs = [quantized(draw, net, x) for x in values if draw(st.booleans())]
    if draw(st.booleans()):
        outputs.append(draw(st.sampled_from(values)))
    return net.model(*dict.fromkeys(outputs or [quantized(draw, net, values[-1])]))


@settings(max_examples=150)
@given(movements())
def test_moving_quantization_changes_no_integer(model: onnx.ModelProto) -> None:
    feeds = feeds_of(model)
    moved = run_passes((SinkDequantize(), HoistQuantize()), load(model, "net"))
    got = reference(ir.to_proto(moved.ir), feeds)
    for name, values in reference(model, feeds).items():
        np.testing.assert_array_equal(got[name], values, err_msg=name)
