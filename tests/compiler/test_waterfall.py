"""From the bound to the measured cycle: both accounts add up, and each part is what it says."""

from __future__ import annotations

import onnx
import pytest
from machines import machine
from networks import Net, check
from test_closed_forms import free

from compiler.api import CompileOptions, compile_model
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate
from simmodel.waterfall import Waterfall, waterfall

SLOW = 1 << 14
CUBE = {"kind": "cube", "rows": 10, "cols": 32, "depth": 32, "overlap": False}


def of(model: onnx.ModelProto, arch: Arch, dtype: str = "fp16") -> tuple[Waterfall, int]:
    program = compile_model(model, arch, CompileOptions(dtype=dtype)).program
    trace = simulate(program, arch)
    return waterfall(trace, program, arch), trace.cycles


def convolution(channels: int) -> onnx.ModelProto:
    """100 pixels, nine positions of a kernel, 32 filters."""
    net = Net()
    x, weight = net.input(1, channels, 10, 10), net.weight(32, channels, 3, 3)
    return net.model(net.op("Conv", x, weight, pads=[1] * 4))


@pytest.mark.parametrize(("channels", "padding"), [(32, 0), (16, 45), (8, 67.5)])
def test_half_a_reduction_is_half_padding(channels: int, padding: float) -> None:
    """Ten pixels, all filters and 32 products of each in a cycle: 90 cycles, whatever is in them;
    each takes 16384 times as long, so that memory does not matter."""
    arch = free(CUBE | {"granularity": "gemm"})
    matrix = arch.matrix.model_copy(update={"rate": {"fp16": 1 / SLOW}})
    found, _ = of(convolution(channels), arch.model_copy(update={"matrix": matrix}))
    assert found.matrix["products"] == (90 - padding) * SLOW
    assert found.matrix["padding"] == padding * SLOW
    assert found.matrix["products again"] == found.matrix["start-ups"] == 0


def test_each_instruction_starts_up_once() -> None:
    """Nine products of ten blocks of ten pixels, five cycles each."""
    arch = free(CUBE | {"granularity": "tile", "max_pixels": 10, "startup": "5 cycles"})
    found, _ = of(convolution(32), arch)
    assert found.matrix["start-ups"] == 9 * 10 * 5


@pytest.mark.parametrize("cores", [1, 2])
def test_both_accounts_add_up(cores: int) -> None:
    net = Net()
    x = net.op("Conv", net.input(1, 8, 20, 20), net.weight(16, 8, 3, 3), pads=[1] * 4)
    x = net.op("Conv", net.op("Relu", x), net.weight(8, 16, 3, 3), pads=[1] * 4)
    arch = machine(cores=cores, local={"size": 8 << 10, "banks": 4, "bank_width": 16})
    checked = check(net.model(x), arch, "fp16")
    program, trace = checked.compiled.program, checked.trace
    found = waterfall(trace, program, arch)
    for account in (found.matrix, found.dram):
        assert sum(account.values()) == pytest.approx(trace.cycles)
        assert min(account.values()) >= -1e-6
    assert found.dram["again"] > 0  # the halo between the tiles
