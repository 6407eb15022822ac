"""Constants that stay on chip over several groups: loaded once, wherever who reads them runs."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from doubles import Pinning, anything
from machines import machine
from networks import Net, check

from compiler.context import CompileOptions
from compiler.options import Stages
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.weights import PinConstants
from simmodel.arch.record import Arch

WEIGHTS = 24 * 24 * 4
LAYERS = 5


def tied() -> onnx.ModelProto:
    """Layers with one matrix."""
    net = Net()
    x, w = net.input(1, 24), net.weight(24, 24)
    for _ in range(LAYERS):
        x = net.op("Tanh", net.op("MatMul", x, w))
    return net.model(x)


def loaded(arch: Arch, pin: PinConstants, **stages: object) -> int:
    """Bytes of DRAM that a program of `tied` reads; it is verified, executed and compared."""
    options = CompileOptions(stages=replace(Stages(pin=pin), **stages))  # type: ignore[arg-type]
    return check(tied(), arch, "fp32", options).trace.traffic["dram.read"]


@pytest.mark.parametrize(
    "arch",
    [machine(), machine(weights=8192), machine(sync="interlock")],
    ids=["local", "weights", "interlock"],
)
def test_weights_of_several_layers_are_loaded_once(arch: Arch) -> None:
    for partition in (Unfused(), Stages().partition):
        pinned = loaded(arch, PinConstants(), partition=partition)
        again = loaded(arch, PinConstants(enabled=False), partition=partition)
        assert pinned < 2 * WEIGHTS < LAYERS * WEIGHTS <= again


def test_every_core_that_comes_to_them_loads_its_own_copy() -> None:
    """Whatever the groups, their cores and the tensors that are kept beside."""
    for seed in range(6):
        options = anything(seed, rolling=None)
        options = replace(options, stages=replace(options.stages, pin=Pinning()))
        made = check(tied(), machine(cores=3), "fp32", options)
        pinned = [d.group.pinned for d in made.compiled.decisions]
        assert any(pinned)
        assert made.trace.traffic["dram.read"] < 4 * WEIGHTS


def test_what_does_not_fit_beside_them_is_given_up() -> None:
    little = machine(local={"size": 2048})
    assert loaded(little, PinConstants()) >= LAYERS * WEIGHTS
