"""A network that fits in local memory can be one group, from its input to its classifier."""

from __future__ import annotations

import onnx
import pytest
from machines import machine
from networks import Net, check

from archgen.models.load import open_model
from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.options import Stages
from compiler.schedule.fusion.optimal import STRATEGIES
from compiler.schedule.residency.activations import KeepTensors
from simmodel.verify import verify

ROOMY = machine(name="roomy", local={"size": 1 << 19, "banks": 8}, matrix={"depthwise": True})
LARGE = machine(
    name="large", local={"size": 1 << 25, "banks": 16, "bank_width": 64},
    matrix={"rows": 16, "cols": 32, "depth": 16, "depthwise": True, "writeback": ("bias", "clip")},
    vector={"lanes": 64},
)  # fmt: skip


def residuals(quantized: bool, batch: int = 1) -> onnx.ModelProto:
    """Inverted residuals on 16 x 16 pixels, then a pool and a classifier of ten classes."""
    net = Net(quantized)
    x = _conv(net, net.input(batch, 3, 16, 16), 8, kernel=3, stride=2)
    for channels, stride in ((8, 1), (12, 2), (12, 1)):
        y = _conv(net, x, 3 * net.shapes[x][1], kernel=1)
        y = _conv(net, y, 0, kernel=3, stride=stride)
        y = _conv(net, y, channels, kernel=1, act=False)
        x = net.op("Add", x, y) if net.shapes[x] == net.shapes[y] else y
    x = net.op("GlobalAveragePool", _conv(net, x, 40, kernel=1))
    x = net.op("Flatten", x)
    bias = net.const(net.rng.standard_normal(10).astype("f4"))
    return net.model(net.op("Gemm", x, net.weight(10, 40), bias, transB=1))


def _conv(
    net: Net, x: str, out: int, kernel: int, stride: int = 1, *, act: bool = True
) -> str:  # fmt: skip
    """A convolution and its activation; of no channels: one for each channel."""
    channels = net.shapes[x][1]
    shape = (out, channels, kernel, kernel) if out else (channels, 1, kernel, kernel)
    y = net.op(
        "Conv", x, net.weight(*shape), strides=[stride, stride],
        pads=[kernel // 2] * 4, group=1 if out else channels,
    )  # fmt: skip
    return net.op("Clip", y, net.const(0.0, "f4"), net.const(6.0, "f4")) if act else y


def options(name: str) -> CompileOptions:
    """Groups by strategy `name`; what passes between them is not kept."""
    stages = Stages(partition=STRATEGIES[name](), keep=KeepTensors(enabled=False))
    return CompileOptions(stages=stages)


def lengths(compiled: CompileResult) -> list[int]:
    """Layers of each group."""
    return [len(decision.group.layers) for decision in compiled.decisions]


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_a_small_network_is_one_group(dtype: str) -> None:
    model = residuals(dtype == "int8")
    whole = check(model, ROOMY, dtype, options("branchx"))
    assert lengths(whole.compiled) == [sum(lengths(whole.compiled))]
    apart = check(model, ROOMY, dtype, options("none"))
    assert whole.trace.cycles < apart.trace.cycles
    assert whole.trace.traffic["dram.write"] < apart.trace.traffic["dram.write"]


def test_a_real_network_is_one_group() -> None:
    proto = open_model("mobilenet_v2:image=64").proto
    compiled = compile_model(proto, LARGE, options("branchx"))
    verify(compiled.program, LARGE)
    (length,) = lengths(compiled)
    assert length > 50
