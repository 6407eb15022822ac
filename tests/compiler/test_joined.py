"""Slices and views that do not pass through memory: fire blocks, dense ones, heads of an attention.

Bytes of DRAM are worked out by hand, and blocks at random compute what they should.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx
import pytest
from blocks import attention, conv
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from networks import Checked, Net, check

from compiler.context import CompileOptions
from compiler.options import Stages
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import KeepTensors
from simmodel.arch.record import Arch

LARGE = machine(local={"size": 1 << 20})
APART = Stages(partition=Unfused())


def fire(net: Net, x: str, squeezed: int, expanded: Sequence[int]) -> str:
    """A squeezed map, expanded by kernels of 1, 3, 5 and so on, one beside the other."""
    small = net.op("Relu", conv(net, x, squeezed, (1, 1)))
    kernels = range(1, 2 * len(expanded), 2)
    parts = [conv(net, small, n, (k, k)) for n, k in zip(expanded, kernels, strict=True)]
    return net.op("Concat", *(net.op("Relu", part) for part in parts), axis=1)


def dense(net: Net, x: str, growth: int, layers: int) -> str:
    """Every layer reads all maps before it and adds some of its own."""
    for _ in range(layers):
        inner = net.op("Relu", conv(net, x, 2 * growth, (1, 1)))
        x = net.op("Concat", x, conv(net, inner, growth, (3, 3)), axis=1)
    return x


def checked(model: onnx.ModelProto, arch: Arch, stages: Stages, dtype: str) -> Checked:
    return check(model, arch, dtype, CompileOptions(stages=stages))


def moved(model: onnx.ModelProto, arch: Arch, stages: Stages) -> tuple[int, int]:
    """Bytes that DRAM gives and takes."""
    traffic = checked(model, arch, stages, "fp32").trace.traffic
    return traffic["dram.read"], traffic["dram.write"]


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_slices_of_a_fire_block_are_made_and_read_on_chip(sync: str) -> None:
    net = Net()
    y = conv(net, fire(net, net.input(1, 8, 8, 8), 16, (16, 16)), 8, (3, 3))
    model, arch = net.model(y), machine(local={"size": 1 << 20}, sync=sync)
    read, written = moved(model, arch, replace(APART, keep=KeepTensors(enabled=False)))
    least, result = moved(model, arch, APART)
    # 16 squeezed maps of 256 bytes, which two groups read, and 16 + 16 maps that one reads.
    assert written - result == (16 + 32) * 256
    assert read - least >= (2 * 16 + 32) * 256  # and the rows that tiles have in common
    assert result == 8 * 256


def test_maps_of_a_dense_block_stay_until_its_last_layer_has_read_them() -> None:
    net = Net()
    x = conv(net, net.input(1, 8, 8, 8), 16, (3, 3))
    y = conv(net, dense(net, x, 16, 3), 8, (1, 1))
    read, written = moved(net.model(y), LARGE, replace(APART, keep=KeepTensors(enabled=False)))
    least, result = moved(net.model(y), LARGE, APART)
    # Slices of 16 maps of 256 bytes, read as 1, 2, 3 and 4 of them; 32 maps within each layer.
    assert read - least >= (16 * (1 + 2 + 3 + 4) + 3 * 32) * 256
    assert written - result == (16 * 4 + 3 * 32) * 256


def test_heads_of_an_attention_are_read_on_chip_where_they_were_made() -> None:
    net = Net()
    model = net.model(attention(net, net.input(1, 16, 32), 4))
    read, written = moved(model, LARGE, replace(APART, keep=KeepTensors(enabled=False)))
    least, result = moved(model, LARGE, APART)
    # All that is left: the input for three products, their weights and the last ones; the result.
    assert (least, result) == ((3 * 16 * 32 + 4 * 32 * 32) * 4, 16 * 32 * 4)
    # Four maps of 16 x 32 at the least, and scores and weights of 4 x 16 x 16.
    assert written - result >= (4 * 16 * 32 + 2 * 4 * 16 * 16) * 4
    assert read - least >= written - result


ODD = st.sampled_from((1, 2, 3, 5, 7, 8, 13, 17))


@st.composite
def joined(draw: st.DrawFn, quantized: bool) -> onnx.ModelProto:
    """Fire and dense blocks of odd sizes, one behind the other."""
    net = Net(quantized, draw(st.integers(0, 9)))
    sides = (draw(st.sampled_from((1, 3, 6, 9, 14))) for _ in range(2))
    x = conv(net, net.input(draw(st.sampled_from((1, 1, 2))), draw(ODD), *sides), draw(ODD), (1, 1))
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            x = fire(net, x, draw(ODD), draw(st.lists(ODD, min_size=2, max_size=3)))
        else:
            x = dense(net, x, draw(ODD), draw(st.integers(1, 3)))
        if draw(st.booleans()):
            x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    return net.model(conv(net, x, draw(ODD), (3, 3)))


@given(st.data())
@settings(max_examples=12)
def test_any_blocks_on_any_memory_compute_the_same(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(("int8", "fp32")))
    size = data.draw(st.sampled_from((1 << 14, 1 << 16, 1 << 20)))
    sync = data.draw(st.sampled_from(("tokens", "interlock")))
    model = data.draw(joined(dtype == "int8"))
    stages = data.draw(st.sampled_from((APART, Stages())))
    checked(model, machine(local={"size": size}, sync=sync), stages, dtype)
