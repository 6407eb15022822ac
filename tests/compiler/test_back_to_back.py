"""Several inferences in one program: proved, the same values, and weights that stay loaded once."""

from __future__ import annotations

import numpy as np
import pytest
from blocks import attention, conv
from machines import NAMED, machine
from networks import Net

from archgen.check.reference import run_node
from compiler.api import CompileOptions, back_to_back, compile_model
from compiler.pipeline import replace_steps
from compiler.search.back_to_back import schedules
from simmodel.execute import execute
from simmodel.machine.run import traced
from simmodel.verify import verify


def convolutions(quantized: bool) -> Net:
    net = Net(quantized)
    x = net.op("Relu", conv(net, net.input(1, 8, 12, 12), 16, (3, 3)))
    y = net.op("Relu", conv(net, x, 16, (3, 3)))
    net.result = net.op("Add", y, x)  # type: ignore[attr-defined]
    return net


def layers(quantized: bool) -> Net:
    net = Net(quantized)
    x = net.input(1, 24, 16)
    net.result = net.op("Add", attention(net, x, 2), x)  # type: ignore[attr-defined]
    return net


@pytest.mark.parametrize(
    ("name", "build"),
    [
        pytest.param(name, build, marks=() if (turn + place) % 4 == 0 else pytest.mark.slow)
        for turn, name in enumerate(NAMED)
        for place, build in enumerate((convolutions, layers))
    ],
)
def test_every_schedule_keeps_its_order_and_the_last_makes_what_one_makes(
    name: str, build: type[Net]
) -> None:
    arch = NAMED[name]
    net = build("int8" in arch.types[:1])
    made = compile_model(net.model(net.result), arch, CompileOptions(arch.types[0]))
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.standard_normal(p.shape).astype("f4") for p in made.program.inputs}
    alone = execute(made.program, inputs, arch, run_node)
    for number, steps in enumerate(schedules(made, 3)):
        program = replace_steps(made, steps, 3).program
        verify(program, arch)
        assert program.macs == 3 * made.program.macs
        found = execute(program, inputs, arch, run_node)
        rounded = 0.0 if number < 2 else 1e-2 if arch.types[0] == "fp16" else 1e-5
        for name, values in alone.items():  # other tiles sum in another order
            np.testing.assert_allclose(found[name], values, rtol=rounded, atol=rounded)


def test_weights_that_fit_are_loaded_by_the_first_inference_alone() -> None:
    arch = machine(local={"size": 262144, "banks": 4})
    net = Net(quantized=True)
    x = net.input(1, 8, 64)
    for _ in range(3):
        x = net.op("MatMul", x, net.weight(64, 64))
    made = compile_model(net.model(x), arch, CompileOptions("int8"))
    found = back_to_back(made, 4, arch, traced)
    one, four = traced(made.program, arch), found.trace
    weights = 3 * 64 * 64
    own = one.traffic["dram.read"] - four.traffic["dram.read"] / 4
    assert own == pytest.approx(weights * 3 / 4, rel=0.1)
    assert found.interval < 0.75 * one.cycles


def test_the_interval_is_from_end_to_end_behind_the_first() -> None:
    arch = machine()
    net = convolutions(quantized=False)
    made = compile_model(net.model(net.result), arch, CompileOptions("fp32"))  # type: ignore[attr-defined]
    found = back_to_back(made, 3, arch, traced)
    first, second, third = found.ends
    assert 0 < first < second < third == found.trace.cycles
    assert found.interval == (third - first) / 2
