"""Tiles along channels: products side by side, each tile with weights of its own."""

from __future__ import annotations

import onnx
import pytest
from machines import NAMED, machine
from networks import Net, check, followed
from test_tile_trace import group_of

from compiler.api import CompileOptions, prepared
from compiler.decisions.text.text import TreeError, parse_tree
from compiler.geometry.cuts import shared_axes, tiled_channels
from compiler.pipeline import compile_model
from compiler.schedule_ir.layer import Layer
from simmodel.arch.record import Arch


def gated(tokens: int = 32, width: int = 16, wide: int = 96) -> onnx.ModelProto:
    """Two products of one input, multiplied by each other."""
    net = Net()
    x = net.input(1, tokens, width)
    up, gate = (net.op("MatMul", x, net.weight(width, wide)) for _ in range(2))
    return net.model(net.op("Mul", up, net.op("Sigmoid", gate)))


def chained() -> onnx.ModelProto:
    """Two products, one behind the other."""
    net = Net()
    x = net.op("MatMul", net.input(1, 32, 16), net.weight(16, 32))
    return net.model(net.op("MatMul", x, net.weight(32, 32)))


def test_only_products_of_what_comes_from_outside_move_along_channels() -> None:
    assert tiled_channels(group_of(gated())) == 2
    assert tiled_channels(group_of(chained())) is None  # sums over all channels before it


def test_what_follows_from_layers_stays_known_beside_what_lies_on_chip() -> None:
    group = group_of(gated())
    users, axes = group.users, shared_axes(group)
    beside = group.beside({}, {"local": 64})
    assert (beside.users, beside.room("local", 100)) == (users, 36)
    assert beside.users is users
    assert shared_axes(group) is axes == shared_axes(beside)


def by_hand(model: onnx.ModelProto, arch: Arch, *, size: int, resident: bool, cores: int) -> None:
    """Tiles of `size` channels; each core has tokens of its own."""
    options, graph = CompileOptions("fp32"), prepared(model, "net")
    search = compile_model(graph, arch, options).search
    assert search is not None
    layers = [part.nests for part in search.parts if isinstance(part, Layer)]
    text = "tree net\nstep\n"
    for core in range(cores):
        text += f"  core m = {32 * core // cores}:{32 * (core + 1) // cores}\n"
    text += f"  for n {size}\n"
    for nests in layers:
        text += f"  layer {', '.join(nest.tensor for nest in nests)}"
        text += ": resident\n" if resident else "\n"
    made = check(model, arch, "fp32", CompileOptions(tree=parse_tree(text))).compiled
    (decision,) = made.decisions
    assert [(loop.axis, loop.size) for loop in decision.schedule.loops] == [(2, size)]
    followed(graph, arch, options, made)


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("size", [16, 40])
@pytest.mark.parametrize("name", ["plain", "interlocked", "bare"])
def test_tiles_along_channels_by_hand(name: str, size: int, resident: bool) -> None:
    by_hand(gated(), NAMED[name], size=size, resident=resident, cores=1)


@pytest.mark.parametrize("among", ["load", "peer"])
def test_cores_with_tokens_of_their_own_share_the_weights_of_each_tile(among: str) -> None:
    by_hand(gated(), machine(cores=2, among=among), size=32, resident=False, cores=2)


def test_other_axes_of_channels_are_refused() -> None:
    text = "tree net\nstep\n  core\n  for n 16\n  layer {}\n  layer {}\n"
    graph = prepared(chained(), "net")
    search = compile_model(graph, NAMED["plain"], CompileOptions("fp32")).search
    assert search is not None
    names = [part.nests[0].tensor for part in search.parts if isinstance(part, Layer)]
    options = CompileOptions("fp32", tree=parse_tree(text.format(*names)))
    with pytest.raises(TreeError, match="tiles cannot move along n"):
        compile_model(graph, NAMED["plain"], options)


def test_what_passes_between_products_side_by_side_stays_on_chip() -> None:
    """Results of 64 x 256 have 64 KiB, twice what there is; weights have 32 KiB each."""
    arch = machine(local={"size": 32768, "banks": 4}, copy={"bandwidth": "2 B/cycle"})
    made = check(gated(tokens=64, width=32, wide=256), arch, "fp32")
    loops = [loop for d in made.compiled.decisions for loop in d.schedule.loops]
    assert [loop.axis for loop in loops] == [2]
    # Input, both weights and the result, each once.
    assert made.trace.traffic["dram.read"] == 64 * 32 * 4 + 2 * 32 * 256 * 4
    assert made.trace.traffic["dram.write"] == 64 * 256 * 4
