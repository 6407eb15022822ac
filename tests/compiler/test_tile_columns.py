"""Tiles along the columns of maps that are wider than high, in groups and over cores; attention as
one group: cut along heads and tokens.
"""

from __future__ import annotations

from itertools import pairwise

import onnx
import pytest
from blocks import conv
from machines import NAMED, changed, machine
from networks import Net, check, followed
from test_tile_trace import group_of

from compiler.api import CompileOptions, prepared
from compiler.context import CompileResult
from compiler.decisions.text.text import parse_tree
from compiler.geometry.cuts import dividing, heads, shared_axes
from compiler.geometry.tile_trace import TileTracer, overlap_with_next
from compiler.options import Stages
from compiler.pipeline import compile_model
from compiler.schedule.tiling.choose_tiles import ChooseTiles
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import OuterLoop
from simmodel.arch.record import Arch


def strip(high: int, wide: int, channels: int = 8, quantized: bool = False) -> onnx.ModelProto:
    """Three convolutions and a constant that differs from column to column."""
    net = Net(quantized)
    x = net.input(1, channels, high, wide)
    for _ in range(3):
        x = conv(net, x, channels, (3, 3), pads=(1, 1, 1, 1))
    return net.model(net.op("Add", x, net.weight(1, 1, 1, wide)))


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


@pytest.mark.parametrize("halo", ["rolling", "recompute"])
@pytest.mark.parametrize("name", ["plain", "finishing", "fine", "interlocked"])
def test_a_strip_in_tiles_along_columns(name: str, halo: str) -> None:
    dtype = "int8" if name in ("finishing", "fine") else "fp32"
    model = strip(4, 160, quantized=dtype == "int8")
    options = CompileOptions(stages=Stages(tile=ChooseTiles(rolling=halo == "rolling")))
    small = changed(NAMED[name], "memories.local", size=12288)
    made = check(model, small, dtype, options)
    loops = [loop for decision in made.compiled.decisions for loop in decision.schedule.loops]
    assert {(loop.axis, loop.rolling) for loop in loops} == {(3, halo == "rolling")}


def attention(
    count: int = 4, tokens: int = 32, width: int = 16, merged: bool = False
) -> onnx.ModelProto:
    """Attention of heads that are apart, whose results may be brought together by token."""
    net = Net()
    query, key, value = (net.input(1, count, tokens, width) for _ in range(3))
    scores = net.op("MatMul", query, net.op("Transpose", key, perm=[0, 1, 3, 2]))
    x = net.op("MatMul", net.op("Softmax", scores, axis=-1), value)
    if merged:
        x = net.op("Transpose", x, perm=[0, 2, 1, 3])
        x = net.op("Reshape", x, net.const([1, tokens, count * width], "i8"))
    return net.model(x)


@pytest.mark.parametrize(("merged", "head"), [(False, 1), (True, 2)])
def test_heads_and_tokens_divide_an_attention(merged: bool, head: int) -> None:
    group = group_of(attention(merged=merged))
    assert dividing(group) == [1, 2]
    assert set(shared_axes(group)) == {1, 2}  # the width is that of the values: columns
    assert heads(group) == [head]


TREE = """\
tree net
step
  core
  for b1 1
  for m 8
"""


def by_hand(model: onnx.ModelProto, arch: Arch) -> CompileResult:
    """One head after the other, 8 tokens at a time."""
    options, graph = CompileOptions("fp32"), prepared(model, "net")
    search = compile_model(graph, arch, options).search
    assert search is not None
    layers = (part.nests for part in search.parts if isinstance(part, Layer))
    names = (", ".join(nest.tensor for nest in nests) for nests in layers)
    text = TREE + "".join(f"  layer {each}\n" for each in names)
    made = check(model, arch, "fp32", CompileOptions(tree=parse_tree(text))).compiled
    followed(graph, arch, options, made)
    return made


@pytest.mark.parametrize("name", ["plain", "interlocked", "bare"])
def test_one_head_after_the_other_by_hand(name: str) -> None:
    made = by_hand(attention(), NAMED[name])
    (decision,) = made.decisions
    assert [(loop.axis, loop.size) for loop in decision.schedule.loops] == [(1, 1), (2, 8)]


@pytest.mark.parametrize("merged", [False, True])
def test_scores_stay_on_chip_where_one_head_fits(merged: bool) -> None:
    """Of 64 x 64 scores a head has 16 KiB, keys and values 8 KiB."""
    local = {"size": 49152, "banks": 4}
    arch = machine(name="near", local=local, copy={"bandwidth": "2 B/cycle"})
    model = attention(count=6, tokens=64, merged=merged)
    made = check(model, arch, "fp32")
    loops = [d.schedule.loops for d in made.compiled.decisions if len(d.group.layers) >= 3]
    assert loops and all(len(loop) == 2 or loop[0].size == 1 for loop in loops)
    assert made.trace.traffic["dram.write"] == 6 * 64 * 16 * 4  # the output alone
