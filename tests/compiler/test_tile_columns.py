"""Tiles along the columns of maps that are wider than high, in groups and over cores."""

from __future__ import annotations

from itertools import pairwise

import onnx
import pytest
from blocks import conv
from machines import NAMED, machine
from networks import Net, check

from archgen.schema import load_arch
from compiler.bind.bind import Bind
from compiler.driver import CompileOptions, compile_model, prepared
from compiler.fuse.dependence import dependences
from compiler.fuse.fuse_tails import FuseTails
from compiler.geometry.cuts import shared_axes, worth_cutting
from compiler.geometry.walk import Walker, kept
from compiler.group import Group
from compiler.ops.lower import lower
from compiler.schedule import OuterLoop
from compiler.stages import Stages
from compiler.tile.choose_tiles import ChooseTiles
from simmodel.arch import Arch
from simmodel.simulate import simulate


def strip(high: int, wide: int, channels: int = 8, quantized: bool = False) -> onnx.ModelProto:
    """Three convolutions and a constant that differs from column to column."""
    net = Net(quantized)
    x = net.input(1, channels, high, wide)
    for _ in range(3):
        x = conv(net, x, channels, (3, 3), pads=(1, 1, 1, 1))
    return net.model(net.op("Add", x, net.weight(1, 1, 1, wide)))


def group_of(model: onnx.ModelProto) -> Group:
    graph = lower(prepared(model, "net"), "fp32")
    parts = Bind().apply(FuseTails().apply(graph), machine())
    return dependences(parts, graph).group((1 << len(parts)) - 1)


def test_columns_are_walked_like_rows() -> None:
    net = Net()
    x = net.input(1, 1, 1, 12)
    for _ in range(2):
        x = conv(net, x, 1, (1, 3), pads=(0, 1, 0, 1), bias=False)
    group = group_of(net.model(x))
    part = ((0, 1), (0, 1), (0, 1), (0, 12))
    walked = Walker(group, frozenset()).walk((OuterLoop(3, 4, rolling=True),), part)
    # Columns 0 .. 3 need columns -1 .. 4; the next tile's columns 3 .. 8 keep columns 3 and 4.
    assert [m.work[0][3] for m in walked.moments if m.work[0]] == [(0, 5), (5, 4), (9, 3)]
    holds = [m.holds[next(iter(group.held))] for m in walked.moments]
    assert [kept(a, b) for a, b in pairwise(holds)] == [(3, 4, 2), (3, 4, 2)]


def test_only_images_that_are_wider_than_high_are_cut_along_columns() -> None:
    wide, high = group_of(strip(4, 96)), group_of(strip(96, 4))
    assert (worth_cutting(wide), worth_cutting(high)) == ([2, 3], [2])
    assert shared_axes(wide) == shared_axes(high) == [2, 3]  # who says so may


def test_channels_are_no_columns() -> None:
    net = Net()
    x = net.input(1, 2, 4, 8)
    group = group_of(net.model(net.op("MatMul", net.op("MatMul", x, net.weight(8, 32)),
                                      net.weight(32, 64))))  # fmt: skip
    assert shared_axes(group) == [2]


def small(name: str) -> Arch:
    """A machine with little memory."""
    arch = NAMED[name]
    local = arch.memories.local.model_copy(update={"size": 16384})
    return arch.model_copy(update={"memories": arch.memories.model_copy(update={"local": local})})


@pytest.mark.parametrize("halo", ["rolling", "recompute"])
@pytest.mark.parametrize("name", ["plain", "finishing", "fine", "interlocked"])
def test_a_strip_in_tiles_along_columns(name: str, halo: str) -> None:
    dtype = "int8" if name in ("finishing", "fine") else "fp32"
    model = strip(4, 160, quantized=dtype == "int8")
    options = CompileOptions(stages=Stages(tile=ChooseTiles(rolling=halo == "rolling")))
    made = check(model, small(name), dtype, options)
    loops = [loop for decision in made.compiled.decisions for loop in decision.schedule.loops]
    assert {(loop.axis, loop.rolling) for loop in loops} == {(3, halo == "rolling")}


def test_a_strip_takes_what_a_square_of_as_many_pixels_takes() -> None:
    arch = load_arch("mcu-npu")
    cycles = []
    for high, wide in ((8, 1024), (64, 128)):
        net = Net(quantized=True)
        x = net.input(1, 32, high, wide)
        for _ in range(3):
            x = net.op("Conv", x, net.weight(32, 32, 3, 3), pads=[1] * 4)
        options = CompileOptions(dtype="int8")
        made = compile_model(prepared(net.model(x), "net"), arch, options)
        cycles.append(simulate(made.program, arch).cycles)
    assert cycles[0] <= 1.1 * cycles[1]


def test_cores_share_the_columns_of_a_strip() -> None:
    arch = machine(name="four", cores=4, local={"size": 1 << 20})
    made = check(strip(2, 160), arch, "fp32")
    spans = {part[3] for decision in made.compiled.decisions for part in decision.schedule.parts}
    assert spans == {(0, 40), (40, 40), (80, 40), (120, 40)}
