"""Several inferences in one program: proved, the same values, and weights that stay loaded once."""

from __future__ import annotations

import numpy as np
import pytest
from blocks import attention, conv
from machines import NAMED, machine
from networks import Net

from archgen.check.reference import run_node
from compiler.api import CompileOptions, back_to_back, compile_model, parse_tree, prepared
from compiler.memory.on_chip import PlacedGroup
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


FEEDS = {"x0": np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype("f4")}


def two_layers(side_by_side: bool) -> Net:
    """Convolutions of 16 x 16 pixels and 8 to 8 channels: one behind the other, or of one input."""
    net = Net(quantized=False)
    x = net.input(1, 8, 16, 16)
    a = conv(net, x, 8, (3, 3))
    net.result = conv(net, x if side_by_side else a, 8, (3, 3))  # type: ignore[attr-defined]
    if side_by_side:
        net.result = net.op("Concat", a, net.result, axis=1)  # type: ignore[attr-defined]
    return net


@pytest.mark.parametrize(
    ("side_by_side", "inferences", "second", "layers_in_time"),
    [
        (False, 4, 0, 8),  # a0 b0 a1 b1 a2 b2 a3 b3
        (False, 4, 1, 5),  # a0 a1 a2 a3, and b0 b1 b2 b3 one behind
        (True, 1, 0, 2),
        (True, 1, 1, 1),
    ],
)
def test_steps_on_cores_of_their_own_work_at_once(
    side_by_side: bool, inferences: int, second: int, layers_in_time: int
) -> None:
    """With one product in two cycles a layer takes 2 x 256 x 8 x 72, and what it moves some 2 %."""
    arch = machine(cores=2, matrix={"rows": 1, "cols": 1, "depth": 1})
    net = two_layers(side_by_side)
    graph = prepared(net.model(net.result), "net")  # type: ignore[attr-defined]
    names = [node.outputs[0].name for node in graph.graph if node.op_type == "Conv"]
    steps = "".join(
        f"step\n core\n cores {core}:{core + 1}\n layer {name}: for h 4\n"
        for core, name in zip((0, second), names, strict=True)
    )
    options = CompileOptions("fp32", tree=parse_tree(f"tree net\n{steps}"))
    made = compile_model(graph, arch, options)
    alone = execute(made.program, FEEDS, arch, run_node)
    several = replace_steps(made, made.steps, inferences).program
    verify(several, arch)
    cycles = layers_in_time * 2 * 256 * 8 * 72
    assert cycles <= traced(several, arch).cycles < 1.03 * cycles
    for name, values in execute(several, FEEDS, arch, run_node).items():
        np.testing.assert_array_equal(values, alone[name])


def test_weights_that_one_core_cannot_keep_stay_on_cores_of_their_own() -> None:
    """Of four layers with 36 KiB of weights each, two fit beside what one needs: a core that works
    on all loads two of them for each inference at 16 B a cycle, and cores of two layers none."""
    arch = machine(cores=2, local={"size": 1 << 17, "banks": 4})
    net = Net(quantized=True)
    x = net.input(1, 64, 8, 8)
    for _ in range(4):
        x = conv(net, x, 64, (3, 3))
    made = compile_model(net.model(x), arch, CompileOptions("int8"))
    found = back_to_back(made, 8, arch, traced)
    steps = [step for step in found.result.steps if isinstance(step, PlacedGroup)]
    assert [step.plan.schedule.cores for step in steps] == [range(1), range(1, 2)]
    plain = traced(replace_steps(made, made.steps, 8).program, arch)
    assert found.segments == 2
    assert found.trace.traffic["dram.read"] < plain.traffic["dram.read"] / 4
    moved = found.trace.traffic["dram.read"] + found.trace.traffic["dram.write"]
    assert 16 * found.moving(arch) == pytest.approx((moved - 4 * 64 * 64 * 9) / 8, rel=0.05)
    assert found.moving(arch) < found.interval < 0.65 * plain.cycles / 8
