"""Tiles along the columns of maps that are wider than high, in groups and over cores."""

from __future__ import annotations

from itertools import pairwise

import onnx
import pytest
from blocks import conv
from machines import NAMED, machine
from networks import Net, check

from compiler.api import CompileOptions, prepared
from compiler.geometry.tile_trace import TileTracer, overlap_with_next
from compiler.lowering.lower import lower
from compiler.options import Stages
from compiler.schedule.fusion.dependence import dependences
from compiler.schedule.fusion.fuse_tails import FuseTails
from compiler.schedule.tiling.choose_tiles import ChooseTiles
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import OuterLoop
from compiler.target.bind import Bind
from simmodel.arch.record import Arch


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
    walked = TileTracer(group, frozenset()).walk((OuterLoop(3, 4, rolling=True),), part)
    # Columns 0 .. 3 need columns -1 .. 4; the next tile's columns 3 .. 8 keep columns 3 and 4.
    assert [m.work[0][3] for m in walked.moments if m.work[0]] == [(0, 5), (5, 4), (9, 3)]
    holds = [m.holds[next(iter(group.internal_readers))] for m in walked.moments]
    assert [overlap_with_next(a, b) for a, b in pairwise(holds)] == [(3, 4, 2), (3, 4, 2)]


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
