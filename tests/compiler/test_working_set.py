"""The working set: by hand, in the best order, and what a run needs for spilling nothing."""

from __future__ import annotations

from dataclasses import replace

import onnx
from machines import machine
from networks import Net

from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.explain.report import working_set
from compiler.options import stages_of
from compiler.schedule.fusion.partition import Unfused
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate

APART = replace(stages_of("line", "auto", "latency", 0), partition=Unfused())
"""Each layer is a group of its own; what passes between them may stay on chip."""


def made(model: onnx.ModelProto, arch: Arch) -> CompileResult:
    return compile_model(model, arch, CompileOptions(dtype="fp16", stages=APART))


def roomy(size: int) -> Arch:
    return machine(types=("fp16",), local={"size": size, "banks": 4, "bank_width": 16})


def chain(*channels: int) -> onnx.ModelProto:
    """Convolutions of one pixel each, over an image of 16 x 16."""
    net = Net()
    x = net.input(1, 4, 16, 16)
    for before, after in zip((4, *channels), channels, strict=False):
        x = net.op("Conv", x, net.weight(after, before, 1, 1))
    return net.model(x)


def branches() -> onnx.ModelProto:
    """Two branches, each 32 channels wide and then 2, before they are added."""
    net = Net()
    x = net.input(1, 4, 16, 16)
    wide = [net.op("Conv", x, net.weight(32, 4, 1, 1)) for _ in range(2)]
    thin = [net.op("Conv", each, net.weight(2, 32, 1, 1)) for each in wide]
    return net.model(net.op("Add", *thin))


def test_of_a_chain_it_is_the_largest_result_with_the_one_before_it() -> None:
    """256 pixels of 2 bytes; the input of 4 channels comes from DRAM and is not counted."""
    assert working_set(made(chain(8, 24, 16, 2), roomy(65536))) == (24 + 16) * 256 * 2


def test_branches_are_walked_one_after_the_other() -> None:
    """Only one is wide at a time: 32 channels beside what the other one left, and its own 2."""
    assert working_set(made(branches(), roomy(65536))) == (2 + 32 + 2) * 256 * 2


def test_with_room_for_it_nothing_is_spilled_and_with_less_something_is() -> None:
    """Layer by layer: 20 KiB are alive at once, of which memory for tiles and weights is apart."""
    model, output = chain(8, 24, 16, 2), 2 * 256 * 2
    wrote = {
        size: simulate(made(model, arch).program, arch).traffic["dram.write"]
        for size, arch in ((size, roomy(size)) for size in (16384, 32768))
    }
    assert wrote[32768] == output
    assert wrote[16384] > output
