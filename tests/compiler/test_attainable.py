"""The bound that knows the machine: by hand, and never above what was simulated."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import onnx
import pytest
from blocks import blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine, machines
from networks import Net
from test_closed_forms import free

from compiler.api import CompileOptions, compile_model
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.estimate.network_bound import Attainable, bound_of
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate
from simmodel.metrics import measure

CUBE = {"kind": "cube", "rows": 10, "cols": 32, "depth": 32, "overlap": False}


def of(model: onnx.ModelProto, arch: Arch, dtype: str = "fp16") -> tuple[Attainable, int]:
    made = compile_model(model, arch, CompileOptions(dtype=dtype))
    return bound_of(made, arch), simulate(made.program, arch).cycles


def convolution(channels: int, filters: int = 32, kernel: int = 3) -> onnx.ModelProto:
    net = Net()
    x, weight = net.input(1, channels, 10, 10), net.weight(filters, channels, kernel, kernel)
    return net.model(net.op("Conv", x, weight, pads=[kernel // 2] * 4))


@pytest.mark.parametrize(
    ("channels", "filters", "cycles"), [(32, 32, 90), (3, 32, 10), (3, 33, 20)]
)
def test_an_array_has_whole_folds(channels: int, filters: int, cycles: int) -> None:
    """Ten blocks of ten pixels; nine kernel positions of 3 channels are one reduction of 27."""
    found, _ = of(convolution(channels, filters), free(CUBE))
    assert found.matrix == cycles


def test_what_only_the_vector_engine_does() -> None:
    """1600 elements of two additions each on 16 lanes."""
    net = Net()
    x = net.input(1, 16, 10, 10)
    arch = machine(types=("fp16",))
    found, took = of(net.model(net.op("Exp", net.op("Mul", x, x))), arch)
    assert found.vector == 1600 / 16 * (1 + 8)
    assert (found.resource, found.cycles) == ("vector", 900)
    assert took >= 900


def chain(sizes: tuple[int, ...]) -> onnx.ModelProto:
    """An image of 24 x 24, then as many channels; the last layers see one pixel."""
    net = Net()
    x = net.input(1, 16, 24, 24)
    before = 16
    for size in sizes[:-2]:
        x, before = net.op("Conv", x, net.weight(size, before, 1, 1)), size
    x = net.op("GlobalAveragePool", x)
    for size in sizes[-2:]:
        x, before = net.op("Conv", x, net.weight(size, before, 1, 1)), size
    return net.model(x)


def test_late_weights_wait_for_room() -> None:
    """Two late layers of 16 KiB each pass 8 KiB of memory at 16 B a cycle only when the ones before
    are over: what does not fit comes afterwards."""
    local = {"size": 8192, "banks": 4, "bank_width": 16}
    arch = machine(types=("fp16",), local=local, matrix={"rows": 1, "cols": 4, "depth": 4})
    model = chain((16, 16, 512, 16))
    found, took = of(model, arch)
    early = 2 * 576 * 4 * 4  # two layers of 16 x 16 for 576 pixels, a sixteenth in a cycle
    weights = (512 * 16 * 2 * 2 - 8192) / 16
    assert early < found.weights <= early + weights + 2 * 512
    assert found.weights > found.bandwidth
    assert took >= found.cycles


@settings(max_examples=25, derandomize=True)
@given(machines(), st.data())
def test_no_run_is_quicker(arch: Arch, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(arch.types))
    model: onnx.ModelProto = data.draw(blocks(dtype == "int8", most=3))
    with suppress(DoesNotFit, UnsupportedModel):
        made = compile_model(model, arch, CompileOptions(dtype=dtype))
        trace = simulate(made.program, arch)
        found = bound_of(made, arch)
        assert found.cycles <= trace.cycles
        assert found.bandwidth <= measure(trace, made.program, arch).roofline_cycles + 1


def test_a_depthwise_convolution_of_which_nothing_is_read_takes_nothing() -> None:
    net = Net()
    whole = net.op("Conv", net.input(2, 4, 8, 8), net.weight(4, 1, 3, 3), group=4)
    none = [net.const([0], np.int64)] * 3
    found, _ = of(net.model(net.op("Slice", whole, *none)), machine(types=("fp16",)))
    assert found.cycles == 0
