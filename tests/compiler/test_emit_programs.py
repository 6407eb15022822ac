"""Whole programs: the same text every time, loops that stay loops, bytes that add up, and networks
that are one group.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from machines import NAMED, changed, machine
from networks import Net, check

from archgen.models.load import open_model
from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.errors import DoesNotFit
from compiler.options import Stages
from compiler.schedule.fusion.optimal import STRATEGIES
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import KeepTensors
from simmodel.arch.record import Arch
from simmodel.program.assembly import print_program
from simmodel.verify import verify


def small_network(side: int = 9, batch: int = 1) -> Net:
    net = Net()
    x = net.input(batch, 8, side, side)
    a = net.op("Relu", net.op("Conv", x, net.weight(16, 8, 3, 3), pads=[1] * 4))
    b = net.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2])
    c = net.op("Conv", b, net.weight(16, 1, 3, 3), group=16, pads=[1] * 4)
    net.result = net.op("Softmax", net.op("Add", c, b), axis=1)  # type: ignore[attr-defined]
    return net


def text(arch: Arch) -> str:
    net = small_network()
    return print_program(compile_model(net.model(net.result), arch).program)  # type: ignore[attr-defined]


def test_scores_are_scaled_and_masked_where_the_array_has_them() -> None:
    """One instruction reads each score, not a copy of it."""
    net = Net()
    scores = net.op("MatMul", net.input(1, 2, 16, 8), net.input(1, 2, 8, 16))
    scaled = net.op("Mul", scores, net.const(np.float32(0.25)))
    model = net.model(net.op("Add", scaled, net.weight(1, 1, 16, 16)))
    arch = machine(accumulators=8192)
    check(model, arch, "fp16")
    program = print_program(compile_model(model, arch, CompileOptions("fp16")).program)
    (line,) = (line for line in program.splitlines() if "a=accumulators" in line)
    assert "function=add" in line
    assert "*0.25 b=" in line


def test_another_process_gives_the_same_programs() -> None:
    here = Path(__file__).parent
    names = ["fine", "small"]
    code = (
        "from machines import NAMED; from test_emit_programs import text;"
        f"print(''.join(text(NAMED[n]) for n in {names}), end='')"
    )
    paths = os.pathsep.join([str(here), str(here.parents[1])])
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": paths}
    made = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert made.stdout == "".join(text(NAMED[name]) for name in names)


@pytest.mark.parametrize("name", NAMED)
def test_dram_moves_at_least_what_is_used(name: str) -> None:
    """Every input, every constant and every output crosses once at least."""
    net = small_network()
    seen = check(net.model(net.result), NAMED[name], "fp32")  # type: ignore[attr-defined]
    program = seen.compiled.program
    used = sum(constant.used for constant in program.constants)
    inputs = sum(port.operand.distinct for port in program.inputs)
    outputs = sum(port.operand.distinct for port in program.outputs)
    read = sum(seen.trace.traffic.get(f"{far}.read", 0) for far in ("dram", "flash"))
    assert read >= used + inputs
    assert seen.trace.traffic["dram.write"] >= outputs
    # The pooling behind it leaves out the last row and column of 9, so nobody computes these.
    assert seen.trace.macs >= 8 * 16 * 9 * 64


def test_a_group_that_cannot_fit_is_refused_with_its_sum() -> None:
    arch = changed(NAMED["plain"], "memories.local", size=64)
    net = Net()
    model = net.model(net.op("Conv", net.input(1, 4, 9, 9), net.weight(4, 4, 7, 7)))
    with pytest.raises(DoesNotFit) as refusal:
        compile_model(model, arch)
    why = refusal.value
    assert why.bound == 64 < why.demand == sum(amount for _, amount in why.terms)
    assert "local memory" in str(why) and any("memories.local.size" in x for x in why.levers)


def with_tokens(count: int) -> Arch:
    arch = changed(NAMED["small"], "front_end", tokens=count)
    assert arch.front_end.sync == "tokens"
    return arch


def test_groups_share_tokens() -> None:
    """A network of many groups needs no more tokens than its neediest group or two."""
    net = small_network()
    apart = CompileOptions(stages=Stages(partition=Unfused()))
    model = net.model(net.result)  # type: ignore[attr-defined]
    program = compile_model(model, with_tokens(256), apart).program
    groups = {origin.group for origin in program.origins}
    used = len(program.tokens[0])
    assert len(groups) >= 4
    assert used < 6 * len(groups)
    exactly = compile_model(model, with_tokens(used), apart).program
    assert exactly.tokens == program.tokens


def test_too_few_tokens_are_refused_with_the_number_that_would_do() -> None:
    net = small_network()
    with pytest.raises(DoesNotFit) as refusal:
        compile_model(net.model(net.result), with_tokens(1))  # type: ignore[attr-defined]
    why = refusal.value
    assert why.bound == 1
    assert why.demand == sum(amount for _, amount in why.terms) > 1
    assert f"front_end.tokens of at least {why.demand}" in str(why)


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
    bias = net.vector(10)
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
